"""The slow version, tested by hand, against the transcription of the paper's formulas, and by its statistics.

`test_engine.py` then tests the engine against it.
"""

from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, PowerCost
from guerdon.costs import Cost
from tests.support.means import mean
from tests.support.paper_oracle import PaperRule
from tests.support.training_oracle import minibatches, reference

SURE = 4.0
COST = AffineCost(1, 1)


def test_one_round_by_hand() -> None:
    sent = {0: [0.0, 0.0], 1: [2.0, 0.0], 2: [1.0, 3.0]}
    run = reference(lambda *asked: sent[asked[3]], [10.0, 10.0], [[8, 8, 8]], [8], [0.5], COST, lambda _: 16.0)
    np.testing.assert_allclose(run.models, [[10, 10], [9.5, 9.5]])
    np.testing.assert_allclose(run.rewards, [[3, 3, -15]])  # as in the docstring of `OutputAgreement`


def test_agents_are_asked_for_their_batch_at_the_current_model() -> None:
    asked: list[Any] = []

    def draw(model: Any, *rest: int) -> Any:
        asked.append((float(model[0]), *rest))
        return np.ones(1)

    sizes = [[4, 0, 2], [0, 1, 0]]
    reference(draw, [5.0], sizes, [8, 4], [1.0, 0.5], COST, "balanced")
    assert asked == [(5.0, 4, 0, 0), (5.0, 2, 0, 2), (4.0, 1, 1, 1)]


def test_nobody_takes_part() -> None:
    run = reference(lambda *_: np.ones(2), [1.0, 2.0], [[0, 0]], [8], [0.5], COST, lambda _: 1.0)
    np.testing.assert_array_equal(run.models, [[1, 2], [1, 2]])
    np.testing.assert_array_equal(run.rewards, [[0, 0]])


@pytest.mark.parametrize("variance", ["estimated", "balanced"])
def test_too_few_take_part(variance: str) -> None:
    run = reference(lambda *_: np.ones(1), [1.0], [[8, 0, 8], [8, 0, 0]], [8, 8], [0.5, 0.5], COST, variance)
    np.testing.assert_array_equal(run.rewards, np.zeros((2, 3)))
    np.testing.assert_array_equal(run.models, [[1.0], [0.5], [0.0]])


@pytest.mark.parametrize("cost", [COST, PowerCost(0.5, 2, 1)])
@pytest.mark.parametrize(("variance", "name"), [(24.0, 24.0), ("estimated", "estimated"), ("balanced", "shared")])
def test_it_agrees_with_the_papers_formulas(cost: Cost, variance: Any, name: Any) -> None:
    """`tests/support/paper_oracle.py` is another transcription, of the payment rules alone."""
    rng = np.random.default_rng(0)
    sizes, requests = [[3, 1, 4, 8, 2], [3, 0, 4, 8, 2], [8, 0, 8, 0, 8]], [8, 3, 16]
    gradients = rng.normal(size=(3, 5, 7)) + 2
    rule = variance if isinstance(variance, str) else lambda _: variance
    run = reference(lambda _, __, t, k: gradients[t, k], np.zeros(7), sizes, requests, [0.1] * 3, cost, rule)
    paper = PaperRule(cost, name)
    for t in range(3):
        participating = np.array(sizes[t]) > 0
        np.testing.assert_allclose(run.rewards[t], paper.pay(gradients[t], participating, requests[t]), rtol=1e-10)
        step = -0.1 * gradients[t, participating].mean(axis=0)
        np.testing.assert_allclose(run.models[t + 1] - run.models[t], step, rtol=1e-10)


@pytest.mark.parametrize("size", [1, 4])
def test_minibatches_have_the_mean_and_variance_of_linear_regression(size: int) -> None:
    target, model = np.array([1.0, -1.0, 2.0]), np.array([0.0, 0.5, 1.0])
    error = float(np.sum((model - target) ** 2))
    draw = minibatches(target, np.random.default_rng(size))
    draws = np.array([draw(model, size, 0, 0) for _ in range(4000)])
    for component in range(3):
        assert abs(mean(draws[:, component]).z(2 * (model - target)[component])) < SURE
    lengths = mean(np.sum((draws - 2 * (model - target)) ** 2, axis=1))
    expected = 4 * (4 * error + 3) / size
    assert abs(lengths.z(expected)) < SURE
    assert lengths.error < 0.07 * expected
