"""Payment rules: what they promise (`rule`), the rules themselves, and how they are chosen and written down."""

from guerdon.rules.agreement import (
    EarlierRounds,
    EstimatedVariance,
    KnownVariance,
    OutputAgreement,
    TrueVariance,
    VarianceRule,
)
from guerdon.rules.calibrated import CalibratedAgreement
from guerdon.rules.controls import FlatPay, GenieAided
from guerdon.rules.explanations import explain, price
from guerdon.rules.information import InformationPay, noise_scale_bound
from guerdon.rules.registry import choices, choose, choose_payable, describe, register, restore
from guerdon.rules.rule import (
    Facts,
    Need,
    Payments,
    Round,
    Rule,
    Status,
    Truth,
    as_request,
    check_round,
    round_of,
    statuses,
)
from guerdon.rules.steady import SteadyPay
from guerdon.rules.witnessed import WitnessedPay, WitnessSample, stack_minibatches, witness_sample

__all__ = [
    "CalibratedAgreement",
    "EarlierRounds",
    "EstimatedVariance",
    "Facts",
    "FlatPay",
    "GenieAided",
    "InformationPay",
    "KnownVariance",
    "Need",
    "OutputAgreement",
    "Payments",
    "Round",
    "Rule",
    "Status",
    "SteadyPay",
    "TrueVariance",
    "Truth",
    "VarianceRule",
    "WitnessSample",
    "WitnessedPay",
    "as_request",
    "check_round",
    "choices",
    "choose",
    "choose_payable",
    "describe",
    "explain",
    "noise_scale_bound",
    "price",
    "register",
    "restore",
    "round_of",
    "stack_minibatches",
    "statuses",
    "witness_sample",
]
