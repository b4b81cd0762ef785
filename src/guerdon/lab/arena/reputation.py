"""Reputation: agents whose gradients point where the others' do count for more, and are paid more."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from guerdon.arrays import Array, check_number, check_positive_integer, namespace
from guerdon.costs import Cost
from guerdon.lab.arena.shares import ToldRule, begin, budget_of, facts_of, plain_payments, shares_of
from guerdon.lab.truth import Facts
from guerdon.rule import Need, Payments, Round


class ReputationState(NamedTuple):
    """Each agent's reputation; before the first round all have the same."""

    reputation: Array


@dataclass(frozen=True)
class CosineReputation(ToldRule):
    """Share the budget by reputation, which follows the cosine with the weighted sum of all gradients (CGSV).

        φ_k = cos( x_k, Σ_j r_j x_j ),  x the gradients at unit length        r ← α·r + (1 − α)·φ, then made to add to 1

    The cosine stands for the Shapley value of a game in which a coalition is worth what its sum has in common with
    everybody's.

    Source: Xu et al., Gradient-Driven Rewards to Guarantee Fairness in Collaborative Machine Learning, 2021. Between
    the lines: there the reward is a better model, masked by reputation; here it is money.
    """

    cost: Cost
    memory: float = 0.95
    facts: Facts | None = None

    name = "cosine"
    needs = frozenset({Need.REPORTS})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("memory", self.memory, minimum=0)

    def init(self, num_agents: int) -> ReputationState:
        check_positive_integer("num_agents", num_agents)
        return ReputationState(np.full(num_agents, 1 / num_agents))

    def pay(self, state: ReputationState, round: Round) -> tuple[Payments, ReputationState]:
        state, status, nu = begin(state, round)
        xp, counted = namespace(nu), round.evidence.counted
        found = cosine_values(facts_of(self).reports, counted, state.reputation)
        mixed = xp.where(counted, self.memory * state.reputation + (1 - self.memory) * found, state.reputation)
        total = xp.sum(xp.clip(mixed, 0.0, None))
        reputation = xp.where(total > 0, mixed / xp.where(total > 0, total, 1.0), mixed)
        payments = plain_payments(budget_of(self, status, nu) * shares_of(reputation, status), status)
        return payments, ReputationState(xp.astype(reputation, state.reputation.dtype))


def cosine_values(reports: Array, counted: Array, weights: Array) -> Array:
    """Return the cosine of each counted report with the weighted sum of all of them, each at unit length."""
    xp = namespace(reports)
    used = xp.where(counted[:, None], reports, 0.0)
    lengths = xp.sqrt(xp.sum(used**2, axis=1, keepdims=True))
    unit = used / xp.where(lengths > 0, lengths, 1.0)
    whole = xp.sum(xp.astype(weights, used.dtype)[:, None] * unit, axis=0)
    length = xp.sqrt(xp.sum(whole**2))
    return unit @ whole / xp.where(length > 0, length, 1.0)
