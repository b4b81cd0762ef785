"""Which agents helped: leave-one-out, Shapley and cosine values, from evidence or from a validation function.

They say which agents helped, not which worked: a forged report that points where the others do helps as much as an
honest one.

From evidence a coalition is worth what its mean report has in common with the others' mean: to first order what the
loss falls by. With a_k = ⟨v_k, mean of the others' v⟩, v the reports around the prediction, and ā_{-k} the mean of the
others' a, the values are known without trying any coalition (H_n = 1 + 1/2 + … + 1/n):

    leave one out   (a_k − ā_{-k})/n        Shapley   ( a_k + (H_n − 1)·(a_k − ā_{-k}) )/n
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, check_positive_integer, namespace
from guerdon.evidence import Evidence

FEW = 12  # agents up to which every coalition is tried
LABEL = "says who helped, not who worked"


class HelpValues(NamedTuple):
    """Per agent: what the model would lose without it, its Shapley value, and its cosine with the others."""

    leave_one_out: Any
    shapley: Any
    cosine: Any


def values_from_evidence(evidence: Evidence, trusted: Any = None) -> HelpValues:
    """Return the values of a round; 0 for agents not counted. Alignments are with the `trusted` agents (default: all).

    >>> from guerdon import gather
    >>> reports = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    >>> found = values_from_evidence(gather(reports, np.ones(4, dtype=bool)))
    >>> found.leave_one_out.round(3), found.shapley.round(3)
    (array([ 0.056,  0.056,  0.056, -0.167]), array([ 0.227,  0.227,  0.227, -0.181]))
    """
    counted = np.asarray(evidence.counted)
    among = counted if trusted is None else counted & np.asarray(trusted)
    others = np.maximum(among.sum() - among, 1)
    common = np.where(counted, (evidence.alignment - np.where(among, evidence.squared_length, 0.0)) / others, 0.0)
    number = max(int(counted.sum()), 1)
    rest = (common.sum() - common) / max(number - 1, 1)
    apart = np.where(counted, common - rest, 0.0) if number > 1 else common
    harmonic = sum(1 / k for k in range(1, number + 1))
    shapley = np.where(counted, (common + (harmonic - 1) * apart) / number, 0.0)
    return HelpValues(apart / number, shapley, np.where(counted, cosines_to_others(evidence, among), 0.0))


def values_from_validation(gain: Callable[[Sequence[int]], float], num_agents: int, orders: int = 20) -> HelpValues:
    """Return the values where `gain` tells what a coalition takes off a validation loss; there are no cosines.

    Shapley values are exact up to 12 agents, beyond the mean over `orders` random orders that begin with each agent.

    >>> found = values_from_validation(lambda members: float(len(members) > 0) + (0 in members), 3)
    >>> found.leave_one_out, found.shapley.round(3)
    (array([1., 0., 0.]), array([1.333, 0.333, 0.333]))
    """
    check_positive_integer("num_agents", num_agents)
    everybody = list(range(num_agents))
    whole = gain(everybody)
    without = np.array([whole - gain([j for j in everybody if j != k]) for k in everybody])
    if num_agents <= FEW:
        members, factors = coalitions(num_agents)
        worth = np.array([gain(np.flatnonzero(row).tolist()) for row in members])
        return HelpValues(without, worth @ factors, None)
    rng, values = np.random.default_rng(0), np.zeros(num_agents)
    for first in everybody * orders:
        before, order = gain([]), [first, *rng.permutation([j for j in everybody if j != first]).tolist()]
        for place, agent in enumerate(order):
            after = gain(sorted(order[: place + 1]))
            values[agent] += (after - before) / (num_agents * orders)
            before = after
    return HelpValues(without, values, None)


def coalitions(num_agents: int) -> tuple[Any, Any]:
    """Return every coalition (coalitions, agents), and what each counts for each agent's Shapley value.

        φ_k = Σ over C without k of |C|!(n − |C| − 1)!/n! · ( v(C with k) − v(C) )

    >>> members, factors = coalitions(2)
    >>> np.array([0.0, 3.0, 1.0, 6.0]) @ factors  # worth: of nobody, of the first, of the second, of both
    array([4., 2.])
    """
    numbers, places = np.arange(1 << num_agents)[:, None], np.arange(num_agents)
    members = np.asarray(np.bitwise_and(np.right_shift(numbers, places), 1), dtype=np.int64)
    size = members.sum(axis=1)
    orders = [math.factorial(s) * math.factorial(num_agents - s - 1) for s in range(num_agents)]
    weights = np.array(orders) / math.factorial(num_agents)
    factors = np.where(members == 1, weights[np.maximum(size - 1, 0)][:, None], 0.0)
    return members, factors - np.where(members == 0, weights[np.minimum(size, num_agents - 1)][:, None], 0.0)


def as_shares(values: Any) -> Any:
    """Return values as parts of 1; negative ones count as 0."""
    positive = np.clip(np.asarray(values, dtype=np.float64), 0.0, None)
    return positive / positive.sum() if positive.sum() > 0 else positive


def cosines_to_others(evidence: Evidence, among: Any = None) -> Array:
    """Return the cosine of each report with the sum of the others'.

    `among` says which agents reports were compared with, if not all that are counted: one that is not has no part
    in that sum.

    >>> from guerdon import gather
    >>> found = gather(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([True, True, True]))
    >>> cosines_to_others(found).round(3)
    array([0.447, 0.447, 1.   ])
    """
    xp = namespace(evidence.squared_length)
    inside = evidence.counted if among is None else among
    product = evidence.alignment - xp.where(inside, evidence.squared_length, 0.0)
    whole = xp.sum(xp.where(inside, evidence.alignment, 0.0), axis=-1, keepdims=True)
    others = xp.clip(whole - xp.where(inside, 2 * evidence.alignment - evidence.squared_length, 0.0), 0.0, None)
    square = others * evidence.squared_length
    return xp.where(square > 0, product / xp.sqrt(xp.where(square > 0, square, 1.0)), 0.0)
