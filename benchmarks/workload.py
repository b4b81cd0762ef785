"""The workload of Fig. 3, at any size: what the simulator is timed on."""

# JAX's transformations forget the types of their arguments.
# pyright: reportUnknownArgumentType=false

import numpy as np

from guerdon import AffineCost, OutputAgreement
from guerdon.agents import Cooperative, Fixed
from guerdon.problems.linear_regression import linear_regression, optimal_step
from guerdon.requests import FixedRequest
from guerdon.rules import TrueVariance
from guerdon.simulation import simulate

RULE = OutputAgreement(AffineCost(1, 1), TrueVariance())


def fig3_workload(repetitions: int, rounds: int = 60, agents: int = 10, dim: int = 100, size: int = 4) -> float:
    """Return the mean reward of agent 0, over the workload of Fig. 3."""
    problem = linear_regression(dim, max_batch=16)
    players = [Fixed(size), *[Cooperative()] * (agents - 1)]
    requests = FixedRequest(8, optimal_step(dim, agents, 8))
    history = simulate(problem, players, RULE, requests, rounds, repetitions)
    return float(np.mean(history.rewards["reward"][:, :, 0]))
