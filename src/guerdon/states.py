"""States: what a rule, a policy, a prediction or the server carries from round to round.

A state is a NamedTuple of arrays, of lists of arrays (the layers of a model) and of further states. So JAX can carry it
through a compiled loop, and it can be saved as arrays by name and restored.
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, is_traced, namespace, to_numpy


class NoState(NamedTuple):
    """The state of something that remembers nothing."""


def flatten_state(state: Any, prefix: str = "") -> dict[str, Any]:
    """Return the arrays of a state by their paths, as NumPy's.

    >>> class Sums(NamedTuple):
    ...     total: Any
    ...     weight: Any
    >>> list(flatten_state(Sums([np.zeros(2), np.zeros(3)], np.ones(()))))
    ['total.0', 'total.1', 'weight']
    """
    if _is_leaf(state):
        return {prefix: to_numpy(state)}
    parts = [flatten_state(part, f"{prefix}.{name}" if prefix else name) for name, part in _members(state).items()]
    return {name: array for part in parts for name, array in part.items()}


def restore_state(like: Any, arrays: Mapping[str, Any]) -> Any:
    """Return a state of the form of `like` with the arrays that `flatten_state` returned; None if they do not fit.

    They become arrays of the library, and of the type, that `like` has.
    """
    form = flatten_state(like)
    fits = set(form) == set(arrays) and all(np.shape(arrays[name]) == form[name].shape for name in form)
    return _restored(like, arrays, "") if fits else None


def restore_parts(like: Any, arrays: Mapping[str, Any]) -> Any:
    """Return a state with each of its parts restored that fits; the others are as in `like`."""
    parts: dict[str, Any] = {}
    for name, part in _members(like).items():
        arrays_of_part = {path: array for path, array in arrays.items() if path == name or path.startswith(f"{name}.")}
        restored = restore_state(part, {path[len(name) + 1 :]: array for path, array in arrays_of_part.items()})
        parts[name] = part if restored is None else restored
    return type(like)(**parts)


def choose_state(condition: Array, new: Callable[[], Any], old: Any) -> Any:
    """Return the new state where a condition holds, else the old one; the condition may be traced by JAX."""
    if not is_traced(condition):
        return new() if bool(condition) else old
    return map_state(lambda a, b: namespace(a, b, condition).where(condition, a, b), new(), old)


def map_state(function: Callable[..., Any], *states: Any) -> Any:
    """Return a state whose arrays are a function of those of other states of the same form."""
    if _is_leaf(states[0]):
        return function(*states)
    parts = [map_state(function, *members) for members in zip(*states, strict=True)]
    return parts if isinstance(states[0], list) else type(states[0])(*parts)


def grown(state: Any, num_agents: int) -> Any:
    """Return a state for more agents: newcomers come last, and nothing is known of them, which is zeros.

    Which axes are the agents' the class of a state says, by field: `agents = {"pairs": (-2, -1), "common": ()}`. The
    rest is the last axis of arrays, and what further states say.
    """

    def longer(part: Any, axes: tuple[int, ...]) -> Any:
        xp = namespace(part)
        for axis in axes:
            shape = list(part.shape)
            shape[axis] = num_agents - shape[axis]
            part = xp.concat([part, xp.zeros(tuple(shape), dtype=part.dtype)], axis=axis) if shape[axis] > 0 else part
        return part

    return _by_agents(longer, state)


def chosen(who: Array, new: Any, old: Any, *, pairs: bool = False) -> Any:
    """Return a state with what another knows of some agents (None: nothing); of pairs only if that is said."""
    xp = namespace(who)

    def choose(part: Any, axes: tuple[int, ...], other: Any = 0.0) -> Any:
        if not axes or 0 in part.shape or (len(axes) > 1 and not pairs):
            return part
        mask = False
        for axis in axes:
            shape = [1] * part.ndim
            shape[axis] = part.shape[axis]
            mask = mask | xp.reshape(who, tuple(shape))
        return xp.where(mask, xp.asarray(other, dtype=part.dtype), part)

    return _by_agents(choose, old) if new is None else _by_agents(choose, old, new)


def _by_agents(function: Callable[..., Any], state: Any, *others: Any, axes: tuple[int, ...] = (-1,)) -> Any:
    """Return a state whose arrays are a function of each with its agents' axes, and of those of other states."""
    if isinstance(state, list):
        return [_by_agents(function, *parts, axes=axes) for parts in zip(state, *others, strict=True)]
    if _is_leaf(state):
        return function(state, axes, *others)
    axes_of = getattr(type(state), "agents", {})
    if axes_of is None:  # nothing in it belongs to an agent
        return state
    parts = (
        part if axes_of.get(name) == () else _by_agents(function, part, *rest, axes=axes_of.get(name, (-1,)))
        for name, part, *rest in zip(state._fields, state, *others, strict=True)
    )
    return type(state)(*parts)


def _restored(like: Any, arrays: Mapping[str, Any], prefix: str) -> Any:
    if _is_leaf(like):
        return namespace(like).asarray(arrays[prefix], dtype=getattr(like, "dtype", None))
    members = _members(like).items()
    parts = [_restored(part, arrays, f"{prefix}.{name}" if prefix else name) for name, part in members]
    return parts if isinstance(like, list) else type(like)(*parts)


def _is_leaf(state: Any) -> bool:
    return not isinstance(state, list) and not hasattr(state, "_asdict")


def _members(state: Any) -> dict[str, Any]:
    """Return the parts of a list or a NamedTuple by name."""
    return {str(i): part for i, part in enumerate(state)} if isinstance(state, list) else state._asdict()  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
