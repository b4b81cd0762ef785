"""Which pairs of agents are relied on: not those that agreed more with each other than each does with the rest.

Noise that a crew shares in secret makes its members agree with each other, and with nobody else. A test that accuses
must be beyond doubt, so it finds a few per cent of shared noise too late. To stop relying on a pair takes less. The
products of all pairs are added up over rounds; none counts for more than four times the median. A pair whose sum is
more than a standard deviation beyond what the two have with the rest is not credited in the next round. So all that it
can gain is about that deviation, however it spreads what it shares over rounds and partners.

Which pairs these are is known before the round, so that honest agents lose nothing by it on average.
"""

from typing import Any

import numpy as np

from guerdon.arrays import Array, at_least_one, namespace
from guerdon.gram import median_of

BOUND = 4.0  # a product counts for no more than so many times the median size
DOUBTFUL = 1.0  # standard deviations by which a pair's sum may exceed what both agents have with the rest
SPREAD = 1.48  # standard deviation of a normal number, relative to the median of its size


def first_credit(num_agents: int) -> Any:
    """Return the sums of all pairs' products, and of rounds, before the first (2, agents, agents)."""
    return np.zeros((2, num_agents, num_agents))


def median_product(products: Array, trusted: Array) -> Array:
    """Return the median size of the trusted agents' products with each other."""
    xp = namespace(products)
    both = trusted[:, None] & trusted[None, :] & ~xp.eye(trusted.shape[0], dtype=xp.bool)
    ordered = xp.sort(xp.reshape(xp.where(both, xp.abs(products), xp.inf), (-1,)))
    place = xp.sum(xp.astype(both, xp.int32)) // 2
    middle = xp.sum(xp.where(xp.arange(ordered.shape[0]) == place, xp.where(ordered < xp.inf, ordered, 0.0), 0.0))
    return xp.where(place > 0, middle, 0.0)


def bounded(products: Array, typical: Array) -> Array:
    """Return the products cut at `BOUND` times their median size; those of a report with itself stay."""
    xp = namespace(products)
    diagonal = xp.eye(products.shape[0], dtype=xp.bool)
    return xp.where(diagonal | (typical <= 0), products, xp.clip(products, -BOUND * typical, BOUND * typical))


def add_credit(credit: Array, products: Array, typical: Array, counted: Array) -> Array:
    """Return the sums with a round's bounded products added, relative to their median size."""
    xp = namespace(products)
    both = counted[:, None] & counted[None, :] & ~xp.eye(counted.shape[0], dtype=xp.bool) & (typical > 0)
    share = xp.where(both, products / xp.where(typical > 0, typical, 1.0), 0.0)
    return xp.asarray(credit, dtype=products.dtype) + xp.stack([share, xp.astype(both, products.dtype)])


def doubtful_pairs(credit: Array) -> Array:
    """Return the pairs that agreed more than chance, and what both have with the rest, explain (agents, agents)."""
    xp = namespace(credit)
    total, rounds = credit[0], credit[1]
    met = rounds > 0
    mean = total / at_least_one(rounds)
    with_rest = _median_of_row(mean, met)
    typical = median_of(with_rest, xp.any(met, axis=1))
    level = xp.where(with_rest > 0, with_rest, 0.0)
    expected = xp.where(typical > 0, level[:, None] * level[None, :] / xp.where(typical > 0, typical, 1.0), 0.0)
    return met & ((mean - expected) * xp.sqrt(rounds) > DOUBTFUL * SPREAD)


def without_credit(products: Array, trusted: Array, pairs: Array, knowledge: Array) -> Array:
    """Return the products, with those of some pairs replaced by what the first of the two has with the others.

    So what a crew shares in secret counts for little, also before a test has found it. No honest agent loses by it on
    average, if the pairs were chosen in earlier rounds: two honest agents agree with the others as with each other.

    - `products`: ⟨v_i, v_j⟩ (agents, agents).
    - `trusted`: booleans (agents,), the others that are compared with.
    - `pairs`: booleans (agents, agents), the pairs to replace.
    - `knowledge`: ρ̂ (agents,), so that nobody gains by being compared with agents that tell more.
    """
    xp = namespace(products)
    apart = ~xp.eye(trusted.shape[0], dtype=xp.bool)
    compared = xp.astype(apart & trusted[None, :] & ~pairs, products.dtype)
    knowledge_sum = xp.sum(compared * knowledge[None, :], axis=1)[:, None]
    ratio = xp.sum(compared * products, axis=1)[:, None] / xp.where(knowledge_sum > 0, knowledge_sum, 1.0)
    return xp.where(apart & pairs & (knowledge_sum > 0), ratio * knowledge[None, :], products)


def _median_of_row(values: Array, some: Array) -> Array:
    """Return the lower median of each row's values, of some; 0 where there are none."""
    xp = namespace(values)
    ordered = xp.sort(xp.where(some, values, xp.inf), axis=1)
    place = (xp.sum(xp.astype(some, xp.int32), axis=1) - 1) // 2
    chosen = xp.arange(values.shape[1])[None, :] == place[:, None]
    return xp.sum(xp.where(chosen & (ordered < xp.inf), ordered, 0.0), axis=1)
