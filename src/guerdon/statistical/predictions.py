"""How the server predicts a round's gradient from public history: what information pay measures improvements on.

A prediction has three pure functions, the same in a simulation and in a server. Gradients and models are arrays, or
lists of layers:

    state = prediction.init(model)                    before the first round
    p = prediction.predict(state, model)              for the gradient at the model that is broadcast
    state = prediction.learn(state, observation)      once a step is taken

Only what everybody can read from the broadcasts goes into it: the mean gradient of each step, never that of one half of
a pair (see `guerdon.statistical.dithers`).
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from guerdon.arrays import Array, check_number, layers_dot, namespace, over_layers, zeros_like
from guerdon.broadcast import StepObservation
from guerdon.states import NoState

LARGEST_SLOPE = 1.5  # a regression coefficient is not believed beyond this


class Prediction(Protocol):
    """A public prediction of the next gradient."""

    def init(self, model: Any) -> Any:
        """Return the state before the first round."""
        ...

    def predict(self, state: Any, model: Any) -> Any:
        """Return the prediction of the gradient at a model."""
        ...

    def learn(self, state: Any, observation: StepObservation) -> Any:
        """Return the state after a step."""
        ...


@dataclass(frozen=True)
class ZeroPrediction:
    """Predicts no gradient at all: information pay then measures agreement from 0, as nothing were known."""

    def init(self, model: Any) -> NoState:
        """Return nothing."""
        del model
        return NoState()

    def predict(self, state: NoState, model: Any) -> Any:
        """Return zeros."""
        del state
        return zeros_like(model)

    def learn(self, state: NoState, observation: StepObservation) -> NoState:
        """Return nothing."""
        del observation
        return state


class RunningMeanState(NamedTuple):
    """The running mean of mean gradients, and the sums whose ratio is the regression coefficient on it."""

    total: Any
    weight: Array
    agreement: Array
    length: Array


@dataclass(frozen=True)
class RunningMean:
    """Predicts β times the running mean of past mean gradients; β by regression of each on the mean before it.

    Each step weighs `decay` times the one after it in the mean, and `steady` times in the regression. Noise in the mean
    lowers β, so the prediction is never much worse than none.
    """

    decay: float = 0.8
    steady: float = 0.9

    def __post_init__(self) -> None:
        for name, value in (("decay", self.decay), ("steady", self.steady)):
            check_number(name, value, minimum=0)
            if value >= 1:
                raise ValueError(f"`{name}` must be below 1, got {value!r}")

    def init(self, model: Any) -> RunningMeanState:
        """Return no gradient and no regression."""
        zero = 0.0 * layers_dot(model, model)
        return RunningMeanState(zeros_like(model), zero, zero, zero)

    def predict(self, state: RunningMeanState, model: Any) -> Any:
        """Return β times the mean."""
        del model
        factor = _ratio(state.agreement, state.length) / _positive(state.weight)
        return over_layers(lambda part: factor * part, state.total)

    def learn(self, state: RunningMeanState, observation: StepObservation) -> RunningMeanState:
        """Return the mean and the regression with this step added."""
        weight = _positive(state.weight)
        unit = _positive(
            layers_dot(observation.mean, observation.mean)
        )  # long gradients of an early step must not rule for long
        total = over_layers(lambda old, new: self.decay * old + new, state.total, observation.mean)
        return RunningMeanState(
            total,
            self.decay * state.weight + 1,
            self.steady * state.agreement + layers_dot(state.total, observation.mean) / weight / unit,
            self.steady * state.length + layers_dot(state.total, state.total) / weight**2 / unit,
        )


class ExtrapolationState(NamedTuple):
    """The running mean, the model it belongs to, and the sums whose ratio is the curvature."""

    running: RunningMeanState
    models: Any
    along: Array
    moved: Array


@dataclass(frozen=True)
class Extrapolation:
    """Predicts from the running mean and how far the model has moved since: β·mean + κ·(θ − mean of the models).

    κ is one curvature for all directions, read from how the gradient responds to a dithered broadcast. An agent that
    knows the problem can do the same. So where the loss is equally curved in all directions, a server that does not is
    exploited, and one that does finds that there is little left to pay for.
    """

    decay: float = 0.8

    def __post_init__(self) -> None:
        RunningMean(self.decay)  # which checks it

    def init(self, model: Any) -> ExtrapolationState:
        """Return no gradient, no model and no curvature."""
        running = RunningMean(self.decay).init(model)
        return ExtrapolationState(running, zeros_like(model), running.weight, running.weight)

    def predict(self, state: ExtrapolationState, model: Any) -> Any:
        """Return the mean, moved along the curvature."""
        mean = RunningMean(self.decay).predict(state.running, model)
        curvature = _ratio(state.along, state.moved, largest=None)
        weight = _positive(state.running.weight)
        factor = namespace(state.running.weight).where(state.running.weight > 0, curvature, 0.0)
        return over_layers(lambda p, old, now: p + factor * (now - old / weight), mean, state.models, model)

    def learn(self, state: ExtrapolationState, observation: StepObservation) -> ExtrapolationState:
        """Return the mean, the models and the curvature with this step added."""
        running = RunningMean(self.decay).learn(state.running, observation)
        models = over_layers(lambda old, new: self.decay * old + new, state.models, observation.model)
        along, moved = state.along, state.moved
        if observation.offset is not None:
            along = self.decay * along + layers_dot(observation.offset, observation.response)
            moved = self.decay * moved + layers_dot(observation.offset, observation.offset)
        return ExtrapolationState(running, models, along, moved)


def _positive(weight: Array) -> Array:
    return namespace(weight).where(weight > 0, weight, 1.0)


def _ratio(numerator: Array, denominator: Array, largest: float | None = LARGEST_SLOPE) -> Array:
    """Return a regression coefficient of at least 0; 0 where there is nothing to regress on."""
    xp = namespace(numerator)
    ratio = xp.where(denominator > 0, numerator / _positive(denominator), 0.0)
    return xp.clip(ratio, 0.0, largest)
