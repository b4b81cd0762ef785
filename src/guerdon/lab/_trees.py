"""Dataclasses that JAX can take apart: agents, problems and policies whose numbers are data to a compiled function."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import jax

T = TypeVar("T")


def register(kind: type[T], data: Sequence[str] | None = None) -> type[T]:
    """Make a dataclass a JAX pytree of its `data` (all fields not marked static); its other fields are fixed.

    Not `jax.tree_util.register_dataclass`: to that, two classes with as many fields are equal structures with other
    hashes, so that a compiled function now and then runs the program of another class (seen with JAX 0.10.1).
    """
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    if data is None:
        data = [field.name for field in fields(kind) if not field.metadata.get("static")]  # pyright: ignore[reportArgumentType]
    numbers = tuple(data)
    if unknown := [name for name in numbers if name not in names]:
        raise ValueError(f"`data` must name fields of {kind.__name__} ({', '.join(names)}), got {unknown[0]!r}")
    fixed = tuple(name for name in names if name not in numbers)

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(tree, name) for name in numbers), tuple(getattr(tree, name) for name in fixed)

    def flatten_with_keys(tree: Any) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, ...]]:
        leaves, kept = flatten(tree)
        return tuple((jax.tree_util.GetAttrKey(name), leaf) for name, leaf in zip(numbers, leaves, strict=True)), kept

    def unflatten(kept: tuple[Any, ...], leaves: Any) -> T:
        # Not through __init__, which checks its arguments: JAX puts tracers, and at times placeholders, in their place.
        made = object.__new__(kind)
        for name, value in (*zip(fixed, kept, strict=True), *zip(numbers, leaves, strict=True)):
            object.__setattr__(made, name, value)
        return made

    jax.tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)
    return kind
