"""What is in escrow, run by run: what its rounds held, less what was released or forfeited of it, the oldest first.

A move by hand from the balance into escrow belongs to no run.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, literal, select

from guerdon.ledger import tables

entry, played, part, account_ = tables.entries.c, tables.rounds.c, tables.escrow.c, tables.accounts.c


def held(
    connection: Connection, *, run: int | None = None, account: int | None = None, last: int | None = None
) -> Counter[tuple[int, int]]:
    """Return what is held now by (run, escrow account): in all runs or one, of all agents or one, up to a round."""
    into = _through(entry.target, played.run, entry.target, func.sum(entry.amount)).join(
        tables.rounds, played.record == entry.record
    )
    out = _through(entry.source, part.run, entry.source, func.sum(part.amount)).join(
        tables.escrow, part.move == entry.record
    )
    if run is not None:
        into, out = into.where(played.run == run), out.where(part.run == run)
    if account is not None:
        into, out = into.where(entry.target == account), out.where(entry.source == account)
    if last is not None:
        into = into.where(played.number <= last)
    found = Counter[tuple[int, int]]()
    for sign, query in ((1, into.group_by(played.run, entry.target)), (-1, out.group_by(part.run, entry.source))):
        rows: Any = connection.execute(query)
        found.update({(number, escrow): sign * int(amount) for number, escrow, amount in rows})
    return found


def spread(amount: int, by_hand: int, runs: Mapping[int, int]) -> dict[int, int]:
    """Return how much of `amount` each run gives: first goes what was held by hand, then the runs as they began.

    >>> spread(60, by_hand=10, runs={1: 49, 2: 3})
    {1: 49, 2: 1}
    """
    left, parts = max(0, amount - by_hand), dict[int, int]()
    for run in sorted(runs):
        taken = min(left, runs[run])
        if taken > 0:
            parts[run] = taken
            left -= taken
    return parts


class Flow(NamedTuple):
    """An amount that goes into an escrow account or out of it; of a round of a run, or of none."""

    record: int
    account: int
    amount: int
    enters: bool
    run: int | None = None
    round: int | None = None


@dataclass
class Holdings:
    """What one agent has in escrow, as its entries go by."""

    by_hand: int = 0
    held: Counter[int] = field(default_factory=Counter[int])  # by run
    entered: list[Flow] = field(default_factory=list[Flow])

    def add(self, flow: Flow) -> None:
        """Put what a round held, or a hand, into escrow."""
        if flow.run is None:
            self.by_hand += flow.amount
        else:
            self.held[flow.run] += flow.amount
            self.entered.append(flow)

    def take(self, amount: int, parts: Mapping[int, int]) -> None:
        """Take an amount out of escrow, these parts of it from runs."""
        self.by_hand -= amount - sum(parts.values())
        self.held.subtract(parts)

    def due(self, run: int, last: int) -> int:
        """Return what is left of what a run held up to a round."""
        later = (flow.amount for flow in self.entered if flow.run == run and (flow.round or 0) > last)
        return self.held[run] - sum(later)


def flows(connection: Connection) -> list[Flow]:
    """Return all that went into escrow accounts and out of them, in order."""
    into = _through(entry.target, entry.record, entry.target, entry.amount, literal(True), played.run, played.number)
    into = into.outerjoin(tables.rounds, played.record == entry.record)
    out = _through(entry.source, entry.record, entry.source, entry.amount, literal(False))
    found = [Flow(*row) for query in (into, out) for row in connection.execute(query)]
    return sorted(found, key=lambda flow: flow.record)


def _through(side: Any, *columns: Any) -> Any:
    """Return a query for entries with an escrow account on one side; the treasury's entries are in no index."""
    own = (account_.id == side) & (account_.kind == "escrow") & (side != tables.TREASURY)
    return select(*columns).select_from(tables.entries).join(tables.accounts, own)
