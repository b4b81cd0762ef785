"""How the server chooses what to ask for: the batch size ν_t and the step size η_t of each round.

A policy has three pure functions, the same in a simulation and in a server:

    state = policy.init(num_agents)                   before the first round
    request = policy.ask(state, round)                ν_t; 0 ends the training
    step, state = policy.observe(state, outcome)      η_t, once the round's gradients are in

The step is chosen after the gradients were seen: they tell how much of their mean is noise. A policy whose `recalls` is
true wants to know how a round's mean gradient lies to the *trail* of those before it; the server keeps the trail, one
vector as large as the model (`guerdon.noise_scale.recall` and `lengthen`). The state is a NamedTuple of small arrays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from guerdon.arrays import Array, Namespace, check_number, check_positive_integer, is_array, namespace
from guerdon.costs import Cost
from guerdon.evidence import Evidence
from guerdon.noise_scale import CURVATURE, Filter, Recall, estimate_noise, first_filter, follow

FIRST_REQUEST = 4
LARGEST_REQUEST = 64
LARGEST_POSSIBLE = 2**20  # samples that a search for the best request goes up to


class Outcome(NamedTuple):
    """What a round brought: what was asked, what was sent (evidence gathered without a prediction), what it cost."""

    request: Array
    evidence: Evidence
    recall: Recall
    paid: Array  # to all agents together


class Requests(Protocol):
    """A policy for ν_t and η_t."""

    @property
    def recalls(self) -> bool:
        """Whether `observe` looks at `outcome.recall`."""
        ...

    def largest(self, rounds: int) -> int:
        """Return the most that it can ask for within so many rounds."""
        ...

    def init(self, num_agents: int) -> Any:
        """Return the state before the first round."""
        ...

    def ask(self, state: Any, round: Array) -> Array:  # noqa: A002
        """Return the batch size to ask for in `round` (0 for the first); 0 ends the training."""
        ...

    def observe(self, state: Any, outcome: Outcome) -> tuple[Array, Any]:
        """Return the step to take after the round, and the next state."""
        ...


class Nothing(NamedTuple):
    """The state of a policy that learns nothing."""


@dataclass(frozen=True)
class FixedRequest:
    """The same request and step in every round: what the paper does."""

    batch_size: int
    step: float

    recalls = False

    def largest(self, rounds: int) -> int:
        """Return the request."""
        del rounds
        return int(self.batch_size)

    def init(self, num_agents: int) -> Nothing:
        """Return nothing."""
        check_positive_integer("num_agents", num_agents)
        return Nothing()

    def ask(self, state: Nothing, round: Array) -> Array:  # noqa: A002
        """Return the request."""
        del state, round
        return self.batch_size

    def observe(self, state: Nothing, outcome: Outcome) -> tuple[Array, Nothing]:
        """Return the step."""
        del outcome
        return self.step, state


class Turn(NamedTuple):
    """The state of a schedule: the rounds so far."""

    rounds: Array


@dataclass(frozen=True)
class ScheduledRequest:
    """A request and a step for each round; after the last, the last one again."""

    batch_sizes: Array
    steps: Array

    recalls = False

    def largest(self, rounds: int) -> int:
        """Return the largest request of the first so many rounds."""
        return int(np.max(np.asarray(self.batch_sizes)[:rounds]))

    def init(self, num_agents: int) -> Turn:
        """Return that no round was played."""
        check_positive_integer("num_agents", num_agents)
        return Turn(np.zeros((), dtype=np.int32))

    def ask(self, state: Turn, round: Array) -> Array:  # noqa: A002
        """Return the request scheduled for `round`."""
        del state
        return self._entry(self.batch_sizes, round)

    def observe(self, state: Turn, outcome: Outcome) -> tuple[Array, Turn]:
        """Return the step scheduled for the round that was played."""
        del outcome
        return self._entry(self.steps, state.rounds), Turn(state.rounds + 1)

    def _entry(self, schedule: Array, round: Array) -> Array:  # noqa: A002
        xp = namespace(round)
        return xp.asarray(schedule)[xp.clip(xp.asarray(round), None, schedule.shape[0] - 1)]


class Adaptive(NamedTuple):
    """The state of a policy that learns: what it believes, what it will ask for, and what was spent."""

    filter: Filter
    request: Array
    enrolled: Array
    spent: Array


@dataclass(frozen=True)
class NoiseScaleRequest:
    """Ask for the cheapest progress: the ν that minimises h(ν)/ln(1 + nν/B), with B estimated as training goes on.

    One round at ν with the right step divides the error by 1 + nν/B and costs n·h(ν). σ², ‖m‖², the curvature of the
    loss and with it the step are all learned from the gradients (`guerdon.noise_scale`). The request stays within
    min_batch…max_batch, and is `first` until the gradients of a round have said anything; with all three equal only
    the step adapts.
    """

    cost: Cost
    max_batch: int = LARGEST_REQUEST
    min_batch: int = 1
    first: int = FIRST_REQUEST
    curvature: float = CURVATURE

    recalls = True

    def largest(self, rounds: int) -> int:
        """Return the largest request allowed."""
        del rounds
        return int(self.max_batch)

    def init(self, num_agents: int) -> Adaptive:
        """Return what is believed before the first round."""
        start = first_filter(num_agents)
        first = namespace(self.first).asarray(1.0 * self.first)
        return Adaptive(start, first, np.asarray(float(num_agents)), np.zeros(()))

    def ask(self, state: Adaptive, round: Array) -> Array:  # noqa: A002
        """Return the request that the last round suggests."""
        del round
        return _whole(state.request)

    def observe(self, state: Adaptive, outcome: Outcome) -> tuple[Array, Adaptive]:
        """Return the step that lowers the loss most, and what is believed now."""
        noise = estimate_noise(outcome.evidence, outcome.request)
        believed = follow(state.filter, noise, outcome.request, outcome.recall, self.curvature)
        xp = namespace(believed.step)
        float_type = believed.step.dtype
        wanted = cheapest_request(self.cost, believed.noise_scale, believed.crowd, self.max_batch)
        wanted = xp.astype(xp.clip(wanted, self.min_batch, None), float_type)
        request = xp.where(believed.rounds > 0, wanted, 1.0 * self.first)
        enrolled, spent, paid = (xp.asarray(x, dtype=float_type) for x in (state.enrolled, state.spent, outcome.paid))
        return believed.step, Adaptive(believed, request, enrolled, spent + paid)


@dataclass(frozen=True)
class BudgetRequest:
    """Spend at most `budget` in all, for the best model it buys.

    Asks for what `NoiseScaleRequest` would, or a little more or less, so that whole rounds use up what is left; ends
    the training when not even one sample a head can be paid. The bound is exact where a round's rewards add up to
    n·h(ν), as under the balanced rule; under another rule a last round's pay may stray from its mean.
    """

    rule: NoiseScaleRequest
    budget: float

    recalls = True

    def largest(self, rounds: int) -> int:
        """Return the largest request allowed."""
        return self.rule.largest(rounds)

    def init(self, num_agents: int) -> Adaptive:
        """Return what is believed before the first round."""
        return self.rule.init(num_agents)

    def ask(self, state: Adaptive, round: Array) -> Array:  # noqa: A002
        """Return the request that spends what is left in whole rounds; 0 where nothing can be bought any more."""
        del round
        xp = namespace(state.request)
        request, enrolled, spent = (xp.asarray(x) for x in (state.request, state.enrolled, state.spent))
        left = (self.budget - spent) * (1 + 1e-6)  # single precision must not lose a last round that is just affordable
        rounds = xp.round(left / (enrolled * self.rule.cost(request)))
        most = xp.floor(left / (enrolled * self.rule.cost(self.rule.min_batch)))
        rounds = xp.clip(xp.where(rounds < most, rounds, most), 1.0, None)
        request = dearest_request(self.rule.cost, left / rounds / enrolled, self.rule.max_batch)
        return xp.where(request < self.rule.min_batch, 0, request)

    def observe(self, state: Adaptive, outcome: Outcome) -> tuple[Array, Adaptive]:
        """Return the step that lowers the loss most, and what is believed now."""
        return self.rule.observe(state, outcome)


def for_agents(state: Any, num_agents: int) -> Any:
    """Return a policy's state for another number of agents: a budget is shared by those who are there."""
    return state._replace(enrolled=np.asarray(float(num_agents))) if isinstance(state, Adaptive) else state


def fixed_request(batch_size: int, step: float) -> FixedRequest:
    """Return the policy that always asks for `batch_size` and steps by `step`."""
    check_positive_integer("batch_size", batch_size)
    check_number("step", step, minimum=0)
    return FixedRequest(batch_size, step)


def scheduled_request(batch_sizes: Sequence[int], steps: Sequence[float]) -> ScheduledRequest:
    """Return the policy that follows a schedule, one entry per round."""
    if not batch_sizes or len(batch_sizes) != len(steps):
        raise ValueError(
            f"`batch_sizes` and `steps` must have one entry per round, got {len(batch_sizes)} and {len(steps)}"
        )
    for size, step in zip(batch_sizes, steps, strict=True):
        check_positive_integer("batch_sizes", size)
        check_number("steps", step, minimum=0)
    return ScheduledRequest(np.asarray(batch_sizes), np.asarray(steps, np.float32))


def noise_scale_request(
    cost: Cost,
    max_batch: int = LARGEST_REQUEST,
    *,
    min_batch: int = 1,
    first: int | None = None,
    curvature: float = CURVATURE,
) -> NoiseScaleRequest:
    """Return the policy that asks for the cheapest progress, knowing nothing but the cost in advance.

    `curvature` is where the search for the curvature of the loss begins: a factor of ten is found in a few rounds.
    """
    for name, value in (("max_batch", max_batch), ("min_batch", min_batch)):
        check_positive_integer(name, value)
    if max_batch > LARGEST_POSSIBLE:
        raise ValueError(f"`max_batch` must be at most {LARGEST_POSSIBLE}, got {max_batch}")
    if min_batch > max_batch:
        raise ValueError(f"`min_batch` must be at most `max_batch` ({max_batch}), got {min_batch}")
    first = min(max(FIRST_REQUEST, min_batch), max_batch) if first is None else first
    check_positive_integer("first", first)
    if not min_batch <= first <= max_batch:
        raise ValueError(f"`first` must be from `min_batch` to `max_batch` ({min_batch}…{max_batch}), got {first}")
    check_number("curvature", curvature, minimum=0, inclusive=False)
    return NoiseScaleRequest(cost, max_batch, min_batch, first, curvature)


def budget_request(
    cost: Cost, budget: float, max_batch: int = LARGEST_REQUEST, *, curvature: float = CURVATURE
) -> BudgetRequest:
    """Return the policy that spends at most `budget` in all."""
    check_number("budget", budget, minimum=0)
    return BudgetRequest(noise_scale_request(cost, max_batch, curvature=curvature), budget)


def cheapest_request(cost: Cost, noise_scale: Array, num_agents: Array, max_batch: Array) -> Array:
    """Return the whole ν in 1…max_batch that minimises h(ν)/ln(1 + nν/B): the price of dividing the error by a factor.

    For h(s) = c0 + c1·s and B much larger than nν that is √(2·c0·B/(c1·n)).

    >>> from guerdon import AffineCost
    >>> int(cheapest_request(AffineCost(1, 1), 1000.0, 10, max_batch=64))
    14
    """
    xp = namespace(noise_scale, num_agents)
    per_agent = xp.clip(xp.asarray(noise_scale / num_agents), 1e-9, None)  # no noise at all: one sample is enough

    def price(nu: Array) -> Array:
        nu = xp.astype(nu, per_agent.dtype)
        return cost(nu) / xp.log1p(nu / per_agent)

    # Convex over concave: the price falls, then rises. Look for the first ν from which it rises.
    return _first_where(xp, lambda nu: price(nu + 1) >= price(nu), max_batch)


def dearest_request(cost: Cost, money: Array, max_batch: Array) -> Array:
    """Return the largest ν up to max_batch whose cost h(ν) is at most `money`, 0 if there is none.

    >>> from guerdon import AffineCost
    >>> int(dearest_request(AffineCost(1, 1), np.asarray(9.5), max_batch=64))
    8
    """
    xp = namespace(money)
    money = xp.asarray(money)
    too_dear = _first_where(xp, lambda nu: cost(xp.astype(nu, money.dtype)) > money, max_batch + 1)
    return too_dear - 1


def _first_where(xp: Namespace, holds: Callable[[Array], Array], largest: Array) -> Array:
    """Return the first whole number from 1 on at which something holds, and goes on to; `largest` if none before."""
    low, high = xp.asarray(1), xp.asarray(largest)
    for _ in range(LARGEST_POSSIBLE.bit_length()):
        middle = (low + high) // 2
        found = holds(middle)
        low, high = xp.where(found, low, middle + 1), xp.where(found, middle, high)
        low = xp.where(low < high, low, high)
    return high


def _whole(number: Array) -> Array:
    """Return a whole number of floating-point type as an integer."""
    xp = namespace(number)
    return xp.astype(xp.asarray(number), xp.asarray(1).dtype) if is_array(number) else int(number)
