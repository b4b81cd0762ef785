"""The ledger that the dashboard shows: read only, opened when it is needed, and again when it comes back."""

import threading
import time
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from sqlalchemy import Connection

from guerdon.dashboard.queries import RunData, read_run, seal_of
from guerdon.ledger import Ledger
from guerdon.ledger.books.errors import RefusedError, UnavailableError
from guerdon.ledger.proof.verify import UNREADABLE
from guerdon.ledger.read.auditing import RunAudit, audit_run

RUNS_KEPT = 4  # in memory: two hundred thousand payments take 8 MB
REST = 10.0  # times as long as an audit took before the next of the same run
PATIENCE = 2.0  # seconds to wait for a database that another program holds: a page must not hang


class KeptAudit(NamedTuple):
    """An audit, the run that it rests on, and until when it will do."""

    audit: RunAudit
    data: RunData
    until: float


def _is_part(connection: Connection, kept: KeptAudit) -> bool:
    """Tell whether the rounds of an audit are still in the ledger: it may be another one in the same place."""
    record = kept.data.record
    return len(record) > 0 and seal_of(connection, int(record[-1])) == kept.data.seal


class LedgerSource:
    """A ledger by its place; reading raises `UnavailableError` while there is none."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._ledger: Ledger | None = None
        self._lock = threading.RLock()
        self._runs: OrderedDict[int, RunData] = OrderedDict()
        self._audits: dict[int, KeptAudit] = {}
        self._auditing = threading.Lock()

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
            columns = read_run(connection, number, self._runs.get(number))
            self._runs[number] = columns
            self._runs.move_to_end(number)
            while len(self._runs) > RUNS_KEPT:
                self._runs.popitem(last=False)
            return columns

    def expect(self, number: int) -> None:
        """Begin to read a run whose charts will be asked for in a moment."""

        def read() -> None:
            with suppress(Exception):  # the request for the charts reports it
                self.run(number)

        threading.Thread(target=read, name=f"guerdon-run-{number}", daemon=True).start()

    def audit(self, data: RunData) -> RunAudit:
        """Return the audit of a run, or for a while the last one: it reads all rounds and may take seconds."""
        with self._auditing, self.reading() as connection:
            kept, start = self._audits.get(data.id), time.monotonic()
            if kept is not None and (kept.data.seal == data.seal or start < kept.until) and _is_part(connection, kept):
                return kept.audit
            audit = audit_run(connection, data.name)
            end = time.monotonic()
            kept = KeptAudit(audit, data, end + REST * (end - start))
            self._audits = dict([*self._audits.items(), (data.id, kept)][-RUNS_KEPT:])
            return audit

    def forget(self) -> None:
        """Drop what was read: the ledger has changed."""
        with self._lock:
            self._runs.clear()
            self._audits.clear()

    def close(self) -> None:
        with self._lock:
            if self._ledger is not None:
                self._ledger.close()
                self._ledger = None
