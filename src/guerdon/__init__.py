"""Guerdon: pay participants of federated learning for work that nobody can see."""

from guerdon.costs import AffineCost, Cost, ExpressionCost, FunctionCost, PowerCost, check_cost
from guerdon.evidence import Evidence, gather
from guerdon.explanations import explain
from guerdon.game import MinibatchGame
from guerdon.information import InformationPay
from guerdon.mechanisms import (
    BalancedVariance,
    EstimatedVariance,
    FlatPay,
    GenieAided,
    KnownVariance,
    Mechanism,
    OutputAgreement,
    Payments,
    Status,
)
from guerdon.noise_scale import estimate_noise
from guerdon.requests import (
    Outcome,
    Requests,
    budget_request,
    fixed_request,
    noise_scale_request,
    scheduled_request,
)

__version__ = "0.1.0"

__all__ = [
    "AffineCost",
    "BalancedVariance",
    "Cost",
    "EstimatedVariance",
    "Evidence",
    "ExpressionCost",
    "FlatPay",
    "FunctionCost",
    "GenieAided",
    "InformationPay",
    "KnownVariance",
    "Mechanism",
    "MinibatchGame",
    "Outcome",
    "OutputAgreement",
    "Payments",
    "PowerCost",
    "Requests",
    "Status",
    "budget_request",
    "check_cost",
    "estimate_noise",
    "explain",
    "fixed_request",
    "gather",
    "noise_scale_request",
    "scheduled_request",
]
