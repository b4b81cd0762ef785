"""Groups of agents whose reports share something: the top eigenvector of how well all pairs agreed over the rounds.

The bets against pairs (`guerdon.statistical.pairs`) look at each pair alone. A group of g that shares a little noise in
secret is g(g − 1)/2 pairs, none of which may suffice. Two bets of different boldness on a pair tell how often its
reports agreed more than other pairs', less how often less, in all: the sum of its rank scores. Divided by their
standard deviation these sums Z_ij are about independent standard normal numbers where all agents are honest and alike.
The largest eigenvalue of Z is then about 2√m + τ/m^⅙, τ with the law of Tracy and Widom and m a little less than n. A
group that shares something has one of about (g − 1) times what each of its pairs shows.

Reports are compared with each other alone, so what half of the agents share is the same as what the other half share:
the test tells that agents fall into two parts, and names the smaller one. Unlike the bets, it is for one look: its rate
of false alarms is `alpha` each time.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from guerdon._quantiles import f_quantile
from guerdon.statistical.bets import BETS, limit, mean_growth

FEWEST = 5  # agents needed: with fewer a group would be all of them
ROUNDS = 20  # rounds needed for sums of ranks to be about normal
CHIANI = (46.446, 0.186054, 9.84801)  # τ + 9.85 is about a gamma variable of this shape and scale


class SuspiciousGroup(NamedTuple):
    """Agents whose reports share something, how strong it is, and what it would have to exceed by chance."""

    members: tuple[int, ...]
    strength: float
    expected: float


def suspicious_group(wealth: Any, alpha: float) -> SuspiciousGroup | None:
    """Return the group that shares most, or None where chance explains it, at a rate `alpha` of false alarms.

    `wealth` is that of the bets against all pairs (bets, agents, agents), as the server keeps it.
    """
    limit(alpha)
    agreed = agreement_of_pairs(np.asarray(wealth, dtype=np.float64))
    if len(agreed) < FEWEST or not agreed.any():
        return None
    values, vectors = np.linalg.eigh(agreed)
    strength, expected = float(values[-1]), largest_by_chance(len(agreed), alpha)
    members = _members(agreed, vectors[:, -1])
    return SuspiciousGroup(members, strength, expected) if strength > expected and len(members) > 1 else None


def agreement_of_pairs(wealth: Any) -> Any:
    """Return Z: per pair the sum of its rank scores over the rounds, relative to chance; 0 where it has too few rounds.

    A bet of boldness θ is worth θ·Σz − Σc(θ), with c(θ) the growth of e^θz over all ranks. Two of them give Σz and how
    many rounds there were.
    """
    agents = wealth.shape[-1]
    others = max(agents * (agents - 1) // 2 - 1, 1)
    timid, bold = BETS[0], BETS[1]
    first, second = mean_growth(timid, others), mean_growth(bold, others)
    ratio = second / first
    total = (wealth[1] - ratio * wealth[0]) / (bold - ratio * timid)
    rounds = (timid * total - wealth[0]) / first
    enough = (rounds >= ROUNDS) & ~np.eye(agents, dtype=bool)
    variance = (others + 2) / (3 * others)
    return np.where(enough, total / np.sqrt(variance * np.where(enough, rounds, 1.0)), 0.0)


def largest_by_chance(agents: int, alpha: float) -> float:
    """Return what the largest eigenvalue of such a matrix exceeds by chance with a probability of at most `alpha`."""
    shape, scale, shift = CHIANI
    tracy_widom = f_quantile(1 - alpha, 2 * shape) * shape * scale - shift
    size = agents - 1  # where agents are few, n is too large; n − 2 is too small, because ranks are not independent
    return 2 * math.sqrt(size) + tracy_widom / size ** (1 / 6)


def _members(agreed: Any, vector: Any) -> tuple[int, ...]:
    """Return the agents that share it: those first in the eigenvector among which agreement is most unlikely.

    The vector sums up to about nothing: the side of the fewer agents has the larger numbers.
    """
    order = np.argsort(vector * (1 if np.sum(vector**3) >= 0 else -1))[::-1]
    shown = [
        agreed[np.ix_(order[:size], order[:size])].sum() / math.sqrt(size * (size - 1)) for size in range(2, len(order))
    ]
    return tuple(sorted(order[: 2 + int(np.argmax(shown))].tolist()))
