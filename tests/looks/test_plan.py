"""The closed form is what the draw does, and its condition is what the best cheat of all respects."""

import itertools
import random
from functools import cache
from typing import Any

import numpy as np
import pytest

from guerdon.costs import AffineCost, ExpressionCost
from guerdon.looks.draw import BITS, begin, kept
from guerdon.looks.outcomes import Outcome, settled
from guerdon.looks.plan import choose, failure_bound, least_margin, passes, plan, trade
from guerdon.terms import Looks
from tests.support.means import mean

SURE = 4.0  # standard errors
COST = AffineCost(1, 1)
PASSED, FAILED = Outcome.PASSED, Outcome.FAILED


def behaviour(name: str, forfeit: str, epsilon: float = 0.0, delta: float = 0.0, **terms: Any) -> Any:
    found = plan(COST, 16, 200, Looks(**terms), epsilon=epsilon, delta=delta).behaviours
    return next(one for one in found if (one.name, one.forfeit) == (name, forfeit))


def period(terms: Looks, cheated: int, epsilon: float, delta: float, chance: random.Random) -> tuple[int, bool]:
    """Return what a period releases of rounds of weight 100, and whether a look failed; cheats come last."""
    state = begin(terms.looks)
    for round in range(1, terms.period + 1):
        state = kept(state, 100, round, [chance.getrandbits(BITS) for _ in range(terms.looks)])
    outcomes = dict[int, Outcome]()
    for due in state.due:
        is_found = chance.random() >= delta if due > terms.period - cheated else chance.random() < epsilon
        outcomes[due] = FAILED if is_found else PASSED
    settlement = settled(terms, state, outcomes)
    return settlement.released, any(settlement.failed)


# Every number of looks, every case, and both errors with one look, two and three.
@pytest.mark.parametrize(
    ("looks", "cheated", "epsilon", "delta"),
    [(1, 3, 0.1, 0.3), (2, 0, 0.1, 0.3), (2, 3, 0.1, 0.3), (2, 12, 0.0, 0.5), (3, 3, 0.1, 0.3), (3, 5, 0.2, 0.0)],
)
def test_the_closed_form_is_what_the_draw_does(looks: int, cheated: int, epsilon: float, delta: float) -> None:
    """With a short period, so that two looks often have the same round."""
    chance = random.Random(looks)
    for forfeit in ("share", "all"):
        terms = Looks(period=12, looks=looks, forfeit=forfeit)
        results = [period(terms, cheated, epsilon, delta, chance) for _ in range(4000)]
        together = passes(12, cheated, looks, epsilon, delta)
        alone = passes(12, cheated, 1, epsilon, delta)
        expected = 1200 * (alone if forfeit == "share" else together)
        found = mean([released for released, _ in results])
        assert abs(found.value - expected) < SURE * found.error
        assert found.error < 12, "a hundredth of what is held"
        assert abs(mean([failed for _, failed in results]).z(1 - together)) < SURE


def test_the_plan_adds_up_periods_and_prices() -> None:
    """A run of 200 rounds is four periods of 50; one of 120 ends with a short one."""
    chance = random.Random(9)
    terms = Looks(margin=0.05, forfeit="all")
    results = [[period(terms, 5, 0.01, 0.1, chance)[0] for _ in range(4)] for _ in range(600)]
    one = behaviour("the last five of a period", "all", 0.01, 0.1)
    assert abs(mean(np.sum(results, axis=1) * 17.85 / 100).z(one.released)) < SURE
    assert one.cheated == 20
    assert one.spent == 180 * 17
    assert one.profit == one.released - one.spent
    short = plan(COST, 16, 120)
    assert (short.looks, short.held, short.margins) == (6, pytest.approx(892.5), pytest.approx(102))
    assert short.rows_at_most == 96
    assert short.rows_shown == pytest.approx(
        16 * 2 * (2 - 1 / 50) - 16 * (2 - 1 / 50) + 16 * (2 - 1 / 50) + 16 * (2 - 1 / 20)
    )
    never = next(one for one in short.behaviours if one.name == "never works")
    assert (never.released, never.spent, never.failed) == (0, 0, 1)
    assert plan(COST, 16, 7).held == pytest.approx(7 * 17.85)


def test_each_number_against_the_theorem() -> None:
    """Without errors: cheating in a round is worth declining it where looks forfeit their share."""
    for name in ("never works", "every second round", "every tenth round", "one round a period"):
        one = behaviour(name, "share")
        assert one.against_honest == pytest.approx(-0.85 * one.cheated)
        assert behaviour(name, "share", margin=0.0).profit == pytest.approx(0, abs=1e-9)
    assert behaviour("one sample less, always", "share").profit == pytest.approx(-200 * 16)
    assert behaviour("one round a period", "all").against_honest == pytest.approx(-4 * (892.5 * (1 - 0.98**2) - 17))
    assert behaviour("never works", "all").profit == 0
    assert behaviour("honest", "all", margin=0.0).profit == 0
    assert behaviour("honest", "share").failed == 0


def test_by_epsilon_honest_work_loses_more_where_all_is_forfeited() -> None:
    for epsilon in (1e-4, 1e-3, 1e-2):
        lost = {
            forfeit: behaviour("honest", forfeit).profit - behaviour("honest", forfeit, epsilon).profit
            for forfeit in ("share", "all")
        }
        assert lost["share"] == pytest.approx(epsilon * 200 * 17.85)
        assert lost["all"] == pytest.approx(lost["share"] * (2 - 1 / 50), rel=2 * epsilon), (
            "two looks, rarely at one round"
        )


# The condition, against the best of all adaptive strategies: work, cheat or leave, seeing all candidates.


def best(rounds: int, looks: int, margin: float, epsilon: float, delta: float, *, honest: bool) -> float:
    """Return the expected profit, in costs of a round, of the best member, or of one that works in all rounds."""

    def passing(candidates: tuple[tuple[int, bool], ...]) -> float:
        verdicts = dict(candidates).values()
        return float(np.prod([delta if bad else 1 - epsilon for bad in verdicts]))

    @cache
    def value(played: int, candidates: tuple[tuple[int, bool], ...]) -> float:
        stop = played * (1 + margin) * passing(candidates)
        if played == rounds:
            return stop
        works, cheats = (after(played, candidates, bad=bad) for bad in (False, True))
        return works - 1 if honest else max(stop, works - 1, cheats)

    def after(played: int, candidates: tuple[tuple[int, bool], ...], *, bad: bool) -> float:
        share, total = 1 / (played + 1), 0.0
        for replaced in itertools.product((True, False), repeat=looks):
            new = [
                (-1, bad) if here else candidates[place] if candidates else (-2, bad)
                for place, here in enumerate(replaced)
            ]
            names = {name: place for place, name in enumerate(dict(new))}
            likely = float(np.prod([share if here else 1 - share for here in replaced]))
            total += likely * value(played + 1, tuple((names[name], bad) for name, bad in new)) if likely else 0.0
        return total

    return value(0, ())


GRID = [*itertools.product((0.0, 0.02, 0.05, 0.2), (0.0, 0.01, 0.03), (0.0, 0.02, 0.1, 0.2))]


@pytest.mark.parametrize(("rounds", "looks"), [(1, 2), (8, 1), (8, 2), (3, 3)])
def test_with_the_least_margin_no_cheat_beats_honest_work(rounds: int, looks: int) -> None:
    kept_by = 0
    for margin, epsilon, delta in GRID:
        if margin < least_margin("all", looks, epsilon, delta):
            continue
        kept_by += 1
        honest = best(rounds, looks, margin, epsilon, delta, honest=True)
        assert best(rounds, looks, margin, epsilon, delta, honest=False) <= honest + 1e-9
    assert kept_by > 8


def test_below_the_least_margin_somebody_does_better_than_honest_work() -> None:
    for epsilon, delta in ((0.0, 0.1), (0.01, 0.02), (0.03, 0.0)):
        least = least_margin("all", 1, epsilon, delta)
        below, above = least - 0.01, least + 0.01
        assert best(8, 1, below, epsilon, delta, honest=False) > best(8, 1, below, epsilon, delta, honest=True) + 1e-3
        assert best(8, 1, above, epsilon, delta, honest=False) <= best(8, 1, above, epsilon, delta, honest=True) + 1e-9


def test_the_condition_for_two_looks_alone_is_not_enough() -> None:
    """After one round both looks have the same candidate: who cheats and leaves needs the luck of one."""
    margin, delta = 0.05, 0.2
    assert (1 + margin) * (1 - delta**2) > 1, "the condition at M looks"
    assert best(8, 2, margin, 0.0, delta, honest=False) > best(8, 2, margin, 0.0, delta, honest=True) + 0.05
    assert margin < least_margin("all", 2, 0.0, delta) == least_margin("share", 2, 0.0, delta)


def test_all_never_needs_a_smaller_margin_than_share() -> None:
    for looks, (_, epsilon, delta) in itertools.product((1, 2, 3), GRID):
        assert least_margin("all", looks, epsilon, delta) >= least_margin("share", looks, epsilon, delta)
    assert least_margin("share", 2, 0.5, 0.5) == float("inf")


# Choices.


@pytest.mark.parametrize(
    ("failed", "looked", "bound"),
    [(0, 10_000, 2.995e-4), (0, 1, 0.95), (1, 100, 0.04656), (3, 3, 1.0), (10, 1000, 0.01690)],
)
def test_the_bound_of_clopper_and_pearson(failed: int, looked: int, bound: float) -> None:
    """One-sided, 95 %: from tables of the binomial distribution."""
    assert failure_bound(failed, looked) == pytest.approx(bound, rel=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "delta", "forfeit", "margin"),
    [
        (0.0, 0.0, "all", 0.05),
        (1e-4, 0.0, "all", 0.05),
        (6e-4, 0.0, "all", 0.05),
        (7e-4, 0.0, "share", 0.05),
        (1e-3, 0.0, "share", 0.05),
        (1e-2, 0.0, "share", 0.05),
        (3e-2, 0.0, "share", 0.064),
        (0.0, 0.1, "all", 0.25),
    ],
)
def test_choices_are_kind_to_the_honest_first(epsilon: float, delta: float, forfeit: str, margin: float) -> None:
    chosen = choose(epsilon, delta=delta)
    assert (chosen.terms.forfeit, chosen.terms.margin) == (forfeit, margin)
    assert chosen.terms.margin >= least_margin(chosen.terms.forfeit, 2, epsilon, delta)
    one = behaviour("honest", forfeit, epsilon, margin=margin)
    assert one.profit >= 0.5 * margin * 200 * 17 - 1e-9
    assert any("repeat better" in why for why in chosen.reasons) == (epsilon > 8e-3)


def test_more_members_and_rounds_make_it_kinder() -> None:
    assert choose(1e-4, members=100).terms.forfeit == "share"
    assert choose(1e-4, rounds=2000).terms.forfeit == "share"
    assert choose(1e-3, members=2).terms.forfeit == "all"


def test_the_trade_is_margin_against_rows() -> None:
    plans = trade(COST, 16, 200)
    assert len(plans) == 27
    by = {(one.terms.margin, one.terms.looks, one.terms.period): one for one in plans}
    assert by[0.05, 2, 25].rows_at_most == 2 * by[0.05, 2, 50].rows_at_most == 256
    assert by[0.05, 2, 100].held == 2 * by[0.05, 2, 50].held
    assert by[0.1, 2, 50].margins == pytest.approx(2 * by[0.05, 2, 50].margins)
    assert by[0.05, 4, 50].rows_shown > 1.9 * by[0.05, 2, 50].rows_shown


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: plan(COST, 0, 10), "`request` must be a positive integer, got 0"),
        (lambda: plan(COST, 16, 0), "`rounds` must be a positive integer, got 0"),
        (lambda: plan(COST, 16, 10, epsilon=1.0), r"`epsilon` must be a chance below 1, got 1\.0"),
        (lambda: least_margin("all", 2, 0.0, -0.1), r"`delta` must be a finite number of at least 0, got -0\.1"),
        (lambda: failure_bound(3, 2), "`failed` must be from 0 to the number of looks, got 3 of 2"),
        (lambda: failure_bound(0, 2, confidence=1), "`confidence` must be below 1, got 1"),
        (lambda: choose(0.3, delta=0.3), r"`epsilon` and `delta` must leave looks some meaning, got 0\.3 and 0\.3"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        call()


def test_any_cost_will_do() -> None:
    found = plan(ExpressionCost("2 + 0.5 * s ** 2"), 4, 50)
    assert (found.cost, found.pay) == (10, pytest.approx(10.5))
    one_less = next(one for one in found.behaviours if one.name == "one sample less, always")
    assert one_less.spent == 50 * 6.5
    assert plan(COST, 1, 50).behaviours[-1].spent == 0
