"""Fair bets that find agents that send something else than gradients, at a stated rate of false accusations.

Each bet is at fair odds against one agent (an e-process). If the agent is honest, every rank among the others is as
likely as any other, whatever the distribution of gradients, because honest agents are exchangeable. Its *rank score* z
lies between −1 and 1. Each round a bet of boldness θ multiplies the wealth by e^θz, divided by its mean over all ranks.
The mean over several θ is a wealth that ever exceeds 1/α with a probability of at most α (Ville's inequality): one may
look after every round. Bold bets find within a few rounds an agent that is last again and again; timid bets find in the
long run an agent that is a little worse than the others.

Three bets are made against each agent: that its report scores lower than the others' (it tells less), that it is
shorter (a prediction lacks the noise of samples), and that it is longer. An agent that adds noise to escape the second
bet pays for it under information pay. `guerdon.statistical.pairs` uses the same bets against pairs of agents.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, at_least_one, namespace

LEAST = 3  # agents needed to compare one with the others
PEERS = 10.0  # odds to one: nobody is ranked against an agent that the evidence doubts more
BETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # the boldness θ of each bet; all run side by side
TESTS = ("tells less", "shorter", "longer")  # than the others
LIARS = 0.45  # share of the other members that may lie before an honest agent can be accused: four of nine
# A member has at least 0.1 times the rounds of the agent with the most, less 5.
RARE = 0.1
FEW = 5
TIE = 1e-6  # relative difference below which two values are equal: single precision resolves no more


class Ranks(NamedTuple):
    """Where each value stands among others: a share between −1 and 1, and how many others there are (0: not ranked)."""

    score: Array
    others: Array


def rank_scores(values: Array, counted: Array, reference: Array) -> Ranks:
    """Return how often each counted agent's value is below those of the reference, less how often above, as a share.

    1 for the lowest of all, −1 for the highest, ties count for neither side. An agent that is not counted, or has
    nobody to be compared with, is not ranked; where all values are the same, none is.
    """
    xp = namespace(values)
    others = xp.astype(reference[None, :] & ~xp.eye(values.shape[0], dtype=xp.bool), values.dtype)
    gap, sizes = values[None, :] - values[:, None], xp.abs(values[None, :]) + xp.abs(values[:, None])
    above = xp.sum(others * xp.where(xp.abs(gap) > TIE * sizes, xp.sign(gap), 0.0), axis=1)
    count = xp.where(counted, xp.sum(others, axis=1), 0.0)
    return ranks_of(xp.where(count > 0, above / at_least_one(count), 0.0), count, reference)


def agent_scores(score: Array, length: Array, counted: Array, reference: Array) -> Ranks:
    """Return the ranks (tests, agents) of a round's information scores and lengths ‖X_k − p‖²."""
    low, short = (rank_scores(values, counted, reference) for values in (score, length))
    stack = namespace(score).stack
    return Ranks(stack([low.score, short.score, -short.score]), stack([low.others, short.others, short.others]))


def proven_scores(score: Array, length: Array, counted: Array, tenure: Array) -> Ranks:
    """Return the ranks (tests, agents) on which an accusation rests: valid where up to `LIARS` of the others lie.

    For each agent they leave out that share of the others, on the side that speaks against it. If no more of the others
    lie, the rank is no worse than among the honest others alone, so the odds are never more than fair. Others are all
    members, by the rounds that each has taken part in (`tenure`): a crew is no larger where honest members are absent.
    """
    xp, tenure = namespace(score), namespace(score).asarray(tenure)
    member = xp.astype(tenure >= RARE * xp.max(tenure) - FEW, score.dtype)
    by_test = [
        _without_liars(rank_scores(x, counted, counted), xp.sum(member) - member) for x in (score, length, -length)
    ]
    return Ranks(xp.stack([ranks.score for ranks in by_test]), xp.stack([ranks.others for ranks in by_test]))


def _without_liars(ranks: Ranks, members: Array) -> Ranks:
    """Return the ranks without as many of the others as may lie, given how many other members there are."""
    xp = namespace(ranks.score)
    spare = xp.floor(LIARS * xp.where(members > ranks.others, members, ranks.others))
    left = xp.where(ranks.others > spare, ranks.others - spare, 0.0)
    above, below = (ranks.others * (1 + sign * ranks.score) / 2 for sign in (1, -1))  # ties count half
    above = xp.where(above > spare, above - spare, 0.0)
    score = xp.where(left > 0, (above - below) / at_least_one(left), 0.0)
    return Ranks(xp.where(score > -1, score, -1.0), left)


def trusted_agents(wealth: Array, counted: Array, odds: float) -> Array:
    """Return the counted agents that the evidence doubts at less than `odds` to one."""
    xp = namespace(counted)
    return most_of(against_agents(xp.asarray(wealth)) < float(np.log(odds)), counted)


def least_doubted(wealth: Array, counted: Array, odds: float) -> Array:
    """Return the agents that others are ranked against: the trusted ones, or the half with the least evidence.

    The second, if fewer than half are trusted. Without this fallback a few distrusted agents could become everybody's
    only yardstick.

    - `wealth`: of the bets against each agent (bets, tests, agents).
    - `counted`: booleans (agents,), the agents whose reports count.
    - `odds`: agents that the evidence doubts at these odds to one are not trusted.
    """
    xp = namespace(counted)
    evidence = against_agents(xp.asarray(wealth))
    ordered = xp.sort(xp.where(counted, evidence, xp.inf))
    middle = xp.sum(xp.astype(counted, xp.int32)) // 2
    median = xp.sum(xp.where((xp.arange(ordered.shape[0]) == middle) & (ordered < xp.inf), ordered, 0.0))
    return counted & ((evidence < float(np.log(odds))) | (evidence <= median))


def most_of(kept: Array, counted: Array) -> Array:
    """Return the counted agents that are kept, or all of them if fewer than three, or no more than half, are kept.

    A few that agree must not drive out the rest.
    """
    xp = namespace(counted)
    kept = counted & kept
    some, everybody = (xp.sum(xp.astype(x, xp.int32)) for x in (kept, counted))
    return xp.where((some >= LEAST) & (2 * some > everybody), kept, counted)


def ranks_of(score: Array, others: Array, reference: Array) -> Ranks:
    """Return the ranks; where all values are the same there are none."""
    xp = namespace(score)
    return Ranks(score, xp.where((score != 0) | xp.any(reference & (score != 0)), others, 0.0))


def bet(wealth: Array, ranks: Ranks) -> Array:
    """Return the logarithms of wealth (bets, …) after a round of these ranks (…).

    Among m others all m + 1 ranks are as likely, and the mean of e^θz over them is a sum of powers:
    sinh(θ + θ/m) / ((m + 1) sinh(θ/m)). Ties make it smaller, so that the odds are never more than fair.
    """
    xp = namespace(wealth, ranks.score)
    bold = xp.reshape(xp.asarray(BETS, dtype=wealth.dtype), (len(BETS),) + (1,) * ranks.score.ndim)
    others = at_least_one(ranks.others)
    fair = _log_sinh(bold + bold / others) - xp.log(others + 1) - _log_sinh(bold / others)
    return wealth + xp.where(ranks.others > 0, bold * ranks.score - fair, 0.0)


def mean_growth(boldness: float, others: int) -> float:
    """Return the logarithm of the mean of e^θz over all ranks among so many others: what fair odds take off."""
    theta, step = np.asarray(boldness), np.asarray(boldness / others)
    return float(_log_sinh(theta + step) - np.log(others + 1) - _log_sinh(step))


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


def widened(wealth: Any, num_agents: int) -> Any:
    """Return the wealth of bets (bets, agents, …) for more agents: against newcomers nothing is known."""
    return np.pad(wealth, [(0, 0)] + [(0, num_agents - size) for size in wealth.shape[1:]])
