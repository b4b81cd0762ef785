"""One definition of paid, earned and owed: what lists, pages and exports add up to."""

import json
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, KnownVariance, OutputAgreement, gather, round_of
from guerdon.dashboard import queries, series
from guerdon.dashboard.source import LedgerSource
from guerdon.ledger import Ledger
from guerdon.ledger.read.render import statement_json
from tests.support.ledger_scenes import HARSH, NAMES, busy_ledger, check_totals, micro, on, play, record

PEOPLE = ["first", "second", "third"]
OTHERS, LOSS = (14_375_200, 14_804_800), -4_632_800  # 9 + 64/200·(37.5 − D)


def one_loser(ledger: Ledger, losses: Any) -> int:
    """Record a round in which the third agent loses 4.632803, and return its reward."""
    ledger.start_run("run", PEOPLE, OutputAgreement(AffineCost(1, 1), KnownVariance(200.0)), on(losses))
    gradients, sent = np.array([[0.0, 0.0], [0.1, 0.0], [9.0, 0.0]]), np.ones(3, dtype=bool)
    recorded = ledger.record_round("run", 1, round_of(gather(gradients, sent), sent, 8))
    assert recorded.payments is not None
    assert recorded.payments.released.tolist() == pytest.approx([OTHERS[0] / 1e6, OTHERS[1] / 1e6, LOSS / 1e6])
    return round(float(recorded.payments.released[2]) * 1e6)


def test_what_nobody_paid_of_a_loss_is_not_paid(ledger: Ledger) -> None:
    one_loser(ledger, "floor")
    (run,), (one,), loser = ledger.runs(), ledger.rounds("run"), ledger.balances()[-1]
    assert run.paid == one.paid == sum(row.balance for row in ledger.balances()) == sum(OTHERS)
    assert (loser.agent, loser.balance, loser.earned, loser.owed) == ("third", 0, 0, 0)
    assert micro(json.loads("".join(statement_json(ledger.statement("third"), [])))["earned"]) == 0
    check_totals(ledger)


def test_a_carried_loss_is_earned_and_not_owed(ledger: Ledger) -> None:
    loss = one_loser(ledger, "carry")
    assert ledger.runs()[0].paid == sum(OTHERS) + loss
    loser = ledger.balances()[-1]
    assert (loser.earned, loser.carried, loser.owed) == (loss, loss, 0)
    check_totals(ledger)


@pytest.mark.parametrize("losses", ["carry", "deposit", "floor"])
def test_pages_and_lists_tell_the_same(ledger: Ledger, where: str, losses: Any) -> None:
    ledger.enrol({"north": None})
    ledger.move("deposit", "north", 3_000_000)
    ledger.start_run("run", NAMES, HARSH, on(losses))
    record(ledger, "run", play(12, HARSH))
    ledger.payout()
    check_totals(ledger)
    source = LedgerSource(where)
    with source.reading() as connection:
        (run,) = queries.list_runs(connection, 0, 10).runs
        agents = queries.list_agents(connection, 0, 10).agents
    assert run.paid == ledger.runs()[0].paid
    assert [(row.id, row.name, row.earned, row.balance) for row in agents] == [
        (row.number, row.agent, row.earned, row.balance) for row in ledger.balances()
    ]
    shown = series.round_series(source.run(1))
    assert shown.cumulative_paid[-1] * 1e6 == pytest.approx(run.paid, abs=1e-3)
    own = [series.agent_series(source.run(1), agent.id).paid[-1] * 1e6 for agent in agents]
    assert own == pytest.approx([agent.earned for agent in agents], abs=1e-3)
    source.close()


def test_a_busy_ledger_reconciles(ledger: Ledger) -> None:
    busy_ledger(ledger)
    check_totals(ledger)
