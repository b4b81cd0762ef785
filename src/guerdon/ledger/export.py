"""The whole ledger for other programs: plain-text accounting (beancount, hledger), CSV and Parquet.

The accounts are seen from the operator's side, as in bookkeeping: what agents earn is an expense, what they are owed is
a liability, what they owe is an asset. So every sign is the opposite of the ledger's own. The journals end with the
ledger's balances as assertions, so that the other program recomputes them.
"""

import csv
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TextIO

from sqlalchemy import Connection, select

from guerdon.arrays import check_choice
from guerdon.ledger import tables
from guerdon.ledger.money import MICRO, plain_amount
from guerdon.ledger.render import as_cell

_BOOKS = {
    "treasury": "Expenses:Rewards",
    "bank": "Assets:Bank",
    "payable": "Liabilities:Payouts",
    "agent": "Liabilities:Agents",
    "deposit": "Liabilities:Deposits",
    "escrow": "Liabilities:Escrow",
    "carried": "Assets:Carried",
}


class Transaction(NamedTuple):
    """A record that moved money: its legs are (account, signed micro-units) and sum to zero."""

    record: int
    at: datetime
    kind: str
    run: str | None
    round: int | None
    memo: str
    hash: bytes
    legs: list[tuple[int, int]]

    @property
    def words(self) -> str:
        """What it was, in words."""
        what = self.kind if self.run is None else f"round {self.round} of run {self.run}"
        return f"{what}: {self.memo}" if self.memo else what


class Account(NamedTuple):
    """An account with the name of its owner, if it has one."""

    id: int
    kind: str
    owner: int | None
    name: str | None
    balance: int

    @property
    def book(self) -> str:
        """Its name in a bookkeeper's journal: agents by number, because not every name is allowed there."""
        return _BOOKS[self.kind] if self.owner is None else f"{_BOOKS[self.kind]}:A{self.owner}"


def write_beancount(connection: Connection, out: TextIO) -> None:
    """Write all moves of money as a beancount file."""
    head, accounts = _head(connection), _accounts(connection)
    first, last = _span(connection)
    out.write(f'option "title" "Guerdon ledger {head.name}"\noption "operating_currency" "{head.unit}"\n\n')
    out.write(f"{first:%Y-%m-%d} commodity {head.unit}\n")
    for account in accounts.values():
        name = "" if account.name is None else f"\n  name: {_quoted(account.name)}"
        out.write(f"{first:%Y-%m-%d} open {account.book} {head.unit}{name}\n")
    for item in transactions(connection):
        out.write(f"\n{item.at:%Y-%m-%d} * {_quoted(item.words)}\n")
        out.write(f'  record: {item.record}\n  hash: "{item.hash.hex()}"\n')
        for number, amount in item.legs:
            out.write(f"  {accounts[number].book}  {plain_amount(-amount)} {head.unit}\n")
    out.write("\n")
    for account in accounts.values():
        day = last + timedelta(days=1)  # an assertion holds at the beginning of its day
        out.write(f"{day:%Y-%m-%d} balance {account.book}  {plain_amount(-account.balance)} {head.unit}\n")


def write_hledger(connection: Connection, out: TextIO) -> None:
    """Write all moves of money as an hledger journal."""
    head, accounts = _head(connection), _accounts(connection)
    _, last = _span(connection)
    out.write(f"; Guerdon ledger {head.name}\n\ncommodity 1.000000 {head.unit}\n\n")
    for account in accounts.values():
        name = "" if account.name is None else f"  ; name: {_untagged(account.name)}"
        out.write(f"account {account.book.lower()}{name}\n")
    for item in transactions(connection):
        out.write(f"\n{item.at:%Y-%m-%d} * {_one_line(item.words)}  ; record: {item.record}, hash: {item.hash.hex()}\n")
        for number, amount in item.legs:
            out.write(f"    {accounts[number].book.lower()}  {plain_amount(-amount)} {head.unit}\n")
    out.write(f"\n{last:%Y-%m-%d} * balances as the ledger keeps them\n")
    for account in accounts.values():
        out.write(f"    {account.book.lower()}  0 {head.unit} = {plain_amount(-account.balance)} {head.unit}\n")


def journal_rows(connection: Connection) -> Iterator[dict[str, Any]]:
    """Yield every leg of every record, with the ledger's own sign: what an account gains is positive."""
    accounts = _accounts(connection)
    for item in transactions(connection):
        for number, amount in item.legs:
            account = accounts[number]
            yield {
                "record": item.record, "time": item.at, "kind": item.kind, "run": item.run, "round": item.round,
                "memo": item.memo, "account": account.kind, "agent": account.name,
                "amount": Decimal(amount) / MICRO, "hash": item.hash.hex(),
            }  # fmt: skip


def payment_rows(connection: Connection) -> Iterator[dict[str, Any]]:
    """Yield every payment with its round and its evidence."""
    paid, played, run, agent, record = tables.payments, tables.rounds, tables.runs, tables.agents, tables.records
    query = select(
        run.c.name.label("run"), played.c.number.label("round"), record.c.created_at.label("time"), played.c.request,
        agent.c.name.label("agent"), paid.c.status, paid.c.amount.label("reward"), paid.c.cut, paid.c.held,
        paid.c.distance, paid.c.expected_distance, paid.c.variance, paid.c.deviation, paid.c.length, paid.c.alignment,
        paid.c.gradient, paid.c.signature, paid.c.note, played.c.rule, played.c.cost, paid.c.hash,
    ).select_from(
        paid.join(played, paid.c.record == played.c.record)
        .join(run, played.c.run == run.c.id)
        .join(agent, paid.c.agent == agent.c.id)
        .join(record, record.c.seq == paid.c.record)
    )  # fmt: skip
    for row in connection.execute(query.order_by(paid.c.record, paid.c.position)).mappings():
        exact = {name: Decimal(row[name]) / MICRO for name in ("reward", "cut", "held")}
        hexed = {name: None if row[name] is None else row[name].hex() for name in ("gradient", "signature", "hash")}
        yield dict(row) | exact | hexed


NOTHING = "there is nothing to export yet: no {}"
ROWS = {"journal": journal_rows, "payments": payment_rows}
JOURNALS = {"beancount": write_beancount, "hledger": write_hledger}


def write_csv(connection: Connection, table: str, out: TextIO) -> None:
    """Write the journal or the payments as CSV."""
    writer = None
    for row in ROWS[table](connection):
        if writer is None:
            writer = csv.DictWriter(out, fieldnames=list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow({name: as_cell(_text(value)) for name, value in row.items()})
    if writer is None:
        raise ValueError(NOTHING.format(table))


def write_parquet(connection: Connection, table: str, path: Any) -> None:
    """Write the journal or the payments as Parquet; amounts are exact decimals."""
    import polars as pl

    money = dict.fromkeys(("amount", "reward", "cut", "held"), pl.Decimal(38, 6))
    rows = list(ROWS[table](connection))
    if not rows:
        raise ValueError(NOTHING.format(table))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    texts = ("run", "memo", "agent", "note", "gradient", "signature")
    types: dict[str, Any] = dict(money) | dict.fromkeys(texts, pl.String) | {"round": pl.Int64}
    types |= dict.fromkeys(("distance", "expected_distance", "variance"), pl.Float64)
    pl.DataFrame(columns, schema_overrides={name: types[name] for name in columns if name in types}).write_parquet(path)


def transactions(connection: Connection) -> Iterator[Transaction]:
    """Yield the records that moved money, in order, each with its signed legs."""
    record, entry, played, run = tables.records, tables.entries, tables.rounds, tables.runs
    query = (
        select(record, run.c.name.label("run"), played.c.number, entry.c.source, entry.c.target, entry.c.amount)
        .select_from(
            entry.join(record, entry.c.record == record.c.seq)
            .outerjoin(played, played.c.record == record.c.seq)
            .outerjoin(run, played.c.run == run.c.id)
        )
        .order_by(entry.c.record, entry.c.line)
    )
    current, legs = None, dict[int, int]()
    for row in connection.execution_options(yield_per=10_000).execute(query):
        if current is not None and row.seq != current.seq:
            yield _transaction(current, legs)
            legs = dict[int, int]()
        current = row
        legs[row.source] = legs.get(row.source, 0) - row.amount
        legs[row.target] = legs.get(row.target, 0) + row.amount
    if current is not None:
        yield _transaction(current, legs)


def _transaction(row: Any, legs: dict[int, int]) -> Transaction:
    moved = [(number, amount) for number, amount in legs.items() if amount]
    return Transaction(row.seq, row.created_at, row.kind, row.run, row.number, row.memo, row.hash, moved)


def _accounts(connection: Connection) -> dict[int, Account]:
    account, agent = tables.accounts, tables.agents
    query = select(account.c.id, account.c.kind, account.c.owner, agent.c.name, account.c.balance).select_from(
        account.outerjoin(agent, account.c.owner == agent.c.id)
    )
    return {row.id: Account(*row) for row in connection.execute(query.order_by(account.c.id))}


def _head(connection: Connection) -> Any:
    return connection.execute(select(tables.ledger)).one()


def _span(connection: Connection) -> tuple[datetime, datetime]:
    query = select(tables.records.c.created_at).order_by(tables.records.c.seq)
    last = connection.execute(query.order_by(None).order_by(tables.records.c.seq.desc()).limit(1)).scalar_one()
    return connection.execute(query.limit(1)).scalar_one(), last


def _quoted(text: str) -> str:
    return '"' + _one_line(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _one_line(text: str) -> str:
    """Return text without characters that end a line, a description or a comment."""
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029;|]+", " ", text).strip()


def _untagged(text: str) -> str:
    """Return text in which hledger finds no tags."""
    return re.sub("[,:]", " ", _one_line(text))


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else value


def export(connection: Connection, form: str, table: str, out: Any) -> None:
    """Write the ledger in one of the forms, or raise if there is no form or table of that name."""
    check_choice("form", form, (*JOURNALS, "csv", "parquet"))
    check_choice("table", table, tuple(ROWS))
    if form in JOURNALS and table != "journal":
        raise ValueError(f"`table` must be 'journal' for {form}, got {table!r}")
    if form in JOURNALS:
        JOURNALS[form](connection, out)
    else:
        (write_csv if form == "csv" else write_parquet)(connection, table, out)
