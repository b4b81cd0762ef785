"""Watching the ledger in the background: where it stands, whether it is there, and whether it holds.

Verification recomputes everything, so it runs beside the pages and not before them, gives way while somebody asks for
one, and rests in between long enough to take at most a tenth of one core.
"""

import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from guerdon.dashboard.source import Head, Source
from guerdon.ledger.errors import RefusedError, UnavailableError

QUIET = 1.0  # seconds without a request before verification takes the processor
LONGEST_WAIT = 15.0  # seconds that it waits for them at most
INTERVAL = 0.5  # seconds between two looks at the ledger
REST = 10.0  # times as long as the last verification took
AGAIN = 60.0  # seconds after which a ledger without news is verified again: rows can be edited too

Verdict = Literal["waiting", "checking", "verified", "failed"]


@dataclass(frozen=True)
class Check:
    """What is known of the ledger's soundness: everything up to `record` was recomputed at `at`."""

    state: Verdict = "waiting"
    progress: float = 0.0
    record: int | None = None
    payments: int = 0
    at: datetime | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """What the dashboard knows at this moment; `reason` says why there is no ledger, where there is none."""

    head: Head | None = None
    reason: str | None = None
    check: Check = Check()


class _StoppedError(Exception):
    """Verification was interrupted: the dashboard closes."""


class Monitor:
    """Two threads, one that looks and one that verifies; `snapshot` is what they know."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._asked = 0.0
        self._snapshot = Snapshot()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def snapshot(self) -> Snapshot:
        """What is known now."""
        return self._snapshot

    @property
    def closing(self) -> bool:
        """Whether the dashboard is about to stop."""
        return self._closing.is_set()

    def start(self) -> None:
        """Begin to watch; the first look is taken before this returns."""
        self.look()
        for work in (self._watch, self._verify_forever):
            thread = threading.Thread(target=work, name=f"guerdon-{work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def asked(self) -> None:
        """Hear that a page is wanted: verification gives way to it."""
        self._asked = time.monotonic()

    def close(self) -> None:
        """Stop watching."""
        self._closing.set()

    def join(self) -> None:
        """Stop watching, and wait until the threads have ended."""
        self.close()
        for thread in self._threads:
            thread.join(timeout=10)

    def look(self) -> None:
        """Look where the ledger stands; one that is missing is news like any other."""
        try:
            self._update(head=self._source.head(), reason=None)
        except (UnavailableError, RefusedError) as error:
            self._update(head=None, reason=str(error))

    def verify(self) -> None:
        """Recompute the whole ledger and keep what was found."""
        before = self._snapshot.check
        # What was found before stands until this is finished: a failure is not hidden while it is looked at again.
        state = "checking" if before.state == "waiting" else before.state
        self._update(check=replace(before, state=state, progress=0.0))
        try:
            found = self._source.open().verify(progress=self._advance)
        except (UnavailableError, RefusedError):
            self._update(check=Check())
            return
        if not found.holds:
            self._source.forget()  # it may have been edited since it was read
        state = "verified" if found.holds else "failed"
        self._update(check=Check(state, 1.0, found.records, found.payments, datetime.now(UTC), found.problem))

    def _give_way(self) -> None:
        """Wait until nobody has asked for anything for a moment."""
        end = time.monotonic() + LONGEST_WAIT
        while time.monotonic() < min(end, self._asked + QUIET) and not self.closing:
            self._closing.wait(0.05)
        if self.closing:
            raise _StoppedError

    def _advance(self, done: float) -> None:
        self._give_way()
        self._update(check=replace(self._snapshot.check, progress=done))

    def _update(self, **changes: object) -> None:
        with self._lock:
            self._snapshot = replace(self._snapshot, **changes)  # pyright: ignore[reportArgumentType]

    def _watch(self) -> None:
        while not self._closing.wait(INTERVAL):
            self.look()

    def _verify_forever(self) -> None:
        seen: Head | None = None
        since, rest = 0.0, 0.0
        while not self.closing:
            head, now = self._snapshot.head, time.monotonic()
            stale = head != seen or now - since > max(AGAIN, 2 * rest)
            if head is not None and stale and now - since >= rest:
                try:
                    self._give_way()
                    now = time.monotonic()
                    self.verify()
                except _StoppedError:
                    return
                seen, since = head, time.monotonic()
                rest = REST * (since - now)
            if head is None and seen is not None:
                self._update(check=Check())
                seen, since, rest = None, 0.0, 0.0
            self._closing.wait(INTERVAL)
