"""Tasks and answers travel as data, and are refused where a part of them is another one."""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon.ledger import gradient_hash
from guerdon.looks.auditors import Auditor, auditor_of, read_auditor
from guerdon.looks.coins import sealing_key
from guerdon.looks.exchange import Answer, Task, answer_to, report_hash
from guerdon.looks.isolation import Limits
from guerdon.looks.opening import Opening
from guerdon.looks.sealing import unseal
from guerdon.run.reports import hash_of
from tests.looks.looked import AUDITOR, ROWS, SECOND, about, mine, model, task_for


def equal(one: Task, other: Task) -> bool:
    same = (one.subject, one.auditor, one.sends, one.appeal, one.replaces, one.limits) == (
        other.subject, other.auditor, other.sends, other.appeal, other.replaces, other.limits,
    )  # fmt: skip
    return same and told(one.model) == told(other.model) and told(one.report) == told(other.report)


def told(arrays: Mapping[str, Any]) -> list[tuple[str, Any, bytes]]:
    return [(name, array.dtype, array.tobytes()) for name, array in arrays.items()]


@pytest.mark.parametrize(
    "other", [{}, {"sends": "models", "limits": Limits(wall=7)}, {"appeal": True, "replaces": "ab" * 32}]
)
def test_a_task_is_read_as_it_was_written(tmp_path: Path, other: dict[str, Any]) -> None:
    task = task_for(tmp_path, **other)
    data = task.to_bytes()
    assert equal(Task.from_bytes(data), task)
    assert task.to_bytes() == data, "the same task gives the same bytes"


def test_the_report_s_hash_is_what_the_ledger_keeps() -> None:
    report = {"b": np.ones(2, np.float32), "a": np.zeros((2, 3))}
    assert report_hash(report) == hash_of(report) == gradient_hash([report["a"], report["b"]])


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("look", 4),
        ("round", 8),
        ("rows", ROWS[::-1]),
        ("seed", 1),
        ("work", "task:other"),
        ("code", "ab" * 32),
        ("committed", mine().committed()._replace(distinct=19)),
    ],
)
def test_a_task_s_hash_is_of_all_that_the_ledger_says(tmp_path: Path, part: str, value: Any) -> None:
    task = task_for(tmp_path)
    assert about(task, **{part: value}).hash != task.hash
    assert replace(task, sends="models").hash != task.hash
    assert replace(task, limits=Limits(wall=1)).hash == task.hash, "how long the auditor takes is its own"


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("model", "ab" * 32, "`model` must have the hash"),
        ("report", "ab" * 32, "`report` must have the hash"),
        ("rows", (), "`rows` must be indices of the 20 rows"),
        ("rows", (20,), "`rows` must be indices of the 20 rows"),
        ("rows", (True,), "`rows` must be indices of the 20 rows"),
        ("seed", -1, "`seed` must be a whole number"),
        ("look", 0, "`look` must be"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, part: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        about(task_for(tmp_path), **{part: value})


def test_a_report_whose_arrays_were_renamed_is_refused(tmp_path: Path) -> None:
    """Its hash covers the order of the names, not the names: honest work would differ from it."""
    task = task_for(tmp_path)
    with pytest.raises(ValueError, match="`report` must have the arrays of the model"):
        replace(task, report={f"not {name}": array for name, array in task.report.items()})


def test_nobody_can_put_a_key_of_its_own_into_a_task(tmp_path: Path) -> None:
    honest, other = auditor_of(AUDITOR), auditor_of(SECOND)
    forged = Auditor(honest.signing, other.sealing, honest.signature)
    with pytest.raises(ValueError, match="must be as the auditor signed them"):
        replace(task_for(tmp_path), auditor=forged)
    with pytest.raises(ValueError, match="must be as the auditor signed them"):
        read_auditor(forged.to_json())
    with pytest.raises(ValueError, match="must be a file that `guerdon looks key` wrote"):
        read_auditor("{}")


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def packed(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return out.getvalue()


def npy(array: Any, *, allow_pickle: bool = False) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=allow_pickle)
    return out.getvalue()


def test_files_that_are_no_tasks_are_refused(tmp_path: Path) -> None:
    data = task_for(tmp_path).to_bytes()
    parts = members_of(data)
    pickled = packed(parts | {"model_0.npy": npy(np.array([print], dtype=object), allow_pickle=True)})
    changed = packed(parts | {"report_0.npy": npy(np.zeros(5, np.float32))})
    short = packed({name: part for name, part in parts.items() if name != "header.npy"})
    for wrong in (b"", data[:200], pickled, changed, short, b"PK\x05\x06" + bytes(18)):
        with pytest.raises(ValueError, match="a task must be a file that `guerdon looks tasks` wrote"):
            Task.from_bytes(wrong)


def test_a_small_file_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = task_for(tmp_path).to_bytes()
    monkeypatch.setattr("guerdon.looks.exchange.LARGEST", 1000)
    with pytest.raises(ValueError, match="takes more than 1000 bytes unpacked"):
        Task.from_bytes(data)


def test_the_most_that_a_task_unpacks_to_is_what_work_may_use() -> None:
    from guerdon.looks.exchange import LARGEST

    assert Limits().memory == LARGEST


def test_an_answer_opens_the_named_rows_to_the_auditor_alone(tmp_path: Path) -> None:
    task = task_for(tmp_path)
    opening = mine().open(ROWS)
    answer = answer_to(task, opening)
    read = Answer.from_bytes(answer.to_bytes())
    assert read == answer
    assert read.hash == hashlib.sha256(answer.sealed).digest()
    assert (read.look, read.of, read.appeal) == (3, task.subject.of, False)
    assert Opening.from_bytes(unseal(read.sealed, sealing_key(AUDITOR), read.of)) == opening
    with pytest.raises(ValueError, match="must be for this key"):
        unseal(read.sealed, sealing_key(SECOND), read.of)
    assert answer_to(task, opening).hash != answer.hash, "each answer is sealed by a fresh key"


def test_files_that_are_no_answers_are_refused(tmp_path: Path) -> None:
    data = answer_to(task_for(tmp_path), mine().open(ROWS)).to_bytes()
    head, line, _ = data.split(b"\n", 2)
    wrong = [b"", data[:20], data.replace(b'"look":3', b'"look":"3"'), data.replace(b'"round":7', b'"round":true'),
             head + b"\n" + line + b"\nno seal", b"x" + data, head + b"\n" + b"x" * 70_000 + data]  # fmt: skip
    for one in wrong:
        with pytest.raises(ValueError, match="an answer must be a file that `guerdon looks answer` wrote"):
            Answer.from_bytes(one)


def test_the_model_of_a_task_is_read_without_change(tmp_path: Path) -> None:
    read = Task.from_bytes(task_for(tmp_path).to_bytes())
    assert read.model["w"].dtype == np.float32
    np.testing.assert_array_equal(read.model["w"], model()["w"])
