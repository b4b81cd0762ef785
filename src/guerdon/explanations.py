"""Why a payment is what it is, in plain words."""

from typing import Literal

from guerdon.costs import Cost
from guerdon.mechanisms import Payments, Status


def explain(
    payments: Payments, cost: Cost, request: int, by: Literal["distance", "information"] = "distance"
) -> list[str]:
    """Return, for each agent, why he was paid what he was paid; `by` says what his rule looks at."""
    asked = f"{cost(int(request)):.4g} for the {request} samples asked for"
    told, reasons = (_told, _REASONS | _OF_INFORMATION) if by == "information" else (_lay, _REASONS)
    return [
        _explain_paid(asked, float(reward - cost(int(request))), told(float(distance), float(expected)))
        if Status(int(status)) is Status.PAID
        else f"nothing: {reasons[Status(int(status))]}"
        for reward, distance, expected, _, status in zip(*payments, strict=True)
    ]


def _explain_paid(asked: str, extra: float, why: str | None) -> str:
    if why is None:
        return f"{asked}, whatever was sent"
    amount = f"plus {extra:.4g}" if extra >= 0 else f"less {-extra:.4g}"
    return f"{asked}, {amount}: {why}"


def _lay(distance: float, expected: float) -> str | None:
    if distance != distance:  # NaN: the rule does not look at distances
        return None
    side = "closer to the others than" if distance <= expected else "further from the others than"
    return f"at distance {distance:.4g}, {side} the {expected:.4g} of honest work"


def _told(distance: float, expected: float) -> str:
    more = expected - distance
    side = "more" if more >= 0 else "less"
    return f"his report told {abs(more):.4g} {side} about the gradient than the others' did"


_REASONS = {
    Status.DECLINED: "he did not take part",
    Status.ALONE: "nobody else took part, so there is nothing to compare him with",
    Status.TOO_FEW: "only two took part, and one other gradient does not tell how much gradients vary",
    Status.NO_VARIANCE: "all gradients were identical, so distances have no scale",
    Status.INVALID: "what he sent cannot be computed with (NaN, infinity, too large or malformed); he counts as absent",
}
_OF_INFORMATION = {
    Status.TOO_FEW: "fewer than two others sent something that he could be compared with",
    Status.NO_VARIANCE: "all reports were identical, so what they told has no scale",
}
