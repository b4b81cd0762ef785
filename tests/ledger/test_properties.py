"""Any sequence of rounds, replays, moves, payouts and restarts keeps what must always hold."""

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text

from guerdon import gather, round_of
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.books.money import to_micro
from guerdon.rule import padded
from tests.ledger.conftest import NO_SERVER, SERVER, create, new_database
from tests.support.ledger_scenes import HARSH, NAMES, REMEMBERING, RULE, check_totals, on, prepare

COIN = 10_000  # micro-units: a hundredth
RULES = {"plain": RULE, "harsh": HARSH, "past": REMEMBERING}


class Books(RuleBasedStateMachine):
    """A ledger under use, beside a model of it in plain numbers."""

    postgresql = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.database = new_database() if self.postgresql else None
        self.where = self.database.__enter__() if self.database else str(Path(self.folder) / "guerdon.db")
        self.ledger = Ledger(prepare(self.where, create))
        self.calls: list[dict[str, Any]] = []  # all rounds ever recorded
        self.last: Counter[str] = Counter()
        self.states: dict[str, Any] = {}
        self.rosters: dict[str, list[str]] = {}
        self.earned: Counter[str] = Counter()  # rewards of all rounds
        self.in_and_out: Counter[str] = Counter()  # deposits, less withdrawals, payouts, forfeits, and so on
        self.open: list[int] = []

    @initialize(policies=st.permutations(["carry", "deposit", "floor"]), held_for=st.permutations([0, 1, 3]))
    def begin(self, policies: list[Any], held_for: list[int]) -> None:
        for (name, payer), losses, rounds in zip(RULES.items(), policies, held_for, strict=True):
            self.ledger.start_run(name, NAMES, payer, on(losses, rounds))
            self.states[name] = payer.init(len(NAMES))
            self.rosters[name] = list(NAMES)

    @rule(run=st.sampled_from(list(RULES)), seed=st.integers(0, 10**6), request=st.sampled_from([1, 8]))
    def play_round(self, run: str, seed: int, request: int) -> None:
        rng = np.random.default_rng(seed)
        roster = list(self.rosters[run])
        gradients, taking = rng.normal(size=(len(roster), 3)), rng.random(len(roster)) < 0.8
        evidence = gather(gradients, taking)
        payments, self.states[run] = RULES[run].pay(self.states[run], round_of(evidence, taking, request))
        call: dict[str, Any] = {"run": run, "number": self.last[run] + 1, "round": round_of(evidence, taking, request),
                                "agents": roster, "checkpoint": {"model": {"w": gradients}}}  # fmt: skip
        recorded = self.ledger.record_round(**call)
        assert recorded.new
        assert recorded.payments is not None
        np.testing.assert_array_equal(to_micro(recorded.payments.released), to_micro(payments.released))
        self.last[run] += 1
        self.calls.append(call)
        self.earned.update(dict(zip(roster, to_micro(payments.released).tolist(), strict=True)))

    @precondition(lambda self: sum(map(len, self.rosters.values())) < 3 * len(NAMES) + 3)
    @rule(run=st.sampled_from(list(RULES)))
    def let_somebody_join(self, run: str) -> None:
        """It is there from the next round of the run on, without a past."""
        self.rosters[run].append(f"newcomer {sum(map(len, self.rosters.values()))}")
        self.states[run] = padded(RULES[run].init(len(self.rosters[run])), self.states[run])

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.calls))
        head = self.ledger.verify().head
        assert not self.ledger.record_round(**call).new
        with pytest.raises(RefusedError, match="is recorded already"):
            self.ledger.record_round(**(call | {"round": call["round"]._replace(request=9)}))
        assert self.ledger.verify().head == head

    @rule(agent=st.sampled_from(NAMES), amount=st.integers(1, 5_000_000))
    def deposit(self, agent: str, amount: int) -> None:
        self.ledger.move("deposit", agent, amount)
        self.in_and_out[agent] += amount

    @rule(
        kind=st.sampled_from(["withdraw", "hold", "release", "forfeit", "repay", "waive"]),
        agent=st.sampled_from(NAMES),
        part=st.floats(0, 1.5),
    )
    def move(self, kind: str, agent: str, part: float) -> None:
        account = {"withdraw": "deposit", "hold": "balance", "repay": "carried", "waive": "carried"}.get(kind, "held")
        (balance,) = (row for row in self.ledger.balances() if row.agent == agent)
        by_hand = sum(one.amount for one in self.ledger.held(agent) if one.run is None)
        available = by_hand if account == "held" else abs(getattr(balance, account))
        amount = max(1, round(part * available))
        if amount > available or (kind == "withdraw" and balance.carried < 0):
            with pytest.raises(RefusedError, match=f"cannot {kind}"):
                self.ledger.move(kind, agent, amount)
            return
        self.ledger.move(kind, agent, amount)
        self.in_and_out[agent] -= amount if kind in ("withdraw", "forfeit") else 0
        self.in_and_out[agent] += amount if kind in ("repay", "waive") else 0

    @rule(run=st.sampled_from(list(RULES)), named=st.booleans())
    def close_a_run(self, run: str, named: bool) -> None:
        before = sum(row.held for row in self.ledger.balances())
        done = self.ledger.close_run(run, agents=NAMES[:2] if named else None)
        assert before - sum(row.held for row in self.ledger.balances()) == done.released
        assert self.ledger.close_run(run, agents=NAMES[:2] if named else None).released == 0

    @rule()
    def freeze(self) -> None:
        net = {row.agent: row.balance + row.carried for row in self.ledger.balances() if row.balance}
        due = {agent: amount - amount % COIN for agent, amount in net.items() if amount >= COIN}  # nobody who owes more
        if not due:
            with pytest.raises(RefusedError, match="nothing to pay out"):
                self.ledger.payout()
            return
        self.open.append(self.ledger.payout())
        batch = self.ledger.payouts()[-1]
        paid = {line.agent: line.amount for line in batch.items}
        assert paid == due
        self.in_and_out.subtract(due)
        left = {row.agent: row.balance for row in self.ledger.balances() if row.agent in due}
        assert all(amount < COIN for amount in left.values())

    @precondition(lambda self: self.open)
    @rule(data=st.data(), outcome=st.sampled_from(["paid", "cancelled"]))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        number = data.draw(st.sampled_from(self.open))
        self.open.remove(number)
        waiting = [line for line in self.ledger.find_payout(number).items if line.outcome == "open"]
        if not waiting:
            return
        self.ledger.settle_payout(number, outcome)
        if outcome == "cancelled":
            self.in_and_out.update({line.agent: line.amount for line in waiting})
        with pytest.raises(RefusedError, match=f"payout {number} was .*{outcome}"):
            self.ledger.settle_payout(number, "paid")

    @rule(data=st.data())
    def bounce(self, data: st.DataObject) -> None:
        batches = [(batch.number, line) for batch in self.ledger.payouts() for line in batch.items]
        if not batches:
            return
        number, line = data.draw(st.sampled_from(batches))
        if line.outcome in ("open", "paid"):
            self.ledger.settle_payout(number, "bounced", agents=[line.agent])
            self.in_and_out[line.agent] += line.amount
        else:
            with pytest.raises(RefusedError, match="cannot become bounced"):
                self.ledger.settle_payout(number, "bounced", agents=[line.agent])

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.ledger = Ledger(self.where)

    @invariant()
    def verifies(self) -> None:
        found = self.ledger.verify()
        assert found.problem is None
        assert found.payments == sum(len(call["agents"]) for call in self.calls)

    @invariant()
    def nobodys_money_is_lost(self) -> None:
        with self.ledger._database.reading() as connection:
            cut = connection.execute(
                text("SELECT name, SUM(cut) FROM payments JOIN agents ON agent = id GROUP BY name")
            )
            cuts = Counter({name: int(total) for name, total in cut})
            legs = connection.execute(text("SELECT SUM(amount) FROM legs GROUP BY record")).scalars().all()
        assert not any(legs)
        for row in self.ledger.balances():
            held = row.balance + row.deposit + row.held + row.carried
            assert held == self.earned[row.agent] + cuts[row.agent] + self.in_and_out[row.agent]
        own = (row.balance + row.deposit + row.held + row.carried for row in self.ledger.balances())
        assert sum(self.ledger.common_balances().values()) == -sum(own)

    @invariant()
    def what_is_held_is_there(self) -> None:
        for row in self.ledger.balances():
            told = self.ledger.statement(row.agent).held
            assert all(one.amount > 0 and 0 <= one.next <= one.amount for one in told)
            assert sum(one.amount for one in told) == row.held

    @invariant()
    def can_resume(self) -> None:
        for run in RULES:
            resumed = self.ledger.resume(run)
            mine = [call for call in self.calls if call["run"] == run]
            assert (resumed is None) == (not mine)
            if resumed is not None:
                assert resumed.round == mine[-1]["number"]
                np.testing.assert_array_equal(resumed.arrays["model"]["w"], mine[-1]["checkpoint"]["model"]["w"])

    def teardown(self) -> None:
        check_totals(self.ledger)
        self.ledger.close()
        if self.database:
            self.database.__exit__()
        shutil.rmtree(self.folder)


class PostgresqlBooks(Books):
    postgresql = True


def check(machine: type[Books], examples: int) -> None:
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples, stateful_step_count=15, deadline=None, suppress_health_check=quiet,
                          derandomize=True, database=None),
    )  # fmt: skip


@pytest.mark.parametrize(
    "machine", [Books, pytest.param(PostgresqlBooks, marks=pytest.mark.skipif(not SERVER, reason=NO_SERVER))]
)
@pytest.mark.parametrize("examples", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_books_always_balance(machine: type[Books], examples: int) -> None:
    check(machine, examples)
