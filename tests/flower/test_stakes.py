"""What is at stake on Flower: pay vests by default, the end of a run lets the rest vest, newcomers leave a deposit."""

# Flower's records are typed as dictionaries of a union, which no plain dictionary is.
# pyright: reportArgumentType=false

from typing import Any

import pytest
from flwr.app import ArrayRecord

from guerdon import FlatPay, InformationPay, SteadyPay
from guerdon.ledger import Ledger
from guerdon.paying.book import PayTerms
from tests.flower.conftest import RULE, Make
from tests.flower.grids import MemoryGrid, Node, worker


def test_pay_vests_by_default_where_a_reward_can_be_negative() -> None:
    usual = PayTerms("carry", None, None)
    assert [usual.of_new_run(rule).vesting for rule in (RULE, InformationPay(RULE.cost))] == [20, 20]
    assert [usual.of_new_run(rule).vesting for rule in (SteadyPay(RULE.cost), FlatPay(RULE.cost))] == [0, 0]
    assert PayTerms("carry", 0, None).of_new_run(RULE).vesting == 0


def test_nothing_can_be_paid_out_before_the_planned_rounds_are_over(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    strategy, seen = rewarded(), list[int]()

    def look(*_: Any) -> None:
        seen.append(sum(row.balance for row in ledger.balances()))

    strategy.start(grid, model, num_rounds=3, evaluate_fn=look)
    assert ledger.terms("run") == (20, 0)
    assert seen == [0, 0, 0, 0]
    assert sum(row.balance for row in ledger.balances()) == ledger.runs()[0].paid > 0
    rewarded().start(grid, model, num_rounds=3)  # all is done: nothing more
    rewarded().start(grid, model, num_rounds=4)  # the run goes on, and is closed again
    assert sum(row.balance for row in ledger.balances()) == ledger.runs()[0].paid
    assert ledger.verify().holds


def test_a_node_that_joins_late_is_asked_once_it_has_paid_in(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"liability": "deposit", "deposit": 50, "allow_anonymous": True}
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
        ({"liability": "deposit"}, ""),
        (
            {"liability": "floor"},
            "liability='floor' cuts losses at zero: it pays more than the rule makes it, and a new",
        ),
        ({"vesting": 0}, "vesting=0 pays at once: a new name can take what chance gives it"),
        ({"rule": FlatPay(RULE.cost), "liability": "floor"}, ""),
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vesting": -1}, "`vesting` must be an integer from 0"),
        ({"deposit": 5.0}, "`deposit` must be left out with `liability='carry'`"),
        ({"deposit": 5.0, "liability": "deposit", "vesting": 0}, "`deposit` needs `vesting`"),
    ],
)
def test_terms_that_make_no_sense_are_refused_before_anything_is_computed(
    rewarded: Make, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        rewarded(**options)
