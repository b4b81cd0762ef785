"""Why a payment is what it is, in plain words."""

import math
from collections.abc import Sequence

from guerdon.rule import Payments, Rule, Status

__all__ = [
    "explain",
    "price",
]

FEWEST = 3  # whose reports tell which of them lies further out
LIKELY_CUT = 2  # times the distance of honest work: a mean beyond that may hold a distance that was cut
NOT_COMPARED = "only two took part, or all reports were the same: they cannot be compared, and are paid their cost"
FOLLOWS = "the extra of this round follows when distances have a scale"
NO_SCALE = "no extra follows: this was the last round, and there is no scale for distances"


def explain(
    rule: Rule,
    payments: Payments,
    request: int,
    factors: Sequence[float] | None = None,
    *,
    is_last: bool = False,
) -> list[str]:
    """Return, for each agent, why it was paid what it was paid; `factors` multiply the rule's cost for each.

    `is_last`: the run ended with this round, so nothing follows it.
    """
    own = [1.0] * len(payments.released) if factors is None else factors
    rows = zip(own, zip(*payments, strict=True), strict=True)
    later = NO_SCALE if is_last else FOLLOWS
    return [_explain(rule, request, later, factor, *map(float, row)) for factor, row in rows]


def _explain(
    rule: Rule,
    request: int,
    later: str,
    factor: float,
    earned: float,
    reward: float,
    distance: float,
    expected: float,
    variance: float,
    status: float,
) -> str:
    known = Status(int(status))
    if known is Status.WAITING:
        return f"{_cost_and_earlier(rule, request, factor, reward)}; {later}"
    if known.is_paid and distance != distance and _reach(rule, request):
        return f"{_cost_and_earlier(rule, request, factor, reward)}; {NOT_COMPARED}"
    if not known.is_paid:
        return _explain_unpaid(rule, known, reward)
    if rule.holds:
        told = _explain_paid(rule, request, factor, earned, distance, expected)
        return f"{reward:.4g} released; earned in this round: {earned:.4g} ({told})"
    late = settled(rule, request, factor, reward, distance, expected, variance)
    told = _explain_paid(rule, request, factor, reward - late, distance, expected)
    told += cut_words(rule, request, distance, expected, variance)
    return f"{told}; {_more(late)}, the extra of earlier rounds" if late else told


def _explain_unpaid(rule: Rule, status: Status, reward: float) -> str:
    why = (_REASONS | dict(rule.reasons()))[status]
    if reward == 0:
        return f"nothing: {why}"
    return f"{reward:.4g}, the extra of earlier rounds: {why}" + " in this one" * (status is Status.DECLINED)


def _cost_and_earlier(rule: Rule, request: int, factor: float, reward: float) -> str:
    fair, asked = _asked(rule, request, factor)
    return asked if _same(reward, fair, factor) else f"{asked}, {_more(reward - fair)} of earlier rounds"


def cut_words(rule: Rule, request: int, distance: float, expected: float, variance: float) -> str:
    """Return at what distances were cut, where a mean of them may hold one that was; mostly nothing.

    >>> from guerdon import AffineCost, OutputAgreement
    >>> cut_words(OutputAgreement(AffineCost(1, 1)), 8, distance=500.0, expected=2.0, variance=20.0)
    ' (no distance counts for more than 500)'
    """
    usual = 2 * variance / int(request)
    if not max(distance, expected) > LIKELY_CUT * usual:
        return ""
    reach = _reach(rule, request)
    return f" (no distance counts for more than {reach * usual:.4g})" if reach else ""


def _reach(rule: Rule, request: int) -> float:
    """Return how far apart two reports may count, which a rule says before every round; 0: there is no limit."""
    return rule.notice(rule.init(1), request).reach


def price(rule: Rule, request: int, distance: float, expected: float, variance: float) -> float:
    """Return h(ν) + h'(ν)·ν²/V·(E − D): what a round earns where that is not what it pays."""
    nu = int(request)
    return float(rule.cost(nu) + rule.cost.slope(nu) * nu**2 / variance * (expected - distance))


def settled(
    rule: Rule, request: int, factor: float, reward: float, distance: float, expected: float, variance: float
) -> float:
    """Return what a paid reward holds of earlier rounds: what goes beyond the price of its own; 0 where it is rounding.

    >>> from guerdon import AffineCost, OutputAgreement
    >>> settled(OutputAgreement(AffineCost(1, 1)), 8, 1.0, 12.5, distance=3.0, expected=4.0, variance=32.0)
    1.5
    """
    if not rule.formula or rule.vary or variance != variance:  # with `vary` a price is not that of the request
        return 0.0
    late = reward - factor * price(rule, request, distance, expected, variance)
    parts = abs(price(rule, request, -abs(distance), abs(expected), variance))
    return late if abs(late) > 2e-6 + 1e-6 * factor * parts else 0.0


def _explain_paid(rule: Rule, request: int, factor: float, reward: float, distance: float, expected: float) -> str:
    fair, asked = _asked(rule, request, factor)
    if distance != distance:  # NaN: the rule does not look at distances
        same = _same(reward, fair, factor)
        return f"{asked}, whatever was sent" if same else f"{asked}, {_more(reward - fair)}"
    why = rule.why(distance, expected)
    return f"{asked}, {_more(reward - fair)}" + ("" if why is None else f": {why}")


def _asked(rule: Rule, request: int, factor: float) -> tuple[float, str]:
    """Return the cost of what was asked of an agent, and the words for it."""
    usual = float(rule.cost(int(request)))
    times = "" if factor == 1 else f" ({factor:g} times the usual {usual:.4g})"
    return factor * usual, f"{factor * usual:.4g} for the {request} samples asked for{times}"


def _same(reward: float, fair: float, factor: float) -> bool:
    return math.isclose(reward, fair, rel_tol=1e-9, abs_tol=1e-6 * (factor != 1))  # a ledger rounds what it keeps


def _more(extra: float) -> str:
    return f"plus {extra:.4g}" if extra >= 0 else f"less {-extra:.4g}"


_REASONS = {
    Status.DECLINED: "it did not take part",
    Status.ALONE: "nobody else took part, so there is nothing to compare it with",
    Status.TOO_FEW: "only two took part, and one other gradient does not tell how much gradients vary",
    Status.NO_VARIANCE: "all gradients were identical, so distances have no scale",
    Status.INVALID: "what it sent cannot be used (NaN, infinity, too large, malformed or a copy); it counts as absent",
}
