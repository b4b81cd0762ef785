"""Information pay, predictions and dithered broadcasts in the simulator, against loops that share no code with it."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import AffineCost, InformationPay, OutputAgreement
from guerdon.adaptive import BudgetRequest, NoiseScaleRequest
from guerdon.lab._trees import register
from guerdon.lab.agents import Agent, Cooperative, Fixed, Portion, Reporting, garbage, zero
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.problems import linear_regression
from guerdon.lab.simulation import History, simulate
from guerdon.lab.simulation.training import repetition_key, round_keys
from guerdon.requests import FixedRequest, ScheduledRequest
from guerdon.statistical.dithers import Dither
from guerdon.statistical.predictions import Extrapolation, Prediction, RunningMean, ZeroPrediction
from tests.support import information_oracle as oracle
from tests.support.means import mean

SURE = 4.0
COST = AffineCost(1, 1)
DIM, DISTANCE, LARGEST, ROUNDS = 6, 4.0, 16, 10
REQUESTS = (8, 8, 4, 4, 16, 8, 2, 2, 8, 8)
STEPS = (0.1, 0.05, 0.1, 0.2, 0.05, 0.1, 0.0, 0.1, 0.1, 0.1)
SIZES = (8, 4, 16, 8, 8, 0, 8)  # the last but one declines
PREDICTIONS: dict[str, Prediction] = {
    "zero": ZeroPrediction(),
    "running": RunningMean(),
    "extrapolated": Extrapolation(),
}


@register
@dataclass(frozen=True)
class Broken(Agent):
    """Works, but sends NaN in every third round."""

    def choose(self, view: Any, key: Any) -> Any:
        del view, key
        return jnp.asarray(8)

    def report(self, view: Any, gradient: Any, key: Any) -> Any:
        del key
        return jnp.where(view.round % 3 == 2, jnp.nan, gradient)


AGENTS = [*[Fixed(size) for size in SIZES], Reporting(Fixed(8), gradient=-40.0), Broken()]
ALL_SIZES = (*SIZES, 8, 8)


def as_sent(agent: int, turn: int, gradient: Any) -> Any:
    """What agents 7 and 8 make of their gradients."""
    if agent == 7:
        return -40.0 * gradient
    return np.nan * gradient if agent == 8 and turn % 3 == 2 else gradient


@functools.cache
def run(name: str, dither: Dither | None) -> Any:
    """Return the problem and the history, in 64 bits where they are on."""
    problem = linear_regression(DIM, DISTANCE, LARGEST)
    rule, policy = InformationPay(COST, doubt=2.0), ScheduledRequest(REQUESTS, STEPS)
    options: Any = {"prediction": PREDICTIONS[name], "dither": dither}
    return problem, simulate(problem, AGENTS, rule, policy, ROUNDS, 12, 3, **options)


DITHERS = {
    "none": None,
    "fixed": Dither(0.5),
    "adapting": Dither(0.5, COST, largest=0.8),
    "finest": Dither(0.5, COST, largest=5.0, finest=15.0),
}


@pytest.mark.parametrize(
    ("name", "dithered"),
    [
        pytest.param("running", "none", marks=pytest.mark.slow),
        ("extrapolated", "finest"),
        pytest.param("zero", "fixed", marks=pytest.mark.slow),
        pytest.param("running", "adapting", marks=pytest.mark.slow),
    ],
)
def test_it_agrees_with_the_loops_on_the_same_draws(name: str, dithered: str) -> None:
    """Rewards, models, evidence and ‖u‖, with dropouts, NaN, a long wrong report, and requests that change."""
    with jax.enable_x64(True):
        dither = DITHERS[dithered]
        problem, history = run(name, dither)

        @jax.jit
        def gradient(model: Any, size: Any, key: Any, turn: Any, agent: Any) -> Any:
            return problem.gradient(model, size, round_keys(key, turn, len(AGENTS))[1, agent])

        for repetition in (0, 3):
            key = repetition_key(3, jnp.asarray(repetition))
            expected = oracle.train(
                lambda model, size, t, k: as_sent(k, t, np.asarray(gradient(model, size, key, t, k))),  # noqa: B023
                np.zeros(DIM),
                [ALL_SIZES] * ROUNDS,
                REQUESTS,
                np.asarray(ScheduledRequest(REQUESTS, STEPS).steps, dtype=np.float64).tolist(),
                oracle.InformationOracle(COST, len(AGENTS), doubt=2.0),
                oracle.PREDICTIONS[name],
                None if dither is None else _dither_oracle(dither, key),
            )
            np.testing.assert_allclose(history.rewards["reward"][repetition], expected.rewards, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(np.exp(history.accusation[repetition]), expected.against, rtol=1e-8)
            np.testing.assert_allclose(history.offset[repetition], expected.lengths, rtol=1e-8)
            errors = np.sum((expected.models - np.asarray(problem.target)) ** 2, axis=1)
            np.testing.assert_allclose(history.metrics["error"][repetition], errors, rtol=1e-8)
        assert (history.accusation[..., :8] > np.log(2.0)).any()  # the doubt was put to use


def _dither_oracle(dither: Dither, key: Any) -> oracle.DitherOracle:
    def directions(t: int) -> Any:
        fresh = jax.random.fold_in(jax.random.fold_in(key, 2**31 - 2), t)
        return np.asarray(jax.random.normal(fresh, (DIM,), jnp.float64))

    return oracle.DitherOracle(directions, dither.length, dither.cost, dither.largest, dither.finest)


# Options that are off change nothing.


def plain(**options: Any) -> History:
    problem, rules = linear_regression(DIM, DISTANCE, LARGEST), {"balanced": OutputAgreement(COST, BalancedVariance())}
    agents = [Fixed(size) for size in SIZES]
    return simulate(problem, agents, rules, ScheduledRequest(REQUESTS, STEPS), ROUNDS, 20, 1, **options)


OLD_ERRORS = [0.091962032, 0.059864357, 0.065210775]
OLD_REWARDS = [24.2562675, 34.9764214, 14.4336329]


def test_without_a_dither_the_numbers_are_the_old_ones() -> None:
    """Recorded before there were predictions and dithers."""
    history = plain()
    assert history.metrics["error"][:3, -1].tolist() == pytest.approx(OLD_ERRORS, rel=1e-4)
    assert history.rewards["balanced"][:3, 4, 2].tolist() == pytest.approx(OLD_REWARDS, rel=1e-3)
    assert (history.offset == 0).all()
    assert (history.accusation == 0).all()


def test_a_prediction_does_not_touch_output_agreement() -> None:
    left, right = plain(), plain(prediction=RunningMean(), dither=None)
    np.testing.assert_array_equal(left.rewards["balanced"], right.rewards["balanced"])
    np.testing.assert_array_equal(left.metrics["error"], right.metrics["error"])
    np.testing.assert_allclose(left.surprise, left.signal, rtol=1e-3, atol=1e-3)  # the surprise of no prediction is all


# Seeds and chunks.


@functools.cache
def dithered(**options: Any) -> History:
    problem = linear_regression(DIM, DISTANCE, LARGEST)
    agents, rule = [*[Cooperative()] * 5, zero()], InformationPay(COST)
    given: Any = {"prediction": RunningMean(), "dither": Dither(0.5, COST)} | options
    return simulate(problem, agents, rule, FixedRequest(8, 0.05), ROUNDS, 12, 7, **given)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_whatever_the_chunks() -> None:
    whole, divided = dithered(), dithered(chunk=5)
    for name in ("offset", "accusation", "surprise"):
        np.testing.assert_allclose(getattr(whole, name), getattr(divided, name), rtol=1e-3, atol=1e-3, err_msg=name)
    np.testing.assert_allclose(whole.metrics["error"], divided.metrics["error"], rtol=1e-4)
    np.testing.assert_allclose(whole.rewards["reward"], divided.rewards["reward"], rtol=1e-3, atol=0.02)


def test_it_steps_once_in_two_rounds_and_the_offset_stays_for_a_pair() -> None:
    with jax.enable_x64(True):
        history = run("extrapolated", DITHERS["finest"])[1]
    assert (history.step[:, ::2] == 0).all()
    np.testing.assert_allclose(history.step[:, 1::2], np.broadcast_to(STEPS[1::2], (12, ROUNDS // 2)), rtol=1e-6)
    errors = history.metrics["error"]
    np.testing.assert_array_equal(errors[:, 0:-1:2], errors[:, 1::2])  # the first round of a pair moves nothing
    assert (errors[:, 1:-1:2] != errors[:, 2::2]).all()
    np.testing.assert_array_equal(history.offset[:, ::2], history.offset[:, 1::2])
    np.testing.assert_allclose(history.offset[:, 0], 0.5)
    assert np.unique(history.offset[:, 2]).size > 3  # each training has its own; many grow as quickly as they may


# What is refused.


@pytest.mark.parametrize("rounds", [1, 7])
def test_a_dither_needs_pairs_of_rounds(rounds: int) -> None:
    problem = linear_regression(DIM, DISTANCE, LARGEST)
    with pytest.raises(
        ValueError, match=f"`rounds` must be even under a dither, which steps once in two rounds, got {rounds}"
    ):
        simulate(
            problem, [Cooperative()] * 3, InformationPay(COST), FixedRequest(8, 0.1), rounds, 2, dither=Dither(1.0)
        )


@pytest.mark.parametrize("policy", [NoiseScaleRequest(COST, max_batch=16), BudgetRequest(COST, 100.0, max_batch=16)])
def test_a_dither_needs_requests_that_do_not_learn(policy: Any) -> None:
    problem = linear_regression(DIM, DISTANCE, LARGEST)
    with pytest.raises(ValueError, match="`requests` must be fixed or scheduled under a dither"):
        simulate(problem, [Cooperative()] * 3, InformationPay(COST), policy, 4, 2, dither=Dither(1.0))


# Colluders draw the same samples.


@pytest.mark.slow
def test_followers_draw_the_samples_of_their_leader() -> None:
    """Everybody follows agent 0: all reports are the same, and there is nothing to pay for."""
    problem = linear_regression(DIM, DISTANCE, LARGEST)
    agents = [Reporting(Portion(1.0), leader=0)] * 4
    rules = {"information": InformationPay(COST), "balanced": OutputAgreement(COST, BalancedVariance())}
    history = simulate(problem, agents, rules, FixedRequest(8, 0.05), 4, 5)
    assert (history.variance == 0).all()
    for reward in history.rewards.values():
        assert (reward == 0).all()
    own = simulate(problem, [Reporting(Portion(1.0))] * 4, rules, FixedRequest(8, 0.05), 4, 5)
    assert (own.variance > 0).all()
    np.testing.assert_allclose(own.rewards["balanced"].sum(axis=2), 4 * COST(8), rtol=1e-4)


@pytest.mark.slow
def test_copies_are_seen_and_not_paid() -> None:
    """Two who draw the same samples send the same; the others are paid as if they were absent."""
    problem = linear_regression(DIM, DISTANCE, LARGEST)
    agents = [*[Cooperative()] * 4, *[Reporting(Portion(1.0), leader=4)] * 2]
    options: Any = {"prediction": ZeroPrediction()}
    history = simulate(problem, agents, InformationPay(COST), FixedRequest(8, 0.05), 10, 200, **options)
    assert not history.rewards["reward"][:, :, 4:].any()
    others = mean(history.utilities["reward"][:, :, :4].mean(axis=(1, 2)))
    assert abs(others.z(0.0)) < SURE
    assert others.error < 1


# Garbage, also in the aggregate.


@pytest.mark.slow
def test_what_is_not_trusted_does_not_reach_the_model() -> None:
    problem, policy = linear_regression(DIM, DISTANCE, LARGEST), FixedRequest(8, 0.02)
    with_garbage = [*[Cooperative()] * 7, garbage(1e6)]
    history, clean = (
        simulate(problem, agents, InformationPay(COST), policy, 30, 30)
        for agents in (with_garbage, [Cooperative()] * 8)
    )
    assert not history.diverged.any()
    assert (history.accusation[:, -1, 7] > np.log(20)).all()
    assert history.metrics["error"][:, -1].mean() < 1.5 * clean.metrics["error"][:, -1].mean()
    ruined = simulate(problem, with_garbage, OutputAgreement(COST), policy, 30, 5)
    assert (ruined.metrics["error"][:, -1] > 1e6).all()


@pytest.mark.slow
def test_sending_the_prediction_is_what_it_says() -> None:
    """An agent who sends the server's prediction scores as one who sends zero where she predicts zero."""
    problem = linear_regression(DIM, DISTANCE, LARGEST)
    sender = Reporting(Portion(0.0), gradient=0.0, prediction=1.0, fabricates=True)

    def paid(cheat: Agent, prediction: Prediction) -> Any:
        agents = [cheat, *[Cooperative()] * 6]
        rule = InformationPay(COST)
        return simulate(problem, agents, rule, FixedRequest(8, 0.1), 6, 4, prediction=prediction).rewards["reward"]

    np.testing.assert_array_equal(paid(sender, ZeroPrediction()), paid(zero(), ZeroPrediction()))
    assert not np.array_equal(paid(sender, RunningMean()), paid(zero(), RunningMean()))
