"""What the gradients of one round say about each other: four numbers per agent, in one pass.

For a public prediction p of the gradient (zero where none is given) and m̄ the mean over the participants,

    squared_deviation_k = ‖X_k − m̄‖²   squared_length_k = ‖X_k − p‖²   alignment_k = ⟨X_k − p, Σ_i (X_i − p)⟩

where the last sum is over the participants that others are compared with: all, unless a rule says otherwise. The
fourth number, pair_distance_k, is the mean of ‖X_k − X_i‖² over the other participants i; it follows from the
deviations (`mean_pair_distance`). Every payment rule, the noise scale and the audit are computed from these alone. Each
is a sum over components, so a model of any size streams through, layer by layer and a block of columns at a time, at a
cost of O(agents × dim).

Rounding: within a block of columns the arithmetic is that of the gradients' own type (at least float32), on
differences from one participant and then from their mean, so that nothing cancels however large the common part of
the gradients; blocks and layers are added in float64 where the library has it. Where the common part is small, and
there is nothing to compare with, NumPy's gradients are not centred at all: that is half the work, and costs at most a
factor of `MOST_LOST` of precision. Arrays of PyTorch and JAX on the host are read as the NumPy arrays they share memory
with, which is faster than their own threads; JAX's on an accelerator are compiled: two passes. Squared length and
alignment are put together from sums around the mean: their rounding is relative to ‖m̄ − p‖², also for an agent that
sends p itself.

An agent whose report holds a NaN, an infinity, or a component further than `LARGEST` from the prediction is not
counted: the numbers of the others are exactly those of a round in which it did not take part.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from guerdon.arrays import (
    Array,
    are_jax,
    as_host_array,
    at_least_one,
    compiled,
    is_array,
    is_numpy,
    is_traced,
    namespace,
    over_layers,
    row_dots,
    to_numpy,
    widest_float,
)
from guerdon.reports import LARGEST, AgentRows, Block, Layers, find_usable, holds_tracer, read_blocks

MOST_LOST = 4  # a deviation may be so many times smaller than the squares that it is the difference of


class Evidence(NamedTuple):
    """Four numbers per agent (0 for an agent that is not counted), and which agents are counted: all (agents,)."""

    squared_deviation: Array  # ‖X_k − m̄‖²
    pair_distance: Array  # mean of ‖X_k − X_i‖² over the other counted agents i; 0 without any
    squared_length: Array  # ‖X_k − p‖²
    alignment: Array  # ⟨X_k − p, Σ (X_i − p)⟩ over those that others are compared with
    counted: Array

    def as_recorded(self) -> "Evidence":
        """Return the evidence as the ledger keeps it, and as pay is computed from it: in NumPy's float64.

        Negative zero becomes zero: SQLite would not keep its sign.
        """
        parts = (np.ascontiguousarray(to_numpy(part), dtype=np.float64) + 0.0 for part in self[:-1])
        return Evidence(*parts, counted=to_numpy(self.counted).astype(np.bool_))


class _Sums(NamedTuple):
    """What adds up over blocks, with m̄ the participants' mean and r̄ that of the reference.

    Per agent ‖X_k − m̄‖², ⟨X_k − m̄, m̄ − p⟩ and ⟨X_k − m̄, r̄ − p⟩, and for all ‖m̄ − p‖² and ⟨m̄ − p, r̄ − p⟩.
    """

    deviation: Array
    lean: Array
    reference_lean: Array
    offset: Array
    reference_offset: Array


def gather(
    gradients: Layers,
    participating: Array,
    prediction: Layers | None = None,
    reference: Array | None = None,
    offsets: Layers | None = None,
) -> Evidence:
    """Return the evidence of one round: the four numbers per agent of this module's first formula.

    - `gradients`: an array (agents, dim), or a sequence of layers, each (agents, …). A sequence is read from front to
      back, and again only if some number in it is not usable. So it may build each layer when asked for it.
    - `participating`: booleans (agents,), True for those that took part. The rows of the others are not looked at.
    - `prediction`: p, in the shape of one agent's gradient: (dim,), or one array per layer. None: zeros.
    - `reference`: booleans (agents,), the agents whose reports the alignment is with. None: all that took part. For
      rules that do not compare anybody with agents that send something else than gradients.
    - `offsets`: taken off each agent's gradient first: a matrix (agents, numbers), or one per layer (see
      `guerdon.statistical.offsets`). None: nothing.

    The result is in the squared unit of a gradient, and 0 for agents that are not counted.

    >>> import numpy as np
    >>> evidence = gather(np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]]), np.array([True, True, True]))
    >>> evidence.squared_deviation
    array([2., 2., 4.])
    >>> evidence.pair_distance
    array([ 7.,  7., 10.])
    """

    if isinstance(gradients, AgentRows):
        return _seated(gradients, participating, prediction, reference, offsets)
    apart = participating, prediction, reference, offsets
    traced = holds_tracer(gradients, *apart)
    shared = None if traced else _on_host(gradients)
    if shared is not None:
        xp = namespace(gradients if is_array(gradients) else gradients[0])
        evidence = gather(shared, *(None if given is None else over_layers(to_numpy, given) for given in apart))
        return Evidence(*map(xp.asarray, evidence))
    with np.errstate(over="ignore", invalid="ignore"):  # an unusable number is dealt with, not warned about
        if not traced:
            jax = are_jax(gradients)
            if jax and _are_alone(apart):
                return compiled(_in_two_passes)(gradients, participating)
            evidence = (compiled(_believed) if jax else _believed)(gradients, *apart)
            if _surely_usable(evidence):
                return evidence
        return _with_care(gradients, *apart)


def mean_pair_distance(squared_deviation: Array, counted: Array) -> Array:
    """Return each counted agent's mean squared distance to the other counted agents; 0 for the rest, and for one alone.

    With n counted agents, Σ_{i≠k} ‖X_k − X_i‖² = n·‖X_k − m̄‖² + Σ_i ‖X_i − m̄‖²: no pair is looked at.

    - `squared_deviation`: ‖X_k − m̄‖² (…, agents).
    - `counted`: booleans (…, agents).

    >>> mean_pair_distance(np.array([2.0, 2.0, 4.0]), np.array([True, True, True]))
    array([ 7.,  7., 10.])
    """
    xp = namespace(squared_deviation)
    squares = xp.where(counted, squared_deviation, 0.0)
    count = xp.sum(xp.astype(counted, squared_deviation.dtype), axis=-1, keepdims=True)
    others = at_least_one(count - 1)
    mean = count / others * squares + xp.sum(squares, axis=-1, keepdims=True) / others
    return xp.where(counted & (count > 1), mean, 0.0)


def _believed(*inputs: Any, usable: Array | None = None) -> Evidence:
    """Return the evidence of a round whose reports are usable: all of them, or those of `usable`."""
    return _evidence(read_blocks(*inputs), usable, alone=_are_alone(inputs[1:]))


def _with_care(*inputs: Any) -> Evidence:
    """Return the evidence of a round whose reports are all checked first."""
    return _believed(*inputs, usable=find_usable(read_blocks(*inputs)))


def _are_alone(apart: Sequence[Any]) -> bool:
    """Tell whether there is no prediction, reference or offset."""
    return all(given is None for given in apart[1:])


def _in_two_passes(gradients: Layers, participating: Array) -> Evidence:
    """Return the evidence of JAX's arrays; the device decides whether two passes do, so that nothing waits for it."""
    jax: Any = sys.modules["jax"]
    blocks = list(read_blocks(gradients, participating, None))
    counted = blocks[0].participating
    parts = [_sums_as_they_are(jax.numpy.where(counted[:, None], b.columns, 0.0), counted.sum()) for b in blocks]
    sums = _Sums(*map(sum, zip(*(part for part, _ in parts), strict=True)))
    quick = _around_prediction(sums, counted, None)
    precise = jax.numpy.all(~counted | jax.numpy.stack([fine for _, fine in parts]))
    return jax.lax.cond(
        precise & _surely_usable(quick), lambda: quick, lambda: _with_care(gradients, participating, None)
    )


def _seated(
    rows: AgentRows,
    participating: Array,
    prediction: Layers | None,
    reference: Array | None,
    offsets: Layers | None,
) -> Evidence:
    """Return the evidence of reports that are kept agent by agent: of those there are, as if there were no others."""
    if not len(rows.seats):
        nothing = np.zeros(rows.agents)
        return Evidence(nothing, nothing, nothing, nothing, np.zeros(rows.agents, dtype=bool))
    some, compared, apart = (rows.of_seats(given) for given in (participating, reference, offsets))
    evidence = gather(list(rows), some, prediction, compared, apart)
    return Evidence(*(rows.seated(part) for part in evidence))


def _on_host(layers: Any) -> Any:
    """Return PyTorch's tensors as the NumPy arrays that they share memory with; None if not all of them can be."""
    if not isinstance(layers, (list, tuple)):
        return as_host_array(layers)
    arrays = [as_host_array(layer) for layer in cast("Sequence[Any]", layers)]
    return arrays if arrays and all(layer is not None for layer in arrays) else None


def _evidence(blocks: Iterable[Block], usable: Array | None, *, alone: bool) -> Evidence:
    """Return the evidence of the participants whose gradients are usable (None: believed of all).

    `alone`: there is no prediction, reference or offset. Once a common part is too large to be left in, it is taken off
    all further blocks.
    """
    total: Any = None
    counted: Any = None
    reference: Any = None
    for block in blocks:
        counted = block.participating if usable is None else block.participating & usable
        reference = None if block.reference is None else counted & block.reference
        columns = block.columns if block.offsets is None else block.columns - block.offsets
        quick = _sums_of_counted(columns, counted) if alone and is_numpy(columns) else None
        alone, sums = quick is not None, quick or _sums(columns, block.guess, counted, reference)
        total = sums if total is None else _Sums(*(a + b for a, b in zip(total, sums, strict=True)))
    return _around_prediction(total, counted, reference)


def _around_prediction(sums: _Sums, counted: Array, reference: Array | None) -> Evidence:
    """Turn sums around the mean into sums around the prediction, by ‖a + b‖² = ‖a‖² + 2⟨a, b⟩ + ‖b‖²."""
    xp = namespace(counted)
    count = xp.sum(xp.astype(counted if reference is None else reference, sums.deviation.dtype))
    length = sums.deviation + 2 * sums.lean + sums.offset
    length = xp.where(length < 0, 0.0, length)  # rounding; a NaN stays one
    alignment = count * (sums.reference_lean + sums.reference_offset)
    pair_distance = mean_pair_distance(sums.deviation, counted)
    parts = sums.deviation, pair_distance, length, alignment
    return Evidence(*(xp.where(counted, x, 0.0) for x in parts), counted=counted)


def _sums(columns: Array, guess: Array, counted: Array, reference: Array | None) -> _Sums:
    """Return the sums over one block of columns, centred twice: on one participant, then on the mean."""
    xp, wide = namespace(columns), widest_float(namespace(columns))
    work = xp.result_type(columns.dtype, xp.float32)  # half precision is widened, a foreign byte order made native
    columns = xp.astype(columns, work, copy=False)
    first = xp.argmax(xp.astype(counted, xp.int8))
    pivot = xp.where(counted[first], columns[first], 0.0)
    if is_traced(counted) or not xp.all(counted):
        columns = xp.where(counted[:, None], columns, pivot)
    centred = columns - pivot
    count = xp.sum(xp.astype(counted, work))
    mean = xp.sum(centred, axis=0) / xp.where(count > 0, count, 1.0)
    centred -= mean
    offset = (xp.astype(pivot, wide) - guess) + xp.astype(mean, wide)
    deviation, lean = row_dots(xp, centred, centred), row_dots(xp, centred, xp.astype(offset, work))
    ours = offset if reference is None else offset + _mean_of(centred, reference)
    ours_lean = lean if reference is None else row_dots(xp, centred, xp.astype(ours, work))
    per_agent = (xp.astype(x, wide) for x in (deviation, lean, ours_lean))
    return _Sums(*per_agent, offset=xp.sum(offset * offset), reference_offset=xp.sum(offset * ours))


def _sums_of_counted(columns: Array, counted: Array) -> _Sums | None:
    """Return the sums over one block of NumPy's, without centring; None where that could cost precision.

    Only the rows that count are looked at: their numbers are those of a round without the others.
    """
    if not counted.any():
        return None
    rows = columns if counted.all() else columns[counted]
    sums, fine = _sums_as_they_are(rows, len(rows))
    if not fine.all():
        return None
    spread = np.zeros((2, len(counted)))
    spread[:, counted] = sums.deviation, sums.lean
    return _Sums(spread[0], spread[1], spread[1], sums.offset, sums.reference_offset)


def _sums_as_they_are(rows: Array, count: Any) -> tuple[_Sums, Array]:
    """Return the sums over one block around no prediction, without centring, and of which agents they are precise."""
    xp, wide = namespace(rows), widest_float(namespace(rows))
    rows = xp.astype(rows, xp.result_type(rows.dtype, xp.float32), copy=False)
    lengths = xp.astype(row_dots(xp, rows, rows), wide)  # first: it reads memory faster than a sum
    mean = xp.sum(rows, axis=0) / count
    common = xp.astype(row_dots(xp, rows, mean), wide)
    square = xp.sum(xp.square(xp.astype(mean, wide)))
    deviation, lean = lengths - 2 * common + square, common - square
    return _Sums(deviation, lean, lean, square, square), lengths + square <= MOST_LOST * deviation  # no NaN is


def _mean_of(centred: Array, reference: Array) -> Array:
    """Return the mean of some rows, zero where there are none."""
    xp = namespace(centred)
    count = xp.sum(xp.astype(reference, centred.dtype))
    total = xp.sum(xp.where(reference[:, None], centred, 0.0), axis=0)
    return xp.astype(total / xp.where(count > 0, count, 1.0), widest_float(xp))


def _surely_usable(evidence: Evidence) -> Array:
    """Tell whether every counted number is usable: NaN, infinite and huge ones all show in the lengths."""
    return namespace(evidence.squared_length).all(evidence.squared_length < 0.99 * LARGEST**2)
