"""Bringing an older ledger to the newest tables: the chain goes on, and nothing that is recorded changes.

Version 0.1.0 (tables 0001) knew one escrow account per agent, and told in the remark on a move which run it settled.
The record of the upgrade says, for each of these moves, which run it took from.
"""

import json
import os
import re
from collections import defaultdict
from typing import Any

from sqlalchemy import Connection, select, text

from guerdon.ledger import journal, tables
from guerdon.ledger.database import LOCK, Database
from guerdon.ledger.definitions import interfering, schema_digest
from guerdon.ledger.errors import RefusedError
from guerdon.ledger.holdings import Flow, Holdings, flows, spread
from guerdon.ledger.verify import verify

WHOLE_DEFINITIONS = "0003"  # before, what PostgreSQL hashed of the tables were names
REMARK = re.compile(r'audit of run ("(?:[^"\\]|\\.)*"), rounds to (\d{1,18}): ')  # a run's name as JSON writes it


def upgrade_ledger(where: str | os.PathLike[str]) -> tuple[str, str]:
    """Bring the tables of an existing ledger to the newest version; return the versions before and after.

    All or nothing: a ledger that does not verify afterwards stays as it was.
    """
    Database(where, read_only=True, patience=0.0)  # says so where there is no file
    database = Database(where, read_only=False, patience=30.0)
    try:
        with database.creating() as connection:
            before = database.revision(connection)
            if before is None:
                raise RefusedError(f"there is no ledger at {database.where} to upgrade")
            if before > tables.REVISION:
                database.check_revision(connection)
            if before < tables.REVISION:
                _upgrade(database, connection, before)
    finally:
        database.engine.dispose()
    return before, tables.REVISION


def _upgrade(database: Database, connection: Connection, before: str) -> None:
    connection.execute(LOCK)  # nobody else writes meanwhile
    _check_tables(database, connection, before)
    database.upgrade(connection)
    version = {"version": tables.REVISION, "schema": schema_digest(connection)}
    rows = {"versions": [version], "escrow": old_moves(connection) if before == "0001" else []}
    journal.append(connection, "open", rows, memo=f"upgraded from version {before} to {tables.REVISION}")
    problem = verify(connection).problem
    if problem is not None:
        raise RefusedError(f"the ledger does not verify, and was not upgraded: {problem}")


def _check_tables(database: Database, connection: Connection, before: str) -> None:
    """Raise where tables were altered: the upgrade would make that look as if it were meant."""
    recorded = select(tables.ledger.c.schema)
    if before != "0001":
        recorded = select(tables.versions.c.schema).order_by(tables.versions.c.record.desc())
    made = connection.execute(recorded).scalars().first()
    if before < WHOLE_DEFINITIONS and not database.is_sqlite:
        made = _as_made(database, connection, before)
    if interfering(connection) or made != schema_digest(connection):
        raise RefusedError(
            "the tables, constraints or triggers are not those with which the ledger was made; it was not upgraded, "
            "go back to a backup that verifies"
        )


def _as_made(database: Database, connection: Connection, version: str) -> bytes:
    """Return the hash of the tables as a version makes them: in a schema of their own that is gone afterwards."""
    with connection.begin_nested() as scratch:
        connection.execute(text("CREATE SCHEMA guerdon_as_made"))
        connection.execute(text("SET LOCAL search_path TO guerdon_as_made"))
        database.upgrade(connection, version)
        made = schema_digest(connection)
        scratch.rollback()
    return made


def old_moves(connection: Connection) -> list[dict[str, Any]]:
    """Return the rows of `escrow` for moves out of it that have none, in the order of their key."""
    holdings, rows = defaultdict[int, Holdings](Holdings), list[dict[str, Any]]()
    runs = {row.name: row.id for row in connection.execute(select(tables.runs))}
    moves = select(tables.records).where(tables.records.c.kind.in_(("release", "forfeit")))
    memos = {row.seq: row.memo for row in connection.execute(moves)}
    for flow in flows(connection):
        if flow.enters:
            holdings[flow.account].add(flow)
        else:
            rows += parts_of(holdings[flow.account], flow, _remark(memos[flow.record], runs))
    return rows


def parts_of(own: Holdings, flow: Flow, said: tuple[int, int] | None) -> list[dict[str, Any]]:
    """Return which runs an old move took how much from: first the one that it says, as far as it goes.

    A remark may have been typed by hand. It settles rounds only where the amount is all that they held.
    """
    held, parts = dict(own.held), dict[int, int]()
    if said is not None and held.get(said[0], 0) > 0:
        parts[said[0]] = min(flow.amount, held.pop(said[0]))
    parts |= spread(flow.amount - sum(parts.values()), own.by_hand, held)
    own.take(flow.amount, parts)
    settles = said is not None and parts == {said[0]: flow.amount} and own.due(*said) == 0
    last = said[1] if said and settles else None
    return [{"move": flow.record, "run": run, "amount": part, "round": last} for run, part in sorted(parts.items())]


def _remark(memo: str, runs: dict[str, int]) -> tuple[int, int] | None:
    """Return the run and the round that a remark names, or None."""
    match = REMARK.match(memo)
    try:
        return (runs[json.loads(match[1])], int(match[2])) if match else None
    except (ValueError, KeyError):  # not JSON, or no run of that name
        return None
