"""Guerdon: pay participants of federated learning for work that nobody can see."""

from guerdon.costs import AffineCost, Cost, ExpressionCost, FunctionCost, PowerCost, check_cost
from guerdon.evidence import Evidence, gather
from guerdon.game import MinibatchGame
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
    explain,
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
    "KnownVariance",
    "Mechanism",
    "MinibatchGame",
    "OutputAgreement",
    "Payments",
    "PowerCost",
    "Status",
    "check_cost",
    "explain",
    "gather",
]
