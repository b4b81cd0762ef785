"""Prices and contracts: rules that pay for the number of samples an agent says it used. Nobody can check the number.

These are the economics of federated learning as most papers have it: effort can be observed, and what is unknown is
what it costs. Here effort is announced, and an agent may lie.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, check_number, check_positive_integer, namespace
from guerdon.costs import Cost
from guerdon.lab.arena.shares import ToldRule, announced_by, begin, budget_of, plain_payments, shares_of
from guerdon.lab.truth import Facts
from guerdon.rule import Need, Payments, Round, Status
from guerdon.states import NoState

ANNOUNCED = frozenset({Need.ANNOUNCEMENTS})


@dataclass(frozen=True)
class SampleShare(ToldRule):
    """Share the budget as FedAvg shares the mean: R_k = n·h(ν) · a_k / Σ a_j, a_k the announced samples.

    Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017, whose
    weights these are. That they are also pay is common practice, not a claim of theirs.
    """

    cost: Cost
    facts: Facts | None = None

    name, needs = "samples", ANNOUNCED

    def pay(self, state: NoState, round: Round) -> tuple[Payments, NoState]:
        state, status, nu = begin(state, round)
        shares = shares_of(announced_by(self, status), status)
        return plain_payments(budget_of(self, status, nu) * shares, status), state


@dataclass(frozen=True)
class StackelbergPrice(ToldRule):
    """Pay a price per announced sample, R_k = q·a_k; the agent answers with h'(S) = q.

    The server leads: it names the price at which ν samples are the answer, q = h'(ν). Where a fixed cost makes ν a
    loss at that price it names h(ν)/ν instead, the least at which anybody comes.

    Source: Feng et al., Joint Service Pricing and Cooperative Relay Communication for Federated Learning, 2019;
    Sarıkaya and Erçetin, Motivating Workers in Federated Learning: A Stackelberg Game Perspective, 2019. Between the
    lines: the first lets devices name prices and the owner choose amounts, the second pays for processor speed at a
    quadratic cost. With a linear cost every price above h' asks for as much as there is.
    """

    cost: Cost
    facts: Facts | None = None

    name, needs = "stackelberg", ANNOUNCED | {Need.COSTS}

    def price(self, request: Any) -> Any:
        """Return q."""
        slope, mean = self.cost.slope(request), self.cost(request) / request
        return slope + (mean - slope) * (mean > slope)

    def curve(self, size: Any, request: Any) -> Any:
        """Return q·s, for an agent that says the truth."""
        return self.price(request) * size

    def pay(self, state: NoState, round: Round) -> tuple[Payments, NoState]:
        state, status, nu = begin(state, round)
        return plain_payments(self.price(nu) * announced_by(self, status), status), state


@dataclass(frozen=True)
class ContractMenu(ToldRule):
    """Offer a menu of (samples, reward), one item for each type of agent; everybody takes the item it likes best.

    Type i has the cost h_i = types[i]·h, from the dearest to the cheapest, and its item asks for S_i = ν/types[i]:

        R_1 = h_1(S_1)        R_i = R_{i−1} + h_i(S_i) − h_i(S_{i−1})

    The dearest type gets its cost, and each other one just enough not to take the item before its own. An agent is paid
    for the largest item that it says it has fulfilled.

    Source: Kang et al., Incentive Design for Efficient Federated Learning in Mobile Networks: A Contract Theory
    Approach, 2019; Ding et al., Optimal Contract Design for Efficient Federated Learning with Multi-Dimensional Private
    Information, 2021. Between the lines: they choose S_i from the server's profit, which our server does not have.
    """

    cost: Cost
    types: tuple[float, ...] = (2.0, 1.0, 0.5)
    facts: Facts | None = None

    name, needs = "contract", ANNOUNCED | {Need.COSTS, Need.TYPES}

    def __post_init__(self) -> None:
        super().__post_init__()
        for number in self.types:
            check_number("types", number, minimum=0, inclusive=False)
        if not self.types or list(self.types) != sorted(self.types, reverse=True):
            raise ValueError(f"`types` must be factors of the cost from the dearest down, got {self.types!r}")

    def menu(self, request: Any) -> list[tuple[Any, Any]]:
        """Return the items (S_i, R_i), from the smallest."""
        items: list[tuple[Any, Any]] = []
        for factor in self.types:
            size = request / factor
            before, reward = items[-1] if items else (0 * size, 0 * size)
            items.append((size, reward + factor * (self.cost(size) - self.cost(before))))
        return items

    def curve(self, size: Any, request: Any) -> Any:
        """Return the reward of the largest item that `size` samples fulfil, for an agent that says the truth."""
        reward = 0.0 * size
        for asked, paid in self.menu(request):
            reward = reward + (paid - reward) * (size >= asked)
        return reward

    def pay(self, state: NoState, round: Round) -> tuple[Payments, NoState]:
        state, status, nu = begin(state, round)
        return plain_payments(self.curve(announced_by(self, status), nu), status), state


@dataclass(frozen=True)
class PublicGoods(ToldRule):
    """Let those who contribute less than the others pay those who contribute more.

        R_k = h(ν) + h'(ν) · ( a_k − mean of the others' a )

    The transfers add up to nothing, and the price of a sample is what it costs where ν are used: all contribute ν.

    Source: Tang and Wong, An Incentive Rule for Cross-Silo Federated Learning: A Public Goods Perspective, 2021.
    Between the lines: their organisations value the model and send prices as well as contributions; of their mechanism
    this keeps the transfers, which balance, and gives everybody h(ν) in the place of what the model is worth to it.
    """

    cost: Cost
    facts: Facts | None = None

    name, needs = "public-goods", ANNOUNCED | {Need.COSTS}

    def pay(self, state: NoState, round: Round) -> tuple[Payments, NoState]:
        state, status, nu = begin(state, round, least=2)
        announced = announced_by(self, status)
        xp = namespace(announced)
        count = xp.sum(xp.astype(status == Status.PAID.value, nu.dtype), axis=-1, keepdims=True)
        others = (xp.sum(announced, axis=-1, keepdims=True) - announced) / xp.clip(count - 1, 1.0, None)
        return plain_payments(self.cost(nu) + self.cost.slope(nu) * (announced - others), status), state


@dataclass(frozen=True)
class LocalAccuracy(ToldRule):
    """Pay for the local accuracy that an agent says it reached: R_k = r·(1 − θ_k), θ_k the error left.

    The error falls by a constant factor with every ν samples, θ_k = exp(−a_k/ν), and r = e·ν·h'(ν) is the rate at which
    ν samples are the best answer.

    Source: Pandey et al., A Crowdsourcing Framework for On-Device Federated Learning, 2020. Between the lines: there
    the accuracy is that of a local problem and comes from iterations, log(1/θ) of them; here samples take their place.
    """

    cost: Cost
    facts: Facts | None = None

    name, needs = "accuracy", ANNOUNCED | {Need.COSTS}

    def rate(self, request: Any) -> Any:
        """Return r."""
        return math.e * request * self.cost.slope(request)

    def curve(self, size: Any, request: Any) -> Any:
        """Return r·(1 − exp(−s/ν)), for an agent that says the truth."""
        return self.rate(request) * (1 - namespace(size).exp(-size / request))

    def pay(self, state: NoState, round: Round) -> tuple[Payments, NoState]:
        state, status, nu = begin(state, round)
        return plain_payments(self.curve(announced_by(self, status), nu), status), state


class MarketState(NamedTuple):
    """The price of a sample relative to h(ν)/ν, as a logarithm; the same for everybody."""

    price: Array


@dataclass(frozen=True)
class MarketPrice(ToldRule):
    """Let a market find the price of a sample: R_k = q_t·a_k, and the price rises while fewer are offered than wanted.

        ln q_{t+1} = ln q_t + speed · ( 1 − Σ a_j / (K·ν) ),   q_0 = h(ν)/ν

    Source: Dong and Zhang, Federated Learning Service Market: A Game Theoretic Analysis, 2020. Between the lines:
    theirs is a Stackelberg game on several levels, solved at once; this searches for its clearing price step by step.
    """

    cost: Cost
    speed: float = 0.1
    facts: Facts | None = None

    name, needs = "market", ANNOUNCED | {Need.COSTS}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("speed", self.speed, minimum=0)

    def init(self, num_agents: int) -> MarketState:
        check_positive_integer("num_agents", num_agents)
        return MarketState(np.zeros(num_agents))

    def pay(self, state: MarketState, round: Round) -> tuple[Payments, MarketState]:
        state, status, nu = begin(state, round)
        announced = announced_by(self, status)
        xp = namespace(announced)
        reward = self.cost(nu) / nu * xp.exp(state.price) * announced
        supply = xp.sum(announced, axis=-1, keepdims=True) / (nu * announced.shape[-1])
        return plain_payments(reward, status), MarketState(state.price + self.speed * (1 - supply))
