"""What is at stake on Flower: pay vests by default, the end of a run lets the rest vest, newcomers leave a deposit."""

# Flower's records are typed as dictionaries of a union, which no plain dictionary is.
# pyright: reportArgumentType=false

from typing import Any

import pytest
from flwr.app import ArrayRecord

from guerdon import FlatPay
from guerdon.ledger import Ledger
from guerdon.terms import AtOnce, Vesting
from tests.flower.conftest import RULE, Make
from tests.flower.grids import MemoryGrid, Node, worker


def test_nothing_can_be_paid_out_before_the_planned_rounds_are_over(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    strategy, seen = rewarded(), list[int]()

    def look(*_: Any) -> None:
        seen.append(sum(row.balance for row in ledger.balances()))

    strategy.start(grid, model, num_rounds=3, evaluate_fn=look)
    assert ledger.terms("run").hold == Vesting(20)
    assert seen == [0, 0, 0, 0]
    assert sum(row.balance for row in ledger.balances()) == ledger.runs()[0].paid > 0
    rewarded().start(grid, model, num_rounds=3)  # all is done: nothing more
    rewarded().start(grid, model, num_rounds=4)  # the run goes on, and is closed again
    assert sum(row.balance for row in ledger.balances()) == ledger.runs()[0].paid
    assert ledger.verify().holds


def test_a_node_that_joins_late_is_asked_once_it_has_paid_in(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"losses": "deposit", "deposit": 50, "allow_anonymous": True}
    late, everyone = Node(7, worker(7)), MemoryGrid([*nodes, Node(7, worker(7))])
    rewarded(**options).start(MemoryGrid(nodes), model, num_rounds=1)
    rewarded(**options).start(everyone, model, num_rounds=2)
    assert len(ledger.roster("run")) == len(nodes)
    assert "it joins run 'run' late, without the deposit of 50.00 CREDIT: record what it pays in" in caplog.text
    ledger.enrol({"late": late.der})
    ledger.move("deposit", "late", 50_000_000)
    rewarded(**options).start(MemoryGrid([*nodes, late]), model, num_rounds=3)
    assert ledger.roster("run")[len(nodes) :] == ["late"]
    assert ledger.verify().holds


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({}, ""),
        ({"losses": "deposit"}, ""),
        (
            {"losses": "floor"},
            "losses='floor' cuts losses at zero: it pays more than the rule makes it, and a new",
        ),
        ({"hold": AtOnce()}, "hold=AtOnce() pays at once: a new name can take what chance gives it"),
        ({"rule": FlatPay(RULE.cost), "losses": "floor"}, ""),
    ],
)
def test_unsafe_terms_are_warned_of(
    grid: MemoryGrid,
    model: ArrayRecord,
    rewarded: Make,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    warning: str,
) -> None:
    rewarded(**options).start(grid, model, num_rounds=1)
    assert warning in caplog.text
    assert ("leave its losses behind" in caplog.text) == bool(warning)
