"""What was recorded, in words: a payment rule, the state of a run, and the formula behind a payment."""

import json
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from guerdon.costs import ExpressionCost
from guerdon.ledger.money import format_amount
from guerdon.ledger.rules import looks_at
from guerdon.ledger.tables import AnyRow

QUIET = 120.0  # seconds without a round after which a run may count as quiet
GAPS = 3.0  # or this many times the usual time between rounds, if that is longer

RunState = Literal["waiting", "active", "quiet"]


class Formula(NamedTuple):
    """A payment rule and the same with numbers in it; both are text."""

    rule: str
    filled: str


def run_state(rounds: int, last_activity: datetime, gap: float, now: datetime | None = None) -> RunState:
    """Return whether a run waits for its first round, goes on, or has been quiet for longer than usual."""
    if rounds == 0:
        return "waiting"
    silence = ((now or datetime.now(UTC)) - last_activity).total_seconds()
    return "active" if silence <= max(QUIET, GAPS * gap) else "quiet"


def rule_words(rule: str) -> str:
    """Return a recorded rule in words."""
    settings: dict[str, Any] = json.loads(rule)
    if settings["rule"] == "flat":
        return "flat pay"
    if settings["rule"] == "information":
        return f"information pay, decay {settings['decay']:g}"
    variance: dict[str, Any] = settings["variance"]
    decay = variance.get("decay")
    return f"output agreement, {variance['kind']} variance" + ("" if decay is None else f", decay {decay:g}")


def formula(payment: AnyRow) -> Formula | None:
    """Return how the reward of a payment was computed, or None where no rule was applied."""
    if payment.status != "paid":
        return None
    cost, nu = ExpressionCost(payment.cost), payment.request
    total = format_amount(payment.amount)
    if payment.variance is None:
        return Formula("R = h(ν)", f"h({nu}) = {total}")
    informs = looks_at(payment.rule) == "information"
    first, second = (
        (-payment.distance, -payment.expected_distance) if informs else (payment.expected_distance, payment.distance)
    )
    filled = (
        f"{_number(float(cost(nu)))} + {_number(float(cost.slope(nu)))} · {nu}² ÷ {_number(payment.variance)} · "
        f"({_number(first)} − {_bracketed(second)}) = {total}"
    )
    return Formula(f"R = h(ν) + h′(ν) · ν² ÷ V · ({'I − J' if informs else 'E − D'})", filled)


def _bracketed(value: float) -> str:
    return _number(value) if value >= 0 else f"({_number(value)})"


def _number(value: float) -> str:
    return f"{value:,.7g}"
