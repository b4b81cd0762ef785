"""Pay that is held for rounds: what a later loss can claim, what is an agent's for good, and what the end gives."""

import json
from collections import deque
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from guerdon import AffineCost, OutputAgreement, gather, round_of
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.pay.holding import from_text, to_text
from guerdon.ledger.pay.losses import Standing
from guerdon.ledger.pay.vesting import Played, Vested, begin, closing, next_release, settle_round
from guerdon.ledger.proof.verify import verify
from guerdon.ledger.read.render import statement_pieces
from guerdon.ledger.read.stakes import take_home
from guerdon.terms import Terms, Vesting
from tests.ledger.test_tampering import attacker, reseal, unprotect
from tests.support.command_line import run as guerdon
from tests.support.ledger_scenes import HARSH, NAMES, RULE, check_totals, micro, on, play, record

COST = 9_000_000


def slowly(rewards: list[int], rounds: int, cost: int) -> list[tuple[int, int, int]]:
    """One agent under `carry`, as the docs say it: what is released, held and carried after each of its rounds."""
    parcels, released, debt, allowed, told = deque[list[int]](), 0, 0, 0, list[tuple[int, int, int]]()
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
            due = min(parcel[1], allowed - released) if parcel[0] <= number - rounds else 0
            parcel[1], released = parcel[1] - due, released + due
        told.append((released, sum(parcel[1] for parcel in parcels), debt))
    return told


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_it_is_what_the_docs_say(rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    rewards, nothing = rng.integers(-20, 30, size=(40, 30)), np.zeros(40, dtype=np.int64)
    state, carried, released = begin(40, rounds), nothing, nothing
    expected = [slowly(row.tolist(), rounds, 9) for row in rewards]
    for number in range(30):
        standing, played = Standing(nothing, nothing, carried), Played(np.ones(40, dtype=bool), 9, number)
        flows, state = settle_round("carry", rewards[:, number], standing, state, played)
        carried = carried + flows.to_carried - flows.from_carried
        released = released + flows.released
        found = np.stack([released, state.held, -carried], axis=1)
        assert found.tolist() == [list(one[number]) for one in expected]


@pytest.mark.parametrize("losses", ["carry", "deposit", "floor"])
def test_losses_are_met_from_what_is_held_then_from_the_deposit(losses: str) -> None:
    has = [np.array([value]) for value in (100, 5, -0)]  # balance, deposit, carried
    state = begin(1, 2)._replace(held=np.array([20]), waiting=np.array([[10, 10]]))
    flows, after = settle_round(losses, np.array([-32]), Standing(*has), state, Played(np.array([True]), 9, 1))
    assert (flows.from_held[0], after.held[0], flows.from_agent[0]) == (20, 0, 0)  # what was released stays
    left = {"carry": (0, 12, 0), "deposit": (5, 7, 0), "floor": (0, 0, 12)}[losses]
    assert (flows.from_deposit[0], flows.from_carried[0], flows.cut[0]) == left


def test_leaving_before_it_is_released_takes_nothing_whatever_the_rewards() -> None:
    rewards = np.random.default_rng(0).integers(-170_000_000, 300_000_000, size=(200, 20))
    for losses in ("carry", "floor"):
        takes, _ = take_home(Terms(Vesting(20), losses), rewards, COST)
        assert not takes.any()
        takes, _ = take_home(Terms(Vesting(5), losses), rewards, COST)
        assert takes.max() == 15 * COST  # no more than the work of the rounds that were released


# What the end of a run gives


def one_closing(held: Any, missing: Any, owed: Any, chosen: Any = None) -> list[int]:
    state = begin(len(held), 1)._replace(held=np.array(held), allowance=np.array(missing))
    debts = np.array(owed)
    everyone = np.ones(len(held), dtype=bool) if chosen is None else np.array(chosen)
    return closing(state._replace(carried=debts), -debts, everyone).tolist()


def test_work_is_paid_to_its_cost_and_beyond_it_what_was_met() -> None:
    assert one_closing([18, 7, 0], [9, 9, 9], [0, 0, 0]) == [18, 7, 0]
    assert one_closing([18, 18, 0], [9, 9, 9], [0, 0, 4]) == [16, 16, 0]
    assert one_closing([18, 18, 0], [9, 9, 0], [0, 0, 99]) == [9, 9, 0]
    assert one_closing([18, 18, 0], [-3, 9, 9], [0, 0, 0]) == [18, 18, 0]  # more than its cost was released before
    assert one_closing([18, 18, 0], [9, 9, 9], [0, 0, 5], [True, False, False]) == [13, 0, 0]


def test_a_loss_that_raises_nobodys_pay_takes_nothing_from_others() -> None:
    """All that the run pays is less than its work cost: somebody's loss was not what the others earned more by."""
    assert one_closing([18, 0, 0], [9, 9, 9], [0, 500, 500]) == [18, 0, 0]
    assert one_closing([18, 18, 0], [9, 9, 9], [0, 0, 500]) == [13, 14, 0]  # 27 in all, as the work cost


def test_amounts_near_the_limit_do_not_overflow() -> None:
    most = 10**15
    assert one_closing([most, most, 0], [0, 0, 0], [0, 0, most]) == [most // 2, most // 2, 0]
    assert sum(one_closing([most, most, 7], [0, 0, 0], [0, 0, most])) == most + 7


def garbage_rounds(ledger: Ledger, hold: int, rounds: int = 12) -> list[int]:
    """Nine agents work, the tenth sends garbage under a name that nobody will see again; return the balances."""
    names, rng, sent = [f"n{i}" for i in range(10)], np.random.default_rng(0), np.ones(10, dtype=bool)
    ledger.start_run("run", names, OutputAgreement(AffineCost(1, 1)), on(hold=hold))
    for number in range(1, rounds + 1):
        reports = rng.normal(size=(10, 50))
        reports[9] *= 1000
        ledger.record_round("run", number, round_of(gather(reports, sent), sent, 8))
    ledger.close_run("run")
    return [row.balance for row in ledger.balances()]


def test_a_throwaway_name_that_sends_garbage_does_not_raise_what_the_operator_pays(where: str) -> None:
    """Ten seats at a cost of 9 for 12 rounds: paid at once it was 122 a round, since nobody meets the tenth's loss."""
    with Ledger(where) as ledger:
        own = garbage_rounds(ledger, hold=8)
        assert all(balance >= 12 * COST for balance in own[:9])
        assert sum(own) == pytest.approx(12 * 10 * COST, abs=10)
        left = sum(row.held for row in ledger.balances())
        loser = ledger.balances()[9]
        assert (loser.balance, loser.held) == (0, 0)
        assert left == pytest.approx(-loser.carried, abs=10)
        assert ledger.verify().problem is None
        check_totals(ledger)
        ledger.move("repay", "n9", 9_000_000)  # what is met can be released
        assert ledger.close_run("run").released == 9_000_000
        assert ledger.close_run("run") == (None, 0, left - 9_000_000, 0)
        assert ledger.verify().problem is None


def test_paid_at_once_garbage_costs_the_operator_122_for_90(where: str) -> None:
    with Ledger(where) as ledger:
        assert sum(garbage_rounds(ledger, hold=0)) / 12 == pytest.approx(122e6, rel=0.01)


# In the ledger


def holding_run(ledger: Ledger, **terms: Any) -> None:
    options: dict[str, Any] = {"hold": 3, **terms}
    ledger.start_run("run", NAMES, HARSH, on(**options))
    record(ledger, "run", play(12, HARSH))


def kept_state(ledger: Ledger, run: str, rounds: int) -> Any:
    """Return the state that the ledger keeps of a run that holds pay."""
    with ledger.reading() as connection:
        query = "SELECT holdings.text FROM holdings JOIN runs ON runs.id = run WHERE runs.name = :run"
        return from_text(connection.execute(text(query), {"run": run}).scalar_one(), Vesting(rounds))


@pytest.mark.parametrize("losses", ["carry", "deposit", "floor"])
def test_everything_reconciles_however_losses_are_covered(ledger: Ledger, losses: Any) -> None:
    ledger.enrol({"north": None})
    ledger.move("deposit", "north", 3_000_000)
    ledger.start_run("run", NAMES, HARSH, on(losses, 3))
    record(ledger, "run", play(12, HARSH))
    for _ in range(2):
        check_totals(ledger)
        assert ledger.verify().problem is None
        kept, state = {row.agent: row.held for row in ledger.balances()}, kept_state(ledger, "run", 3)
        assert state.held.tolist() == [kept[name] for name in NAMES]
        for place, name in enumerate(NAMES):
            told = [(one.run, one.amount, (one.rounds, one.next)) for one in ledger.held(name)]
            assert told == ([("run", kept[name], next_release(state, place))] if kept[name] else [])
        ledger.close_run("run")
    assert any(row.balance for row in ledger.balances())


def test_the_state_that_is_kept_is_what_the_rounds_lead_to(ledger: Ledger) -> None:
    """It is read, not replayed; a loop over the recorded rewards comes to the same, also where somebody was away."""
    holding_run(ledger)
    released, held, carried = zip(*(slow_member(ledger, name) for name in NAMES), strict=True)
    has = {row.agent: row for row in ledger.balances()}
    assert [has[name].balance for name in NAMES] == list(released)
    assert kept_state(ledger, "run", 3).held.tolist() == list(held)
    assert [-has[name].carried for name in NAMES] == list(carried)


def slow_member(ledger: Ledger, name: str) -> tuple[int, int, int]:
    """Return what is released, held and carried of a member, by the loop over its paid rounds."""
    own = [line.reward for line in ledger.statement(name).lines if line.status == "paid"]
    return slowly([reward for reward in own if reward is not None], 3, COST)[-1]


def test_a_state_is_kept_as_it_was(ledger: Ledger) -> None:
    holding_run(ledger)
    state = kept_state(ledger, "run", 3)
    assert state.waiting.shape == (4, 3)
    for name, part in from_text(to_text(state), Vesting(3))._asdict().items():
        np.testing.assert_array_equal(part, getattr(state, name))
    nobody = from_text(to_text(begin(0, 3)), Vesting(3))
    assert isinstance(nobody, Vested)
    assert nobody.waiting.shape == (0, 3)


def test_what_two_runs_hold_is_kept_apart(ledger: Ledger) -> None:
    """A loss in one run takes nothing of another, and each is released by its own terms."""
    for run, rule in (("calm", RULE), ("harsh", HARSH)):
        ledger.start_run(run, NAMES, rule, on(hold=3))
        record(ledger, run, play(2, rule))
    calm = {name: {one.run: one.amount for one in ledger.held(name)}.get("calm", 0) for name in NAMES}
    record(ledger, "harsh", play(12, HARSH)[2:])
    ledger.close_run("harsh")
    ledger.move("hold", "north", 1_000)
    told = {name: {one.run: one.amount for one in ledger.held(name)} for name in NAMES}
    assert {name: told[name].get("calm", 0) for name in NAMES} == calm
    assert told["north"][None] == 1_000
    assert {row.agent: row.held for row in ledger.balances()} == {n: sum(parts.values()) for n, parts in told.items()}
    assert ledger.verify().problem is None
    check_totals(ledger)


def test_no_payout_has_what_a_later_loss_can_claim(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, on(hold=3))
    record(ledger, "run", play(3))
    with pytest.raises(RefusedError, match="there is nothing to pay out"):
        ledger.payout()
    record(ledger, "run", play(6)[3:])
    ledger.payout()
    assert all(line.amount <= 3 * COST for line in ledger.payouts()[0].items)


def test_a_restarted_writer_goes_on_with_what_is_held(where: str) -> None:
    played = play(12, HARSH)
    with Ledger(where) as ledger:
        ledger.start_run("run", NAMES, HARSH, on(hold=3))
    for one in played:
        with Ledger(where) as ledger:
            record(ledger, "run", [one])
            ledger.close_run("run") if one.number == 7 else None
    with Ledger(where) as ledger:
        again = ledger.balances()
        assert ledger.verify().problem is None
        ledger.start_run("again", NAMES, HARSH, on(hold=3))
        record(ledger, "again", played[:7])
        ledger.close_run("again")
        record(ledger, "again", played[7:])
        twice = ledger.balances()
        assert [row.held for row in twice] == [2 * row.held for row in again]


def test_what_a_run_holds_is_moved_by_no_hand(ledger: Ledger) -> None:
    holding_run(ledger)
    ledger.move("hold", "north", 1_000)
    for kind in ("release", "forfeit"):
        with pytest.raises(RefusedError, match=r"its held account has 0\.001 by hand; what a run holds is released by"):
            ledger.move(kind, "north", 1_001)
    ledger.move("release", "north", 1_000)
    assert ledger.verify().problem is None


def test_who_joins_late_needs_the_deposit_and_cannot_take_it_back(ledger: Ledger) -> None:
    holding_run(ledger, losses="deposit", deposit=4)
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
    ledger.start_run("run", NAMES, RULE, on(hold=2))
    record(ledger, "run", play(2))
    record(ledger, "run", play(3, agents=5, seed=4)[2:], agents=[*NAMES, "late"])
    record(ledger, "run", play(4, agents=5, seed=5)[3:])
    waits = {row.agent: row.held for row in ledger.balances()}["late"]
    assert waits > 0
    assert ledger.close_run("run").held == waits
    assert ledger.close_run("run", agents=["late"]).released == waits
    with pytest.raises(RefusedError, match="there is no agent 'nobody' in run 'run'"):
        ledger.close_run("run", agents=["nobody"])


def test_who_left_early_is_settled_only_by_name(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, on(hold=2))
    everybody = np.ones(4, dtype=bool)
    rng = np.random.default_rng(3)
    for number in range(1, 7):
        sent = everybody & (np.arange(4) < (4 if number == 1 else 3))  # west leaves after its first round
        ledger.record_round("run", number, round_of(gather(0.25 * rng.normal(size=(4, 20)), sent), sent, 8))
    left = {row.agent: row.held for row in ledger.balances()}["west"]
    assert left > 0
    assert ledger.close_run("run").held == left


def kinds(ledger: Ledger) -> list[str]:
    with ledger.reading() as connection:
        return list(connection.execute(text("SELECT kind FROM records")).scalars())


def test_a_run_keeps_its_terms(ledger: Ledger) -> None:
    begun = on("deposit", 2, deposit=7e-6)
    ledger.start_run("run", NAMES, RULE, begun)
    assert ledger.terms("run") == begun
    for told in (begun, Terms(losses="deposit", deposit=7e-6)):  # nothing said of `hold`, or the same
        assert not ledger.start_run("run", NAMES, RULE, told).new
    with pytest.raises(RefusedError, match=r"with another `hold`: Vesting\(rounds=2\), now Vesting\(rounds=3\)"):
        ledger.start_run("run", NAMES, RULE, on("deposit", 3, deposit=7e-6))
    with pytest.raises(RefusedError, match=r"with another `deposit`: 0.000007, now 0.000008; begin another run to"):
        ledger.start_run("run", NAMES, RULE, on("deposit", 2, deposit=8e-6))
    with pytest.raises(RefusedError, match="with another `losses`: 'deposit', now 'carry'"):
        ledger.start_run("run", NAMES, RULE, on("carry", 2))
    assert kinds(ledger).count("terms") == 0


def test_terms_that_change_are_a_record_of_their_own(ledger: Ledger, where: str) -> None:
    ledger.start_run("run", NAMES, RULE, on(hold=2))
    record(ledger, "run", play(2))
    changed = on(hold=2, quorum=3, deadline=60.0, budget=500.0)
    assert not ledger.start_run("run", NAMES, RULE, changed).new
    assert not ledger.start_run("run", NAMES, RULE, changed).new  # the same again: nothing
    assert ledger.terms("run") == changed
    assert kinds(ledger).count("terms") == 1
    record(ledger, "run", play(3)[2:])
    with Ledger(where) as again:
        assert again.terms("run") == changed
        assert again.verify().problem is None


# Shown


def test_statements_say_what_is_held_and_when_the_next_part_is_released(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, on(hold=3))
    record(ledger, "run", play(4))
    with ledger.reading() as connection:
        shown = {form: "".join(statement_pieces(connection, "north", form)) for form in ("text", "html", "json")}
    (north,) = (row for row in ledger.balances() if row.agent == "north")
    told, (held,) = json.loads(shown["json"]), ledger.held("north")
    assert (held.run, held.amount, held.rounds) == ("run", north.held, 1)
    assert 0 < held.next <= COST
    assert micro(told["held"]) == north.held
    assert held.words in " ".join(shown["text"].split())
    assert held.words in " ".join(shown["html"].split())
    assert held.words.endswith("of it is released after one more round of its own, unless a loss takes it")
    lines = ledger.statement("north").lines
    assert "held for 3 more rounds of its own" in lines[0].why
    assert "of earlier rounds released" in lines[3].why


def test_the_command_line_closes_a_run(ledger: Ledger, where: str) -> None:
    ledger.start_run("run", NAMES, RULE, on(hold=3))
    record(ledger, "run", play(2))
    waits = sum(row.held for row in ledger.balances())
    shown = guerdon("ledger", "balances", "--db", where, "--json")
    assert sum(micro(row["held"]) for row in json.loads(shown.stdout)["agents"]) == waits
    assert "released, as record" in guerdon("ledger", "close", "run", "--db", where).stdout
    assert guerdon("ledger", "close", "--db", where).stdout.startswith("run run: nothing is released")
    assert guerdon("ledger", "close", "walk", "--db", where).code == 2


# Proved


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE terms SET text = replace(text, '\"rounds\"\\:3', '\"rounds\"\\:2')", "entries: record"),
        ("UPDATE terms SET text = replace(text, '\"deposit\"\\:4', '\"deposit\"\\:90')",
         "lets an agent join without the deposit"),
        ("DELETE FROM closings WHERE agent = 1", "entries: record"),
        ("UPDATE entries SET amount = amount + 1 WHERE record = (SELECT MAX(record) FROM closings) AND line = 0",
         "entries: record"),
        ("UPDATE entries SET amount = amount - 1 WHERE source = (SELECT id FROM accounts WHERE owner = 3 AND "
         "kind = 'held' AND run = 1) AND record < (SELECT MAX(record) FROM closings)", "entries: record"),
    ],
)  # fmt: skip
def test_it_is_recomputed_even_where_all_hashes_fit(ledger: Ledger, where: str, change: str, problem: str) -> None:
    ledger.enrol({"late": None})
    ledger.move("deposit", "late", 20_000_000)
    holding_run(ledger, losses="deposit", deposit=4)
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
