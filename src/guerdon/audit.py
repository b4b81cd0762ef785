"""Tests that find agents who send something else than gradients, at a stated rate of false accusations.

Each is a bet in fair odds against an agent (an e-process): where he is honest his *rank score* z, between −1 and 1, has
mean 0 given the past, whatever the distribution of gradients, because honest agents are exchangeable. Staking the
share λ of the wealth on it multiplies the wealth by 1 + λz each round. The mean over several λ is a wealth that
exceeds 1/α, ever, with a probability of at most α (Ville's inequality): one may look after every round.

Three bets are made against each agent: that his report scores lower than the others' (it tells less), that it is
shorter (whoever sends a prediction lacks the noise of samples), and that it is longer. Whoever adds noise to escape the
second is charged for it by information pay.
"""

import math

import numpy as np

from guerdon.arrays import Array, check_number, namespace

BETS = (0.03, 0.06, 0.12, 0.25, 0.5, 0.95)  # shares of the wealth that are staked, side by side
IDENTICAL = 0.99  # cosine beyond which two reports are one and the same
TESTS = ("tells less", "shorter", "longer")  # than the others


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


def agent_scores(score: Array, length: Array, counted: Array, reference: Array) -> Array:
    """Return the rank scores (tests, agents) of a round's information scores and lengths ‖X_k − p‖²."""
    low, short = (rank_scores(values, counted, reference) for values in (score, length))
    return namespace(low).stack([low, short, -short])


def copying(products: Array, counted: Array, reference: Array, wealth: Array, alpha: float = 0.001) -> Array:
    """Tell who sends copies: reports that are all but identical in this round, or too alike in earlier ones.

    `wealth` is that of the bets against pairs before this round; of all pairs of honest agents together a share `alpha`
    is ever taken for copies. Where that would be more than half of the agents, it is nobody: then something else is
    wrong.
    """
    xp = namespace(products)
    both = counted[:, None] & counted[None, :] & ~xp.eye(counted.shape[0], dtype=xp.bool)
    pairs = max(1, counted.shape[0] * (counted.shape[0] - 1) // 2)
    suspected = evidence_against(wealth) > limit(alpha / pairs)
    joint, own = _agreement(products, counted & reference)
    scale = xp.sqrt(xp.clip(own * own.T, 0.0, None))
    same = (scale > 0) & (joint > IDENTICAL * scale)
    copies = xp.any(both & (same | suspected), axis=1)
    few = 2 * xp.sum(xp.astype(copies, xp.int32)) <= xp.sum(xp.astype(counted, xp.int32))
    return copies & few


def pair_scores(products: Array, counted: Array, reference: Array) -> Array:
    """Return how often two agents' reports agree more than those of other pairs, less how often less, as a share.

    `products` are those of `guerdon.evidence.products`, around any point. Agreement is the inner product of what the
    two reports differ by from the mean of all others in the reference. Honest agents draw their own samples, so any two
    of them are like any other two: 1 for the pair that agrees most, 0 on the diagonal and for who is not counted.
    """
    xp = namespace(products)
    compared = counted & reference
    joint, _ = _agreement(products, compared)
    agents = products.shape[0]
    upper, across = np.triu_indices(agents, k=1)
    if not len(upper):
        return xp.zeros_like(products)
    ranked = compared[upper] & compared[across]
    number = xp.sum(xp.astype(ranked, products.dtype))
    values = joint[upper, across]
    ordered = xp.sort(xp.where(ranked, values, xp.inf))
    below, reached = (xp.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    rivals = number - xp.astype(ranked, products.dtype)
    score = (xp.astype(below + reached, products.dtype) - number) / xp.where(rivals > 0, rivals, 1.0)
    score = xp.where(counted[upper] & counted[across] & (rivals > 0), score, 0.0)
    position = np.zeros((agents, agents), dtype=np.int64)
    position[upper, across] = position[across, upper] = np.arange(len(upper))
    return xp.where(xp.asarray(~np.eye(agents, dtype=bool)), score[xp.asarray(position)], 0.0)


def _agreement(products: Array, reference: Array) -> tuple[Array, Array]:
    """Return ⟨x_i − r, x_j − r⟩ and ‖x_i − r‖² of all pairs (i, j), r the mean of the reference without i and j."""
    xp = namespace(products)
    own = xp.astype(reference, products.dtype)
    square = xp.linalg.diagonal(products)
    with_all = products @ own  # ⟨x_i, sum of the reference⟩
    total = own @ with_all
    rest = xp.sum(own) - own[:, None] - own[None, :]
    rest = xp.where(rest > 0, rest, 1.0)
    mine = with_all[:, None] - (own * square)[:, None] - own[None, :] * products  # ⟨x_i, sum of the rest⟩
    drop = own * (2 * with_all - square)
    others = total - drop[:, None] - drop[None, :] + 2 * own[:, None] * own[None, :] * products
    joint = products - (mine + mine.T) / rest + others / rest**2
    return joint, square[:, None] - 2 * mine / rest + others / rest**2


def bet(wealth: Array, scores: Array) -> Array:
    """Return the logarithms of wealth (bets, …) after a round of these scores (…)."""
    xp = namespace(wealth, scores)
    shares = xp.reshape(xp.asarray(BETS, dtype=wealth.dtype), (len(BETS),) + (1,) * scores.ndim)
    return wealth + xp.log1p(shares * scores)


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
    xp = namespace(wealth)
    return evidence_against(xp.reshape(wealth, (-1, wealth.shape[-1])))


def limit(alpha: float) -> float:
    """Return the evidence beyond which an agent is accused, at a rate `alpha` of false accusations."""
    check_number("alpha", alpha, minimum=0, inclusive=False)
    if alpha > 1:
        raise ValueError(f"`alpha` must be at most 1, got {alpha!r}")
    return math.log(1 / alpha)
