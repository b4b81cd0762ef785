"""Tests that find agents who send something else than gradients, at a stated rate of false accusations.

Each is a bet in fair odds against an agent (an e-process): where he is honest his *rank score* z, between −1 and 1, has
mean 0 given the past, whatever the distribution of gradients, because honest agents are exchangeable. Staking the
share λ of the wealth on it multiplies the wealth by 1 + λz each round. The mean over several λ is a wealth that
exceeds 1/α, ever, with a probability of at most α (Ville's inequality): one may look after every round.
"""

import math

import numpy as np

from guerdon.arrays import Array, check_number, namespace

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


def pair_scores(products: Array, counted: Array) -> Array:
    """Return how often two agents' deviations agree more than those of other pairs, less how often less, as a share.

    `products` are those of `guerdon.evidence.products`, around any point. 1 for the pair that agrees most, 0 on the
    diagonal and for who is not counted. Honest agents draw their own samples, so every pair of them is like any other.
    """
    xp = namespace(products)
    agents = products.shape[0]
    own = xp.astype(counted, products.dtype)
    count = xp.sum(own)
    share = own / xp.where(count > 0, count, 1.0)
    lean = products @ share
    apart = products - lean[:, None] - lean[None, :] + share @ lean  # around the mean of the counted
    length = xp.sqrt(xp.clip(xp.linalg.diagonal(apart), 0.0, None))
    scale = length[:, None] * length[None, :]
    alike = apart / xp.where(scale > 0, scale, 1.0)
    upper, across = np.triu_indices(agents, k=1)
    valid = counted[upper] & counted[across]
    pairs = xp.sum(xp.astype(valid, products.dtype))
    values = xp.where(valid, alike[upper, across], xp.inf)
    ordered = xp.sort(values)
    below, reached = (xp.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    score = (xp.astype(below + reached, products.dtype) - pairs) / xp.where(pairs > 1, pairs - 1, 1.0)
    score = xp.where(valid & (pairs > 1), score, 0.0)
    position = np.zeros((agents, agents), dtype=np.int64)
    position[upper, across] = position[across, upper] = np.arange(len(upper))
    off = xp.asarray(~np.eye(agents, dtype=bool))
    return xp.where(off, score[xp.asarray(position)], 0.0) if len(upper) else xp.zeros_like(products)


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


def limit(alpha: float) -> float:
    """Return the evidence beyond which an agent is accused, at a rate `alpha` of false accusations."""
    check_number("alpha", alpha, minimum=0, inclusive=False)
    if alpha > 1:
        raise ValueError(f"`alpha` must be at most 1, got {alpha!r}")
    return math.log(1 / alpha)
