"""Summaries are what NumPy finds in the full history, whatever the chunks."""

import functools
from typing import Any

import numpy as np
import pytest

from guerdon.lab.simulation import History, Stop, Summary
from guerdon.lab.simulation.history import Rounds
from guerdon.lab.simulation.summary import Statistic, sum_up
from tests.lab.simulation.setting import ALONE, CHANGING, COST, MIXED, STEPS, train

DIGITS = 1e-12  # relative to the mean absolute value
RUNS, CHUNK = 301, 128  # two chunks and a ragged one
STOP = Stop("error", at_most=6.0)
PER_ROUND = (
    *("request", "step", "batch_sizes", "participating", "costs", "active"),
    *("variance", "signal", "surprise", "offset", "accusation", "collusion", "proven"),
)


@functools.cache
def both(stop: Stop | None, chunk: int | None) -> tuple[History, Summary]:
    """Return the full history of a training, and its summary."""
    options: dict[str, Any] = {"rules": ALONE, "repetitions": RUNS, "stop": stop, "chunk": chunk}
    return tuple(train(MIXED, CHANGING, STEPS, keep=keep, **options) for keep in ("all", "summary"))  # pyright: ignore[reportReturnType]


def assert_statistic(found: Statistic, sample: Any) -> None:
    draws = np.asarray(sample, dtype=np.float64)
    scale = np.abs(draws).mean(axis=0) + 1e-30
    assert found.mean.shape == draws.shape[1:]
    assert np.max(np.abs(found.mean - draws.mean(axis=0)) / scale) < DIGITS
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    assert np.max(np.abs(found.error - error) / scale) < DIGITS


settings = pytest.mark.parametrize(("stop", "chunk"), [(None, CHUNK), (STOP, CHUNK)])


@settings
def test_statistics_of_rounds_are_those_of_the_history(stop: Stop | None, chunk: int | None) -> None:
    history, summary = both(stop, chunk)
    for name in PER_ROUND:
        assert_statistic(getattr(summary, name), getattr(history, name))
    assert_statistic(summary.metrics["error"], history.metrics["error"])
    for rule, reward in history.rewards.items():
        assert_statistic(summary.rewards[rule], reward)
        assert_statistic(summary.utilities[rule], history.utilities[rule])
        assert_statistic(summary.paid[rule], np.cumsum(reward.sum(axis=2, dtype=np.float64), axis=1))


@settings
def test_totals_of_repetitions_are_those_of_the_history(stop: Stop | None, chunk: int | None) -> None:
    history, summary = both(stop, chunk)
    assert summary.repetitions == history.repetitions == RUNS
    np.testing.assert_array_equal(summary.rounds_played, history.rounds_played)
    np.testing.assert_array_equal(summary.diverged, history.diverged)
    np.testing.assert_array_equal(summary.first_metrics["error"], history.metrics["error"][:, 0])
    np.testing.assert_array_equal(summary.last_metrics["error"], history.metrics["error"][:, -1])
    np.testing.assert_allclose(summary.total_costs, history.costs.sum(axis=1), rtol=DIGITS)
    for rule, reward in history.rewards.items():
        np.testing.assert_allclose(summary.total_rewards[rule], reward.sum(axis=1, dtype=np.float64), rtol=DIGITS)
        np.testing.assert_allclose(summary.total_reward(rule), history.total_reward(rule), rtol=DIGITS)
        np.testing.assert_allclose(
            summary.total_utilities[rule], history.utilities[rule].sum(axis=1), rtol=DIGITS, atol=1e-9
        )
    assert (history.rounds_played.min() < history.rounds) == (stop is not None)  # or nothing was tested


def test_quantiles_are_exact() -> None:
    history, summary = both(STOP, CHUNK)
    (rule,) = ALONE
    found = summary.quantiles((0.25, 0.5))
    np.testing.assert_array_equal(found["rounds_played"], np.quantile(history.rounds_played, (0.25, 0.5)))
    np.testing.assert_allclose(found[f"total_reward: {rule}"], np.quantile(history.total_reward(), (0.25, 0.5)))
    last = history.metrics["error"][:, -1].astype(np.float64)
    np.testing.assert_array_equal(found["last error"], np.quantile(last, (0.25, 0.5)))


def record(per_round: Any, per_agent: Any) -> Rounds:
    """Return rounds of which everything is the same number; batch sizes are 3, and there are two rules."""
    sizes = np.full(per_agent.shape, 3)
    return Rounds(
        per_round, per_round, sizes, per_agent > 0, (per_agent, per_agent), {"error": per_round}, per_round != 0,
        per_round, per_round, per_round, per_round, per_agent, per_agent, per_agent,
    )  # fmt: skip


RULES = "two", "one"  # the first is the one that trains, whatever its name


def test_rounds_beyond_those_asked_for_are_not_added() -> None:
    """A stretch may be longer than the rounds that are left; its repetitions may be more than those that count."""
    rounds = np.arange(1.0, 5.0, dtype=np.float32)
    per_round = np.stack([rounds, rounds + 1, np.full(4, np.nan, np.float32)])
    per_agent = np.repeat(per_round[..., None], 2, axis=2)
    part = record(per_round, per_agent)
    tables = np.stack([COST(np.arange(5))] * 2)
    before = {"error": np.full(3, 9.0)}
    chunk = sum_up(RULES, tables, before, [part], 3, 2)
    np.testing.assert_array_equal(chunk.totals.rewards["one"], [[6, 6], [9, 9]])
    np.testing.assert_array_equal(chunk.totals.costs, [[12, 12], [12, 12]])
    np.testing.assert_array_equal(chunk.totals.rounds, [3, 3])
    np.testing.assert_array_equal(chunk.last["error"], [3, 4])
    summary = Summary.of([chunk], 3, RULES, tables, interrupted=False)
    for by_rule in (summary.rewards, summary.utilities, summary.paid, summary.total_rewards, summary.total_utilities):
        assert tuple(by_rule) == RULES
    np.testing.assert_array_equal(summary.paid["one"].mean, [3, 8, 15])
    np.testing.assert_array_equal(summary.metrics["error"].mean, [9, 1.5, 2.5, 3.5])
    alone = Summary.of([sum_up(RULES, tables, before, [part], 3, 1)], 3, RULES, tables, interrupted=False)
    np.testing.assert_array_equal(alone.paid["one"].mean, [2, 6, 12])
    assert np.isnan(alone.paid["one"].error).all()  # of one repetition
    assert repr(summary) == "Summary(2 repetitions, 3 rounds, 2 agents)"


def test_small_differences_of_large_numbers_are_not_lost() -> None:
    """Rewards around 10⁶ that differ by 1: sums in single precision would lose the standard error."""
    count = 4096
    values = (1e6 + np.arange(count) % 2).astype(np.float32)[:, None]
    part, tables = record(values, values[..., None]), np.zeros((1, 4))
    made = [sum_up(RULES, tables, {"error": values[:, 0]}, [part], 1, count) for _ in range(2)]
    summary = Summary.of(made, 1, RULES, tables, interrupted=False)
    assert summary.rewards["one"].mean[0, 0] == 1e6 + 0.5
    assert summary.rewards["one"].error[0, 0] == pytest.approx(0.5 / np.sqrt(2 * count - 1), rel=1e-12)


def test_what_cannot_be_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="`keep` must be"):
        train(rules=ALONE, keep="everything")
