"""What the arena's rules have in common: facts that must be there, payments without distances, shares of a budget.

The budget of a round is h(ν) for every agent that sent something, so that all rules have the same money to give and
honest agents that are alike get their cost on average.
"""

from dataclasses import replace
from typing import Any, Protocol

from guerdon.arrays import Array, namespace
from guerdon.lab.truth import Facts
from guerdon.rule import Payments, Round, Rule, Status, as_request, check_round, statuses


class ToldRule(Rule, Protocol):
    """A rule that is told what the server knows of a round beside the evidence."""

    facts: Facts | None

    def informed(self, facts: Facts) -> Rule:
        """Return the rule with the facts of a round."""
        return replace(self, facts=facts)  # pyright: ignore[reportArgumentType, reportUnknownVariableType]


def facts_of(rule: Any) -> Facts:
    """Return what the rule was told of the round, or raise."""
    if rule.facts is None:
        needed = ", ".join(sorted(rule.needs))
        raise ValueError(f"{rule.name!r} must be told of the round by `informed` before it pays: {needed}")
    return rule.facts


def begin(state: Any, round: Round, least: int = 1) -> tuple[Any, Array, Array]:
    """Return the state as arrays, each agent's status, and the request as an array."""
    state, mask = check_round(state, round)
    status = statuses(round.evidence, mask, least, 1 + 0 * round.evidence.squared_deviation)
    return state, status, as_request(round.evidence, round.request)


def plain_payments(reward: Array, status: Array) -> Payments:
    """Return payments of a rule that does not look at distances: 0 where the status is not PAID."""
    xp = namespace(reward)
    nothing = xp.nan + 0.0 * reward
    paid = xp.where(status == Status.PAID.value, reward, 0.0)
    return Payments(paid, paid, nothing, nothing, nothing, status)


def announced_by(rule: Any, status: Array) -> Array:
    """Return how many samples the agents that are paid say they used, and 0 for the others."""
    told = facts_of(rule).announced
    return namespace(told).where(status == Status.PAID.value, told, 0.0)


def shares_of(scores: Array, status: Array) -> Array:
    """Return each agent's part of the whole: negative scores count as 0, and if nobody has any all get the same."""
    xp = namespace(scores)
    paid = status == Status.PAID.value
    positive = xp.where(paid & (scores > 0), scores, 0.0)
    total = xp.sum(positive, axis=-1, keepdims=True)
    equal = xp.astype(paid, scores.dtype)
    equal = equal / xp.clip(xp.sum(equal, axis=-1, keepdims=True), 1.0, None)
    return xp.where(total > 0, positive / xp.where(total > 0, total, 1.0), equal)


def budget_of(rule: Rule, status: Array, request: Array) -> Array:
    """Return h(ν) times the number of agents that are paid."""
    xp = namespace(status)
    return rule.cost(request) * xp.sum(xp.astype(status == Status.PAID.value, request.dtype), axis=-1, keepdims=True)
