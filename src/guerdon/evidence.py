"""What the gradients of one round say about each other: three numbers per agent, in one pass.

For a public prediction p of the gradient (zero where none is given) and m̄ the mean over the participants,

    deviation_k = ‖X_k − m̄‖²        length_k = ‖X_k − p‖²        alignment_k = ⟨X_k − p, Σ_i (X_i − p)⟩

where the last sum is over the participants that others are compared with: all, unless a rule says otherwise. Every
payment rule, the noise scale and the audit are computed from these alone. Each is a sum over components, so a model of
any size streams through, layer by layer and a block of columns at a time, at a cost of O(agents × dim).

Rounding: within a block of columns the arithmetic is that of the gradients' own type (at least float32), on
differences from one participant and then from their mean, so that nothing cancels however large the common part of
the gradients; blocks and layers are added in float64 where the library has it. Length and alignment are put together
from sums around the mean: their rounding is relative to ‖m̄ − p‖², also for an agent who sends p itself.

An agent whose report holds a NaN, an infinity, or a component further than `LARGEST` from the prediction is not
counted: the numbers of the others are exactly those of a round in which he did not take part.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from guerdon.arrays import Array, as_mask, is_array, is_traced, namespace, row_dots, widest_float

LARGEST = 1e15  # beyond this a square comes near the largest float32: such a component counts as infinite
BLOCK = 2**20  # numbers per block of columns: small enough for the cache, large enough to hide Python's overhead
NARROWEST = 512  # columns per block at least, so that a block's rows are still contiguous runs worth reading
WIDEST = 2**16  # and at most, so that a sum over a row in float32 keeps its precision

Layers: TypeAlias = Array | Sequence[Array]


class Evidence(NamedTuple):
    """Per agent: deviation, length and alignment (all 0 for an agent not counted), and who was counted."""

    deviation: Array
    length: Array
    alignment: Array
    counted: Array


class _Block(NamedTuple):
    """Some columns of a layer, the prediction of them, and who took part."""

    columns: Array
    guess: Array
    participating: Array
    reference: Array | None  # None: everybody


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
    gradients: Layers, participating: Array, prediction: Layers | None = None, reference: Array | None = None
) -> Evidence:
    """Return the evidence of one round.

    `gradients` is an array (agents, dim), or a sequence of layers, each (agents, …). `participating` tells who took
    part; the rows of the others are not looked at. `prediction`, if given, has the shape of one agent's gradient:
    (dim,), or one array per layer. `reference` tells whose reports the alignment is with (default: everybody's), for
    rules that do not compare anybody with agents found to send something else than gradients. A sequence is read from
    front to back, and again only if some number in it is not usable, so it may build each layer when asked for it.

    >>> import numpy as np
    >>> evidence = gather(np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]]), np.array([True, True, True]))
    >>> evidence.deviation
    array([2., 2., 4.])
    """

    def blocks() -> Iterator[_Block]:
        return _blocks(gradients, participating, prediction, reference)

    with np.errstate(over="ignore", invalid="ignore"):  # an unusable number is dealt with, not warned about
        if not _holds_tracer(gradients, participating, prediction, reference):
            evidence = _evidence(blocks(), usable=None)
            if _surely_usable(evidence):
                return evidence
        return _evidence(blocks(), _usable(blocks()))


def lengths(gradients: Layers, participating: Array, prediction: Layers | None = None) -> tuple[Array, Array]:
    """Return ‖X_k − p‖² of each participant (0 for the others), and who is counted, each seen by himself alone.

    `gather` has the same numbers, but put together from sums around the mean: beside a report a million times longer
    than the rest their lengths would be lost to rounding. So what is to be shortened is measured with this.

    >>> import numpy as np
    >>> length, counted = lengths(np.array([[3.0, 4.0], [1.0, np.nan]]), np.array([True, True]))
    >>> length, counted
    (array([25.,  0.]), array([ True, False]))
    """
    total: Any = 0
    counted: Any = None
    with np.errstate(over="ignore", invalid="ignore"):
        for block in _blocks(gradients, participating, prediction, None):
            xp = namespace(block.columns)
            apart = xp.astype(block.columns, widest_float(xp)) - block.guess
            within = xp.abs(apart) <= LARGEST
            counted = xp.all(within, axis=1) & (block.participating if counted is None else counted)
            total = total + xp.sum(xp.where(within, apart, 0.0) ** 2, axis=1)
    if counted is None:
        raise ValueError("`gradients` must hold at least one layer, got an empty sequence")
    return namespace(total).where(counted, total, 0.0), counted


def products(gradients: Layers, participating: Array, prediction: Layers | None = None) -> Array:
    """Return the inner products ⟨X_i − p, X_j − p⟩ of all participants (agents, agents): what a test of pairs needs.

    Rows and columns of agents who are not counted are 0. The cost is O(agents² × dim).

    >>> import numpy as np
    >>> products(np.array([[1.0, 2.0], [3.0, 0.0], [5.0, 5.0]]), np.array([True, True, False]))
    array([[5., 3., 0.],
           [3., 9., 0.],
           [0., 0., 0.]])
    """

    def blocks() -> Iterator[_Block]:
        return _blocks(gradients, participating, prediction, None)

    with np.errstate(over="ignore", invalid="ignore"):
        usable = _usable(blocks())
        total: Any = 0
        for block in blocks():
            xp = namespace(block.columns)
            counted = block.participating & usable
            apart = xp.where(counted[:, None], xp.astype(block.columns, widest_float(xp)) - block.guess, 0.0)
            total = total + apart @ apart.T
    return total


def shortening(length: Array, counted: Array, limit: Any) -> Array:
    """Return the factors that shorten reports to at most `limit` times the median length of the others', around p.

    `length` and `counted` are those of `lengths`. Replacing X_k by p + factor·(X_k − p) bounds what any one report can
    do to the mean and to the others' pay. The median is over the other counted agents, so nobody sets his own limit;
    of an even number the lower one counts.

    >>> import numpy as np
    >>> shortening(np.array([1.0, 4.0, 1e12]), np.array([True, True, True]), limit=2.0)
    array([1.e+00, 1.e+00, 2.e-06])
    """
    xp = namespace(length)
    count = length.shape[0]
    others = counted[None, :] & ~xp.eye(count, dtype=xp.bool)
    ordered = xp.sort(xp.where(others, length[None, :], xp.inf), axis=1)
    middle = (xp.sum(xp.astype(others, xp.int32), axis=1) - 1) // 2
    chosen = xp.arange(count)[None, :] == middle[:, None]
    median = xp.sum(xp.where(chosen, ordered, 0.0), axis=1)
    with np.errstate(invalid="ignore"):  # no limit of nothing is no limit
        long = counted & (middle >= 0) & (length > limit**2 * median)
        return xp.where(long, limit * xp.sqrt(median / xp.where(long, length, 1.0)), 1.0)


def _evidence(blocks: Iterable[_Block], usable: Array | None) -> Evidence:
    """Return the evidence of the participants whose gradients are usable (None: believed of all)."""
    total, counted, reference = None, None, None
    for block in blocks:
        counted = block.participating if usable is None else block.participating & usable
        reference = None if block.reference is None else counted & block.reference
        sums = _sums(block.columns, block.guess, counted, reference)
        total = sums if total is None else _Sums(*(a + b for a, b in zip(total, sums, strict=True)))
    if total is None:
        raise ValueError("`gradients` must hold at least one layer, got an empty sequence")
    return _around_prediction(total, counted, reference)


def _around_prediction(sums: _Sums, counted: Array, reference: Array | None) -> Evidence:
    """Turn sums around the mean into sums around the prediction, by ‖a + b‖² = ‖a‖² + 2⟨a, b⟩ + ‖b‖²."""
    xp = namespace(counted)
    count = xp.sum(xp.astype(counted if reference is None else reference, sums.deviation.dtype))
    length = sums.deviation + 2 * sums.lean + sums.offset
    length = xp.where(length < 0, 0.0, length)  # rounding; a NaN stays one
    alignment = count * (sums.reference_lean + sums.reference_offset)
    return Evidence(*(xp.where(counted, x, 0.0) for x in (sums.deviation, length, alignment)), counted=counted)


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


def _mean_of(centred: Array, reference: Array) -> Array:
    """Return the mean of some rows, zero where there are none."""
    xp = namespace(centred)
    count = xp.sum(xp.astype(reference, centred.dtype))
    total = xp.sum(xp.where(reference[:, None], centred, 0.0), axis=0)
    return xp.astype(total / xp.where(count > 0, count, 1.0), widest_float(xp))


def _surely_usable(evidence: Evidence) -> bool:
    """Tell whether every counted number is usable: NaN, infinite and huge ones all show in the lengths."""
    return bool(namespace(evidence.length).all(evidence.length < 0.99 * LARGEST**2))


def _usable(blocks: Iterable[_Block]) -> Array:
    """Tell, per agent, whether all components lie within `LARGEST` of the prediction; NaN does not."""
    usable: Any = True
    for block in blocks:
        xp = namespace(block.columns)
        usable = xp.all(xp.abs(block.columns - block.guess) <= LARGEST, axis=1) & usable
    return usable


def _blocks(
    gradients: Layers, participating: Array, prediction: Layers | None, reference: Array | None
) -> Iterator[_Block]:
    """Yield the gradients block by block, layer by layer, each layer checked when its turn comes."""
    layers = [gradients] if is_array(gradients) else gradients
    guesses = [prediction] if is_array(prediction) else prediction
    if guesses is not None and len(guesses) != len(layers):
        raise ValueError(f"`prediction` must have one array per layer ({len(layers)}), got {len(guesses)}")
    for index in range(len(layers)):
        name = "gradients" if layers is not gradients else f"gradients[{index}]"
        layer = _as_matrix(layers[index], name)
        guess = _as_guess(None if guesses is None else guesses[index], layer, name)
        mask = as_mask(namespace(layer), participating, layer.shape[:1])
        compared = None if reference is None else as_mask(namespace(layer), reference, layer.shape[:1], "reference")
        # A traced layer is one block: the compiler fuses the arithmetic and needs no help from the cache.
        width = layer.shape[1] if is_traced(layer) else _width(layer.shape[0])
        for start in range(0, layer.shape[1], width):
            yield _Block(layer[:, start : start + width], guess[start : start + width], mask, compared)


def _width(num_agents: int) -> int:
    """Return how many columns of so many agents make a block."""
    return min(max(BLOCK // num_agents, NARROWEST), WIDEST)


def _as_matrix(layer: Array, name: str) -> Array:
    """Return a layer as (agents, columns), or raise."""
    if not is_array(layer):
        raise TypeError(f"`{name}` must be an array of NumPy, JAX or PyTorch, got {type(layer).__name__}")
    xp = namespace(layer)
    if not xp.isdtype(layer.dtype, "real floating"):
        raise TypeError(f"`{name}` must hold real floating-point numbers, got dtype {layer.dtype}")
    if layer.ndim < 2 or 0 in layer.shape:
        raise ValueError(
            f"`{name}` must have shape (agents, dim), neither of them 0, got {tuple(layer.shape)}; "
            "stack one vector per agent along the first axis"
        )
    return xp.reshape(layer, (layer.shape[0], -1))


def _as_guess(guess: Array | None, layer: Array, name: str) -> Array:
    """Return the prediction of a layer's columns: zero where there is none."""
    xp, columns = namespace(layer), layer.shape[1]
    flat = xp.reshape(xp.asarray(0.0 if guess is None else guess, dtype=widest_float(xp)), (-1,))
    if guess is not None and flat.shape != (columns,):
        raise ValueError(
            f"`prediction` must have the shape of one agent's `{name}` ({columns} numbers), got {flat.shape[0]}"
        )
    if guess is not None and not is_traced(flat) and not bool(xp.all(xp.isfinite(flat))):
        raise ValueError(f"`prediction` of `{name}` must hold finite numbers only, got NaN or infinity")
    return xp.broadcast_to(flat, (columns,))


def _holds_tracer(*values: Any) -> bool:
    """Tell whether a value, or an element of a list or tuple among them, is traced by JAX."""
    return any(is_traced(value) or (isinstance(value, (list, tuple)) and _holds_tracer(*value)) for value in values)  # pyright: ignore[reportUnknownArgumentType]
