"""Linear regression: the quick samplers have the law of the literal minibatch, and the closed forms are exact."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon.lab.problems import linear_regression
from guerdon.lab.problems.linear_regression import expected_errors, optimal_step
from tests.lab.problems.draws import DRAWS, draw
from tests.support.means import mean

SURE = 4.5  # standard errors: some 150 means are tested, so that a false alarm has a chance of about 1 in 1000
LEVEL = 1e-5  # of each Kolmogorov-Smirnov test: 24 of them, so that a false alarm has a chance below 1 in 4000
DIM = 5
DELTAS = {
    "far": np.array([1.0, -0.5, 2.0, 0.0, 0.25]),
    "near": np.array([0.0, 0.1, 0.0, -0.1, 0.05]),
    "at": np.zeros(5),
}
# Up to 32 samples are added up from few normals; of more, the sums are drawn.
SAMPLERS = {
    "literal": linear_regression(DIM, distance=0.0, max_batch=16, literal=True),
    "few": linear_regression(DIM, distance=0.0, max_batch=16),
    "many": linear_regression(DIM, distance=0.0, max_batch=128),
}
every_size = pytest.mark.parametrize("size", [1, 2, 8])
every_delta = pytest.mark.parametrize("where", DELTAS)
quick = pytest.mark.parametrize("sampler", ["few", "many"])


@functools.cache
def draws(sampler: str, where: str, size: int) -> Any:
    """Return gradients at θ = θ* + δ, every sampler with its own keys."""
    seed = list(SAMPLERS).index(sampler)
    return draw(SAMPLERS[sampler], DELTAS[where], size, seed)


def along(where: str) -> Any:
    """Return the direction of δ; any one where δ = 0."""
    length = np.linalg.norm(DELTAS[where])
    return DELTAS[where] / length if length > 0 else np.eye(DIM)[0]


def kolmogorov_smirnov(one: Any, other: Any) -> float:
    """Return the largest distance between two empirical distribution functions, over its critical value at `LEVEL`."""
    values = np.sort(np.concatenate([one, other]))
    steps = [np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (one, other)]
    critical = np.sqrt(-np.log(LEVEL / 2) / 2 * (1 / len(one) + 1 / len(other)))
    return float(np.max(np.abs(steps[0] - steps[1])) / critical)


@quick
@every_size
@every_delta
def test_quick_samplers_have_the_law_of_the_minibatch(sampler: str, where: str, size: int) -> None:
    """Length, component along δ, and a component orthogonal to it: the same distributions."""
    quickly, literally = draws(sampler, where, size), draws("literal", where, size)
    first = along(where)
    second = np.linalg.svd(first[None])[2][1]
    for statistic in (lambda x: np.sum(x**2, axis=1), lambda x: x @ first, lambda x: x @ second):
        assert kolmogorov_smirnov(statistic(quickly), statistic(literally)) < 1


def test_the_comparison_finds_small_differences() -> None:
    """A tenth more variance, or another batch size, does not pass."""
    literally = draws("literal", "far", 8)
    length = np.sum(literally**2, axis=1)
    other = np.sum(draws("few", "far", 8) ** 2, axis=1)
    assert kolmogorov_smirnov(1.1 * other, length) > 1
    assert kolmogorov_smirnov(np.sum(draws("few", "far", 2) ** 2, axis=1), length) > 1
    assert kolmogorov_smirnov(draws("literal", "far", 8) @ along("far"), draws("literal", "near", 8) @ along("far")) > 1


@pytest.mark.parametrize("sampler", SAMPLERS)
@every_size
@every_delta
def test_mean_and_covariance_are_those_of_theory(sampler: str, where: str, size: int) -> None:
    """E[X] = 2δ; the variance is 4(2x + 1)/S along δ and 4(x + 1)/S in every other direction, uncorrelated."""
    error = float(np.sum(DELTAS[where] ** 2))
    basis = np.linalg.svd(along(where)[None])[2]
    basis[0] = along(where)
    centred = (draws(sampler, where, size) - 2 * DELTAS[where]) @ basis.T
    for i in range(DIM):
        assert abs(mean(centred[:, i]).z(0.0)) < SURE
        expected = 4 * ((2 if i == 0 else 1) * error + 1) / size
        squares = mean(centred[:, i] ** 2)
        assert abs(squares.z(expected)) < SURE
        assert squares.error < 0.05 * expected
        for j in range(i):
            assert abs(mean(centred[:, i] * centred[:, j]).z(0.0)) < SURE


def test_closed_forms() -> None:
    problem = linear_regression(dim=3, distance=12.0)
    np.testing.assert_allclose(problem.target, [2, 2, 2], rtol=1e-6)
    model = jnp.asarray([1.0, 2.0, 4.0])  # δ = (−1, 0, 2)
    np.testing.assert_allclose(problem.population_gradient(model), [-2, 0, 4], rtol=1e-6)
    assert float(problem.metrics(model)["error"]) == pytest.approx(5)
    assert float(problem.variance(model)) == pytest.approx(4 * (4 * 5 + 3))


@pytest.mark.parametrize("distance", [0.0, 1.0, 100.0])
def test_training_starts_at_the_distance_given(distance: float) -> None:
    problem = linear_regression(dim=7, distance=distance)
    start = problem.init(jax.random.key(0))
    np.testing.assert_array_equal(start, np.zeros(7))
    assert float(problem.metrics(start)["error"]) == pytest.approx(distance, rel=1e-5)


def test_gradients_at_the_target_and_far_away_are_finite() -> None:
    for problem in SAMPLERS.values():
        for length in (0.0, 1e-30, 1e-3, 1e3, 1e12):
            sizes = np.resize([1, 8], DRAWS)
            assert np.isfinite(draw(problem, np.full(DIM, length), sizes, seed=5)).all()


# The paper's Figures 2 and 4: K = 10, d = 100, h = s + 1, from x = 100.


@pytest.mark.parametrize(("size", "factor"), [(1, 2.284), (2, 1.298), (4, 0.805), (8, 0.558), (16, 0.435)])
def test_contraction_of_a_large_error(size: int, factor: float) -> None:
    """With the step for ν = 8, one and two samples diverge, four are slow and sixteen gain little."""
    step = optimal_step(dim=100, num_agents=10, batch_size=8)
    assert step == pytest.approx(0.2210, abs=5e-5)
    errors = expected_errors(100, 10, size, step, start=1e9, rounds=3)
    for before, after in itertools.pairwise(errors):
        assert after / before == pytest.approx(factor, abs=6e-4)


@pytest.mark.parametrize(
    ("request_", "rounds", "total"), [(1, 74, 1480), (2, 36, 1080), (4, 18, 900), (8, 10, 900), (16, 6, 1020)]
)
def test_rounds_and_rewards_to_reach_the_goal(request_: int, rounds: int, total: int) -> None:
    """Each request with its own step, until the expected error is at most 1."""
    errors = expected_errors(100, 10, request_, optimal_step(100, 10, request_), start=100.0, rounds=100)
    needed = next(t for t, error in enumerate(errors) if error <= 1)
    assert needed == rounds
    assert needed * 10 * (request_ + 1) == total


def test_expected_errors_begin_at_the_start() -> None:
    errors = expected_errors(5, 2, 4, 0.1, start=3.0, rounds=4)
    assert errors[0] == 3.0
    assert len(errors) == 5
    assert expected_errors(5, 2, 4, 0.0, start=3.0, rounds=4) == [3.0] * 5
    assert expected_errors(5, 2, 4, 0.5, start=3.0, rounds=1)[1] == pytest.approx((6 * 3 + 5) / 8)


def test_no_step_contracts_a_large_error_faster() -> None:
    best = optimal_step(20, 5, 4)

    def contraction(step: float) -> float:
        return expected_errors(20, 5, 4, step, start=1e9, rounds=1)[1]

    assert all(contraction(best) < contraction(factor * best) for factor in (0.5, 0.9, 1.1, 1.5))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dim": 0}, ValueError, "`dim` must be a positive integer, got 0"),
        ({"dim": 2.5}, TypeError, "`dim` must be a positive integer, got 2.5"),
        ({"max_batch": 0}, ValueError, "`max_batch` must be a positive integer, got 0"),
        ({"distance": -1.0}, ValueError, "`distance` must be a finite number of at least 0, got -1.0"),
        ({"distance": float("nan")}, ValueError, "`distance` must be a finite number of at least 0, got nan"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        linear_regression(**change)


def test_uneven_features_have_the_ratio_and_mean_given() -> None:
    problem = linear_regression(dim=50, condition=100.0)
    variances = np.asarray(problem.scales, dtype=np.float64) ** 2
    assert variances.max() / variances.min() == pytest.approx(100, rel=1e-5)
    assert variances.mean() == pytest.approx(1, rel=1e-5)
    assert problem.metrics(problem.init(jax.random.key(0)))["error"] == pytest.approx(100, rel=1e-5)
    np.testing.assert_array_equal(linear_regression(dim=50).scales, 1.0)


@pytest.mark.parametrize("condition", [0.5, -1, float("nan"), float("inf")])
def test_an_impossible_condition_is_refused(condition: float) -> None:
    with pytest.raises(ValueError, match="`condition` must be a finite number of at least 1"):
        linear_regression(condition=condition)


# Without the dimension: all agents at once, as only lengths and angles see them.

CREW = 3
CREW_SIZES = (1, 2, 8)


@jax.jit
def _literally(problem: Any, model: Any, keys: Any) -> Any:
    """Return gradients of three agents with batch sizes of their own, draw by draw."""
    sizes = jnp.asarray(CREW_SIZES)
    crew = jax.vmap(problem.gradient, in_axes=(None, 0, 0))
    return jax.vmap(lambda key: crew(model, sizes, jax.random.split(key, CREW)))(keys)


@jax.jit
def _in_frame(problem: Any, model: Any, keys: Any) -> Any:
    return jax.vmap(lambda key: problem.gradients(model, jnp.asarray(CREW_SIZES), key))(keys)


@functools.cache
def crews(where: str, framed: bool) -> Any:
    """Return the products of δ and the gradients of three agents, (draws, 4, 4), and the error after a step."""
    delta, literal = DELTAS[where], SAMPLERS["literal"]
    keys = jax.random.split(jax.random.key(7 + framed), DRAWS)
    if framed:
        problem = linear_regression(DIM, float(np.sum(delta**2)), max_batch=16).in_frame(CREW)
        assert problem is not None
        model = problem.init(keys[0])
        drawn = _in_frame(problem, model, keys)
    else:
        model = jnp.asarray(delta, jnp.float32)
        drawn = _literally(literal, model, keys)
    stacked = np.concatenate([np.broadcast_to(model, (DRAWS, 1, len(model))), drawn], axis=1).astype(np.float64)
    return stacked @ stacked.transpose(0, 2, 1)


@every_delta
def test_gradients_in_their_frame_have_the_products_of_the_minibatches(where: str) -> None:
    """Of δ with each, of each with each, and what they have in common: the length of the next δ."""
    framed, literal = crews(where, framed=True), crews(where, framed=False)
    weights = np.array([1.0, -0.1, -0.1, -0.1])
    for statistic in (
        *(lambda x, i=i, j=j: x[:, i, j] for i in range(4) for j in range(max(i, 1), 4)),
        lambda x: weights @ x @ weights,
        lambda x: x[:, 1, 2] * x[:, 2, 3] * x[:, 1, 3],  # three vectors at once
    ):
        if np.ptp(statistic(literal)) > 0:
            assert kolmogorov_smirnov(statistic(framed), statistic(literal)) < 1


def test_the_comparison_of_products_finds_one_degree_of_freedom() -> None:
    """Five dimensions where there are four would not pass."""
    framed = linear_regression(DIM + 1, float(np.sum(DELTAS["far"] ** 2)), max_batch=16).in_frame(CREW)
    assert framed is not None
    keys = jax.random.split(jax.random.key(1), DRAWS)
    drawn = np.asarray(_in_frame(framed, framed.init(keys[0]), keys), dtype=np.float64)
    lengths = np.sum(drawn[:, 2] ** 2, axis=1)
    assert kolmogorov_smirnov(lengths, crews("far", framed=False)[:, 3, 3]) > 1


def test_a_frame_turns_without_changing_what_is_measured() -> None:
    framed = linear_regression(100, 9.0).in_frame(2)
    whole = linear_regression(100, 9.0)
    assert framed is not None
    turned = framed.turn(jnp.asarray([3.0, -4.0, 12.0]))
    np.testing.assert_allclose(turned, [13, 0, 0], rtol=1e-6)
    for problem, model in ((framed, framed.init(jax.random.key(0))), (whole, whole.init(jax.random.key(0)))):
        assert float(problem.metrics(model)["error"]) == pytest.approx(9, rel=1e-5)
        assert float(problem.variance(model)) == pytest.approx(4 * (101 * 9 + 100), rel=1e-5)
        assert float(jnp.sum(problem.population_gradient(model) ** 2)) == pytest.approx(36, rel=1e-5)


@pytest.mark.parametrize(
    "problem",
    [linear_regression(4), linear_regression(100, literal=True), linear_regression(100, condition=2.0)],
    ids=["no more dimensions than agents", "literal", "uneven"],
)
def test_where_there_is_no_frame(problem: Any) -> None:
    assert problem.in_frame(3) is None
