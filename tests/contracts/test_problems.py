"""What every problem promises: unbiased gradients with the variance it says, in every way JAX can run it."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon.lab.problems import Problem, from_loss, linear_regression, logistic_regression
from tests.lab.problems.data import CORNERS, labelled, network_loss, start_network
from tests.lab.problems.draws import DRAWS, draw, sample
from tests.support.means import mean

SURE = 4.5  # standard errors: some 250 means are tested, so that a false alarm has a chance below 1 in 500
LARGEST = 16
MANY = 128  # more than linear regression adds up one by one
TRAIN, VALIDATION = labelled(60, seed=0), labelled(40, seed=1)

PROBLEMS: dict[str, Problem] = {
    "linear": linear_regression(dim=5, distance=3.0, max_batch=LARGEST),
    "linear-many": linear_regression(dim=5, distance=3.0, max_batch=MANY),
    "linear-literal": linear_regression(dim=5, distance=3.0, max_batch=LARGEST, literal=True),
    "linear-uneven": linear_regression(dim=5, distance=3.0, max_batch=LARGEST, condition=30.0),
    "linear-uneven-literal": linear_regression(dim=5, distance=3.0, max_batch=LARGEST, literal=True, condition=30.0),
    "logistic": logistic_regression(*TRAIN, *VALIDATION, max_batch=LARGEST),
    "network": from_loss(network_loss, CORNERS, start_network, max_batch=LARGEST),
}
every_problem = pytest.mark.parametrize("name", PROBLEMS)
SIZES = [1, 3, LARGEST]
every_size = pytest.mark.parametrize("size", SIZES)


def _look(problem: Problem, model: Any) -> Any:
    return problem.population_gradient(model), problem.variance(model), problem.metrics(model)


look: Any = jax.jit(_look)


@functools.cache
def a_model(name: str) -> Any:
    """Return a model that is neither the first nor the best."""
    start = PROBLEMS[name].init(jax.random.key(2))
    return start + 0.3 * jax.random.normal(jax.random.key(3), start.shape)


@functools.cache
def draws(name: str, size: int) -> Any:
    """Return many independent mean gradients over `size` samples."""
    return draw(PROBLEMS[name], a_model(name), size, seed=1)


@every_problem
def test_models_and_gradients_are_vectors(name: str) -> None:
    problem, key = PROBLEMS[name], jax.random.key(0)
    model = problem.init(key)
    assert model.ndim == 1
    assert model.dtype == jnp.float32
    for vector in (
        jax.eval_shape(problem.gradient, model, jnp.asarray(2), key),
        jax.eval_shape(problem.population_gradient, model),
    ):
        assert (vector.shape, vector.dtype) == (model.shape, model.dtype)
    assert np.isfinite(draws(name, 3)).all()


@every_problem
def test_variance_and_metrics_are_numbers(name: str) -> None:
    for model in (PROBLEMS[name].init(jax.random.key(0)), a_model(name)):
        _, variance, metrics = look(PROBLEMS[name], model)
        assert metrics
        assert all(isinstance(label, str) for label in metrics)
        for number in (variance, *metrics.values()):
            assert number.shape == ()
            assert jnp.isfinite(number)
        assert variance > 0


@every_problem
def test_the_same_key_gives_the_same_start(name: str) -> None:
    one, other = (PROBLEMS[name].init(jax.random.key(7)) for _ in range(2))
    np.testing.assert_array_equal(one, other)


@every_problem
@every_size
def test_gradients_are_unbiased(name: str, size: int) -> None:
    """Their mean is the population gradient, in every component."""
    expected = np.asarray(look(PROBLEMS[name], a_model(name))[0])
    for component, drawn in enumerate(draws(name, size).T):
        measured = mean(drawn)
        assert abs(measured.z(float(expected[component]))) < SURE
        assert measured.error < 0.05 * np.linalg.norm(expected)


@every_problem
@every_size
def test_the_variance_is_that_of_a_single_sample(name: str, size: int) -> None:
    """E‖X − m‖² = σ²/S."""
    centre, variance, _ = look(PROBLEMS[name], a_model(name))
    measured = mean(size * np.sum((draws(name, size) - np.asarray(centre)) ** 2, axis=1))
    assert abs(measured.z(float(variance))) < SURE
    assert measured.error < 0.03 * float(variance)


@every_problem
def test_every_agent_may_have_his_own_batch_size(name: str) -> None:
    """Sizes are data: mixed in one call they give, draw by draw, what each gives alone, in one compilation."""
    alone = {size: draws(name, size) for size in SIZES}
    before = sample._cache_size()
    sizes = np.resize(SIZES, DRAWS)
    mixed = draw(PROBLEMS[name], a_model(name), sizes, seed=1)
    for size in SIZES:
        np.testing.assert_array_equal(mixed[sizes == size], alone[size][sizes == size])
    assert sample._cache_size() == before


@every_problem
def test_the_same_key_gives_the_same_gradient(name: str) -> None:
    np.testing.assert_array_equal(draw(PROBLEMS[name], a_model(name), 3, seed=1), draws(name, 3))
    other = draw(PROBLEMS[name], a_model(name), LARGEST, seed=2)
    assert np.mean((other != draws(name, LARGEST)).any(axis=1)) > 0.95  # minibatches of few rows may be equal


@every_problem
def test_it_is_a_pytree_of_arrays(name: str) -> None:
    """Its numbers are data to a compiled function, everything else is part of its type."""
    problem = PROBLEMS[name]
    leaves, structure = jax.tree.flatten(problem)
    assert leaves
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    doubled = jax.tree.unflatten(structure, [2 * leaf for leaf in leaves])
    assert type(doubled) is type(problem)
    assert doubled.max_batch == problem.max_batch
    assert jax.tree.structure(doubled) == structure
    assert hash(jax.tree.structure(doubled)) == hash(structure)


@every_problem
def test_other_data_need_no_new_compilation(name: str) -> None:
    draws(name, 1)
    before = sample._cache_size()
    changed = jax.tree.map(lambda x: 0.5 * x, PROBLEMS[name])
    assert not np.array_equal(draw(changed, a_model(name), 1, seed=1), draws(name, 1))
    assert sample._cache_size() == before


@every_problem
def test_its_gradient_leads_downhill(name: str) -> None:
    """Steps against the population gradient make it smaller: its sign is right."""
    model = a_model(name)
    for _ in range(100):
        model = model - 0.05 * look(PROBLEMS[name], model)[0]
    before, after = (np.linalg.norm(look(PROBLEMS[name], at)[0]) for at in (a_model(name), model))
    assert after < 0.5 * before
