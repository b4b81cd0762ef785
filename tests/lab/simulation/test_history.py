"""What a history says of runs that were written down by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from guerdon import AffineCost, PowerCost
from guerdon.lab.simulation.history import History, PlayedChunk, Rounds, cost_tables

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


def history_of(recorded: Rounds, rules: tuple[str, ...] = ("known", "flat")) -> History:
    """Return the history of runs whose metrics have a column for before training."""
    before = {name: values[:, 0] for name, values in recorded.metrics.items()}
    part = recorded._replace(metrics={name: values[:, 1:] for name, values in recorded.metrics.items()})
    chunk = PlayedChunk((part,), before, len(recorded.request))
    return History([chunk], recorded.sizes.shape[1], rules, cost_tables(COSTS, max_batch=8))


@pytest.fixture
def history() -> History:
    return history_of(rounds())


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
    history = history_of(played._replace(request=[0], sizes=np.zeros((1, 4000, 3), int)), ("flat",))
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
        history = history_of(rounds()._replace(metrics=metrics))
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


def chunks(length: int) -> list[PlayedChunk]:
    """Two repetitions, and one more of two that were played; rounds in two stretches."""
    parts = played(length), played(2)
    before = {"error": np.array([100.0, 200.0])}
    return [PlayedChunk(parts, before, 2), PlayedChunk(parts, before, 1)]


@pytest.mark.parametrize("length", [1, 3, 6])
def test_rounds_are_cut_or_filled_up(length: int) -> None:
    fitted = History(chunks(length), 5, ("flat",), cost_tables(COSTS, 8))
    kept = min(length + 2, 5)
    assert [array.shape for array in (fitted.request, fitted.step, fitted.active)] == [(3, 5)] * 3
    per_agent = fitted.batch_sizes, fitted.participating, fitted.rewards["flat"]
    assert [array.shape for array in per_agent] == [(3, 5, 3)] * 3
    for array in (fitted.request, fitted.step, fitted.active, *per_agent):
        assert array[:, :kept].all()
        assert not array[:, kept:].any()
    errors = fitted.metrics["error"]
    assert errors.shape == (3, 6)
    np.testing.assert_array_equal(errors[:, 0], [100, 200, 100])
    both = np.concatenate([played(length).metrics["error"], played(2).metrics["error"]], axis=1)[[0, 1, 0], :kept]
    np.testing.assert_array_equal(errors[:, 1 : kept + 1], both)
    assert (errors[:, kept:] == errors[:, [kept]]).all()


def test_filling_up_keeps_types() -> None:
    before, after = played(3), History(chunks(3), 7, ("flat",), cost_tables(COSTS, 8))
    for name in ("request", "step", "participating", "active"):
        assert getattr(after, name).dtype == getattr(before, name).dtype
    assert after.rewards["flat"].dtype == before.rewards[0].dtype


def test_only_what_is_asked_for_is_copied() -> None:
    """An array that stands for one on an accelerator says when it is read."""

    class Watched:
        def __init__(self, values: Any) -> None:
            self.values, self.shape, self.read = values, values.shape, 0

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            del dtype, copy
            self.read += 1
            return self.values

    recorded = rounds()
    watched = recorded._replace(rewards=tuple(map(Watched, recorded.rewards)), metrics={}, accusation=Watched(ACTIVE))
    history = History([PlayedChunk((watched,), {}, 2)], ROUNDS, ("known", "flat"), cost_tables(COSTS, 8))
    for _ in range(2):
        np.testing.assert_array_equal(history.rewards["flat"], recorded.rewards[1])
    known, flat = watched.rewards
    assert (known.read, flat.read, watched.accusation.read) == (0, 1, 0)


def test_arrays_are_read_only_and_the_history_says_what_it_is(history: History) -> None:
    with pytest.raises(ValueError, match="read-only"):
        history.request[0, 0] = 1
    assert repr(history) == "History(2 repetitions, 4 rounds, 3 agents)"
