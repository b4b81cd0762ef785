"""Watching the ledger in the background: where it stands, whether it is there, and whether it holds.

Verification recomputes everything. So it runs beside the pages, waits while a page is requested, and rests in between
long enough to take at most a tenth of one core.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from fastapi.encoders import jsonable_encoder
from sqlalchemy import Connection, select

from guerdon.dashboard.queries import read_head, records
from guerdon.dashboard.source import LedgerSource
from guerdon.ledger.books.errors import RefusedError, UnavailableError
from guerdon.ledger.books.tables import AnyRow

QUIET = 1.0  # seconds without a request before verification takes the processor
LONGEST_WAIT = 15.0  # the most seconds that it waits for requests
INTERVAL = 0.5  # seconds between two looks at the ledger
REST = 10.0  # times as long as the last verification took
TICK = 0.2  # seconds between two looks at what is known, for those who follow
PING = 15.0  # seconds of silence after which a comment keeps a connection open
AGAIN = 60.0  # seconds after which an unchanged ledger is verified again: rows can be edited too


@dataclass(frozen=True)
class LedgerCheck:
    """Whether everything up to `record` was recomputed and found right, and when.

    `unverifiable`: nothing is wrong, but a rule that paid is not installed here; `problem` says which.
    """

    state: Literal["waiting", "checking", "verified", "unverifiable", "failed"] = "waiting"
    progress: float = 0.0
    record: int | None = None
    payments: int = 0
    at: datetime | None = None
    problem: str | None = None
    summary: str = "no ledger"


@dataclass(frozen=True)
class LedgerStatus:
    """Whether there is a ledger (`reason`: why not), its last record, and whether it was found right.

    `setback` says why it cannot be the ledger that was seen before: it ends sooner, or holds another record there.
    """

    available: bool = False
    reason: str | None = None
    ledger: str | None = None
    unit: str | None = None
    record: int | None = None
    head: str | None = None
    at: datetime | None = None
    setback: str | None = None
    verification: LedgerCheck = LedgerCheck()


def _summary(status: LedgerStatus, check: LedgerCheck) -> str:
    """Return in a few words whether the ledger was found right."""
    if status.record is None:
        return "no ledger"
    if status.setback is not None:
        return "the ledger was set back"
    if check.record is None or check.at is None:
        return f"checking, {100 * check.progress:.0f} %" if check.state == "checking" else "not checked yet"
    if check.state == "failed":
        return "verification failed"
    if check.state == "unverifiable":
        return "cannot be verified here"
    newer = status.record - check.record
    verified = f"verified up to record {check.record:,} at {check.at:%H:%M} UTC"
    return f"{verified}, {newer:,} newer" if newer > 0 else verified


class _StoppedError(Exception):
    """Verification was interrupted: the dashboard closes."""


class LedgerMonitor:
    """Two threads: one reads the ledger's head, one verifies. `status` is the result of both."""

    def __init__(self, source: LedgerSource) -> None:
        self._source = source
        self._asked = time.monotonic()  # the first page comes before the first verification
        self._unanswered = 0
        self._seen: AnyRow | None = None  # the highest head so far
        self._check = LedgerCheck()
        self.status = LedgerStatus()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def closing(self) -> bool:
        return self._closing.is_set()

    def start(self) -> None:
        """Begin to watch; the first look is taken before this returns."""
        self.look()
        for work in (self._watch, self._verify_forever):
            thread = threading.Thread(target=work, name=f"guerdon-{work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    @contextmanager
    def answering(self) -> Generator[None]:
        """Let verification wait until a request is answered; only the server's own thread may enter."""
        self._unanswered += 1
        try:
            yield
        finally:
            self._unanswered -= 1
            self._asked = time.monotonic()

    def close(self) -> None:
        self._closing.set()

    def join(self) -> None:
        """Stop watching, and wait until the threads have ended."""
        self.close()
        for thread in self._threads:
            thread.join(timeout=10)

    def look(self) -> None:
        """Read the last record; a ledger that is missing is news too."""
        try:
            with self._source.reading() as connection:
                row = read_head(connection)
                setback = None if self._seen is None else _setback(connection, self._seen, row)
            self._seen = row if setback is None else self._seen
            now = LedgerStatus(True, None, row.name, row.unit, row.head, row.hash.hex(), row.created_at, setback)
        except (UnavailableError, RefusedError) as error:
            now = LedgerStatus(reason=str(error))
        with self._lock:
            self.status = _joined(now, self._check)

    def verify(self) -> None:
        """Recompute the whole ledger and keep the result."""
        before = self._check
        # The last result stands until this is finished: a failure is not hidden while it is checked again.
        self._update(replace(before, state="checking" if before.state == "waiting" else before.state, progress=0.0))
        try:
            verification = self._source.open().verify(progress=self._advance)
        except (UnavailableError, RefusedError):
            self._update(LedgerCheck())
            return
        if verification.problem is not None:
            self._source.forget()  # it may have been edited since it was read
        state = "verified" if verification.holds else "unverifiable" if verification.problem is None else "failed"
        why = verification.problem or verification.unverifiable
        self._update(LedgerCheck(state, 1.0, verification.records, verification.payments, datetime.now(UTC), why))

    def _give_way(self) -> None:
        """Wait until every request is answered, and no other has come for a moment."""
        end = time.monotonic() + LONGEST_WAIT
        while (now := time.monotonic()) < end and (self._unanswered or now < self._asked + QUIET) and not self.closing:
            self._closing.wait(0.05)
        if self.closing:
            raise _StoppedError

    def _advance(self, done: float) -> None:
        self._give_way()
        self._update(replace(self._check, progress=round(done, 2)))

    def _update(self, check: LedgerCheck) -> None:
        with self._lock:
            self._check = check
            self.status = _joined(self.status, check)

    def _watch(self) -> None:
        while not self._closing.wait(INTERVAL):
            self.look()

    def _verify_forever(self) -> None:
        verified: str | None = None
        since, rest = 0.0, 0.0
        while not self.closing:
            head, now = self.status.head, time.monotonic()
            stale = head != verified or now - since > max(AGAIN, 2 * rest)
            if head is not None and stale and now - since >= rest:
                try:
                    self._give_way()
                    now = time.monotonic()
                    self.verify()
                except _StoppedError:
                    return
                verified, since = head, time.monotonic()
                rest = REST * (since - now)
            if head is None and verified is not None:
                self._update(LedgerCheck())
                verified, since, rest = None, 0.0, 0.0
            self._closing.wait(INTERVAL)


def _setback(connection: Connection, old: AnyRow, now: AnyRow) -> str | None:
    """Return why a ledger cannot be the one whose head was seen before, or None where it may be."""
    if now.name != old.name:
        what = f"this is another ledger, {now.name[:8]}"
    else:
        sealed = connection.execute(select(records.c.hash).where(records.c.seq == old.head)).scalar()
        if sealed == old.hash:
            return None
        what = f"it ends with record {now.head:,}" if sealed is None else f"its record {old.head:,} is another"
    before = f"record {old.head:,} of ledger {old.name[:8]} of {old.created_at:%Y-%m-%d %H:%M} UTC was seen"
    return f"{before}, and now {what}: it was set back or replaced; after a restored backup, start the dashboard again"


def _joined(status: LedgerStatus, check: LedgerCheck) -> LedgerStatus:
    if status.setback is not None:  # whatever is verified now is not what was there
        check = replace(check, state="failed", problem=status.setback)
    return replace(status, verification=replace(check, summary=_summary(status, check)))


def event(name: str, data: Any) -> str:
    """Return one event as it goes over the wire."""
    return f"event: {name}\ndata: {json.dumps(jsonable_encoder(data), ensure_ascii=False, allow_nan=False)}\n\n"


async def follow(monitor: LedgerMonitor) -> AsyncGenerator[str]:
    """Yield the status now, and again whenever it changes."""
    last, quiet = None, time.monotonic()
    yield "retry: 1000\n\n"
    while not monitor.closing:
        now = monitor.status
        if now != last:
            last, quiet = now, time.monotonic()
            yield event("status", now)
        elif time.monotonic() - quiet > PING:
            quiet = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(TICK)
