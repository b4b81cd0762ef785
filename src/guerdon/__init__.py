"""Guerdon: pay participants of federated learning for work that nobody can see."""

from typing import TYPE_CHECKING

from guerdon._lazy import loader

if TYPE_CHECKING:
    from guerdon.costs import AffineCost, Cost, ExpressionCost, FunctionCost, PowerCost, check_cost
    from guerdon.evidence import Evidence, gather
    from guerdon.game import MinibatchGame
    from guerdon.noise_scale import estimate_noise
    from guerdon.requests import BudgetRequest, FixedRequest, NoiseScaleRequest, Outcome, Requests, ScheduledRequest
    from guerdon.rules import (
        BalancedVariance,
        CalibratedAgreement,
        EstimatedVariance,
        FlatPay,
        GenieAided,
        InformationPay,
        KnownVariance,
        Mechanism,
        OutputAgreement,
        Payments,
        Status,
        SteadyPay,
        WitnessedPay,
        explain,
    )
    from guerdon.server import Server

__version__ = "0.1.0"

__all__ = [
    "AffineCost",
    "BalancedVariance",
    "BudgetRequest",
    "CalibratedAgreement",
    "Cost",
    "EstimatedVariance",
    "Evidence",
    "ExpressionCost",
    "FixedRequest",
    "FlatPay",
    "FunctionCost",
    "GenieAided",
    "InformationPay",
    "KnownVariance",
    "Mechanism",
    "MinibatchGame",
    "NoiseScaleRequest",
    "Outcome",
    "OutputAgreement",
    "Payments",
    "PowerCost",
    "Requests",
    "ScheduledRequest",
    "Server",
    "Status",
    "SteadyPay",
    "WitnessedPay",
    "check_cost",
    "estimate_noise",
    "explain",
    "gather",
]

# Loaded when they are asked for: a node of a federation that signs its work needs no rule and no server.
_NAMES = {
    "costs": ("AffineCost", "Cost", "ExpressionCost", "FunctionCost", "PowerCost", "check_cost"),
    "evidence": ("Evidence", "gather"),
    "game": ("MinibatchGame",),
    "noise_scale": ("estimate_noise",),
    "requests": ("BudgetRequest", "FixedRequest", "NoiseScaleRequest", "Outcome", "Requests", "ScheduledRequest"),
    "rules": (
        "BalancedVariance",
        "CalibratedAgreement",
        "EstimatedVariance",
        "FlatPay",
        "GenieAided",
        "InformationPay",
        "KnownVariance",
        "Mechanism",
        "OutputAgreement",
        "Payments",
        "Status",
        "SteadyPay",
        "WitnessedPay",
        "explain",
    ),
    "server": ("Server",),
}

__getattr__ = loader(__name__, {name: module for module, names in _NAMES.items() for name in names})


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
