"""Requests that learn: ν_t from the noise scale, or from a budget, as training goes on (skip this at first).

See `guerdon.requests` for what a policy is, and `guerdon.noise_scale` for what gradients say of noise and signal.
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import (
    Array,
    Namespace,
    check_number,
    check_positive_integer,
    is_array,
    namespace,
    zeros_like,
)
from guerdon.costs import Cost, check_is_cost
from guerdon.noise_scale import (
    CURVATURE,
    NoiseFilter,
    estimate_noise,
    extend_trail,
    first_filter,
    trail_products,
    update_filter,
)
from guerdon.requests import Outcome, Requests
from guerdon.states import choose_state

FIRST_REQUEST = 4
LARGEST_REQUEST = 64
LARGEST_POSSIBLE = 2**20  # samples that a search for the best request goes up to


class AdaptiveState(NamedTuple):
    """The state of a policy that learns: what it believes, what it will ask for, and what was spent."""

    filter: NoiseFilter
    request: Array
    enrolled: Array
    spent: Array
    trail: Any  # decayed sum of the mean gradients, in the model's shape


@dataclass(frozen=True)
class NoiseScaleRequest(Requests):
    """Ask for the cheapest progress: the ν that minimises h(ν)/ln(1 + nν/B), with B estimated as training goes on.

    One round at ν with the right step divides the error by 1 + nν/B and costs n·h(ν). σ², ‖m‖², the curvature of the
    loss and with it the step are all learned from the gradients (`guerdon.noise_scale`). The request stays within
    min_batch…max_batch, and is `first` until the gradients of a round have said anything; with all three equal only
    the step adapts. `curvature` is where the search for it begins: a factor of ten is found in a few rounds.
    """

    cost: Cost
    max_batch: int = LARGEST_REQUEST
    min_batch: int = 1
    first: int = None  # pyright: ignore[reportAssignmentType] - `FIRST_REQUEST`, or the nearest that is allowed
    curvature: float = CURVATURE

    learns = True

    def __post_init__(self) -> None:
        check_is_cost(self.cost)
        for name, value in (("max_batch", self.max_batch), ("min_batch", self.min_batch)):
            check_positive_integer(name, value)
        if self.max_batch > LARGEST_POSSIBLE:
            raise ValueError(f"`max_batch` must be at most {LARGEST_POSSIBLE}, got {self.max_batch}")
        if self.min_batch > self.max_batch:
            raise ValueError(f"`min_batch` must be at most `max_batch` ({self.max_batch}), got {self.min_batch}")
        if self.first is None:  # pyright: ignore[reportUnnecessaryComparison]
            object.__setattr__(self, "first", min(max(FIRST_REQUEST, self.min_batch), self.max_batch))
        check_positive_integer("first", self.first)
        if not self.min_batch <= self.first <= self.max_batch:
            allowed = f"{self.min_batch}…{self.max_batch}"
            raise ValueError(f"`first` must be from `min_batch` to `max_batch` ({allowed}), got {self.first}")
        check_number("curvature", self.curvature, minimum=0, inclusive=False)

    def largest(self, rounds: int) -> int:
        """Return the largest request allowed."""
        del rounds
        return int(self.max_batch)

    def init(self, model: Any, num_agents: int) -> AdaptiveState:
        """Return the beliefs before the first round."""
        start = first_filter(num_agents)
        first = namespace(self.first).asarray(1.0 * self.first)
        trail = zeros_like(model)
        return AdaptiveState(start, first, np.asarray(float(num_agents)), np.zeros(()), trail)

    def ask(self, state: AdaptiveState, round: Array) -> Array:
        """Return the request that the last round suggests."""
        del round
        return _whole(state.request)

    def observe(self, state: AdaptiveState, outcome: Outcome) -> tuple[Array, AdaptiveState]:
        """Return the step that lowers the loss most, and the beliefs after the round."""
        noise = estimate_noise(outcome.evidence, outcome.request)
        products = trail_products(state.trail, outcome.mean)
        beliefs = update_filter(state.filter, noise, outcome.request, products, self.curvature)
        xp = namespace(beliefs.step)
        float_type = beliefs.step.dtype
        wanted = cheapest_request(self.cost, beliefs.noise_scale, beliefs.crowd, self.max_batch)
        wanted = xp.astype(xp.clip(wanted, self.min_batch, None), float_type)
        request = xp.where(beliefs.rounds > 0, wanted, 1.0 * self.first)
        enrolled, spent, paid = (xp.asarray(x, dtype=float_type) for x in (state.enrolled, state.spent, outcome.paid))
        heard = xp.any(outcome.evidence.counted)
        trail = choose_state(heard, lambda: extend_trail(state.trail, outcome.mean), state.trail)
        return beliefs.step, AdaptiveState(beliefs, request, enrolled, spent + paid, trail)

    def for_agents(self, state: AdaptiveState, num_agents: float) -> AdaptiveState:
        """Return the state with a budget that is shared by so many agents."""
        return state._replace(enrolled=np.asarray(float(num_agents)))


@dataclass(frozen=True)
class BudgetRequest(Requests):
    """Spend at most `budget` in all, for the best model it buys.

    Asks for what `NoiseScaleRequest` would, or a little more or less, so that whole rounds use up what is left; ends
    the training when not even one sample per agent can be paid. The bound is exact where a round's rewards add up to
    n·h(ν), as under output agreement; under another rule a last round's pay may stray from its mean.
    """

    cost: Cost
    budget: float
    max_batch: int = LARGEST_REQUEST
    curvature: float = CURVATURE
    rule: NoiseScaleRequest = field(init=False, repr=False)

    learns = True

    def __post_init__(self) -> None:
        check_is_cost(self.cost)
        check_number("budget", self.budget, minimum=0)
        object.__setattr__(self, "rule", NoiseScaleRequest(self.cost, self.max_batch, curvature=self.curvature))

    def largest(self, rounds: int) -> int:
        """Return the largest request allowed."""
        return self.rule.largest(rounds)

    def init(self, model: Any, num_agents: int) -> AdaptiveState:
        """Return the beliefs before the first round."""
        return self.rule.init(model, num_agents)

    def ask(self, state: AdaptiveState, round: Array) -> Array:
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

    def observe(self, state: AdaptiveState, outcome: Outcome) -> tuple[Array, AdaptiveState]:
        """Return the step that lowers the loss most, and the beliefs after the round."""
        return self.rule.observe(state, outcome)

    def for_agents(self, state: AdaptiveState, num_agents: float) -> AdaptiveState:
        """Return the state with a budget that is shared by so many agents."""
        return self.rule.for_agents(state, num_agents)


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
        enough = holds(middle)
        low, high = xp.where(enough, low, middle + 1), xp.where(enough, middle, high)
        low = xp.where(low < high, low, high)
    return high


def _whole(number: Array) -> Array:
    """Return a whole number of floating-point type as an integer."""
    xp = namespace(number)
    return xp.astype(xp.asarray(number), xp.asarray(1).dtype) if is_array(number) else int(number)
