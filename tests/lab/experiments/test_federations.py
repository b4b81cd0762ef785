"""The experiment on agents that differ: who is who, and claims that can fail."""

from typing import Any

import numpy as np
import pytest

from guerdon.lab.experiments import federations as experiment
from guerdon.lab.experiments.federations import BEHAVIOURS, FEDAVG, Outcome
from guerdon.lab.experiments.paper import AGENTS
from guerdon.lab.problems.heart import load_survey, prepare
from tests.support.print import check_print


def outcome(name: str, behaviour: str, profit: float, others: float = 0.0) -> Outcome:
    noise = np.random.default_rng(0).normal(size=(20, AGENTS)) * 0.01
    profits = noise + np.where(np.arange(AGENTS) == 0, profit, others)
    return Outcome(name, behaviour, dict.fromkeys(("calibrated", "balanced", "information"), profits), np.full(20, 0.7))


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (outcome("by age", "honest", 1.0), [True]),
        (outcome("by age", "honest", 0.0, others=3.0), [False]),
        (outcome("by age", "half the work", -1.0), [True]),
        (outcome("by age", "half the work", 1.0), [False]),
        (outcome("by age", "zeros", -1.0), [True]),
        (outcome("by age", "zeros", 0.0), [False]),
        (outcome("by age", "half, from the first day", 5.0), []),  # which nothing can tell
        (outcome(FEDAVG, "half the work", 5.0), [True, False]),
    ],
)
def test_claims_hold_where_they_should(found: Outcome, holds: list[bool]) -> None:
    assert [claim.holds for claim in experiment._claims([found])] == holds


@pytest.mark.slow
def test_pilots_see_where_balanced_agreement_fails() -> None:
    """Two of the six federations of `guerdon reproduce federations`."""
    problems = experiment.federations(prepare(load_survey()))
    for name in ("alike", FEDAVG):
        claims = experiment.pilot_claims(name, experiment.try_rules(problems[name], seed=1))
        assert [claim.holds for claim in claims] == [True] * (3 if name == FEDAVG else 2)
    swapped = experiment.pilot_claims(FEDAVG, experiment.try_rules(problems["alike"], seed=1))
    assert [claim.holds for claim in swapped] == [True, True, False]  # with one step it pays for work


def test_accuracy_may_be_lower_by_a_third_of_a_point() -> None:
    found = outcome("by age", "honest", 0.0)
    for unpaid, holds in ((0.7029, True), (0.7031, False)):
        assert experiment._same_accuracy(found, np.full(20, unpaid)).holds == holds


def test_the_figure_is_fit_for_print() -> None:
    check_print(experiment._draw([outcome(name, did, 1.0) for name in ("by age", FEDAVG) for did in BEHAVIOURS]))


def test_agents_by_age_have_neighbouring_ages() -> None:
    data = prepare(load_survey())
    found = experiment.ages(data)
    divided: Any = experiment.federations(data)["by age"]
    means = [found[np.asarray(rows)].mean() for rows in divided.rows]
    assert means == sorted(means)
    assert means[-1] - means[0] > 5  # categories of five years
    assert divided.num_agents == AGENTS


def test_an_agent_turns_after_the_calibration() -> None:
    view: Any = type("View", (), {"round": 99, "request": 16})
    assert int(BEHAVIOURS["half the work"].agent.choose(view, None)) == 16
    view.round = 100
    assert int(BEHAVIOURS["half the work"].agent.choose(view, None)) == 8
    assert BEHAVIOURS["zeros"].agent.fabricates
    assert not BEHAVIOURS["honest"].agent.fabricates


@pytest.mark.slow
def test_calibrated_agreement_pays_different_agents_and_output_agreement_does_not() -> None:
    problem = experiment.federations(prepare(load_survey()))["by age"]
    honest = experiment.play("by age", problem, "honest", 4, seed=0)
    spread = {rule: np.ptp(profits.mean(axis=0)) for rule, profits in honest.profits.items()}
    assert spread["calibrated"] < 0.7 * spread["balanced"]  # at four repetitions
    assert len(experiment._table([honest])) == 3
