"""Witnessed pay: Theorem 1 without the others. Nobody can move the reference, and coordinated shirking loses."""

from typing import Any

import jax
import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, OutputAgreement, WitnessedPay
from guerdon.lab.agents import Cooperative, Portion, sign_flip
from guerdon.lab.problems import linear_regression
from guerdon.lab.simulation import simulate
from guerdon.settling import with_scale
from guerdon.statistical.servers import server_for
from guerdon.witness import stack_minibatches, witness_sample

COST, NU, SAMPLES = AffineCost(1, 1), 8, 16 * 10
RULES: dict[str, Any] = {"witnessed": WitnessedPay(COST, SAMPLES), "agreement": OutputAgreement(COST)}


def profits(agents: Any) -> Any:
    """Return every agent's profit a round by rule, (repetitions, agents)."""
    problem = linear_regression(20, 4.0, max_batch=16)
    history = simulate(problem, agents, RULES, FixedRequest(NU, 0.1), rounds=30, repetitions=60, seed=1, witness=10)
    return {rule: utility.mean(axis=1) for rule, utility in history.utilities.items()}


def mean_and_error(sample: Any) -> tuple[float, float]:
    return float(np.mean(sample)), float(np.std(sample, ddof=1) / len(sample) ** 0.5)


def test_honest_pay_is_the_cost_and_half_the_work_loses() -> None:
    found = profits([Portion(0.5), *[Cooperative()] * 5])["witnessed"]
    honest, error = mean_and_error(found[:, 1:].mean(axis=1))
    assert abs(honest) < 3 * error + 1e-3
    half, error = mean_and_error(found[:, 0])
    # h'ν²·σ²/V·(1/ν − 2/ν) + 4, where V is up to 1/ν above σ²: ten minibatches are taken to tell as in one dimension.
    assert -4 - 3 * error < half < -8 / (1 + 1 / NU) + 4 + 3 * error


@pytest.mark.slow
def test_everybody_at_half_loses_here_and_gains_under_agreement() -> None:
    found = profits([Portion(0.5)] * 6)
    assert found["witnessed"].mean() < -3
    assert found["agreement"].mean() > 3.5


@pytest.mark.slow
def test_a_majority_cannot_outvote_the_truth() -> None:
    found = profits([*[Cooperative()] * 2, *[sign_flip()] * 4])
    assert abs(found["witnessed"][:, :2].mean()) < 1.0
    assert found["witnessed"][:, 2:].mean() < -10
    assert found["agreement"][:, :2].mean() < found["agreement"][:, 2:].mean()


@pytest.mark.parametrize("size", [1e6, 1e10, 1e15])
def test_an_enormous_report_harms_its_sender_alone(size: float) -> None:
    """Distances are taken one by one: around the members' mean the others lost all digits at 1e10."""
    rng, server = np.random.default_rng(1), server_for(RULES["witnessed"], FixedRequest(NU, 0.1))
    witness = witness_sample(3 + rng.normal(size=(10, 12)), SAMPLES // 10)
    given, everybody = 3 + rng.normal(size=(6, 12)), np.ones(6, dtype=bool)
    ask, state = server.ask(server.init(np.zeros(12), 6), np.zeros(12))
    state = state._replace(rule=with_scale(state.rule, 40.0))
    ask = ask._replace(witness=witness)
    fair = server.settle(state, ask, given, everybody)[0].payments.released
    given[5] = size
    paid = server.settle(state, ask, given, everybody)[0].payments.released
    np.testing.assert_allclose(paid[:5], fair[:5], rtol=1e-12)
    assert paid[5] < -size


def test_the_witness_is_the_same_in_layers_and_compiled() -> None:
    drawn = np.random.default_rng(0).normal(size=(6, 12))
    whole = witness_sample(drawn, 4)
    assert float(whole.variance) == pytest.approx(4 * drawn.var(axis=0, ddof=1).sum())
    layers = witness_sample(stack_minibatches([[row[:8].reshape(2, 4), row[8:]] for row in drawn]), 4)
    assert float(layers.variance) == pytest.approx(float(whole.variance))
    np.testing.assert_allclose(np.concatenate([part.reshape(-1) for part in layers.gradient]), whole.gradient)
    compiled = jax.jit(lambda x: witness_sample(x, 4))(drawn)
    np.testing.assert_allclose(compiled.gradient, whole.gradient, rtol=1e-5)
    with pytest.raises(ValueError, match="`minibatches` must be at least two"):
        witness_sample(drawn[:1], 4)


def test_it_needs_a_witness_and_gradients() -> None:
    server, model = server_for(RULES["witnessed"], FixedRequest(NU, 0.1)), np.zeros(3)
    ask, state = server.ask(server.init(model, 2), model)
    with pytest.raises(ValueError, match="`witness` must be what 160 samples of the server's own say"):
        server.settle(state, ask, np.ones((2, 3)), np.ones(2, dtype=bool))
    other = witness_sample(np.random.default_rng(1).normal(size=(4, 3)), 8)  # of 32 samples
    with pytest.raises(ValueError, match=r"160 samples of the server's own say in this round .*, got 32"):
        server.settle(state, ask._replace(witness=other), np.ones((2, 3)), np.ones(2, dtype=bool))
    with pytest.raises(ValueError, match="`rule` must not be WitnessedPay where agents send models"):
        server_for(RULES["witnessed"], FixedRequest(NU, 0.1), sends="models")
    with pytest.raises(ValueError, match=r"minibatches of 64 samples .* 160 samples in all"):
        simulate(linear_regression(3), [Cooperative()] * 3, RULES["witnessed"], FixedRequest(2, 0.1), 2, 2)
