"""Why a payment is what it is, in plain words."""

from guerdon.rules.mechanism import Mechanism, Payments, Status


def explain(mechanism: Mechanism, payments: Payments, request: int) -> list[str]:
    """Return, for each agent, why it was paid what it was paid."""
    return [_explain(mechanism, request, *map(float, row)) for row in zip(*payments, strict=True)]


def _explain(
    mechanism: Mechanism, request: int, reward: float, distance: float, expected: float, variance: float, status: float
) -> str:
    if status != Status.PAID:
        return f"nothing: {(_REASONS | dict(mechanism.reasons()))[Status(int(status))]}"
    fair = float(mechanism.cost(int(request)))
    if mechanism.holds:
        earned = price(mechanism, request, distance, expected, variance)
        told = _explain_paid(mechanism, request, fair, earned, distance, expected)
        return f"{reward:.4g} released; earned in this round: {earned:.4g} ({told})"
    return _explain_paid(mechanism, request, fair, reward, distance, expected)


def price(mechanism: Mechanism, request: int, distance: float, expected: float, variance: float) -> float:
    """Return h(ν) + h'(ν)·ν²/V·(E − D): what a round earns where that is not what it pays."""
    nu = int(request)
    return float(mechanism.cost(nu) + mechanism.cost.slope(nu) * nu**2 / variance * (expected - distance))


def _explain_paid(
    mechanism: Mechanism, request: int, fair: float, reward: float, distance: float, expected: float
) -> str:
    asked = f"{fair:.4g} for the {request} samples asked for"
    if distance != distance:  # NaN: the rule does not look at distances
        return f"{asked}, whatever was sent" if reward == fair else f"{asked}, {_more(reward - fair)}"
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
