"""When a run ends: at its goal, or because its model is lost."""

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from guerdon.lab.agents import Cooperative, Fixed
from guerdon.lab.problems import linear_regression, logistic_regression
from guerdon.lab.simulation import History, Stop, engine, simulate
from guerdon.requests import FixedRequest
from tests.lab.problems.data import labelled
from tests.lab.simulation.setting import AGENTS, DIM, DISTANCE, LARGEST, NU, ROUNDS, RULES, compilations, train

STOPPING = 200
GOAL = 1.0


def stopping(size: int, step: float, rounds: int = 70, distance: float = DISTANCE) -> History:
    """Return runs that stop at an error of `GOAL`; more rounds than the engine compiles as one segment."""
    return simulate(
        linear_regression(DIM, distance, LARGEST),
        [Fixed(size)] * AGENTS,
        RULES["known"],
        FixedRequest(NU, step),
        rounds,
        STOPPING,
        stop=Stop("error", at_most=GOAL),
    )


def assert_stopped_well(history: History, errors: Any, reached: Any) -> None:
    """Nothing happens after the goal is reached, and things do happen until then."""
    first = np.where(reached.any(axis=1), reached.argmax(axis=1), reached.shape[1] - 1)
    np.testing.assert_array_equal(history.rounds_played, first)
    np.testing.assert_array_equal(history.active, np.arange(errors.shape[1] - 1) < first[:, None])
    going = history.active[..., None]
    for array in (history.request[..., None], history.step[..., None], history.batch_sizes, history.participating):
        assert ((array != 0) == going).all()
    assert (history.rewards["reward"][~history.active] == 0).all()
    assert (history.rewards["reward"][history.active] != 0).all()
    assert (history.costs[~history.active] == 0).all()
    last = np.take_along_axis(errors, first[:, None], axis=1)
    assert (np.where(np.arange(errors.shape[1]) >= first[:, None], errors, last) == last).all()


@pytest.mark.parametrize(
    ("step", "least", "most"),
    [
        (0.05, 1, 31),  # all stop within the first segment: the rest is never played
        (0.0195, 1, 64),  # some in the first, some in the second
        (0.0088, 33, 70),  # some in the third, which is longer than the rounds asked for
        (1e-4, 70, 70),  # never
    ],
)
def test_a_run_stops_at_its_goal(step: float, least: int, most: int) -> None:
    history = stopping(NU, step)
    errors = history.metrics["error"]
    assert errors.shape == (STOPPING, 71)
    assert least <= history.rounds_played.min() <= history.rounds_played.max() <= most
    assert_stopped_well(history, errors, errors <= GOAL)


def test_runs_stop_on_both_sides_of_the_end_of_a_segment() -> None:
    """So that the cases above test what they say."""
    played = stopping(NU, 0.0195).rounds_played
    assert played.min() < 2 * engine.SEGMENT < played.max()
    assert stopping(NU, 0.0088).rounds_played.max() > 64


def test_the_frame_holds_the_rounds_that_were_played() -> None:
    history = stopping(NU, 0.0195)
    frame = history.to_frame()
    assert frame.height == AGENTS * history.rounds_played.sum()
    assert frame["reward"].cast(float).sum() == pytest.approx(history.total_reward().sum())
    last = frame.group_by("repetition").agg(pl.col("round").max()).sort("repetition")
    np.testing.assert_array_equal(last["round"], history.rounds_played)


def test_segments_are_compiled_once() -> None:
    stopping(NU, 0.05)
    before = compilations()
    stopping(4, 0.015)
    stopping(4, 0.015, rounds=33)
    assert compilations() == before


def test_a_goal_reached_before_training_needs_no_round() -> None:
    history = stopping(NU, 0.05, distance=0.5)
    assert (history.rounds_played == 0).all()
    assert (history.total_reward() == 0).all()
    np.testing.assert_allclose(history.metrics["error"], 0.5, rtol=1e-5)
    assert history.to_frame().is_empty()


@pytest.mark.slow
def test_a_run_stops_at_an_accuracy() -> None:
    problem = logistic_regression(*labelled(300, seed=0), *labelled(200, seed=1), max_batch=LARGEST)
    goal = Stop("accuracy", at_least=0.8)
    history = simulate(problem, [Cooperative()] * 4, RULES["known"], FixedRequest(4, 0.2), 40, 100, stop=goal)
    reached = history.metrics["accuracy"] >= 0.8
    assert reached[:, -1].mean() > 0.9
    assert 0 < history.rounds_played.mean() < 20
    assert_stopped_well(history, history.metrics["accuracy"], reached)


def test_divergence_is_told_and_not_warned_about() -> None:
    """One sample each and a step far too large: the error passes every float32 long before 300 rounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = stopping(1, 1.0, rounds=300)
        frame = history.to_frame()
        assert history.diverged.all()
        assert np.isfinite(history.total_reward()).all()
    errors, pay = history.metrics["error"], history.rewards["reward"]
    assert not np.isnan(errors).any()
    lost = np.isinf(errors[:, :-1])  # before the round
    assert (np.diff(lost.astype(int), axis=1) >= 0).all()  # what is lost stays lost
    assert lost[:, :20].sum() == 0
    assert (pay[lost] == 0).all()
    assert (pay[:, :10] != 0).all()
    assert (history.rounds_played == 300).all()
    assert frame["reward"].is_finite().all()


@pytest.mark.parametrize("step", [1e6, 1e30, 3e38])
def test_divergence_leaves_the_pay_of_every_rule_finite(step: float) -> None:
    history = train((1,) * AGENTS, steps=(step,) * ROUNDS)
    assert history.diverged.all()
    lost = np.isinf(history.metrics["error"][:, :-1])  # before the round
    for reward in history.rewards.values():
        assert np.isfinite(reward).all()
        assert (reward[lost] == 0).all()
