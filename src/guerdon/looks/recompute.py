"""Work that is computed again: how exactly it repeats, whether it is what was sent, and which rows hardly matter.

Everything is compared tensor by tensor, in float64, relative to the larger of two lengths:

    error = ‖again − sent‖ / max(‖again‖, effect),   effect = mean length of what one row alone would report

The effect of single rows is there because of rows that cancel: then the report is short, and its rounding errors are
those of the rows.

**The tolerance** is the auditor's, for each look, on the current model: ten times the error with which the auditor can
repeat the work. Other threads and other micro-batches are not enough to find that error. On a trained network the
gradient of a row that fits is a small difference of larger numbers (p − 1), and another processor has another
exponential function: there an honest report is 10 to 1,000 times as far from the auditor's as its own repetitions are
from each other. So the work is also done in double precision, and with model and rows changed in their last bits.

What a look does not see: rows whose contribution is below the tolerance (`skippable_share` says how many), and whether
rows are true. A member that commits to a few false rows which are enormous and cancel makes the effect large: an
auditor who compares rows with their sources finds these.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from guerdon.arrays import check_number, check_positive_integer

Arrays = Mapping[str, np.ndarray]

# Measured in PyTorch: a perceptron, two convolutional networks, a transformer, untrained and trained, 1 step of 16 rows
# and 8 steps of 8. Honest reports that fail, with other kernels (those for processors without AVX-512, or without
# oneDNN), and from a GPU (without batch normalisation): 135 of 576 and 164 of 1,080 with a tolerance from threads and
# micro-batches alone; 2 and 2 with double precision; 0 and 1 with last bits too. With 64 steps 40, 8 and 2 of 288; a
# factor of 3 fails 4 of these, 30 fails 2.
FACTOR = 10.0
SHAKES = 4  # times that last bits are changed: 2 miss some units at the edge of their ReLU (1 of 576; 4 of 288)
LAST_BITS = 16.0  # machine epsilons, by up to which each number is changed; this stands for the factor of 10
# For work that repeats to the bit in every way, such as one product: another machine adds up in another order. In the
# numbers above it never decides, from 0 to 1e-5.
LEAST = {"float16": 2e-4, "float32": 1e-6, "float64": 1e-14}
SAMPLED = 16  # rows whose mean length is the effect: a mean of 16 lengths is good to a factor of two


# The application's function (model, rows, seed) → what a member reports. Rows are arrays whose first axis counts them.
# It may offer options that change how it is computed and nothing else, such as threads=1 or micro_batch=4: *ways*.
Work: TypeAlias = Callable[..., Arrays]


class Comparison(NamedTuple):
    """How far a report is from the work computed again, and why it is not that work, in sentences.

    `errors` has an entry for each tensor of the work: None where there is no number, because the tensor is missing, of
    another shape, or not finite. Errors of whole numbers are 0 or None: they must be equal.
    """

    errors: dict[str, float | None]
    tolerance: dict[str, float]
    reasons: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether there is no reason against the report."""
        return not self.reasons


class Repeat(NamedTuple):
    """How exactly the auditor repeats the work, by tensor.

    `ways`: the largest error among the ways that were given and double precision. `last_bits`: the largest where model
    and rows were changed in their last bits. `in_double`: whether the work follows double precision. Where it does not,
    honest reports from another processor may fail: give a way that does, or the kind of processor that members have.
    """

    ways: dict[str, float]
    last_bits: dict[str, float]
    in_double: bool


class Skippable(NamedTuple):
    """Named rows that could be skipped without being found: a lower bound, from a search for the quietest."""

    rows: tuple[int, ...]  # places in the named rows
    share: float  # of the named rows
    by: int  # the place of the quietest row, a copy of which may stand in theirs


def rows_effect(work: Work, model: Arrays, rows: Arrays, seed: int, sample: int = SAMPLED) -> dict[str, float]:
    """Return, for each tensor, the mean length of what one row alone would report: of `sample` rows, evenly spaced."""
    check_positive_integer("sample", sample)
    total = _count(rows)
    places = sorted({total * place // sample for place in range(sample)})
    alone = [work(model, _pick(rows, [place]), seed) for place in places]
    return {name: float(np.mean([_length(report[name]) for report in alone])) for name in _real(alone[0])}


def repeat_error(
    work: Work,
    model: Arrays,
    rows: Arrays,
    seed: int,
    effect: Mapping[str, float],
    ways: Sequence[Mapping[str, Any]] = (),
    *,
    double: bool = True,
    shakes: int = SHAKES,
) -> Repeat:
    """Return the largest error with which the work repeats, for each tensor.

    `effect`: of `rows_effect`. `ways`: options of the work, for ways in which honest members may differ, such as
    threads or micro-batches. `double`: also do it in double precision, by a model and rows of float64. `shakes`: how
    often it is done with changed last bits. All are compared with the work as it is.

    Raises ValueError where the ways do not give the same finite tensors: such work cannot be verified.
    """
    first, exact, chance = work(model, rows, seed), _in_double(model), np.random.default_rng(0)
    results = [(f"with {dict(way)}", work(model, rows, seed, **way)) for way in ways]
    if double:
        results.append(("in double precision", work(exact, _in_double(rows), seed)))
    shaken = [work(_shaken(model, chance), _shaken(rows, chance), seed) for _ in range(shakes)]
    follows = double and all(
        results[-1][1][name].dtype == np.float64 for name in _real(first) if name in results[-1][1]
    )
    changed = [("with changed last bits", result) for result in shaken]
    return Repeat(_largest(first, results, effect), _largest(first, changed, effect), follows)


def tolerances(repeat: Repeat, report: Arrays, factor: float = FACTOR) -> dict[str, float]:
    """Return the tolerance of each tensor: from the repeat error, but at least what its type can tell.

    `report`: any report; only the types of its tensors count.

    >>> repeat = Repeat(ways={"w": 3e-6, "b": 0.0}, last_bits={"w": 1e-5, "b": 0.0}, in_double=True)
    >>> tolerances(repeat, {"w": np.ones(2, np.float32), "b": np.ones(2, np.float32)})
    {'w': 3e-05, 'b': 1e-06}
    """
    check_number("factor", factor, minimum=1)
    return {
        name: max(factor * error, repeat.last_bits[name], LEAST[report[name].dtype.name])
        for name, error in repeat.ways.items()
    }


def compare(again: Arrays, sent: Arrays, effect: Mapping[str, float], tolerance: Mapping[str, float]) -> Comparison:
    """Return how far the report `sent` is from the work computed `again`.

    A report in a shorter type is compared with the work rounded to that type. `effect`: of `rows_effect`. `tolerance`:
    of `tolerances`. Names, shapes, types and numbers that are not finite are differences too; nothing raises.

    >>> again, sent = {"w": np.array([3.0, 4.0])}, {"w": np.array([3.0, 4.5])}
    >>> compare(again, sent, effect={"w": 2.0}, tolerance={"w": 0.01}).reasons
    ("tensor 'w' differs by 1.0e-01 of its scale, the tolerance is 1.0e-02",)
    """
    errors, reasons = dict[str, float | None](), list[str]()
    for name in sorted(again):
        errors[name], why = _difference(name, again[name], sent.get(name), effect, tolerance)
        reasons += why
    reasons += [f"tensor {name!r} is not of the work" for name in sorted(set(sent) - set(again))]
    return Comparison(errors, _known(tolerance, again), tuple(reasons))


def skippable_share(
    work: Work,
    model: Arrays,
    rows: Arrays,
    seed: int,
    effect: Mapping[str, float],
    tolerance: Mapping[str, float],
) -> Skippable:
    """Return which of the named rows could be replaced or left out inside the tolerance, on this model.

    Rows are tried from the quietest on: replaced by copies of the quietest, or left out, with and without the report
    shortened as if they told nothing. The work is done once for each row, and about four times for each doubling of
    their number. What is found is possible; a better search might find more. A member that knew these rows without
    computing them would save their cost, and change its report by less than the tolerance.
    """
    total, whole = _count(rows), work(model, rows, seed)
    loudness = [_loudness(work(model, _pick(rows, [place]), seed), tolerance) for place in range(total)]
    order = sorted(range(total), key=loudness.__getitem__)
    least, most = 0, total - 1  # one row at least is used; what passes is taken for an interval from 0
    while least < most:
        middle = (least + most + 1) // 2
        cheats = _cheats(work, model, rows, seed, order, middle)
        passes = any(compare(whole, sent, effect, tolerance).passed for sent in cheats)
        least, most = (middle, most) if passes else (least, middle - 1)
    return Skippable(tuple(sorted(order[1 : least + 1])), least / total, order[0])


def moves(after: Arrays, before: Arrays) -> dict[str, np.ndarray]:
    """Return what a model moved by, in float64 (whole numbers stay whole): for reports that are models.

    A tensor that `before` has not, or in another shape, stays as it is: `compare` will name it.
    """
    known = {name for name, array in after.items() if name in before and before[name].shape == array.shape}
    return {name: _wide(array) - _wide(before[name]) if name in known else array for name, array in after.items()}


def arrays_hash(arrays: Arrays) -> bytes:
    """Return the SHA-256 of named arrays: names in order, each with type, shape and little-endian numbers."""
    total = hashlib.sha256(b"guerdon arrays 1\n")
    for name in sorted(arrays):
        array = arrays[name].astype(arrays[name].dtype.newbyteorder("<"), copy=False)
        head = f"{len(name.encode())} {name}{array.dtype.str}{list(array.shape)}\n"
        total.update(head.encode() + array.tobytes())
    return total.digest()


def segment_hashes(models: Iterable[Arrays]) -> tuple[bytes, ...]:
    """Return the hash of the model at the end of each segment of local training: the member signs them.

    The last is the model that it reports, and the first segment starts from the model that it was sent.
    """
    return tuple(arrays_hash(model) for model in models)


def compare_segment(
    again: Arrays,
    start: Arrays,
    end: Arrays,
    signed: tuple[bytes, bytes],
    effect: Mapping[str, float],
    tolerance: Mapping[str, float],
) -> Comparison:
    """Return how far one drawn segment of local training is from what the auditor computed.

    `start`, `end`: the models that the member shows. `signed`: the hashes that they must have: that of the segment
    before (of the model that was sent, for the first segment), then that of this one. `again`: the model at the end,
    computed from `start`. What is compared is what the model moved by.
    """
    shown = zip(("start", "end"), (start, end), signed, strict=True)
    wrong = [what for what, model, hashed in shown if arrays_hash(model) != hashed]
    if wrong:
        reasons = tuple(f"the model at the {what} of the segment is not the signed one" for what in wrong)
        return Comparison(dict.fromkeys(again), _known(tolerance, again), reasons)
    return compare(moves(again, start), moves(end, start), effect, tolerance)


def _difference(
    name: str, again: np.ndarray, sent: np.ndarray | None, effect: Mapping[str, float], tolerance: Mapping[str, float]
) -> tuple[float | None, list[str]]:
    """Return the error of one tensor, and why it is a difference: one sentence or none."""
    real = again.dtype.kind == "f"
    if sent is None:
        return None, [f"tensor {name!r} is missing"]
    if sent.shape != again.shape:
        return None, [f"tensor {name!r} has the shape {list(sent.shape)}, the work gives {list(again.shape)}"]
    if (sent.dtype.kind == "f") != real:
        return None, [f"tensor {name!r} is of type {sent.dtype.name}, the work gives {again.dtype.name}"]
    if not real:
        equal = bool((again == sent).all())
        return (0.0, []) if equal else (None, [f"tensor {name!r} holds other whole numbers than the work gives"])
    with np.errstate(over="ignore"):  # rounded to a shorter type it may be infinite, and is then named below
        mine, other = _wide(again.astype(sent.dtype)), _wide(sent)
    for whose, array in (("sent", other), ("computed again", mine)):
        if not np.isfinite(array).all():
            return None, [f"tensor {name!r} as {whose} holds a number that is not finite"]
    error = _relative(_length(mine - other), max(_length(mine), effect.get(name, 0.0)))
    if error <= tolerance[name]:
        return error, []
    apart = f"tensor {name!r} differs by {error:.1e} of its scale, the tolerance is {tolerance[name]:.1e}"
    return (error if np.isfinite(error) else None), [apart]


def _largest(first: Arrays, results: Sequence[tuple[str, Arrays]], effect: Mapping[str, float]) -> dict[str, float]:
    """Return the largest error of several results by tensor, or raise where they are not of the same kind."""
    names = _real(first)
    largest = dict.fromkeys(names, 0.0)
    for how, result in results:
        one = compare(first, result, effect, dict.fromkeys(names, np.inf))
        if one.reasons:
            raise ValueError(f"`work` must give the same finite tensors in every way, but {how} {one.reasons[0]}")
        largest = {name: max(largest[name], one.errors[name] or 0.0) for name in names}
    return largest


def _in_double(arrays: Arrays) -> dict[str, np.ndarray]:
    return {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in arrays.items()}


def _shaken(arrays: Arrays, chance: np.random.Generator) -> dict[str, np.ndarray]:
    """Return arrays whose real numbers are changed by up to `LAST_BITS` machine epsilons each."""

    def shake(array: np.ndarray) -> np.ndarray:
        bits = chance.uniform(-LAST_BITS, LAST_BITS, array.shape) * float(np.finfo(array.dtype).eps)
        return (array * (1 + bits)).astype(array.dtype)

    return {name: shake(array) if array.dtype.kind == "f" else array for name, array in arrays.items()}


def _relative(length: float, scale: float) -> float:
    """Return the quotient; anything is infinitely much of nothing."""
    return length / scale if scale > 0 else (0.0 if length == 0 else np.inf)


def _length(array: np.ndarray) -> float:
    """Return the Euclidean length, without overflow."""
    values = _wide(array).ravel()
    largest = float(np.abs(values).max(initial=0.0))
    return largest * float(np.linalg.norm(values / largest)) if 0 < largest < np.inf else largest


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind == "f" else array.astype(np.int64)


def _real(arrays: Arrays) -> list[str]:
    return [name for name, array in arrays.items() if array.dtype.kind == "f"]


def _known(tolerance: Mapping[str, float], arrays: Arrays) -> dict[str, float]:
    return {name: float(tolerance[name]) for name in _real(arrays)}


def _count(rows: Arrays) -> int:
    counts = {len(array) for array in rows.values()}
    if len(counts) != 1 or counts == {0}:
        raise ValueError(f"`rows` must be arrays of the same number of rows, at least one, got {sorted(counts)}")
    return counts.pop()


def _pick(rows: Arrays, places: Sequence[int]) -> dict[str, np.ndarray]:
    return {name: array[np.asarray(places, dtype=np.intp)] for name, array in rows.items()}


def _loudness(report: Arrays, tolerance: Mapping[str, float]) -> float:
    """Return how much of the tolerance a report takes, in the tensor where it takes most, up to a common factor."""
    return max(_length(report[name]) / tolerance[name] for name in _real(report))


def _cheats(work: Work, model: Arrays, rows: Arrays, seed: int, order: Sequence[int], count: int) -> Iterator[Arrays]:
    """Yield reports that save `count` rows of work, from the quietest on."""
    total, replaced = len(order), set(order[1 : count + 1])
    yield work(model, _pick(rows, [order[0] if place in replaced else place for place in range(total)]), seed)
    fewer = work(model, _pick(rows, sorted(order[count:])), seed)
    yield fewer
    share = (total - count) / total
    yield {name: array * share if array.dtype.kind == "f" else array for name, array in fewer.items()}
