"""Why a payment is what it is: the formula, filled in with the numbers that were recorded."""

import json
from typing import NamedTuple

from guerdon.costs import ExpressionCost
from guerdon.ledger.money import format_amount
from guerdon.ledger.rules import looks_at
from guerdon.ledger.tables import AnyRow


class Formula(NamedTuple):
    """A payment rule and the same with numbers in it; both are text."""

    rule: str
    filled: str


def formula(payment: AnyRow) -> Formula | None:
    """Return how the reward of a payment came about, or None where no rule was applied."""
    if payment.status != "paid":
        return None
    cost, nu = ExpressionCost(payment.cost), payment.request
    total = format_amount(payment.amount)
    if json.loads(payment.rule)["rule"] == "flat" or payment.variance is None:
        return Formula("R = h(ν)", f"h({nu}) = {total}")
    told = looks_at(payment.rule) == "information"
    first, second = (
        (-payment.distance, -payment.expected_distance) if told else (payment.expected_distance, payment.distance)
    )
    filled = (
        f"{_number(float(cost(nu)))} + {_number(float(cost.slope(nu)))} · {nu}² ÷ {_number(payment.variance)} · "
        f"({_number(first)} − {_bracketed(second)}) = {total}"
    )
    return Formula(f"R = h(ν) + h′(ν) · ν² ÷ V · ({'I − J' if told else 'E − D'})", filled)


def _bracketed(value: float) -> str:
    return _number(value) if value >= 0 else f"({_number(value)})"


def _number(value: float) -> str:
    return f"{value:,.7g}"
