"""What a round's gradients say about noise and signal, and a filter that follows both through a training.

σ² is the variance of a single-sample gradient, ‖m‖² the squared length of the true one, and B = σ²/‖m‖² the *gradient
noise scale*: a batch of B samples has as much noise as signal. Both are estimated without bias from the evidence that
the server has anyway (`estimate_noise`). One round's ‖m‖² is noisy, and near the end of a training drowns in its
noise, so a `NoiseFilter` follows it: it knows how a step shortens a gradient where the loss has curvature L,

    ‖m'‖² = ‖m‖²(1 − ηL)² + (ηL)²σ²/(nν)        ⟨m', T⟩ = ⟨m, T⟩ − ηL⟨ḡ, T⟩

with ḡ the mean gradient of the round, η its step, ν its request, n the participants and T = Σ decay^i·ḡ_{t−i} the
*trail* of the last rounds, and weighs what it predicts against what it sees (a Kalman filter). L is not known: the
filter keeps one belief for each curvature of a wide grid, and weighs these by how well they predict. No step size need
be given.

The step is the one that lowers the loss most, η = ‖m‖²/(L(‖m‖² + σ²/(nν))). That is right where the loss is equally
curved in all directions. Elsewhere it is too short-sighted, and the model above wrong in two ways that show, so two
regression coefficients correct it:

    κ, of what is seen of ‖m‖² on what was predicted: above 1 where gradients shrink more slowly than they should;
    ζ, of ⟨ḡ, T⟩ on ‖m‖²: 0 at the right step (what is left of the gradient does not lean on where one came from), and
    positive where gradients keep pointing the same way, along directions in which the loss is flat.

‖m‖² is taken κ·(1 + PERSISTENCE·ζ) times as large. Both are believed only as far as the rounds show them.

Everything is written once for NumPy, JAX and PyTorch, without branches on values.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, Namespace, check_positive_integer, layers_dot, namespace, over_layers
from guerdon.evidence import Evidence

# One configuration for all problems, chosen on linear regression (condition numbers 1 and 100) and the heart data.
TRAIL = 0.93  # weight of a round in the trail, relative to the round after it
CURVATURE = 2.0  # the first guess at L, …
DECADES = 4  # … the orders of magnitude around it that are thought possible, …
POINTS = 33  # … how many values are tried there, …
GUESS = 1.25  # … and the standard deviation of ln L around the guess before the first round
MEMORY = 0.8  # weight of a round in what is believed of L, relative to the round after it
STEADY = 0.95  # the same for ζ; its standard deviation around 0 is 1 before the first round
DOUBT = 0.3  # the standard deviation of κ around 1 before the first round, …
WATCH = 0.9  # … and the weight of a round in it and in the dimension, relative to the round after it
PERSISTENCE = 0.5  # how much a ζ of 1 lengthens the step
RECENT = 0.5  # the same for σ², which every round shows well
MODEL_ERROR = 0.1  # how far, relative to ‖m‖², a prediction of ‖m‖² may be off
GROWTH = 2.0  # a step is at most so many times as long as the last
FIRST_DIMENSION = 10.0  # effective dimension of the noise, believed as strongly as one round says it
OVERSHOOT = 4.0  # a curvature that would multiply the gradient by more is refuted as well by this much
FAINT = 0.5  # ‖m‖² counts as at least so many standard deviations of what is believed of it
UNLIKELY = -60.0  # log-weights lower than this are not told apart


class NoiseEstimate(NamedTuple):
    """What one round says: unbiased σ² and ‖m‖², ‖ḡ‖², and the variance of the second, by the jackknife."""

    variance: Array
    signal: Array
    square: Array
    signal_variance: Array
    count: Array


class TrailProducts(NamedTuple):
    """How a round's mean gradient ḡ lies to the trail T of those before it: ⟨ḡ, T⟩ and ‖T‖²."""

    agreement: Array
    length: Array


class NoiseFilter(NamedTuple):
    """What is believed after a round. The arrays `signal`…`log_weight` have an entry for each curvature tried.

    `signal` and `turn` are predictions of ‖m‖² and ⟨m, T⟩ for the next round, with variances, in units of σ².
    """

    rounds: Array  # that said anything
    variance: Array  # decayed sum of σ² estimates
    weight: Array  # and of their weights
    freedom: Array  # decayed sums whose ratio is the effective dimension of the noise
    scatter: Array
    lean: Array  # decayed sums whose ratio is ζ
    lean_weight: Array
    excess: Array  # decayed sums whose ratio is κ
    excess_weight: Array
    step: Array
    crowd: Array  # participants
    noise_scale: Array
    signal: Array
    signal_variance: Array
    turn: Array
    turn_variance: Array
    log_weight: Array


class _ScaledRound(NamedTuple):
    """A round in units of σ²: the noise of its mean gradient, and what was seen of it."""

    noise: Array
    square: Array
    signal: Array
    turn: Array
    dimension: Array
    turn_noise: Array


def estimate_noise(evidence: Evidence, request: Any) -> NoiseEstimate:
    """Return unbiased estimates of σ² and ‖m‖² from one round's evidence, gathered without a prediction.

    σ² = ν·Σ‖X_k − m̄‖²/(n − 1) and ‖m‖² = mean of ⟨X_i, X_j⟩ over i ≠ j. Fewer than two participants say nothing (0),
    and the variance of the latter takes three.

    >>> import numpy as np
    >>> from guerdon import gather
    >>> evidence = gather(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0]]), np.ones(3, dtype=bool))
    >>> noise = estimate_noise(evidence, request=4)
    >>> float(noise.variance), float(noise.signal)
    (16.0, 3.6666666666666665)
    """
    check_positive_integer("request", request)
    xp = namespace(evidence.squared_deviation)
    counted = xp.astype(evidence.counted, evidence.squared_deviation.dtype)
    count = xp.sum(counted)
    one, two = (xp.where(count > less, count - less, 1.0) for less in (1, 2))
    enough = count > 1
    variance = xp.asarray(request, dtype=count.dtype) * xp.sum(evidence.squared_deviation) / one
    cross = evidence.alignment - evidence.squared_length  # ⟨X_k, sum of the others⟩
    total = xp.sum(cross)
    without = (total - 2 * cross) / (one * two)  # ‖m‖² as it is without k
    signal = total / xp.where(enough, count * one, 1.0)
    away = xp.where(evidence.counted, without - signal, 0.0)
    spread = xp.where(count > 2, one / xp.where(enough, count, 1.0) * xp.sum(away * away), 0.0)
    square = xp.sum(evidence.alignment) / xp.where(count > 0, count * count, 1.0)
    return NoiseEstimate(xp.where(enough, variance, 0.0), xp.where(enough, signal, 0.0), square, spread, count)


def trail_products(trail: Any, mean: Any) -> TrailProducts:
    """Return how the mean gradient lies to the trail of those before it; both are an array, or a list of layers."""
    return TrailProducts(layers_dot(trail, mean), layers_dot(trail, trail))


def extend_trail(trail: Any, mean: Any) -> Any:
    """Return the trail with this round's mean gradient added: an array, or a list of layers, as they came."""

    def extended(old: Array, new: Array) -> Array:
        return TRAIL * old + new

    return over_layers(extended, trail, mean)


def first_filter(num_agents: int) -> NoiseFilter:
    """Return what is believed before the first round."""
    check_positive_integer("num_agents", num_agents)
    nothing, unknown = np.zeros(()), np.zeros(POINTS)
    return NoiseFilter(
        rounds=nothing, variance=nothing, weight=nothing, freedom=np.asarray(FIRST_DIMENSION), scatter=np.ones(()),
        lean=nothing, lean_weight=nothing, excess=nothing, excess_weight=nothing, step=nothing,
        crowd=np.asarray(float(num_agents)), noise_scale=nothing,
        signal=unknown, signal_variance=unknown, turn=unknown, turn_variance=unknown, log_weight=_GUESSED.copy(),
    )  # fmt: skip


def update_filter(
    state: NoiseFilter, noise: NoiseEstimate, request: Any, products: TrailProducts, curvature: Any
) -> NoiseFilter:
    """Return what is believed after a round; `step` is the one to take now, `noise_scale` that of the next round.

    A round with fewer than two participants, or without any gradient at all, says nothing: its step is 0.
    """
    xp = namespace(noise.signal)
    state = NoiseFilter(*(xp.asarray(part, dtype=noise.signal.dtype) for part in state))
    informative = (noise.count > 1) & (noise.square + noise.variance > 0)
    after = _advance(xp, state, _usable(xp, noise, informative), request, products, curvature)
    kept = NoiseFilter(*(xp.where(informative, new, old) for new, old in zip(after, state, strict=True)))
    return kept._replace(step=xp.where(informative, after.step, 0.0))


def _advance(
    xp: Namespace, state: NoiseFilter, noise: NoiseEstimate, request: Any, products: TrailProducts, curvature: Any
) -> NoiseFilter:
    before = _variance(xp, state)
    state = state._replace(
        rounds=state.rounds + 1,
        variance=RECENT * state.variance + noise.variance,
        weight=RECENT * state.weight + 1,
        crowd=RECENT * state.crowd + (1 - RECENT) * noise.count,
    )
    # Without any noise at all the unit is a trillionth of the signal: then noise is nothing beside it.
    unit = xp.clip(_variance(xp, state), 1e-12 * noise.square, None)
    state, observed = _see(xp, state, noise, request, products, unit)
    state = _correct(xp, _rescale(state, before / unit), observed)
    return _decide(xp, state, observed, curvature * xp.exp(xp.asarray(_OFFSETS, dtype=unit.dtype)))


def _see(
    xp: Namespace, state: NoiseFilter, noise: NoiseEstimate, request: Any, products: TrailProducts, unit: Array
) -> tuple[NoiseFilter, _ScaledRound]:
    """Return the round in units of σ², and the effective dimension of the noise with this round added.

    The variance of a ‖m‖² estimate is (2v² + 4‖m‖²v)/dimension, v = σ²/(nν); the jackknife has the first part twice.
    """
    v = 1 / (noise.count * xp.asarray(request, dtype=unit.dtype))
    square, signal = noise.square / unit, noise.signal / unit
    freedom = 4 + 4 * xp.clip(signal, 0.0, None) / v
    spread = noise.signal_variance / unit / unit / v / v
    several = spread > 0  # two participants do not tell
    state = state._replace(
        freedom=xp.where(several, WATCH * state.freedom + freedom, state.freedom),
        scatter=xp.where(several, WATCH * state.scatter + spread, state.scatter),
    )
    dimension = xp.clip(state.freedom / state.scatter, 1.0, 1e6)
    turn, length = (xp.asarray(x, dtype=unit.dtype) / unit for x in products)
    return state, _ScaledRound(v, square, signal, turn, dimension, length * v / dimension + 1e-6 * v * v)


def _correct(xp: Namespace, state: NoiseFilter, observed: _ScaledRound) -> NoiseFilter:
    """Return the beliefs corrected by what was seen, each weighed by how well it had predicted that."""
    first = state.rounds < 2
    predicted = xp.clip(state.signal, 0.0, None)
    signal_noise = _signal_noise(observed, xp.where(first, xp.clip(observed.signal, 0.0, None), predicted))
    prior = xp.where(first, 1e6 * signal_noise, state.signal_variance)
    signal, signal_variance, fit = _blend(xp, state.signal, prior, observed.signal, signal_noise)
    turn, turn_variance, turn_fit = _blend(xp, state.turn, state.turn_variance, observed.turn, observed.turn_noise)
    guessed = xp.asarray(_GUESSED, dtype=signal.dtype)
    log_weight = MEMORY * state.log_weight + (1 - MEMORY) * guessed + xp.where(first, 0.0, fit + turn_fit)
    log_weight = log_weight - xp.max(log_weight)
    log_weight = xp.clip(log_weight - xp.log(xp.sum(xp.exp(log_weight))), UNLIKELY, None)
    least = FAINT * xp.sqrt(signal_variance)
    corrected = state._replace(
        signal=xp.where(signal > least, signal, least), signal_variance=signal_variance, log_weight=log_weight,
        turn=xp.where(first, 0.0, turn), turn_variance=xp.where(first, 0.0, turn_variance),
    )  # fmt: skip
    return _regress(xp, corrected, observed, predicted)


def _regress(xp: Namespace, state: NoiseFilter, observed: _ScaledRound, predicted: Array) -> NoiseFilter:
    """Return the sums behind κ and ζ with this round added; the first has no prediction and no trail."""
    later = xp.where(state.rounds > 1, 1.0, 0.0)
    before, now = _mean(xp, state, predicted), _mean(xp, state, state.signal)
    noise = _signal_noise(observed, before)
    return state._replace(
        excess=WATCH * state.excess + later * observed.signal * before / noise,
        excess_weight=WATCH * state.excess_weight + later * before * before / noise,
        lean=STEADY * state.lean + later * observed.turn * now / observed.turn_noise,
        lean_weight=STEADY * state.lean_weight + later * now * now / observed.turn_noise,
    )


def _signal_noise(observed: _ScaledRound, signal: Array) -> Array:
    """Return the variance of one round's estimate of a ‖m‖² that is `signal`."""
    return (2 * observed.noise + 4 * signal) * observed.noise / observed.dimension


def _blend(
    xp: Namespace, predicted: Array, variance: Array, observed: Array, seen_variance: Array
) -> tuple[Array, Array, Array]:
    """Return Kalman's mean and variance, and the log-likelihood of what was seen."""
    total = variance + seen_variance
    gain, surprise = variance / total, observed - predicted
    return predicted + gain * surprise, gain * seen_variance, -(surprise**2 / total + xp.log(total)) / 2


def _decide(xp: Namespace, state: NoiseFilter, observed: _ScaledRound, curvatures: Array) -> NoiseFilter:
    """Return the beliefs with the step they suggest, and what they predict for the next round after that step."""
    trust = 1 / DOUBT**2
    kappa = xp.clip((trust + state.excess) / (trust + state.excess_weight), 0.25, 4.0)
    zeta = state.lean / (1 + state.lean_weight)
    strong = kappa * xp.clip(1 + PERSISTENCE * zeta, 0.5, 3.0) * _mean(xp, state, state.signal)
    step = strong / _mean(xp, state, curvatures * (kappa * state.signal + observed.noise))
    longest = xp.where(state.step > 0, GROWTH * state.step, step)
    step = xp.where(step < longest, step, longest)
    after = _predict(state, observed, xp.clip(step * curvatures, None, OVERSHOOT))
    return after._replace(step=step, noise_scale=1 / strong)


def _mean(xp: Namespace, state: NoiseFilter, values: Array) -> Array:
    weight = xp.exp(state.log_weight)
    return xp.sum(weight * values) / xp.sum(weight)


def _predict(state: NoiseFilter, observed: _ScaledRound, moved: Array) -> NoiseFilter:
    """Return the beliefs of the next round; `moved` is ηL for each curvature."""
    signal, v = state.signal, observed.noise
    off = (MODEL_ERROR * signal) ** 2
    # ⟨m, ḡ⟩ is ‖m‖² and half of what ‖ḡ‖² has more than expected, as far as that is due to ⟨m, noise⟩.
    share = 2 * signal / (2 * signal + v)
    along = signal + share / 2 * (observed.square - v - signal)
    along_variance = state.signal_variance * (1 - share / 2) ** 2 + (1 - share) * signal * v / observed.dimension
    return state._replace(
        signal=signal * (1 - moved) ** 2 + moved**2 * v,
        signal_variance=state.signal_variance * (1 - moved) ** 4 + off,
        turn=TRAIL * state.turn + along - moved * (TRAIL * observed.turn + observed.square),
        turn_variance=TRAIL**2 * state.turn_variance + along_variance + off,
    )


def _rescale(state: NoiseFilter, ratio: Array) -> NoiseFilter:
    """Return the beliefs in a unit of σ² that is `ratio` times smaller."""
    return state._replace(
        signal=ratio * state.signal, signal_variance=ratio**2 * state.signal_variance,
        turn=ratio * state.turn, turn_variance=ratio**2 * state.turn_variance,
    )  # fmt: skip


def _variance(xp: Namespace, state: NoiseFilter) -> Array:
    return state.variance / xp.where(state.weight > 0, state.weight, 1.0)


def _usable(xp: Namespace, noise: NoiseEstimate, informative: Array) -> NoiseEstimate:
    """Return a round that can be computed with, whatever was seen; where nothing was, the result is not used."""
    stand_in = (1.0, 1.0, 1.0, 0.0, 2.0)
    return NoiseEstimate(*(xp.where(informative, x, y) for x, y in zip(noise, stand_in, strict=True)))


_OFFSETS = np.linspace(-DECADES, DECADES, POINTS) * math.log(10)  # ln L relative to the first guess
_UNSCALED = np.exp(-((_OFFSETS / GUESS) ** 2) / 2)
_GUESSED = np.log(_UNSCALED / np.sum(_UNSCALED))  # the logarithms of their weights before the first round
