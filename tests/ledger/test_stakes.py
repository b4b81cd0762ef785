"""What is enough at stake: against closed forms of the game that a new name plays, and as the command line says it."""

import json
from math import erf, exp, pi, sqrt
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, KnownVariance, OutputAgreement, gather, round_of
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.books.money import MICRO, to_micro
from guerdon.ledger.read.stakes import hit_and_run, take_home
from guerdon.terms import Terms, Vesting
from tests.support.command_line import run as guerdon
from tests.support.ledger_scenes import AT_ONCE, NAMES, on

COST, SPREAD = 17.0, 170.0  # of information pay on the survey, in round numbers
PLAYERS = 20_000


def left_behind(deviation: float, mean: float, deposit: float) -> float:
    """E[(−D − S)⁺] for a normal S: what a name leaves behind that can lose no more than its deposit."""
    z = (deposit + mean) / deviation
    return deviation * (exp(-z * z / 2) / sqrt(2 * pi) - z * (1 - erf(z / sqrt(2))) / 2)


def normal(rounds: int, mean: float = 0.0, players: int = PLAYERS) -> Any:
    rng = np.random.default_rng(rounds)
    return to_micro(rng.normal(mean, SPREAD, size=(players, rounds)))


def takes(terms: Terms, rewards: Any) -> tuple[float, float]:
    """Return what names have after their last round, on average, and its standard error."""
    found = take_home(terms, rewards, int(COST * MICRO))[0][:, -1] / MICRO
    return float(found.mean()), float(found.std() / sqrt(len(found)))


@pytest.mark.parametrize("mean", [0.0, -16.0])
def test_one_round_paid_at_once_is_worth_the_positive_part_of_the_noise(mean: float) -> None:
    """The first column of the table that began this: +54 to +61 a round for a name that leaves after one."""
    found, error = takes(AT_ONCE, normal(1, mean))
    expected = mean + left_behind(SPREAD, mean, 0.0)
    assert abs(found - expected) < 3 * error < 3.0
    assert 54 < expected < 70


@pytest.mark.parametrize(("rounds", "deposit"), [(5, 170), (20, 170), (20, 1000), (20, 3000)])
def test_with_a_deposit_it_takes_what_it_leaves_behind(rounds: int, deposit: int) -> None:
    """E[takes] = E[(−D − S)⁺], where nothing is paid out before it leaves: pay is held for longer."""
    found, error = takes(on("deposit", rounds + 1, deposit), normal(rounds))
    assert abs(found - left_behind(SPREAD * sqrt(rounds), 0.0, deposit)) < 3 * error < 25.0


def test_what_it_takes_is_what_it_leaves_behind_at_any_time() -> None:
    """The martingale: S = takes + held − losses left behind, to the micro-unit, so E[takes] is a difference."""
    rewards, terms = normal(30, players=300), Terms(Vesting(4))
    out, _ = take_home(terms, rewards, int(COST * MICRO))
    with_deposit, _ = take_home(on("deposit", 4, 10**9), rewards, int(COST * MICRO))
    np.testing.assert_array_equal(with_deposit, rewards.cumsum(axis=1))  # a deposit that covers everything
    assert (out >= 0).all()
    assert (np.diff(out, axis=1) <= COST * MICRO * 30).all()


def test_an_upper_limit_is_above_the_truth_and_not_far() -> None:
    worlds = normal(1, players=4000).reshape(20, 200, 1)
    found = hit_and_run(AT_ONCE, worlds, int(COST * MICRO))
    assert 1.0 < found.earns / MICRO / left_behind(SPREAD, 0.0, 0.0) < 1.3


def test_more_at_stake_leaves_less() -> None:
    worlds = normal(60, players=1000).reshape(20, 50, 60)
    cost = int(COST * MICRO)
    by_hold = [hit_and_run(on(hold=rounds), worlds, cost).earns for rounds in (0, 1, 10, 20, 40)]
    by_deposit = [hit_and_run(on("deposit", 1, costs * COST), worlds, cost).earns for costs in (1, 10, 60, 400)]
    assert by_hold == sorted(by_hold, reverse=True)
    assert by_deposit == sorted(by_deposit, reverse=True)
    assert by_hold[0] > 60 * MICRO
    assert by_deposit[-1] < 0.05 * cost
    assert hit_and_run(on("floor"), worlds, cost).earns >= by_hold[0]
    assert hit_and_run(on(hold=60), worlds, cost).earns == 0


def record_pay(ledger: Ledger, rounds: int, **terms: Any) -> None:
    """Record rounds of a rule whose pay is noisy: two dimensions only."""
    ledger.start_run("run", NAMES, OutputAgreement(AffineCost(1, 1), KnownVariance(16.0)), on(**terms))
    rng, sent = np.random.default_rng(1), np.ones(4, dtype=bool)
    for number in range(1, rounds + 1):
        ledger.record_round("run", number, round_of(gather(rng.normal(size=(4, 2)), sent), sent, 8))


def test_the_command_line_says_what_is_enough(ledger: Ledger, where: str) -> None:
    record_pay(ledger, 30)
    shown = guerdon("ledger", "stakes", "run", "--db", where, "--rounds", "20")
    assert shown.code == 0
    assert "What is at stake now is NOT enough at the level of 0.05 of the cost" in " ".join(shown.output.split())
    told = json.loads(guerdon("ledger", "stakes", "--db", where, "--rounds", "20", "--json").stdout)
    assert (told["payments"], told["cost"], told["is_enough"]) == (120, "9.000000", False)
    assert float(told["now"]["earns"]) > 1.0
    for way in ("enough: held pay", "enough: deposit"):
        assert float(told[way]["earns"]) <= 0.05 * 9
    rounds = told["enough: held pay"]["terms"]["hold"]["rounds"]
    assert 1 < rounds <= 20
    assert float(told["default"]["earns"]) <= float(told["now"]["earns"])


def test_a_run_with_enough_at_stake_is_told_so(ledger: Ledger) -> None:
    record_pay(ledger, 30, hold=20)
    found = ledger.stakes("run", rounds=20)
    assert (found.now.earns, found.enough) == (0, True)
    assert found.holding is not None
    assert isinstance(found.holding.terms.hold, Vesting)
    assert found.holding.terms.hold.rounds <= 20


def test_what_cannot_be_judged_is_not(ledger: Ledger, where: str) -> None:
    record_pay(ledger, 3)
    with pytest.raises(RefusedError, match="there are 12 payments to judge by, and it takes 100"):
        ledger.stakes("run")
    with pytest.raises(ValueError, match="`level` must be a finite number above 0"):
        ledger.stakes("run", level=0.0)
    with pytest.raises(RefusedError, match="there is no run 'walk'"):
        ledger.stakes("walk")
    assert guerdon("ledger", "stakes", "--db", where, "--rounds", "0").code != 0
