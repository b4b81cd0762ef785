"""The arrays in a reply: looked at without copying, checked before anything is computed with them."""

import io
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord

from guerdon.run.reports import Arrays, Kind, Template, Witness

LONGEST_HEADER = 10_000

# Of a model that was sent: the gradients of minibatches of the server's own data, in arrays named like the model's.
RecordWitness: TypeAlias = Callable[[ArrayRecord], Sequence[ArrayRecord]]

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def view(template: Template, record: ArrayRecord) -> dict[str, np.ndarray]:
    """Return the arrays of a reply in the template's order, without copying, or raise if they are not as asked."""
    template.check_names(record)
    seen = {name: _view(name, record[name], template) for name in template.kinds}
    template.check_rest(seen)
    return seen


def as_record(arrays: Arrays) -> ArrayRecord:
    """Return arrays as Flower sends them."""
    return ArrayRecord({name: Array(np.asarray(array, order="C")) for name, array in arrays.items()})


def with_arrays(record: ArrayRecord, model: Arrays, sent: Arrays) -> ArrayRecord:
    """Return a model's record with the arrays that are sent in place of its own."""
    return ArrayRecord({name: old if sent[name] is model[name] else Array(sent[name]) for name, old in record.items()})


def on_arrays(witness: RecordWitness) -> Witness:
    """Return what the server asks of its own data, given a function of Flower's records."""
    return lambda sent: [read_arrays(found) for found in witness(as_record(sent))]


def mean(rows: Sequence[Arrays], name: str) -> np.ndarray:
    """Return the mean of one array over several nodes, added up in double precision."""
    total = rows[0][name].astype(np.float64)
    for row in rows[1:]:
        total += row[name]
    total /= len(rows)
    return total


def read_arrays(record: ArrayRecord) -> dict[str, np.ndarray]:
    """Return the arrays of a record that can be trusted, without copying."""
    return {name: _view(name, array) for name, array in record.items()}


def _view(name: str, array: Array, template: Template | None = None) -> np.ndarray:
    try:
        shape, dtype, fortran, offset = _header(array)
    except ValueError as error:
        raise ValueError(f"its array {name!r:.60} cannot be read: {error}") from error
    kind = Kind(shape, dtype)
    if template is not None:
        template.check_kind(name, kind)
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
    except Exception as error:  # NumPy's parser stumbles in many ways over what anybody may send
        raise ValueError(f"it does not begin as an array does ({type(error).__name__})") from error
    return tuple(shape), dtype, bool(fortran), buffer.tell()
