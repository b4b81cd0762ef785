"""How much an agent's reports told of what was not public, over a period of its own rounds, relative to the others'.

    told      ρ̂   = mean of ⟨v_k, w_k⟩/s_t  ÷  median of the same of the others
                                                            v_k = X_k − p, w_k the mean of the others' v

s_t, the signal of the last rounds, makes rounds count equally. Twenty rounds together count for no more than honest
work and 1.5 standard deviations: a partner that helps for a few rounds, before it throws its name away, does not tell
enough for a whole period. Steady pay is released by ρ̂. The lens is told it, too, for pairs that it does not rely on.
"""

from typing import NamedTuple

import numpy as np

from guerdon.arrays import Array, at_least_one, namespace
from guerdon.gram import median_of_others
from guerdon.statistical.signal import InformationScores

MEMORY = 0.7  # weight of a round in the usual signal, relative to the next
LEAST_TOLD = 0.8  # of a round, that the others are taken to have told in the mean
LEAST_SIGNAL = 3.0  # times its standard error in the round: less is taken for that
STRETCH = 20  # rounds, which together count for no more than honest work and chance explain
LEAST_KNOWN = 0.3  # of what others told, that an agent is taken to tell at least where its pairs are made up
REACH = 1.5  # standard deviations of chance


class ShareState(NamedTuple):
    """Per agent: the signal of the last rounds, and sums over the rounds of its current period."""

    signal: Array  # decayed sum of ĝ²/σ², over all rounds
    weight: Array  # decayed sum of rounds
    rounds: Array  # of the period
    products: Array  # Σ ⟨v, w⟩/s over the period
    squared_products: Array  # Σ (⟨v, w⟩/s)² over the period
    credited: Array  # what counts of Σ ⟨v, w⟩/s in the stretches that are over
    lately: Array  # Σ ⟨v, w⟩/s in the current stretch


class InformationShare(NamedTuple):
    """How much every agent's reports told, relative to the others'."""

    share: Array  # ρ̂
    error: Array  # its standard error
    in_full: Array  # ρ̂ where no stretch of rounds is limited


def first_share(num_agents: int) -> ShareState:
    """Return the state before the first round."""
    return ShareState(*(np.zeros(num_agents) for _ in ShareState._fields))


def remember(state: ShareState, scores: InformationScores, trusted: Array, worked: Array, nu: Array) -> ShareState:
    """Return the state with a round added.

    - `scores`: the round's products ⟨v_k, w_k⟩ and lengths.
    - `trusted`: booleans (agents,), the agents that set the scale s_t.
    - `worked`: booleans (agents,), the agents that the round counts for.
    - `nu`: ν, in samples.
    """
    xp = namespace(scores.squared_length)
    noise = nu * (scores.squared_length_of_others - scores.signal_of_others)
    informative = worked & (scores.others > 1) & (noise > 0)
    scale = xp.where(informative, noise, 1.0)
    others = xp.where(informative, scores.signal_of_others / scale, 0.0)
    product = xp.where(informative, scores.agreement / scale, 0.0)
    signal, weight, scale = _signal_scale(state, product, others, informative, informative & trusted)
    product, one = product / scale, xp.astype(worked, scores.squared_length.dtype)
    after = ShareState(
        signal, weight, state.rounds + one, state.products + product, state.squared_products + product**2,
        state.credited, state.lately + product,
    )  # fmt: skip
    over = worked & (after.rounds % STRETCH == 0)
    return after._replace(
        credited=xp.where(over, after.credited + _credible(after), after.credited),
        lately=xp.where(over, 0.0, after.lately),
    )


def begun_anew(state: ShareState, ends: Array) -> ShareState:
    """Return the state with the sums of the period begun anew where it ended."""
    xp = namespace(state.rounds)
    sums = {
        name: xp.where(ends, 0.0, value) for name, value in state._asdict().items() if name not in ("signal", "weight")
    }
    return state._replace(**sums)


def knowledge(state: ShareState) -> Array:
    """Return ρ̂ of every agent within [0.3, 1/0.3], for pairs that are not relied on; 1 in the first twenty rounds."""
    xp = namespace(state.rounds)
    share = shares(state).share
    return xp.where(state.rounds >= STRETCH, xp.clip(share, LEAST_KNOWN, 1 / LEAST_KNOWN), 1.0)


def shares(state: ShareState) -> InformationShare:
    """Return ρ̂ of every agent: the mean of ⟨v_k, w_k⟩/s_t over its rounds, relative to the median of the others'."""
    xp = namespace(state.products)
    here = state.rounds > 0
    rounds = at_least_one(state.rounds)
    credited = (state.credited + _credible(state)) / rounds
    met = _met(credited, here)
    typical, some = median_of_others(credited / met, here)
    typical = _at_least(typical * met, LEAST_TOLD)  # less where the signal fell, and its scale was too large
    square = state.squared_products / rounds - (state.products / rounds) ** 2
    error = xp.sqrt(_at_least(square, 0.0) / rounds)
    return InformationShare(
        share=xp.where(some, credited / typical, 0.0),
        error=xp.where(some & here, error / typical, xp.inf),
        in_full=xp.where(some, state.products / rounds / typical, 0.0),
    )


def _signal_scale(
    state: ShareState, product: Array, others: Array, informative: Array, trusted: Array
) -> tuple[Array, Array, Array]:
    """Return the decayed sums of the signal and of rounds with this one, and the scale that this round is divided by.

    The scale is one for all: the signal of the last rounds as the trusted had it (in the first, of that one), and no
    less than the error of this round's.
    """
    xp = namespace(product)
    present = xp.astype(trusted, product.dtype)
    count = at_least_one(xp.sum(present))
    now, mean = xp.sum(present * others) / count, xp.sum(present * product) / count
    error = xp.sqrt(xp.sum(present * (product - mean) ** 2)) / count**1.5
    signal_sum = xp.where(informative, MEMORY * state.signal + now, state.signal)
    weight_sum = xp.where(informative, MEMORY * state.weight + 1, state.weight)
    # Of the agents of this round alone: what an agent told that has left, or sends copies, must not stay for ever.
    before = xp.sum(present * state.weight)
    signal = xp.where(before > 0, xp.sum(present * state.signal) / xp.where(before > 0, before, 1.0), now)
    scale = xp.where(signal > LEAST_SIGNAL * error, signal, LEAST_SIGNAL * error)
    return signal_sum, weight_sum, xp.where(scale > 0, scale, 1.0)


def _credible(state: ShareState) -> Array:
    """Return what an agent told in its current stretch, cut at what honest work tells and chance adds.

    Without the cut a partner that helps for a few rounds, and then throws its name away, could tell enough for a whole
    period.
    """
    xp = namespace(state.products)
    here, rounds = state.rounds > 0, at_least_one(state.rounds)
    mean = state.products / rounds
    square = state.squared_products / rounds - mean**2
    typical, some = median_of_others(mean, here)
    spread, _ = median_of_others(xp.sqrt(_at_least(square, 0.0)), here)
    number = (state.rounds + STRETCH - 1) % STRETCH + 1
    most = number * _at_least(typical, LEAST_TOLD) + REACH * spread * xp.sqrt(number)
    return xp.where(some & (state.lately > most), most, state.lately)


def _met(credited: Array, here: Array) -> Array:
    """Return how much the agents told that each agent is compared with, up to a factor for all.

    A product measures both sides. An agent that is compared with others that tell little must not look as if it told
    less itself.
    """
    xp = namespace(credited)
    positive = xp.where(here & (credited > 0), credited, 0.0)
    others = xp.sum(positive) - positive
    scale = at_least_one(xp.sum(xp.astype(here, credited.dtype)) - 1)
    return xp.where(others > 0, others / scale, 1.0)


def _at_least(values: Array, least: float) -> Array:
    return namespace(values).where(values > least, values, least)
