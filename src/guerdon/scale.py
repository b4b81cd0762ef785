"""The scale of distances: what earlier rounds say of σ², the variance of one sample's gradient.

Pay by agreement divides distances by a scale V. If an agent's own report of the round is in V, fewer samples can pay.
So V comes from earlier rounds. It is one number for all, so that what one agent loses others gain. It must follow σ²,
which changes while a model is trained: an agent that knows σ² and V gains h'(ν)·ν·(√(σ²/V) − 1)² by working a little
more or less than it was asked.

Every round gives one estimate, s = ν/2 · (the mean of all pair distances), with a relative variance e². Twelve
forecasts are made of such estimates: the mean of the last 1, 2, 4, … 32, and each of these with its trend. With the
loss L = Σ(s/V + log V) of a forecast over earlier rounds, its weight is

    p ∝ exp(−L/e² − r/2)

where r is the variance of the forecast itself in units of e². That is the posterior over forecasts if s has a Gamma
distribution of mean σ² and relative variance e²; to second order the loss is also what the informed agent gains. The
scale is V = (1 + e²·Σ p·r) · Σ p·V_p; the first factor takes off the bias of 1/V.

e² comes from how much the agents of a round differ: with v the relative sample variance of their mean distances to the
others, it is 4·v·(n − 1)/(n·(n − 2)), exactly so in the mean for normal noise.

No round counts for more than `Estimate.largest` times what was known, so that one report that is far out does not make
V useless for the rounds after it.

Until V has ten degrees of freedom (e²/rounds ≤ 1/5), rounds are *open*. Then all of them are settled together, each by
the mean of the *other* open rounds. So no round is paid by its own spread, not even the first. Two bounds use the own
round too. `least` makes V large enough that the worst loss stays what was printed, and no open round counts for more
than `Estimate.largest` times the quietest of them. Both bind only where distances in one round are 1/rarest times those
of the others or levels several times as far apart: beyond what honest work does on data that `rarest` is right for. A
member that makes `least` bind is furthest from the others, and its fine is the largest there is.

The last round of a run settles what is open, also where it says nothing itself: else who leaves two others alone would
never be fined.
"""

from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, at_least_one, namespace
from guerdon.states import map_state

# The longest mean. At half, an agent that knows V gains 1.2 times as much on data with rare samples; twice as long
# changes no gain by more than 0.1 % of the cost, and doubles what is remembered. Losses fade over as many rounds.
LONGEST = 32
WINDOWS = (1, 2, 4, 8, 16, 32)
FADE = 1 - 1 / LONGEST
# A trend is at most this factor between two windows. Without a limit one quiet round in one dimension makes V
# enormous; at 2 a fall of σ² by a fifth in each round is followed too late.
STEEPEST = 4.0
# Ten degrees of freedom: then the informed agent gains at most 5 % of its cost. At five it gains twice as much.
LARGEST_VARIANCE = 1 / 5
# Three agents and one dimension have two degrees of freedom a round, so that five other rounds have ten.
MOST_OPEN = 6
TINY = 1e-9  # relative: below this a forecast or a variance is rounding


class Estimate(NamedTuple):
    """What one round says of σ²: s, its relative variance, and the number of agents; `usable`: if it says anything."""

    level: Array
    noise: Array
    agents: Array
    usable: Array
    largest: Array  # times what was known: no round counts for more, so that one report out of bounds moves V little


class OpenRounds(NamedTuple):
    """Rounds that wait for a scale, one entry each, in order; `count` of them are used."""

    count: Array
    level: Array
    noise: Array
    least: Array  # V that bounds what an agent can lose in the round


class ScaleState(NamedTuple):
    """What is remembered of σ²; nothing in it belongs to one agent."""

    agents = None

    rounds: Array  # that were learned from
    history: Array  # the last 2·LONGEST estimates, the newest first
    losses: Array  # of the forecasts
    noise: Array  # decayed sum of the variance of s, relative to V²
    power: Array  # and of s², relative to V²
    known: Array  # 1 once the open rounds are settled
    open: OpenRounds


def first_scale() -> ScaleState:
    """Return the state before the first round."""
    zero, opened = np.zeros(()), np.zeros(MOST_OPEN)
    return ScaleState(
        zero, np.zeros(2 * LONGEST), np.zeros(2 * len(WINDOWS)), zero, zero, zero,
        OpenRounds(zero, opened, opened, opened),
    )  # fmt: skip


def known_scale(value: float) -> ScaleState:
    """Return the state as if one earlier round had given exactly this V, in the unit of σ²."""
    first = first_scale()
    history = np.where(np.arange(2 * LONGEST) < 1, value, 0.0)
    return first._replace(rounds=np.ones(()), history=history, power=np.ones(()), known=np.ones(()))


def estimate(pair_distance: Array, counted: Array, request: Array, rarest: float) -> Estimate:
    """Return what a round's distances say of σ²: s = ν/2 · the mean distance, and e² = 4·v·(n − 1)/(n·(n − 2)).

    - `pair_distance`: (agents,), the mean squared distance of each agent to the others.
    - `counted`: booleans (agents,), the agents that have one.
    - `request`: ν, in samples.
    - `rarest`: the smallest share of samples that may carry all of σ². If it does, two such samples in one report make
      the level 4/(n·ν·rarest) times σ²: an honest round may say that much.

    >>> around = np.array([7.0, 7.0, 10.0])
    >>> float(estimate(around, np.array([True, True, True]), 8.0, rarest=0.01).level)
    32.0
    """
    xp = namespace(pair_distance)
    present = xp.astype(counted, pair_distance.dtype)
    count = xp.sum(present)
    mean = xp.sum(present * pair_distance) / at_least_one(count)
    unit = xp.where(mean > 0, mean, 1.0)
    apart = xp.sum(present * (pair_distance / unit - 1) ** 2) / at_least_one(count - 1)
    noise = 4 * apart * (count - 1) / at_least_one(count * (count - 2))
    rare = 4 / (at_least_one(count) * request * rarest)
    return Estimate(
        request / 2 * mean, noise, count, (count >= 3) & (mean > 0), xp.where(rare > STEEPEST, rare, STEEPEST)
    )


def scale(state: ScaleState) -> Array:
    """Return V = (1 + e²·Σ p·r) · Σ p·V_p for the next round, in the unit of σ²; NaN while rounds are open.

    >>> float(scale(known_scale(320.0)).round())
    320.0
    """
    return _weighted(state, *_forecasts(state))


def _weighted(state: ScaleState, forecasts: Array, spread: Array) -> Array:
    """Return the weighted mean of the forecasts, and a bit more, as 1/V has a bias."""
    xp = namespace(forecasts)
    noise = _relative(state.noise, state.power)
    exponent = -(state.losses - xp.min(state.losses)) / noise - spread / 2
    weight = xp.exp(exponent - xp.max(exponent))
    weight = weight / xp.sum(weight)
    value = (1 + noise * xp.sum(weight * spread)) * xp.sum(weight * forecasts)
    return xp.where(state.known > 0, value, xp.nan)


class Settling(NamedTuple):
    """The V of a round (NaN while it is open), whether it settles the open rounds, and the V of each of these."""

    scale: Array
    now: Array
    scales: Array


def learn(state: ScaleState, latest: Estimate, least: Array, last: Any) -> tuple[Settling, ScaleState]:
    """Return V for this round, or the V of each open round that is settled with it, and the state after it.

    - `state`: of the rounds before.
    - `latest`: what the round says of σ².
    - `least`: the V below which a loss in the round would be too large, in the unit of σ².
    - `last`: whether it is the run's last. Then open rounds are settled, however little is known.
    """
    xp = namespace(state.history)
    forecasts, spread = _forecasts(state)
    before = _weighted(state, forecasts, spread)
    opened = _added(state.open, latest, least, (state.known > 0) | ~latest.usable)
    quietest = latest.largest * xp.min(xp.where(xp.arange(MOST_OPEN) < opened.count, opened.level, xp.inf))
    opened = opened._replace(level=_within(opened.level, quietest))
    latest = latest._replace(level=_within(latest.level, xp.where(state.known > 0, latest.largest * before, quietest)))
    enough, scales, noise, power = _settle(opened, latest, last)
    now = enough & (state.known == 0) & (latest.usable | last)
    unit = xp.where(state.known > 0, before, 1.0)
    square = (latest.level / unit) ** 2
    fade = FADE * state.noise + latest.noise * square, FADE * state.power + square
    losses = xp.where(state.rounds > 0, FADE * state.losses + latest.level / forecasts + xp.log(forecasts), 0.0)
    after = ScaleState(
        state.rounds + 1,
        _within(xp.concat([xp.reshape(latest.level, (1,)), state.history[:-1]]), xp.where(now, quietest, xp.inf)),
        losses,
        xp.where(now, noise, xp.where(state.known > 0, fade[0], state.noise)),
        xp.where(now, power, xp.where(state.known > 0, fade[1], state.power)),
        xp.where(now, 1.0, state.known),
        OpenRounds(*(xp.where(now, 0.0, part) for part in opened)),
    )

    def chosen(new: Array, old: Array) -> Array:
        return xp.where(latest.usable, new, old)

    kept = map_state(chosen, after, state)
    kept = kept._replace(  # a last round that says nothing settles what is open all the same
        history=_within(kept.history, xp.where(now, quietest, xp.inf)),
        noise=xp.where(now, noise, kept.noise),
        power=xp.where(now, power, kept.power),
        known=xp.where(now, 1.0, kept.known),
        open=OpenRounds(*(xp.where(now, 0.0, part) for part in kept.open)),
    )
    return Settling(before, now, scales), kept


def _within(values: Array, most: Array) -> Array:
    return namespace(values).where(values < most, values, most)


def _added(opened: OpenRounds, latest: Estimate, least: Array, closed: Array) -> OpenRounds:
    """Return the open rounds with this one; as they are where the scale is known."""
    xp = namespace(opened.level)
    here = (xp.arange(MOST_OPEN) == opened.count) & ~closed
    parts = zip(opened[1:], (latest.level, latest.noise, least), strict=True)
    written = (xp.where(here, new, old) for old, new in parts)
    return OpenRounds(opened.count + xp.where(closed, 0.0, 1.0), *written)


def _settle(opened: OpenRounds, latest: Estimate, last: Any) -> tuple[Array, Array, Array, Array]:
    """Return whether the open rounds tell enough, the V of each, and the sums of noise and power that they give.

    One round of the noisiest kind (one dimension: e² = 2/(n − 1)) is added to what they say of e².
    """
    xp = namespace(opened.level)
    count, total = at_least_one(opened.count), xp.sum(opened.level)
    squares = (opened.level / xp.where(total > 0, total / count, 1.0)) ** 2
    worst = 2 / at_least_one(xp.where(latest.usable, latest.agents, 3.0) - 1)
    noise, power = xp.sum(opened.noise * squares) + worst, xp.sum(squares) + 1 + worst
    relative = _relative(noise, power)
    others = at_least_one(opened.count - 1)
    enough = (relative <= LARGEST_VARIANCE * others) | (opened.count >= MOST_OPEN) | last
    mean = (total - opened.level) / others * (1 + relative / others)
    scales = xp.where(mean > opened.least, mean, opened.least)
    return (opened.count >= 2) & enough, xp.where(scales > 0, scales, 1.0), noise, power


def _relative(noise: Array, power: Array) -> Array:
    """Return e²: the variance of s, relative to the square of its mean: E[s²] = (1 + e²)·σ⁴."""
    xp = namespace(noise)
    rest = power - noise
    least = TINY * power
    relative = noise / xp.where(rest > least, rest, xp.where(least > 0, least, 1.0))
    return xp.clip(relative, TINY, 1 / TINY)


def _forecasts(state: ScaleState) -> tuple[Array, Array]:
    """Return the forecasts of σ², plain and with trend, and the variance of each in units of e².

    Each uses as many rounds as there are, up to its window; a trend compares two windows.
    """
    xp = namespace(state.history)
    age = xp.arange(2 * LONGEST, dtype=state.history.dtype)[None, :]
    window = xp.asarray(WINDOWS, dtype=state.history.dtype)

    def mean(first: Array, beyond: Array) -> Array:
        inside = xp.astype((age >= first[:, None]) & (age < beyond[:, None]), state.history.dtype)
        return xp.sum(inside * state.history[None, :], axis=1) / at_least_one(beyond - first)

    plain = xp.where(window < state.rounds, window, at_least_one(state.rounds))
    half = xp.floor(state.rounds / 2)
    short = xp.where(window < half, window, at_least_one(half))
    level, late, early = mean(0 * plain, plain), mean(0 * short, short), mean(short, 2 * short)
    ahead = xp.where(half > 0, (short + 1) / (2 * short), 0.0)  # from the middle of a window, in windows
    factor = xp.clip(late / xp.where(early > 0, early, 1.0), 1 / STEEPEST, STEEPEST)
    trend = late * xp.where(early > 0, factor, 1.0) ** ahead
    values = xp.concat([level, trend])
    least = TINY * xp.max(values)
    values = xp.where(values > least, values, xp.where(least > 0, least, 1.0))
    return values, xp.concat([1 / plain, ((1 + ahead) ** 2 + ahead**2) / short])
