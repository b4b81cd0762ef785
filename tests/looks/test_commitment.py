"""Commitments: honest rows pass, every cheat that the module names fails and says which row, files and streams."""

import hashlib
import hmac
import json
import stat
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.looks.commitment import Commitment, new_secret
from guerdon.looks.encoding import encode_row
from guerdon.looks.opening import (
    Committed,
    Opening,
    OpeningError,
    RootChange,
    check,
    check_growth,
    committed_in,
)
from guerdon.merkle import root_of
from tests.looks.test_encoding import ROWS, are_same

RNG = np.random.default_rng(0)
SECRET = b"s" * 32
MATRIX = RNG.normal(size=(50, 3))
NAMES: dict[str, Any] = {"ledger": "heart", "run": "run 1", "member": "Bern"}


def commit(rows: Any, **options: Any) -> Commitment:
    said: dict[str, Any] = {**NAMES, "secret": SECRET, **options}
    return Commitment.of(rows, **said)


@given(st.lists(ROWS, min_size=1, max_size=9), st.data())
def test_rows_of_any_kind_are_opened_as_they_were_committed(rows: list[Any], data: st.DataObject) -> None:
    mine = commit(rows)
    indices = data.draw(st.lists(st.integers(0, len(rows) - 1)))
    opening = Opening.from_bytes(mine.open(indices).to_bytes())
    found = check(mine.committed(), opening, named=indices)
    assert found.keys() == set(indices)
    assert all(are_same(found[i], rows[i]) for i in indices)
    assert mine.committed().distinct == len({encode_row(row) for row in rows})


@pytest.mark.parametrize("size", [0, 50])
def test_the_root_is_that_of_the_stated_leaves(size: int) -> None:
    """Written out by hand: ledger, run, member, index, size (0: a stream), salt and row."""
    mine = commit(MATRIX, stream=size == 0)
    context = hashlib.sha256(encode_row(("guerdon row 1", "heart", "run 1", "Bern"))).digest()
    key = hmac.digest(SECRET, b"salt" + context, "sha256")

    def leaf(index: int) -> bytes:
        row, place = encode_row(MATRIX[index]), index.to_bytes(8, "little")
        return context + place + size.to_bytes(8, "little") + hmac.digest(key, place + row, "sha256") + row

    assert mine.committed().root == root_of(leaf(i) for i in range(50))


def test_the_root_depends_on_everything_that_it_binds() -> None:
    roots = [
        commit(MATRIX).committed().root,
        commit(MATRIX, ledger="lung").committed().root,
        commit(MATRIX, run="run 2").committed().root,
        commit(MATRIX, member="Basel").committed().root,
        commit(MATRIX, secret=b"t" * 32).committed().root,
        commit(MATRIX, stream=True).committed().root,
        commit(MATRIX[:-1]).committed().root,
        commit(MATRIX[::-1]).committed().root,
    ]
    assert len(set(roots)) == len(roots)
    assert commit(list(MATRIX)).committed() == commit(MATRIX).committed()
    assert commit(MATRIX.copy(), secret=SECRET).committed() == commit(MATRIX).committed()


def test_many_blocks_of_rows_are_one_tree() -> None:
    rows = np.arange(40_000, dtype=np.int32)
    mine = commit(rows)
    assert mine.committed() == commit([*rows]).committed()
    assert check(mine.committed(), mine.open([39_999]))[39_999] == 39_999


MINE = commit(MATRIX)
RECORD = MINE.committed()


def refused(opening: Opening, message: str, row: int | None, record: Committed = RECORD, named: Any = None) -> None:
    with pytest.raises(OpeningError, match=message) as caught:
        check(record, opening, named)
    assert caught.value.row == row


def test_a_row_that_is_another_is_refused() -> None:
    honest = MINE.open([3, 7]).rows
    other = encode_row(MATRIX[7] + 1e-12)
    for changed in (
        replace(honest[1], data=other),
        replace(honest[1], salt=bytes(32)),
        replace(honest[1], proof=honest[0].proof),
        replace(honest[1], proof=honest[1].proof[:-1]),
        replace(honest[1], data=honest[0].data, salt=honest[0].salt, proof=honest[0].proof),  # row 3, shown as row 7
    ):
        refused(Opening(50, (honest[0], changed)), "row 7 is not the one that 'Bern' committed in run 'run 1'", 7)


def test_rows_of_another_member_run_or_ledger_are_refused() -> None:
    """The proofs that somebody opened are of no use under another name, whose record may even copy the root."""
    for name in NAMES:
        copied = RECORD._replace(**{name: "other"})
        refused(MINE.open([3]), "row 3 is not the one that", 3, copied)


def test_another_size_is_refused() -> None:
    opening = MINE.open([3])
    refused(opening, "must be of the 51 rows committed, got 50", None, RECORD._replace(size=51))
    refused(opening._replace(size=51), "row 3 is not the one", 3, RECORD._replace(size=51))
    fifty_in_a_stream = RECORD._replace(stream=True)
    refused(opening, "row 3 is not the one", 3, fifty_in_a_stream)


def test_rows_that_were_named_must_be_opened_each_once() -> None:
    opening = MINE.open([3, 7, 3])
    assert [row.index for row in opening.rows] == [3, 7]
    assert check(RECORD, opening, named=[3, 7, 3]).keys() == {3, 7}  # a round may name a row twice
    for named in ([3, 30, 9], np.array([3, 30, 9])):
        refused(opening, r"row 9 was named and must be opened \(2 are missing\)", 9, named=named)
    refused(Opening(50, opening.rows[:1] * 2), "row 3 must be opened once, got it twice", 3)
    refused(Opening(50, (replace(opening.rows[0], index=50),)), "row 50 must be one of the 50 committed", 50)
    refused(Opening(50, (replace(opening.rows[0], index=-1),)), "row -1 must be one of the 50 committed", -1)
    refused(Opening(50, (replace(opening.rows[0], salt=b""),)), "row 3 must have a salt of 32 bytes, got 0", 3)


def test_one_row_committed_600_times_is_seen_or_refused() -> None:
    """Each of the 600 passes alone, because each leaf has its own salt. The record or two equal rows show it."""
    copies = commit(np.tile(MATRIX[:1], (600, 1)))
    record = copies.committed()
    assert record.distinct == 1
    check(record, copies.open(range(600)))
    lie = record._replace(distinct=600)
    assert all(check(lie, copies.open([i])) for i in range(600))
    refused(
        copies.open([5, 17]), "rows 5 and 17 are equal, and the commitment says that 600 of 600 rows differ", 17, lie
    )


def test_rows_that_repeat_are_no_fault_where_the_record_says_so() -> None:
    rows = [*range(40), *range(10)]
    mine = commit(rows)
    assert mine.committed().distinct == 40
    check(mine.committed(), mine.open(range(50)))
    refused(mine.open(range(50)), "rows 9 and 49 are equal, .* 41 of 50", 49, mine.committed()._replace(distinct=41))


def test_a_committed_row_that_is_no_row_is_refused() -> None:
    class Raw:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> None: ...

        def encode_rows(self, start: int, stop: int) -> list[bytes]:
            return [b"cos\nsystem\n"] * (stop - start)

    mine = commit(Raw())
    refused(mine.open([0]), "row 0 must be in the form of `encode_row`", 0, mine.committed())


def test_rows_that_are_no_longer_what_was_committed_are_not_opened() -> None:
    """A dataset with random augmentation would fail its look; the member is told before."""
    rows = MATRIX.copy()
    mine = commit(rows)
    rows[4] += 1
    with pytest.raises(ValueError, match=r"row 4 is another now\. Is it a dataset that changes its rows"):
        mine.open([3, 4])
    with pytest.raises(ValueError, match="`indices` must be from 0 to 49, got 50"):
        mine.open([50])


def test_a_stream_grows_and_its_old_roots_stay_provable() -> None:
    mine = commit(MATRIX[:10], stream=True)
    old = mine.committed()
    opened_then = mine.open([3, 9])
    mine.append(list(MATRIX[10:25]))
    mine.append([])
    mine.append(MATRIX[25:])
    new = mine.committed()
    assert (len(mine), old.size, new.size) == (50, 10, 50)
    assert mine.committed(10) == old
    assert new.root == commit(MATRIX, stream=True).committed().root
    check_growth(old, new, mine.growth(10))
    check_growth(mine.committed(25), new, mine.growth(25))
    check(old, opened_then, named=[3, 9])
    assert mine.open([3, 9], size=10) == opened_then
    np.testing.assert_array_equal(check(new, mine.open([24, 49]))[24], MATRIX[24])
    with pytest.raises(ValueError, match="`indices` must be from 0 to 9, got 10"):
        mine.open([10], size=10)
    with pytest.raises(ValueError, match="`size` must be from 0 to 50, got 51"):
        mine.committed(51)


def test_a_stream_that_was_rewritten_is_refused() -> None:
    mine, other = commit(MATRIX[:10], stream=True), commit(MATRIX[::-1], stream=True)
    with pytest.raises(OpeningError, match="the first 10 rows of the stream must be those of the old record"):
        check_growth(mine.committed(), other.committed(), other.growth(10))
    for changed in ({"member": "Basel"}, {"stream": False}):
        with pytest.raises(OpeningError, match="must be of one member's stream in one run"):
            check_growth(mine.committed(), other.committed()._replace(**changed), other.growth(10))


def test_a_stream_may_begin_without_rows() -> None:
    mine = commit([], stream=True)
    empty = mine.committed()
    assert Committed.from_json(empty.to_json()) == empty
    mine.append(MATRIX)
    check_growth(empty, mine.committed(), mine.growth(0))


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_saved_commitment_opens_the_same(is_stream: bool, tmp_path: Path) -> None:
    mine, path = commit(MATRIX, stream=is_stream), tmp_path / "rows.commitment"
    mine.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    read = Commitment.load(path, MATRIX, SECRET)
    assert read.committed() == mine.committed()
    assert read.open(range(0, 50, 7)) == mine.open(range(0, 50, 7))
    if is_stream:
        read.append(MATRIX)
        mine.append(MATRIX)
        assert read.committed() == mine.committed()


def test_the_file_is_numpy_and_json_and_shows_neither_rows_nor_secret(tmp_path: Path) -> None:
    secret = new_secret()
    commit(MATRIX, secret=secret).save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert sorted(file.files) == ["leaves", "record", "tags"]
        assert Committed.from_json(file["record"].tobytes().decode()).size == 50
        plain = b"".join(file[name].tobytes() for name in file.files)
    assert secret not in plain
    assert not any(row.tobytes() in plain for row in MATRIX)
    unkeyed = {hashlib.blake2b(encode_row(row), digest_size=8).digest() for row in MATRIX}
    assert not any(tag in plain for tag in unkeyed)


def test_a_file_that_does_not_belong_to_rows_or_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    MINE.save(path)
    for rows, secret, message in (
        (MATRIX, b"t" * 32, "must be what was committed, with the same secret: row 0"),
        (MATRIX[:-1], SECRET, "must be the 50 rows that .* was made of, got 49"),
        (MATRIX[::-1], SECRET, "must be what was committed"),
        (np.vstack([MATRIX[:-1], MATRIX[:1]]), SECRET, "row 49 is another now"),
    ):
        with pytest.raises(ValueError, match=message):
            Commitment.load(path, rows, secret)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    MINE.save(path)
    with np.load(path) as file:
        whole = dict(file)
    newer = np.frombuffer(whole["record"].tobytes().replace(b'"version": 1', b'"version": 2'), dtype=np.uint8)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"leaves": whole["leaves"][::-1]}, "must have the leaves of its root: it is damaged"),
        ({"tags": np.zeros(50, dtype="<u8")}, "must have the leaves of its root: it is damaged"),
        ({"leaves": whole["leaves"][:-1]}, "not one leaf and one tag for each of its 50 rows"),
        ({"tags": whole["tags"][:-1]}, "not one leaf and one tag for each of its 50 rows"),
        ({"tags": whole["tags"].astype("f8")}, "must be a file that `Commitment.save` wrote"),
        ({"record": newer}, "not of format 'guerdon-commitment', version 1"),
        ({"record": np.zeros(3, dtype=np.uint8)}, "must be a file that `Commitment.save` wrote"),
    ]
    for changed, message in changes:
        arrays: dict[str, Any] = {**whole, **changed}
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=message):
            Commitment.load(path, MATRIX, SECRET)
    path.write_bytes(b"no file")
    with pytest.raises(ValueError, match=r"must be a file that `Commitment\.save` wrote"):
        Commitment.load(path, MATRIX, SECRET)


@pytest.mark.parametrize(
    "changed",
    [
        {"size": 0}, {"size": 2**63}, {"size": "50"}, {"size": True}, {"distinct": 51}, {"distinct": 0}, {"root": "00"},
        {"root": 7}, {"stream": 0}, {"member": 3}, {"more": 1}, {"format": "other"}, {"version": 2},
    ],
)  # fmt: skip
def test_a_record_comes_back_or_is_refused(changed: dict[str, Any]) -> None:
    assert Committed.from_json(RECORD.to_json()) == RECORD
    with pytest.raises(ValueError, match="a commitment must"):
        Committed.from_json(json.dumps({**json.loads(RECORD.to_json()), **changed}))
    for text in ("", "[]", "{}", "7"):
        with pytest.raises(ValueError, match=r"a commitment must be what `Committed\.to_json` wrote"):
            Committed.from_json(text)


@pytest.mark.parametrize(
    "value",
    [
        None, (), ("guerdon opening 1", 50), ("guerdon opening 2", 50, ()), ("guerdon opening 1", 5.0, ()),
        ("guerdon opening 1", 50, ((3, b"", b"", "proof"),)), ("guerdon opening 1", 50, (3,)), np.zeros((3, 3)),
        (np.zeros(2), np.zeros(2), np.zeros(2)), ("guerdon opening 1", 50, np.zeros((2, 4))),
    ],
)  # fmt: skip
def test_bytes_that_are_no_opening_are_refused(value: Any) -> None:
    with pytest.raises(OpeningError, match="an opening must"):
        Opening.from_bytes(encode_row(value))
    with pytest.raises(OpeningError, match="must not end inside a row"):
        Opening.from_bytes(MINE.open([1]).to_bytes()[:-1])


def test_any_changed_byte_of_an_opening_is_refused() -> None:
    data = MINE.open([3]).to_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(OpeningError):
            check(RECORD, Opening.from_bytes(bytes(changed)), named=[3])


def test_a_change_of_root_takes_effect_in_its_round() -> None:
    first, second, third = (commit(MATRIX[:size]).committed() for size in (10, 20, 30))
    changes = [RootChange(first, 0), RootChange(second, 50), RootChange(third, 50)]
    assert [committed_in(changes, t).size for t in (0, 49, 50, 99)] == [10, 10, 30, 30]
    with pytest.raises(ValueError, match=r"`changes` must have a root from round 3 on, got \[50\]"):
        committed_in(changes[1:2], 3)


def test_salts_are_new_for_other_rows_under_the_same_secret() -> None:
    """Else a row opened under an old root would let anybody test guesses of what replaced it under the new one."""
    changed = MATRIX.copy()
    changed[3] = 0
    old, new = (commit(rows).open([3, 4]).rows for rows in (MATRIX, changed))
    assert old[0].salt != new[0].salt
    assert len({row.salt for row in commit(np.zeros((9, 1))).open(range(9)).rows}) == 9


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, r"`rows` must be at least one: rows that come later are a stream"),
        ([1], {"secret": b"short"}, "`secret` must be 32 bytes or more that nobody knows"),
        ([1], {"secret": "s" * 32}, "`secret` must be 32 bytes"),
        ([1], {"member": ""}, "`member` must be its name, got ''"),
        ([1], {"run": 3}, "`run` must be its name, got 3"),
    ],
)
def test_what_cannot_be_committed_is_refused(rows: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        commit(rows, **options)


def test_only_a_stream_grows() -> None:
    with pytest.raises(ValueError, match="`append` needs a stream"):
        commit(MATRIX).append(MATRIX)
    with pytest.raises(ValueError, match="`size` must be 50, as it was committed, got 49"):
        commit(MATRIX).committed(49)


def test_rows_are_not_copied() -> None:
    """40,000 rows of 1,600 bytes: the tree takes 72 bytes a row, and a block of rows stands in memory meanwhile."""
    rows = np.zeros((40_000, 200))
    encode_row(rows[0])  # what is imported and cached is not counted
    tracemalloc.start()
    mine = commit(rows)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(mine) == 40_000
    assert kept < 100 * 40_000
    assert peak < 100 * 40_000 + 3 * 256 * 1600
