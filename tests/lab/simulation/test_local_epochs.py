"""Agents that take several steps and send models: what the simulator plays, and what pay makes of fewer steps."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

import functools
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, InformationPay, OutputAgreement, ScheduledRequest
from guerdon.lab.agents import Cooperative, Portion, Reporting, echo, scale, zero
from guerdon.lab.problems import logistic_regression, noisy_quadratic
from guerdon.lab.problems.federation import local_training
from guerdon.lab.problems.quadratic import Numbers
from guerdon.lab.simulation import simulate
from guerdon.statistical.dithers import Dither
from guerdon.statistical.predictions import RunningMean

COST, NU, RATE, AGENTS = AffineCost(1, 1), 32, 0.1, 10
QUADRATIC = Numbers(signal=1.0, curvature=1.0, base=1.0, slope=0.0, goal=0.5)
RULES = {"information": InformationPay(COST), "agreement": OutputAgreement(COST)}


def short(**options: Any) -> Any:
    problem = local_training(noisy_quadratic(QUADRATIC, dim=5, max_batch=2), RATE, 8)
    agents = [Portion(0.5), *[Portion(1.0)] * 4]
    return simulate(problem, agents, RULES, FixedRequest(8, RATE), 5, 3, prediction=RunningMean(), **options)


@pytest.mark.slow
def test_agents_that_send_models_are_paid_as_those_that_send_how_far_they_moved() -> None:
    moved, whole = short(), short(sends="models")
    for rule in RULES:
        assert whole.rewards[rule] == pytest.approx(moved.rewards[rule], rel=1e-3, abs=1e-2)
    for name, values in moved.metrics.items():
        assert whole.metrics[name] == pytest.approx(values, rel=1e-4)


@pytest.mark.parametrize("policy", [FixedRequest(8, 0.0), ScheduledRequest([8] * 5, [0.1] * 5)])
def test_a_step_is_needed_to_make_models_of_reports(policy: Any) -> None:
    problem = noisy_quadratic(QUADRATIC, dim=5, max_batch=8)
    with pytest.raises(ValueError, match="`requests` must be a FixedRequest with a step above 0 where agents send mod"):
        simulate(problem, [Cooperative()] * 3, RULES, policy, 5, 2, sends="models")


@functools.cache
def people(rows: int = 4000, columns: int = 20) -> Any:
    """Return logistic regression, a step for every four samples."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(rows, columns)) @ (np.eye(columns) + 0.05)  # columns that go together a little
    labels = rng.random(rows) < 1 / (1 + np.exp(-points @ rng.normal(size=columns) / 4))
    data = points.astype(np.float32), labels.astype(np.float32)
    return local_training(logistic_regression(*data, *data, max_batch=4), RATE, 2 * NU)


DEVIATIONS: dict[str, Reporting] = {
    "half": scale(1.0, Portion(0.5)), "nothing": zero(), "echo": echo(), "longer": scale(1.5),
    "double": scale(1.0, Portion(2.0)),
}  # fmt: skip


def profits(agent: Reporting, repetitions: int = 50, rounds: int = 100) -> dict[str, tuple[float, float]]:
    """Return by rule what one agent gains over honest work in a round, and its standard error."""
    history = simulate(
        people(), [agent, *[scale(1.0)] * (AGENTS - 1)], RULES, FixedRequest(NU, RATE), rounds, repetitions, seed=2,
        dither=Dither(3.0), alike=True, sends="models",
    )  # fmt: skip
    own = {rule: np.asarray(paid)[:, :, 0].mean(axis=1) for rule, paid in history.utilities.items()}
    return {rule: (float(x.mean()), float(x.std() / len(x) ** 0.5)) for rule, x in own.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEVIATIONS)
def test_information_pay_with_a_dither_pays_for_steps_and_output_agreement_for_fewer(name: str) -> None:
    found = profits(DEVIATIONS[name])
    gain, error = found["information"]
    assert error < 1.0
    assert gain + 3 * error < 0
    if name in ("half", "nothing"):
        assert found["agreement"][0] > 0.5 * COST(NU)
