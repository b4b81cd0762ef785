"""Logistic regression: gradients, variance and accuracy by their definitions, and what is refused."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon.lab.problems import logistic_regression
from tests.lab.problems.data import labelled, log_loss
from tests.lab.problems.draws import draw

TRAIN, VALIDATION = labelled(60, seed=0), labelled(40, seed=1)
PROBLEM = logistic_regression(*TRAIN, *VALIDATION, max_batch=8)
MODEL = jnp.asarray([0.5, -1.0, 0.2, 0.1])


@functools.cache
def single_gradients() -> Any:
    """Return the gradient of every training row's log loss at the model."""
    rows = tuple(jnp.asarray(part, jnp.float32) for part in TRAIN)
    return np.asarray(jax.jit(jax.vmap(jax.grad(log_loss), in_axes=(None, 0)))(MODEL, rows))


def test_training_starts_at_zero() -> None:
    np.testing.assert_array_equal(PROBLEM.init(jax.random.key(0)), np.zeros(4))


def test_population_gradient_is_the_mean_over_the_training_set() -> None:
    np.testing.assert_allclose(PROBLEM.population_gradient(MODEL), single_gradients().mean(axis=0), rtol=1e-4)


def test_variance_is_over_the_training_set() -> None:
    singles = single_gradients()
    expected = np.mean(np.sum((singles - singles.mean(axis=0)) ** 2, axis=1))
    assert float(PROBLEM.variance(MODEL)) == pytest.approx(expected, rel=1e-4)


def test_a_single_sample_has_the_gradient_of_some_row() -> None:
    singles = single_gradients()
    drawn = draw(PROBLEM, MODEL, 1, seed=0)[:2000]
    distances = np.linalg.norm(drawn[:, None] - singles, axis=2)
    nearest = distances.argmin(axis=1)
    assert distances.min(axis=1).max() < 1e-5
    counts = np.bincount(nearest, minlength=60)
    # Every row is drawn equally often: the χ² of 60 counts, 59 degrees of freedom, five standard deviations.
    assert abs(np.sum((counts - 2000 / 60) ** 2) / (2000 / 60) - 59) < 5 * np.sqrt(2 * 59)


def test_accuracy_is_the_share_of_validation_rows_told_right() -> None:
    told = (VALIDATION[0] @ np.asarray(MODEL) > 0) == (VALIDATION[1] == 1)
    assert float(PROBLEM.metrics(MODEL)["accuracy"]) == pytest.approx(told.mean())
    assert list(PROBLEM.metrics(MODEL)) == ["accuracy"]


def test_labels_may_be_booleans_or_integers() -> None:
    for kind in (bool, int):
        problem = logistic_regression(TRAIN[0], TRAIN[1].astype(kind), VALIDATION[0], VALIDATION[1].astype(kind))
        np.testing.assert_array_equal(problem.population_gradient(MODEL), PROBLEM.population_gradient(MODEL))


def test_training_improves_accuracy() -> None:
    model = PROBLEM.init(jax.random.key(0))
    for _ in range(200):
        model = model - 0.5 * PROBLEM.population_gradient(model)
    assert float(PROBLEM.metrics(model)["accuracy"]) > 0.75


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: np.ones(60)}, r"`features` must be \(rows, columns\) with one label per row, got \(60,\) and \(60,\)"),
        ({1: np.ones(59)}, r"`features` must be \(rows, columns\) with one label per row, got \(60, 4\) and \(59,\)"),
        ({1: np.ones((60, 1))}, r"got \(60, 4\) and \(60, 1\)"),
        ({0: np.ones((0, 4)), 1: np.ones(0)}, r"`features` must be .* got \(0, 4\) and \(0,\)"),
        ({2: np.ones((0, 4)), 3: np.ones(0)}, r"`validation_features` must be .* got \(0, 4\) and \(0,\)"),
        ({1: np.full(60, 2.0)}, "the labels of `features` must be 0 or 1, got others"),
        ({1: np.full(60, np.nan)}, "the labels of `features` must be 0 or 1, got others"),
        ({3: -np.ones(40)}, "the labels of `validation_features` must be 0 or 1, got others"),
        ({2: np.ones((40, 3))}, "`validation_features` must have the 4 columns of `features`, got 3"),
        ({4: 0}, "`max_batch` must be a positive integer, got 0"),
    ],
)
def test_bad_input_is_refused(change: dict[int, Any], message: str) -> None:
    arguments: list[Any] = [*TRAIN, *VALIDATION, 8]
    for position, value in change.items():
        arguments[position] = value
    with pytest.raises(ValueError, match=message):
        logistic_regression(*arguments)
