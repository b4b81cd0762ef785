"""The setting of the paper's experiments."""

from guerdon.costs import AffineCost
from guerdon.rules import BalancedVariance, EstimatedVariance, OutputAgreement, TrueVariance
from guerdon.simulation import Stop

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
# Never reached. With it Figures 2 and 3 are the same program as Figure 4, which stops at its target: compiled once.
NEVER = Stop("error", at_most=-1.0)
RULES = {"known": KNOWN, "estimated": ESTIMATED, "balanced": BALANCED}
