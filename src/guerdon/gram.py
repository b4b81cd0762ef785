"""The inner products of a round's reports: all else about them is arithmetic on these few numbers.

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
from guerdon.evidence import Evidence, mean_pair_distance
from guerdon.reports import LARGEST, AgentRows, Block, Layers, find_usable, holds_tracer, read_blocks


class Products(NamedTuple):
    """Inner products around p: ⟨v_i, v_j⟩, ⟨v_i, p⟩ and ⟨p, p⟩; 0 for agents that are not counted."""

    inner: Array  # (agents, agents), less what was to be taken off
    plain: Array  # (agents, agents), of the reports as they came
    lean: Array  # (agents,), of the reports as they came
    origin: Array
    counted: Array  # (agents,)


def multiply(
    reports: Layers, participating: Array, prediction: Layers | None = None, offsets: Layers | None = None
) -> Products:
    """Return the products of all usable reports, around the prediction (zero where none is given).

    The arguments, and the agents that count, are those of `guerdon.evidence.gather`. It takes O(agents² × dim)
    operations, in one pass.

    >>> multiply(np.array([[1.0, 2.0], [3.0, 0.0], [5.0, 5.0]]), np.array([True, True, False])).inner
    array([[5., 3., 0.],
           [3., 9., 0.],
           [0., 0., 0.]])
    """
    if isinstance(reports, AgentRows):
        return _seated(reports, participating, prediction, offsets)

    def blocks() -> Iterator[Block]:
        return read_blocks(reports, participating, prediction, offsets=offsets)

    with np.errstate(over="ignore", invalid="ignore"):
        if holds_tracer(reports, participating, prediction):
            return _traced(blocks(), find_usable(blocks()))
        products = _added_up(blocks(), None)
        if bool(namespace(products.plain).all(_squares(products.plain) < 0.99 * LARGEST**2)):
            return products
        return _added_up(blocks(), find_usable(blocks()))


def shortening(squared_length: Array, counted: Array, limit: float) -> Array:
    """Return the factors that shorten reports to at most `limit` times the median length of the others', around p.

    Replacing X_k by p + factor·v_k bounds what any one report can do to the mean and to the others' pay.

    - `squared_length`: ‖v_k‖² (agents,).
    - `counted`: booleans (agents,).
    - `limit`: times the median length of the other counted agents, so that no agent sets its own limit; of an even
      number the lower median counts.

    >>> shortening(np.array([1.0, 4.0, 1e12]), np.array([True, True, True]), limit=2.0)
    array([1.e+00, 1.e+00, 2.e-06])
    """
    xp = namespace(squared_length)
    median, some = median_of_others(squared_length, counted)
    with np.errstate(invalid="ignore"):  # no limit of nothing is no limit
        long = counted & some & (squared_length > limit**2 * median)
        return xp.where(long, limit * xp.sqrt(median / xp.where(long, squared_length, 1.0)), 1.0)


def median_of_others(values: Array, counted: Array) -> tuple[Array, Array]:
    """Return, per agent, the lower median of the other counted agents' values (0 without any), and whether any are.

    >>> median_of_others(np.array([1.0, 4.0, 9.0]), np.array([True, True, True]))[0]
    array([4., 1., 1.])
    """
    xp, count = namespace(values), values.shape[0]
    others = counted[None, :] & ~xp.eye(count, dtype=xp.bool)
    ordered = xp.sort(xp.where(others, values[None, :], xp.inf), axis=1)
    middle = (xp.sum(xp.astype(others, xp.int32), axis=1) - 1) // 2
    chosen = xp.arange(count)[None, :] == middle[:, None]
    return xp.sum(xp.where(chosen, ordered, 0.0), axis=1), middle >= 0


def median_of(values: Array, counted: Array) -> Array:
    """Return the lower median of the counted agents' values; 0 without any.

    >>> float(median_of(np.array([1.0, 4.0, 9.0, 16.0]), np.array([True, True, True, True])))
    4.0
    """
    xp = namespace(values)
    ordered = xp.sort(xp.where(counted, values, xp.inf))
    place = (xp.sum(xp.astype(counted, xp.int32)) - 1) // 2
    return xp.sum(xp.where(xp.arange(values.shape[0]) == place, ordered, 0.0))


def squared_lengths_of(products: Products) -> tuple[Array, Array]:
    """Return ‖v_k‖² of every agent: less what was to be taken off, and as it came."""
    return _squares(products.inner), _squares(products.plain)


def evidence_around_prediction(products: Products, factors: Array, counted: Array, reference: Array) -> Evidence:
    """Return the evidence of the `counted` reports, each shortened by its factor, as `gather` would around p.

    `reference` tells whose reports the alignment is with.
    """
    return _evidence(shortened_products(products, factors, counted), counted, reference)


def shortened_products(products: Products, factors: Array, counted: Array) -> Array:
    """Return the products of the `counted` reports around the prediction, each shortened by its factor."""
    factors = namespace(factors).where(counted, factors, 0.0)
    return products.inner * factors[:, None] * factors[None, :]


def evidence_around_zero(products: Products, counted: Array) -> Evidence:
    """Return the evidence of the `counted` reports as they came, around no prediction."""
    lean = products.lean[:, None] + products.lean[None, :]
    moved = _evidence(products.plain + lean + products.origin, counted, counted)
    # Distances between reports do not depend on the origin: around the prediction they lose fewer digits.
    around = _evidence(products.plain, counted, counted)
    return moved._replace(squared_deviation=around.squared_deviation, pair_distance=around.pair_distance)


def _evidence(inner: Array, counted: Array, reference: Array) -> Evidence:
    xp = namespace(inner)
    present, others = (xp.astype(mask & counted, inner.dtype) for mask in (counted, reference))
    count = xp.sum(present)
    length = _squares(inner)
    mean = xp.sum(inner * present[None, :], axis=1) / xp.where(count > 0, count, 1.0)  # ⟨v_k, mean of all v⟩
    deviation = length - 2 * mean + xp.sum(present * mean) / xp.where(count > 0, count, 1.0)
    alignment = xp.sum(inner * others[None, :], axis=1)
    deviation = xp.where(deviation > 0, deviation, 0.0)
    parts = deviation, mean_pair_distance(deviation, counted), length, alignment
    return Evidence(*(xp.where(counted, part, 0.0) for part in parts), counted=counted)


def _traced(blocks: Iterator[Block], usable: Array) -> Products:
    """Return the products where JAX traces the reports: who is not counted is masked away."""
    total: list[Array] = []
    counted: Array = usable
    for block in blocks:
        xp = namespace(block.columns)
        counted = block.participating & usable
        apart = xp.where(counted[:, None], xp.astype(block.columns, widest_float(xp)) - block.guess, 0.0)
        off = None if block.offsets is None else xp.where(counted[:, None], block.offsets, 0.0)
        total = _plus(total, _products(apart, block.guess, off))
    return Products(*total, counted=counted)


def _added_up(blocks: Iterator[Block], usable: Array | None) -> Products:
    """Return the products of the participants whose reports are usable (None: believed of all), of no others."""
    total: list[Array] = []
    counted: Array = usable
    for block in blocks:
        xp = namespace(block.columns)
        counted = block.participating if usable is None else block.participating & usable
        rows, off = block.columns, block.offsets
        if not bool(xp.all(counted)):
            rows, off = rows[counted], None if off is None else off[counted]
        total = _plus(total, _products(xp.astype(rows, widest_float(xp)) - block.guess, block.guess, off))
    return _spread(total, counted)


def _products(apart: Array, guess: Array, offsets: Array | None) -> list[Array]:
    xp = namespace(apart)
    # An accelerator may multiply at reduced precision unless it is told not to.
    exactly = {"precision": "highest"} if compat.is_jax_namespace(xp) else {}

    def inner(rows: Array) -> Array:
        product = xp.matmul(rows, rows.T, **exactly)
        # Equal to the last bit for (i, j) and (j, i): rounding must not decide which report lies in the middle.
        return (product + product.T) / 2

    plain = inner(apart)
    compared = plain if offsets is None else inner(apart - offsets)
    return [compared, plain, xp.matmul(apart, guess, **exactly), xp.sum(guess * guess)]


def _plus(total: list[Array], more: list[Array]) -> list[Array]:
    return [a + b for a, b in zip(total, more, strict=True)] if total else more


def _spread(total: list[Array], counted: Array) -> Products:
    """Return the products of some agents as those of all."""
    inner, plain, lean, origin = total
    xp = namespace(inner)
    if bool(xp.all(counted)):
        return Products(inner, plain, lean, origin, counted)
    if not bool(xp.any(counted)):
        nothing = xp.zeros(counted.shape[0], dtype=origin.dtype)
        return Products(nothing[:, None] * nothing, nothing[:, None] * nothing, nothing, origin, counted)
    place = xp.clip(xp.cumulative_sum(xp.astype(counted, xp.int32)) - 1, 0, None)
    both = counted[:, None] & counted[None, :]
    inner, plain = (xp.where(both, part[place][:, place], 0.0) for part in (inner, plain))
    return Products(inner, plain, xp.where(counted, lean[place], 0.0), origin, counted)


def _seated(rows: AgentRows, participating: Array, prediction: Layers | None, offsets: Layers | None) -> Products:
    """Return the products of reports that are kept agent by agent: of those there are, as if there were no others."""
    if not len(rows.seats):
        nothing = np.zeros(rows.agents)
        square = np.zeros((rows.agents, rows.agents))
        return Products(square, square, nothing, np.zeros(()), nothing > 0)
    products = multiply(list(rows), rows.of_seats(participating), prediction, rows.of_seats(offsets))
    inner, plain = (rows.seated(rows.seated(part).T) for part in (products.inner, products.plain))
    return Products(inner, plain, rows.seated(products.lean), products.origin, rows.seated(products.counted))


def _squares(inner: Array) -> Array:
    return namespace(inner).linalg.diagonal(inner)
