"""The ledger that the dashboard shows: read only, opened when it is needed, and again when it comes back."""

import threading
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Connection

from guerdon.dashboard.queries import RunData, read_run
from guerdon.ledger import Ledger
from guerdon.ledger.errors import RefusedError, UnavailableError
from guerdon.ledger.verify import UNREADABLE

RUNS_KEPT = 4  # in memory: two hundred thousand payments take 8 MB
PATIENCE = 2.0  # seconds to wait for a database that another program holds: a page must not hang


class LedgerSource:
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

    def run(self, number: int) -> RunData:
        """Return a run's columns; of one that was read before, only the rounds since then are read."""
        with self.reading() as connection, self._lock:
            found = read_run(connection, number, self._runs.get(number))
            self._runs[number] = found
            self._runs.move_to_end(number)
            while len(self._runs) > RUNS_KEPT:
                self._runs.popitem(last=False)
            return found

    def forget(self) -> None:
        """Drop what was read: the ledger has changed."""
        with self._lock:
            self._runs.clear()

    def close(self) -> None:
        with self._lock:
            if self._ledger is not None:
                self._ledger.close()
                self._ledger = None
