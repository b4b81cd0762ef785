"""Pay against cost: what the ledger says of each agent, against sums by hand."""

from typing import Any

import numpy as np
import pytest

from guerdon import gather, round_of
from guerdon._quantiles import student_quantile
from guerdon.dashboard.source import LedgerSource
from guerdon.dashboard.statistics import pay_against_cost
from guerdon.ledger import Ledger, RefusedError
from guerdon.rule import Status
from tests.support.ledger_scenes import AT_ONCE, HARSH, NAMES, RULE, Played, on, play, record


def by_hand(rounds: list[Played], seat: int, *, floor: bool = False) -> tuple[int, float, float, float]:
    """Return rounds, mean pay, mean cost, and the standard error of the mean profit times t."""
    mine = [one for one in rounds if one.payments.status[seat] == Status.PAID]
    pay = np.array([max(float(one.payments.released[seat]), 0.0 if floor else -np.inf) for one in mine])
    cost = np.array([1.0 + one.request for one in mine])
    reach = student_quantile(0.975, len(mine) - 1)
    return len(mine), pay.mean(), cost.mean(), reach * (pay - cost).std(ddof=1) / len(mine) ** 0.5


@pytest.mark.parametrize("losses", ["carry", "floor"])
def test_means_and_intervals_are_those_of_the_rounds(ledger: Ledger, losses: Any) -> None:
    rounds = play(12, HARSH)
    ledger.start_run("heart", NAMES, HARSH, on(losses))
    record(ledger, "heart", rounds)
    found = {row.agent: row for row in ledger.earnings()}
    for seat, name in enumerate(NAMES):
        row = found[name]
        told = (row.rounds, row.pay, row.round_cost, row.margin)
        assert told == pytest.approx(by_hand(rounds, seat, floor=losses == "floor"), abs=1e-5)
    assert found["west"].rounds < found["north"].rounds  # it declined now and then, and once sent NaN


def test_runs_are_told_apart_and_requests_may_differ(ledger: Ledger) -> None:
    first, second = play(5), play(4, request=3, seed=1)
    for run, rounds in (("heart", first), ("lung", second)):
        ledger.start_run(run, NAMES, RULE, AT_ONCE)
        record(ledger, run, rounds)
    (north,) = [row for row in ledger.earnings("lung") if row.agent == "north"]
    assert (north.rounds, north.round_cost) == (4, 4.0)
    (both,) = [row for row in ledger.earnings() if row.agent == "north"]
    assert (both.rounds, both.pay, both.round_cost, both.margin) == pytest.approx(
        by_hand([*first, *second], 0), abs=1e-5
    )
    assert "9 rounds" in both.words
    with pytest.raises(RefusedError, match="there is no run 'x'"):
        ledger.earnings("x")


def test_one_round_has_no_interval_and_none_has_no_line(ledger: Ledger) -> None:
    ledger.start_run("heart", NAMES, RULE, AT_ONCE)
    assert ledger.earnings() == []
    record(ledger, "heart", play(1))
    assert {row.margin for row in ledger.earnings()} == {None}


def test_work_that_was_not_paid_counts_as_on_the_dashboard(ledger: Ledger, where: str) -> None:
    ledger.start_run("heart", NAMES, RULE, AT_ONCE)
    rounds = play(5)
    record(ledger, "heart", rounds)
    alone = np.array([True, False, False, False])  # nobody to compare it with: it is not paid
    ledger.record_round("heart", 6, round_of(gather(np.random.default_rng(2).normal(size=(4, 6)), alone), alone, 8))
    source = LedgerSource(where)
    shown, told = pay_against_cost(source.run(1)), {row.number: row for row in ledger.earnings("heart")}
    source.close()
    assert (told[1].agent, told[1].rounds, told[1].round_cost) == ("north", 6, 9.0)
    assert told[1].pay == pytest.approx(sum(float(one.payments.released[0]) for one in rounds) / 6, abs=1e-6)
    for row in shown:
        mine = told[row.agent]
        assert (mine.rounds, mine.pay, mine.round_cost) == (row.rounds, pytest.approx(row.paid), row.work)
        assert row.high is not None
        assert mine.margin == pytest.approx(row.high - row.difference)
