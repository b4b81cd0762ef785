"""Repeated games: what an agent did in the last round decides what it is paid in this one, or how much it counts."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, check_number, check_positive_integer, namespace
from guerdon.costs import Cost
from guerdon.lab.arena.shares import begin, budget_of, plain_payments, shares_of
from guerdon.rule import Need, Payments, Round, Rule
from guerdon.states import NoState
from guerdon.statistical.contributions import cosines_to_others


class CooperationState(NamedTuple):
    """Whether each agent was seen to cooperate in the last round (1) or not (0); before the first all are."""

    cooperated: Array


@dataclass(frozen=True)
class ZeroDeterminant(Rule):
    """Pay each agent for what it did in the last round: h(ν) if it was seen to cooperate, nothing if not.

    This is the equaliser among zero-determinant strategies (Press and Dyson 2012) in the game "work costs h, pay is
    worth h": whatever an agent does, pay follows its cooperation one round later, so that its mean profit is pinned
    to 0. An agent is seen to cooperate if its report is no further from the mean than `tolerance` times the median.

    Source: Akbay and Zhang, Distributed Learning with Strategic Users: A Repeated Game Approach, 2022. Between the
    lines: they classify users while they estimate the gradient, against users that send noise, and adapt the strategy
    to the errors of that; here the classifier is one threshold. In linear
    regression one honest report of twelve fails it, so that honest pay is 1.4 below a cost of 17.
    """

    cost: Cost
    tolerance: float = 2.0

    name = "zero-determinant"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("tolerance", self.tolerance, minimum=0, inclusive=False)

    def init(self, num_agents: int) -> CooperationState:
        check_positive_integer("num_agents", num_agents)
        return CooperationState(np.ones(num_agents))

    def pay(self, state: CooperationState, round: Round) -> tuple[Payments, CooperationState]:
        state, status, nu = begin(state, round)
        evidence, xp = round.evidence, namespace(nu)
        usual = _median(xp, evidence.squared_deviation, evidence.counted)
        seen = evidence.counted & (evidence.squared_deviation <= self.tolerance * usual)
        payments = plain_payments(self.cost(nu) * state.cooperated, status)
        return payments, CooperationState(xp.astype(seen, evidence.squared_deviation.dtype))


@dataclass(frozen=True)
class RobustWeights(Rule):
    """Share the budget by how much each report would weigh in a robust mean: p_k = (1 + cos(X_k, others' sum))/2.

    Server and client play a game with mixed strategies: the client sends good or bad updates, the server accepts or
    ignores them. p_k is the probability of a good update at which the server does not mind which, if accepting is
    worth as much as the update points along the others'.

    Source: Tahanian et al., A Game-theoretic Approach for Robust Federated Learning, 2021. Between the lines: we had
    the game and not its payoffs; the cosine is ours. The model is made as for every other rule: only pay differs.
    """

    cost: Cost

    name = "robust-weights"
    needs = frozenset[Need]()

    def pay(self, state: NoState, round: Round) -> tuple[Payments, NoState]:
        state, status, nu = begin(state, round)
        shares = shares_of((1 + cosines_to_others(round.evidence)) / 2, status)
        return plain_payments(budget_of(self, status, nu) * shares, status), state


def _median(xp: Any, values: Array, counted: Array) -> Array:
    """Return the lower median of the counted values."""
    ordered = xp.sort(xp.where(counted, values, xp.inf), axis=-1)
    place = xp.clip((xp.sum(xp.astype(counted, xp.int32), axis=-1, keepdims=True) - 1) // 2, 0, None)
    return xp.take_along_axis(ordered, place, axis=-1)
