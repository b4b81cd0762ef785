"""Verified work as a rule of the arena: what is held, what a look takes, and what looks other rules are worth."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from guerdon import gather, round_of
from guerdon.lab.arena.contest import BestAnswer, RuleResult
from guerdon.lab.arena.entrants import ENTRANTS, entrants, knowledge
from guerdon.lab.arena.game import Game
from guerdon.lab.arena.learning import Settled
from guerdon.lab.arena.settings import setting_of
from guerdon.lab.arena.strategies import STRATEGIES
from guerdon.lab.arena.verdicts import rule_words, worth_looks
from guerdon.lab.arena.verified import VerifiedWork
from guerdon.lab.experiments.claims import Mean
from guerdon.terms import Looks
from tests.lab.arena.rounds import COST, facts, reports

NONE = Mean(0.0, 0.0)
TERMS = Looks(period=4, looks=2, margin=0, forfeit="all")


def play(terms: Looks, used: Any, announced: Sequence[float], last: int = -1, seed: int = 0) -> Any:
    """Return what each agent is released in each round; `used` is (rounds, agents)."""
    rule, paid = VerifiedWork(COST, terms), list[Any]()
    state = rule.init(len(announced))
    for number, now in enumerate(np.asarray(used, dtype=np.float64)):
        told = facts(reports(seed + number), announced)._replace(used=now)
        sent = np.ones(len(now), dtype=bool)
        given = round_of(gather(told.reports, sent), sent, 8, is_last=number == last)
        payments, state = rule.informed(told).pay(state, given)
        paid.append(np.asarray(payments.released))
    return np.array(paid)


def test_pay_is_held_until_the_period_ends() -> None:
    """Agents: honest; half, and says so; half, and claims all; claims more than was asked for; none, and claims all."""
    paid = play(TERMS, used=[[8, 4, 4, 8, 0]] * 8, announced=[8, 4, 8, 24, 8])
    assert (paid[[0, 1, 2, 4, 5, 6]] == 0).all()
    assert paid[[3, 7]].tolist() == [[36, 20, 0, 36, 0]] * 2


def test_the_end_of_a_run_settles_at_once() -> None:
    paid = play(TERMS, used=[[8] * 5] * 2, announced=[8] * 5, last=1)
    assert paid.tolist() == [[0] * 5, [18] * 5]


def test_a_margin_is_paid_on_top() -> None:
    paid = play(Looks(period=1, looks=1), used=[[8] * 5], announced=[8] * 5)
    assert paid[0] == pytest.approx([1.05 * 9] * 5)


def test_the_coin_is_not_constant() -> None:
    """An agent that works in two of four rounds passes one look about every other time; the others always pass."""
    used, terms = [[8.0 * (number % 2), 8, 8, 8, 8] for number in range(4)], Looks(period=4, looks=1, margin=0)
    paid = np.array([play(terms, used, [8] * 5, seed=4 * run)[-1] for run in range(200)])
    assert paid[:, 1:] == pytest.approx(36)
    assert abs(paid[:, 0].mean() / 36 - 0.5) < 4 * (0.25 / len(paid)) ** 0.5


@pytest.mark.parametrize("name", ["one-look", "two-looks", "two-looks-plus"])
def test_its_server_needs_announcements_and_an_auditor(name: str) -> None:
    rule = ENTRANTS[name].make(setting_of("still", 4))
    assert "an auditor who computes a few reports again" in knowledge(rule)
    assert "how many samples agents say they used" in knowledge(rule)


def test_in_the_game_nothing_gains_by_a_look() -> None:
    """All strategies of the arena: under flat pay the idle gain the whole cost, under looks nobody gains."""
    game = Game(setting_of("still", 4), entrants(["flat", "one-look", "two-looks-plus"]))
    for name in ("zero", "prediction", "half", "triple", "copy", "declines", "false claim"):
        profit = {rule: float(np.mean(x)) for rule, x in game.play(STRATEGIES[name], 4).profit.items()}
        assert profit["one-look"] < 1e-5, name
        honest = 0.45 if name == "false claim" else 0.45 - 0.1  # it works, and may not claim more than was asked for
        assert profit["two-looks-plus"] <= honest + 1e-5, name
    assert float(np.mean(game.play(STRATEGIES["zero"], 4).profit["flat"])) == pytest.approx(9)


@pytest.mark.parametrize(("gain", "looks"), [(0.0, 1.0), (-3.0, 1.0), (9.0, 0.0), (50.0, 0.0), (2.25, 0.75)])
def test_a_rule_is_worth_the_looks_that_leave_a_cheat_as_much(gain: float, looks: float) -> None:
    settled = Settled("honest", 1.0, Mean(1, 0), Mean(36, 0), NONE, NONE)
    found = RuleResult(ENTRANTS["flat"], [], {}, NONE, NONE, BestAnswer("zero", Mean(gain, 0.09)), settled)
    assert worth_looks(found, 9.0) == pytest.approx((looks, 0.01))
    words = " ".join(rule_words(found, setting_of("still", 4)))
    assert "looks in fifty rounds. A rule is worth so many looks" in words
