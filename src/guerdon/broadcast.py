"""Where gradients are taken: at the model (`AtModel`), or beside it (`guerdon.statistical.dithers`).

state = broadcast.init(model)                                  before the first round
placed, state = broadcast.place(state, model, normals)         what agents are sent
shown, state = broadcast.settle(state, ask, reading, mean)     once the round's mean is known
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from guerdon.arrays import Array, namespace
from guerdon.asking import Ask, Reading
from guerdon.states import NoState


class StepObservation(NamedTuple):
    """What a step shows: the model it started from, and the mean gradient it was taken along.

    Where the model was broadcast dithered, by ±`offset`, `response` is half the difference of the two gradients.
    """

    model: Any
    mean: Any
    offset: Any = None
    response: Any = None


class Shown(NamedTuple):
    """What a round has shown of the gradient where it was taken."""

    observation: StepObservation  # what the server learns from, where there is a step
    heard: Array  # whether there is something to learn
    steps: Array  # whether the model takes a step
    noise_scale: Array  # that the dither made, as the last pairs had it; infinite without one
    offset: Array  # how far from the model the gradients were taken


class Broadcast(Protocol):
    """Where gradients are taken."""

    learns: ClassVar[bool]  # whether it wants the mean of the reports

    def init(self, model: Any) -> Any:
        """Return the state before the first round, for a model in this form."""
        ...

    def place(self, state: Any, model: Any, normals: Any) -> tuple[Any, Any]:
        """Return the model to broadcast, and the next state.

        - `model`: that a step is taken from.
        - `normals`: fresh standard normal numbers in the model's form. None: the broadcast draws its own, if it needs
          any.
        """
        ...

    def settle(self, state: Any, ask: Ask, reading: Reading, mean: Any) -> tuple[Shown, Any]:
        """Return what a round has shown of the gradient, and the next state.

        - `ask`: what the server asked for.
        - `reading`: how the reports compare.
        - `mean`: of the reports that the model is made from, in the model's form.
        """
        ...


@dataclass(frozen=True)
class AtModel:
    """Broadcasts the model itself, and steps in every round.

    >>> import numpy as np
    >>> AtModel().place(AtModel().init(np.zeros(2)), np.array([1.0, 2.0]), normals=None)[0]
    array([1., 2.])
    """

    learns: ClassVar[bool] = False

    def init(self, model: Any) -> NoState:
        """Return nothing."""
        del model
        return NoState()

    def place(self, state: NoState, model: Any, normals: Any) -> tuple[Any, NoState]:
        """Return the model."""
        del normals
        return model, state

    def settle(self, state: NoState, ask: Ask, reading: Reading, mean: Any) -> tuple[Shown, NoState]:
        """Return the mean as it is."""
        xp, nothing = namespace(reading.error.signal), 0 * reading.error.signal
        heard = xp.any(reading.used)
        return Shown(StepObservation(ask.origin, mean), heard, heard | True, xp.inf + nothing, nothing), state
