"""What `guerdon.looks.rehearsal` runs in a process of its own: many looks at one function, which is imported once.

Only names of tensors and ways, numbers, and types of exceptions leave the process: no message may quote a row.
"""

import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from guerdon.looks._child import where
from guerdon.looks.recompute import (
    LEAST,
    Arrays,
    Repeat,
    Work,
    moves,
    repeat_error,
    rows_effect,
    skippable_share,
    tolerances,
)

TOLD = "told"  # the name of the array that holds JSON; reports are "0/tensor", "1/tensor", …
DOUBLE = "in double precision"


class UnableError(ValueError):
    """The function cannot be looked at as it is; `in_double`: it failed in double precision only."""

    def __init__(self, reason: str, *, in_double: bool = False) -> None:
        super().__init__(reason)
        self.in_double = in_double


def measure(
    model: Arrays,
    rows: Arrays,
    seed: int,
    *,
    function: str,
    seeds: Sequence[int],
    ways: Sequence[Mapping[str, Any]],
    searched: int,
    sends: str,
    only_reports: bool,
) -> dict[str, np.ndarray]:
    """Return a report for each look, and as JSON how exactly each repeats (`told`).

    `rows`: those of all looks, one after the other, as many for each of `seeds`. `ways`: options that are tried beside
    those that the function offers by itself. `searched`: in how many looks rows are sought that could be skipped.
    `sends`: of what the function returns "models", their moves are compared.
    """
    del seed
    told, reports = list[dict[str, Any]](), dict[str, np.ndarray]()
    size = len(next(iter(rows.values()))) // len(seeds)
    try:
        loaded = _loaded(function)
        work = _guarded(function, loaded, model, sends)
        ways = [*_offered(loaded, size), *ways]
        for place, chosen in enumerate(seeds):
            named = {name: array[place * size : (place + 1) * size] for name, array in rows.items()}
            report = work(model, named, chosen)
            _check(report)
            reports |= {f"{place}/{name}": array for name, array in report.items()}
            if not only_reports:
                told.append(_measured(work, model, named, chosen, ways, place, searched=place < searched))
    except (ValueError, KeyError) as error:  # of our own functions: `UnableError` is one
        return {TOLD: _packed({"unable": str(error)})}
    return reports | {TOLD: _packed({"looks": told})}


def _measured(
    work: Work, model: Arrays, rows: Arrays, seed: int, ways: Sequence[Mapping[str, Any]], place: int, *, searched: bool
) -> dict[str, Any]:
    """Return how exactly one look repeats, the tolerance, and rows that could be skipped inside it."""
    effect = rows_effect(work, model, rows, seed)
    repeat, why = _repeat(work, model, rows, seed, effect, [{}, *ways])
    tolerance = tolerances(repeat, work(model, rows, seed))
    found: dict[str, Any] = {
        "effect": effect, "tolerance": tolerance, "in_double": repeat.in_double, "double_fails": why,
        "last_bits": repeat.last_bits,
    }  # fmt: skip
    if place == 0:  # one by one: what is told of each way is of the first look
        alone = [(way, repeat_error(work, model, rows, seed, effect, [way], double=False, shakes=0)) for way in ways]
        again = repeat_error(work, model, rows, seed, effect, [{}], double=False, shakes=0)
        found["ways"] = [["again, in the same way", again.ways], *([_words(way), one.ways] for way, one in alone)]
        if not why:
            double = repeat_error(work, model, rows, seed, effect, shakes=0)
            found["ways"].append([DOUBLE, double.ways])
    if searched and all(value < np.inf for value in tolerance.values()):
        skipped = skippable_share(work, model, rows, seed, effect, tolerance)
        found["skipped"] = {"rows": skipped.rows, "share": skipped.share}
    return found


def _repeat(
    work: Work, model: Arrays, rows: Arrays, seed: int, effect: Mapping[str, float], ways: Sequence[Mapping[str, Any]]
) -> tuple[Repeat, str]:
    """Return the repeat error, and why the work cannot be done in double precision, "" where it can."""
    try:
        return repeat_error(work, model, rows, seed, effect, ways), ""
    except UnableError as error:
        if not error.in_double:
            raise
        return repeat_error(work, model, rows, seed, effect, ways, double=False), str(error)


def _loaded(function: str) -> Work:
    """Return the function. Its module has seen no row yet: what goes wrong may be quoted."""
    module, name = function.split(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # noqa: BLE001 - whatever a module raises
        raise UnableError(f"{function} cannot be imported: {type(error).__name__}: {error}") from None


def _guarded(function: str, work: Work, model: Arrays, sends: str) -> Work:
    """Return the function, whose exceptions are told by type and line, and whose report is arrays of NumPy."""

    def guarded(given: Arrays, rows: Arrays, seed: int, **way: Any) -> Arrays:
        count = len(next(iter(rows.values())))
        in_double = any(array.dtype != model[name].dtype for name, array in given.items())
        how = f"{count} row{'s' * (count != 1)}{f', {DOUBLE}' * in_double}{', ' * bool(way)}{_words(way)}"
        try:
            report = work(given, rows, seed, **way)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a function raises
            raise UnableError(
                f"with {how} it raises {where(error, {'function': function})}", in_double=in_double
            ) from None
        try:
            arrays = {str(name): np.asarray(value) for name, value in report.items()}
            return moved(arrays, given) if sends == "models" else arrays
        except (AttributeError, TypeError, ValueError, RuntimeError):
            raise UnableError(f"with {how} it must return arrays of numbers by name", in_double=in_double) from None

    return guarded


def moved(after: Arrays, before: Arrays) -> Arrays:
    """Return what a model moved by, in the types of the model: they say how exact it is."""
    return {name: move.astype(after[name].dtype) for name, move in moves(after, before).items()}


def _check(report: Arrays) -> None:
    """Raise unless a report can be compared: finite numbers, some of them real, in types that have a tolerance."""
    real = {name: array for name, array in report.items() if array.dtype.kind == "f"}
    wrong = [array.dtype.name for array in report.values() if array.dtype.kind not in "biuf"]
    wrong += [array.dtype.name for array in real.values() if array.dtype.name not in LEAST]
    if wrong or not real:
        got = wrong[0] if wrong else "none"
        raise UnableError(f"it must report arrays of real numbers ({', '.join(LEAST)}), got {got}")
    if not all(np.isfinite(array).all() for array in real.values()):
        raise UnableError("it must report finite numbers: this model or these rows make it overflow")


def _offered(work: Work, size: int) -> list[dict[str, Any]]:
    """Return the ways that a function offers by the names of its options: threads and micro-batches."""
    options = inspect.signature(work).parameters
    tried = {"threads": [2], "micro_batch": sorted({1, (size + 1) // 2})}
    return [{option: value} for option, values in tried.items() if option in options for value in values]


def _words(way: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in way.items())


def _packed(told: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(told).encode(), dtype=np.uint8)
