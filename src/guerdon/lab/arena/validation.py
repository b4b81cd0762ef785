"""Validation: rules that ask how much better the model gets with an agent's report than without it.

v(C) is what the validation loss falls by if the server steps by `step` along the mean of the coalition C's reports;
v of nobody is 0. These rules say who helped, not who worked. They need JAX.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array, check_number, check_positive_integer
from guerdon.costs import Cost
from guerdon.lab.arena.shares import ToldRule, announced_by, begin, budget_of, facts_of, plain_payments, shares_of
from guerdon.lab.truth import Facts
from guerdon.rule import Need, Payments, Round, Status
from guerdon.states import NoState
from guerdon.statistical.contributions import FEW, coalitions

VALIDATED = frozenset({Need.VALIDATION, Need.REPORTS})
FLOOR = 1e-9  # of a quality: an auction divides by it


def gain_of(rule: Any, counted: Array) -> Callable[[Array], Array]:
    """Return v: what each coalition (…, agents) of the counted agents takes off the validation loss."""
    facts = facts_of(rule)
    reports = jnp.where(counted[:, None], facts.reports, 0.0)
    before = facts.loss(facts.model)

    def gain(member: Array) -> Array:
        inside = jnp.where(counted, member, 0.0)
        count = jnp.sum(inside)
        stepped = facts.model - rule.step * (inside @ reports) / jnp.where(count > 0, count, 1.0)
        return jnp.where(count > 0, before - facts.loss(stepped), 0.0)

    return lambda members: jax.lax.map(gain, members, batch_size=256)


def exact_shapley(gain: Callable[[Array], Array], num_agents: int) -> Array:
    """Return every agent's Shapley value, from the worth of every coalition."""
    members, factors = (jnp.asarray(part, jnp.float32) for part in coalitions(num_agents))
    return gain(members) @ factors


def guided_orders(num_agents: int, rounds: int, seed: Any) -> Array:
    """Return orders of the agents, `rounds` that begin with each agent; the rest of each is random."""

    def order(number: Array) -> Array:
        first = number % num_agents
        rest = jax.random.uniform(jax.random.fold_in(jax.random.key(0), seed * 100_003 + number), (num_agents,))
        return jnp.argsort(jnp.where(jnp.arange(num_agents) == first, -1.0, rest))

    return jax.vmap(order)(jnp.arange(rounds * num_agents))


def truncated_shapley(gain: Callable[[Array], Array], orders: Array, within: Any, between: Any) -> Array:
    """Return Shapley values as GTG-Shapley estimates them, from these orders.

    An order is followed until what is left to gain is at most `within`: the agents after that get nothing from it. A
    round that gains at most `between` in all is not looked at: everybody gets 0.
    """
    num_agents = orders.shape[1]
    everybody = gain(jnp.ones((1, num_agents)))[0]

    def joined(order: Array) -> Array:  # (agents + 1, agents): who is in after each step
        places = jnp.argsort(order)
        return jnp.asarray(places[None, :] < jnp.arange(num_agents + 1)[:, None], jnp.float32)

    worth = gain(jax.vmap(joined)(orders).reshape(-1, num_agents)).reshape(len(orders), num_agents + 1)
    going = jnp.abs(everybody - worth[:, :-1]) > within  # before each agent joins; once it stops it stays stopped
    going = jnp.cumprod(going, axis=1)
    marginal = jnp.where(going > 0, jnp.diff(worth, axis=1), 0.0)
    placed = jax.vmap(lambda values, order: jnp.zeros(num_agents).at[order].set(values))(marginal, orders)
    return jnp.where(jnp.abs(everybody) > between, jnp.mean(placed, axis=0), 0.0)


class RoundCount(NamedTuple):
    """How many rounds there were, for every agent: random orders differ from round to round."""

    rounds: Array


class SharesByShapley(ToldRule, Protocol):
    """Shares the budget by Shapley values on the validation set; negative ones count as 0."""

    step: float
    orders: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("step", self.step, minimum=0, inclusive=False)
        check_positive_integer("orders", self.orders)

    def init(self, num_agents: int) -> RoundCount:
        check_positive_integer("num_agents", num_agents)
        return RoundCount(np.zeros(num_agents))

    def pay(self, state: RoundCount, round: Round) -> tuple[Payments, RoundCount]:
        state, status, nu = begin(state, round)
        values = self.values(round.evidence.counted, state.rounds[0])
        reward = budget_of(self, status, nu) * shares_of(values, status)
        return plain_payments(reward, status), RoundCount(state.rounds + 1)

    def values(self, counted: Array, seed: Array) -> Array:
        """Return the Shapley values of a round."""
        ...


@dataclass(frozen=True)
class ShapleyShare(SharesByShapley):
    """Share the budget by Shapley values on the validation set: exact up to 12 agents, beyond from guided orders.

    Source: Shapley, A Value for n-Person Games, 1953; Song et al., Profit Allocation for Federated Learning, 2019.
    """

    cost: Cost
    step: float = 0.1
    orders: int = 2  # for each agent as the first, beyond 12 agents
    facts: Facts | None = None

    name, needs = "shapley", VALIDATED

    def values(self, counted: Array, seed: Array) -> Array:
        num_agents, gain = counted.shape[0], gain_of(self, counted)
        if num_agents <= FEW:
            return exact_shapley(gain, num_agents)
        orders = guided_orders(num_agents, self.orders, jnp.asarray(seed, jnp.int32))
        return truncated_shapley(gain, orders, -1.0, -1.0)


@dataclass(frozen=True)
class GuidedShapley(SharesByShapley):
    """Share the budget by Shapley values as GTG-Shapley estimates them: guided orders, truncated twice.

    Every agent is first in `orders` orders. `within` and `between` are relative to the loss before the step: an order
    ends where less than that is left to gain, and a round that gains less is left out.

    Source: Liu et al., GTG-Shapley: Efficient and Accurate Participant Contribution Evaluation in Federated Learning,
    2022. Between the lines: it stops once the estimate has converged; a compiled simulation takes a fixed number.
    """

    cost: Cost
    step: float = 0.1
    orders: int = 2
    within: float = 0.001
    between: float = 0.001
    facts: Facts | None = None

    name, needs = "gtg-shapley", VALIDATED

    def values(self, counted: Array, seed: Array) -> Array:
        facts = facts_of(self)
        orders = guided_orders(counted.shape[0], self.orders, jnp.asarray(seed, jnp.int32))
        whole = facts.loss(facts.model)
        return truncated_shapley(gain_of(self, counted), orders, self.within * whole, self.between * whole)


@dataclass(frozen=True)
class LeaveOneOut(ToldRule):
    """Share the budget by what the model would lose without each report: φ_k = v(all) − v(all but k).

    Source: the usual control of data valuation, as in Ghorbani and Zou, Data Shapley, 2019.
    """

    cost: Cost
    step: float = 0.1
    facts: Facts | None = None

    name, needs = "leave-one-out", VALIDATED

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("step", self.step, minimum=0, inclusive=False)

    def pay(self, state: NoState, round: Round) -> tuple[Payments, NoState]:
        state, status, nu = begin(state, round)
        counted = round.evidence.counted
        number = counted.shape[0]
        members = jnp.concatenate([jnp.ones((1, number)), 1 - jnp.eye(number)])
        worth = gain_of(self, counted)(members)
        shares = shares_of(worth[0] - worth[1:], status)
        return plain_payments(budget_of(self, status, nu) * shares, status), state


class ScoreState(NamedTuple):
    """Each agent's decayed score; 0 before it first took part."""

    score: Array


@dataclass(frozen=True)
class LossScore(ToldRule):
    """Pay by rank in how much each report alone takes off the validation loss, relative to it.

    Scores (L − L_k)/L are averaged with `memory` over the rounds. The best of n has the weight n^power, the next
    (n − 1)^power, and so on; pay is the budget's share of that. Equal scores share a rank.

    Source: Lidin et al., Incentivizing Permissionless Distributed Learning of LLMs, 2025 (Templar's Gauntlet). Between
    the lines: there OpenSkill rates peers from match to match, of which the average of scores keeps the ranking; the
    filters of its first stage have nothing to filter here.
    """

    cost: Cost
    step: float = 0.1
    power: float = 2.0
    memory: float = 0.8
    facts: Facts | None = None

    name, needs = "loss-score", VALIDATED

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("step", self.step, minimum=0, inclusive=False)
        check_number("power", self.power, minimum=0)
        check_number("memory", self.memory, minimum=0)

    def init(self, num_agents: int) -> ScoreState:
        check_positive_integer("num_agents", num_agents)
        return ScoreState(np.zeros(num_agents))

    def pay(self, state: ScoreState, round: Round) -> tuple[Payments, ScoreState]:
        state, status, nu = begin(state, round)
        facts, counted = facts_of(self), round.evidence.counted
        alone = gain_of(self, counted)(jnp.eye(counted.shape[0]))
        scale = jnp.maximum(jnp.abs(facts.loss(facts.model)), 1e-30)
        score = jnp.where(counted, self.memory * state.score + (1 - self.memory) * alone / scale, state.score)
        paid = status == Status.PAID.value
        below = jnp.sum((score[None, :] < score[:, None]) & paid[None, :], axis=1)
        ties = jnp.sum((score[None, :] == score[:, None]) & paid[None, :], axis=1)
        weights = (below + (ties + 1) / 2) ** self.power
        return plain_payments(budget_of(self, status, nu) * shares_of(weights, status), status), ScoreState(score)


class QualityState(NamedTuple):
    """Each agent's decayed quality, and the decayed number of its rounds."""

    quality: Array
    rounds: Array


@dataclass(frozen=True)
class QualityAuction(ToldRule):
    """Buy from those with the most quality for their bid, within the budget, at the price at which they would lose.

    An agent bids what it says its work costs, b_k = h(a_k). Its quality q_k is what its reports alone took off the
    validation loss in earlier rounds, with older ones forgotten. Agents are ranked by q/b. The first k win for which
    b_k ≤ B·q_k/Σ_{i≤k} q_i, and winner i gets min( B·q_i/Σ_{winners} q, q_i·b_{k+1}/q_{k+1} ).

    Source: Deng et al., FAIR: Quality-Aware Federated Learning with Precise User Incentive and Model Aggregation, 2021;
    the payments are those of proportional-share auctions (Singer, Budget Feasible Mechanisms, 2010). Between the lines:
    there losers do not train; here they find out after they did. The budget is `budget` times h(ν) for each agent.
    """

    cost: Cost
    step: float = 0.1
    memory: float = 0.9
    budget: float = 1.5
    facts: Facts | None = None

    name, needs = "auction", VALIDATED | {Need.ANNOUNCEMENTS}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("step", self.step, minimum=0, inclusive=False)
        check_number("memory", self.memory, minimum=0)
        check_number("budget", self.budget, minimum=0, inclusive=False)

    def init(self, num_agents: int) -> QualityState:
        check_positive_integer("num_agents", num_agents)
        return QualityState(np.zeros(num_agents), np.zeros(num_agents))

    def pay(self, state: QualityState, round: Round) -> tuple[Payments, QualityState]:
        state, status, nu = begin(state, round)
        bids = self.cost(announced_by(self, status))
        known = state.rounds > 0
        quality = jnp.where(known, state.quality / jnp.where(known, state.rounds, 1.0), 1.0)
        quality = jnp.where(jnp.any(known), quality, 1.0)
        reward = auction(quality, bids, self.budget * budget_of(self, status, nu), status == Status.PAID.value)
        seen = jnp.where(round.evidence.counted, 1.0, 0.0)
        alone = jnp.maximum(gain_of(self, round.evidence.counted)(jnp.eye(len(seen))), 0.0)
        sums = self.memory * state.quality + seen * alone, self.memory * state.rounds + seen
        return plain_payments(reward, status), QualityState(*sums)


def auction(quality: Array, bids: Array, budget: Array, present: Array) -> Array:
    """Return what each agent gets in a proportional-share auction; 0 for those that lose."""
    valued = present & (quality > FLOOR) & (bids > 0)
    order = jnp.argsort(jnp.where(valued, -quality / jnp.where(valued, bids, 1.0), jnp.inf))
    best, asked, here = quality[order], bids[order], valued[order]
    total = jnp.cumsum(jnp.where(here, best, 0.0))
    fits = here & (asked <= budget * best / jnp.where(total > 0, total, 1.0))
    wins = jnp.cumprod(fits) > 0
    count = jnp.sum(wins)
    bought = jnp.sum(jnp.where(wins, best, 0.0))
    last = jnp.minimum(count, len(best) - 1)
    loser = (count < len(best)) & here[last]
    limit = jnp.where(loser, asked[last] / jnp.where(best[last] > 0, best[last], 1.0), jnp.inf)
    share = budget / jnp.where(bought > 0, bought, 1.0)
    paid = jnp.where(wins, best * jnp.minimum(share, limit), 0.0)
    return jnp.zeros_like(paid).at[order].set(paid)
