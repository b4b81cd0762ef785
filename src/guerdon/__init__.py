"""Guerdon: pay participants of federated learning for work that nobody can see."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guerdon.adaptive import BudgetRequest, NoiseScaleRequest
    from guerdon.agreement import EarlierRounds, EstimatedVariance, FlatPay, KnownVariance, OutputAgreement
    from guerdon.costs import AffineCost, Cost, ExpressionCost, FunctionCost, PowerCost, check_cost
    from guerdon.evidence import Evidence, gather
    from guerdon.lab.game import MinibatchGame
    from guerdon.noise_scale import estimate_noise
    from guerdon.requests import FixedRequest, Outcome, Requests, ScheduledRequest
    from guerdon.rule import Payments, Rule, Status, round_of
    from guerdon.server import Server
    from guerdon.statistical.calibrated import CalibratedAgreement
    from guerdon.statistical.information import InformationPay
    from guerdon.statistical.steady import SteadyPay
    from guerdon.terms import AtOnce, Looks, Terms, Vesting
    from guerdon.witness import WitnessedPay
    from guerdon.words import explain

__version__ = "0.1.0"

__all__ = [
    "AffineCost",
    "AtOnce",
    "BudgetRequest",
    "CalibratedAgreement",
    "Cost",
    "EarlierRounds",
    "EstimatedVariance",
    "Evidence",
    "ExpressionCost",
    "FixedRequest",
    "FlatPay",
    "FunctionCost",
    "InformationPay",
    "KnownVariance",
    "Looks",
    "MinibatchGame",
    "NoiseScaleRequest",
    "Outcome",
    "OutputAgreement",
    "Payments",
    "PowerCost",
    "Requests",
    "Rule",
    "ScheduledRequest",
    "Server",
    "Status",
    "SteadyPay",
    "Terms",
    "Vesting",
    "WitnessedPay",
    "check_cost",
    "estimate_noise",
    "explain",
    "gather",
    "round_of",
]

# Their names load when they are asked for: a node of a federation that signs its work needs no rule and no server.
_MODULES = (
    "costs", "evidence", "rule", "words", "agreement", "witness", "requests", "adaptive", "noise_scale", "statistical",
    "lab.game", "server", "terms",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            value = getattr(import_module(f"guerdon.{module}"), name, None)
            if value is not None:
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
