"""How noisy any payment must be that deters: the bound of Hammersley, Chapman and Robbins.

If pay is to be worth h more to an agent that works than to one that does not, then E_P R − E_Q R ≥ h, with P and Q the
laws of what the server sees in both cases, and by the Cauchy–Schwarz inequality Var_P(R) ≥ h²/χ²(Q‖P). Here the rule is
even told the true surprise r = m − p: reports are about N(r, Σ/ν) with work and N(0, Σ/ν) without, so that
χ² = exp(ν·rᵀΣ⁻¹r) − 1, in the mean over dithers. For a batch size the Fisher information of S at ν is d/2ν².
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array
from guerdon.costs import Cost
from guerdon.lab.problems import Problem

STEPS = 200  # of gradient descent, to where noise is measured
SAMPLES, DITHERS = 4096, 16
RIDGE = 1e-3  # of the mean variance of a number, so that Σ can be inverted


class LeastDeviation(NamedTuple):
    """The least standard deviation of pay in a round: to deter not working, and to deter a smaller batch."""

    forged: float
    sizes: float


def least_deviation(
    problem: Problem, request: int, cost: Cost, length: float, step: float, seed: int = 0
) -> LeastDeviation:
    """Return how noisy pay must be near the end of a training that broadcasts at `length` from the model."""
    model = problem.init(jax.random.key(seed))
    for _ in range(STEPS):
        model = model - step * problem.population_gradient(model)
    told = [_told(problem, model, length, request, key) for key in jax.random.split(jax.random.key(seed + 1), DITHERS)]
    dim = int(model.shape[0])
    forged = float(cost(request)) / float(np.sqrt(np.mean(np.expm1(np.array(told)))))
    return LeastDeviation(forged, float(cost.slope(request)) * request * float(np.sqrt(2 / dim)))


def _told(problem: Problem, model: Array, length: float, request: int, key: Array) -> float:
    """Return ν·rᵀΣ⁻¹r at one dither."""
    direction, draws = jax.random.split(key)
    u = jax.random.normal(direction, model.shape)
    beside = model + u * length / jnp.linalg.norm(u)
    one = jnp.asarray(1)
    drawn = jax.vmap(lambda each: problem.gradient(beside, one, each))(jax.random.split(draws, SAMPLES))
    covariance = np.cov(np.asarray(drawn, dtype=np.float64).T)
    covariance += RIDGE * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    surprise = np.asarray(problem.population_gradient(beside) - problem.population_gradient(model), dtype=np.float64)
    return float(request * surprise @ np.linalg.solve(covariance, surprise))
