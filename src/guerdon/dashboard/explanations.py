"""What was recorded, in words: a payment rule, the state of a run, and the formula behind a payment."""

from datetime import UTC, datetime
from typing import Literal, NamedTuple

from guerdon.costs import ExpressionCost
from guerdon.ledger.books.money import MICRO, format_amount
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay.recorded_rules import restored
from guerdon.ledger.pay.recorded_terms import read
from guerdon.rule import PAID_LABELS
from guerdon.words import about, cut_words, price, settled

QUIET = 120.0  # seconds without a round after which a run may count as quiet
GAPS = 3.0  # or this many times the usual time between rounds, if that is longer

RunState = Literal["waiting", "active", "quiet"]


class Formula(NamedTuple):
    """A payment rule and the same with numbers in it; both are text."""

    rule: str
    filled: str


def run_state(
    rounds: int, last_activity: datetime, gap: float, now: datetime | None = None
) -> tuple[RunState, float | None]:
    """Return whether a run waits for its first round, goes on, or has been quiet for longer than usual.

    For one that goes on also in how many seconds it will be quiet if nothing happens.
    """
    if rounds == 0:
        return "waiting", None
    left = max(QUIET, GAPS * gap) - ((now or datetime.now(UTC)) - last_activity).total_seconds()
    return ("active", left) if left >= 0 else ("quiet", None)


def formula(payment: AnyRow) -> Formula | None:
    """Return how the reward of a payment was computed, or None where no rule was applied."""
    if payment.status not in PAID_LABELS:
        return None
    cost, nu = ExpressionCost(payment.cost), payment.request
    total = format_amount(payment.released)
    factor, margin = payment.factor / MICRO, read(payment.terms).price
    times, factor_words = ("", "") if factor == 1 else ("c · ", f"{_number(factor)} · ")
    if margin != 1:  # of a run under looks
        factor, times, factor_words = factor * margin, f"{times}(1 + margin) · ", f"{factor_words}{_number(margin)} · "
    if payment.variance is None:  # of what all were asked for, unless the note says otherwise
        same = abs(payment.released - factor * cost(nu) * MICRO) < 1
        return Formula(f"R = {times}h(ν)", f"{factor_words}h({nu}) = {total}" if same else total)
    rule = restored(payment.rule, payment.cost)
    holds, bracket = about(rule).holds, about(rule).bracket(payment.squared_distance, payment.expected)
    paid, slope, variance, first, second = map(_number, (cost(nu), cost.slope(nu), payment.variance, *bracket))
    second = second if bracket[1] >= 0 else f"({second})"
    if holds:
        total = _number(factor * price(rule, nu, payment.squared_distance, payment.expected, payment.variance))
    filled, name = f"{paid} + {slope} · {nu}² ÷ {variance} · ({first} − {second})", "earned" if holds else "R"
    common = f"h(ν) + h′(ν) · ν² ÷ V · ({about(rule).formula})"
    if times:
        common, filled = f"{times}({common})", f"{factor_words}({filled})"
    late = 0.0 if holds else settled(
        rule, nu, factor, payment.released / MICRO, payment.squared_distance, payment.expected, payment.variance
    )  # fmt: skip
    common += "" if holds else cut_words(rule, nu, payment.squared_distance, payment.expected, payment.variance)
    if late:
        common, filled = (
            f"{common} + extra of earlier rounds",
            f"{filled} {'−' if late < 0 else '+'} {_number(abs(late))}",
        )
    return Formula(f"{name} = {common}", f"{filled} = {total}")


def _number(value: float) -> str:
    return f"{value:,.7g}"
