"""The whole ledger for other programs: plain-text accounting (beancount, hledger), CSV and Parquet.

The accounts are seen from the operator's side, as in bookkeeping: every sign is the opposite of the ledger's own. The
journals end with the ledger's balances as assertions, so that the other program recomputes them.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import chain, groupby, islice
from typing import Any, TextIO

from sqlalchemy import Connection, func, select

from guerdon.arrays import check_choice
from guerdon.ledger.books import tables
from guerdon.ledger.books.money import MICRO, plain_amount
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.read.queries import FACTOR, OF_PAYMENT
from guerdon.ledger.read.render import write_table

_BOOKS = {
    "treasury": "Expenses:Rewards",
    "bank": "Assets:Bank",
    "payable": "Liabilities:Payouts",
    "reserve": "Liabilities:Reserve",
    "agent": "Liabilities:Agents",
    "deposit": "Liabilities:Deposits",
    "held": "Liabilities:Held",
    "carried": "Assets:Carried",
}


def write_beancount(connection: Connection, out: TextIO) -> None:
    """Write all moves of money as a beancount file."""
    (head, first, last), accounts = _head(connection), _accounts(connection)
    out.write(f'option "title" "Guerdon ledger {head.name}"\noption "operating_currency" "{head.unit}"\n\n')
    out.write(f"{first:%Y-%m-%d} commodity {head.unit}\n")
    for account in accounts.values():
        name = "" if account.name is None else f"\n  name: {_quoted(account.name)}"
        out.write(f"{first:%Y-%m-%d} open {_book(account)} {head.unit}{name}\n")
    for item, legs in transactions(connection):
        out.write(f"\n{item.created_at:%Y-%m-%d} * {_quoted(_words(item))}\n")
        out.write(f'  record: {item.seq}\n  hash: "{item.hash.hex()}"\n')
        for number, amount in legs.items():
            out.write(f"  {_book(accounts[number])}  {plain_amount(-amount)} {head.unit}\n")
    out.write("\n")
    for account in accounts.values():
        day = last + timedelta(days=1)  # an assertion holds at the beginning of its day
        out.write(f"{day:%Y-%m-%d} balance {_book(account)}  {plain_amount(-account.balance)} {head.unit}\n")


def write_hledger(connection: Connection, out: TextIO) -> None:
    """Write all moves of money as an hledger journal."""
    (head, _, last), accounts = _head(connection), _accounts(connection)
    out.write(f"; Guerdon ledger {head.name}\n\ncommodity 1.000000 {head.unit}\n\n")
    for account in accounts.values():
        name = "" if account.name is None else f"  ; name: {re.sub('[,:]', ' ', _one_line(account.name))}"  # no tags
        out.write(f"account {_book(account).lower()}{name}\n")
    for item, legs in transactions(connection):
        out.write(f"\n{item.created_at:%Y-%m-%d} * {_one_line(_words(item))}")
        out.write(f"  ; record: {item.seq}, hash: {item.hash.hex()}\n")
        for number, amount in legs.items():
            out.write(f"    {_book(accounts[number]).lower()}  {plain_amount(-amount)} {head.unit}\n")
    out.write(f"\n{last:%Y-%m-%d} * balances as the ledger keeps them\n")
    for account in accounts.values():
        out.write(f"    {_book(account).lower()}  0 {head.unit} = {plain_amount(-account.balance)} {head.unit}\n")


def journal_rows(connection: Connection) -> Iterator[tuple[Any, ...]]:
    """Yield every leg of every record, with the ledger's own sign: what an account gains is positive."""
    accounts = _accounts(connection)
    for item, legs in transactions(connection):
        for number, amount in legs.items():
            account = accounts[number]
            yield (
                item.seq, item.created_at, item.kind, item.run, item.number, item.memo, account.kind, account.name,
                Decimal(amount) / MICRO, item.hash.hex(),
            )  # fmt: skip


def payment_rows(connection: Connection) -> Iterator[tuple[Any, ...]]:
    """Yield every payment with its round and its evidence."""
    paid, played, run, agent, record = tables.payments, tables.rounds, tables.runs, tables.agents, tables.records
    own = {"run": run.c.name, "round": played.c.number, "time": record.c.created_at, "agent": agent.c.name}
    own |= {"cost_factor": FACTOR}
    own |= {name: played.c[name] for name in ("request", "rule", "cost")}
    query = select(*(own[name] if name in own else paid.c[name] for name in COLUMNS["payments"]))
    source = paid.join(agent).join(played).join(run).join(record, record.c.seq == paid.c.record)
    joined = query.select_from(source.outerjoin(tables.cost_factors, OF_PAYMENT))
    ordered = joined.order_by(paid.c.record, paid.c.position)
    for row in connection.execute(ordered, execution_options={"yield_per": BLOCK}):
        yield tuple(_plain(name, value) for name, value in zip(COLUMNS["payments"], row, strict=True))


def _plain(name: str, value: Any) -> Any:
    """Return a value for other programs: amounts in the unit, hashes as text."""
    return Decimal(value) / MICRO if name in MONEY else value.hex() if isinstance(value, bytes) else value


BLOCK = 2_000  # rows read or written at a time
MONEY = ("amount", "earned", "released", "cut", "cost_factor")  # kept in millionths
COLUMNS = {
    "journal": ("record", "time", "kind", "run", "round", "memo", "account", "agent", "amount", "hash"),
    "payments": (
        "run", "round", "time", "request", "agent", "status", "earned", "released", "cut", "squared_distance",
        "expected", "variance", "squared_deviation", "pair_distance", "squared_length", "alignment", "gradient",
        "signature", "note", "rule", "cost", "cost_factor", "hash",
    ),
}  # fmt: skip
ROWS = {"journal": journal_rows, "payments": payment_rows}
JOURNALS = {"beancount": write_beancount, "hledger": write_hledger}


def _rows(connection: Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Return the rows of the journal or the payments, or raise if there are none."""
    rows = ROWS[table](connection)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"there is nothing to export yet: no {table}")
    return chain([first], rows)


def write_csv(connection: Connection, table: str, out: TextIO) -> None:
    """Write the journal or the payments as CSV."""
    rows = _rows(connection, table)
    write_table(out, COLUMNS[table], (dict(zip(COLUMNS[table], row, strict=True)) for row in rows))


def write_parquet(connection: Connection, table: str, path: Any) -> None:
    """Write the journal or the payments as Parquet, a block of rows at a time; amounts are exact decimals."""
    import polars as pl
    from polars.io.plugins import register_io_source

    whole, real = (
        ("record", "round", "request"),
        (
            "squared_distance",
            "expected",
            "variance",
            "squared_deviation",
            "pair_distance",
            "squared_length",
            "alignment",
        ),
    )
    types: dict[str, Any] = dict.fromkeys(whole, pl.Int64) | dict.fromkeys(real, pl.Float64)
    types |= dict.fromkeys(MONEY, pl.Decimal(38, 6)) | {"time": pl.Datetime("us", "UTC")}
    schema = pl.Schema({name: types.get(name, pl.String()) for name in COLUMNS[table]})
    rows = _rows(connection, table)

    def blocks(*_: Any) -> Iterator[pl.DataFrame]:
        while block := list(islice(rows, BLOCK)):
            yield pl.DataFrame(dict(zip(schema, zip(*block, strict=True), strict=True)), schema=schema)

    register_io_source(blocks, schema=schema).sink_parquet(path, row_group_size=50 * BLOCK)


def transactions(connection: Connection) -> Iterator[tuple[AnyRow, dict[int, int]]]:
    """Yield the records that moved money, in order, each with its legs: account → signed micro-units, in all zero."""
    record, entry, played, run = tables.records, tables.entries, tables.rounds, tables.runs
    query = select(record, run.c.name.label("run"), played.c.number, entry.c.source, entry.c.target, entry.c.amount)
    joined = query.select_from(entry.join(record).outerjoin(played).outerjoin(run, played.c.run == run.c.id))
    ordered = joined.order_by(entry.c.record, entry.c.line)
    rows = connection.execute(ordered, execution_options={"yield_per": BLOCK})
    for _, lines in groupby(rows, key=lambda row: row.seq):
        row, legs = None, Counter[int]()
        for row in lines:
            legs[row.source] -= row.amount
            legs[row.target] += row.amount
        yield row, {account: amount for account, amount in legs.items() if amount}


def _words(item: AnyRow) -> str:
    what = item.kind if item.run is None else f"round {item.number} of run {item.run}"
    return f"{what}: {item.memo}" if item.memo else what


def _accounts(connection: Connection) -> dict[int, AnyRow]:
    """Return all accounts with the names of their owners, by number."""
    account, agent = tables.accounts, tables.agents
    query = select(account, agent.c.name).select_from(account.outerjoin(agent))
    return {row.id: row for row in connection.execute(query.order_by(account.c.id))}


def _book(account: AnyRow) -> str:
    """Return what a bookkeeper calls an account: agents and runs by number, as not every name may stand there."""
    if account.owner is None:
        return _BOOKS[account.kind]
    of_run = "" if account.run is None else f":R{account.run}"
    return f"{_BOOKS[account.kind]}:A{account.owner}{of_run}"


def _head(connection: Connection) -> tuple[AnyRow, datetime, datetime]:
    """Return the row of the ledger, and the times of its first and its last record."""
    moment = tables.records.c.created_at
    first, last = connection.execute(select(func.min(moment), func.max(moment))).one()
    return connection.execute(select(tables.ledger)).one(), first, last


def _quoted(text: str) -> str:
    return '"' + _one_line(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _one_line(text: str) -> str:
    """Return text without characters that end a line, a description or a comment."""
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029;|]+", " ", text).strip()


def export(connection: Connection, form: str, out: Any, table: str = "journal") -> None:
    """Write the ledger as beancount, hledger or csv to an open text file, or as parquet to a path.

    `table`: the "journal" of all that moved money, or (csv and parquet) the "payments" with their evidence.
    """
    check_choice("form", form, (*JOURNALS, "csv", "parquet"))
    check_choice("table", table, tuple(ROWS))
    if form in JOURNALS and table != "journal":
        raise ValueError(f"`table` must be 'journal' for {form}, got {table!r}")
    if form in JOURNALS:
        JOURNALS[form](connection, out)
    elif form == "csv":
        write_csv(connection, table, out)
    else:
        write_parquet(connection, table, out)
