"""The optimum of the expected path: the numbers known, brute force on a small case, and nothing beats it."""

from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, PowerCost
from guerdon.costs import Cost
from guerdon.lab.planning import optimum
from guerdon.lab.planning.optimum import _next_errors, next_error, optimal_requests, realised_totals
from guerdon.lab.problems.linear_regression import expected_errors

COST = AffineCost(1, 1)


@pytest.mark.parametrize(("target", "total"), [(1.0, 790), (0.5, 991), (0.1, 2030), (0.05, 3138)])
def test_the_papers_setting(target: float, total: float) -> None:
    found = optimal_requests(100, 10, COST, 100.0, target)
    assert found.total == pytest.approx(total, rel=2e-3)
    assert found.accuracy <= 1e-3


@pytest.mark.parametrize(
    ("cost", "target"), [(COST, 3.0), (COST, 0.02), (AffineCost(20, 1), 0.5), (PowerCost(0.5, 2, 1), 0.1)]
)
def test_its_plan_does_what_it_says(cost: Cost, target: float) -> None:
    plan = optimal_requests(20, 5, cost, 10.0, target, max_batch=40)
    error = 10.0
    for nu, before in zip(plan.requests, plan.errors, strict=False):
        assert error == pytest.approx(before)
        assert 1 <= nu <= 40
        error = float(next_error(np.asarray(error), 20, np.asarray(5 * nu)))
    assert error <= target * (1 + 1e-9)
    assert plan.errors[-1] == pytest.approx(error)
    assert plan.total == pytest.approx(sum(5 * cost(nu) for nu in plan.requests))


def test_one_round_is_the_exact_recursion_at_the_best_step() -> None:
    for error, nu in ((100.0, 3), (1.0, 8), (0.05, 20)):
        found = float(next_error(np.asarray(error), 100, np.asarray(10 * nu)))
        steps = np.linspace(0.001, 0.5, 2000)
        after = min(expected_errors(100, 10, nu, float(step), error, 1)[1] for step in steps)
        assert found == pytest.approx(after, rel=1e-4)
        assert found <= after


def brute_force(dim: int, agents: int, cost: Cost, start: Any, target: float, largest: int, rounds: int) -> float:
    """Return the least total over all sequences of so many rounds at most."""
    if start <= target or rounds == 0:
        return 0.0 if start <= target else np.inf
    after = next_error(np.asarray(start), dim, agents * np.arange(1, largest + 1))
    rest = [brute_force(dim, agents, cost, error, target, largest, rounds - 1) for error in after]
    return min(agents * cost(nu) + more for nu, more in enumerate(rest, start=1))


@pytest.mark.parametrize("cost", [COST, AffineCost(5, 1), PowerCost(0.5, 2, 1)])
@pytest.mark.parametrize("target", [1.0, 0.4])
def test_it_is_what_brute_force_finds(cost: Cost, target: float) -> None:
    found = optimal_requests(4, 6, cost, 5.0, target, max_batch=6)
    assert found.total == pytest.approx(brute_force(4, 6, cost, 5.0, target, 6, rounds=5), rel=1e-3)


@pytest.mark.parametrize("target", [1.0, 0.05])
def test_no_fixed_request_beats_it(target: float) -> None:
    best = optimal_requests(100, 10, COST, 100.0, target).total
    for nu in range(1, 65):
        error, paid = np.asarray(100.0), 0.0
        while error > target:
            error, paid = next_error(error, 100, np.asarray(10 * nu)), paid + 10 * COST(nu)
        assert paid >= best * (1 - 1e-3)


def test_random_errors_have_the_expected_mean() -> None:
    for error, nu in ((100.0, 1), (1.0, 8), (0.05, 20)):
        normals = np.random.default_rng(0).normal(size=(4, 100_000))
        drawn = _next_errors(np.full(100_000, error), 100, np.full(100_000, 10 * nu), normals)
        expected = next_error(np.asarray(error), 100, np.asarray(10 * nu))
        # The χ² are approximate: to 0.1 % on average.
        assert abs(drawn.mean() - expected) < 4 * drawn.std() / 100_000**0.5 + 1e-3 * expected


def test_where_errors_are_random_the_best_plan_pays_about_as_much() -> None:
    totals = realised_totals(100, 10, COST, 100.0, 1.0, runs=4000)
    assert totals.std() / 4000**0.5 < 0.002 * 790
    assert abs(totals.mean() / 790 - 1) < 0.02
    assert totals.std() > 20  # it is random


def test_a_worse_plan_for_random_errors_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan for the expected path, followed by runs whose errors are random: each often misses by a little."""
    values, *_ = optimum._plan(100, 10, COST, 100.0, 1.0, 64)
    place = np.linspace(0, len(values.request) - 1, optimum.GRID).astype(int)
    logs = np.linspace(values.log_errors[0], values.log_errors[-1], optimum.GRID)
    plan = logs, np.maximum(values.request[place], 1)
    monkeypatch.setattr(optimum, "_plan_for_random_errors", lambda *_: plan)
    assert realised_totals(100, 10, COST, 100.0, 1.0, runs=2000).mean() > 1.05 * 790


def test_at_the_target_there_is_nothing_to_pay() -> None:
    assert optimal_requests(100, 10, COST, 1.0, 1.0) == (0.0, 0.0, (), (1.0,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": 0.0}, "`target` must be a finite number above 0, got 0.0"),
        ({"target": float("nan")}, "`target` must be a finite number above 0, got nan"),
        ({"start": -1.0}, "`start` must be a finite number of at least 0, got -1.0"),
        ({"dim": 0}, "`dim` must be a positive integer, got 0"),
        ({"num_agents": 2.5}, "`num_agents` must be a positive integer, got 2.5"),
        ({"max_batch": 0}, "`max_batch` must be a positive integer, got 0"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"dim": 10, "num_agents": 4, "cost": COST, "start": 10.0, "target": 1.0}
    with pytest.raises((ValueError, TypeError), match=message):
        optimal_requests(**(arguments | change))
