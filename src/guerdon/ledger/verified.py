"""Verified work in a ledger: what `Ledger.looks` offers."""

from collections.abc import Sequence
from typing import NamedTuple

from guerdon.ledger.books.database import Database
from guerdon.ledger.pay import looking
from guerdon.ledger.pay.looking import OpenLook, RecordedWork, SettledPeriod, Watching
from guerdon.ledger.read import queries
from guerdon.looks import periods
from guerdon.looks.opening import Committed, RootChange


class VerifiedWork(NamedTuple):
    """Roots, coins, looks and verdicts of a ledger's runs. Everything done again changes nothing.

    Methods that write return the number of the record, or None where it was there already.
    """

    database: Database
    ledger: str

    def commit(self, committed: Committed) -> int | None:
        """Record the root of a member's rows for a run, begun or not; enrol the member if it is new.

        It counts from the first round on; where the member takes part already, from the next period on.
        """
        with self.database.writing() as connection:
            return looking.commit(connection, self.ledger, committed)

    def changes(self, run: str) -> dict[str, list[RootChange]]:
        """Return the roots that members have committed to for a run, by name; the last of them counts."""
        with self.database.reading() as connection:
            return looking.changes(connection, self.ledger, run)

    def draw(self, run: str, number: int, server: bytes | None, auditor: bytes | None) -> int | None:
        """Record what server and auditor had committed to for a round, and open the looks that follow.

        `server`, `auditor`: their nonces, of 32 bytes; None: its owner did not open it. Rounds are drawn in order.
        """
        with self.database.writing() as connection:
            return looking.record_draw(connection, self.ledger, run, number, server, auditor)

    def leave(self, run: str, members: Sequence[str], memo: str = "") -> int | None:
        """End the periods of members that leave a run: what is held of them is looked at now."""
        with self.database.writing() as connection:
            return looking.leave(connection, run, members, memo)

    def answer(self, run: str, look: int, sealed: bytes, *, appeal: bool = False) -> int | None:
        """Record the hash of what a member sealed for the auditor of a look; `appeal`: for the second auditor."""
        with self.database.writing() as connection:
            return looking.answer(connection, run, look, sealed, appeal=appeal)

    def verdict(self, text: str, *, appeal: bool = False) -> int | None:
        """Record a verdict (`SignedVerdict.to_json`) that the auditor signed; `appeal`: that the second one did."""
        with self.database.writing() as connection:
            return looking.record_verdict(connection, self.ledger, text, appeal=appeal)

    def settle(self, run: str, memo: str = "") -> list[SettledPeriod]:
        """Release or forfeit what is held of every period whose looks are decided by now, and return these."""
        with self.database.writing() as connection:
            return looking.settle_looks(connection, run, memo)[1]

    def open(self, run: str | None = None) -> list[OpenLook]:
        """Return the looks that are not settled, of a run or of all."""
        with self.database.reading() as connection:
            return looking.open_looks(connection, run)

    def settled(self, run: str) -> list[SettledPeriod]:
        """Return the periods of members that are over, in the order in which they were settled."""
        with self.database.reading() as connection:
            return looking.settled_periods(connection, run)

    def watching(self, run: str) -> Watching | None:
        """Return a run under looks as it is now; None where it has not begun."""
        with self.database.reading() as connection:
            return None if queries.find_run(connection, run) is None else looking.watching(connection, run)

    def last(self, run: str) -> int | None:
        """Return the number of a run's last recorded round; None: it has none."""
        with self.database.reading() as connection:
            row = queries.find_run(connection, run)
            last = None if row is None else queries.last_round(connection, row.id)
            return None if last is None else last.number

    def kept(self, run: str) -> set[int]:
        """Return the rounds whose reports must be kept: that wait for coins, are candidates, or are looked at."""
        with self.database.reading() as connection:
            return periods.kept_rounds(looking.watching(connection, run).state)

    def work(self, run: str) -> list[RecordedWork]:
        """Return what each round of a run named, and which members used how many of their named rows."""
        with self.database.reading() as connection:
            return looking.recorded_work(connection, run)
