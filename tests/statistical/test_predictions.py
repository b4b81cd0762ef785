"""Predictions against their definitions, over arrays and layers, on every library, and what they are good for."""

from typing import Any

import jax
import numpy as np
import pytest

from guerdon.broadcast import StepObservation
from guerdon.statistical.predictions import LARGEST_SLOPE, Extrapolation, Prediction, RunningMean, ZeroPrediction
from tests.support.information_oracle import (
    Step,
    predict_extrapolated,
    predict_running,
    predict_zero,
)
from tests.support.libraries import Library, jax_once
from tests.support.means import mean

DIM = 6
CASES: dict[str, Any] = {
    "zero": (ZeroPrediction(), predict_zero),
    "running": (RunningMean(), predict_running),
    "running-short": (RunningMean(0.0, 0.5), lambda steps, model: predict_running(steps, model, 0.0, 0.5)),
    "extrapolated": (Extrapolation(), predict_extrapolated),
    "extrapolated-long": (Extrapolation(0.95), lambda steps, model: predict_extrapolated(steps, model, 0.95)),
}
every_prediction = pytest.mark.parametrize("name", CASES)


def steps(seed: int = 0, dithered: bool = True) -> list[Step]:
    """Steps on a noisy quadratic."""
    rng, model, result = np.random.default_rng(seed), np.full(DIM, 2.0), []
    for _ in range(7):
        offset, aggregate = rng.normal(size=DIM), model + 0.3 * rng.normal(size=DIM)
        response = offset + 0.2 * rng.normal(size=DIM)
        result.append(Step(model, aggregate, offset, response) if dithered else Step(model, aggregate))
        model = model - 0.1 * aggregate
    return result


def run(prediction: Prediction, seen: list[Step], convert: Any) -> list[Any]:
    """Return the prediction before each step, and after the last."""
    state, result = prediction.init(convert(seen[0].model)), []
    for step in [*seen, seen[0]]:
        result.append(prediction.predict(state, convert(step.model)))
        parts = [None if part is None else convert(part) for part in step]
        state = prediction.learn(state, StepObservation(*parts))
    return result


@every_prediction
@jax_once
@pytest.mark.parametrize("dithered", [True, False])
def test_it_agrees_with_the_definition(name: str, library: Library, dithered: bool) -> None:
    prediction, slow = CASES[name]
    seen = steps(dithered=dithered)
    with library.precision():
        for t, p in enumerate(run(prediction, seen, library.array)):
            model = seen[t].model if t < len(seen) else seen[0].model
            loose = 1e-10 if library.dtype == "float64" else 1e-4
            np.testing.assert_allclose(np.asarray(p), slow(seen[:t], model), rtol=loose, atol=loose)


@every_prediction
def test_layers_are_predicted_as_one(name: str) -> None:
    """A list of layers gives the numbers of one vector, β and κ being common to all layers."""
    prediction, _ = CASES[name]
    whole = run(prediction, steps(), np.asarray)
    layers = run(prediction, steps(), lambda x: [x[:2].reshape(1, 2), x[2:]])
    for one, parts in zip(whole, layers, strict=True):
        assert parts[0].shape == (1, 2)
        np.testing.assert_allclose(np.concatenate([part.ravel() for part in parts]), one, rtol=1e-12, atol=1e-12)


@every_prediction
def test_it_can_be_compiled(name: str) -> None:
    prediction, _ = CASES[name]
    seen, state = steps(), prediction.init(jax.numpy.zeros(DIM))
    learn, predict = jax.jit(prediction.learn), jax.jit(prediction.predict)
    for step, expected in zip(seen, run(prediction, seen, np.asarray), strict=False):
        np.testing.assert_allclose(predict(state, step.model), expected, rtol=1e-4, atol=1e-4)
        state = learn(state, StepObservation(*step))


@every_prediction
def test_nothing_is_predicted_before_anything_is_seen(name: str) -> None:
    prediction, _ = CASES[name]
    np.testing.assert_array_equal(prediction.predict(prediction.init(np.ones(3)), np.ones(3)), np.zeros(3))


def test_a_steady_gradient_is_learned_and_pure_noise_is_not() -> None:
    rng, truth, rule = np.random.default_rng(1), np.full(40, 1.0), RunningMean()
    left: dict[float, list[float]] = {1.0: [], 0.0: []}
    for size, errors in left.items():
        for _ in range(100):
            state = rule.init(truth)
            for _ in range(25):
                state = rule.learn(state, StepObservation(truth, size * truth + 0.5 * rng.normal(size=40)))
            errors.append(float(np.sum((rule.predict(state, truth) - size * truth) ** 2)))
    steady, noise = mean(left[1.0]), mean(left[0.0])
    assert steady.value + 4 * steady.error < 0.1 * 40  # of ‖m‖² = 40, most is predicted
    assert noise.value < 0.5  # of noise of 10 in each aggregate; the plain mean would leave 1.1
    assert (steady.error, noise.error) < (0.1, 0.1)


def test_a_regression_coefficient_is_neither_negative_nor_huge() -> None:
    rule, ones = RunningMean(), np.ones(3)
    state = rule.init(ones)
    for aggregate in (1e-3 * ones, ones):
        state = rule.learn(state, StepObservation(ones, aggregate))
    mean_so_far = (0.8 * 1e-3 + 1) / 1.8 * ones
    np.testing.assert_allclose(rule.predict(state, ones), LARGEST_SLOPE * mean_so_far)
    state = rule.init(ones)
    for aggregate in (ones, -ones):
        state = rule.learn(state, StepObservation(ones, aggregate))
    np.testing.assert_array_equal(rule.predict(state, ones), np.zeros(3))


def test_extrapolation_knows_a_loss_that_is_equally_curved() -> None:
    """After one dithered step without noise it predicts the gradient at any model exactly."""
    rule, curvature = Extrapolation(), 3.0
    state, rng = rule.init(np.zeros(4)), np.random.default_rng(2)
    model = rng.normal(size=4)
    for _ in range(2):  # β takes two steps; the model stays where it is, so that β is 1
        offset = rng.normal(size=4)
        state = rule.learn(state, StepObservation(model, curvature * model, offset, curvature * offset))
    elsewhere = rng.normal(size=4)
    np.testing.assert_allclose(rule.predict(state, elsewhere), curvature * elsewhere)


@pytest.mark.parametrize(
    ("kind", "numbers", "error", "message"),
    [
        (RunningMean, {"decay": 1.0}, ValueError, "`decay` must be below 1, got 1.0"),
        (RunningMean, {"decay": -0.1}, ValueError, "`decay` must be a finite number of at least 0, got -0.1"),
        (RunningMean, {"decay": "0.5"}, TypeError, "`decay` must be a finite number of at least 0, got '0.5'"),
        (RunningMean, {"steady": 1.0}, ValueError, "`steady` must be below 1, got 1.0"),
        (RunningMean, {"steady": float("nan")}, ValueError, "`steady` must be a finite number of at least 0, got nan"),
        (RunningMean, {"steady": None}, TypeError, "`steady` must be a finite number of at least 0, got None"),
        (Extrapolation, {"decay": 1.0}, ValueError, "`decay` must be below 1, got 1.0"),
        (Extrapolation, {"decay": -1}, ValueError, "`decay` must be a finite number of at least 0, got -1"),
        (Extrapolation, {"decay": "x"}, TypeError, "`decay` must be a finite number of at least 0, got 'x'"),
    ],
)
def test_bad_numbers_are_refused(kind: Any, numbers: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        kind(**numbers)
