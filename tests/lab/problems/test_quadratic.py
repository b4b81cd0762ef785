"""The stand-in of forecasts: gradients as it says, and the recursion that fits are made with."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from guerdon import FlatPay, PowerCost
from guerdon.lab.agents import Cooperative
from guerdon.lab.problems import noisy_quadratic
from guerdon.lab.problems.quadratic import Numbers
from guerdon.lab.simulation import simulate
from guerdon.requests import FixedRequest
from tests.lab.problems.draws import draw
from tests.support.means import mean

SURE = 4.0
NUMBERS = Numbers(signal=9.0, curvature=0.5, base=4.0, slope=2.0, goal=1.0)
PROBLEM = noisy_quadratic(NUMBERS, dim=10, max_batch=8)


START = PROBLEM.init(jax.random.key(0))


@functools.cache
def draws(size: int) -> Any:
    return draw(PROBLEM, START, size, seed=1)


@pytest.mark.parametrize("size", [1, 4])
def test_gradients_have_the_mean_and_variance_it_says(size: int) -> None:
    drawn = draws(size)
    centre = np.asarray(PROBLEM.population_gradient(START))
    for component in range(10):
        assert abs(mean(drawn[:, component]).z(float(centre[component]))) < SURE
    spread = mean(np.sum((drawn - centre) ** 2, axis=1))
    assert abs(spread.z((4 + 2 * 9) / size)) < SURE
    assert spread.error < 0.02 * (4 + 2 * 9) / size


def test_its_numbers_are_never_moved() -> None:
    assert START.shape == (15,)
    np.testing.assert_array_equal(draws(1)[:, 10:], 0)


@pytest.mark.slow
def test_the_signal_follows_the_exact_recursion() -> None:
    """‖m'‖² = ‖m‖²(1 − ηL)² + (ηL)²σ²/(nν), in the mean: what `fit_pilot` is built on."""
    nu, step, agents, rounds = 4, 0.6, 5, 6
    policy, cost = FixedRequest(nu, step), PowerCost(1, 1)
    history = simulate(PROBLEM, [Cooperative()] * agents, FlatPay(cost), policy, rounds, 4000)
    moved, expected = step * NUMBERS.curvature, NUMBERS.signal
    for t in range(1, rounds + 1):
        variance = NUMBERS.base + NUMBERS.slope * expected
        expected = expected * (1 - moved) ** 2 + moved**2 * variance / (agents * nu)
        measured = mean(np.exp(history.metrics["left"][:, t]) * NUMBERS.goal)
        assert abs(measured.z(expected)) < SURE
        assert measured.error < 0.02 * expected
        if t < rounds:
            assert abs(mean(history.signal[:, t]).z(expected)) < SURE


@pytest.mark.parametrize("change", [{"dim": 0}, {"max_batch": 0}, {"dim": 2.5}])
def test_bad_sizes_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=f"`{next(iter(change))}` must be a positive integer"):
        noisy_quadratic(NUMBERS, **change)
