"""Guerdon: pay participants of federated learning for work that nobody can see."""

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
