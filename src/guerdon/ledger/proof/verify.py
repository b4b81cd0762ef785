"""Checking a whole ledger: the chain, every sum, every balance, and every reward recomputed from its evidence.

Records are read in blocks and checked with array arithmetic. If a block fails, it is checked again record by record, to
name the first bad row.
"""

import copy
import gc
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Table, func, select, text
from sqlalchemy.exc import DBAPIError

from guerdon.ledger.books import chain, tables
from guerdon.ledger.books.definitions import interfering, schema_digest
from guerdon.ledger.books.journal import DETAILS, fingerprint, load_checkpoint
from guerdon.ledger.books.money import MICRO, format_amount
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay import holding
from guerdon.ledger.pay.recorded_rules import is_replayed, restored
from guerdon.ledger.pay.recorded_terms import read
from guerdon.ledger.proof.lookup import Lookup, MismatchError, VerifierState, require
from guerdon.ledger.proof.receipts import Coverage, contradiction, coverage
from guerdon.ledger.proof.record_check import check_payments, check_record
from guerdon.ledger.proof.replay import PaymentBlock, first_difference, read_payments
from guerdon.ledger.proof.signing import Receipt

BLOCK = 50_000  # payments checked at a time
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, DBAPIError)  # bad data raise these


class Verification(NamedTuple):
    """What was checked, and the first thing that is wrong, if anything is."""

    records: int
    payments: int
    entries: int
    head: bytes
    problem: str | None
    coverage: Coverage | None = None  # of the receipt, where one was given and everything holds
    unverifiable: str | None = None  # which pay was not recomputed, because its rule is not installed here

    @property
    def holds(self) -> bool:
        """Whether everything was recomputed, and is as it should be."""
        return self.problem is None and self.unverifiable is None


def verify(
    connection: Connection, receipt: Receipt | None = None, progress: Callable[[float], None] | None = None
) -> Verification:
    """Recompute everything, and compare it with a receipt; the result names the first row that is wrong.

    A receipt says nothing of the records after it: `coverage` tells which those are. Where the version of a rule that
    paid is not installed, all but its rewards is checked, and `unverifiable` says what to install.
    """
    state, problem, covered = VerifierState(), None, None
    try:
        _check_storage(connection)
        lookup, head = _read_lookup(connection)
        state.balances = np.zeros(len(lookup.accounts) + 1, dtype=np.int64)
        largest_roster = (connection.execute(select(func.max(tables.members.c.position))).scalar() or 0) + 1
        size = max(1, BLOCK // largest_roster)
        with _no_collection():
            while state.seq < head:
                try:
                    state = _checked_to(connection, lookup, state, min(state.seq + size, head))
                except MismatchError:
                    if size == 1:
                        raise
                    size = 1  # record by record to the first bad row
                if progress is not None:
                    progress(state.seq / head)
        _check_end(connection, lookup, state)
        if receipt is not None:
            different = contradiction(connection, receipt)
            require(different is None, str(different))
            covered = coverage(connection, receipt)
    except MismatchError as bad:
        problem = str(bad)
    except UNREADABLE as error:
        problem = f"the ledger cannot be read: {error!r}"
    return Verification(state.seq, state.payments, state.entries, state.sealed, problem, covered, state.unverifiable)


@contextmanager
def _no_collection() -> Generator[None]:
    """Stop the garbage collector from repeatedly scanning rows that hold no cycles: it saves a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _checked_to(connection: Connection, lookup: Lookup, state: VerifierState, last: int) -> VerifierState:
    """Return the state after the records up to `last`."""
    following = copy.deepcopy(state)
    try:
        _check_block(connection, lookup, following, last)
    except UNREADABLE as error:
        raise MismatchError(f"records: the contents of record {last} cannot be read: {error}") from error
    return following


def _check_block(connection: Connection, lookup: Lookup, state: VerifierState, last: int) -> None:
    first = state.seq + 1
    rows = _between(connection, tables.records.c.seq, first, last)
    missing = set(range(first, last + 1)) - {row.seq for row in rows}
    if missing:
        raise MismatchError(f"records: record {min(missing)} is missing")
    block = read_payments(connection, first, last)
    _check_hashes(lookup, block)
    posted = _between(connection, tables.entries.c.record, first, last)
    entries = np.array(list(zip(*posted, strict=True)), dtype=np.int64).reshape(5, -1).T  # by column: much faster
    bounds = np.arange(first, last + 2)
    paid = np.searchsorted(block.numbers["record"], bounds)
    lines = np.searchsorted(entries[:, 0], bounds)
    _check_rewards(lookup, block, paid, first)
    for row, here, there in zip(rows, pairwise(paid), pairwise(lines), strict=True):
        check_record(lookup, state, row, block, slice(*here), entries[slice(*there)])


def _check_hashes(lookup: Lookup, block: PaymentBlock) -> None:
    """Check that each payment has the hash of its contents."""
    hashes = chain.payment_hashes(block.numbers, block.gradients, block.signatures, block.notes)
    bad = next((i for i, (own, kept) in enumerate(zip(hashes, block.hashes, strict=True)) if own != kept), None)
    check_payments(lookup, block, slice(None), bad, "does not have the hash of its contents")


def _check_rewards(lookup: Lookup, block: PaymentBlock, bounds: Any, first: int) -> None:
    """Recompute the rewards of all rounds whose rule has no memory, together for each rule and size."""
    groups = defaultdict[tuple[str, str, int, int], list[tuple[int, int, int]]](list)
    for seq, (start, stop) in enumerate(pairwise(bounds.tolist()), first):
        for row in lookup.details.get(seq, {}).get("rounds", ()):
            if stop > start and not is_replayed(row["rule"], row["cost"]):
                groups[row["rule"], row["cost"], row["is_last"], stop - start].append(
                    (start, row["request"], row["run"])
                )
    for (written, cost, is_last, count), members in groups.items():
        starts, requests, runs = np.array(members, dtype=np.int64).T
        where, rule = starts[:, None] + np.arange(count), restored(written, cost)
        asked = requests[:, None]
        own, _ = rule.pay(rule.init(count), block.round(asked, where, is_last=bool(is_last)))
        paid = block.numbers[where]
        factors = np.stack([lookup.pay_factors(*one) for one in zip(runs.tolist(), paid["agent"], strict=True)])
        check_payments(lookup, block, where, first_difference(rule, own, paid, asked, factors))


def _check_end(connection: Connection, lookup: Lookup, state: VerifierState) -> None:
    """Check what must hold after the last record: the head, leftovers, cached balances, checkpoints."""
    head = connection.execute(select(tables.ledger.c.head, tables.ledger.c.hash)).one()
    require(tuple(head) == (state.seq, state.sealed), f"ledger: the head is not record {state.seq}, the last one")
    counts = {"records": state.seq, "payments": state.payments, "entries": state.entries}
    recorded = [rows for seq, rows in lookup.details.items() if 1 <= seq <= state.seq]
    counts |= {name: sum(len(rows.get(name, ())) for rows in recorded) for name in DETAILS}
    for name, count in counts.items():
        found = connection.execute(select(func.count()).select_from(tables.metadata.tables[name])).scalar_one()
        require(found == count, f"{name}: {found} rows, of which {count} belong to a record")
    for number, account in lookup.accounts.items():
        if account.balance != state.balances[number]:
            raise MismatchError(
                f"accounts: the balance of {lookup.account(number)} is {format_amount(account.balance)}, its entries "
                f"sum to {format_amount(state.balances[number])}"
            )
    _check_checkpoints(connection, lookup, state)
    _check_holdings(connection, lookup, state)


def _check_holdings(connection: Connection, lookup: Lookup, state: VerifierState) -> None:
    """Check what is kept of when each run releases what it holds."""
    kept: dict[int, str] = {row.run: row.text for row in connection.execute(select(tables.holdings))}
    for number, run in lookup.runs.items():
        held = state.holding.get(number) if number in state.last else None
        own = None if held is None else holding.to_text(held)
        same = kept.pop(number, None) == own
        require(same, f"holdings: what is kept of run {run.name!r} does not follow from its records")
    require(not kept, f"holdings: run {min(kept, default=0)} does not exist")


def _check_checkpoints(connection: Connection, lookup: Lookup, state: VerifierState) -> None:
    saved, table = defaultdict[int, list[int]](list), tables.checkpoints
    for number, part in connection.execute(select(table.c.run, table.c.part).order_by(table.c.run, table.c.part)):
        saved[number].append(part)
    for number, run in lookup.runs.items():
        gapless = saved[number] == list(range(len(saved[number])))
        require(gapless, f"checkpoints: the parts of run {run.name!r} are not numbered from 0 without gaps")
        found = fingerprint(load_checkpoint(connection, number)) if saved[number] else None
        same = found == state.last.get(number, {}).get("checkpoint")
        require(same, f"checkpoints: the checkpoint of run {run.name!r} is not that of its last round")
    if set(saved) - set(lookup.runs):
        raise MismatchError(f"checkpoints: run {min(set(saved) - set(lookup.runs))} does not exist")


def _check_storage(connection: Connection) -> None:
    """Let the database check its own pages, indices and constraints; check that its version is one row."""
    if connection.dialect.name == "sqlite":
        found = connection.execute(text("PRAGMA integrity_check(1)")).scalar()
        require(found == "ok", f"the database file is damaged: {found}")
    found = interfering(connection)
    require(not found, f"the database has a {', a '.join(found)}: they can hide rows, or lose them")
    newest = connection.execute(select(tables.versions.c.schema).order_by(tables.versions.c.record.desc()))
    altered = "the tables, constraints or triggers are not those with which the ledger was made"
    require(newest.scalars().first() == schema_digest(connection), altered)
    versions = list(connection.execute(text("SELECT version_num FROM alembic_version")).scalars())
    shown = ", ".join(map(str, versions)) or "empty"
    require(versions == [tables.REVISION], f"alembic_version: must be {tables.REVISION} once, is {shown}")


def _read_lookup(connection: Connection) -> tuple[Lookup, int]:
    """Read the small tables; return them and the number of the last record."""
    heads = connection.execute(select(tables.ledger)).all()
    require(len(heads) == 1, f"ledger: must have one row, has {len(heads)}")
    details = defaultdict[int, dict[str, list[dict[str, Any]]]](dict)
    for table in (tables.metadata.tables[name] for name in DETAILS):
        for row in connection.execute(select(table).order_by(*table.primary_key.columns)).mappings():
            details[row["record"]].setdefault(table.name, []).append(dict(row))
    details[1]["ledger"] = [{name: getattr(heads[0], name) for name in ("name", "unit")}]
    agents, runs, accounts = (_numbered(connection, table) for table in (tables.agents, tables.runs, tables.accounts))
    keys = {row.agent: row.public_key for row in connection.execute(select(tables.keys))}
    owned = {kind: np.zeros(len(agents) + 1, dtype=np.int64) for kind in tables.PERSONAL}
    held = defaultdict[int, dict[int, int]](dict)
    for account in accounts.values():
        if account.owner in agents and account.run is None:
            owned[account.kind][account.owner] = account.id
        elif account.run is not None:
            held[account.run][account.owner] = account.id
    common = {account.kind: account.id for account in accounts.values() if account.owner is None}
    need, have = ", ".join(tables.COMMON), ", ".join(sorted(common))
    require(set(common) == set(tables.COMMON), f"accounts: there must be one each of {need}, not {have}")
    last = connection.execute(select(func.max(tables.records.c.seq))).scalar() or 0
    factors = defaultdict[int, dict[int, float]](dict)
    for row in connection.execute(select(tables.cost_factors)):
        factors[row.run][row.agent] = row.factor / MICRO
    told = connection.execute(select(tables.terms).order_by(tables.terms.c.record))
    prices = {row.run: read(row.text).price for row in told}  # what decides it stays for the whole run
    found = Lookup(heads[0].name, details, agents, keys, runs, accounts, owned, held, common, factors, prices)
    return found, max(last, heads[0].head)


def _numbered(connection: Connection, table: Table) -> dict[int, AnyRow]:
    """Return the rows of a table by number."""
    rows = {row.id: row for row in connection.execute(select(table))}
    if sorted(rows) != list(range(1, len(rows) + 1)):
        raise MismatchError(f"{table.name}: must be numbered from 1 without gaps, there is {max(rows)}")
    return rows


def _between(connection: Connection, column: Any, first: int, last: int) -> Any:
    """Return the rows of a table whose record is within these, in order."""
    query = select(column.table).where(column.between(first, last))
    return connection.execute(query.order_by(*column.table.primary_key.columns)).all()
