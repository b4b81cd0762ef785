"""One small training that tests of the simulator share: the engine is compiled for it once, whatever its numbers."""

import functools
from typing import Any

from guerdon import AffineCost, EstimatedVariance, FlatPay, OutputAgreement
from guerdon.lab.agents import Fixed
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.problems import linear_regression
from guerdon.lab.simulation import History, simulate, training
from guerdon.lab.truth import GenieAided, TrueVariance
from guerdon.requests import ScheduledRequest
from guerdon.rule import Rule

COST = AffineCost(1, 1)
AGENTS, ROUNDS, REPETITIONS = 6, 8, 1000
DIM, DISTANCE, LARGEST = 10, 10.0, 16
NU, STEP = 8, 0.15

TRUE: Any = TrueVariance()  # which `GenieAided` accepts only inside `simulate`
RULES: dict[str, Rule] = {
    "known": OutputAgreement(COST, TrueVariance()),
    "estimated": OutputAgreement(COST, EstimatedVariance()),
    "balanced": OutputAgreement(COST, BalancedVariance()),
    "genie": GenieAided(COST, TRUE),
    "flat": FlatPay(COST),
}

# Requests that change, agents who use fewer and more samples than asked, and one who declines.
MIXED = (2, 4, 8, 0, 16, 8)
CHANGING = (8, 8, 4, 2, 16, 8, 1, 8)
STEPS = (0.15, 0.1, 0.1, 0.05, 0.2, 0.15, 0.0, 0.1)


def train(
    sizes: tuple[int, ...] = (NU,) * AGENTS,
    requests: tuple[int, ...] = (NU,) * ROUNDS,
    steps: tuple[float, ...] = (STEP,) * ROUNDS,
    seed: int = 0,
    *,
    rules: dict[str, Rule] = RULES,
    distance: float = DISTANCE,
    **options: Any,
) -> History:
    """Return the history of agents who always use `sizes`; of whole gradients, whatever the rules."""
    options = {"repetitions": REPETITIONS, "dimension_free": False} | options
    agents = [Fixed(size) for size in sizes]
    policy = ScheduledRequest(requests, steps)
    problem = linear_regression(DIM, distance, LARGEST)
    return simulate(problem, agents, rules, policy, ROUNDS, seed=seed, **options)


def compilations() -> int:
    """Return how often the engine was compiled so far."""
    functions: tuple[Any, ...] = training.begin, training.play
    return sum(function._cache_size() for function in functions)


@functools.cache
def cooperation() -> History:
    """Return the history of agents who do what is asked."""
    return train()


@functools.cache
def mixture() -> History:
    """Return the history of agents with mixed sizes under changing requests."""
    return train(MIXED, CHANGING, STEPS)


ALONE = {"balanced": RULES["balanced"]}  # one rule only: quicker to compile, where that is enough
HALF = REPETITIONS // 2
