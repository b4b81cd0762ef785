"""Why a payment is what it is, in plain words."""

from guerdon.rules.mechanism import Mechanism, Payments, Status


def explain(mechanism: Mechanism, payments: Payments, request: int) -> list[str]:
    """Return, for each agent, why it was paid what it was paid."""
    rows = zip(payments.reward, payments.distance, payments.expected_distance, payments.status, strict=True)
    return [
        _explain(mechanism, request, float(reward), float(distance), float(expected), Status(int(status)))
        for reward, distance, expected, status in rows
    ]


def _explain(
    mechanism: Mechanism, request: int, reward: float, distance: float, expected: float, status: Status
) -> str:
    if status is not Status.PAID:
        return f"nothing: {(_REASONS | dict(mechanism.reasons()))[status]}"
    fair = float(mechanism.cost(int(request)))
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
