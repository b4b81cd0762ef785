"""What waits in escrow for the audit, run by run: what its rounds held, less what was released or forfeited of it.

A move by hand from the balance into escrow belongs to no run. What is there because it has not vested yet is not
counted as held: see `unvested`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, case, func, literal, select

from guerdon.ledger import tables

entry, played, part, account_ = tables.entries.c, tables.rounds.c, tables.escrow.c, tables.accounts.c
paid, record = tables.payments.c, tables.records.c


def held(
    connection: Connection, *, run: int | None = None, account: int | None = None, last: int | None = None
) -> Counter[tuple[int, int]]:
    """Return what is held now by (run, escrow account): in all runs or one, of all agents or one, up to a round."""
    into = _of_rounds(_through(entry.target, played.run, entry.target, func.sum(audited(entry.amount))))
    out = _through(entry.source, part.run, entry.source, func.sum(part.amount)).join(
        tables.escrow, part.record == entry.record
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
    """Return all that went into escrow accounts and out of them, in order, but for what vests."""
    rounds = _through(
        entry.target, entry.record, entry.target, audited(entry.amount), literal(True), played.run, played.number
    )
    by_hand, out = (
        _through(side, entry.record, side, entry.amount, literal(side is entry.target))
        .join(tables.records, record.seq == entry.record)
        .where(record.kind != "round")
        for side in (entry.target, entry.source)
    )
    queries = (_of_rounds(rounds), by_hand, out.where(record.seq.not_in(select(tables.closings.c.record))))
    found = [Flow(*row) for query in queries for row in connection.execute(query)]
    return sorted((flow for flow in found if flow.amount), key=lambda flow: flow.record)


def unvested(connection: Connection, people: Sequence[int] | None = None) -> Counter[int]:
    """Return what is unvested of each agent (or of some, by number), in all runs."""
    found = Counter[int]()
    if connection.execute(select(func.count()).select_from(tables.terms)).scalar_one() == 0:
        return found
    owner, vests, ended = account_.owner, tables.terms.c, tables.closings.c
    into = _of_rounds(_through(entry.target, owner, func.sum(entry.amount - audited(entry.amount))))
    into = into.join(tables.terms, vests.run == played.run)
    spent = _through(entry.source, owner, func.sum(entry.amount))
    by_rounds = spent.join(tables.rounds, played.record == entry.record)
    by_closing = spent.join(tables.closings, (ended.record == entry.record) & (ended.agent == owner))
    for sign, query in ((1, into), (-1, by_rounds), (-1, by_closing)):
        chosen = query if people is None else query.where(owner.in_(people))
        rows: Any = connection.execute(chosen.group_by(owner))
        for agent, amount in rows:
            found[agent] += sign * int(amount)
    return found


def audited(amount: Any) -> Any:
    """Return how much of an entry into escrow waits for the audit: as much as its payment says. The rest vests."""
    return case((amount < paid.held, amount), else_=paid.held)


def _of_rounds(query: Any) -> Any:
    """Return a query for entries into escrow, of rounds only, with their rounds and payments."""
    mine = (paid.record == entry.record) & (paid.agent == account_.owner)
    return query.join(tables.rounds, played.record == entry.record).join(tables.payments, mine)


def _through(side: Any, *columns: Any) -> Any:
    """Return a query for entries with an escrow account on one side; the treasury's entries are in no index."""
    own = (account_.id == side) & (account_.kind == "escrow") & (side != tables.TREASURY)
    return select(*columns).select_from(tables.entries).join(tables.accounts, own)
