"""What a history says of runs that were written down by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from guerdon import AffineCost, PowerCost
from guerdon.simulation.history import History, Rounds, pad_rounds

COSTS = (AffineCost(1, 1), PowerCost(0.5, 2), AffineCost(0, 3))
REPETITIONS, ROUNDS, AGENTS = 2, 4, 3
ACTIVE = np.array([[True, True, True, True], [True, True, False, False]])


def rounds(seed: int = 0) -> Rounds:
    """Two runs of three agents, the second of which stops after two of four rounds."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 9, (REPETITIONS, ROUNDS, AGENTS)) * ACTIVE[..., None]
    return Rounds(
        np.array([8, 8, 4, 4]) * ACTIVE,
        np.array([0.5, 0.25, 0.25, 0.25]) * ACTIVE,
        sizes,
        sizes > 0,
        tuple(rng.normal(size=sizes.shape) * (sizes > 0) for _ in range(2)),
        {"error": np.array([[9.0, 5.0, 3.0, 2.0, 1.0], [9.0, 4.0, 1.0, 1.0, 1.0]])},
        ACTIVE,
        rng.exponential(size=ACTIVE.shape) * ACTIVE,
        rng.normal(size=ACTIVE.shape) * ACTIVE,
        surprise=rng.normal(size=ACTIVE.shape) * ACTIVE,
        offset=rng.normal(size=ACTIVE.shape) * ACTIVE,
        accusation=rng.normal(size=sizes.shape) * ACTIVE[..., None],
        collusion=rng.normal(size=sizes.shape) * ACTIVE[..., None],
        proven=rng.normal(size=sizes.shape) * ACTIVE[..., None],
    )


@pytest.fixture
def history() -> History:
    return History.from_rounds(rounds(), ("known", "flat"), COSTS, interrupted=False)


def test_arrays_are_what_was_recorded(history: History) -> None:
    recorded = rounds()
    assert history.repetitions == REPETITIONS
    assert not history.interrupted
    assert list(history.rewards) == ["known", "flat"]
    np.testing.assert_array_equal(history.batch_sizes, recorded.sizes)
    np.testing.assert_array_equal(history.participating, recorded.participating)
    np.testing.assert_array_equal(history.rewards["flat"], recorded.rewards[1])
    np.testing.assert_array_equal(history.variance, recorded.variance)
    np.testing.assert_array_equal(history.signal, recorded.signal)
    np.testing.assert_array_equal(history.surprise, recorded.surprise)
    np.testing.assert_array_equal(history.offset, recorded.offset)
    np.testing.assert_array_equal(history.accusation, recorded.accusation)
    np.testing.assert_array_equal(history.collusion, recorded.collusion)
    np.testing.assert_array_equal(history.proven, recorded.proven)
    np.testing.assert_array_equal(history.metrics["error"], recorded.metrics["error"])


def test_every_agent_has_his_own_cost(history: History) -> None:
    for position in np.ndindex(history.batch_sizes.shape):
        assert history.costs[position] == COSTS[position[-1]](int(history.batch_sizes[position]))


def test_utilities_are_rewards_less_costs(history: History) -> None:
    assert list(history.utilities) == ["known", "flat"]
    for rule, reward in history.rewards.items():
        np.testing.assert_array_equal(history.utilities[rule], reward - history.costs)


def test_totals_are_sums_over_rounds_and_agents(history: History) -> None:
    for rule in ("known", "flat"):
        expected = [sum(float(x) for x in run.ravel()) for run in history.rewards[rule]]
        np.testing.assert_allclose(history.total_reward(rule), expected)
    np.testing.assert_array_equal(history.total_reward(), history.total_reward("known"))


def test_totals_of_many_small_rewards_are_not_lost_to_rounding() -> None:
    played = rounds()._replace(rewards=(np.full((1, 4000, 250), 0.1, np.float32),))
    history = History.from_rounds(played._replace(sizes=np.zeros((1, 4000, 3), int)), ("flat",), COSTS, False)
    assert history.total_reward()[0] == pytest.approx(1e6 * float(np.float32(0.1)), rel=1e-12)


def test_rounds_played(history: History) -> None:
    np.testing.assert_array_equal(history.rounds_played, [4, 2])


@pytest.mark.parametrize("end", [np.inf, np.nan, -np.inf])
def test_diverged_is_a_last_metric_that_is_not_finite(end: float) -> None:
    errors = rounds().metrics["error"].copy()
    errors[1, -1] = end
    errors[0, 2] = np.inf  # on the way, but it came back
    other = np.ones_like(errors)
    for metrics in ({"error": errors}, {"loss": other, "error": errors}):
        history = History.from_rounds(rounds()._replace(metrics=metrics), ("known", "flat"), COSTS, False)
        np.testing.assert_array_equal(history.diverged, [False, True])


def test_frame_has_a_row_per_repetition_round_agent_and_rule_that_was_played(history: History) -> None:
    frame = history.to_frame()
    assert frame.shape == (6 * AGENTS * 2, 13)
    assert frame.select("repetition", "round", "agent", "rule").is_unique().all()
    assert frame.filter(repetition=1)["round"].unique().to_list() == [1, 2]
    assert frame.filter(repetition=0)["round"].unique().to_list() == [1, 2, 3, 4]
    assert frame["agent"].unique().to_list() == [0, 1, 2]
    assert frame.null_count().sum_horizontal().item() == 0


def test_frame_says_what_the_arrays_say(history: History) -> None:
    for row in history.to_frame().iter_rows(named=True):
        at = row["repetition"], row["round"] - 1
        agent = (*at, row["agent"])
        expected: dict[str, Any] = {
            "request": history.request[at],
            "step": history.step[at],
            "error": history.metrics["error"][at[0], row["round"]],  # after the round
            "batch_size": history.batch_sizes[agent],
            "sent": history.participating[agent],
            "cost": history.costs[agent],
            "reward": history.rewards[row["rule"]][agent],
        }
        assert {name: row[name] for name in expected} == expected


def test_frame_adds_up_to_the_totals(history: History) -> None:
    sums = history.to_frame().group_by("rule", "repetition").agg(pl.col("reward").sum())
    for row in sums.iter_rows(named=True):
        assert row["reward"] == pytest.approx(history.total_reward(row["rule"])[row["repetition"]])


def test_save_writes_the_frame_as_parquet(history: History, tmp_path: Path) -> None:
    for path in (tmp_path / "history.parquet", str(tmp_path / "text.parquet")):
        history.save(path)
        assert pl.read_parquet(path).equals(history.to_frame())


def played(length: int) -> Rounds:
    return Rounds(
        np.full((2, length), 8),
        np.full((2, length), 0.5, np.float32),
        np.full((2, length, 3), 8),
        np.full((2, length, 3), True),
        (np.full((2, length, 3), 9.0),),
        {"error": np.arange(1.0, 2 * length + 1).reshape(2, length)},
        np.full((2, length), True),
        np.full((2, length), 4.0),
        np.full((2, length), 2.0),
        surprise=np.full((2, length), 1.0),
        offset=np.full((2, length), 0.0),
        accusation=np.full((2, length, 3), -1.0),
        collusion=np.full((2, length, 3), -1.0),
        proven=np.full((2, length, 3), -1.0),
    )


@pytest.mark.parametrize("length", [3, 5, 8])
def test_rounds_are_cut_or_filled_up(length: int) -> None:
    before = {"error": np.array([100.0, 200.0])}
    fitted = pad_rounds(played(length), before, 5)
    kept = min(length, 5)
    assert [array.shape for array in (fitted.request, fitted.step, fitted.active)] == [(2, 5)] * 3
    assert [array.shape for array in (fitted.sizes, fitted.participating, *fitted.rewards)] == [(2, 5, 3)] * 3
    for array in (fitted.request, fitted.step, fitted.sizes, fitted.participating, *fitted.rewards, fitted.active):
        assert array[:, :kept].all()
        assert not array[:, kept:].any()
    errors = fitted.metrics["error"]
    assert errors.shape == (2, 6)
    np.testing.assert_array_equal(errors[:, 0], [100, 200])
    np.testing.assert_array_equal(errors[:, 1 : kept + 1], played(length).metrics["error"][:, :kept])
    assert (errors[:, kept:] == errors[:, [kept]]).all()


def test_filling_up_keeps_types() -> None:
    before, after = played(3), pad_rounds(played(3), {"error": np.zeros(2)}, 5)
    for name in ("request", "step", "sizes", "participating", "active"):
        assert getattr(after, name).dtype == getattr(before, name).dtype
    assert after.rewards[0].dtype == before.rewards[0].dtype
