"""The arrays in a reply: looked at without copying, checked before anything is computed with them."""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from flwr.app import Array, ArrayRecord

from guerdon.evidence.blocks import LARGEST

LONGEST_HEADER = 10_000
TOO_LARGE = f"it holds a number that is not finite, or beyond {LARGEST:.0e}"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

Arrays = Mapping[str, np.ndarray]


class Kind(NamedTuple):
    """The shape and type of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


class Template(NamedTuple):
    """The arrays that every reply must hold: those of the model.

    Some strategies change types (FedAdam makes double precision of single), and some nodes follow, some do not: so
    the type of the model that was just sent will do as well as that of the model it all began with.
    """

    kinds: dict[str, Kind]
    sent: dict[str, Kind]

    @classmethod
    def of(cls, arrays: ArrayRecord) -> Self:
        """Return the template of a model, or raise if it has nothing to compare."""
        kinds = {name: Kind(*_header(array)[:2]) for name, array in arrays.items()}
        template = cls(kinds, kinds)
        if not template.compared:
            raise ValueError(
                "`initial_arrays` must hold at least one array of floating-point numbers: pay is for how close they lie"
            )
        if not is_finite(arrays):
            raise ValueError("`initial_arrays` must hold finite numbers only, got NaN or infinity")
        return template

    def after(self, model: ArrayRecord) -> Self:
        """Return the template for replies to a later model."""
        return self._replace(sent={name: Kind(*_header(array)[:2]) for name, array in model.items()})

    @property
    def compared(self) -> list[str]:
        """The arrays that count: of floating-point numbers, and not empty."""
        return [name for name, kind in self.kinds.items() if kind.dtype.kind == "f" and 0 not in kind.shape]

    def view(self, record: ArrayRecord) -> dict[str, np.ndarray]:
        """Return the arrays of a reply in the template's order, without copying, or raise if they are not as asked."""
        missing, extra = [sorted(a - b) for a, b in _both_ways(self.kinds.keys(), record.keys())]
        if missing or extra:
            what = [f"lacks {_some(missing)}"] * bool(missing) + [f"has {_some(extra)} that nobody asked for"] * bool(
                extra
            )
            raise ValueError(f"it {' and '.join(what)}")
        seen = {name: _view(name, record[name], (kind, self.sent.get(name, kind))) for name, kind in self.kinds.items()}
        for name in self.kinds.keys() - set(self.compared):  # of the others `gather` tells
            if seen[name].dtype.kind in "fc" and not is_usable(seen[name]):
                raise ValueError(TOO_LARGE)
        return seen


def is_usable(array: np.ndarray) -> bool:
    """Tell whether all numbers are finite and small enough to compute with."""
    return bool((np.abs(array) <= LARGEST).all())  # NaN is not


def mean(rows: Sequence[Arrays], name: str) -> np.ndarray:
    """Return the mean of one array over several nodes, added up in double precision."""
    total = rows[0][name].astype(np.float64)
    for row in rows[1:]:
        total += row[name]
    total /= len(rows)
    return total


def is_finite(record: ArrayRecord) -> bool:
    """Tell whether a model can be computed with."""
    return all(np.isfinite(array).all() for array in read_arrays(record).values() if array.dtype.kind in "fc")


def read_arrays(record: ArrayRecord) -> dict[str, np.ndarray]:
    """Return the arrays of a record that can be trusted, without copying."""
    return {name: _view(name, array, (Kind(*_header(array)[:2]),)) for name, array in record.items()}


def _view(name: str, array: Array, kinds: Sequence[Kind]) -> np.ndarray:
    try:
        shape, dtype, fortran, offset = _header(array)
    except ValueError as error:
        raise ValueError(f"its array {name!r:.60} cannot be read: {error}") from error
    kind = Kind(shape, dtype)
    if kind not in kinds:
        raise ValueError(f"its array {name!r:.60} is {kind!s:.80} where {kinds[0]} was asked for")
    count = math.prod(shape)
    if len(array.data) != offset + count * dtype.itemsize:
        raise ValueError(f"its array {name!r:.60} holds {len(array.data) - offset} bytes, not those of {kind}")
    flat = np.frombuffer(array.data, dtype, count, offset)
    return flat.reshape(shape, order="F" if fortran else "C")


def _header(array: Array) -> tuple[tuple[int, ...], np.dtype[Any], bool, int]:
    """Return shape, type, order and where the numbers begin, as the data themselves say; no number is read."""
    if array.stype != "numpy.ndarray":
        raise ValueError(f"it is serialised as {array.stype!r:.40}, not as numpy.ndarray")
    buffer = io.BytesIO(array.data)
    try:
        shape, fortran, dtype = _HEADERS[np.lib.format.read_magic(buffer)](buffer, max_header_size=LONGEST_HEADER)
    except Exception as error:  # NumPy's parser stumbles in many ways over what a stranger may send
        raise ValueError(f"it does not begin as an array does ({type(error).__name__})") from error
    return tuple(shape), dtype, bool(fortran), buffer.tell()


def _both_ways(asked: Any, got: Any) -> Iterator[tuple[set[str], set[str]]]:
    yield set(asked), set(got)
    yield set(got), set(asked)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"{name!r:.60}" for name in names[:3])
    return f"array {shown}" if len(names) == 1 else f"arrays {shown}{' …' if len(names) > 3 else ''}"
