"""The look: honest work passes, and whatever a member sent instead fails with its reason."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon.looks import Table
from guerdon.looks.exchange import Answer, Task, answer_to
from guerdon.looks.isolation import Limits, code_hash
from guerdon.looks.look import Auditing, judge, judge_opened
from guerdon.looks.outcomes import Outcome
from guerdon.looks.verdict import Verdict, read
from tests.looks.looked import AUDITOR, ROWS, SECOND, SEED, about, mine, model, named, table, task_for
from tests.support.look_story import work


def look(folder: Path, task: Task, answer: Answer | None = None, **other: Any) -> Verdict:
    answer = answer_to(task, mine().open(task.subject.rows)) if answer is None else answer
    signed = judge(task, answer, AUDITOR, Auditing(path=[folder], **other))
    return read(signed.to_json(), task.auditor.signing)


def test_honest_work_passes_and_the_verdict_says_what_was_looked_at(tmp_path: Path) -> None:
    task = task_for(tmp_path)
    answer = answer_to(task, mine().open(ROWS))
    found = look(tmp_path, task, answer)
    assert found.outcome is Outcome.PASSED
    assert found.errors["w"] is not None
    assert found.errors["w"] <= found.tolerance["w"] < 1e-4
    assert (found.task, found.answer) == (task.hash, answer.hash.hex())
    assert (found.look, found.round, found.member) == (3, 7, "Bern")
    assert (found.root, found.report, found.code) == (
        mine().committed().root.hex(),
        task.subject.report,
        task.subject.code,
    )
    assert found.network


def cheats() -> dict[str, Any]:
    one = [*ROWS[:-1], ROWS[0]]
    return {
        "one row replaced": work(model(), named(one), SEED),
        "half of the rows": work(model(), named(ROWS[:3]), SEED),
        "another seed": work(model(), named(), SEED + 1),
        "another model": work({"w": model()["w"] * 2}, named(), SEED),
        "nothing": {"w": np.zeros(5, np.float32)},
        "no numbers": {"w": np.full(5, np.nan, np.float32)},
        "another shape": {"w": np.zeros(6, np.float32)},
    }


def test_every_cheat_fails_with_a_reason(tmp_path: Path) -> None:
    for what, report in cheats().items():
        found = look(tmp_path, task_for(tmp_path, report))
        assert found.outcome is Outcome.FAILED, what
        assert "tensor 'w'" in found.reasons[0], what


def test_where_models_are_sent_their_moves_are_compared(tmp_path: Path) -> None:
    function = (
        "import numpy as np\n\n\n"
        "def work(model, rows, seed):\n"
        "    w, x, y = model['w'], rows['x'], rows['y']\n"
        "    step = np.asarray((x @ w - y) @ x / len(y))\n"
        "    return {'w': (w - 1e-3 * step).astype(w.dtype)}\n"
    )
    told: dict[str, Any] = {}
    exec(function, told)  # noqa: S102 - the function above, as a member imports it
    for rows, outcome in ((ROWS, Outcome.PASSED), ([*ROWS[:-1], ROWS[0]], Outcome.FAILED)):
        task = task_for(tmp_path, told["work"](model(), named(rows), SEED), sends="models")
        (tmp_path / "task.py").write_text(function)
        found = look(tmp_path, about_code(task, tmp_path))
        assert found.outcome is outcome, found.reasons
    idle = task_for(tmp_path, model(), sends="models")
    (tmp_path / "task.py").write_text(function)
    assert look(tmp_path, about_code(idle, tmp_path)).outcome is Outcome.FAILED, "the model sent back"


def about_code(task: Task, folder: Path) -> Task:
    return about(task, code=code_hash(task.subject.work, [str(folder)])[0])


def test_wrong_openings_fail_with_a_reason(tmp_path: Path) -> None:
    task = task_for(tmp_path)
    others = Table({name: column + 1 for name, column in table().columns.items()})
    wrong = {
        "was named and must be opened": mine().open(ROWS[:-1]),
        "root": mine(others).open(ROWS),
        "is not the one that 'Bern' committed": mine(member="Basel").open(ROWS),
        "must be of the 20 rows committed": mine().open(ROWS)._replace(size=19),
    }
    for words, opening in wrong.items():
        found = look(tmp_path, task, answer_to(task, opening))
        assert found.outcome is Outcome.FAILED, words
        assert words in found.reasons[0]
        assert (found.errors, found.network) == ({}, "")


def test_what_the_auditor_cannot_open_fails(tmp_path: Path) -> None:
    task = task_for(tmp_path)
    answer = answer_to(task, mine().open(ROWS))
    damaged = answer._replace(sealed=answer.sealed[:-1] + bytes([answer.sealed[-1] ^ 1]))
    found = look(tmp_path, task, damaged)
    assert found.outcome is Outcome.FAILED
    assert "must be for this key and the look at round 7" in found.reasons[0]
    assert found.answer == damaged.hash.hex()


def test_the_auditor_s_own_mistakes_are_no_verdicts(tmp_path: Path) -> None:
    task = task_for(tmp_path)
    answer = answer_to(task, mine().open(ROWS))
    with pytest.raises(ValueError, match="`key` must be that of the task's auditor"):
        judge(task, answer, SECOND, Auditing([tmp_path]))
    with pytest.raises(ValueError, match="it is an appeal, for the second auditor"):
        judge(replace(task, appeal=True), answer, SECOND, Auditing([tmp_path]))
    with pytest.raises(ValueError, match="`answer` must be to look 3"):
        judge(task, answer._replace(look=4), AUDITOR, Auditing([tmp_path]))
    (tmp_path / "task.py").write_text("def work(model, rows, seed):\n    return model\n")
    with pytest.raises(ValueError, match="`task:work` must have the code of the terms"):
        judge(task, answer, AUDITOR, Auditing([tmp_path]))


def test_work_that_a_member_s_rows_break_fails_only_if_it_works_on_control_rows(tmp_path: Path) -> None:
    rows = Table({"x": np.zeros((20, 4), np.float32), "y": np.zeros(20, np.float32)})  # of another width
    other = mine(rows)
    task = about(task_for(tmp_path), committed=other.committed())
    opening = other.open(ROWS)
    alone = judge_opened(task, opening, AUDITOR, Auditing([tmp_path])).verdict
    assert alone.outcome is Outcome.UNREPEATABLE
    control = judge_opened(task, opening, AUDITOR, Auditing([tmp_path], control=named())).verdict
    assert control.outcome is Outcome.FAILED
    assert "on control rows it could" in control.reasons[0]
    assert control.answer == "", "the rows were before the auditor"


def test_rows_that_are_no_table_fail(tmp_path: Path) -> None:
    other = mine([b"row %d" % place for place in range(20)])
    task = about(task_for(tmp_path), committed=other.committed())
    found = judge_opened(task, other.open(ROWS), AUDITOR, Auditing([tmp_path])).verdict
    assert found.outcome is Outcome.FAILED
    assert "`rows` must be at least one dict" in found.reasons[0]


def test_work_that_repeats_without_bound_is_not_held_against_a_member(tmp_path: Path) -> None:
    """Its tolerance would be infinite, and pass everything."""
    task = task_for(tmp_path)
    function = "def work(model, rows, seed):\n    return {'w': model['w'] * 0 + (model['w'].dtype == 'float64')}\n"
    (tmp_path / "task.py").write_text(function)
    found = look(tmp_path, about_code(task, tmp_path))
    assert found.outcome is Outcome.UNREPEATABLE
    assert found.reasons == (
        "the auditor cannot repeat the work: tensor 'w' has a tolerance above a tenth of its scale: a report without "
        "any work may lie inside",
    )


def test_a_look_has_an_end(tmp_path: Path) -> None:
    task = task_for(tmp_path)
    (tmp_path / "task.py").write_text("import time\n\n\ndef work(model, rows, seed):\n    time.sleep(60)\n")
    found = look(tmp_path, about_code(task, tmp_path), limits=Limits(wall=1))
    assert found.outcome is Outcome.UNREPEATABLE
    assert "more than 1 seconds" in found.reasons[0]
