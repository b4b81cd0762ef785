"""Cost factors: an agent whose work costs c times the common cost is paid c times as much, everywhere."""

import re
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from guerdon import AffineCost, FlatPay
from guerdon.dashboard.source import LedgerSource
from guerdon.dashboard.statistics import pay_against_cost
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.books.money import to_micro
from guerdon.ledger.proof.verify import verify
from guerdon.rule import Rule
from tests.ledger.test_tampering import attacker, reseal, unprotect
from tests.support.ledger_scenes import (
    AT_ONCE,
    HARSH,
    NAMES,
    REMEMBERING,
    RULE,
    check_totals,
    exported_rows,
    on,
    play,
    prepare,
    record,
)

FACTORS = {"north": 1.5, "west": 0.8}
COLUMN = np.array([1.5, 1.0, 1.0, 0.8])
FLAT = FlatPay(AffineCost(1, 1))


def amounts(ledger: Ledger, run: str) -> Any:
    rows = [row for row in exported_rows(ledger, "payments") if row["run"] == run]
    return np.array([float(row["released"]) for row in rows]).reshape(-1, len(NAMES))


@pytest.mark.parametrize("rule", [RULE, HARSH, REMEMBERING, FLAT], ids=lambda rule: rule.name)
def test_pay_is_times_the_factor_and_with_1_as_before_to_the_micro_unit(ledger: Ledger, rule: Rule) -> None:
    rounds = play(5, rule)
    for run, told in (("plain", None), ("one", dict.fromkeys(NAMES, 1)), ("own", FACTORS)):
        ledger.start_run(run, NAMES, rule, on("floor", cost_factors=told or {}))
        record(ledger, run, rounds)
    common = np.array([one.payments.released for one in rounds])
    assert (to_micro(amounts(ledger, "plain")) == to_micro(common)).all()
    assert (amounts(ledger, "one") == amounts(ledger, "plain")).all()
    assert (to_micro(amounts(ledger, "own")) == to_micro(common * COLUMN)).all()
    assert ledger.cost_factors("own") == FACTORS
    assert ledger.cost_factors("one") == {}
    assert ledger.verify().problem is None
    check_totals(ledger)


def test_a_round_says_what_it_paid_and_a_statement_why(ledger: Ledger) -> None:
    ledger.start_run("heart", NAMES, FLAT, on(cost_factors=FACTORS))
    (first,) = play(1, FLAT)
    done = ledger.record_round("heart", *first.arguments())
    assert done.payments is not None
    assert done.payments.released.tolist() == [13.5, 9.0, 9.0, 7.2 * first.sent[3]]
    assert "13.5 for the 8 samples asked for (1.5 times the usual 9), whatever was sent" in str(
        ledger.payslips("heart")
    )
    (line,) = ledger.statement("south").lines
    assert line.why == "9 for the 8 samples asked for, whatever was sent"
    assert ledger.runs()[0].costs == "1 + 1*s (× 0.8 to 1.5)"


def test_pay_is_held_against_the_agents_own_cost(ledger: Ledger, where: str) -> None:
    rounds = play(8)
    ledger.start_run("heart", NAMES, RULE, on(cost_factors=FACTORS))
    record(ledger, "heart", rounds)
    found = {row.agent: row for row in ledger.earnings("heart")}
    assert {name: row.round_cost for name, row in found.items()} == {"north": 13.5, "south": 9, "east": 9, "west": 7.2}
    profit = np.array([1.5 * (float(one.payments.released[0]) - 9) for one in rounds])
    assert found["north"].pay - 13.5 == pytest.approx(profit.mean(), abs=1e-5)
    assert found["north"].margin == pytest.approx(2.3646 * profit.std(ddof=1) / 8**0.5, rel=1e-3)
    source = LedgerSource(where)
    shown = {row.name: row for row in pay_against_cost(source.run(1))}
    source.close()
    for name, row in found.items():
        assert (shown[name].work, shown[name].paid) == (pytest.approx(row.round_cost), pytest.approx(row.pay))


def test_a_factor_stays_for_the_whole_run(ledger: Ledger) -> None:
    ledger.start_run("heart", NAMES, RULE, on(cost_factors=FACTORS))
    record(ledger, "heart", play(2))
    other = "run 'heart' was started with another cost factor of 'north': 1.5, now {}; it stays for the whole run"
    for told, now in (({"north": 2, "west": 0.8}, "2"), ({"west": 0.8}, "1")):
        with pytest.raises(RefusedError, match=re.escape(other.format(now))):
            ledger.start_run("heart", NAMES, RULE, on(cost_factors=told))
        with pytest.raises(RefusedError, match=re.escape(other.format(now))):
            ledger.record_round("heart", *play(3)[2].arguments(), cost_factors=told)
    for told in ({}, FACTORS):  # nothing said, or the same
        assert not ledger.start_run("heart", NAMES, RULE, on(cost_factors=told)).new
    record(ledger, "heart", play(3)[2:], cost_factors=FACTORS)
    assert ledger.verify().holds


def test_an_agent_that_joins_has_its_own_factor_or_1(ledger: Ledger) -> None:
    ledger.start_run("heart", NAMES, FLAT, on(cost_factors=FACTORS))
    record(ledger, "heart", play(1, FLAT))
    told = FACTORS | {"dear": 3}
    record(ledger, "heart", play(2, FLAT, agents=6)[1:], agents=[*NAMES, "dear", "plain"], cost_factors=told)
    assert ledger.cost_factors("heart") == told
    slips = {slip.agent: slip.reward for slip in ledger.payslips("heart") if slip.status == "paid"}
    assert {name: slips[name] for name in ("north", "dear", "plain") if name in slips} == {
        name: round(9e6 * told.get(name, 1)) for name in ("north", "dear", "plain") if name in slips
    }
    assert "dear" in slips
    with pytest.raises(RefusedError, match="another cost factor of 'plain': 1, now 2"):
        ledger.record_round("heart", *play(3, FLAT, agents=6)[2].arguments(), cost_factors=told | {"plain": 2})
    assert ledger.verify().holds


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"north": 0}, "`cost_factors['north']` must be a finite number above 0, got 0"),
        ({"north": 2e6}, "the cost factor of 'north' must be a number above 0 and at most 1,000,000, with at most 6"),
        ({"north": -1.5}, "got -1.5"),
        ({"north": float("nan")}, "got nan"),
        ({"north": 1e300}, "got 1e+300"),
        ({"north": True}, "got True"),
        ({"north": "2"}, "got '2'"),
        ({"north": 1 / 3}, "with at most 6 decimals, got 0.3333333333333333"),
        ([1.5, 1], "`cost_factors` must be a factor for each agent"),
        ({"nort": 2}, "`cost_factors` must be of agents of the run (north, south, east, west), got one of 'nort'"),
    ],
)
def test_wrong_factors_are_refused_and_nothing_is_recorded(ledger: Ledger, told: Any, why: str) -> None:
    with pytest.raises((ValueError, TypeError, RefusedError), match=re.escape(why)):
        ledger.start_run("heart", NAMES, RULE, on(cost_factors=told))
    assert ledger.runs() == []


def test_the_cost_that_is_released_is_the_agents_own(ledger: Ledger, where: str) -> None:
    rounds = play(4, FLAT)
    ledger.start_run("heart", NAMES, FLAT, on(hold=2, cost_factors=FACTORS))
    record(ledger, "heart", rounds)
    has = {row.agent: row for row in ledger.balances()}
    assert (has["north"].balance, has["north"].held) == (27_000_000, 27_000_000)  # 2 of 4 rounds were released
    assert (has["south"].balance, has["south"].held) == (18_000_000, 18_000_000)
    ledger.close_run("heart")
    assert {row.agent: row.balance for row in ledger.balances()}["north"] == 54_000_000
    with Ledger(where) as again:  # what is held is in the ledger, not in memory
        record(again, "heart", play(6, FLAT)[4:])
        assert again.verify().problem is None


def test_stakes_are_relative_to_the_agents_own_costs(ledger: Ledger) -> None:
    rounds = play(40, HARSH)
    for run, told in (("plain", None), ("own", dict.fromkeys(NAMES, 2))):
        ledger.start_run(run, NAMES, HARSH, on(cost_factors=told or {}))
        record(ledger, run, rounds)
    plain, own = ledger.stakes("plain", rounds=10), ledger.stakes("own", rounds=10)
    assert (own.cost, own.spread) == (plain.cost, pytest.approx(plain.spread, rel=1e-6))
    assert own.now.earns == pytest.approx(plain.now.earns, rel=1e-5)


def fill_with_factors(where: str) -> None:
    with Ledger(where) as ledger:
        for run, rule in (("heart", RULE), ("memory", REMEMBERING)):
            ledger.start_run(run, NAMES, rule, on(cost_factors=FACTORS))
            record(ledger, run, play(2, rule))
        ledger.start_run("empty", NAMES, RULE, AT_ONCE)
    unprotect(where)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE cost_factors SET factor = 1600000 WHERE agent = 1",
        "DELETE FROM cost_factors WHERE agent = 4",
        "INSERT INTO cost_factors (run, agent, record, factor) VALUES (1, 2, {record}, 2000000)",
    ],
)
def test_verify_finds_a_factor_that_was_changed(where: str, change: str) -> None:
    prepare(where, fill_with_factors)
    with attacker(where) as connection:
        begun = connection.execute(text("SELECT record FROM runs WHERE id = 1")).scalar()
        assert verify(connection).holds
        connection.execute(text(change.format(record=begun)))
        problem = verify(connection).problem
        assert problem is not None
        reseal(connection)  # all hashes made anew: then the money itself gives it away
        problem = verify(connection).problem
        assert problem is not None
        assert re.search("the payment of agent '(north|south|west)' in round . of run 'heart' is not what its", problem)


def test_a_factor_that_came_without_its_agent_is_found(where: str) -> None:
    prepare(where, fill_with_factors)
    with attacker(where) as connection:
        other = connection.execute(text("SELECT record FROM runs WHERE id = 2")).scalar()
        connection.execute(text(f"INSERT INTO cost_factors VALUES (3, 2, {other}, 2000000)"))
        reseal(connection)
        assert "does not join the run by it" in str(verify(connection).problem)
