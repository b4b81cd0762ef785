"""A cost per node on Flower and in runs of our own: pay, budget, steady pay and resuming count the factor."""

# Flower's records are typed as dictionaries of a union, which no plain dictionary is.
# pyright: reportArgumentType=false

import re
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord

from guerdon import AffineCost, BudgetRequest, FixedRequest, FlatPay, InformationPay, SteadyPay
from guerdon.ledger import Ledger, RefusedError
from guerdon.run.driver import open_run
from guerdon.run.reports import Report
from guerdon.statistical.servers import server_for
from guerdon.terms import Terms
from tests.flower.conftest import Make
from tests.flower.grids import MemoryGrid

FACTORS = {"n0": 1.5, "n3": 0.25}
COST = AffineCost(1, 1)


def rewards(ledger: Ledger, run: str) -> dict[str, int]:
    return {slip.agent: slip.reward for slip in ledger.payslips(run)}


@pytest.mark.parametrize("rule", [FlatPay(COST), InformationPay(COST)], ids=repr)
def test_a_node_is_paid_its_factor_times_what_it_would_be(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger, rule: Any
) -> None:
    told, seen = {"plain": {}, "one": {"n0": 1.0}, "own": FACTORS}, dict[str, Any]()
    for run, factors in told.items():
        strategy = rewarded(run=run, rule=rule, cost_factors=factors, on_round=lambda found: seen.update(found))
        strategy.start(grid, model, num_rounds=3)
        assert seen["guerdon/reward/n0"] == pytest.approx(rewards(ledger, run)["n0"] / 1e6, abs=1e-5)
    plain, one, own = (rewards(ledger, run) for run in told)
    assert one == plain
    assert own == {name: pytest.approx(FACTORS.get(name, 1.0) * paid, abs=1.5) for name, paid in plain.items()}
    assert any(plain.values())
    assert ledger.verify().holds


def test_steady_pay_releases_the_factor_times_as_much_and_no_more_than_the_nodes_own_cost(ledger: Ledger) -> None:
    names, factors, paid = ["n0", "n1", "n2", "n3"], {"n0": 1.5, "n3": 0.25}, dict[str, dict[str, float]]()
    for name, told in (("plain", {}), ("own", factors)):
        server = server_for(SteadyPay(COST, period=10), FixedRequest(8, 0.1))
        run, rng = (
            open_run(server, ledger, name, {"w": np.zeros(20)}, Terms(cost_factors=told), rounds=20),
            np.random.default_rng(1),
        )
        while run.ask(names):
            sent = rng.normal(size=20) + 0.3 * rng.normal(size=(4, 20))  # there is something to tell in every round
            run.settle(
                [Report(who, sent=True, reply=True, arrays={"w": row}) for who, row in zip(names, sent, strict=True)]
            )
        paid[name] = {row.agent: row.paid for row in ledger.earnings(name)}
    assert min(paid["plain"].values()) > 100  # of 180
    assert paid["own"] == {who: pytest.approx(factors.get(who, 1) * paid["plain"][who], abs=1e-4) for who in names}
    assert ledger.verify().holds


def test_the_budget_counts_the_factors(grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    price = 9 * (1.5 + 0.25 + 3)
    strategy = rewarded(rule=FlatPay(COST), cost_factors=FACTORS, budget=2 * price)
    strategy.start(grid, model, num_rounds=10)
    assert ledger.runs()[0].rounds == 2  # as many as five times the common cost would not allow: 85.5 < 90
    assert ledger.runs()[0].paid == 1e6 * 2 * price
    rewarded(rule=FlatPay(COST), cost_factors=FACTORS, budget=3 * price - 0.01).start(grid, model, num_rounds=10)
    assert ledger.runs()[0].rounds == 2
    told = {row.agent: row.words for row in ledger.earnings("run")}
    assert told["n0"].startswith("paid 13.5 ± 0 (95 %) a round for work that costs 13.5")


def test_a_run_that_goes_on_keeps_its_factors(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    flat = FlatPay(COST)
    rewarded(rule=flat, cost_factors=FACTORS | {"n9": 2}).start(grid, model, num_rounds=1)
    assert "`cost_factors` names 'n9', which has no account in the ledger (yet); there is n0, n1" in caplog.text
    assert "Cost: n0 × 1.5, n3 × 0.25, n9 × 2" in caplog.text
    rewarded(rule=flat).start(grid, model, num_rounds=2)  # nothing said: as the run has them
    assert rewards(ledger, "run")["n0"] == 13_500_000
    other = re.escape("another cost factor of 'n0': 1.5, now 2; it stays for the whole run, so begin another run")
    with pytest.raises(RefusedError, match=other):
        rewarded(rule=flat, cost_factors={"n0": 2}).start(grid, model, num_rounds=3)
    assert ledger.runs()[0].rounds == 2
    with pytest.raises(ValueError, match=r"`cost_factors\['n0'\]` must be a finite number above 0"):
        rewarded(cost_factors={"n0": 0})
    assert ledger.verify().holds


def test_a_policy_with_a_budget_of_its_own_counts_them_too(ledger: Ledger) -> None:
    """`BudgetRequest` shares what is left among cost factors, not heads, and counts what was really paid."""
    names, rng = ["a", "b", "c"], np.random.default_rng(0)
    server = server_for(FlatPay(COST), BudgetRequest(COST, 400.0))
    run = open_run(server, ledger, "run", {"w": np.zeros(4)}, Terms(cost_factors={"a": 8.0}))
    while run.ask(names) and run.done < 60:
        arrays = {name: {"w": rng.normal(size=4)} for name in names}
        run.settle([Report(name, sent=True, reply=True, arrays=arrays[name]) for name in names])
    paid = ledger.runs()[0].paid / 1e6
    assert 400 - 10 * 2 < paid <= 400 * (1 + 1e-5)  # less than a round of one sample each is left


def test_a_server_of_your_own_takes_factors() -> None:
    server, model = server_for(FlatPay(COST), FixedRequest(8, 0.1)), np.zeros(3)
    ask, state = server.ask(server.init(model, num_agents=3), model)
    done, _ = server.settle(state, ask, np.eye(3), np.ones(3, dtype=bool), factors=np.array([1.0, 2.0, 0.5]))
    assert done.payments.released.tolist() == [9.0, 18.0, 4.5]
