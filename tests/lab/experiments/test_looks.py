"""The experiment on verified work: the theorem holds in its plays, and its claims can fail."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from guerdon.lab.experiments import looks as experiment
from guerdon.lab.experiments import looks_extras, looks_honest, looks_strategies
from guerdon.lab.experiments.claims import Mean, mean_over_repetitions
from guerdon.lab.experiments.looks import STRICT, TERMS, Found, Tried
from guerdon.lab.experiments.looks_attacks import ATTACKS, FAIR, RULES, WORKED, Earned, released
from guerdon.lab.experiments.looks_extras import BEHAVIOURS, Settled
from guerdon.lab.experiments.looks_figure import draw
from guerdon.lab.experiments.looks_honest import FEDAVG, PAY, HonestCell, Members
from guerdon.lab.experiments.looks_strategies import REQUEST, STRATEGIES, play
from guerdon.lab.experiments.reproduce import reproduce
from guerdon.lab.held import kept
from guerdon.lab.problems import logistic_regression
from guerdon.looks.outcomes import Outcome
from guerdon.terms import Looks
from tests.lab.problems.data import labelled
from tests.support.means import mean
from tests.support.print import check_print

SURE = 4.0  # standard errors: one of some 40 means that are 0 is beyond 4 in one of 400 seeds
NONE = Mean(0.0, 0.0)


# Strategies.


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_is_paid_for_what_it_worked_and_for_nothing_else(name: str) -> None:
    for terms in (Looks(looks=1), Looks(looks=2)):
        played = play(STRATEGIES[name], terms, rounds=60, runs=2000, seed=3)
        beyond = played.profit - played.expected
        if np.ptp(beyond) < 1e-9:
            assert beyond == pytest.approx(0, abs=1e-6)
        else:
            assert abs(mean(beyond).z(0)) < SURE


@pytest.mark.parametrize("name", STRATEGIES)
def test_two_looks_at_all_of_it_make_a_cheat_lose(name: str) -> None:
    """Without a margin, all but those that are never paid for work that they did not do, and who never works."""
    played = play(STRATEGIES[name], Looks(margin=0, forfeit="all"), rounds=60, runs=2000, seed=4)
    gain = played.profit - played.honest
    if name in ("never works", "half, says so", "stays away"):
        assert gain == pytest.approx(0, abs=1e-6)
    else:
        assert gain.max() < 0 if np.ptp(gain) < 1e-9 else mean(gain).z(0) < -SURE


@pytest.mark.parametrize("name", ["late", "every other round", "weighs its rounds"])
def test_a_draw_that_looks_too_seldom_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The power of the tests above: with half the chance, cheats earn what they did not work for."""
    monkeypatch.setattr(looks_strategies, "kept", lambda a, b, c, d, coins: kept(a, b, c, d, 2 * coins))
    played = play(STRATEGIES[name], Looks(looks=1), rounds=60, runs=2000, seed=3)
    assert mean(played.profit - played.expected).z(0) > SURE


def test_honest_work_earns_the_margin_and_nothing_is_left_to_chance() -> None:
    honest = STRATEGIES["never works"]._replace(works=1.0)
    played = play(honest, Looks(), rounds=120, runs=50, seed=0)
    assert played.profit == pytest.approx(0.05 * 17 * 120)
    assert played.profit == pytest.approx(played.honest)


# Real agents.


def test_pay_is_released_for_what_was_worked() -> None:
    worked = np.zeros((3, 100, 2), dtype=bool)
    assert released(~worked, Looks(), runs=30, seed=0) == pytest.approx(1.05 * FAIR)
    assert (released(worked, Looks(), runs=30, seed=0) == 0).all()
    worked[:, ::2] = True
    for terms in (Looks(looks=1, margin=0), Looks(margin=0)):
        assert abs(mean(released(worked, terms, runs=2000, seed=0)).z(FAIR / 2)) < SURE
    assert mean(released(worked, Looks(margin=0, forfeit="all"), 2000, 0)).z(FAIR / 4) < SURE


# Agreement beside looks.


@pytest.fixture(scope="module")
def alike() -> Any:
    features, labels = labelled(400)
    return logistic_regression(features, labels, features, labels, max_batch=REQUEST)


def test_extras_are_settled_among_those_that_passed(alike: Any) -> None:
    """What is forged pays 31 at once, and nothing under looks; others are paid as if it had not been sent."""
    played = {name: looks_extras.play(alike, name, TERMS[STRICT], runs=60, seed=0) for name in BEHAVIOURS}
    margin = 0.05 * FAIR
    assert abs(played["honest"].attacker.value - margin) < SURE * played["honest"].attacker.error
    never = played["the last mean"]
    assert never.at_once.value > 20
    assert never.attacker.value <= 0
    assert never.honest == pytest.approx((margin, 0), abs=1e-3)  # extras of the five that work add up to nothing
    for name in ("the last mean, in turn", "half the samples", "a copy"):
        gain = played[name].attacker
        assert gain.value - margin < -3 * gain.error, name


# Honest members.


@pytest.fixture(scope="module")
def members(alike: Any) -> Members:
    return Members("made up", alike, {2: [np.arange(200), np.arange(200, 400)]})


@pytest.mark.parametrize("name", ["made up", FEDAVG])
def test_honest_members_are_paid_exactly_what_was_stated(members: Members, name: str) -> None:
    short, long = looks_honest.play(members._replace(name=name), 2, lengths=(3, 60))
    assert (short.looks, short.failed, short.exact) == (len(due(name, 3)) * 2, 0, True)
    assert (long.failed, long.exact) == (0, True)
    assert short.error <= long.error < long.tolerance < 1e-4


def test_the_error_of_a_report_is_relative_to_its_length(members: Members) -> None:
    rows = jnp.asarray(looks_honest._named(members, 2, 4))
    models, reports = looks_honest._train(members.problem, rows, 1)
    wrong = reports.at[2, 1].multiply(1.001)
    errors = np.asarray(looks_honest._errors(members.problem, models, rows, wrong, 1))
    assert errors.argmax() == 2 * 2 + 1
    assert 1e-4 < errors.max() < 1.1e-3  # a report may be shorter than what its rows say one by one
    assert np.sort(errors.ravel())[-2] < 1e-6


def due(name: str, rounds: int) -> tuple[int, ...]:
    (state,) = looks_honest._periods(name, rounds)
    assert state.weight == rounds * PAY
    return state.due


def test_rows_are_named_once_before_any_again(members: Members) -> None:
    rows = looks_honest._named(members, 2, 25)
    assert rows.shape == (25, 2, REQUEST)
    for member, own in enumerate(members.rows[2]):
        assert len(set(rows[:12, member].ravel())) == 12 * REQUEST
        assert set(rows[:, member].ravel()) == set(own)


@pytest.mark.parametrize("name", ["made up", FEDAVG])
def test_a_report_with_one_other_row_fails(members: Members, name: str) -> None:
    federation, rows = members._replace(name=name), np.arange(REQUEST)
    other = np.append(rows[:-1], 399)
    model, shown = np.zeros(4, np.float32), looks_honest._opened(members.problem, rows)
    for used, outcome in ((rows, Outcome.PASSED), (other, Outcome.FAILED)):
        sent = looks_honest._report(
            members.problem, jnp.asarray(model), jnp.asarray(used), steps=federation.steps, alone=False
        )
        assert looks_honest._judge(federation, model, shown, np.asarray(sent))[0] is outcome


# Claims, and the figure.


def found(**changed: Any) -> Found:
    """Return what a perfect run finds, but for what is changed."""
    tried = [
        Tried(name, terms, NONE, NONE if "no margin" in terms else Mean(-1.0, 0.1), NONE)
        for terms in TERMS for name in STRATEGIES
    ]  # fmt: skip
    earned = [
        Earned("survey", name, rule, NONE, Mean(17.0, 0.1) if rule in RULES else Mean(-1.0, 0.1))
        for rule in [*(rule for rule in RULES if rule != WORKED), *TERMS] for name in ATTACKS
    ]  # fmt: skip
    settled = dict.fromkeys(BEHAVIOURS, Settled(NONE, Mean(30, 0.1), Mean(0.85, 0.01)))
    settled["honest"] = Settled(Mean(0.85, 0.1), NONE, NONE)
    cells = [HonestCell("survey", 3, rounds, 6, 0, True, 1e-6, 1e-7) for rounds in (3, 200)]
    perfect = Found(tried, earned, settled, cells)
    return perfect._replace(**{name: [*getattr(perfect, name), value] for name, value in changed.items()})


def failing(found: Found) -> list[str]:
    return [claim.claim for claim in experiment.claims(found) if not claim.holds]


def test_all_claims_hold_where_all_is_well() -> None:
    assert failing(found()) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tried": Tried("late", STRICT, NONE, Mean(-0.2, 0.1), NONE)}, ["strategy, late"]),
        ({"tried": Tried("late", "one look, no margin", NONE, Mean(0.4, 0.1), NONE)}, ["one look, no margin: none of"]),
        (
            {"tried": Tried("late", "two looks, share", NONE, Mean(-1, 0.1), Mean(-0.5, 0.1))},
            ["is paid what it worked"],
        ),
        ({"earned": Earned("survey", "zeros", STRICT, NONE, Mean(0.1, 0.1))}, ["survey: each of 16 attacks"]),
        ({"cells": HonestCell("survey", 4, 3, 6, 0, False, 1e-6, 1e-7)}, ["is paid exactly the stated pay"]),
        ({"cells": HonestCell("survey", 4, 3, 6, 1, True, 1e-6, 1e-7)}, ["is paid exactly the stated pay"]),
        ({"cells": HonestCell("survey", 4, 3, 6, 0, True, 1e-6, 2e-6)}, ["largest error of"]),
    ],
)
def test_claims_fail_where_they_should(changed: dict[str, Any], words: list[str]) -> None:
    failed = failing(found(**changed))
    assert len(failed) == len(words)
    assert all(part in claim for part, claim in zip(words, failed, strict=True))


def test_rounding_alone_is_no_gain() -> None:
    equal = mean_over_repetitions(np.full(2000, 0.1 + 0.2) - 0.3)
    assert experiment._beyond(equal) == 0
    assert experiment._beyond(Mean(-0.85, 1e-17)) == -np.inf


def test_notes_say_what_other_rules_are_worth() -> None:
    told = experiment.notes(found(), None)
    assert any("flat on the survey 0.00 (use half gains +17.0 of 17)" in note for note in told)
    assert "GUERDON_HOSPITALS" in told[-1]


def test_the_figure_is_fit_for_print() -> None:
    one = found()
    check_print(draw(one.tried, one.earned, FAIR))


@pytest.mark.slow
def test_a_tenth_of_the_experiment(tmp_path: Path) -> None:
    (small,) = reproduce(["looks"], 25, tmp_path)
    check_print(small.drawing)
    assert set(small.data["part"]) == {"strategy", "attack", "agreement beside looks", "honest"}
    assert [claim.claim for claim in small.claims if not claim.holds] == []
