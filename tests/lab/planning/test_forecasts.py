"""Forecasts: the stand-in found in a pilot, intervals that cover what happens, and every way to ask wrongly."""

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl
import pytest

from guerdon import AffineCost, OutputAgreement
from guerdon.adaptive import NoiseScaleRequest
from guerdon.lab.agents import Cooperative, Declining
from guerdon.lab.planning.forecasts import forecast
from guerdon.lab.planning.pilots import COLUMNS, Fit, Pilot, fit_numbers, fit_pilot, parse_goal, read_pilot
from guerdon.lab.problems import linear_regression, noisy_quadratic
from guerdon.lab.problems.quadratic import Numbers
from guerdon.lab.simulation import History, Stop, simulate
from guerdon.requests import FixedRequest, Requests
from tests.support.means import mean

COST = AffineCost(1, 1)
TRUE = Numbers(signal=400.0, curvature=2.0, base=400.0, slope=101.0, goal=2.0)
TARGET = 0.5


REPETITIONS = 40


@functools.cache
def train(policy: str = "adaptive", seed: int = 0, declining: float = 0.0) -> History:
    """Train the paper's regression up to x ≤ 0.5, where ‖m‖² = 4x = 2."""
    requests: Requests = NoiseScaleRequest(COST) if policy == "adaptive" else FixedRequest(8, 0.15)
    problem, stop = linear_regression(100, 100.0, 64), Stop("error", at_most=TARGET)
    agents = [Declining(declining)] * 10
    return simulate(problem, agents, OutputAgreement(COST), requests, 128, REPETITIONS, seed, stop=stop)


@functools.cache
def realised() -> Any:
    return np.concatenate([train(seed=seed).total_reward() for seed in (5, 6, 7)])


def pilot_of(history: History, folder: Path, repetitions: Any = range(REPETITIONS), target: float = TARGET) -> Pilot:
    frame = history.to_frame()
    frame.filter(frame["repetition"].is_in(list(repetitions))).write_parquet(folder / "pilot.parquet")
    return read_pilot(folder / "pilot.parquet", "error", at_most=target)


def test_the_stand_in_is_what_it_says() -> None:
    problem = noisy_quadratic(TRUE, dim=50)
    model = problem.init(jax.random.key(0))
    m = np.asarray(problem.population_gradient(model))
    assert float(m @ m) == pytest.approx(400, rel=1e-5)
    assert float(problem.variance(model)) == pytest.approx(400 + 101 * 400, rel=1e-5)
    assert float(problem.metrics(model)["left"]) == pytest.approx(np.log(200), rel=1e-5)
    np.testing.assert_array_equal(m[50:], 0)


@pytest.mark.slow
def test_every_repetition_may_have_its_own_numbers() -> None:
    problem = noisy_quadratic(Numbers(np.array([1.0, 100.0]), 2.0, 1.0, 0.0, 0.5), dim=10)
    stop, agents = Stop("left", at_most=0.0), [Cooperative()] * 4
    history = simulate(problem, agents, OutputAgreement(COST), NoiseScaleRequest(COST), 100, 60, stop=stop)
    assert {round(float(x)) for x in np.exp(history.metrics["left"][:, 0]) * 0.5} == {1, 100}


@pytest.mark.parametrize("change", [{"signal": 0.0}, {"goal": -1.0}, {"slope": -1.0}, {"base": float("nan")}])
def test_impossible_numbers_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"`{next(iter(change))}` must be a finite number"):
        noisy_quadratic(TRUE._replace(**change))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["adaptive", "fixed"])
def test_a_pilot_of_many_repetitions_shows_the_truth(policy: str, tmp_path: Path) -> None:
    fit = fit_pilot(pilot_of(train(policy), tmp_path))
    for name, found, true in zip(Numbers._fields, fit.numbers, TRUE, strict=True):
        # A step at which little depends on the curvature says little about it.
        assert np.median(found) == pytest.approx(true, rel=0.4 if name == "curvature" else 0.25), name
    assert fit.dim in (64, 128)


@pytest.mark.slow
def test_what_a_pilot_leaves_open_is_in_the_draws(tmp_path: Path) -> None:
    """A single repetition says less than twenty: its bootstrap is wider."""
    few, many = (fit_pilot(pilot_of(train(), tmp_path, range(count))) for count in (1, 20))
    for one, other in ((few.numbers.signal, many.numbers.signal), (few.numbers.goal, many.numbers.goal)):
        assert np.std(np.log(one)) > 2 * np.std(np.log(other))


@pytest.mark.slow
def test_a_pilot_with_absent_agents_is_read(tmp_path: Path) -> None:
    pilot = pilot_of(train(declining=0.3), tmp_path)
    assert pilot.crowd.min() >= 2
    assert pilot.crowd.mean() == pytest.approx(7, abs=0.5)
    assert np.median(fit_pilot(pilot, bootstraps=8).numbers.signal) == pytest.approx(400, rel=0.3)


@pytest.mark.slow
def test_only_the_rounds_up_to_the_target_are_used(tmp_path: Path) -> None:
    nearer = pilot_of(train(), tmp_path, target=10.0)
    assert nearer.start.sum() == nearer.reached.sum() == REPETITIONS
    assert len(nearer.start) < train().rounds_played.sum()
    assert np.median(fit_pilot(nearer, bootstraps=8).numbers.goal) == pytest.approx(40, rel=0.4)


def coverage(pilots: int, sizes: tuple[int, ...], folder: Path) -> Any:
    """Return, for each pilot of one repetition, the share of realised totals inside the interval."""
    shares: list[float] = []
    for seed in range(pilots):
        history = train(seed=seed // REPETITIONS)
        fit = fit_pilot(pilot_of(history, folder, [seed % REPETITIONS]), seed)
        plan = forecast(COST, 10, fit._replace(dim=64), sizes=sizes, repetitions=100)
        low, high = plan.forecasts[0].total[1:]
        shares.append(float(np.mean((realised() >= low) & (realised() <= high))))
    return shares


@pytest.mark.slow
def test_the_interval_covers_what_happens(tmp_path: Path) -> None:
    covered = mean(coverage(100, (), tmp_path))
    assert covered.value > 0.85
    assert covered.error < 0.02


@pytest.mark.slow
def test_a_forecast_from_the_truth_agrees_with_what_happens() -> None:
    plan = forecast(COST, 10, Fit(TRUE, 64), sizes=(4, 16), repetitions=100)
    assert [o.policy for o in plan.forecasts] == ["adaptive", "ν = 4", "ν = 16"]
    assert [o.request for o in plan.forecasts] == [None, 4, 16]
    assert plan.recommended == "adaptive"
    assert plan.forecasts[0].total[0] == pytest.approx(realised().mean(), rel=0.06)
    for found in plan.forecasts:
        for middle, low, high in (found.rounds, found.total):
            assert low < middle < high
        assert found.reached == 1.0
    assert plan.forecasts[1].rounds[0] > plan.forecasts[2].rounds[0]


@pytest.mark.slow
def test_a_fixed_request_is_recommended_where_it_is_cheaper() -> None:
    """Where asking costs nothing to begin with, one sample at a time is best, and the rule's search is not free."""
    plan = forecast(AffineCost(0, 1), 10, fit_numbers(1000.0, 1.0, 0.9, 64), sizes=(1, 32), repetitions=100)
    cheapest = min(plan.forecasts, key=lambda o: o.total[0])
    assert plan.recommended in ("adaptive", cheapest.policy)
    assert {o.policy: o.total[0] for o in plan.forecasts}[plan.recommended] <= 1.02 * cheapest.total[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1.0, 0.5), "`variance` must be a finite number above 0, got 0.0"),
        ((1.0, -1.0, 0.5), "`signal` must be a finite number above 0, got -1.0"),
        ((1.0, 1.0, float("nan")), "`target` must be a finite number above 0, got nan"),
        ((1.0, 1.0, 1.0), r"`target` must be below `signal` \(1\)"),
        ((1.0, 1.0, 0.5, 0), "`dim` must be a positive integer, got 0"),
    ],
)
def test_bad_numbers_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_numbers(*arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_agents": 1}, "`num_agents` must be at least 2 and `repetitions` 20, got 1 and 200"),
        ({"repetitions": 5}, "`repetitions` 20, got 10 and 5"),
        ({"cost": AffineCost(1, 1), "max_batch": 0}, "`max_batch` must be a positive integer, got 0"),
    ],
)
def test_a_bad_forecast_is_refused(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"cost": COST, "num_agents": 10, "fit": Fit(TRUE, 64)}
    with pytest.raises(ValueError, match=message):
        forecast(**(arguments | change))


def a_frame(rounds: int = 10, **change: Any) -> pl.DataFrame:
    """Return what `guerdon simulate --save` writes: two agents, errors that fall to 1."""
    columns: dict[str, Any] = {name: np.ones(2 * rounds) for name in COLUMNS}
    columns |= {"round": np.repeat(np.arange(rounds), 2), "agent": np.tile([0, 1], rounds), "rule": ["r"] * 2 * rounds}
    columns |= {"sent": np.ones(2 * rounds, bool), "error": np.repeat(np.linspace(5, 1, rounds), 2)}
    return pl.DataFrame(columns | change)


@pytest.mark.parametrize(
    ("frame", "goal", "message"),
    [
        (a_frame(), {"at_most": 0.5}, r"the pilot must have reached its target, .* got 10, error from 5 to 1"),
        (a_frame(5), {"at_most": 1.0}, "in at least 8 rounds, got 5"),
        (a_frame(sent=np.zeros(20, bool)), {"at_most": 1.0}, "at least two agents took part, got none"),
        (a_frame().drop("signal"), {"at_most": 1.0}, "must have a column 'signal', got one with error"),
        (a_frame().drop("error"), {"at_most": 1.0}, "must have a column 'error', got one with no metric"),
        (a_frame(), {}, "either as at most or as at least"),
        (a_frame(), {"at_most": 1.0, "at_least": 0.0}, "either as at most or as at least"),
    ],
)
def test_a_bad_pilot_is_refused(frame: pl.DataFrame, goal: Any, message: str, tmp_path: Path) -> None:
    frame.write_parquet(tmp_path / "pilot.parquet")
    with pytest.raises(ValueError, match=message):
        read_pilot(tmp_path / "pilot.parquet", "error", **goal)


def test_a_pilot_must_be_a_parquet_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"is not a file; `guerdon simulate CONFIG.toml --save gone.parquet`"):
        read_pilot(tmp_path / "gone.parquet", "error", at_most=1.0)
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read_pilot(tmp_path / "bad.parquet", "error", at_most=1.0)


@pytest.mark.parametrize(
    ("pilot", "target", "numbers", "message"),
    [
        (None, "", (400.0, 4.0), "needs a pilot and `--target`, or all of"),
        (None, "0.2", (400.0, None), "needs a pilot and `--target`, or all of"),
        (None, "error <= 1", (400.0, 4.0), "`--target` must be a number without a pilot, got 'error <= 1'"),
        (Path("p"), "error <= 1", (400.0, None), "must be left out with a pilot"),
        (Path("p"), "error", (None, None), "must be a metric and a value, like"),
        (Path("p"), "error = 1", (None, None), "must be a metric and a value, like"),
        (Path("p"), "error <= low", (None, None), "must compare with a number, got 'low'"),
    ],
)
def test_a_bad_goal_is_refused(pilot: Path | None, target: str, numbers: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_goal(pilot, target, *numbers)


def test_a_goal_is_understood() -> None:
    assert parse_goal(None, "0.2", 400.0, 4.0) == fit_numbers(400.0, 4.0, 0.2)


@pytest.mark.slow  # as others that look at this training
def test_a_goal_beside_a_pilot_is_understood(tmp_path: Path) -> None:
    train().save(tmp_path / "p.parquet")
    fit = parse_goal(tmp_path / "p.parquet", " error<=0.5 ", None, None)
    assert 30 <= len(fit.numbers.signal) <= 41
