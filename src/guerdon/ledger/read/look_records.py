"""What a ledger knows of the looks at a run: all that tasks are made of, and that members check."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from guerdon.ledger.books import journal, tables
from guerdon.ledger.pay import looking
from guerdon.ledger.pay.looking import RecordedWork, SettledPeriod, Watching
from guerdon.ledger.read import queries
from guerdon.looks.opening import RootChange


class Sent(NamedTuple):
    """What a member sent in a round: the hash of its report (None: nothing), and what is held for it, micro-units."""

    report: bytes | None
    weight: int


class LookRecords(NamedTuple):
    """The records of a run under looks, read at one moment.

    `changes`: roots by member. `work`: what rounds named. `sent`: by round and member. `coins`: by round, one for each
    look, None where a nonce was not opened. `answers`, `verdicts`: hashes and texts by look and whether it is an
    appeal. `settled`: periods that are over. `now`: the moment, in seconds since 1970. `last`: the last round.
    """

    ledger: str
    run: str
    own: Watching
    changes: Mapping[str, Sequence[RootChange]]
    work: Sequence[RecordedWork]
    sent: Mapping[tuple[int, str], Sent]
    coins: Mapping[int, tuple[int | None, ...]]
    answers: Mapping[tuple[int, bool], bytes]
    verdicts: Mapping[tuple[int, bool], str]
    settled: Sequence[SettledPeriod]
    now: int
    last: int


def look_records(connection: Connection, ledger: str, run: str) -> LookRecords:
    """Return what a ledger of this name has of the looks at a run, or raise where the run holds no pay for looks."""
    own = looking.watching(connection, run)
    last = queries.last_round(connection, own.row.id)
    return LookRecords(
        ledger, run, own,
        looking.changes(connection, ledger, run),
        looking.recorded_work(connection, run),
        _sent(connection, own.row.id),
        _coins(connection, ledger, own),
        {key: bytes(value) for key, value in _by_look(connection, own.row.id, tables.answers, "sealed").items()},
        _by_look(connection, own.row.id, tables.verdicts, "text"),
        looking.settled_periods(connection, run),
        looking.seconds(journal.now(connection)),
        0 if last is None else last.number,
    )  # fmt: skip


def _sent(connection: Connection, run: int) -> dict[tuple[int, str], Sent]:
    paid, played, agents = tables.payments.c, tables.rounds.c, tables.agents.c
    query = select(played.number, agents.name, paid.gradient, paid.released).join(
        tables.payments, paid.record == played.record
    )
    rows = connection.execute(query.join(tables.agents, agents.id == paid.agent).where(played.run == run))
    return {
        (number, name): Sent(None if gradient is None else bytes(gradient), weight)
        for number, name, gradient, weight in rows
    }


def _coins(connection: Connection, ledger: str, own: Watching) -> dict[int, tuple[int | None, ...]]:
    there = tables.draws.c
    rows = connection.execute(select(tables.draws).where(there.run == own.row.id).order_by(there.round)).all()
    found = dict[int, tuple[int | None, ...]]()
    for row in rows:
        server, auditor = (None if one is None else bytes(one) for one in (row.server_nonce, row.auditor_nonce))
        told = looking.named_draw(connection, ledger, own.row, row.round, (server, auditor))
        found[row.round] = looking.coins_of(told, own.hold.looks)
    return found


def _by_look(connection: Connection, run: int, table: Any, column: str) -> dict[tuple[int, bool], Any]:
    rows = connection.execute(select(table).where(table.c.run == run)).mappings()
    return {(row["look"], bool(row["appeal"])): row[column] for row in rows}
