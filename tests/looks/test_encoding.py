"""Rows as bytes: every row comes back, no two have the same bytes, and hostile bytes are data or an error."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from guerdon.arrays import to_numpy
from guerdon.looks.encoding import DEEPEST, TYPES, decode_row, encode_column, encode_key, encode_row, encode_rows
from tests.support.libraries import Library, every_library

NUMBERS = st.sampled_from(sorted(TYPES)).flatmap(
    lambda kind: arrays.arrays(np.dtype(kind), arrays.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=3))
)
LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.binary() | NUMBERS
ROWS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(), inner, max_size=3)
)


def are_same(left: Any, right: Any) -> bool:
    """Tell whether two rows agree in types and in every bit."""
    if isinstance(left, (np.ndarray, np.generic)):
        return (
            isinstance(right, (np.ndarray, np.generic))
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and left.tobytes() == right.tobytes()
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(are_same(left[key], right[key]) for key in left)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(are_same, left, right))
    return left == right


@given(ROWS)
def test_every_row_comes_back(row: Any) -> None:
    assert are_same(decode_row(encode_row(row)), row)


@given(ROWS, ROWS)
def test_no_two_rows_have_the_same_bytes(left: Any, right: Any) -> None:
    assert (encode_row(left) == encode_row(right)) == are_same(left, right)


@given(ROWS, st.data())
def test_changed_bytes_are_another_row_or_none(row: Any, data: st.DataObject) -> None:
    """What decodes has no second form: it is written as the same bytes again."""
    kept = bytearray(encode_row(row))
    for _ in range(data.draw(st.integers(1, 3))):
        kept[data.draw(st.integers(0, len(kept) - 1))] = data.draw(st.sampled_from([0, 1, 2, 8, 255, *b"NTFifsbtda"]))
    try:
        other = decode_row(bytes(kept))
    except ValueError:
        return
    assert encode_row(other) == bytes(kept)


@given(ROWS)
def test_a_part_of_a_row_is_no_row(row: Any) -> None:
    data = encode_row(row)
    for stop in range(len(data)):
        with pytest.raises(ValueError, match="`data` must"):
            decode_row(data[:stop])


def test_the_form_is_the_one_that_is_stated() -> None:
    """Written out by hand: a change of the form changes every root that was ever recorded."""
    eight = (2).to_bytes(8, "little")
    row = {"b": np.array([[1, -2]], dtype=">i2"), "a": (None, True, False, -1, 0.5, "é", b"\0")}
    items = b"NTF" + b"i" + b"\xff" * 8 + b"f" + struct.pack("<d", 0.5)
    items += b"s" + eight + "é".encode() + b"b" + (1).to_bytes(8, "little") + b"\0"
    one = (1).to_bytes(8, "little")
    first = one + b"a" + b"t" + (7).to_bytes(8, "little") + items
    second = one + b"b" + b"ai2\x02" + one + eight + b"\x01\x00\xfe\xff"
    assert encode_row(row) == b"d" + eight + first + second
    assert encode_key("é") == eight + "é".encode()


def test_what_python_takes_for_equal_is_told_apart() -> None:
    rows = [1, 1.0, True, np.float64(1), np.float32(1), np.int64(1), "1", b"1", (1,), np.ones(1), 0.0, -0.0]
    assert len({encode_row(row) for row in rows}) == len(rows)


def test_what_is_the_same_is_written_the_same() -> None:
    assert encode_row([1, 2]) == encode_row((1, 2))
    assert encode_row(np.str_("a")) == encode_row("a")
    assert encode_row(bytearray(b"a")) == encode_row(b"a")
    matrix = np.arange(6.0).reshape(2, 3)
    for other in (matrix.T.copy().T, matrix.astype(">f8"), np.asfortranarray(matrix)):
        assert encode_row(other) == encode_row(matrix)


@every_library
def test_arrays_of_any_library_are_written_as_numpys(library: Library) -> None:
    values = library.array(np.arange(6.0).reshape(3, 2))
    expected = to_numpy(values)
    assert isinstance(expected, np.ndarray)
    assert encode_row(values) == encode_row(expected)
    assert encode_rows(values, 1, 3) == [encode_row(row) for row in expected[1:]]


@pytest.mark.parametrize(
    "rows",
    [
        np.random.default_rng(0).normal(size=(7, 3)),
        np.arange(7, dtype=">u2"),
        np.zeros((7, 2, 2), dtype=bool)[:, :, ::-1],
        np.zeros((7, 0)),
        [{"x": np.ones(2), "y": i} for i in range(7)],
    ],
)
def test_many_rows_are_written_as_each_alone(rows: Any) -> None:
    assert encode_rows(rows, 2, 6) == [encode_row(rows[i]) for i in range(2, 6)]
    assert encode_rows(rows, 3, 3) == []


def test_a_column_is_written_with_what_comes_before() -> None:
    assert encode_column(np.arange(2), b"key") == [b"key" + encode_row(np.int64(i)) for i in range(2)]


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        (2**63, ValueError, "`row` must have whole numbers of 64 bits, got 9223372036854775808"),
        ({1: 2}, TypeError, "`row` must have keys that are str, got 1"),
        (1j, TypeError, "`row` must be None, a bool, .* got complex"),
        (np.ones(1, dtype=complex), TypeError, "numbers or booleans, got dtype complex128"),
        (np.array(["a"]), TypeError, "numbers or booleans, got dtype <U1"),
        (np.array([None]), TypeError, "numbers or booleans, got dtype object"),
        (np.datetime64("2020-01-01"), TypeError, "numbers or booleans, got dtype datetime64"),
        ("\ud800", ValueError, "text that UTF-8 can hold"),
        ({"\ud800": 1}, ValueError, "text that UTF-8 can hold"),
        ({"a": {1, 2}}, TypeError, "got set: convert it first"),
    ],
)
def test_what_has_no_form_is_refused(row: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        encode_row(row)


def nested(depth: int) -> Any:
    return () if depth == 1 else (nested(depth - 1),)


def test_depth_is_bounded_both_ways() -> None:
    assert decode_row(encode_row(nested(DEEPEST - 1))) == nested(DEEPEST - 1)
    with pytest.raises(ValueError, match="more than 16 tuples and dicts in each other"):
        encode_row(nested(DEEPEST + 1))
    one = b"t" + (1).to_bytes(8, "little")
    with pytest.raises(ValueError, match="more than 16 tuples and dicts in each other"):
        decode_row(one * 100_000 + b"N")


LONG = (2**63).to_bytes(8, "little")
ONE, TWO = (1).to_bytes(8, "little"), (2).to_bytes(8, "little")
PAIR = b"d" + TWO


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "must not end inside a row, got 0 of 1 bytes at byte 0"),
        (b"NN", "must end where the row ends, got 1 bytes more"),
        (b"cos\nsystem\n", r"must be what `encode_row` wrote, got the tag b'c' at byte 0"),
        (b"\x80\x04N.", "got the tag"),  # how a pickle begins
        (b"s" + LONG, "must not end inside a row"),
        (b"t" + LONG, "must not end inside a row, got less than"),
        (b"d" + LONG, "must not end inside a row, got less than"),
        (b"s" + ONE + b"\xff", "must have text in UTF-8"),
        (PAIR + encode_key("b") + b"N" + encode_key("a") + b"N", "in order and once, got 'a' after 'b'"),
        (PAIR + encode_key("a") + b"N" + encode_key("a") + b"N", "in order and once, got 'a' after 'a'"),
        (b"aO8\x00" + bytes(8), "arrays of a type that `encode_row` writes, got 'O8'"),
        (b"ab1\x00\x02", "booleans of 0 or 1"),
        (b"af8\x02" + LONG + LONG, "must not end inside a row"),
        (b"af8\x02" + LONG + bytes(8), "arrays that NumPy can hold"),
        (b"af8\x02" + b"\xff" * 8 + bytes(8), "arrays that NumPy can hold"),
        (b"af8\xff" + bytes(8 * 255), "arrays that NumPy can hold"),
    ],
)
def test_hostile_bytes_are_refused_in_words(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_row(data)


def test_arrays_come_back_in_the_machines_order_and_can_be_changed() -> None:
    array = decode_row(encode_row(np.arange(3, dtype=">f4")))
    array += 1
    assert array.dtype.isnative
    assert array.tolist() == [1, 2, 3]
    assert math.isnan(decode_row(encode_row(math.nan)))
