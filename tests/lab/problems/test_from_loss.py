"""Problems from a loss: the same as logistic regression where they should be, and a network that learns."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import AffineCost, OutputAgreement
from guerdon.lab.agents import Cooperative
from guerdon.lab.problems import FromLoss, Problem, from_loss, logistic_regression
from guerdon.lab.simulation import simulate
from guerdon.requests import FixedRequest
from tests.lab.problems.data import CORNERS, labelled, log_loss, network_loss, start_network

TRAIN = labelled(60)
MODEL = jnp.asarray([0.5, -1.0, 0.2, 0.1])


def start_at_zero(_: Any) -> Any:
    return jnp.zeros(4)


@functools.cache
def logistic() -> FromLoss:
    return from_loss(log_loss, TRAIN, start_at_zero, max_batch=8)


@functools.cache
def network() -> FromLoss:
    return from_loss(network_loss, CORNERS, start_network, max_batch=8)


def _look(problem: Problem, model: Any, size: Any, key: Any) -> Any:
    return problem.gradient(model, size, key), problem.population_gradient(model), problem.variance(model)


look: Any = jax.jit(_look)


def test_it_is_logistic_regression_with_its_loss() -> None:
    """Written by hand or derived from the loss: the same gradients, minibatch by minibatch, and the same variance."""
    by_hand = logistic_regression(*TRAIN, *TRAIN, max_batch=8)
    np.testing.assert_array_equal(logistic().init(jax.random.key(0)), by_hand.init(jax.random.key(0)))
    for seed, size in enumerate((1, 3, 8)):
        derived, written = (look(x, MODEL, jnp.asarray(size), jax.random.key(seed)) for x in (logistic(), by_hand))
        for one, other in zip(derived, written, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_without_metrics_the_metric_is_the_mean_loss() -> None:
    rows = tuple(jnp.asarray(part, jnp.float32) for part in TRAIN)
    expected = np.mean([float(log_loss(MODEL, (rows[0][i], rows[1][i]))) for i in range(60)])
    (found,) = logistic().metrics(MODEL).items()
    assert found == ("loss", pytest.approx(expected, rel=1e-5))


def test_metrics_are_the_users() -> None:
    problem = from_loss(log_loss, TRAIN, start_at_zero, lambda w: {"first": w[0], "length": jnp.sum(w**2)})
    assert {name: float(x) for name, x in problem.metrics(MODEL).items()} == pytest.approx(
        {"first": 0.5, "length": 1.3}
    )


def test_parameters_may_be_a_pytree() -> None:
    """A network as a nested dict is one vector to the simulator, and itself to its loss."""
    problem, key = network(), jax.random.key(3)
    model = problem.init(key)
    assert model.shape == (2 * 8 + 8 + 8 + 1,)
    restored = problem.unravel(model)
    assert jax.tree.structure(restored) == jax.tree.structure(start_network(key))
    for one, other in zip(jax.tree.leaves(restored), jax.tree.leaves(start_network(key)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(model, problem.init(jax.random.key(4)))


def test_more_rows_than_are_differentiated_at_once() -> None:
    """The variance goes through the data 256 rows at a time."""
    features, labels = labelled(600, seed=2)
    problem = from_loss(log_loss, (features, labels), start_at_zero)
    by_hand = logistic_regression(features, labels, features, labels)
    one, other = (look(x, MODEL, jnp.asarray(1), jax.random.key(0))[2] for x in (problem, by_hand))
    assert float(one) == pytest.approx(float(other), rel=1e-4)


@pytest.mark.slow
def test_a_network_learns_in_a_simulation() -> None:
    """Exclusive or, which no linear model can tell, by four agents' stochastic gradients; all are paid their cost."""
    rule = OutputAgreement(AffineCost(1, 1))
    agents = [Cooperative()] * 4
    history = simulate(network(), agents, rule, FixedRequest(4, 0.2), rounds=300, repetitions=8)
    losses = history.metrics["loss"]
    assert losses.shape == (8, 301)
    assert np.unique(losses[:, 0]).size == 8  # every repetition begins with its own weights
    assert np.mean(losses[:, -1]) < 0.3 * np.mean(losses[:, 0])
    assert np.median(losses[:, -1]) < 0.1
    np.testing.assert_allclose(history.rewards["reward"].mean(), 5.0, rtol=0.05)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.ones((3, 4)), np.ones(2)), r"must hold arrays with the same number of rows, at least 1, got \[2, 3\]"),
        ((np.ones((0, 4)), np.ones(0)), r"must hold arrays with the same number of rows, at least 1, got \[0\]"),
        (
            (np.ones((3, 4)), np.float64(1.0)),
            r"must hold arrays with the same number of rows, at least 1, got \[0, 3\]",
        ),
        ((), r"must hold arrays with the same number of rows, at least 1, got \[\]"),
    ],
)
def test_bad_data_are_refused(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_loss(log_loss, data, start_at_zero)


@pytest.mark.parametrize("max_batch", [0, 2.5])
def test_a_bad_max_batch_is_refused(max_batch: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="`max_batch` must be a positive integer"):
        from_loss(log_loss, TRAIN, start_at_zero, max_batch=max_batch)
