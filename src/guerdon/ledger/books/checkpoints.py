"""The arrays saved with a round: named groups (model, rule, …) as safetensors bytes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from guerdon.arrays import to_numpy
from guerdon.ledger.books.errors import RefusedError

PART = 16 * 2**20  # bytes per row: databases limit a value to about a gigabyte, models do not
SEPARATOR = "/"

Groups = Mapping[str, Any]  # each a mapping of names to arrays, or a NamedTuple of arrays such as a rule's state


def pack(groups: Groups) -> bytes:
    """Return groups of arrays as bytes: the same arrays give the same bytes."""
    arrays: dict[str, Any] = {}
    for group, members in groups.items():
        named = members._asdict() if hasattr(members, "_asdict") else members
        if SEPARATOR in group or not isinstance(named, Mapping):
            raise RefusedError(f"`checkpoint` must map names without {SEPARATOR!r} to groups of arrays, got {group!r}")
        arrays |= {f"{group}{SEPARATOR}{name}": np.asarray(to_numpy(array), order="C") for name, array in named.items()}  # pyright: ignore[reportUnknownVariableType]
    try:
        return save(dict(sorted(arrays.items())))
    except Exception as error:
        raise RefusedError(f"`checkpoint` holds an array that cannot be saved: {error}") from error


def unpack(data: bytes) -> dict[str, dict[str, Any]]:
    """Return the groups of arrays that `pack` made into bytes, by name: safetensors returns them in any order."""
    groups: dict[str, dict[str, Any]] = {}
    for name, array in sorted(load(data).items()):
        group, _, rest = name.partition(SEPARATOR)
        groups.setdefault(group, {})[rest] = array
    return groups


def parts(data: bytes) -> list[bytes]:
    """Return the bytes cut into rows."""
    return [data[start : start + PART] for start in range(0, len(data), PART)]
