"""Fair bets against pairs of agents whose reports agree more than independent samples can.

Such reports are copies, come from shared samples, or from one agent under two names. The bets are those of
`guerdon.statistical.bets`, on how well the two reports of a pair agree. Agents found in such a pair are no longer used
to compare other pairs with.
"""

from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, at_least_one, namespace
from guerdon.gram import shortening
from guerdon.statistical.bets import BETS, TIE, Ranks, bet, evidence_against, limit, ranks_of

IDENTICAL = 0.001  # two reports that differ by less of their length are one and the same
FEWEST = 4  # agents needed to compare a pair: two, and two others that show what is common to all
LONGEST = 1.0  # reports are shortened to so many times the others' median length, around the middle report
DOUBT = 0.05  # rate of false alarms at which other pairs are no longer compared with a pair


class SuspiciousPair(NamedTuple):
    """Two agents whose reports agree too well, and the logarithm of the evidence."""

    first: int
    second: int
    evidence: float


def identical(products: Array, raw: Array, counted: Array) -> Array:
    """Return the agents that sent the same report as another, to rounding; none if nobody else would be left.

    - `products`: ⟨v_i, v_j⟩ of the reports around the prediction (agents, agents).
    - `raw`: squared lengths of the reports around 0 (agents,). Two reports that differ by a large part of their own
      length are not the same, however far off the prediction lies.
    - `counted`: booleans (agents,).
    """
    xp = namespace(products)
    both = counted[:, None] & counted[None, :] & ~xp.eye(counted.shape[0], dtype=xp.bool)
    around, around_zero = (square[:, None] + square[None, :] for square in (xp.linalg.diagonal(products), raw))
    resolved = xp.finfo(products.dtype).eps ** 0.75 * around  # products that are added up say no more
    smaller = IDENTICAL**2 * xp.where(around_zero < around, around_zero, around)
    same = around - 2 * products <= xp.where(smaller > resolved, smaller, resolved)
    copies = xp.any(both & same, axis=1)
    return copies & xp.any(counted & ~copies)


def copying(copies: Array, counted: Array, wealth: Array, num_agents: Any = None, alpha: float = 0.001) -> Array:
    """Add to the agents that sent copies those in a pair that agreed too well in earlier rounds.

    Only where all agents draw fresh samples of the same kind: data that are alike trip this test too. `wealth` is that
    of the bets against pairs before this round. Of all pairs of `num_agents` honest agents (default: all that there is
    room for) together a share `alpha` is ever taken for copies. Where half of all agents are in doubtful pairs none is:
    it cannot be told which part shares something. Nor is anybody where no other agent would be left.
    """
    xp = namespace(copies)
    both = counted[:, None] & counted[None, :] & ~xp.eye(counted.shape[0], dtype=xp.bool)
    num_agents = counted.shape[0] if num_agents is None else num_agents
    suspected = accused_pairs(wealth, num_agents, alpha)
    suspected &= can_tell_apart(xp.max(evidence_against(wealth), axis=1), num_agents)
    senders: Array = copies | xp.any(both & suspected, axis=1)
    return senders & xp.any(counted & ~senders)


def can_tell_apart(evidence: Array, num_agents: Any) -> Array:
    """Tell whether agents in doubtful pairs are fewer than half, by the evidence (…, agents) on each one's worst pair.

    Otherwise an accusation could be the accusers' own doing: what half of the agents share looks the same as what the
    rest share, and a crew may be half of the agents that are present.
    """
    xp = namespace(evidence)
    doubted = xp.astype(evidence >= pair_limit(DOUBT, num_agents), xp.int32)
    return 2 * xp.sum(doubted, axis=-1) < xp.asarray(num_agents)


def accused_pairs(wealth: Array, num_agents: Any, alpha: float = 0.001) -> Array:
    """Return the pairs against which the evidence suffices, at a rate `alpha` for all pairs of honest agents."""
    return evidence_against(wealth) > pair_limit(alpha, num_agents)


def pair_scores(products: Array, counted: Array, reference: Array | None = None) -> Ranks:
    """Return how often two agents' deviations agree more than those of other pairs, less how often less, as a share.

    `products` are those of `guerdon.gram.multiply`, around any point. 1 for the pair that agrees most, 0 on the
    diagonal, for agents that are not counted, and where fewer than four are. `reference` tells which agents' pairs the
    others are compared with (default: all).

    How well i and j agree is the mean of ⟨X_i − X_a, X_j − X_b⟩ over all other a ≠ b of the reference, relative to the
    lengths of both deviations. For independent samples it has mean 0, also where somebody among i, j, a and b used
    fewer samples or sent something else: so a third party's doing makes no honest pair look alike.
    """
    xp = namespace(products)
    trusted = counted if reference is None else counted & reference
    alike = _alikeness(xp, _shortened(xp, products, counted), trusted)
    upper, across = (xp.asarray(index) for index in np.triu_indices(products.shape[0], k=1))
    values = alike[upper, across]
    compared = trusted[upper] & trusted[across]
    ordered = xp.sort(xp.where(compared, values, xp.inf))
    # Copies are as like a third report as the originals: what differs by rounding alone is a tie.
    below, reached = (
        xp.astype(xp.searchsorted(ordered, values + off, side=side), values.dtype)
        for off, side in ((-TIE, "left"), (TIE, "right"))
    )
    pairs = xp.sum(xp.astype(compared, values.dtype))
    others = pairs - xp.astype(compared, values.dtype)
    valid = counted[upper] & counted[across] & (others > 0) & (xp.sum(xp.astype(trusted, xp.int32)) >= FEWEST)
    score = xp.where(valid, (below + reached - pairs) / at_least_one(others), 0.0)
    ranks = ranks_of(score, xp.where(valid, others, 0.0), compared)
    return Ranks(*(_matrix(xp, values, products.shape[0]) for values in ranks))


def pair_limit(alpha: float, num_agents: Any) -> Any:
    """Return the evidence beyond which a pair is accused, at a rate `alpha` for all pairs together (Bonferroni)."""
    pairs = num_agents * (num_agents - 1) // 2
    return limit(alpha) + namespace(pairs).log(namespace(pairs).clip(namespace(pairs).asarray(1.0 * pairs), 1.0, None))


def first_pairs(num_agents: int) -> Any:
    """Return the wealth of the bets against all pairs (bets, agents, agents) before the first round."""
    return np.zeros((len(BETS), num_agents, num_agents))


def watch_pairs(
    wealth: Array, products: Array, counted: Array, reference: Array | None = None, num_agents: Any = None
) -> Array:
    """Return the wealth of the bets against all pairs after a round.

    `products` are the ⟨v_i, v_j⟩ of `multiply`. Pairs are compared with those of the agents in `reference`
    (default: all that are counted) that are in no doubtful pair; where these are fewer than four, with all counted.
    `num_agents` is how many there are (default: as many as there is room for).

    >>> reports = np.random.default_rng(0).normal(size=(5, 40))
    >>> reports[1] = reports[0]
    >>> wealth = watch_pairs(first_pairs(5), reports @ reports.T, np.ones(5, dtype=bool))
    >>> round(float(evidence_against(wealth)[0, 1]), 2)
    1.56
    """
    xp = namespace(products)
    limit = pair_limit(DOUBT, counted.shape[0] if num_agents is None else num_agents)
    doubted = xp.any(evidence_against(wealth) >= limit, axis=0)
    chosen = counted & ~doubted if reference is None else counted & reference & ~doubted
    enough = xp.sum(xp.astype(chosen, xp.int32)) >= FEWEST
    return bet(wealth, pair_scores(products, counted, xp.where(enough, chosen, counted)))


def suspicious_pairs(wealth: Any, alpha: float) -> list[SuspiciousPair]:
    """Return the pairs against which the evidence is sufficient, the most suspicious first.

    None is returned where half of the agents are in doubtful pairs: `can_tell_apart`.
    """
    evidence = evidence_against(np.asarray(wealth))
    beyond = evidence >= pair_limit(alpha, len(evidence))
    first, second = np.nonzero(np.triu(beyond & can_tell_apart(evidence.max(axis=1, initial=0.0), len(evidence)), k=1))
    pairs = [SuspiciousPair(i, j, float(evidence[i, j])) for i, j in zip(first.tolist(), second.tolist(), strict=True)]
    return sorted(pairs, key=lambda pair: -pair.evidence)


def _shortened(xp: Any, products: Array, counted: Array) -> Array:
    """Return the products around the middle report, with longer reports shortened to the median length."""
    length = xp.linalg.diagonal(products)
    apart = length[:, None] + length[None, :] - 2 * products
    others = counted[None, :] & ~xp.eye(products.shape[0], dtype=xp.bool)
    ordered = xp.sort(xp.where(others, apart, xp.inf), axis=1)
    half = (xp.sum(xp.astype(counted, xp.int32)) - 1) // 2
    medians = xp.min(xp.where(xp.arange(products.shape[0])[None, :] >= half, ordered, xp.inf), axis=1)
    middle = xp.argmin(xp.where(counted, medians, xp.inf))
    centred = products - products[:, middle][:, None] - products[middle, :][None, :] + products[middle, middle]
    factor = xp.where(counted, shortening(xp.linalg.diagonal(centred), counted, LONGEST), 0.0)
    return centred * factor[:, None] * factor[None, :]


def _alikeness(xp: Any, products: Array, trusted: Array) -> Array:
    """Return, per pair, the mean of ⟨X_i − X_a, X_j − X_b⟩ over a ≠ b, both trusted, relative to both lengths."""
    agents = products.shape[0]
    weight = xp.astype(trusted, products.dtype)
    length = xp.linalg.diagonal(products)
    apart = xp.where(xp.eye(agents, dtype=xp.bool), 0.0, products)
    row = apart @ weight  # Σ_a ⟨X_i, X_a⟩, a ≠ i
    total = xp.sum(weight * row)
    left, right, both = weight[:, None], weight[None, :], apart * (weight[:, None] * weight[None, :])
    count = xp.sum(weight) - left - right  # of other trusted agents
    lean = (row[:, None] - right * apart) + (row[None, :] - left * apart)
    common = total - 2 * left * row[:, None] - 2 * right * row[None, :] + 2 * both
    alike = apart - lean / at_least_one(count) + common / at_least_one(count * (count - 1))
    others = xp.sum(weight) - weight
    square = length - 2 * row / at_least_one(others) + (total - 2 * weight * row) / at_least_one(others * (others - 1))
    size = xp.sqrt(xp.clip(square, 0.0, None))
    scale = size[:, None] * size[None, :]
    return xp.where(scale > 0, alike / xp.where(scale > 0, scale, 1.0), 0.0)


def _matrix(xp: Any, values: Array, agents: int) -> Array:
    """Return the values of all pairs as a symmetric matrix (agents, agents), 0 on its diagonal."""
    if agents < 2:
        return xp.zeros((agents, agents), dtype=values.dtype)
    upper, across = np.triu_indices(agents, k=1)
    position = np.zeros((agents, agents), dtype=np.int64)
    position[upper, across] = position[across, upper] = np.arange(len(upper))
    off = xp.asarray(~np.eye(agents, dtype=bool))
    return xp.where(off, values[xp.asarray(position)], 0.0)
