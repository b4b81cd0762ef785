"""Blind digests: equal rows are found whoever has them, nobody learns a row, and cheats of either side are seen."""

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.looks.digests import (
    DIGEST,
    Blinding,
    DigestError,
    DigestKey,
    Shared,
    _point,
    check_digests,
    comparable,
    distinct_rows,
    shared_rows,
)
from tests.looks.test_encoding import ROWS

KEY = DigestKey(bytes(31) + b"\7")
RNG = np.random.default_rng(0)
PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1  # of P-256


def made(rows: list[Any], key: DigestKey = KEY) -> list[bytes]:
    blinding = Blinding(rows)
    return blinding.digests(key.answer(blinding.points, len(rows) + 1), key.control)


def added(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    """The sum of two points of y² = x³ − 3x + b by the formulas of the textbook; None is the point at infinity."""
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and (a[1] + b[1]) % PRIME == 0:
        return None
    slope = (3 * a[0] ** 2 - 3) * pow(2 * a[1], -1, PRIME) if a == b else (b[1] - a[1]) * pow(b[0] - a[0], -1, PRIME)
    x = (slope**2 - a[0] - b[0]) % PRIME
    return x, (slope * (a[0] - x) - a[1]) % PRIME


def test_the_answer_is_the_point_times_the_key() -> None:
    blinding = Blinding([(1, 2)])
    answer = KEY.answer(blinding.points, 2)
    for at in (0, 32):
        x = int.from_bytes(blinding.points[at : at + 32])
        y = pow(
            x**3 - 3 * x + 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B, (PRIME + 1) // 4, PRIME
        )
        total = None
        for _ in range(7):  # KEY is 7
            total = added(total, (x, y))
        assert total is not None
        assert int.from_bytes(answer[at : at + 32]) == total[0]


def test_the_digest_is_the_one_that_is_stated() -> None:
    """Of the row and its point times the key: with the key 1 the point itself."""
    form, one = comparable((1, 2)), DigestKey(bytes(31) + b"\1")
    inside = hashlib.sha256(form).digest() + _point(form).public_numbers().x.to_bytes(32)
    assert one.digest((1, 2)) == hashlib.sha256(b"guerdon row digest 1" + inside).digest()[:16]


@given(st.lists(ROWS, max_size=4))
def test_digests_agree_between_members_and_with_what_the_auditor_computes(rows: list[Any]) -> None:
    first = made(rows)
    assert first == made(rows)  # with other blinds
    assert first == [KEY.digest(row) for row in rows]
    assert len(set(first)) == len({comparable(row) for row in rows})
    assert all(len(digest) == DIGEST for digest in first)


def test_another_key_gives_other_digests() -> None:
    other = DigestKey.new()
    rows = list(RNG.normal(size=(5, 3)))
    assert not set(made(rows)) & set(made(rows, other))
    assert other.control != KEY.control
    assert DigestKey(other.secret).control == other.control


def test_an_auditor_that_uses_another_key_for_one_member_is_seen() -> None:
    blinding, other = Blinding([1, 2, 3]), DigestKey.new()
    with pytest.raises(DigestError, match="by the auditor's key, got one by another: it would hide shared rows"):
        blinding.digests(other.answer(blinding.points, 4), KEY.control)


def test_the_control_is_at_any_place() -> None:
    """Else an auditor could answer the control with its key, and the rows with another."""
    places = {Blinding([1, 2, 3])._control for _ in range(60)}  # misses one with chance 4·(3/4)^60 = 1e-7
    assert places == {0, 1, 2, 3}


def test_the_auditor_sees_no_row() -> None:
    """Points of equal rows differ, within a member and between two. So do those of a row that the auditor guesses."""
    points = b"".join(Blinding([(1.0, 2.0)] * 20).points for _ in range(2))
    seen = [points[at : at + 32] for at in range(0, len(points), 32)]
    assert len(set(seen)) == 42
    plain = _point(comparable((1.0, 2.0))).public_numbers().x.to_bytes(32)
    assert plain not in seen
    assert not {KEY.answer(plain, 1)} & {KEY.answer(point, 1) for point in seen}


def test_shared_rows_are_counted_once_a_pair() -> None:
    rows = [tuple(row) for row in RNG.normal(size=(30, 4)).tolist()]
    members = {
        "Bern": rows[:12],
        "Basel": rows[10:20] + rows[10:11],
        "Chur": rows[20:],
        "Davos": rows[:5] + rows[19:21],
    }
    digests = {member: made(own) for member, own in members.items()}
    assert shared_rows(digests) == [
        Shared("Bern", "Davos", 5),
        Shared("Bern", "Basel", 2),
        Shared("Basel", "Davos", 1),
        Shared("Chur", "Davos", 1),
    ]
    assert [distinct_rows(digests[member]) for member in members] == [12, 10, 10, 7]


def test_one_row_600_times_is_one_digest() -> None:
    assert distinct_rows([KEY.digest((1, 2))] * 600) == 1


@given(st.lists(st.lists(st.binary(min_size=16, max_size=16) | st.sampled_from([bytes(16), b"\0" * 15 + b"\1"]))))
def test_counts_are_those_of_sets(members: list[list[bytes]]) -> None:
    digests = {str(i): own for i, own in enumerate(members)}
    expected = {
        (a, b): len(set(digests[a]) & set(digests[b])) for a in digests for b in digests if int(a) < int(b)
    }  # fmt: skip
    assert {(pair.member, pair.other): pair.rows for pair in shared_rows(digests)} == {
        pair: rows for pair, rows in expected.items() if rows
    }
    assert [distinct_rows(own) for own in digests.values()] == [len(set(own)) for own in members]


def test_false_digests_are_found_in_a_look() -> None:
    """Nothing else ties the digests that a member sends to the rows that it committed."""
    rows = list(RNG.normal(size=(6, 3)))
    sent = dict(enumerate(made(rows)))
    check_digests(KEY, {i: rows[i] for i in (1, 4)}, sent)
    sent[4] = made([np.zeros(3)])[0]
    check_digests(KEY, {1: rows[1]}, sent)
    with pytest.raises(DigestError, match="row 4 has another digest than its member sent") as caught:
        check_digests(KEY, {i: rows[i] for i in (1, 4)}, sent)
    assert caught.value.row == 4
    with pytest.raises(DigestError, match="row 7 has another digest"):
        check_digests(KEY, {7: rows[1]}, sent)


SAME = [
    [1, 1.0, True, np.int8(1), np.float32(1), np.array(1.0), np.True_],
    [0.1, np.float32(0.1), np.float64(0.1), 0.1 + 1e-12],
    [0.0, -0.0, 0, False, np.float32(-0.0), 1e-60],
    [math.nan, -math.nan, np.float32(np.nan), np.array(np.nan)],
    [math.inf, np.float16(np.inf)],
    [-math.inf],
    [1e300],
    [2.0**53],
    [1234567890123, np.int64(1234567890123), 1234567890123.0],
    [1234567890124],
    [0.1 + 1e-6],
    ["1"],
    [b"1"],
    [None],
    [(1, 2), [1.0, 2], (np.float32(1), np.array(2))],
    [np.array([1, 2]), np.array([1.0, 2.0], dtype=np.float32)],
    [np.array([[1, 2]])],
    [np.array([0.1, -0.0, np.nan, 1e300]), np.array([np.float32(0.1), 0.0, -np.nan, 1e300])],
    [{"a": 1, "b": 0.1}, {"b": np.float32(0.1), "a": True}],
    [{"a": 1}],
]


def test_rows_are_compared_by_value() -> None:
    forms = [{comparable(row) for row in rows} for rows in SAME]
    assert [len(form) for form in forms] == [1] * len(SAME)
    assert len(set.union(*forms)) == len(SAME)


@given(st.floats() | st.integers(-(2**63), 2**63 - 1))
def test_a_number_alone_is_compared_as_in_an_array(value: float) -> None:
    alone, among = comparable(float(value)), comparable(np.array([value]))
    assert alone[1:] == among[-8:]


@given(st.lists(st.floats(width=32), min_size=1))
def test_a_copy_in_float32_is_the_same_table(values: list[float]) -> None:
    exact = np.array(values, dtype=np.float64) * 1.0000000001
    assert comparable(exact.astype(np.float32).astype(np.float64)) == comparable(exact.astype(np.float32))
    near = np.abs(exact) < 2**24  # above, float32 does not hold every whole number, and whole ones are kept
    assert comparable(exact[near]) == comparable(exact[near].astype(np.float32))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda b: KEY.answer(b.points, 2), ValueError, "`points` must be at most 2, the rows that are left .* got 3"),
        (lambda _: KEY.answer(bytes(31), 9), DigestError, "`points` must have 32 bytes for each point, got 31"),
        (lambda b: KEY.answer(b.points[:32] + b"\xff" * 32, 9), DigestError, "P-256: number 1 is none"),
        (lambda b: b.digests(b.points[:-32], KEY.control), DigestError, "`answer` must have 96 bytes, .* got 64"),
        (lambda b: b.digests(b"\xff" * 96, KEY.control), DigestError, "`answer` must be points of the curve P-256"),
        (lambda _: DigestKey(b"short"), ValueError, r"`secret` must be the bytes of a key: use `DigestKey.new`"),
        (lambda _: DigestKey(bytes(32)), ValueError, "`secret` must be the bytes of a key"),
        (lambda _: DigestKey(b"\xff" * 32), ValueError, "`secret` must be the bytes of a key"),
        (lambda _: shared_rows({"a": [b"x"]}), ValueError, "`digests` must have 16 bytes each"),
        (lambda _: Blinding([{1, 2}]), TypeError, "`row` must be None"),
        (lambda _: Blinding([np.array(["1"])]), TypeError, "numbers or booleans, got dtype <U1"),
    ],
)
def test_what_cannot_be_is_refused(call: Any, error: type[Exception], message: str) -> None:
    blinding = Blinding([1, 2])
    with pytest.raises(error, match=message):
        call(blinding)
