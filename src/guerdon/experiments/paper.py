"""The setting of the paper's experiments."""

from guerdon.costs import AffineCost
from guerdon.rules import BalancedVariance, EstimatedVariance, OutputAgreement, TrueVariance

AGENTS = 10
DIM = 100
START = 100.0  # ‖θ_0 − θ*‖²
COST = AffineCost(fixed=1, per_sample=1)
REQUEST = 8
SIZES = (1, 2, 4, 8, 16)
LARGEST = 16

KNOWN = OutputAgreement(COST, TrueVariance())
ESTIMATED = OutputAgreement(COST, EstimatedVariance())
BALANCED = OutputAgreement(COST, BalancedVariance())
RULES = {"known": KNOWN, "estimated": ESTIMATED, "balanced": BALANCED}
