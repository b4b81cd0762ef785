"""An agent's statement: what was asked, what the agent earned and why, and where the money is, line by line."""

import heapq
import math
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from datetime import datetime
from itertools import groupby, islice
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, func, literal, select, union

from guerdon.ledger.books import tables
from guerdon.ledger.books.chain import STATUS_CODES
from guerdon.ledger.books.money import MICRO, format_amount
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay.holding import Held, held_of
from guerdon.ledger.pay.recorded_rules import restored
from guerdon.ledger.pay.recorded_terms import read
from guerdon.ledger.read.looked import settled_words, status_of, until_words
from guerdon.ledger.read.queries import (
    FACTOR,
    OF_PAYMENT,
    Balance,
    balances,
    entries_of,
    find_agent,
    find_run,
    last_round,
    per_member,
    roster,
)
from guerdon.rule import Payments
from guerdon.terms import AtOnce, Hold, Looks, Vesting
from guerdon.words import explain

BLOCK = 1000  # rows read at a time
_MOVED = {
    "deposit": "deposit paid in",
    "withdraw": "deposit paid back",
    "hold": "held by hand, out of the balance",
    "release": "released to the balance",
    "forfeit": "forfeited of what was held by hand",
    "repay": "of a carried loss repaid",
    "waive": "of a carried loss waived",
    "payout": "frozen to be paid out",
}


class Line(NamedTuple):
    """One event; amounts are in micro-units, and the last four are what the accounts held afterwards."""

    record: int
    at: datetime
    kind: str
    run: str | None
    round: int | None
    request: int | None
    status: str | None
    reward: int | None
    cut: int | None
    change: int  # of the balance
    why: str
    hash: str | None  # of the payment
    balance: int
    deposit: int
    held: int
    carried: int

    @property
    def what(self) -> str:
        """What happened, in a few words."""
        return f"{self.run}, round {self.round}" if self.kind == "round" else self.kind.replace("settle", "payout")


class Statement(NamedTuple):
    """All that happened to one agent's money, in order, and what it has now."""

    agent: str
    number: int
    unit: str
    ledger: str
    has: Balance
    held: list[Held]  # what is held, run by run
    lines: list[Line]

    @property
    def earned(self) -> int:
        """What the treasury gave it in all, less what it took back."""
        return self.has.earned


class Payslip(NamedTuple):
    """What an agent was paid for a round of a run and why, and what it has now; amounts in micro-units.

    `held`: until when looks hold this pay, in words; empty where none do.
    """

    agent: str
    round: int
    request: int
    status: str
    reward: int
    why: str
    balance: int
    gradient: bytes | None = None  # the hash of what it sent
    held: str = ""


def payslips(connection: Connection, run: str, number: int | None = None) -> list[Payslip]:
    """Return what each agent of a run was paid for a round (the last), and why; empty if it is not paid yet."""
    found = find_run(connection, run)
    last = None if found is None else last_round(connection, found.id, *([] if number is None else [number]))
    if found is None or last is None or number not in (None, last.number):
        return []
    people, (amounts,) = roster(connection, found.id), per_member(connection, found.id, [], "balance", ["agent"])
    changes = Counter[int]()
    for source, target, amount in entries_of(connection, last.record).tolist():
        changes.update({source: -amount, target: amount})
    slips: list[Payslip] = []
    query = _paid().where(tables.payments.c.record == last.record).order_by(tables.payments.c.position)
    for row in connection.execute(query):
        moved = Counter({kind: changes[own[row.position]] for kind, own in people.accounts.items()})
        hold = read(row.terms).hold
        status, until = status_of(row.status, hold), _until(row, hold) if isinstance(hold, Looks) else ""
        paid = (row.number, row.request, status, row.released, _why(row, moved))
        slips.append(Payslip(people.names[row.position], *paid, amounts[row.position], row.gradient, until))
    return slips


def statement(connection: Connection, agent: str) -> Statement:
    """Return everything that happened to an agent's money, with reasons; a unique beginning of the name will do."""
    shown, lines = stream_statement(connection, agent)
    return shown._replace(lines=list(lines))


def stream_statement(connection: Connection, agent: str) -> tuple[Statement, Iterator[Line]]:
    """Return a statement without its lines, and the lines, which are read as they are taken: of any number."""
    found, head = find_agent(connection, agent), connection.execute(select(tables.ledger)).one()
    (has,) = balances(connection, [found.id])
    held = held_of(connection, found.id)
    return Statement(found.name, found.id, head.unit, head.name, has, held, []), _stream_lines(connection, found.id)


def _stream_lines(connection: Connection, agent: int) -> Iterator[Line]:
    standing = Counter[str]()
    for event in _events(connection, agent):
        standing.update(event.moved)
        yield _line(event, standing)


def read_lines(connection: Connection, agent: int, skipped: int, count: int) -> tuple[list[Line], int]:
    """Return `count` lines of an agent before the last `skipped`, in order, and how many there are in all.

    What the accounts held is what they hold now, less what has happened since.
    """
    account, lines = tables.accounts.c, list[Line]()
    now = select(account.kind, func.sum(account.balance).label("balance")).where(account.owner == agent)
    standing = Counter[str]({row.kind: int(row.balance) for row in connection.execute(now.group_by(account.kind))})
    with closing(_events(connection, agent, newest_first=True)) as events:
        for place, event in enumerate(islice(events, skipped + count)):
            if place >= skipped:
                lines.append(_line(event, standing))
            standing.subtract(event.moved)
    return lines[::-1], _count_events(connection, agent)


class _Event(NamedTuple):
    """What a record did to an agent: a payment, the outcome of a payout, and how it changed its accounts, by kind."""

    record: AnyRow
    paid: AnyRow | None
    settled: str | None
    moved: Counter[str]


def _events(connection: Connection, agent: int, *, newest_first: bool = False) -> Generator[_Event]:
    """Yield what happened to an agent's money, record by record, reading a few rows at a time."""
    owned, options = _owned(connection, agent), {"yield_per": BLOCK}
    with ExitStack() as stack:
        results = [
            stack.enter_context(
                connection.execute(query.order_by(by.desc() if newest_first else by), None, execution_options=options)
            )
            for query, by in (_payments(agent), _entries(owned), _outcomes(agent), _settled(agent))
        ]
        rows = heapq.merge(*results, key=lambda row: row.record, reverse=newest_first)
        for _, found in groupby(rows, key=lambda row: row.record):
            yield _event(list(found), owned)


def _event(rows: list[AnyRow], owned: Mapping[int, str]) -> _Event:
    """Return what a record did, from its rows in the order of the queries of `_events`."""
    paid, settled, moved = None, None, Counter[str]()
    for row in rows:
        if row.what == "payment":
            paid = row
        elif row.what == "outcome":
            settled = f"payout {row.number} {row.outcome}"
        elif row.what == "look":
            settled = "; ".join(filter(None, [settled, settled_words(row.run_name, row)]))
        else:
            moved.update({owned[row.source]: -row.amount} if row.source in owned else {})
            moved.update({owned[row.target]: row.amount} if row.target in owned else {})
    return _Event(rows[0], paid, settled, moved)


def _line(event: _Event, standing: Counter[str]) -> Line:
    record, paid, settled, moved = event
    if paid is None:
        round_, why, sealed = (None,) * 6, _why_moved(record, settled, moved), None
    else:
        status = status_of(paid.status, read(paid.terms).hold)
        round_ = (paid.run, paid.number, paid.request, status, paid.released, paid.cut)
        why, sealed = _why(paid, moved), paid.hash.hex()
    after = (standing[kind] for kind in tables.PERSONAL)
    return Line._make((record.record, record.created_at, record.kind, *round_, moved["agent"], why, sealed, *after))


def _why_moved(record: AnyRow, settled: str | None, moved: Counter[str]) -> str:
    """Return what a record other than a round did to the agent's accounts, in plain words."""
    netted = moved["carried"] if record.kind == "payout" else 0
    amount = max((abs(change) for change in moved.values()), default=0) - netted
    why = f"{format_amount(amount)} {_MOVED[record.kind]}" if record.kind in _MOVED else settled or ""
    why += f"; {format_amount(netted)} netted against an earlier loss" if netted else ""
    return f"{why}: {record.memo}" if record.memo else why


def _why(paid: AnyRow, moved: Mapping[str, int]) -> str:
    """Return why a round changed the agent's accounts as it did, in plain words."""
    seen = [math.nan if x is None else x for x in (paid.squared_distance, paid.expected, paid.variance)]
    payment = Payments(
        *([number] for number in (paid.earned / MICRO, paid.released / MICRO, *seen)),
        status=[STATUS_CODES[paid.status]],
    )
    words = explain(restored(paid.rule, paid.cost), payment, paid.request, [paid.factor / MICRO])
    hold = read(paid.terms).hold
    if isinstance(hold, Looks) and hold.margin and paid.variance is None and paid.released:
        words[0] += f" (a margin of {100 * hold.margin:g} %)"  # flat pay: what it pays beyond the cost
    holds = not isinstance(hold, AtOnce)
    entered = moved["held"] + (moved["agent"] if holds else 0)  # in such a run the balance gets what is released
    said = {
        "of the loss was waived (limited liability)": paid.cut,
        "of it met from what was held": -entered,
        "carried, to be netted against later rewards": -moved["carried"],
        "of it netted against an earlier loss": moved["carried"],
        "charged to the deposit": -moved["deposit"],
        f"of it held {_until(paid, hold)}": entered,
        "of earlier rounds released": moved["agent"] if holds else 0,
    }
    words += [f"{format_amount(amount)} {what}" for what, amount in said.items() if amount > 0]
    return "; ".join([*words, f"note: {paid.note}"] if paid.note else words)


def _until(paid: AnyRow, hold: Hold | None) -> str:
    """Return until when a run holds the pay of a round, in words."""
    if isinstance(hold, Looks):
        return until_words(hold, paid.first_round, paid.number, is_last=bool(paid.is_last))
    return f"for {hold.rounds} more rounds of its own" if isinstance(hold, Vesting) else ""


def _count_events(connection: Connection, agent: int) -> int:
    """Return how many records did something to an agent's money."""
    queries = (_payments(agent), _entries(_owned(connection, agent)), _outcomes(agent), _settled(agent))
    numbers = union(*(query.with_only_columns(by) for query, by in queries)).subquery()
    return connection.execute(select(func.count()).select_from(numbers)).scalar_one()


def _owned(connection: Connection, agent: int) -> dict[int, str]:
    """Return the kinds of an agent's accounts, by number."""
    account = tables.accounts.c
    return {
        row.id: row.kind for row in connection.execute(select(account.id, account.kind).where(account.owner == agent))
    }


def _entries(owned: Mapping[int, str]) -> tuple[Select[Any], Any]:
    """Return the query for what moved an agent's money, and the column that orders it."""
    entry = tables.entries.c
    spent = (entry.source != tables.TREASURY) & entry.source.in_(owned)  # the index leaves out the treasury
    query = select(_what("entry"), tables.entries, *_RECORD).join(tables.records, tables.records.c.seq == entry.record)
    return query.where(spent | entry.target.in_(owned)), entry.record


def _payments(agent: int) -> tuple[Select[Any], Any]:
    """Return the query for an agent's payments, each with its round, and the column that orders it."""
    return _paid().where(tables.payments.c.agent == agent), tables.payments.c.record


def _outcomes(agent: int) -> tuple[Select[Any], Any]:
    """Return the query for what became of the agent's payouts, and the column that orders it."""
    batch, record, told = tables.payouts, tables.records, tables.outcomes.c
    query = select(_what("outcome"), told.record, told.outcome, batch.c.number, *_RECORD)
    joined = query.join(batch, batch.c.record == told.payout).join(record, record.c.seq == told.record)
    mine: Any = joined.where(told.agent == agent)
    return mine, told.record


def _settled(agent: int) -> tuple[Select[Any], Any]:
    """Return the query for an agent's periods that were settled by looks, and the column that orders it."""
    own, run, record = tables.settled, tables.runs, tables.records
    query = select(_what("look"), own, run.c.name.label("run_name"), *_RECORD)
    joined = query.join(run, run.c.id == own.c.run).join(record, record.c.seq == own.c.record)
    mine: Any = joined.where(own.c.agent == agent)
    return mine, own.c.record


def payments_of(connection: Connection, agent: int, first: int, last: int) -> dict[int, AnyRow]:
    """Return the agent's payments from record to record, each with its round, by record."""
    query, record = _payments(agent)
    return {row.record: row for row in connection.execute(query.where(record.between(first, last)))}


def _paid() -> Select[Any]:
    """Return the query for payments, each with its round."""
    paid, played, run, record = tables.payments, tables.rounds, tables.runs, tables.records
    others = tables.rounds.alias()
    first = select(func.min(others.c.number)).where(others.c.run == played.c.run).scalar_subquery()
    of_round = (played.c.number, played.c.request, played.c.rule, played.c.cost, run.c.name.label("run"))
    of_round += (played.c.is_last, first.label("first_round"))
    terms = tables.terms.c  # those that the run began with: how it holds pay stays
    of_round += (terms.text.label("terms"), FACTOR.label("factor"))
    source = paid.join(played).join(run).join(tables.terms, terms.record == run.c.record)
    source = source.outerjoin(tables.cost_factors, OF_PAYMENT)
    source = source.join(record, record.c.seq == paid.c.record)
    return select(_what("payment"), paid, *of_round, *_RECORD).select_from(source)


def _what(kind: str) -> Any:
    return literal(kind).label("what")


_RECORD = (tables.records.c.created_at, tables.records.c.kind, tables.records.c.memo)
