"""How much an agent's reports told of what was not public, over a period of its own rounds, relative to the others'.

    told      ρ̂   = mean of ⟨v_k, w_k⟩/s_t  ÷  median of the same of the others
                                                            v_k = X_k − p, w_k the mean of the others' v

s_t, the signal of the last rounds, makes rounds count equally. Twenty rounds together count for no more than honest
work and 1.5 standard deviations: a partner that helps for a few rounds, before it throws its name away, does not tell
enough for a whole period. Steady pay is released by ρ̂, and the server is told it, for
pairs that it does not rely on.
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

    usual: Array  # decayed sum of ĝ²/σ², over all rounds
    seen: Array  # and of rounds
    rounds: Array
    told: Array  # Σ ⟨v, w⟩/s
    told_squares: Array
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
    """Return the state with a round added for the agents that `worked`."""
    xp = namespace(scores.length)
    noise = nu * (scores.length_of_others - scores.signal_of_others)
    known = worked & (scores.others > 1) & (noise > 0)
    scale = xp.where(known, noise, 1.0)
    others = xp.where(known, scores.signal_of_others / scale, 0.0)
    told = xp.where(known, scores.agreement / scale, 0.0)
    usual, seen, scale = _usual(state, told, others, known, known & trusted)
    told, one = told / scale, xp.astype(worked, scores.length.dtype)
    after = ShareState(
        usual, seen, state.rounds + one, state.told + told, state.told_squares + told**2,
        state.credited, state.lately + told,
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
        name: xp.where(ends, 0.0, value) for name, value in state._asdict().items() if name not in ("usual", "seen")
    }
    return state._replace(**sums)


def knowledge(state: ShareState) -> Array:
    """Return how much each agent's reports told in this period, relative to the others'; 1 where that is vague."""
    xp = namespace(state.rounds)
    share = shares(state).share
    return xp.where(state.rounds >= STRETCH, xp.clip(share, LEAST_KNOWN, 1 / LEAST_KNOWN), 1.0)


def shares(state: ShareState) -> InformationShare:
    """Return how much every agent's reports told, relative to the others'."""
    xp = namespace(state.told)
    here = state.rounds > 0
    rounds = at_least_one(state.rounds)
    own = (state.credited + _credible(state)) / rounds
    met = _met(own, here)
    usual, some = median_of_others(own / met, here)
    usual = _at_least(usual * met, LEAST_TOLD)  # less where the signal fell, and its scale was too large
    square = state.told_squares / rounds - (state.told / rounds) ** 2
    error = xp.sqrt(_at_least(square, 0.0) / rounds)
    told = xp.where(some, own / usual, 0.0), xp.where(some & here, error / usual, xp.inf)
    return InformationShare(*told, xp.where(some, state.told / rounds / usual, 0.0))


def _usual(state: ShareState, told: Array, others: Array, known: Array, trusted: Array) -> tuple[Array, Array, Array]:
    """Return the decayed sums of the signal and of rounds with this one, and the scale that this round is divided by.

    The scale is one for all: the signal of the last rounds as the trusted had it (in the first, of that one), and no
    less than the error of this round's.
    """
    xp = namespace(told)
    own = xp.astype(trusted, told.dtype)
    count = at_least_one(xp.sum(own))
    now, mean = xp.sum(own * others) / count, xp.sum(own * told) / count
    error = xp.sqrt(xp.sum(own * (told - mean) ** 2)) / count**1.5
    usual = xp.where(known, MEMORY * state.usual + now, state.usual)
    seen = xp.where(known, MEMORY * state.seen + 1, state.seen)
    # Of those that are here: what agents knew that are gone, or are copies and not counted, must not stay for ever.
    before = xp.sum(own * state.seen)
    signal = xp.where(before > 0, xp.sum(own * state.usual) / xp.where(before > 0, before, 1.0), now)
    scale = xp.where(signal > LEAST_SIGNAL * error, signal, LEAST_SIGNAL * error)
    return usual, seen, xp.where(scale > 0, scale, 1.0)


def _credible(state: ShareState) -> Array:
    """Return what an agent told in its current stretch, no more than honest work tells and chance adds.

    Else a partner that helps for a few rounds, and then throws its name away, could tell enough for a whole period.
    """
    xp = namespace(state.told)
    here, rounds = state.rounds > 0, at_least_one(state.rounds)
    mean = state.told / rounds
    square = state.told_squares / rounds - mean**2
    usual, some = median_of_others(mean, here)
    spread, _ = median_of_others(xp.sqrt(_at_least(square, 0.0)), here)
    number = (state.rounds + STRETCH - 1) % STRETCH + 1
    most = number * _at_least(usual, LEAST_TOLD) + REACH * spread * xp.sqrt(number)
    return xp.where(some & (state.lately > most), most, state.lately)


def _met(told: Array, here: Array) -> Array:
    """Return how much those know that each agent is compared with, up to a factor for all.

    What an agent told is what it knows times what they know: those that are compared with more that tell little must
    not look as if they told less themselves.
    """
    xp = namespace(told)
    own = xp.where(here & (told > 0), told, 0.0)
    others = xp.sum(own) - own
    scale = at_least_one(xp.sum(xp.astype(here, told.dtype)) - 1)
    return xp.where(others > 0, others / scale, 1.0)


def _at_least(values: Array, least: float) -> Array:
    return namespace(values).where(values > least, values, least)
