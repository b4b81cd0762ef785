"""One form in bytes for a row: what is hashed, compared and sent to an auditor, who reads it back as data only.

A row is written as a tag of one byte, then its content. All numbers are little-endian; a *length* has 8 bytes.

    N                                    None
    T, F                                 True, False
    i, 8 bytes                           int, signed: from -2**63 to 2**63 - 1
    f, 8 bytes                           float, IEEE 754: every bit is kept, so 0.0 and -0.0 differ
    s, length, UTF-8                     str, as it is: nothing is normalised
    b, length, bytes                     bytes
    t, length, items                     tuple; a list is written as a tuple
    d, length, (length, UTF-8, item)…    dict: keys are str, in the order of their UTF-8 bytes
    a, type, axes, sizes, numbers        array: type is b1, i1 to i8, u1 to u8 or f2 to f8 (2 bytes), axes has
                                         1 byte, sizes are lengths, the last axis varies fastest

A number of NumPy is an array without axes. Arrays of other libraries are written as NumPy's; bfloat16, which NumPy
lacks, becomes float32. So 1, 1.0 and `np.float32(1)` are three different rows. No two different rows have the same
bytes, and `decode_row` accepts only what `encode_row` writes. It runs nothing that the bytes could choose, unlike a
pickle.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from guerdon.arrays import is_array, to_numpy

# How deep tuples and dicts may stand in each other. Rows of data need two or three; an opening needs four. Without a
# bound, hostile bytes could exhaust the stack.
DEEPEST = 16
TYPES = frozenset({"b1", *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)), "f2", "f4", "f8"})
WHAT = "None, a bool, int, float, str, bytes, tuple, dict or array of numbers"

DICT = b"d"
LENGTH = struct.Struct("<Q")
_INT = struct.Struct("<q")
_FLOAT = struct.Struct("<d")


class Rows(Protocol):
    """Any sequence of rows: a list, an array (its first axis), a `Table`, a map-style dataset of PyTorch."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...


def encode_row(row: Any) -> bytes:
    """Return the one form of a row in bytes, or raise where a part of it has none.

    >>> encode_row({"y": 1, "x": True}).hex(" ", 1)[:26]
    '64 02 00 00 00 00 00 00 00'
    >>> encode_row({"y": 1, "x": True}) == encode_row({"x": True, "y": 1})
    True
    >>> decode_row(encode_row((np.float32([1, 2]), "label")))
    (array([1., 2.], dtype=float32), 'label')
    """
    parts: list[bytes] = []
    _write(row, parts.append, DEEPEST)
    return b"".join(parts)


def encode_rows(rows: Rows, start: int, stop: int) -> list[bytes]:
    """Return `encode_row` of the rows from `start` to `stop`. Arrays and tables are written a column at a time."""
    write = getattr(rows, "encode_rows", None)
    if write is not None:
        return write(start, stop)
    if is_array(rows):
        return encode_column(to_numpy(rows[start:stop]))
    return [encode_row(rows[index]) for index in range(start, stop)]


def encode_column(column: Any, before: bytes = b"") -> list[bytes]:
    """Return `encode_row` of each entry of an array's first axis, with the same bytes before each of them."""
    numbers = _portable(column)
    head = before + _array_head(numbers, numbers.shape[1:])
    width, data = numbers.itemsize * int(np.prod(numbers.shape[1:], dtype=np.int64)), numbers.tobytes()
    return (
        [head + data[at : at + width] for at in range(0, width * len(numbers), width)]
        if width
        else [head] * len(numbers)
    )


def encode_key(key: str) -> bytes:
    """Return a key of a dict as it is written before its item."""
    text = _utf8(key)
    return LENGTH.pack(len(text)) + text


def decode_row(data: bytes) -> Any:
    """Return the row that was written as these bytes, or raise. Arrays are copies that may be changed."""
    reader = _Reader(data)
    row = reader.item(DEEPEST)
    if reader.at != len(data):
        raise ValueError(f"`data` must end where the row ends, got {len(data) - reader.at} bytes more")
    return row


def _write(value: Any, put: Callable[[bytes], None], depth: int) -> None:
    if depth == 0:
        raise ValueError(f"`row` must not hold more than {DEEPEST} tuples and dicts in each other")
    is_number = _is_number(value)
    simple = _number(value) if is_number else _simple(value)
    if simple is not None:
        put(simple)
    elif isinstance(value, (tuple, list)):
        _write_all(value, b"t", put, depth)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, Mapping):
        _write_mapping(value, put, depth)  # pyright: ignore[reportUnknownArgumentType]
    elif is_number or is_array(value):
        numbers = _portable(to_numpy(value))
        put(_array_head(numbers, numbers.shape) + numbers.tobytes())
    else:
        raise TypeError(f"`row` must be {WHAT}, got {type(value).__name__}: convert it first")


def _write_all(values: Iterable[Any], tag: bytes, put: Callable[[bytes], None], depth: int) -> None:
    items = list(values)
    put(tag + LENGTH.pack(len(items)))
    for item in items:
        _write(item, put, depth - 1)


def _write_mapping(value: Mapping[Any, Any], put: Callable[[bytes], None], depth: int) -> None:
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"`row` must have keys that are str, got {key!r}")
    put(DICT + LENGTH.pack(len(value)))
    for key in sorted(value):  # by code point, which is the order of the UTF-8 bytes
        put(encode_key(key))
        _write(value[key], put, depth - 1)


def _is_number(value: Any) -> bool:
    """Tell whether a value is a number of NumPy: its float64 is also a float, and not written as one."""
    return isinstance(value, np.generic) and not isinstance(value, (np.str_, np.bytes_))


def _number(value: Any) -> bytes | None:
    """Return a number of NumPy in its form; None for one that has none, such as a date."""
    head = _NUMBERS.get(value.dtype)
    return None if head is None else head + value.tobytes()


def _simple(value: Any) -> bytes | None:
    """Return what has neither items nor axes; None for the rest."""
    if value is None or isinstance(value, bool):
        return b"N" if value is None else b"T" if value else b"F"
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"`row` must have whole numbers of 64 bits, got {value}: write it as text")
        return b"i" + _INT.pack(value)
    if isinstance(value, float):
        return b"f" + _FLOAT.pack(value)
    if isinstance(value, str):
        return b"s" + encode_key(value)
    if isinstance(value, (bytes, bytearray)):
        return b"b" + LENGTH.pack(len(value)) + bytes(value)
    return None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"`row` must have text that UTF-8 can hold, got {text!r}") from error


def _portable(array: Any) -> Any:
    """Return an array of little-endian numbers, or raise for what has no such form."""
    if array.dtype.str[1:] not in TYPES:
        raise TypeError(f"`row` must have arrays of numbers or booleans, got dtype {array.dtype}: convert it first")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"))


def _array_head(array: Any, shape: tuple[int, ...]) -> bytes:
    return b"a" + array.dtype.str[1:].encode() + bytes([len(shape)]) + b"".join(map(LENGTH.pack, shape))


# Tables have many numbers of NumPy: looked up, one takes a fifth of what any other array does.
_NUMBERS = {kind: _array_head(np.empty((), kind), ()) for kind in (np.dtype(f"<{name}") for name in sorted(TYPES))}


class _Reader:
    """Reads one item after the other, and never past the end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def item(self, depth: int) -> Any:
        if depth == 0:
            raise ValueError(f"`data` must not hold more than {DEEPEST} tuples and dicts in each other")
        tag = self.take(1)
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag not in _READ:
            raise ValueError(f"`data` must be what `encode_row` wrote, got the tag {tag!r} at byte {self.at - 1}")
        return _READ[tag](self, depth)

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            left = len(self.data) - self.at
            raise ValueError(f"`data` must not end inside a row, got {left} of {count} bytes at byte {self.at}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form: struct.Struct) -> Any:
        return form.unpack(self.take(8))[0]

    def length(self) -> int:
        return self.number(LENGTH)

    def text(self) -> str:
        at = self.at
        try:
            return self.take(self.length()).decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"`data` must have text in UTF-8, got other bytes at byte {at}") from error

    def items(self, depth: int) -> tuple[Any, ...]:
        return tuple([self.item(depth - 1) for _ in range(self._count(1))])

    def _count(self, least: int) -> int:
        """Return a number of items that the rest of the bytes, at `least` bytes each, can hold."""
        count = self.length()
        if count * least > len(self.data) - self.at:
            raise ValueError(f"`data` must not end inside a row, got less than {count} items at byte {self.at}")
        return count

    def mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        last: str | None = None
        for _ in range(self._count(9)):
            key = self.text()
            if last is not None and key <= last:
                raise ValueError(f"`data` must have the keys of a dict in order and once, got {key!r} after {last!r}")
            found[key], last = self.item(depth - 1), key
        return found

    def array(self) -> Any:
        kind = self.take(2).decode("latin-1")
        if kind not in TYPES:
            raise ValueError(f"`data` must have arrays of a type that `encode_row` writes, got {kind!r}")
        shape = [self.length() for _ in range(self.take(1)[0])]
        size = int(kind[1])
        for length in shape:  # Python's numbers: a product of hostile sizes overflows those of NumPy
            size *= length
        numbers = np.frombuffer(self.take(size), dtype="|b1" if kind == "b1" else f"<{kind}")
        if kind == "b1" and (numbers.view(np.uint8) > 1).any():
            raise ValueError("`data` must have booleans of 0 or 1")
        return _as_array(numbers, shape)


def _as_array(numbers: Any, shape: list[int]) -> Any:
    """Return numbers in a shape, as a copy in the machine's byte order; one number alone as a number of NumPy."""
    try:
        array = numbers.astype(numbers.dtype.newbyteorder("=")).reshape(shape)
    except ValueError as error:  # more axes, or longer empty ones, than NumPy has
        raise ValueError(f"`data` must have arrays that NumPy can hold, got the shape {tuple(shape)}") from error
    return array if shape else array[()]


_CONSTANTS = {b"N": None, b"T": True, b"F": False}
_READ: dict[bytes, Callable[[_Reader, int], Any]] = {
    b"i": lambda reader, _: reader.number(_INT),
    b"f": lambda reader, _: reader.number(_FLOAT),
    b"s": lambda reader, _: reader.text(),
    b"b": lambda reader, _: reader.take(reader.length()),
    b"t": _Reader.items,
    DICT: _Reader.mapping,
    b"a": lambda reader, _: reader.array(),
}
