"""Distances of pairs of reports, cut where two are too far apart: one report cannot do more than a known amount.

The evidence of a round has each agent's mean squared distance to the others. Without a cut it follows from the
deviations. With a cut c it needs the distance of every pair, and these are computed only where the cut can matter: no
pair is further apart than (√dev_i + √dev_j)², by the triangle inequality.

What goes into the model is bounded by the same cut. The *middle* report is that with the smallest mean distance, pairs
cut at c. A report further than √c from it is shortened towards it. So while more than half of the reports are honest,
any one report moves the mean by √c/n at the most, however large it is and however many others are as large.
"""

from typing import Any, NamedTuple

from guerdon.arrays import Array, at_least_one, either, is_array, is_traced, namespace
from guerdon.evidence import Evidence
from guerdon.gram import median_of, multiply
from guerdon.reports import LARGEST, AgentRows, Layers

FURTHEST = 4 * LARGEST**2  # stands for a distance that cannot be computed; no two usable components are further apart


class CutPairs(NamedTuple):
    """What a cut makes of a round: mean distances, the agent in the middle, and how far the model follows each."""

    pair_distance: Array  # (agents,), squared
    middle: Array  # index of the agent
    parts: Array  # (agents,), of the way from the middle report; 1 for most


def cut_pairs(reports: Layers, evidence: Evidence, offsets: Layers | None, cut: Array, reach: float) -> CutPairs:
    """Return each agent's mean of min(‖X_k − X_i‖², c) over the others i, and how far the model follows each report.

    - `reports`: X, (agents, …), a list of layers, or `AgentRows`.
    - `evidence`: gathered from these reports, less these offsets.
    - `offsets`: taken off the reports first. None: nothing.
    - `cut`: c, the largest squared distance that counts. NaN: not known yet; then c is `reach` times the median of the
      agents' median distances, which less than half of the agents cannot move far.
    - `reach`: c in units of the distance 2V/ν of honest work.
    """
    xp = namespace(evidence.squared_deviation)
    lengths = xp.sqrt(xp.where(evidence.counted, evidence.squared_deviation, 0.0))
    longest = xp.arange(lengths.shape[0]) == xp.argmax(lengths)
    reached = (xp.max(lengths) + xp.max(xp.where(longest, 0.0, lengths))) ** 2
    free = (xp.sum(xp.astype(evidence.counted, xp.int32)) < 2) | (reached <= cut)
    middle = xp.argmin(xp.where(evidence.counted, evidence.squared_deviation, xp.inf))
    whole = CutPairs(evidence.pair_distance, middle, xp.ones_like(evidence.squared_deviation))
    return either(free, lambda: whole, lambda: _cut(reports, evidence, offsets, cut, reach))


def pair_distances(reports: Layers, evidence: Evidence, offsets: Layers | None = None) -> Array:
    """Return the squared distance of every pair of counted reports, less what is to be taken off; 0 for others.

    All follow from the products of the reports around one of them, that of median length: it is as long as honest
    reports are, so that neither their common part nor an enormous report costs digits.
    """
    xp = namespace(evidence.squared_length)
    median = median_of(evidence.squared_length, evidence.counted)
    middle = xp.argmax(xp.astype(evidence.counted & (evidence.squared_length == median), xp.int8))
    products = multiply(reports, evidence.counted, row_of(reports, middle), offsets)
    inner = xp.astype(products.inner, evidence.squared_length.dtype)
    squares = xp.linalg.diagonal(inner)
    apart = squares[:, None] + squares[None, :] - 2 * inner
    usable = products.counted[:, None] & products.counted[None, :]  # others are too far out to compute with
    apart = xp.where(usable, xp.where(apart > 0, apart, 0.0), FURTHEST)
    both = evidence.counted[:, None] & evidence.counted[None, :] & ~xp.eye(squares.shape[0], dtype=xp.bool)
    return xp.where(both, apart, 0.0)


def row_of(reports: Layers, agent: Array) -> Any:
    """Return one agent's report, in the form of a model."""
    if isinstance(reports, AgentRows):
        return reports.row(int(agent))
    return reports[agent] if is_array(reports) else [reports[index][agent] for index in range(len(reports))]


def _cut(reports: Layers, evidence: Evidence, offsets: Layers | None, cut: Array, reach: float) -> CutPairs:
    return cut_distances(pair_distances(reports, evidence, offsets), evidence.counted, cut, reach)


def cut_distances(apart: Array, counted: Array, cut: Array, reach: float) -> CutPairs:
    """Return what a cut makes of the squared distances of all pairs, (agents, agents); see `cut_pairs`."""
    xp = namespace(apart)
    cut = xp.where(xp.isnan(cut), reach * _typical_distance(apart, counted), cut)
    near = xp.where(apart < cut, apart, cut)
    near = xp.where(apart > 0, near, 0.0)
    count = xp.sum(xp.astype(counted, near.dtype))
    mean = xp.sum(near, axis=1) / at_least_one(count - 1)
    middle = xp.argmin(xp.where(counted, mean, xp.inf))
    out = apart[middle]
    parts = xp.sqrt(cut / xp.where(out > cut, out, 1.0))
    return CutPairs(mean, middle, xp.where(counted & (out > cut), parts, 1.0))


def _typical_distance(apart: Array, counted: Array) -> Array:
    """Return the median over agents of the median distance to the others; the smallest above 0 if that is 0."""
    xp = namespace(apart)
    others = counted[None, :] & ~xp.eye(counted.shape[0], dtype=xp.bool)
    count = xp.sum(xp.astype(counted, xp.int32))
    medians = _at_place(xp.where(others, apart, xp.inf), (count - 2) // 2)
    median = _at_place(xp.where(counted, medians, xp.inf)[None, :], (count - 1) // 2)[0]
    some = apart > 0
    least = xp.min(xp.where(some, apart, xp.inf))  # where most reports are the same
    return xp.where(median > 0, median, xp.where(xp.any(some), least, 0.0))


def _at_place(rows: Array, place: Array) -> Array:
    """Return what stands at this place of each row's order; a compiler counts what is smaller, which beats sorting."""
    xp = namespace(rows)
    here = xp.arange(rows.shape[1])
    if not is_traced(rows):
        return xp.sum(xp.where(here == place, xp.sort(rows, axis=1), 0.0), axis=1)
    one, other = rows[:, :, None], rows[:, None, :]
    before = (other < one) | ((other == one) & (here[None, None, :] < here[None, :, None]))
    return xp.sum(xp.where(xp.sum(xp.astype(before, xp.int32), axis=2) == place, rows, 0.0), axis=1)
