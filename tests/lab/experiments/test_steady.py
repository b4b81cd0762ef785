"""The experiment on steady pay: what it claims, and the bound that it prints."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import AffineCost
from guerdon.arrays import Array
from guerdon.lab._trees import register
from guerdon.lab.experiments import steady as experiment
from guerdon.lab.experiments.least_noise import least_deviation
from guerdon.lab.experiments.paper import AGENTS
from guerdon.lab.experiments.steady import BEHAVIOURS, ROUNDS, Outcome
from guerdon.lab.problems.heart import load_survey, prepare

COST = AffineCost(1, 1)


def outcome(name: str, profit: float, repetitions: int = 6) -> Outcome:
    """Return an outcome in which every agent of the crew gains so much a round, all of it in the last one."""
    behaviour, rng = BEHAVIOURS[name], np.random.default_rng(0)
    steady = np.zeros((repetitions, ROUNDS, AGENTS)) + 0.01 * rng.normal(size=(repetitions, 1, 1))
    steady[:, -1, : behaviour.crew] += profit * ROUNDS
    return Outcome(16, name, behaviour, steady, steady, np.full(repetitions, 0.77))


@pytest.mark.parametrize(
    ("name", "fine", "bad"),
    [
        ("half, shrunk", -1.0, 0.5),
        ("zeros", -0.1, 0.5),
        ("surrogate, stretched", 17.0, 19.0),
        ("three share 5 % noise", 0.9, 1.5),
        ("idle, three helpers that wait", 0.9, 1.5),
    ],
)
def test_a_claim_fails_where_a_deviation_gains(name: str, fine: float, bad: float) -> None:
    assert experiment._claims(outcome(name, fine))[0].holds
    assert not experiment._claims(outcome(name, bad))[0].holds


def test_claims_of_honest_work() -> None:
    """Paid 17 in the last round of 200 only: released late, and for most of the time nothing at all."""
    good = outcome("honest work", 0.0)
    claims = {claim.claim: claim.holds for claim in experiment._claims(good)}
    assert claims["ν = 16: honest pay less cost"]
    poor = good._replace(steady=good.steady - 17.0)
    claims = {claim.claim: claim.holds for claim in experiment._claims(poor)}
    assert not claims["ν = 16: honest pay less cost"]
    assert not claims["ν = 16: honest members that end below half of their cost"]
    assert not claims["ν = 16: honest agents without any release"]


def test_the_best_moment_to_leave_is_found() -> None:
    found = outcome("zeros", 0.0)
    found.steady[:, 1:5] += 3.0
    claim = experiment._hit(found)
    assert not claim.holds
    assert "after 5 rounds" in claim.claim


@register
@dataclass(frozen=True)
class Gaussian:
    """A gradient of 2θ with noise of known variance in each number."""

    deviation: Any
    max_batch: int = field(default=1, metadata={"static": True})

    def init(self, key: Array) -> Array:
        del key
        return jnp.ones(self.deviation.shape[0])

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        return 2 * model + self.deviation * jax.random.normal(key, model.shape) / jnp.sqrt(batch_size)

    def population_gradient(self, model: Array) -> Array:
        return 2 * model


def test_the_bound_is_that_of_gaussian_reports() -> None:
    """r = 2u, Σ = s²: χ² = exp(ν·4‖u‖²/s²) − 1 for noise that is the same in all directions."""
    problem: Any = Gaussian(jnp.full(10, 4.0))
    found = least_deviation(problem, 8, COST, length=0.7, step=0.1)
    assert found.forged == pytest.approx(9 / np.sqrt(np.expm1(8 * 4 * 0.49 / 16)), rel=0.05)
    assert found.sizes == pytest.approx(8 * np.sqrt(2 / 10))


@pytest.mark.slow
def test_on_the_survey_zeros_are_released_nothing_and_honest_members_their_cost() -> None:
    data = prepare(load_survey())
    honest, zeros, less = (
        experiment.play(data, 16, name, 4, seed=0) for name in ("honest work", "zeros", "half, shrunk")
    )
    assert abs(honest.steady.mean()) < 0.1 * COST(16)
    assert zeros.steady[:, :, 0].sum() == 0
    assert less.own.mean() < 0
    assert zeros.balanced[:, :, 0].mean() > COST(16)
    assert len(experiment._table([honest, zeros])) == 2
