"""Why a payment is what it is, in plain words."""

import math
from collections.abc import Sequence

from guerdon.rules.mechanism import Mechanism, Payments, Status


def explain(
    mechanism: Mechanism, payments: Payments, request: int, factors: Sequence[float] | None = None
) -> list[str]:
    """Return, for each agent, why it was paid what it was paid; `factors` multiply the rule's cost for each."""
    own = [1.0] * len(payments.reward) if factors is None else factors
    rows = zip(own, zip(*payments, strict=True), strict=True)
    return [_explain(mechanism, request, factor, *map(float, row)) for factor, row in rows]


def _explain(
    mechanism: Mechanism,
    request: int,
    factor: float,
    reward: float,
    distance: float,
    expected: float,
    variance: float,
    status: float,
) -> str:
    if status != Status.PAID:
        return f"nothing: {(_REASONS | dict(mechanism.reasons()))[Status(int(status))]}"
    if mechanism.holds:
        earned = factor * price(mechanism, request, distance, expected, variance)
        told = _explain_paid(mechanism, request, factor, earned, distance, expected)
        return f"{reward:.4g} released; earned in this round: {earned:.4g} ({told})"
    return _explain_paid(mechanism, request, factor, reward, distance, expected)


def price(mechanism: Mechanism, request: int, distance: float, expected: float, variance: float) -> float:
    """Return h(ν) + h'(ν)·ν²/V·(E − D): what a round earns where that is not what it pays."""
    nu = int(request)
    return float(mechanism.cost(nu) + mechanism.cost.slope(nu) * nu**2 / variance * (expected - distance))


def _explain_paid(
    mechanism: Mechanism, request: int, factor: float, reward: float, distance: float, expected: float
) -> str:
    usual = float(mechanism.cost(int(request)))
    fair, times = factor * usual, "" if factor == 1 else f" ({factor:g} times the usual {usual:.4g})"
    asked = f"{fair:.4g} for the {request} samples asked for{times}"
    if distance != distance:  # NaN: the rule does not look at distances
        same = math.isclose(reward, fair, rel_tol=1e-9, abs_tol=1e-6 * (factor != 1))  # a ledger rounds what it keeps
        return f"{asked}, whatever was sent" if same else f"{asked}, {_more(reward - fair)}"
    why = mechanism.why(distance, expected)
    return f"{asked}, {_more(reward - fair)}" + ("" if why is None else f": {why}")


def _more(extra: float) -> str:
    return f"plus {extra:.4g}" if extra >= 0 else f"less {-extra:.4g}"


_REASONS = {
    Status.DECLINED: "it did not take part",
    Status.ALONE: "nobody else took part, so there is nothing to compare it with",
    Status.TOO_FEW: "only two took part, and one other gradient does not tell how much gradients vary",
    Status.NO_VARIANCE: "all gradients were identical, so distances have no scale",
    Status.INVALID: "what it sent cannot be used (NaN, infinity, too large, malformed or a copy); it counts as absent",
}
