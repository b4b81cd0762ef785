"""Payment rules and costs as text, so that a ledger can recompute every reward years later."""

import json
import math
from typing import Any, Literal

import numpy as np

from guerdon.costs import AffineCost, Cost, ExpressionCost, PowerCost
from guerdon.information import InformationPay
from guerdon.ledger.canonical import canonical
from guerdon.ledger.errors import RefusedError
from guerdon.mechanisms import (
    BalancedVariance,
    EstimatedVariance,
    FlatPay,
    KnownVariance,
    Mechanism,
    OutputAgreement,
    Payments,
)

INFORMATION = ("decay", "least", "doubt", "limit")  # the settings of information pay
INFINITY = "infinity"


def describe(mechanism: Mechanism) -> tuple[str, str]:
    """Return a payment rule and its cost as text.

    >>> describe(OutputAgreement(AffineCost(1, 1)))
    ('{"crowd":"present","rule":"output-agreement","variance":{"decay":null,"kind":"balanced"}}', '1 + 1*s')
    """
    if isinstance(mechanism, FlatPay):
        return canonical({"rule": "flat"}), describe_cost(mechanism.cost)
    if isinstance(mechanism, OutputAgreement):
        variance = _describe_variance(mechanism.variance)
        rule = {"rule": "output-agreement", "variance": variance, "crowd": mechanism.crowd}
        return canonical(rule), describe_cost(mechanism.cost)
    if isinstance(mechanism, InformationPay):
        settings = {name: _finite_or_text(getattr(mechanism, name)) for name in INFORMATION}
        return canonical({"rule": "information", **settings}), describe_cost(mechanism.cost)
    raise RefusedError(
        "`mechanism` must be an OutputAgreement, an InformationPay or FlatPay to be recorded, got "
        f"{type(mechanism).__name__}"
    )


def describe_cost(cost: Cost) -> str:
    """Return a cost as an expression in s."""
    if isinstance(cost, ExpressionCost):
        return cost.text
    if isinstance(cost, AffineCost):
        return f"{_number(cost.fixed)} + {_number(cost.per_sample)}*s"
    if isinstance(cost, PowerCost):
        return f"{_number(cost.fixed)} + {_number(cost.scale)}*s**{_number(cost.exponent)}"
    raise RefusedError(
        f"`cost` must be one that can be written down (AffineCost, PowerCost, ExpressionCost), got "
        f'{type(cost).__name__}; ExpressionCost("1 + s") takes any formula'
    )


def restore(rule: str, cost: str) -> Mechanism:
    """Return the payment rule that `describe` wrote down."""
    try:
        settings: dict[str, Any] = json.loads(rule)
        if settings["rule"] == "flat":
            return FlatPay(ExpressionCost(cost))
        if settings["rule"] == "output-agreement":
            return OutputAgreement(ExpressionCost(cost), _restore_variance(settings["variance"]), settings["crowd"])
        if settings["rule"] == "information":
            return InformationPay(ExpressionCost(cost), **{name: _number_of(settings[name]) for name in INFORMATION})
    except (ValueError, TypeError, KeyError) as error:
        raise RefusedError(f"a recorded payment rule cannot be read: {rule[:200]} ({error})") from error
    raise RefusedError(f"a recorded payment rule is not known to this version: {rule[:200]}")


def looks_at(rule: str) -> Literal["distance", "information"]:
    """Return what a recorded rule pays for, as `guerdon.explanations.explain` needs to know it."""
    return "information" if json.loads(rule)["rule"] == "information" else "distance"


def largest_term(mechanism: Any, payments: Payments, request: Any, length: Any) -> Any:
    """Return, per payment, the largest number that went into the reward: its rounding is relative to this.

    `length` is the evidence's.
    """
    nu = np.asarray(request, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        slope = mechanism.cost.slope(nu) * nu**2 / payments.variance
        return mechanism.cost(nu) + np.nan_to_num(slope * largest_distance(mechanism, payments, length))


def largest_distance(mechanism: Any, payments: Payments, length: Any) -> Any:
    """Return, per payment, how large the parts of D and E are together.

    D and E are sums of squares, but under information pay D = ‖v‖² − (2/a)⟨v, w⟩, and E is the same for the others:
    both may be negative, or small where their parts are not. No part of D is larger than |D| + ‖v‖².
    """
    sizes = np.abs(payments.expected_distance) + np.abs(payments.distance)
    if isinstance(mechanism, InformationPay):
        sizes = sizes + 2 * (length + np.max(length, axis=-1, keepdims=True))
    return sizes


def remembers(mechanism: Mechanism) -> bool:
    """Tell whether a round's pay depends on earlier rounds."""
    if isinstance(mechanism, InformationPay):
        return True
    return isinstance(mechanism, OutputAgreement) and getattr(mechanism.variance, "decay", None) is not None


def _finite_or_text(value: float) -> float | str:
    """Return a setting as JSON can hold it: JSON knows no infinity."""
    return INFINITY if math.isinf(value) else float(value)


def _number_of(value: Any) -> float:
    return math.inf if value == INFINITY else float(value)


def _number(value: float) -> str:
    """Return a number as text that gives exactly the same number back."""
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def _describe_variance(variance: Any) -> dict[str, Any]:
    if isinstance(variance, KnownVariance):
        return {"kind": "known", "variance": float(variance.variance)}
    if isinstance(variance, EstimatedVariance):
        return {"kind": "estimated"}
    if isinstance(variance, BalancedVariance):
        return {"kind": "balanced", "decay": None if variance.decay is None else float(variance.decay)}
    raise RefusedError(
        f"`variance` must be KnownVariance, EstimatedVariance or BalancedVariance to be recorded, got "
        f"{type(variance).__name__}"
    )


def _restore_variance(settings: dict[str, Any]) -> Any:
    match settings["kind"]:
        case "known":
            return KnownVariance(settings["variance"])
        case "estimated":
            return EstimatedVariance()
        case "balanced":
            return BalancedVariance(settings["decay"])
        case other:
            raise ValueError(f"unknown variance {other!r}")
