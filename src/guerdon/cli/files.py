"""Reading one round's gradients from a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]

_SAVED_BY = {".npy": "numpy.save", ".npz": "numpy.savez", ".safetensors": "safetensors.numpy.save_file"}
SUFFIXES = tuple(_SAVED_BY)


def read_gradients(path: Path) -> tuple[list[str], Any]:
    """Return the agents' names and their gradients (agents, dim) from a .npy, .npz or .safetensors file.

    A file with one array holds all agents, (agents, dim), named "0", "1", …. A file with several arrays holds one per
    agent, of any shape as long as all have the same; the agents are named as their arrays.
    """
    arrays = read_arrays(path)
    if len(arrays) == 1:
        (gradients,) = arrays.values()
        if gradients.ndim < 2 or not gradients.size:
            raise ValueError(
                f"`{path}` must hold an array (agents, dim) of at least one agent and one number, or one array per "
                f"agent, got one of shape {gradients.shape}"
            )
        return [str(index) for index in range(gradients.shape[0])], gradients
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) != 1:
        listed = ", ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:5])
        raise ValueError(f"`{path}` must hold arrays of one shape, one per agent, got {listed or 'none'}")
    if shapes == {shape for shape in shapes if 0 in shape}:
        raise ValueError(f"`{path}` must hold at least one number per agent, got arrays of shape {shapes.pop()}")
    return list(arrays), np.stack([np.ravel(array) for array in arrays.values()])


def read_array(path: Path) -> Any:
    """Return the one array of a file, flat."""
    arrays = list(read_arrays(path).values())
    if len(arrays) != 1:
        raise ValueError(f"`{path}` must hold one array, got {len(arrays)}")
    return np.ravel(arrays[0])


def read_arrays(path: Path) -> Mapping[str, Any]:
    """Return the arrays of a file by name. Pickled objects are refused: they could run code."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"`{path}` must be a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file")
    if not path.is_file():
        raise FileNotFoundError(f"`{path}` is not a file")
    if not path.stat().st_size:
        raise ValueError(f"`{path}` must hold arrays, one row or one array per agent, got an empty file: save it again")
    try:
        if suffix == ".safetensors":
            return load_file(path)
        with path.open("rb") as file:
            if suffix == ".npy":
                return {"": np.lib.format.read_array(file, allow_pickle=False)}
            archive = np.load(file, allow_pickle=False)
            members = {name: archive[name] for name in archive.files}
    except Exception as error:
        told = f"{error}".rstrip(".")
        raise ValueError(
            f"`{path}` cannot be read as {suffix}: {told}. It must hold arrays as {_SAVED_BY[suffix]} writes them"
        ) from error
    for name, array in members.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"`{path}` must hold arrays only, got something else under {name!r}")
    return members
