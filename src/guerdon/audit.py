"""Tests that find agents who send something else than gradients, at a stated rate of false accusations.

Each is a bet in fair odds against an agent (an e-process): where he is honest his *rank score* z, between −1 and 1, has
mean 0 given the past, whatever the distribution of gradients, because honest agents are exchangeable. Staking the
share λ of the wealth on it multiplies the wealth by 1 + λz each round. The mean over several λ is a wealth that
exceeds 1/α, ever, with a probability of at most α (Ville's inequality): one may look after every round.
"""

import math
from typing import Any

from guerdon.arrays import Array, namespace

BETS = (0.03, 0.06, 0.12, 0.25, 0.5, 0.95)  # shares of the wealth that are staked, side by side


def rank_scores(values: Array, counted: Array, reference: Array) -> Array:
    """Return how often each counted agent's value is below those of the reference, less how often above, as a share.

    1 for the lowest of all, −1 for the highest, ties count for neither side; 0 for who is not counted or has nobody to
    be compared with.
    """
    xp = namespace(values)
    others = xp.astype(reference[None, :] & ~xp.eye(values.shape[0], dtype=xp.bool), values.dtype)
    above = xp.sum(others * xp.sign(values[None, :] - values[:, None]), axis=1)
    count = xp.sum(others, axis=1)
    return xp.where(counted & (count > 0), above / xp.where(count > 0, count, 1.0), 0.0)


def bet(wealth: Array, scores: Array) -> Array:
    """Return the logarithms of wealth (bets, …) after a round of these scores (…)."""
    xp = namespace(wealth, scores)
    shares = xp.reshape(xp.asarray(BETS, dtype=wealth.dtype), (len(BETS),) + (1,) * scores.ndim)
    return wealth + xp.log1p(shares * scores)


def evidence_against(wealth: Array) -> Array:
    """Return the logarithm of the mean wealth: at most log(1/α) for ever, with probability 1 − α, where all is well."""
    xp = namespace(wealth)
    highest = xp.max(wealth, axis=0)
    return highest + xp.log(xp.mean(xp.exp(wealth - highest), axis=0))


def limit(alpha: float) -> Any:
    """Return the evidence beyond which an agent is accused, at a rate `alpha` of false accusations."""
    return math.log(1 / alpha)
