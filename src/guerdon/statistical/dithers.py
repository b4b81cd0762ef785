"""Dithered broadcast: the server asks for gradients beside the model, so that there is always something to learn.

Near convergence the gradient is no surprise, and information pay has nothing to pay for. The server therefore asks for
gradients at θ + u and in the next round at θ − u, with u fresh, random and known to nobody in advance, and steps once
per pair of rounds along the mean of both. To first order the answers H·u and −H·u cancel, so training is undisturbed,
while ‖m − p‖² is at least ‖H·u‖², which no public record ever shows. An agent that knows H can still compute
it: a server that must expect this predicts it too (`Extrapolation`), and what is left counts.

Agents that send models train from θ ± u. Their moves are compared as gradients are, and the model steps in every round:
over a pair the answers to u cancel to first order. Nobody but the server may then see θ before the pair has ended, or
the answer to θ + u gives the one to θ − u away.

A pair has one weakness: an agent may work in its first round only, and send the opposite of what it found in the second
(a *mirror*). In a longer `block` no broadcast is another one's opposite; the offsets of all its rounds cancel, and the
model steps once in a block, so that `step` has to be as many times larger. With blocks of four a mirror loses.

How long u must be: information pay turns public knowledge into a loss once the noise scale B = σ²/‖m − p‖² is below
`noise_scale_bound`. Against agents that know more than what is public, and for pay that is not mostly noise, B must be
about the request ν. The server aims at that, whatever the bound is: u does not get shorter when ν grows. It measures B
as if all but the dither were predicted: each of a pair's mean gradients differs from its prediction, and half the
difference of the two is H·u and noise. A longer u lowers B. But where gradients get noisier with ‖u‖ (as in linear
regression) it also disturbs training. So u is just as long as it needs to be, and at most `largest`. Where that does
not suffice, `DitherState.noise_scale` says so.
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

import secrets
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from guerdon.arrays import (
    Array,
    check_number,
    check_positive_integer,
    is_array,
    is_numpy,
    is_traced,
    layers_dot,
    namespace,
    over_layers,
    zeros_like,
)
from guerdon.asking import Ask, Reading
from guerdon.broadcast import Shown, StepObservation
from guerdon.costs import Cost, check_is_cost
from guerdon.rule import as_request
from guerdon.states import choose_state
from guerdon.statistical.information import noise_scale_bound

MARGIN = 0.7  # the noise scale aimed at, relative to the bound, where that is below the request
MEMORY = 0.8  # weight of a pair in what is believed of the noise scale, relative to the pair after it
CAUTION = 0.5  # how much of the way to the length that seems right is gone in a pair
QUICKEST = 2.0  # by how much the length may change from pair to pair


def dither_in(server: Any) -> "Dither | None":
    """Return a server's dither; None where it asks at the model itself."""
    return server.broadcast if isinstance(server.broadcast, Dither) else None


class MeanNoise(NamedTuple):
    """The noise of a mean gradient: the variance of a single sample's, and how many samples there were in all."""

    variance: Array
    samples: Array


class DitherState(NamedTuple):
    """Where a block of rounds stands, and what is believed of the noise scale."""

    offset: Any  # u of this round
    offsets: Any  # sum of those that are answered
    means: Any  # and of the mean gradients there
    surprises: Any  # and of what those differed by from the prediction
    length: Array  # ‖u‖
    signal: Array  # decayed sum of ‖H·u‖²/(σ²·‖u‖²), as far as H·u was not predicted
    weight: Array  # and of pairs
    answered: Array  # rounds of the block, so far

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

    With a `block` of more than two it broadcasts so many θ + u in turn, whose u cancel, and steps once in a block.

    It aims at a noise scale of about the request, and below the bound of the cost, but not below `finest`: say what is
    attainable where that is not, so that ‖u‖ does not grow to `largest` for nothing. Without a cost ‖u‖ stays `length`.
    """

    length: float
    cost: Cost | None = None
    largest: float = 2.0
    finest: float = 0.0
    block: int = 2

    learns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.cost is not None:
            check_is_cost(self.cost)
        for name, value in (("length", self.length), ("largest", self.largest)):
            check_number(name, value, minimum=0, inclusive=False)
        check_number("finest", self.finest, minimum=0)
        check_positive_integer("block", self.block)
        if self.cost is not None and self.length > self.largest:
            raise ValueError(
                f"`length` must be at most `largest` ({self.largest:g}), got {self.length:g}: give a larger `largest`, "
                "or no `cost`, and it stays as it is"
            )
        if self.block < 2:
            raise ValueError(f"`block` must be at least 2, so that offsets can cancel, got {self.block}")

    def init(self, model: Any) -> DitherState:
        """Return the state before the first round."""
        nothing = zeros_like(model)
        zero = 0.0 * layers_dot(model, model)
        none = np.zeros((), dtype=np.int32)
        return DitherState(nothing, nothing, nothing, nothing, self.length + zero, zero, zero, none)

    def ends(self, state: DitherState) -> Array:
        """Tell whether this round is the last of its block."""
        return namespace(state.length).asarray(state.answered == self.block - 1)

    def place(self, state: DitherState, model: Any, normals: Any) -> tuple[Any, DitherState]:
        """Return the model to broadcast; `normals` are fresh, in the model's shape (default: secret ones).

        Of the k offsets that are left each is −1/k of the sum so far, and something new at right angles to that sum. So
        all are of one length, and the last one brings the sum to zero.
        """
        normals = _secret(model) if normals is None else normals
        xp = namespace(state.length)
        left = self.block - xp.astype(xp.asarray(state.answered), state.length.dtype)
        square = layers_dot(state.offsets, state.offsets)
        along = xp.where(square > 0, layers_dot(normals, state.offsets) / xp.where(square > 0, square, 1.0), 0.0)
        new = over_layers(lambda z, s: z - along * s, normals, state.offsets)
        rest = xp.where(left > 1, state.length**2 - square / left**2, 0.0)
        size = layers_dot(new, new)
        scale = xp.sqrt(xp.where((rest > 0) & (size > 0), rest / xp.where(size > 0, size, 1.0), 0.0))
        offset = over_layers(lambda z, s: scale * z - s / left, new, state.offsets)
        return over_layers(lambda m, u: m + u, model, offset), state._replace(offset=offset)

    def observe(
        self, state: DitherState, model: Any, mean: Any, prediction: Any, noise: MeanNoise
    ) -> tuple[StepObservation, DitherState]:
        """Return what the block has shown, of use only if this was its last round, and the next state.

        `mean` is the mean gradient of the round, `prediction` what it was predicted to be.
        """
        ends = self.ends(state)
        surprise = over_layers(lambda a, b: a - b, mean, prediction)
        sums = [
            over_layers(lambda old, new: old + new, old, new)
            for old, new in ((state.offsets, state.offset), (state.means, mean), (state.surprises, surprise))
        ]
        middle, average = (over_layers(lambda part: part / self.block, part) for part in sums[1:])
        xp = namespace(state.length)
        usable = ends & (noise.variance > 0) & (noise.samples > 0)
        unit, samples = xp.where(usable, noise.variance, 1.0), xp.where(usable, noise.samples, 1.0)
        unforeseen = over_layers(lambda a, b: a - b, surprise, average)
        # Without bias: the noise of a mean less that of a block of them is 1 − 1/block of it.
        answer = (layers_dot(unforeseen, unforeseen) / unit - (1 - 1 / self.block) / samples) / state.length**2
        offsets, means, surprises = (
            over_layers(lambda part: namespace(part).where(ends, 0 * part, part), part) for part in sums
        )
        after = state._replace(
            offsets=offsets,
            means=means,
            surprises=surprises,
            signal=xp.where(usable, MEMORY * state.signal + answer, state.signal),
            weight=xp.where(usable, MEMORY * state.weight + 1, state.weight),
            answered=xp.where(ends, 0 * state.answered, state.answered + 1),
        )
        response = over_layers(lambda a, b: a - b, mean, middle)
        return StepObservation(model, middle, state.offset, response), after

    def settle(self, state: DitherState, ask: Ask, reading: Reading, mean: Any) -> tuple[Shown, DitherState]:
        """Return what a round with this mean has shown: a step is taken, and something learned, where a block ends.

        A round in which nobody is heard teaches nothing: its part of the block is asked for again.
        """
        xp = namespace(reading.error.signal)
        heard, used = xp.any(reading.used), xp.sum(xp.astype(reading.used, reading.error.signal.dtype))
        noise = MeanNoise(reading.error.variance, used * as_request(reading.evidence, ask.request))
        observation, after = self.observe(state, ask.origin, mean, ask.prediction, noise)
        ends = heard & self.ends(state)
        adapted = choose_state(ends, lambda: self.adapt(after, ask.request), after)
        shown = Shown(observation, ends, ends, after.noise_scale, state.length)
        return shown, choose_state(heard, lambda: adapted, state)

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


def _secret(model: Any) -> Any:
    """Return fresh normal numbers, or raise where a compiled function would draw them once for all."""
    if is_traced(*([model] if is_array(model) else model)):
        raise ValueError(
            "`normals` must be given under a dither in a compiled function: fresh normal numbers in the model's shape, "
            "such as jax.random.normal(key, model.shape)"
        )
    return secret_normals(model)


def secret_normals(model: Any) -> Any:
    """Return normal numbers in the form of a model, drawn from the operating system's randomness.

    A real server places its dither with these: nothing that was drawn before helps to predict them.
    """
    rng = np.random.default_rng(secrets.randbits(256))

    def draw(part: Array) -> Array:
        drawn = rng.standard_normal(part.shape)
        return drawn if is_numpy(part) else namespace(part).asarray(drawn, dtype=part.dtype, device=part.device)

    return over_layers(draw, model)
