"""The end of a run: what it still holds is released, as far as it is funded."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, func, select

from guerdon.ledger.books import journal, tables
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay import holding, looking, vesting
from guerdon.ledger.pay.losses import released_lines
from guerdon.ledger.pay.recorded_terms import micro_deposit, terms_of
from guerdon.ledger.read import queries
from guerdon.looks.periods import Watched
from guerdon.rule import PAID_LABELS, Status

played, paid, closed = tables.rounds.c, tables.payments.c, tables.closings.c


class Closing(NamedTuple):
    """A closing of a run: its record (None where there was nothing to do), what it released, and what stays held.

    `open`: rounds that paid the cost alone, whose extras still wait for another round.
    """

    record: int | None
    released: int
    held: int
    open: int = 0


def close_run(connection: Connection, run: str, names: Sequence[str] | None, memo: str) -> Closing:
    """Release the rest of what is held of the members that stayed to the end, or of those that are named."""
    found = queries.need_run(connection, run)
    terms, last = terms_of(connection, found.id), queries.last_round(connection, found.id)
    people, still = queries.roster(connection, found.id), open_rounds(connection, last)
    state = holding.load(connection, found.id, terms)
    if state is None or last is None:
        return Closing(None, 0, 0, still)
    if isinstance(state, Watched):
        record = looking.leave(connection, run, names, memo or f"run {run!r} closed after round {last.number}")
        return Closing(record, 0, int(state.held.sum()), still)
    chosen = vesting.stayed(state, founders(connection, found), micro_deposit(terms), last.number)
    if names is not None:
        chosen = np.isin(np.arange(len(people.names)), [_place(people.names, name, run) for name in names])
    (carried,) = queries.per_member(connection, found.id, [], "balance", ["carried"])
    amounts = vesting.closing(state, np.array(carried), chosen)
    left = int(state.held.sum() - amounts.sum())
    if not (chosen & ((amounts > 0) | (state.open > 0))).any():
        return Closing(None, 0, left, still)
    # Also who is released nothing now: what others are released depends on its held pay.
    places = np.flatnonzero(chosen & ((state.held > 0) | (state.open > 0)))
    rows = sorted(({"agent": people.agents[place], "run": found.id} for place in places), key=lambda row: row["agent"])
    remark = memo or f"run {run!r} closed after round {last.number}"
    entries = released_lines(amounts, people.accounts)
    record = journal.append(connection, "release", {"closings": rows}, entries, memo=remark)
    holding.save(connection, found.id, vesting.take(vesting.ended(state, places.tolist()), amounts))
    return Closing(record, int(amounts.sum()), left, still)


def founders(connection: Connection, run: AnyRow) -> Any:
    """Tell which of a run's members were there when it began."""
    member = tables.members.c
    query = select(member.record).where(member.run == run.id).order_by(member.position)
    return np.array(connection.execute(query).scalars().all()) == run.record


def open_rounds(connection: Connection, last: AnyRow | None) -> int:
    """Return how many rounds of a run wait for their extras after the `last` one: none was paid by the rule since."""
    if last is None or last.is_last:  # nothing follows a last round
        return 0
    of_run = select(paid.record).join(tables.rounds, played.record == paid.record).where(played.run == last.run)
    waiting = connection.execute(of_run.where(paid.status == Status.WAITING.label).distinct()).scalars().all()
    priced = of_run.where(paid.status == Status.PAID.label, paid.variance.is_not(None))
    settled = priced.where(paid.record > max(waiting, default=0)).limit(1)
    return 0 if connection.execute(settled).first() else len(waiting)


def bound_deposit(connection: Connection, agent: int) -> int:
    """Return what must stay of an agent's deposit: what runs ask for that it joined, and that are not closed for it."""
    member, most = tables.members.c, 0
    query = select(tables.runs).join(
        tables.members, (member.run == tables.runs.c.id) & (member.record != tables.runs.c.record)
    )
    for run in connection.execute(query.where(member.agent == agent)).all():
        last = select(func.max(played.record)).join(tables.payments, paid.record == played.record)
        worked = last.where(played.run == run.id, paid.agent == agent, paid.status.in_(PAID_LABELS))
        ended = select(func.max(closed.record)).where(closed.run == run.id, closed.agent == agent)
        latest, end = connection.execute(worked).scalar() or 0, connection.execute(ended).scalar() or 0
        most = max(most, micro_deposit(terms_of(connection, run.id)) if latest > end else 0)
    return most


def _place(names: Sequence[str], name: str, run: str) -> int:
    if name not in names:
        raise RefusedError(f"there is no agent {name!r} in run {run!r}")
    return names.index(name)
