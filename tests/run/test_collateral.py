"""A seat for somebody who is not known: it is asked only while its deposit covers what it can lose in a round."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, OutputAgreement, Server
from guerdon.ledger import Ledger, RefusedError
from guerdon.run import open_run
from guerdon.run.driver import PaidRun
from guerdon.terms import Terms, Vesting
from guerdon.words import about

RULE = OutputAgreement(AffineCost(1, 1))
WORST = about(RULE).worst_loss(RULE, 8)  # beyond the pay of 9
NAMES = ["north", "south", "east", "west"]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "guerdon.db") as opened:
        yield opened


def begin(ledger: Ledger, rule: Any = RULE, **terms: Any) -> PaidRun:
    told: dict[str, Any] = {"losses": "deposit", "hold": Vesting(3), **terms}
    return open_run(Server(rule, FixedRequest(8, 0.1)), ledger, "run", {"w": np.zeros(6)}, Terms(**told))


def enrol(ledger: Ledger, deposit: float) -> None:
    ledger.enrol(dict.fromkeys(NAMES))
    for name in NAMES:
        ledger.move("deposit", name, round(deposit * 1e6))


def play(run: PaidRun, members: list[str], seed: int, lazy: str = "") -> None:
    rng = np.random.default_rng(seed)
    assert run.ask(members) is not None
    noise = {name: rng.normal(size=6) * (1e9 if name == lazy else 1.0) for name in members}
    run.settle([run.report(name, {"w": 0.5 + noise[name]}) for name in members])


def test_who_cannot_pay_the_worst_loss_is_not_asked_and_the_log_says_why(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    enrol(ledger, WORST)
    ledger.move("withdraw", "west", 1)
    run = begin(ledger)
    with caplog.at_level(logging.WARNING):
        play(run, NAMES, seed=1)
        play(run, NAMES, seed=2)
    assert sorted(ledger.roster("run")) == ["east", "north", "south"]
    told = [one for one in caplog.messages if "left out" in one]
    assert told == [
        "west is left out: it can lose 1,600.00 CREDIT in the next round of run 'run', and its deposit (1,599.999999) "
        "and what the run holds of it (0.00) do not cover that"
    ]
    assert run.ask(NAMES) is not None
    with pytest.raises(RefusedError, match="agent 'west' is not asked: it can lose 1,600"):
        run.request_of("west")
    ledger.move("deposit", "west", 1)
    play(run, NAMES, seed=3)
    assert len(ledger.roster("run")) == 4


def test_no_loss_is_left_that_nobody_covers(ledger: Ledger) -> None:
    """Garbage in every round: it loses what it can, is asked no more once that is gone, and owes nothing then."""
    enrol(ledger, 1.5 * WORST)
    run, asked = begin(ledger), 0
    for number in range(12):
        assert run.ask(NAMES) is not None
        there = [name for name in NAMES if not run.short_of()(name)]
        asked += "west" in there
        rng = np.random.default_rng(number)
        sent = {name: rng.normal(size=6) * (1e9 if name == "west" else 1.0) for name in there}
        run.settle([run.report(name, {"w": sent[name]}) for name in there])
    (west,) = (row for row in ledger.balances() if row.agent == "west")
    assert asked < 12
    assert west.deposit < 1.5 * WORST * 1e6
    assert west.carried == 0
    assert all(line.cut == 0 for line in ledger.statement("west").lines if line.cut is not None)
    assert ledger.verify().problem is None


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_what_it_can_lose_goes_with_its_cost_factor(ledger: Ledger, factor: float) -> None:
    enrol(ledger, WORST)
    lacks = begin(ledger, cost_factors={"west": factor}).short_of()
    assert bool(lacks("west")) == (factor > 1)
    assert not lacks("north")


def test_what_the_run_holds_counts_too(ledger: Ledger) -> None:
    enrol(ledger, WORST)
    run = begin(ledger)
    for seed in range(4):
        play(run, NAMES, seed)
    ledger.move("withdraw", "north", 1_000_000)
    held = sum(one.amount for one in ledger.held("north"))
    assert held > 1_000_000
    assert run.short_of()("north") == ""
    ledger.move("withdraw", "north", held)
    assert "do not cover that" in run.short_of()("north")


@pytest.mark.parametrize("terms", [{"losses": "carry"}, {"losses": "carry", "hold": None}])
def test_known_members_carry_losses_and_need_no_deposit(ledger: Ledger, terms: Any) -> None:
    ledger.enrol(dict.fromkeys(NAMES))
    run = begin(ledger, **terms)
    assert [run.short_of()(name) for name in NAMES] == [""] * 4
