"""Federations: every agent draws from its own rows, and trains in as many steps as its samples allow."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon.lab.problems import linear_regression, logistic_regression, splits
from guerdon.lab.problems.federation import federation, local_training
from guerdon.lab.problems.logistic_regression import LogisticRegression

RNG = np.random.default_rng(0)
FEATURES, LABELS = RNG.normal(size=(60, 4)), (RNG.random(60) < 0.5).astype(float)


def problem(max_batch: int = 8) -> LogisticRegression:
    return logistic_regression(FEATURES, LABELS, FEATURES, LABELS, max_batch)


def test_an_agent_draws_from_its_own_rows_alone() -> None:
    """With one row each, every gradient is that row's, whatever the key and the size."""
    divided, model = federation(problem(), [[3], [7], [11]]), jnp.arange(4.0)
    for agent, row in enumerate((3, 7, 11)):
        found = divided.local_gradient(model, jnp.asarray(agent), jnp.asarray(5), jax.random.key(agent))
        expected = (1 / (1 + np.exp(-FEATURES[row] @ np.arange(4.0))) - LABELS[row]) * FEATURES[row]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_rows_are_drawn_evenly_also_where_others_have_more() -> None:
    divided = federation(problem(1), [[0, 1, 2], list(range(60))])
    keys = jax.random.split(jax.random.key(0), 3000)
    found = jax.vmap(lambda key: divided.local_gradient(jnp.zeros(4), jnp.asarray(0), jnp.asarray(1), key))(keys)
    singles = (0.5 - LABELS[:3])[:, None] * FEATURES[:3]
    shares = np.array([np.isclose(found, single, atol=1e-6).all(axis=1).mean() for single in singles])
    assert shares.sum() == pytest.approx(1)
    assert np.abs(shares - 1 / 3).max() < 4 * (2 / 9 / 3000) ** 0.5


def test_fewer_samples_are_fewer_steps() -> None:
    """One row, so every step is known: as many as there are minibatches, the last one may be smaller."""
    trained, model = local_training(federation(problem(2), [[5], [5]]), rate=0.1, max_batch=8), np.ones(4)
    for samples, steps in ((1, 1), (2, 1), (3, 2), (4, 2), (8, 4)):
        expected = model
        for _ in range(steps):
            expected = expected - 0.1 * (1 / (1 + np.exp(-FEATURES[5] @ expected)) - LABELS[5]) * FEATURES[5]
        found = trained.local_gradient(jnp.asarray(model), jnp.asarray(1), jnp.asarray(samples), jax.random.key(1))
        np.testing.assert_allclose(found, (model - expected) / 0.1, rtol=1e-4)


@pytest.mark.parametrize("rows", [[[0], []], [[0], [60]], [[-1]], [[0.5]], [[[0]]]])
def test_rows_that_are_not_there_are_refused(rows: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="must be indices of the 60 rows, at least one"):
        federation(problem(), rows)


def test_a_problem_without_rows_cannot_be_divided() -> None:
    with pytest.raises(TypeError, match="`problem` must have rows"):
        federation(linear_regression(3), [[0]])


def test_pools_are_disjoint() -> None:
    found = splits.pools(60, 5, 10)
    assert [len(own) for own in found] == [10] * 5
    assert len(np.unique(np.concatenate(found))) == 50
    with pytest.raises(ValueError, match="`size` must be at most 12 for 5 agents, got 13"):
        splits.pools(60, 5, 13)


def test_dirichlet_gives_every_row_to_one_agent_and_differs_more_the_smaller_it_is() -> None:
    labels = np.repeat([0, 1], 2000)
    spread = []
    for concentration in (0.5, 100.0):
        found = splits.by_dirichlet(labels, 5, concentration, seed=3)
        assert sorted(np.concatenate(found).tolist()) == list(range(4000))
        assert min(map(len, found)) >= 10
        spread.append(np.std([labels[own].mean() for own in found]))
    assert spread[0] > 0.1 > 0.06 > spread[1]
    with pytest.raises(ValueError, match="must leave every agent some rows"):
        splits.by_dirichlet(labels[:6], 6, 0.001)


def test_by_value_goes_from_the_lowest_to_the_highest() -> None:
    values = RNG.normal(size=60)
    found = splits.by_value(values, 6)
    assert all(values[a].max() <= values[b].min() for a, b in itertools.pairwise(found))


def test_shards_hold_few_labels() -> None:
    labels = np.repeat(np.arange(10), 20)
    found = splits.shards(labels, 10, each=2, seed=1)
    assert sorted(np.concatenate(found).tolist()) == list(range(200))
    assert max(len(np.unique(labels[own])) for own in found) <= 2
