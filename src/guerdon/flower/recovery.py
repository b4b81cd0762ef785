"""What is saved with every paid round, so that training goes on from it as if nothing had happened.

The model is not all: an adaptive request believes something, and strategies remember things between rounds (momentum,
a clipping norm). What a strategy keeps in its attributes as numbers and arrays is saved if it has changed since the
strategy was made, and set again; what the app itself sets, such as a learning rate, stays the app's.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from guerdon.ledger.books.errors import RefusedError

BROADCAST = "current_arrays"  # Flower's name for the model last sent: `configure_train` sets it again
INNER = "strategy"  # and for what a wrapper wraps
LEDGER_SETTINGS = ("guerdon-db", "guerdon-run")  # given anew whenever a run goes on
SAVED = "biuf"  # kinds of numbers that a checkpoint can hold


def unwrap(strategy: Any) -> Iterator[Any]:
    """Yield a strategy and those that it wraps, from the outside in."""
    while strategy is not None:
        yield strategy
        strategy = getattr(strategy, INNER, None)


def remembered(strategy: Any) -> dict[str, Any]:
    """Return what a strategy, and those it wraps, keep as numbers and arrays, by names that `remind` understands."""
    found: dict[str, Any] = {}
    for depth, layer in enumerate(unwrap(strategy)):
        for name, value in layer.__dict__.items():
            if name not in (BROADCAST, INNER):
                found |= {f"{depth}.{name}{rest}": array for rest, array in _parts(value)}
    return found


def snapshot(strategy: Any) -> dict[str, Any]:
    """Return what a strategy remembers now, whatever it does with its arrays later."""
    return {name: np.array(value) for name, value in remembered(strategy).items()}


def settings_of(grid: Any) -> dict[str, Any]:
    """Return the settings that the app was started with (`flwr run --run-config`), but for those of the ledger."""
    given = getattr(getattr(grid, "run", None), "override_config", {})
    return {name: value for name, value in given.items() if name not in LEDGER_SETTINGS}


def pack_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as an array of a checkpoint; `read_settings` reads it."""
    return {"settings": np.frombuffer(json.dumps(settings).encode(), np.uint8)} if settings else {}


def read_settings(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a checkpoint; none where it was saved without."""
    packed = arrays.get("flower", {}).get("settings")
    return {} if packed is None else json.loads(packed.tobytes())


def check_resumable(strategy: Any, run: str) -> None:
    """Raise if a strategy keeps books that cannot be taken up again."""
    if any(getattr(layer, "accountant", None) is not None for layer in unwrap(strategy)):
        raise RefusedError(
            f"run {run!r} cannot go on: the strategy's privacy accountant has forgotten what its rounds have spent. "
            "Begin a run of another name, with what is left of the privacy budget"
        )


def changed(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is not as it was."""
    return {name: value for name, value in now.items() if name not in before or not np.array_equal(before[name], value)}


def remind(strategy: Any, saved: Mapping[str, Any]) -> None:
    """Set what `remembered` returned, in a strategy made like the one that it came from."""
    layers = list(unwrap(strategy))
    fresh: set[tuple[int, str]] = set()
    for key, value in sorted(saved.items()):  # lists in their order
        depth, _, rest = key.partition(".")
        name, mark, part = _split(rest)
        layer = layers[int(depth)]
        if mark and (int(depth), name) not in fresh:
            setattr(layer, name, {} if mark == ":" else [])
            fresh.add((int(depth), name))
        if mark == ":":
            getattr(layer, name)[part] = value
        elif mark == "#":
            getattr(layer, name).append(value)
        else:
            setattr(layer, name, value.item() if value.ndim == 0 else value)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays in an attribute's value, each with what its name ends in; nothing if it holds anything else."""
    if isinstance(value, (bool, int, float, np.number)) and np.asarray(value).dtype.kind in SAVED:
        yield "", np.asarray(value)
    elif _is_saved(value):
        yield "", value
    elif isinstance(value, list) and value and all(_is_saved(part) for part in value):  # pyright: ignore[reportUnknownVariableType]
        yield from ((f"#{index:06}", part) for index, part in enumerate(value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    elif isinstance(value, dict) and value and all(_is_saved(part) for part in value.values()):  # pyright: ignore[reportUnknownVariableType]
        yield from ((f":{name}", part) for name, part in value.items())  # pyright: ignore[reportUnknownVariableType]


def _is_saved(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in SAVED


def _split(rest: str) -> tuple[str, str, str]:
    """Return an attribute's name, the mark of a list (#) or dictionary (:), and what follows it."""
    ends = [place for place in (rest.find("#"), rest.find(":")) if place >= 0]
    if not ends:
        return rest, "", ""
    return rest[: min(ends)], rest[min(ends)], rest[min(ends) + 1 :]
