"""Dithered broadcast: the server asks for gradients beside the model, so that there is always something to learn.

Near convergence the gradient is no surprise, and information pay has nothing to pay for. The server therefore asks for
gradients at θ + u and in the next round at θ − u, with u fresh, random and known to nobody in advance, and steps once
per pair of rounds along the mean of both. To first order the answers H·u and −H·u cancel, so training is undisturbed,
while ‖m − p‖² is at least ‖H·u‖², which no public record ever shows. An agent that knows H can still compute
it: a server that must expect this predicts it too (`guerdon.predictions.Extrapolation`), and what is left counts.

Agents that send models train from θ ± u. Their moves are compared as gradients are, and the model steps in every round:
over a pair the answers to u cancel to first order. Nobody but the server may then see θ before the pair has ended, or
the answer to θ + u gives the one to θ − u away.

How long u must be: information pay turns public knowledge into a loss once the noise scale B = σ²/‖m − p‖² is below
`noise_scale_bound`. Against agents that know more than what is public, and for pay that is not mostly noise, it must be
about the request ν. So that is aimed at, whatever the bound is: u does not get shorter when ν grows. Half the
difference of what a pair's mean gradients differ by from their predictions is H·u and noise, so the server sees B as it
would be if all but the dither were predicted. A longer u lowers it, but where gradients get noisier with ‖u‖ (they do
in linear regression) also disturbs training; so u is made just as long as it needs to be, at most `largest`. Where that
does not suffice, `DitherState.noise_scale` says so.
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import secrets
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, check_number, layers_dot, namespace, over_layers, zeros_like
from guerdon.costs import Cost
from guerdon.predictions import StepObservation
from guerdon.rules import noise_scale_bound

MARGIN = 0.7  # the noise scale aimed at, relative to the bound, where that is below the request
MEMORY = 0.8  # weight of a pair in what is believed of the noise scale, relative to the pair after it
CAUTION = 0.5  # how much of the way to the length that seems right is gone in a pair
QUICKEST = 2.0  # by how much the length may change from pair to pair


class MeanNoise(NamedTuple):
    """The noise of a mean gradient: the variance of a single sample's, and how many samples there were in all."""

    variance: Array
    samples: Array


class DitherState(NamedTuple):
    """Where a pair of rounds stands, and what is believed of the noise scale."""

    offset: Any  # u
    first: Any  # the mean gradient at θ + u
    surprise: Any  # and what it differed by from the prediction
    length: Array  # ‖u‖
    signal: Array  # decayed sum of ‖H·u‖²/(σ²·‖u‖²), as far as H·u was not predicted
    weight: Array  # and of pairs
    second: Array  # 1 where θ + u is answered already, and θ − u is next

    @property
    def noise_scale(self) -> Array:
        """σ²/‖H·u‖² at the present ‖u‖, as the last pairs had it; infinite where there was no answer to the dither."""
        xp = namespace(self.signal)
        positive = self.signal > 0
        signal = xp.where(positive, self.signal, 1.0) * self.length**2
        return xp.where(positive, self.weight / signal, xp.inf)


@dataclass(frozen=True)
class Dither:
    """Broadcasts θ + u and θ − u in turn, ‖u‖ as long as `cost` needs it to be, from `length` on and at most `largest`.

    It aims at a noise scale of about the request, and below the bound of the cost, but not below `finest`: say what is
    attainable where that is not, so that ‖u‖ does not grow to `largest` for nothing. Without a cost ‖u‖ stays `length`.
    """

    length: float
    cost: Cost | None = None
    largest: float = 2.0
    finest: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("length", self.length), ("largest", self.largest)):
            check_number(name, value, minimum=0, inclusive=False)
        check_number("finest", self.finest, minimum=0)

    def init(self, model: Any) -> DitherState:
        """Return the state before the first round."""
        nothing = zeros_like(model)
        zero = 0.0 * layers_dot(model, model)
        return DitherState(nothing, nothing, nothing, self.length + zero, zero, zero, np.zeros((), dtype=np.int32))

    def place(self, state: DitherState, model: Any, normals: Any) -> tuple[Any, DitherState]:
        """Return the model to broadcast; `normals` are fresh, in the model's shape, and used once per pair."""
        xp = namespace(state.length)
        first = xp.asarray(state.second == 0)
        scale = state.length / xp.sqrt(layers_dot(normals, normals))
        offset = over_layers(lambda old, z: namespace(z).where(first, scale * z, old), state.offset, normals)
        sign = xp.where(first, 1.0, -1.0)
        return over_layers(lambda m, u: m + sign * u, model, offset), state._replace(offset=offset)

    def observe(
        self, state: DitherState, model: Any, mean: Any, prediction: Any, noise: MeanNoise
    ) -> tuple[StepObservation, DitherState]:
        """Return what the pair has shown, of use only if this was its second round, and the next state.

        `mean` is the mean gradient of the round, `prediction` what it was predicted to be.
        """
        response = over_layers(lambda a, b: (a - b) / 2, state.first, mean)
        both = over_layers(lambda a, b: (a + b) / 2, state.first, mean)
        xp = namespace(state.length)
        usable = xp.asarray(state.second == 1) & (noise.variance > 0) & (noise.samples > 0)
        unit, samples = xp.where(usable, noise.variance, 1.0), xp.where(usable, noise.samples, 1.0)
        # Without bias: the noise of half a difference of two means is half that of one.
        surprise = over_layers(lambda a, b: a - b, mean, prediction)
        unforeseen = over_layers(lambda a, b: (a - b) / 2, state.surprise, surprise)
        answer = (layers_dot(unforeseen, unforeseen) / unit - 0.5 / samples) / state.length**2
        after = state._replace(
            first=mean,
            surprise=surprise,
            signal=xp.where(usable, MEMORY * state.signal + answer, state.signal),
            weight=xp.where(usable, MEMORY * state.weight + 1, state.weight),
            second=1 - state.second,
        )
        return StepObservation(model, both, state.offset, response), after

    def adapt(self, state: DitherState, request: Any) -> DitherState:
        """Return the state with ‖u‖ as long as it seems to need to be for the next pair: B falls as 1/‖u‖²."""
        if self.cost is None:
            return state
        xp = namespace(state.length)
        bound, asked = (
            xp.asarray(x, dtype=state.length.dtype) for x in (MARGIN * noise_scale_bound(self.cost, request), request)
        )
        target = xp.clip(xp.where(bound < asked, bound, asked), self.finest, None)
        excess = state.noise_scale / target
        ratio = xp.clip(xp.sqrt(excess), 1 / QUICKEST, QUICKEST) ** CAUTION
        length = xp.clip(state.length * ratio, 0.01 * self.largest, self.largest)
        return state._replace(length=xp.where(state.weight > 0, length, state.length))


def secret_normals(model: Any) -> Any:
    """Return normal numbers in the shape of a NumPy model, drawn from the operating system's randomness.

    A real server places its dither with these: nothing that was drawn before helps to predict them.
    """
    rng = np.random.default_rng(secrets.randbits(256))
    return over_layers(lambda part: rng.standard_normal(part.shape), model)
