"""The setting of the paper's experiments."""

from typing import Any

import numpy as np

from guerdon.agreement import EstimatedVariance, OutputAgreement
from guerdon.costs import AffineCost
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.simulation import Stop
from guerdon.lab.truth import TrueVariance

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
DEFAULT = OutputAgreement(COST)  # what Guerdon itself pays by where no variance is named
# Never reached. With it Figures 2 and 3 are the same program as Figure 4, which stops at its target: compiled once.
NEVER = Stop("error", at_most=-1.0)
# The paper proves its theorem for the known variance, and evaluates the estimated one.
RULES = {"known": KNOWN, "estimated": ESTIMATED}


def seed_of(seed: int, *numbers: int) -> int:
    """Return the seed of one of an experiment's settings: settings with other numbers have other random draws.

    >>> seed_of(0, 8) == seed_of(0, 8), seed_of(0, 8) == seed_of(0, 16)
    (True, False)
    """
    entropy = [abs(seed), int(seed < 0), *numbers]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)  # a key takes 31 bits everywhere


def expected_pay(rule: str, size: Any, request: int = REQUEST) -> Any:
    """Return what an agent with `size` samples, whole or not, is paid in expectation, the others at the request.

    Exact under the known variance: h(ν) + h'(ν)·ν·(1 − ν/S). Under the estimated one in many dimensions: there the
    noises of two gradients are orthogonal, and the squared length of one is (σ²/S)·χ²_S/S, since it has the factor
    Σ e_i² of its S residuals. With L_k the agent's squared length and L the sum of the others',

        h(ν) + h'(ν)·ν·(1 − (n − 1)·E[L_k/L]),   E[L_k/L] = ν²/(S(f − 2)),   f = (n − 1)·ν

    >>> expected_pay("known", 4.0), round(float(expected_pay("estimated", 8)), 2)
    (np.float64(1.0), 8.77)
    """
    sizes, freedom = np.asarray(size, dtype=np.float64), (AGENTS - 1) * request
    ratio = request / sizes if rule == "known" else (AGENTS - 1) * request**2 / (sizes * (freedom - 2))
    return COST(request) + COST.slope(request) * request * (1 - ratio)
