"""The ledger that the dashboard shows: read only, opened when it is needed, and again when it comes back."""

import threading
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, select

from guerdon.dashboard.queries import RunData, read_run
from guerdon.ledger import Ledger, tables
from guerdon.ledger.errors import RefusedError, UnavailableError
from guerdon.ledger.verify import UNREADABLE

RUNS_KEPT = 4  # in memory: two hundred thousand payments take 8 MB
PATIENCE = 2.0  # seconds to wait for a database that somebody holds: a page must not hang


class Head(NamedTuple):
    """Where the ledger stands: its name and unit, and its last record."""

    ledger: str
    unit: str
    record: int
    hash: str
    at: datetime


class Source:
    """A ledger by its place; reading raises `UnavailableError` while there is none."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._ledger: Ledger | None = None
        self._lock = threading.RLock()
        self._runs: OrderedDict[int, RunData] = OrderedDict()

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """Give a connection that sees one unchanging state of the ledger."""
        try:
            with self.open().reading() as connection:
                yield connection
        except (RefusedError, UnavailableError):
            raise
        except UNREADABLE as error:
            raise UnavailableError(
                f"what the ledger holds cannot be read ({type(error).__name__}: {error}); run `guerdon ledger verify`"
            ) from error

    def open(self) -> Ledger:
        """Return the ledger, opened once there is one."""
        with self._lock:
            if self._ledger is None:
                self._ledger = Ledger(self._where, read_only=True, patience=PATIENCE)
            return self._ledger

    def head(self) -> Head:
        """Return where the ledger stands."""
        with self.reading() as connection:
            return read_head(connection)

    def run(self, connection: Connection, number: int) -> RunData:
        """Return a run's columns; of one that was read before only what came since is read."""
        with self._lock:
            found = read_run(connection, number, self._runs.get(number))
            self._runs[number] = found
            self._runs.move_to_end(number)
            while len(self._runs) > RUNS_KEPT:
                self._runs.popitem(last=False)
            return found

    def forget(self) -> None:
        """Drop what was read: the ledger is not what it was."""
        with self._lock:
            self._runs.clear()

    def close(self) -> None:
        """Let go of the database."""
        with self._lock:
            if self._ledger is not None:
                self._ledger.close()
                self._ledger = None


def read_head(connection: Connection) -> Head:
    """Return where the ledger stands."""
    head, records = tables.ledger.c, tables.records.c
    query = select(head.name, head.unit, head.head, head.hash, records.created_at)
    name, unit, record, sealed, at = connection.execute(query.join(tables.records, records.seq == head.head)).one()
    return Head(name, unit, record, sealed.hex(), at)
