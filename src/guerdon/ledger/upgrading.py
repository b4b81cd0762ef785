"""Bringing an older ledger to the newest tables: the chain goes on, and nothing that is recorded changes.

An upgrade is a record of its own. It has the hash of the new tables, so that `verify` knows which tables the ledger is
kept by from there on.
"""

import os

from sqlalchemy import Connection, select

from guerdon.ledger.books import journal, tables
from guerdon.ledger.books.database import LOCK, Database
from guerdon.ledger.books.definitions import interfering, schema_digest
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.proof.verify import verify


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
    _check_tables(connection)
    database.upgrade(connection)
    version = {"version": tables.REVISION, "schema": schema_digest(connection)}
    memo = f"upgraded from version {before} to {tables.REVISION}"
    journal.append(connection, "open", {"versions": [version]}, memo=memo)
    problem = verify(connection).problem
    if problem is not None:
        raise RefusedError(f"the ledger does not verify, and was not upgraded: {problem}")


def _check_tables(connection: Connection) -> None:
    """Raise where tables were altered: the upgrade would make that look as if it were meant."""
    newest = select(tables.versions.c.schema).order_by(tables.versions.c.record.desc())
    if interfering(connection) or connection.execute(newest).scalars().first() != schema_digest(connection):
        raise RefusedError(
            "the tables, constraints or triggers are not those with which the ledger was made; it was not upgraded, "
            "go back to a backup that verifies"
        )
