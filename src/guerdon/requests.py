"""How the server chooses what to ask for: the batch size ν_t and the step size η_t of each round.

A policy has three pure functions, the same in a simulation and in a server:

    state = policy.init(model, num_agents)            before the first round
    request = policy.ask(state, round)                ν_t; 0 ends the training
    step, state = policy.observe(state, outcome)      η_t, once the round's gradients are in

The step is chosen after the gradients were seen: they tell how much of their mean is noise. A policy whose `learns` is
true looks at them, and at how their mean lies to the means before it: agents must send gradients. The state is a
NamedTuple of arrays.
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from guerdon.arrays import (
    Array,
    check_number,
    check_positive_integer,
    namespace,
)
from guerdon.evidence import Evidence
from guerdon.states import NoState


class Outcome(NamedTuple):
    """What a round brought: what was asked, what was sent (evidence gathered without a prediction), what it cost."""

    request: Array  # ν, in samples
    evidence: Evidence
    mean: Any  # gradient, an array or a list of layers
    paid: Array  # to all agents together, in units of money


class Requests(Protocol):
    """A policy for ν_t and η_t."""

    learns: ClassVar[bool]  # whether it looks at the gradients

    def largest(self, rounds: int) -> int:
        """Return the largest request within so many rounds, in samples."""
        ...

    def init(self, model: Any, num_agents: int) -> Any:
        """Return the state before the first round, for a model in this form and so many agents."""
        ...

    def ask(self, state: Any, round: Array) -> Array:
        """Return ν_t, in samples, for round number `round` (0 for the first); 0 ends the training."""
        ...

    def observe(self, state: Any, outcome: Outcome) -> tuple[Array, Any]:
        """Return η_t, the step along the mean gradient, once the round's gradients are in, and the next state."""
        ...

    def for_agents(self, state: Any, num_agents: float) -> Any:
        """Return the state where another number of agents will be asked."""
        del num_agents
        return state


@dataclass(frozen=True)
class FixedRequest(Requests):
    """The same request and step in every round: what the paper does.

    - `batch_size`: ν, in samples; at least 1.
    - `step`: η, at least 0: the next model is model − η · mean gradient.

    >>> policy = FixedRequest(16, step=0.1)
    >>> policy.ask(policy.init(np.zeros(2), num_agents=6), round=0)
    16
    """

    batch_size: int
    step: float

    learns = False

    def __post_init__(self) -> None:
        check_positive_integer("batch_size", self.batch_size)
        check_number("step", self.step, minimum=0)

    def largest(self, rounds: int) -> int:
        """Return the request."""
        del rounds
        return int(self.batch_size)

    def init(self, model: Any, num_agents: int) -> NoState:
        """Return nothing."""
        del model
        check_positive_integer("num_agents", num_agents)
        return NoState()

    def ask(self, state: NoState, round: Array) -> Array:
        """Return the request."""
        del state, round
        return self.batch_size

    def observe(self, state: NoState, outcome: Outcome) -> tuple[Array, NoState]:
        """Return the step."""
        del outcome
        return self.step, state


class ScheduleState(NamedTuple):
    """The state of a schedule: the rounds so far."""

    rounds: Array


@dataclass(frozen=True)
class ScheduledRequest(Requests):
    """A request and a step for each round; after the last, the last one again.

    - `batch_sizes`: ν_t, in samples, one for each round.
    - `steps`: η_t, one for each round.

    >>> policy = ScheduledRequest([4, 8], steps=[0.2, 0.1])
    >>> state = policy.init(np.zeros(2), num_agents=6)
    >>> [int(policy.ask(state, np.asarray(number))) for number in range(3)]
    [4, 8, 8]
    """

    batch_sizes: Array | Sequence[int]
    steps: Array | Sequence[float]

    learns = False

    def __post_init__(self) -> None:
        sizes, steps = list(self.batch_sizes), list(self.steps)
        if not sizes or len(sizes) != len(steps):
            raise ValueError(
                f"`batch_sizes` and `steps` must have one entry per round, got {len(sizes)} and {len(steps)}"
            )
        for size, step in zip(sizes, steps, strict=True):
            check_positive_integer("batch_sizes", size)
            check_number("steps", step, minimum=0)
        object.__setattr__(self, "batch_sizes", np.asarray(sizes))
        object.__setattr__(self, "steps", np.asarray(steps, np.float32))

    def largest(self, rounds: int) -> int:
        """Return the largest request of the first so many rounds."""
        return int(np.max(np.asarray(self.batch_sizes)[:rounds]))

    def init(self, model: Any, num_agents: int) -> ScheduleState:
        """Return that no round was played."""
        del model
        check_positive_integer("num_agents", num_agents)
        return ScheduleState(np.zeros((), dtype=np.int32))

    def ask(self, state: ScheduleState, round: Array) -> Array:
        """Return the request scheduled for `round`."""
        del state
        return _entry(self.batch_sizes, round)

    def observe(self, state: ScheduleState, outcome: Outcome) -> tuple[Array, ScheduleState]:
        """Return the step scheduled for the round that was played."""
        del outcome
        return _entry(self.steps, state.rounds), ScheduleState(state.rounds + 1)


def _entry(schedule: Any, round: Array) -> Array:
    xp = namespace(round)
    return xp.asarray(schedule)[xp.clip(xp.asarray(round), None, schedule.shape[0] - 1)]
