"""The ledger: every payment once, explained, and provable. What writes is here; what reads is in `queries`."""

import functools
import logging
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

from sqlalchemy import Connection, select

from guerdon.arrays import check_choice
from guerdon.ledger.books import checkpoints, journal, tables
from guerdon.ledger.books.checks import check_name, check_roster, clean, normal_name
from guerdon.ledger.books.database import NO_LEDGER, Database
from guerdon.ledger.books.definitions import interfering, schema_digest
from guerdon.ledger.books.errors import RefusedError, UnavailableError, translate_errors
from guerdon.ledger.pay import holding, payouts
from guerdon.ledger.pay.bank import check_account, export_payout
from guerdon.ledger.pay.closing import Closing, close_run
from guerdon.ledger.pay.cost_factors import cost_factors, factor_rows
from guerdon.ledger.pay.enrolment import enrol, held_accounts, members, next_number
from guerdon.ledger.pay.moves import move
from guerdon.ledger.pay.recorded_rules import described, restored
from guerdon.ledger.pay.recorded_terms import changed_terms, terms_of, written
from guerdon.ledger.pay.recording import Handed, Recorded, RoundRecorder, as_input
from guerdon.ledger.proof.receipts import contradiction, shares, sign_head
from guerdon.ledger.proof.replay import replay_state
from guerdon.ledger.proof.signing import Receipt
from guerdon.ledger.proof.submissions import load_public_key
from guerdon.ledger.proof.verify import verify
from guerdon.ledger.read import queries
from guerdon.ledger.read.auditing import audit_run
from guerdon.ledger.read.earnings import earnings
from guerdon.ledger.read.export import export
from guerdon.ledger.read.stakes import stakes
from guerdon.ledger.read.statements import payslips, statement
from guerdon.ledger.verified import VerifiedWork
from guerdon.looks.naming import NamedRound
from guerdon.rule import Payments, Round, Rule, padded
from guerdon.terms import AtOnce, Terms

log = logging.getLogger("guerdon.ledger")

STILL_OPEN = (
    "run %r: %d of its rounds paid the cost alone, and their extras still wait. Play one more round, and record it "
    "as the last one, `round_of(..., is_last=True)`: it settles them"
)

P = ParamSpec("P")
T = TypeVar("T")


class Resume(NamedTuple):
    """Where training stands: the last paid round, what was asked in it, the rule's state, the arrays saved."""

    round: int
    request: int
    state: Any
    arrays: dict[str, dict[str, Any]]


def _read(ask: Callable[Concatenate[Connection, P], T]) -> "Callable[Concatenate[Ledger, P], T]":
    """Return the method of a ledger that asks this of a connection."""

    @functools.wraps(ask)
    def method(self: "Ledger", *args: P.args, **kwargs: P.kwargs) -> T:
        with self.reading() as connection:
            return ask(connection, *args, **kwargs)

    return method


class Ledger:
    """A ledger in an SQLite file or a PostgreSQL database; created when it is first opened for writing.

    >>> import tempfile, pathlib
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Ledger(pathlib.Path(folder.name) / "guerdon.db") as ledger:
    ...     _ = ledger.enrol({"north": None, "south": None})
    ...     [balance.agent for balance in ledger.balances()]
    ['north', 'south']
    >>> folder.cleanup()
    """

    def __init__(
        self,
        where: str | os.PathLike[str] = "guerdon.db",
        *,
        read_only: bool = False,
        unit: str | None = None,
        patience: float = 30.0,
    ) -> None:
        """Open the ledger at a path or URL.

        `unit` names what amounts are counted in ("CREDIT" if a new ledger is not told otherwise); an existing ledger
        must have the one that is given. `patience`: seconds to wait for another writer.
        """
        if unit is not None and not re.fullmatch("[A-Z]{2,12}", unit):
            raise ValueError(f"`unit` must be 2 to 12 capital letters, such as EUR, got {unit!r}")
        self._database = Database(where, read_only=read_only, patience=patience)
        self._recorder = RoundRecorder()
        try:
            self._prepare(unit)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        with translate_errors(self.where):
            self._database.engine.dispose()

    @property
    def where(self) -> str:
        """Where the ledger is kept, without passwords."""
        return str(self._database.where)

    # Writing

    def enrol(self, agents: Mapping[str, bytes | None]) -> Recorded:
        """Open accounts for agents, given with their public keys (DER, or None); who has accounts keeps them.

        Names are trimmed and composed (NFC). One that looks like another agent's is refused.
        """
        for key in agents.values():
            if key is not None:
                load_public_key(key)
        with self._database.writing() as connection:
            record = enrol(connection, agents)
            return Recorded(record or journal.next_seq(connection) - 1, new=record is not None)

    def start_run(
        self,
        name: str,
        agents: Sequence[str],
        rule: Rule,
        terms: Terms | None = None,
        *,
        memo: str = "",
    ) -> Recorded:
        """Begin a run that pays `agents` by `rule` on `terms` (default: `Terms()`).

        The same run again (all its agents, or the first) is found, and keeps its terms unless some are given. Then
        these must have the same `hold` (or not say it), `losses`, `deposit` and cost factors; a change of the rest is
        recorded.
        """
        check_name("a run's name", name)
        check_roster(agents)
        text, cost = described(rule)
        with self._database.writing() as connection:
            agents, found = queries.as_enrolled(connection, agents), queries.find_run(connection, name)
            if found is not None:
                queries.check_same_run(connection, found, (text, cost, agents))
                rows = [] if terms is None else changed_terms(connection, found, rule, terms, agents)
                if rows:
                    journal.append(connection, "terms", {"terms": rows}, memo=clean(memo))
                return Recorded(found.record, new=False)
            own = (Terms() if terms is None else terms).under(rule)
            enrol(connection, dict.fromkeys(agents))
            number = next_number(connection, tables.runs.c.id)
            rows = {
                "runs": [{"id": number, "name": name, "rule": text, "cost": cost}],
                "members": members(connection, number, agents, start=0),
                "terms": [{"run": number, "text": written(own)}],
                "cost_factors": factor_rows(connection, number, agents, 0, own.cost_factors),
            }
            if not isinstance(own.hold, AtOnce):
                rows["accounts"] = held_accounts(connection, number, rows["members"])
            return Recorded(journal.append(connection, "run", rows, memo=clean(memo)), new=True)

    def record_round(
        self,
        run: str,
        number: int,
        round: Round,
        *,
        payments: Payments | None = None,
        rule: Rule | None = None,
        agents: Sequence[str] | None = None,
        cost_factors: Mapping[str, float] | None = None,
        gradients: Sequence[bytes | None] | None = None,
        signatures: Sequence[bytes | None] | None = None,
        notes: Sequence[str] | None = None,
        metrics: Mapping[str, float] | None = None,
        checkpoint: Mapping[str, Any] | None = None,
        work: NamedRound | None = None,
    ) -> Recorded:
        """Pay a round by the run's rule and record it with its checkpoint, all or nothing; done again, change nothing.

        `round` is what the rule is told (`Settlement.round`, or `round_of`), of the run's agents in their order. The
        rewards follow from it and from the rounds before. Rounds follow each other in `number` without gaps.

        `payments`: what the driver of the round computed (`Settlement.payments`, with cost factors), and reports. The
        ledger computes them again, and refuses the round unless all are equal to the bit. A loop that lets the ledger
        compute leaves them out, and reports those that are returned: as they are recorded, in micro-units.

        `rule`: where it is not the run's (a known variance that changes). `agents`: its agents, then new ones who
        join, and `cost_factors` those of all (see `Terms`). `gradients`: hashes of what was sent; `signatures` of them;
        `notes`: a remark on each agent; `metrics`: numbers to remember (a loss, an accuracy); `checkpoint`: groups of
        arrays to resume from, {"model": {...}, "rule": state}; `work`: what the ask carried, where looks hold the pay.
        """
        data = None if checkpoint is None else checkpoints.pack(checkpoint)
        extras: dict[str, Any] = {"gradients": gradients, "signatures": signatures, "notes": notes, "metrics": metrics}
        extras |= {"checkpoint": None if data is None else journal.fingerprint(data), "work": work}
        with self._database.writing() as connection:
            found = queries.need_run(connection, run)
            texts = (found.rule, found.cost) if rule is None else described(rule)
            given = as_input(number, texts, round, extras)
            return self._recorder.record(connection, found, given, Handed(agents, cost_factors, payments), data)

    def move(self, kind: str, agent: str, amount: int, memo: str = "", *, key: str | None = None) -> Recorded:
        """Move `amount` micro-units for an agent: deposit, withdraw, hold, release, forfeit, repay or waive.

        A deposit comes in from the bank and is withdrawn to it. What is held by hand moves out of the balance; from
        there it is released to the agent again, or forfeited to the treasury. What a run holds is moved by its terms,
        and by no hand. A carried loss is repaid through the bank, or waived; nothing is withdrawn before. The same move
        again under the same `key` is found, and not made twice.
        """
        check_choice("kind", kind, tuple(tables.MOVES))
        with self._database.writing() as connection:
            return Recorded(*move(connection, kind, agent, amount, clean(memo), key))

    def close_run(self, run: str, memo: str = "", *, agents: Sequence[str] | None = None) -> Closing:
        """Release the rest of what a run holds, as far as it is funded (`guerdon.ledger.pay.vesting`); say how much.

        It is for agents that stayed to the end: paid for one of the last rounds for which pay is held, and there from
        the beginning, or with a deposit. `agents` names others, or some: for these the run is over, and their deposits
        are free. Done again, it moves only what is new.

        Warns (and says in `open`) where rounds still wait for their extras: the last round must have been recorded with
        `is_last=True`.
        """
        with self._database.writing() as connection:
            done = close_run(connection, run, agents, clean(memo))
        if done.open:
            log.warning(STILL_OPEN, run, done.open)
        return done

    def set_payee(self, agent: str, account: str, holder: str | None = None) -> Recorded:
        """Say to which bank account an agent is paid from now on; the holder is the agent unless it is named."""
        number = check_account(account)
        owner = None if holder is None else normal_name("the holder of an account", holder)
        with self._database.writing() as connection:
            record = payouts.set_payee(connection, agent, owner, number)
            return Recorded(record or journal.next_seq(connection) - 1, new=record is not None)

    def payout(self, minimum: int = 1, memo: str = "", *, places: int | None = None, key: str | None = None) -> int:
        """Freeze all balances of at least `minimum` micro-units into a batch to be paid, and return its number.

        A loss that an agent carries is netted against its balance first. Of what is left each line pays whole coins of
        `places` decimals (by default those of the unit: 2 for most), and the rest stays in the balance. Asked for
        again under the same `key`, the same batch is found.
        """
        with self._database.writing() as connection:
            return payouts.create(connection, minimum, memo, places, key)

    def settle_payout(
        self, number: int, outcome: str, memo: str = "", *, agents: Sequence[str] | None = None
    ) -> Recorded:
        """Say what became of the lines of `agents` in a batch, or of all that are open; `memo`: the bank's reference.

        "paid": it left through the bank. "cancelled": it was not paid, and returns to the balance. "bounced": the bank
        returned it; a paid line can still bounce.
        """
        with self._database.writing() as connection:
            return Recorded(payouts.settle(connection, number, outcome, memo, agents), new=True)

    def sign(self, key: Any) -> Receipt:
        """Sign the head of the chain with an Ed25519 key; keep the receipt where no one can write to the ledger.

        It covers every record up to the signature itself, and none after it.
        """
        with self._database.writing() as connection:
            return sign_head(connection, key)[0]

    def sign_payout(self, number: int, key: Any) -> list[Receipt]:
        """Sign the head after a payout was frozen or settled; return the receipt, then one for each of its agents.

        Send each agent its own: it proves its share, and shows whether the ledger up to then was changed since.
        """
        with self._database.writing() as connection:
            return sign_head(connection, key, shares(connection, number))

    # Reading: each of one unchanging state of the ledger

    audit = _read(audit_run)
    verify = _read(verify)
    contradiction = _read(contradiction)
    keys = _read(queries.keys)
    balances = _read(queries.balances)
    earnings = _read(earnings)
    cost_factors = _read(cost_factors)
    runs = _read(queries.runs)
    rounds = _read(queries.rounds)
    payouts, find_payout = _read(payouts.payouts), _read(payouts.find_payout)
    export_payout = _read(export_payout)
    statement = _read(statement)
    payslips = _read(payslips)
    stakes = _read(stakes)
    export = _read(export)

    def resume(self, run: str) -> Resume | None:
        """Return the last paid round of a run with its checkpoint, or None where none is paid yet.

        The arrays are those of that round: none where it was recorded without a checkpoint.
        """
        with self._database.reading() as connection:
            found = queries.find_run(connection, run)
            last = None if found is None else queries.last_round(connection, found.id)
            if found is None or last is None:
                return None
            data = journal.load_checkpoint(connection, found.id)
            empty = restored(found.rule, found.cost).init(queries.count_members(connection, found.id))
            state = padded(empty, replay_state(connection, found.id))
        if last.checkpoint is not None and journal.fingerprint(data) != last.checkpoint:
            raise UnavailableError(f"the checkpoint of run {run!r}, round {last.number}, is damaged; run `verify`")
        return Resume(last.number, last.request, state, checkpoints.unpack(data) if data else {})

    def roster(self, run: str) -> list[str]:
        """Return the agents of a run in their order; none if it has not begun."""
        with self._database.reading() as connection:
            found = queries.find_run(connection, run)
            return [] if found is None else list(queries.roster(connection, found.id).names)

    def terms(self, run: str) -> Terms:
        """Return the terms of a run as they are now."""
        with self.reading() as connection:
            found = queries.need_run(connection, run)
            return replace(terms_of(connection, found.id), cost_factors=queries.named_factors(connection, found.id))

    def collateral(self, run: str) -> dict[str, tuple[int, int]]:
        """Return what each agent has deposited, and what a run holds of it: what can cover a loss in the run."""
        with self.reading() as connection:
            return queries.collateral(connection, queries.find_run(connection, run))

    def held(self, agent: str) -> list[holding.Held]:
        """Return what is held of an agent, run by run: how much, why, and until when."""
        with self.reading() as connection:
            return holding.held_of(connection, queries.find_agent(connection, agent).id)

    def common_balances(self) -> dict[str, int]:
        """Return the balances of treasury, bank and payable."""
        with self.reading() as connection:
            return {kind: account.balance for kind, account in queries.common_accounts(connection).items()}

    @property
    def unit(self) -> str:
        """What amounts are counted in."""
        with self._database.reading() as connection:
            return connection.execute(select(tables.ledger.c.unit)).scalar_one()

    @functools.cached_property
    def name(self) -> str:
        """The ledger's random name: no record, commitment or signature fits into another ledger."""
        with self._database.reading() as connection:
            return connection.execute(select(tables.ledger.c.name)).scalar_one()

    @property
    def files(self) -> Path:
        """The folder for files beside the ledger: reports of rounds that may be looked at.

        Beside an SQLite file it has the same name with `.files`. For a database elsewhere the variable GUERDON_FILES
        names it.
        """
        return self._database.files

    @property
    def looks(self) -> VerifiedWork:
        """Verified work: roots that members commit to, coins, looks and verdicts."""
        return VerifiedWork(self._database, self.name)

    def reading(self) -> AbstractContextManager[Connection]:
        """Give a connection that sees one unchanging state, for questions that are not answered here."""
        return self._database.reading()

    def _prepare(self, unit: str | None) -> None:
        """Create the ledger if there is none yet; raise if it has another unit."""
        database = self._database
        with database.reading() as connection:
            there = database.check_revision(connection)
            found = interfering(connection)
        if found:
            raise RefusedError(
                f"the ledger {self.where} must have no rules and no row security, has a {', a '.join(found)}: they can "
                "hide rows, or lose them; drop them, then run `guerdon ledger verify`"
            )
        if not there and database.read_only:
            raise UnavailableError(NO_LEDGER.format(self.where))
        if not there:
            with database.creating() as connection:
                if not database.check_revision(connection):  # nobody else was quicker
                    database.upgrade(connection)
                    name = secrets.token_hex(16)
                    journal.open_ledger(connection, name, unit or "CREDIT", schema_digest(connection))
        if unit is not None and unit != self.unit:
            raise RefusedError(f"the ledger {self.where} counts in {self.unit}, not in {unit}")
