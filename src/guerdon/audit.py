"""Tests that find agents who send something else than gradients, at a stated rate of false accusations.

Each is a bet in fair odds against an agent (an e-process): where he is honest every rank among the others is as likely
as any other, whatever the distribution of gradients, because honest agents are exchangeable. His *rank score* z lies
between −1 and 1, and a bet of boldness θ multiplies the wealth by e^θz, divided by its mean over all ranks, each round.
The mean over several θ is a wealth that exceeds 1/α, ever, with a probability of at most α (Ville's inequality): one
may look after every round. Bold bets find within a few rounds who is the last again and again, timid ones in the long
run who is a little worse than the others.

Three bets are made against each agent: that his report scores lower than the others' (it tells less), that it is
shorter (whoever sends a prediction lacks the noise of samples), and that it is longer. Whoever adds noise to escape the
second is charged for it by information pay.

Pairs of agents are tested in the same way for reports that agree more than independent samples can: copies, shared
samples, one agent under two names. Agents found in such a pair are no longer what other pairs are compared with.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, namespace
from guerdon.evidence import shortening

LEAST = 3  # agents, below which none can be compared with the others
PEERS = 10.0  # to one, beyond which an agent is no longer one of those that others are ranked among
BETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # how boldly is bet, side by side
TESTS = ("tells less", "shorter", "longer")  # than the others
TIE = 1e-6  # relative difference below which two values are the same: single precision tells no more
IDENTICAL = 0.01  # of their length, by which two reports differ that are one and the same
FEWEST = 4  # agents, below which no pair can be compared: two, and two others that tell what is common to all
LONGEST = 1.0  # times the median length of the others' reports, around the one in the middle: longer ones are shortened
DOUBT = 0.05  # the rate of false alarms at which a pair is no longer compared with


class Pair(NamedTuple):
    """Two agents whose reports agree too well, and the logarithm of the evidence."""

    first: int
    second: int
    evidence: float


class Ranks(NamedTuple):
    """Where each value stands among others: a share between −1 and 1, and how many others there are (0: not ranked)."""

    score: Array
    others: Array


def rank_scores(values: Array, counted: Array, reference: Array) -> Ranks:
    """Return how often each counted agent's value is below those of the reference, less how often above, as a share.

    1 for the lowest of all, −1 for the highest, ties count for neither side. Who is not counted or has nobody to be
    compared with is not ranked, and nobody is where all values are the same.
    """
    xp = namespace(values)
    others = xp.astype(reference[None, :] & ~xp.eye(values.shape[0], dtype=xp.bool), values.dtype)
    gap, sizes = values[None, :] - values[:, None], xp.abs(values[None, :]) + xp.abs(values[:, None])
    above = xp.sum(others * xp.where(xp.abs(gap) > TIE * sizes, xp.sign(gap), 0.0), axis=1)
    count = xp.where(counted, xp.sum(others, axis=1), 0.0)
    return _ranked(xp.where(count > 0, above / _positive(count), 0.0), count, reference)


def agent_scores(score: Array, length: Array, counted: Array, reference: Array) -> Ranks:
    """Return the ranks (tests, agents) of a round's information scores and lengths ‖X_k − p‖²."""
    low, short = (rank_scores(values, counted, reference) for values in (score, length))
    stack = namespace(score).stack
    return Ranks(stack([low.score, short.score, -short.score]), stack([low.others, short.others, short.others]))


def trusted_agents(wealth: Array, counted: Array, odds: float) -> Array:
    """Tell which of the counted the evidence leaves at less than `odds` to one, by an agent's wealth.

    Where these are fewer than three, or no more than half, it is all of them: a few who agree must not drive out the
    rest.
    """
    xp = namespace(counted)
    kept = counted & (against_agents(xp.asarray(wealth)) < float(np.log(odds)))
    some, everybody = (xp.sum(xp.astype(x, xp.int32)) for x in (kept, counted))
    return xp.where((some >= LEAST) & (2 * some > everybody), kept, counted)


def copying(products: Array, counted: Array, wealth: Array, num_agents: Any = None, alpha: float = 0.001) -> Array:
    """Tell who sends copies: reports that are all but identical in this round, or too alike in earlier ones.

    `products` are the ⟨v_i, v_j⟩ of `multiply`, `wealth` that of the bets against pairs before this round. Of
    all pairs of `num_agents` honest agents (default: all that there is room for) together a share `alpha` is ever
    taken for copies. Where nobody else would be left, it is nobody: then something else is wrong.
    """
    xp = namespace(products)
    both = counted[:, None] & counted[None, :] & ~xp.eye(counted.shape[0], dtype=xp.bool)
    square = xp.linalg.diagonal(products)
    sizes = square[:, None] + square[None, :]
    same = sizes - 2 * products < IDENTICAL**2 * sizes
    limit = pair_limit(alpha, counted.shape[0] if num_agents is None else num_agents)
    suspected = evidence_against(wealth) > limit
    copies = xp.any(both & (same | suspected), axis=1)
    return copies & xp.any(counted & ~copies)


def pair_scores(products: Array, counted: Array, reference: Array | None = None) -> Ranks:
    """Return how often two agents' deviations agree more than those of other pairs, less how often less, as a share.

    `products` are those of `guerdon.evidence.multiply`, around any point. 1 for the pair that agrees most, 0 on the
    diagonal, for who is not counted, and where fewer than four are. `reference` tells which agents' pairs the others
    are compared with (default: all).

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
    score = xp.where(valid, (below + reached - pairs) / _positive(others), 0.0)
    ranks = _ranked(score, xp.where(valid, others, 0.0), compared)
    return Ranks(*(_matrix(xp, values, products.shape[0]) for values in ranks))


def _ranked(score: Array, others: Array, reference: Array) -> Ranks:
    """Return the ranks; where everybody's value is the same nobody has one."""
    xp = namespace(score)
    return Ranks(score, xp.where((score != 0) | xp.any(reference & (score != 0)), others, 0.0))


def _shortened(xp: Any, products: Array, counted: Array) -> Array:
    """Return the products around the report in the middle; those longer than usual are shortened to the usual."""
    length = xp.linalg.diagonal(products)
    apart = length[:, None] + length[None, :] - 2 * products
    others = counted[None, :] & ~xp.eye(products.shape[0], dtype=xp.bool)
    ordered = xp.sort(xp.where(others, apart, xp.inf), axis=1)
    half = (xp.sum(xp.astype(counted, xp.int32)) - 1) // 2
    usual = xp.min(xp.where(xp.arange(products.shape[0])[None, :] >= half, ordered, xp.inf), axis=1)
    middle = xp.argmin(xp.where(counted, usual, xp.inf))
    centred = products - products[:, middle][:, None] - products[middle, :][None, :] + products[middle, middle]
    factor = xp.where(counted, shortening(xp.linalg.diagonal(centred), counted, LONGEST), 0.0)
    return centred * factor[:, None] * factor[None, :]


def _alikeness(xp: Any, products: Array, trusted: Array) -> Array:
    """Return, per pair, the mean of ⟨X_i − X_a, X_j − X_b⟩ over a ≠ b, both trusted, relative to both lengths."""
    agents = products.shape[0]
    own = xp.astype(trusted, products.dtype)
    length = xp.linalg.diagonal(products)
    apart = xp.where(xp.eye(agents, dtype=xp.bool), 0.0, products)
    row = apart @ own  # Σ_a ⟨X_i, X_a⟩, a ≠ i
    total = xp.sum(own * row)
    left, right, both = own[:, None], own[None, :], apart * (own[:, None] * own[None, :])
    count = xp.sum(own) - left - right  # of other trusted agents
    lean = (row[:, None] - right * apart) + (row[None, :] - left * apart)
    common = total - 2 * left * row[:, None] - 2 * right * row[None, :] + 2 * both
    alike = apart - lean / _positive(count) + common / _positive(count * (count - 1))
    others = xp.sum(own) - own
    square = length - 2 * row / _positive(others) + (total - 2 * own * row) / _positive(others * (others - 1))
    size = xp.sqrt(xp.clip(square, 0.0, None))
    scale = size[:, None] * size[None, :]
    return xp.where(scale > 0, alike / xp.where(scale > 0, scale, 1.0), 0.0)


def _positive(count: Array) -> Array:
    return namespace(count).where(count > 0, count, 1.0)


def _matrix(xp: Any, values: Array, agents: int) -> Array:
    """Return the values of all pairs as a symmetric matrix (agents, agents), 0 on its diagonal."""
    if agents < 2:
        return xp.zeros((agents, agents), dtype=values.dtype)
    upper, across = np.triu_indices(agents, k=1)
    position = np.zeros((agents, agents), dtype=np.int64)
    position[upper, across] = position[across, upper] = np.arange(len(upper))
    off = xp.asarray(~np.eye(agents, dtype=bool))
    return xp.where(off, values[xp.asarray(position)], 0.0)


def bet(wealth: Array, ranks: Ranks) -> Array:
    """Return the logarithms of wealth (bets, …) after a round of these ranks (…).

    Among m others all m + 1 ranks are as likely, and the mean of e^θz over them is a sum of powers:
    sinh(θ + θ/m) / ((m + 1) sinh(θ/m)). Ties make it smaller, so that the odds are never more than fair.
    """
    xp = namespace(wealth, ranks.score)
    bold = xp.reshape(xp.asarray(BETS, dtype=wealth.dtype), (len(BETS),) + (1,) * ranks.score.ndim)
    others = _positive(ranks.others)
    usual = _log_sinh(bold + bold / others) - xp.log(others + 1) - _log_sinh(bold / others)
    return wealth + xp.where(ranks.others > 0, bold * ranks.score - usual, 0.0)


def _log_sinh(x: Array) -> Array:
    """Return the logarithm of twice the hyperbolic sine of a positive number, however large."""
    xp = namespace(x)
    return x + xp.log(-xp.expm1(-2 * x))


def evidence_against(wealth: Array) -> Array:
    """Return the logarithm of the mean wealth over the bets (first axis).

    It stays below log(1/α) for ever with probability 1 − α where all is well. So does the mean over several tests:
    `against_agents` is that of an agent's wealth (bets, tests, agents).
    """
    xp = namespace(wealth)
    highest = xp.max(wealth, axis=0)
    return highest + xp.log(xp.mean(xp.exp(wealth - highest), axis=0))


def against_agents(wealth: Array) -> Array:
    """Return the evidence against each agent, all bets on all tests together."""
    return evidence_against(namespace(wealth).reshape(wealth, (-1, wealth.shape[-1])))


def limit(alpha: float) -> Any:
    """Return the evidence beyond which an agent is accused, at a rate `alpha` of false accusations."""
    complaint = f"`alpha` must be a number above 0 and below 1, such as 0.001, got {alpha!r}"
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(complaint)
    if not 0 < alpha < 1:
        raise ValueError(complaint)
    return math.log(1 / alpha)


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
    (default: all that are counted) who are in no doubtful pair; where these are fewer than four, with all counted.
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


def suspicious_pairs(wealth: Any, alpha: float) -> list[Pair]:
    """Return the pairs against whom the evidence is sufficient, the most suspicious first."""
    evidence = evidence_against(np.asarray(wealth))
    first, second = np.nonzero(np.triu(evidence >= pair_limit(alpha, len(evidence)), k=1))
    found = [Pair(i, j, float(evidence[i, j])) for i, j in zip(first.tolist(), second.tolist(), strict=True)]
    return sorted(found, key=lambda pair: -pair.evidence)


def widened(wealth: Any, num_agents: int) -> Any:
    """Return the wealth of bets (bets, agents, …) for more agents: against newcomers nothing is known."""
    return np.pad(wealth, [(0, 0)] + [(0, num_agents - size) for size in wealth.shape[1:]])
