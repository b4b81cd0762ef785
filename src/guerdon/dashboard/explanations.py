"""Why a payment is what it is: the formula, filled in with the numbers that were recorded."""

import json
from typing import NamedTuple

from guerdon.costs import ExpressionCost
from guerdon.ledger.money import format_amount
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
    slope = float(cost.slope(nu))
    filled = (
        f"{_number(float(cost(nu)))} + {_number(slope)} · {nu}² ÷ {_number(payment.variance)} · "
        f"({_number(payment.expected_distance)} − {_number(payment.distance)}) = {total}"
    )
    return Formula("R = h(ν) + h′(ν) · ν² ÷ V · (E − D)", filled)


def _number(value: float) -> str:
    return f"{value:,.7g}"
