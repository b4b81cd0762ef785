"""Vesting: what a later loss can still claim, what is an agent's for good, and what the end of a run gives."""

import json
from collections import deque
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from guerdon import AffineCost, OutputAgreement, gather, round_of
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.liability import Standing
from guerdon.ledger.render import statement_json, statement_pieces
from guerdon.ledger.stakes import take_home
from guerdon.ledger.unvested import Terms, replay_vesting, waiting_of
from guerdon.ledger.verify import verify
from guerdon.ledger.vesting import begin, closing, settle_round
from tests.ledger.test_tampering import attacker, reseal, unprotect
from tests.support.command_line import run as guerdon
from tests.support.ledger_scenes import HARSH, NAMES, RULE, check_totals, micro, play, record

COST = 9_000_000


def slowly(rewards: list[int], rounds: int, cost: int) -> list[tuple[int, int, int]]:
    """One agent under `carry`, as the docs say it: what is vested, unvested and carried after each of its rounds."""
    parcels, vested, debt, allowed, told = deque[list[int]](), 0, 0, 0, list[tuple[int, int, int]]()
    for number, reward in enumerate(rewards):
        repaid = min(max(reward, 0), debt)
        loss, debt = max(-reward, 0), debt - repaid
        parcels.append([number, max(reward, 0) - repaid])
        for parcel in parcels:  # the oldest first
            met = min(parcel[1], loss)
            parcel[1], loss = parcel[1] - met, loss - met
        debt += loss
        allowed += cost if number >= rounds else 0
        for parcel in parcels:
            due = min(parcel[1], allowed - vested) if parcel[0] <= number - rounds else 0
            parcel[1], vested = parcel[1] - due, vested + due
        told.append((vested, sum(parcel[1] for parcel in parcels), debt))
    return told


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_it_is_what_the_docs_say(rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    rewards, nothing = rng.integers(-20, 30, size=(40, 30)), np.zeros(40, dtype=np.int64)
    vesting, carried, vested = begin(40, rounds), nothing, nothing
    expected = [slowly(row.tolist(), rounds, 9) for row in rewards]
    for number in range(30):
        standing, played = Standing(nothing, nothing, carried), (np.ones(40, dtype=bool), 9, number)
        flows, after = settle_round("carry", rewards[:, number], nothing, standing, vesting, played)
        assert after is not None
        vesting, carried = after, carried + flows.to_carried - flows.from_carried
        vested = vested + flows.vested
        found = np.stack([vested, vesting.unvested, -carried], axis=1)
        assert found.tolist() == [list(one[number]) for one in expected]


@pytest.mark.parametrize("liability", ["carry", "deposit", "floor"])
def test_losses_are_met_from_what_is_unvested_then_from_the_deposit(liability: str) -> None:
    has = [np.array([value]) for value in (100, 5, -0)]  # balance, deposit, carried
    vesting = begin(1, 2)._replace(unvested=np.array([20]), waiting=np.array([[10, 10]]))
    played = (np.array([True]), 9, 1)
    flows, after = settle_round(liability, np.array([-32]), np.array([0]), Standing(*has), vesting, played)
    assert after is not None
    assert (flows.from_escrow[0], after.unvested[0], flows.from_agent[0]) == (20, 0, 0)  # what has vested stays
    left = {"carry": (0, 12, 0), "deposit": (5, 7, 0), "floor": (0, 0, 12)}[liability]
    assert (flows.from_deposit[0], flows.from_carried[0], flows.cut[0]) == left


def test_leaving_before_it_vests_takes_nothing_whatever_the_rewards() -> None:
    rewards = np.random.default_rng(0).integers(-170_000_000, 300_000_000, size=(200, 20))
    for liability in ("carry", "floor"):
        takes, _ = take_home(liability, Terms(20, 0), rewards, COST)
        assert not takes.any()
        takes, _ = take_home(liability, Terms(5, 0), rewards, COST)
        assert takes.max() == 15 * COST  # no more than the work of the rounds that have vested


# What the end of a run gives


def one_closing(unvested: Any, missing: Any, owed: Any, chosen: Any = None) -> list[int]:
    state = begin(len(unvested), 1)._replace(unvested=np.array(unvested), allowance=np.array(missing))
    debts = np.array(owed)
    everyone = np.ones(len(unvested), dtype=bool) if chosen is None else np.array(chosen)
    return closing(state._replace(carried=debts), -debts, everyone).tolist()


def test_work_is_paid_to_its_cost_and_beyond_it_what_was_met() -> None:
    assert one_closing([18, 7, 0], [9, 9, 9], [0, 0, 0]) == [18, 7, 0]
    assert one_closing([18, 18, 0], [9, 9, 9], [0, 0, 4]) == [16, 16, 0]
    assert one_closing([18, 18, 0], [9, 9, 0], [0, 0, 99]) == [9, 9, 0]
    assert one_closing([18, 18, 0], [-3, 9, 9], [0, 0, 0]) == [18, 18, 0]  # more than its cost has vested before
    assert one_closing([18, 18, 0], [9, 9, 9], [0, 0, 5], [True, False, False]) == [13, 0, 0]


def test_a_loss_that_raises_nobodys_pay_takes_nothing_from_others() -> None:
    """All that the run pays is less than its work cost: somebody's loss was not what the others earned more by."""
    assert one_closing([18, 0, 0], [9, 9, 9], [0, 500, 500]) == [18, 0, 0]
    assert one_closing([18, 18, 0], [9, 9, 9], [0, 0, 500]) == [13, 14, 0]  # 27 in all, as the work cost


def test_amounts_near_the_limit_do_not_overflow() -> None:
    most = 10**15
    assert one_closing([most, most, 0], [0, 0, 0], [0, 0, most]) == [most // 2, most // 2, 0]
    assert sum(one_closing([most, most, 7], [0, 0, 0], [0, 0, most])) == most + 7


def garbage_rounds(ledger: Ledger, vesting: int, rounds: int = 12) -> list[int]:
    """Nine agents work, the tenth sends garbage under a name that nobody will see again; return the balances."""
    names, rng, sent = [f"n{i}" for i in range(10)], np.random.default_rng(0), np.ones(10, dtype=bool)
    ledger.start_run("run", names, OutputAgreement(AffineCost(1, 1)), vesting=vesting)
    for number in range(1, rounds + 1):
        reports = rng.normal(size=(10, 50))
        reports[9] *= 1000
        ledger.record_round("run", number, round_of(gather(reports, sent), sent, 8))
    ledger.close_run("run")
    return [row.balance for row in ledger.balances()]


def test_a_throwaway_name_that_sends_garbage_does_not_raise_what_the_operator_pays(where: str) -> None:
    """Ten seats at a cost of 9 for 12 rounds: paid at once it was 122 a round, since nobody meets the tenth's loss."""
    with Ledger(where) as ledger:
        own = garbage_rounds(ledger, vesting=8)
        assert all(balance >= 12 * COST for balance in own[:9])
        assert sum(own) == pytest.approx(12 * 10 * COST, abs=10)
        left = sum(row.unvested for row in ledger.balances())
        loser = ledger.balances()[9]
        assert (loser.balance, loser.unvested) == (0, 0)
        assert left == pytest.approx(-loser.carried, abs=10)
        assert ledger.verify().problem is None
        check_totals(ledger)
        ledger.move("repay", "n9", 9_000_000)  # what is met can vest
        assert ledger.close_run("run").vested == 9_000_000
        assert ledger.close_run("run") == (None, 0, left - 9_000_000, 0)
        assert ledger.verify().problem is None


def test_paid_at_once_garbage_costs_the_operator_122_for_90(where: str) -> None:
    with Ledger(where) as ledger:
        assert sum(garbage_rounds(ledger, vesting=0)) / 12 == pytest.approx(122e6, rel=0.01)


# In the ledger


def vesting_run(ledger: Ledger, **terms: Any) -> None:
    options: dict[str, Any] = {"vesting": 3, **terms}
    ledger.start_run("run", NAMES, HARSH, **options)
    record(ledger, "run", play(12, HARSH))


@pytest.mark.parametrize("liability", ["carry", "deposit", "floor"])
@pytest.mark.parametrize("held", [None, [0.25] * 4])
def test_everything_reconciles_under_every_liability(ledger: Ledger, liability: str, held: Any) -> None:
    ledger.enrol({"north": None})
    ledger.move("deposit", "north", 3_000_000)
    ledger.start_run("run", NAMES, HARSH, liability=liability, vesting=3)
    record(ledger, "run", play(12, HARSH), held=held)
    for _ in range(2):
        check_totals(ledger)
        assert ledger.verify().problem is None
        with ledger.reading() as connection:
            run = connection.execute(text("SELECT * FROM runs")).one()
            state = replay_vesting(connection, run, Terms(3, 0))
            amounts = {name: sum(one.amount for one in waiting_of(connection, place))
                       for place, name in enumerate(["north", "south", "east", "west"], 1)}  # fmt: skip
        kept = {row.agent: row.unvested for row in ledger.balances()}
        assert state.unvested.tolist() == [kept[name] for name in NAMES]
        assert amounts == {name: kept[name] for name in amounts}
        assert ledger.audit("run").held == [
            row.held for name in NAMES for row in ledger.balances() if row.agent == name
        ]
        ledger.close_run("run")
    assert any(row.balance for row in ledger.balances())


def test_no_payout_has_what_a_later_loss_can_claim(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, vesting=3)
    record(ledger, "run", play(3))
    with pytest.raises(RefusedError, match="there is nothing to pay out"):
        ledger.payout()
    record(ledger, "run", play(6)[3:])
    ledger.payout()
    assert all(line.amount <= 3 * COST for line in ledger.payouts()[0].items)


def test_a_restarted_writer_goes_on_with_what_is_unvested(where: str) -> None:
    played = play(12, HARSH)
    with Ledger(where) as ledger:
        ledger.start_run("run", NAMES, HARSH, vesting=3)
    for one in played:
        with Ledger(where) as ledger:
            record(ledger, "run", [one])
            ledger.close_run("run") if one.number == 7 else None
    with Ledger(where) as ledger:
        again = ledger.balances()
        assert ledger.verify().problem is None
        ledger.start_run("again", NAMES, HARSH, vesting=3)
        record(ledger, "again", played[:7])
        ledger.close_run("again")
        record(ledger, "again", played[7:])
        twice = ledger.balances()
        assert [row.unvested for row in twice] == [2 * row.unvested for row in again]


def test_unvested_money_is_moved_by_no_hand(ledger: Ledger) -> None:
    vesting_run(ledger)
    ledger.move("hold", "north", 1_000)
    for kind in ("release", "forfeit"):
        with pytest.raises(RefusedError, match=r"its escrow account holds 0.001; the rest is unvested"):
            ledger.move(kind, "north", 1_001)
        with pytest.raises(RefusedError, match=r"0.00 is held there"):
            ledger.move(kind, "north", 1, run="run")
    ledger.move("release", "north", 1_000)
    assert ledger.verify().problem is None


def test_who_joins_late_needs_the_deposit_and_cannot_take_it_back(ledger: Ledger) -> None:
    vesting_run(ledger, liability="deposit", deposit=4_000_000)
    more, everyone = play(16, HARSH, agents=5, seed=4)[12:], [*NAMES, "late"]
    with pytest.raises(
        RefusedError, match=r"'late' cannot join run 'run' with a deposit of 0.00: it must be 4.00 or more"
    ):
        record(ledger, "run", more, agents=everyone)
    assert [row.agent for row in ledger.balances()] == sorted(NAMES)  # nothing of it was recorded
    ledger.enrol({"late": None})
    ledger.move("deposit", "late", 20_000_000)
    record(ledger, "run", more, agents=everyone)
    (late,) = (row for row in ledger.balances() if row.agent == "late")
    with pytest.raises(RefusedError, match=r"a run that it joined asks for a deposit of 4.00 until it is closed"):
        ledger.move("withdraw", "late", late.deposit)
    ledger.close_run("run", agents=["late"])
    ledger.move("withdraw", "late", late.deposit)
    assert ledger.verify().problem is None
    check_totals(ledger)


def test_who_joins_late_without_a_deposit_is_settled_only_by_name(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, vesting=2)
    record(ledger, "run", play(2))
    record(ledger, "run", play(3, agents=5, seed=4)[2:], agents=[*NAMES, "late"])
    record(ledger, "run", play(4, agents=5, seed=5)[3:])
    waits = {row.agent: row.unvested for row in ledger.balances()}["late"]
    assert waits > 0
    assert ledger.close_run("run").unvested == waits
    assert ledger.close_run("run", agents=["late"]).vested == waits
    with pytest.raises(RefusedError, match="there is no agent 'nobody' in run 'run'"):
        ledger.close_run("run", agents=["nobody"])


def test_who_left_early_is_settled_only_by_name(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, vesting=2)
    everybody = np.ones(4, dtype=bool)
    rng = np.random.default_rng(3)
    for number in range(1, 7):
        sent = everybody & (np.arange(4) < (4 if number == 1 else 3))  # west leaves after its first round
        ledger.record_round("run", number, round_of(gather(0.25 * rng.normal(size=(4, 20)), sent), sent, 8))
    left = {row.agent: row.unvested for row in ledger.balances()}["west"]
    assert left > 0
    assert ledger.close_run("run").unvested == left


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vesting": -1}, "`vesting` must be an integer from 0 to 1,000, got -1"),
        ({"vesting": 2.5}, "`vesting` must be an integer"),
        ({"vesting": True}, "`vesting` must be an integer"),
        ({"deposit": 5, "liability": "deposit"}, "`deposit` needs `vesting` of at least 1 round"),
        ({"deposit": 5, "vesting": 2}, "`deposit` must be left out with `liability='carry'`"),
    ],
)
def test_terms_that_make_no_sense_are_refused(ledger: Ledger, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ledger.start_run("run", NAMES, RULE, **options)


def test_a_run_keeps_its_terms(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, liability="deposit", vesting=2, deposit=7)
    assert ledger.terms("run") == (2, 7)
    assert not ledger.start_run("run", NAMES, RULE, liability="deposit").new
    assert not ledger.start_run("run", NAMES, RULE, liability="deposit", deposit=7).new
    assert not ledger.start_run("run", NAMES, RULE, liability="deposit", vesting=2, deposit=7).new
    with pytest.raises(RefusedError, match="was started with another vesting: 2, now 0"):
        ledger.start_run("run", NAMES, RULE, liability="deposit", vesting=0)
    with pytest.raises(RefusedError, match="was started with another deposit: 7, now 8"):
        ledger.start_run("run", NAMES, RULE, liability="deposit", vesting=2, deposit=8)


# Shown


def test_statements_say_what_is_unvested_and_when_the_next_part_vests(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, vesting=3)
    record(ledger, "run", play(4))
    with ledger.reading() as connection:
        shown = {form: "".join(statement_pieces(connection, "north", form)) for form in ("text", "html", "json")}
    (north,) = (row for row in ledger.balances() if row.agent == "north")
    told = json.loads(shown["json"])
    assert micro(told["unvested"]) == north.unvested == north.escrow == micro(told["escrow"])
    assert told["vesting"][0]["rounds"] == 1
    assert f"{told['vesting'][0]['next'].rstrip('0')}" in shown["text"].split("\n")[1].replace(",", "") + shown["html"]
    assert "of it vests after one more round of its own" in shown["text"].replace("\n", " ")
    assert "unvested: a later loss can claim it" in shown["html"]
    lines = ledger.statement("north").lines
    assert "of it unvested for 3 more rounds of its own" in lines[0].why
    assert "of earlier rounds vested" in lines[3].why
    assert micro(told["vesting"][0]["next"]) <= COST
    assert '"vesting": []' in "".join(statement_json(ledger.statement("north")._replace(waiting=[]), []))


def test_the_command_line_closes_a_run(ledger: Ledger, where: str) -> None:
    ledger.start_run("run", NAMES, RULE, vesting=3)
    record(ledger, "run", play(2))
    waits = sum(row.unvested for row in ledger.balances())
    shown = guerdon("ledger", "balances", "--db", where, "--json")
    assert sum(micro(row["unvested"]) for row in json.loads(shown.stdout)["agents"]) == waits
    assert "vested, as record" in guerdon("ledger", "close", "run", "--db", where).stdout
    assert guerdon("ledger", "close", "--db", where).stdout.startswith("run run: nothing more vests")
    assert guerdon("ledger", "close", "walk", "--db", where).code == 2


# Proved


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE terms SET vesting = 2", "entries: record"),
        ("UPDATE terms SET deposit = 90000000", "lets an agent join without the deposit"),
        ("DELETE FROM closings WHERE agent = 1", "entries: record"),
        ("UPDATE entries SET amount = amount + 1 WHERE record = (SELECT MAX(record) FROM closings) AND line = 0",
         "entries: record"),
        ("UPDATE entries SET amount = amount - 1 WHERE source = (SELECT id FROM accounts WHERE owner = 3 AND "
         "kind = 'escrow') AND record < (SELECT MAX(record) FROM closings)", "entries: record"),
    ],
)  # fmt: skip
def test_it_is_recomputed_even_where_all_hashes_fit(ledger: Ledger, where: str, change: str, problem: str) -> None:
    ledger.enrol({"late": None})
    ledger.move("deposit", "late", 20_000_000)
    vesting_run(ledger, liability="deposit", deposit=4_000_000)
    record(ledger, "run", play(13, HARSH, agents=5, seed=4)[12:], agents=[*NAMES, "late"])
    ledger.close_run("run")
    assert ledger.verify().holds
    ledger.close()
    unprotect(where)
    with attacker(where) as connection:
        assert verify(connection).holds
        connection.execute(text(change))
        reseal(connection)
        assert problem in str(verify(connection).problem)
