"""Appending one record: its rows, its entries, the balances they move, and the link to the record before."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sqlalchemy import Connection, insert, select, update

from guerdon.ledger.books import chain, tables
from guerdon.ledger.books.errors import RefusedError, UnavailableError

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
Columns = Mapping[str, Sequence[Any]]

# Tables whose rows are hashed as JSON with the record they name, in an order that respects their references.
DETAILS = (
    "versions", "agents", "keys", "runs", "accounts", "terms", "members", "cost_factors", "rounds", "closings",
    "payouts", "payees", "batches", "payout_lines", "outcomes", "idempotency", "signatures",
    "commitments", "named", "draws", "leavings", "answers", "verdicts", "settled",
)  # fmt: skip
ENTRY = ("record", "line", "source", "target", "amount")
NO_ENTRIES = np.empty((0, 3), dtype=np.int64)
EMPTY: Columns = {}
ALTERED = (
    "record {} ({}) was not kept as it was written, so nothing of it was recorded: a trigger or a rule of the database "
    "interferes; `guerdon ledger verify` says whether its tables were altered"
)


def append(
    connection: Connection,
    kind: str,
    rows: Rows,
    entries: Any = NO_ENTRIES,
    payments: Columns = EMPTY,
    memo: str = "",
    at: datetime | None = None,
) -> int:
    """Write one record with all that belongs to it, and return its number.

    `rows` holds the rows of the detail tables by table, without their record; `entries` is an array (lines, 3) of
    source, target and amount; `payments` holds the columns of the payments, hashes included. `at`: the moment that
    `now` gave, where what the record holds depends on it.
    """
    last, previous, latest = _head(connection)
    seq = last + 1
    contents = chain.digest(detail(rows), payments.get("hash", []), entries)
    created_at = _after(latest) if at is None else at
    sealed = chain.link(seq, kind, created_at, memo, contents, previous)
    record = (seq, kind, created_at, memo, contents, previous, sealed)
    connection.execute(insert(tables.records), dict(zip(tables.records.c.keys(), record, strict=True)))
    for name in DETAILS:
        if rows.get(name):
            connection.execute(insert(tables.metadata.tables[name]), [{**row, "record": seq} for row in rows[name]])
    paid = list(zip(*payments.values(), strict=True))
    posted = [(seq, line, *entry) for line, entry in enumerate(entries.tolist())]
    _insert_many(connection, "payments", list(payments), paid)
    _insert_many(connection, "entries", ENTRY, posted)
    balances = _move_balances(connection, seq, entries)
    connection.execute(update(tables.ledger).values(head=seq, hash=sealed))
    kept = (
        connection.execute(select(tables.records).where(tables.records.c.seq == seq)).all() == [record],
        _read_details(connection, seq, rows) == detail({name: rows.get(name, ()) for name in DETAILS}),
        _read_many(connection, "payments", list(payments), seq) == paid,
        _read_many(connection, "entries", ENTRY, seq) == posted,
        _read_balances(connection, seq) == balances,
    )
    if not all(kept):
        raise UnavailableError(ALTERED.format(seq, kind))
    return seq


def now(connection: Connection) -> datetime:
    """Return the moment of a record that is written now."""
    return _after(_head(connection)[2])


def ahead(connection: Connection) -> float:
    """Return by how many seconds the last record is dated later than this machine's clock; below 0: it is not."""
    return (_head(connection)[2] - datetime.now(UTC)).total_seconds()


def detail(rows: Rows) -> dict[str, Any]:
    """Return a record's rows as they are hashed: without what is empty, and without cached balances."""
    return {table: [_hashed(row) for row in content] for table, content in rows.items() if content}


def next_seq(connection: Connection) -> int:
    """Return the number that the next record will have."""
    return connection.execute(select(tables.ledger.c.head)).scalar_one() + 1


def open_ledger(connection: Connection, name: str, unit: str, schema: bytes) -> None:
    """Write the first record of a new ledger, and the accounts that there is one of."""
    head, version = {"name": name, "unit": unit}, {"version": tables.REVISION, "schema": schema}
    accounts = [
        {"id": id_, "kind": kind, "owner": None, "run": None, "balance": 0} for id_, kind in enumerate(tables.COMMON, 1)
    ]
    append(connection, "open", {"ledger": [head], "versions": [version], "accounts": accounts})
    sealed = connection.execute(select(tables.records.c.hash)).scalar_one()
    connection.execute(insert(tables.ledger), head | {"id": 1, "head": 1, "hash": sealed})


def save_checkpoint(connection: Connection, run: int, pieces: Sequence[bytes]) -> None:
    """Replace the checkpoint of a run: only the last paid round can be resumed from."""
    table = tables.checkpoints
    connection.execute(table.delete().where(table.c.run == run))
    for number, piece in enumerate(pieces):
        connection.execute(insert(table), {"run": run, "part": number, "data": piece})


def load_checkpoint(connection: Connection, run: int) -> bytes:
    """Return the checkpoint of a run as it is stored; empty where there is none."""
    table = tables.checkpoints
    query = select(table.c.data).where(table.c.run == run).order_by(table.c.part)
    return b"".join(connection.execute(query).scalars())


def fingerprint(data: bytes) -> bytes:
    """Return the hash under which a checkpoint is recorded."""
    return hashlib.sha256(data).digest()


def _after(latest: datetime) -> datetime:
    return max(datetime.now(UTC), latest)  # a clock set back does not reorder the records


def _hashed(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if value is not None and name not in ("balance", "record")}
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in kept.items()}


def _head(connection: Connection) -> tuple[int, bytes, datetime]:
    """Return the number, hash and time of the last record, or what stands before the first."""
    head, records = tables.ledger.c, tables.records.c
    query = select(head.head, head.hash, records.created_at).join(tables.records, records.seq == head.head)
    found = connection.execute(query).one_or_none()
    return (0, chain.START, tables.EPOCH) if found is None else (found.head, found.hash, found.created_at)


def _move_balances(connection: Connection, seq: int, entries: Any) -> dict[int, int]:
    """Move the balances by the entries of a record; return what the accounts must hold afterwards."""
    if entries[:, 2].sum(dtype=np.float64) > 2**62:
        raise RefusedError("the amounts of one record must add up to less than 4.6 trillion units")
    touched, where = np.unique(entries[:, :2].T, return_inverse=True)
    change = np.zeros(len(touched), dtype=np.int64)
    np.subtract.at(change, where.reshape(2, -1)[0], entries[:, 2])
    np.add.at(change, where.reshape(2, -1)[1], entries[:, 2])
    before, mark = _read_balances(connection, seq), _mark(connection)
    moved = list(zip(change.tolist(), touched.tolist(), strict=True))
    if moved:
        connection.exec_driver_sql(f"UPDATE accounts SET balance = balance + {mark} WHERE id = {mark}", moved)  # noqa: S608
    return {account: before.get(account, 0) + difference for difference, account in moved}


def _read_balances(connection: Connection, seq: int) -> dict[int, int]:
    """Return what the accounts hold that the entries of a record move, by number."""
    ends = " UNION ".join(f"SELECT {end} FROM entries WHERE record = {int(seq)}" for end in ("source", "target"))  # noqa: S608
    return dict(_read(connection, f"SELECT id, balance FROM accounts WHERE id IN ({ends})"))  # noqa: S608


def _read_details(connection: Connection, seq: int, rows: Rows) -> dict[str, Any]:
    """Return the rows of a record in the detail tables that it has rows in, as they are hashed."""
    found: dict[str, Any] = {}
    for table in (tables.metadata.tables[name] for name in DETAILS if rows.get(name)):
        key = table.primary_key.columns[0]  # by which they are found; not every table has an index by record
        numbers = [row.get(key.name, seq) for row in rows[table.name]]
        query = select(table).where(table.c.record == seq, key.between(min(numbers), max(numbers)))
        found[table.name] = connection.execute(query.order_by(*table.primary_key.columns)).mappings().all()
    return detail(found)


def _insert_many(connection: Connection, table: str, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
    """Insert plain values past SQLAlchemy's handling of each: with a thousand rows that takes half the time."""
    marks = ", ".join([_mark(connection)] * len(columns))
    if rows:
        connection.exec_driver_sql(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)  # noqa: S608


def _read_many(connection: Connection, table: str, columns: Sequence[str], seq: int) -> list[tuple[Any, ...]]:
    """Return the rows of a record in order, as plain values."""
    if not columns:
        return []
    return _read(connection, f"SELECT {', '.join(columns)} FROM {table} WHERE record = {int(seq)} ORDER BY 1, 2")  # noqa: S608


def _read(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    driver: Any = connection.connection.driver_connection  # SQLAlchemy's rows take twice the time
    return driver.execute(query).fetchall()


def _mark(connection: Connection) -> str:
    """Return what stands for a value in a statement of this database."""
    return "?" if connection.dialect.name == "sqlite" else "%s"
