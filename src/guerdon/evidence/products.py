"""How a round's reports lie to each other: their inner products, from which all else is arithmetic on a few numbers.

With v_k = X_k − p, p the public prediction, the products ⟨v_i, v_j⟩ are read in one pass over the reports. Lengths,
copies, the shortening of reports that are too long, trust and evidence all follow from them: a report shortened to
p + f·v_k has the products f times as large, whatever its size. So one enormous report does no harm to the digits of
the others. Nothing is read twice, unless some number cannot be computed with.

Rounding: products are added up in float64 where the library has it. A deviation from the mean is a difference of
products, so it is resolved to about 1e-16 of ‖v‖² (1e-7 in float32, where JAX is not in its 64-bit mode).
"""

from collections.abc import Iterator
from typing import NamedTuple

import array_api_compat as compat
import numpy as np

from guerdon.arrays import Array, namespace, widest_float
from guerdon.evidence.blocks import LARGEST, AgentRows, Block, Layers, find_usable, holds_tracer, read_blocks
from guerdon.evidence.gathering import Evidence


class Products(NamedTuple):
    """Inner products around p: ⟨v_i, v_j⟩, ⟨v_i, p⟩ and ⟨p, p⟩; 0 for agents who are not counted."""

    inner: Array  # (agents, agents)
    lean: Array  # (agents,)
    origin: Array
    counted: Array  # (agents,)


def multiply(reports: Layers, participating: Array, prediction: Layers | None = None) -> Products:
    """Return the products of all usable reports, around the prediction (zero where none is given).

    Who is counted is as in `gather`, and so are the arguments. The cost is O(agents² × dim), in one pass.

    >>> multiply(np.array([[1.0, 2.0], [3.0, 0.0], [5.0, 5.0]]), np.array([True, True, False])).inner
    array([[5., 3., 0.],
           [3., 9., 0.],
           [0., 0., 0.]])
    """
    if isinstance(reports, AgentRows):
        return _seated(reports, participating, prediction)

    def blocks() -> Iterator[Block]:
        return read_blocks(reports, participating, prediction)

    with np.errstate(over="ignore", invalid="ignore"):
        if holds_tracer(reports, participating, prediction):
            return _traced(blocks(), find_usable(blocks()))
        found = _added_up(blocks(), None)
        if bool(namespace(found.inner).all(_squares(found.inner) < 0.99 * LARGEST**2)):
            return found
        return _added_up(blocks(), find_usable(blocks()))


def shortening(length: Array, counted: Array, limit: float) -> Array:
    """Return the factors that shorten reports to at most `limit` times the median length of the others', around p.

    `length` are the ‖v_k‖². Replacing X_k by p + factor·v_k bounds what any one report can do to the mean and to the
    others' pay. The median is over the other counted agents, so no agent sets its own limit; of an even number the
    lower one counts.

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


def lengths_of(products: Products) -> Array:
    """Return ‖v_k‖² of every agent."""
    return _squares(products.inner)


def evidence_around_prediction(products: Products, factors: Array, counted: Array, reference: Array) -> Evidence:
    """Return the evidence of the `counted` reports, each shortened by its factor, as `gather` would around p.

    `reference` tells whose reports the alignment is with.
    """
    factors = namespace(factors).where(counted, factors, 0.0)
    return _evidence(products.inner * factors[:, None] * factors[None, :], counted, reference)


def evidence_around_zero(products: Products, counted: Array) -> Evidence:
    """Return the evidence of the `counted` reports as they came, around no prediction."""
    lean = products.lean[:, None] + products.lean[None, :]
    moved = _evidence(products.inner + lean + products.origin, counted, counted)
    return moved._replace(deviation=_evidence(products.inner, counted, counted).deviation)


def _evidence(inner: Array, counted: Array, reference: Array) -> Evidence:
    xp = namespace(inner)
    own, others = (xp.astype(mask & counted, inner.dtype) for mask in (counted, reference))
    count = xp.sum(own)
    length = _squares(inner)
    mean = xp.sum(inner * own[None, :], axis=1) / xp.where(count > 0, count, 1.0)  # ⟨v_k, mean of all v⟩
    deviation = length - 2 * mean + xp.sum(own * mean) / xp.where(count > 0, count, 1.0)
    alignment = xp.sum(inner * others[None, :], axis=1)
    parts = xp.where(deviation > 0, deviation, 0.0), length, alignment
    return Evidence(*(xp.where(counted, part, 0.0) for part in parts), counted=counted)


def _traced(blocks: Iterator[Block], usable: Array) -> Products:
    """Return the products where JAX traces the reports: who is not counted is masked away."""
    total: list[Array] = []
    counted: Array = usable
    for block in blocks:
        xp = namespace(block.columns)
        counted = block.participating & usable
        apart = xp.where(counted[:, None], xp.astype(block.columns, widest_float(xp)) - block.guess, 0.0)
        total = _plus(total, _products(apart, block.guess))
    return Products(*total, counted=counted)


def _added_up(blocks: Iterator[Block], usable: Array | None) -> Products:
    """Return the products of the participants whose reports are usable (None: believed of all), of no others."""
    total: list[Array] = []
    counted: Array = usable
    for block in blocks:
        xp = namespace(block.columns)
        counted = block.participating if usable is None else block.participating & usable
        rows = block.columns if bool(xp.all(counted)) else block.columns[counted]
        total = _plus(total, _products(xp.astype(rows, widest_float(xp)) - block.guess, block.guess))
    return _spread(total, counted)


def _products(apart: Array, guess: Array) -> list[Array]:
    xp = namespace(apart)
    # An accelerator may multiply at reduced precision unless it is told not to.
    exactly = {"precision": "highest"} if compat.is_jax_namespace(xp) else {}
    inner = xp.matmul(apart, apart.T, **exactly)
    # To the last bit the same for (i, j) and (j, i): who lies in the middle must not hang on rounding.
    return [(inner + inner.T) / 2, xp.matmul(apart, guess, **exactly), xp.sum(guess * guess)]


def _plus(total: list[Array], more: list[Array]) -> list[Array]:
    return [a + b for a, b in zip(total, more, strict=True)] if total else more


def _spread(total: list[Array], counted: Array) -> Products:
    """Return the products of some agents as those of all."""
    inner, lean, origin = total
    xp = namespace(inner)
    if bool(xp.all(counted)):
        return Products(inner, lean, origin, counted)
    if not bool(xp.any(counted)):
        agents = counted.shape[0]
        nothing = xp.zeros(agents, dtype=origin.dtype)
        return Products(nothing[:, None] * nothing, nothing, origin, counted)
    place = xp.clip(xp.cumulative_sum(xp.astype(counted, xp.int32)) - 1, 0, None)
    both = counted[:, None] & counted[None, :]
    return Products(xp.where(both, inner[place][:, place], 0.0), xp.where(counted, lean[place], 0.0), origin, counted)


def _seated(rows: AgentRows, participating: Array, prediction: Layers | None) -> Products:
    """Return the products of reports that are kept agent by agent: of those there are, as if there were no others."""
    if not len(rows.seats):
        nothing = np.zeros(rows.agents)
        return Products(np.zeros((rows.agents, rows.agents)), nothing, np.zeros(()), nothing > 0)
    found = multiply(list(rows), participating[rows.seats], prediction)
    inner = rows.seated(rows.seated(found.inner).T)
    return Products(inner, rows.seated(found.lean), found.origin, rows.seated(found.counted))


def _squares(inner: Array) -> Array:
    return namespace(inner).linalg.diagonal(inner)
