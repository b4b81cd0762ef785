"""The workload of Fig. 3, at any size: what the simulator is timed on."""

from guerdon import AffineCost, OutputAgreement
from guerdon.lab.agents import Cooperative, Fixed
from guerdon.lab.problems.linear_regression import linear_regression, optimal_step
from guerdon.lab.simulation import Summary, simulate
from guerdon.lab.truth import TrueVariance
from guerdon.requests import FixedRequest

RULE = OutputAgreement(AffineCost(1, 1), TrueVariance())
ROUNDS, AGENTS = 60, 10


def fig3_workload(
    repetitions: int, *, dim: int = 100, max_batch: int = 64, dimension_free: bool | None = None
) -> Summary:
    """Return what the workload of Fig. 3 comes to; by default as a user would type it."""
    problem = linear_regression(dim, max_batch=max_batch)
    players = [Fixed(4), *[Cooperative()] * (AGENTS - 1)]
    requests = FixedRequest(8, optimal_step(dim, AGENTS, 8))
    return simulate(
        problem, players, RULE, requests, ROUNDS, repetitions, dimension_free=dimension_free, keep="summary"
    )


def mean_reward(found: Summary) -> float:
    """Return the mean reward of agent 0 per round: half the work, which earns 1 in expectation."""
    return float(found.total_rewards["reward"][:, 0].mean() / ROUNDS)
