"""Adaptive requests in the simulator: the same numbers as the slow reference, and the simulator's own promises."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import AffineCost, FlatPay, OutputAgreement
from guerdon.adaptive import BudgetRequest, NoiseScaleRequest
from guerdon.lab.agents import Declining
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.problems import linear_regression
from guerdon.lab.simulation import Stop, simulate
from guerdon.lab.simulation.training import repetition_key, round_keys
from guerdon.lab.truth import GenieAided, TrueVariance
from guerdon.requests import Requests, ScheduledRequest
from tests.lab.simulation.setting import compilations
from tests.support.training_oracle import reference_policy

COST = AffineCost(1, 1)
RULE = OutputAgreement(COST, BalancedVariance())
AGENTS, DIM, LARGEST, ROUNDS = 6, 10, 32, 25
PROBLEM = linear_regression(DIM, 10.0, LARGEST)
POLICIES: dict[str, Requests] = {
    "noise scale": NoiseScaleRequest(COST, LARGEST),
    "budget": BudgetRequest(COST, 600.0, LARGEST),
    "scheduled": ScheduledRequest([8, 4, 2], [0.2, 0.1, 0.05]),
}


def run(policy: Requests, agents: Any = None, rule: Any = RULE, **options: Any) -> Any:
    arguments: Any = {"rounds": ROUNDS, "repetitions": 20, "dimension_free": False} | options
    return simulate(PROBLEM, agents or [Declining(0.0)] * AGENTS, rule, policy, **arguments)


@jax.jit
def gradients(model: Any, size: Any, key: Any, turn: Any) -> Any:
    """Everybody's gradient in a round, as the engine draws it."""
    return jax.vmap(functools.partial(PROBLEM.gradient, model, size))(round_keys(key, turn, AGENTS)[1])


@pytest.mark.parametrize(
    "name", ["budget", *(pytest.param(name, marks=pytest.mark.slow) for name in ("noise scale", "scheduled"))]
)
@pytest.mark.parametrize("declining", [0.0, 0.4])
def test_it_plays_as_the_reference_does(name: str, declining: float) -> None:
    """Given the engine's own gradients and the same agents away."""
    policy = POLICIES[name]
    history = run(policy, [Declining(declining)] * AGENTS)  # of which the first two are played again
    for repetition in range(2):
        key = repetition_key(0, jnp.asarray(repetition))

        def draw(model: Any, size: int, turn: int, agent: int, key: Any = key) -> Any:
            return gradients(np.asarray(model, np.float32), size, key, turn)[agent]

        slow = reference_policy(draw, np.zeros(DIM), policy, history.participating[repetition], COST, "balanced")
        played = len(slow.requests)
        assert played == history.rounds_played[repetition]
        np.testing.assert_array_equal(history.request[repetition, :played], slow.requests)
        np.testing.assert_allclose(history.step[repetition, :played], slow.steps, rtol=2e-3, atol=1e-6)
        np.testing.assert_allclose(history.rewards["reward"][repetition, :played], slow.rewards, rtol=2e-2, atol=2e-2)
        errors = np.sum((slow.models - np.asarray(PROBLEM.target)) ** 2, axis=1)
        np.testing.assert_allclose(history.metrics["error"][repetition, : played + 1], errors, rtol=1e-2, atol=1e-4)


@pytest.mark.slow
def test_an_adaptive_run_does_not_depend_on_chunks() -> None:
    whole, parts = run(POLICIES["noise scale"]), run(POLICIES["noise scale"], chunk=7)
    np.testing.assert_array_equal(whole.request, parts.request)
    np.testing.assert_array_equal(whole.metrics["error"], parts.metrics["error"])


@pytest.mark.slow
def test_requests_differ_between_repetitions_and_steps_are_recorded() -> None:
    history = run(POLICIES["noise scale"])
    assert (history.request[:, 0] == 4).all()
    assert len(np.unique(history.request[:, 12])) > 1
    assert (history.step > 0).all()
    np.testing.assert_array_equal(history.batch_sizes, np.broadcast_to(history.request[:, :, None], (20, ROUNDS, 6)))


@pytest.mark.slow
def test_the_genies_evidence_does_not_reach_the_policy() -> None:
    """Evidence around the true gradient would make ‖m‖² look like 0."""
    true: Any = TrueVariance()
    plain = run(POLICIES["noise scale"], rule={"flat": FlatPay(COST)})
    genie = run(POLICIES["noise scale"], rule={"flat": FlatPay(COST), "genie": GenieAided(COST, true)})
    np.testing.assert_array_equal(plain.request, genie.request)
    np.testing.assert_allclose(plain.step, genie.step, rtol=1e-4)


def test_a_budget_ends_the_run() -> None:
    history = run(POLICIES["budget"])
    total = history.total_reward()
    assert (total <= 600 * (1 + 1e-5)).all()
    assert (total > 600 - AGENTS * 2).all()
    played = history.rounds_played
    for r in range(20):
        assert (history.request[r, : played[r]] > 0).all()
        assert (history.request[r, played[r] :] == 0).all()
        assert not history.participating[r, played[r] :].any()
        assert len(set(history.metrics["error"][r, played[r] :].tolist())) == 1


@pytest.mark.slow
def test_a_budget_and_a_goal_go_together() -> None:
    history = run(POLICIES["budget"], stop=Stop("error", at_most=1.0))
    reached = history.metrics["error"][:, -1] <= 1.0
    assert reached.all()
    assert history.total_reward().mean() < 500


def test_another_budget_or_guess_needs_no_new_compilation() -> None:
    run(BudgetRequest(COST, 600.0, LARGEST))
    before = compilations()
    run(BudgetRequest(COST, 500.0, LARGEST, curvature=3.0))
    assert compilations() == before


def test_the_state_stays_finite_when_everybody_declines() -> None:
    history = run(POLICIES["noise scale"], [Declining(1.0)] * AGENTS)
    assert (history.request == 4).all()
    assert (history.step == 0).all()
    assert jax.tree.all(jax.tree.map(lambda x: bool(np.isfinite(x).all()), dict(history.metrics)))
