"""A run under looks as people see it: what is held and until when, which looks are open, and what periods came to.

The sentences are here, once: the statement, the dashboard and the messages to members say the same ones.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from guerdon.ledger.books import journal, tables
from guerdon.ledger.books.money import format_amount
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay import looking
from guerdon.ledger.pay.holding import HeldPeriod, held_periods
from guerdon.ledger.pay.recorded_terms import terms_of
from guerdon.looks import periods
from guerdon.looks.outcomes import Awaited, Outcome, awaited
from guerdon.rule import Status
from guerdon.terms import Looks

HELD = "held until looks"  # the status of pay that its looks have not released yet
MOST = 100  # open looks, and settled periods, that are read at a time: what a page can show
DEPOSITS = (
    "looks, not deposits, cover run {run!r}: all pay is held until some of its rounds are looked at, no member can "
    "have a loss, and who leaves is looked at too; `guerdon looks plan` says what cheats lose"
)


class LookLine(NamedTuple):
    """An open look: its number in the run, whose round it is of, and what it waits for."""

    number: int
    agent: int
    member: str
    round: int
    awaited: Awaited

    @property
    def until(self) -> datetime | None:
        """When what it waits for must have happened; None where it is decided."""
        return None if self.awaited.until is None else datetime.fromtimestamp(self.awaited.until, UTC)

    @property
    def words(self) -> str:
        """What it waits for, until when, and what follows otherwise."""
        return self.awaited.words


class PeriodLine(NamedTuple):
    """A member's period that is over: its paid rounds, its looks, and what became of the pay, in micro-units."""

    record: int
    at: datetime
    agent: int
    member: str
    first: int
    last: int
    passed: int
    looks: int
    released: int
    forfeited: int
    words: str


class RunLooks(NamedTuple):
    """What is held, released and forfeited of a run's pay, in micro-units; and its looks.

    `waiting`: what is held, until when, in words. `open` has the first looks of `open_total`, `settled` the newest
    periods of `settled_total`.
    """

    run: int
    name: str
    held: int
    released: int
    forfeited: int
    waiting: list[str]
    open: list[LookLine]
    open_total: int
    settled: list[PeriodLine]
    settled_total: int


def is_looked_at(connection: Connection, run: int) -> bool:
    """Return whether the pay of a run, by its number, is held until looks."""
    return isinstance(terms_of(connection, run).hold, Looks)


def run_looks(connection: Connection, run: str, agent: int | None = None) -> RunLooks:
    """Return a run under looks as it is now, of all members or of the one with a number; raise for another run."""
    own, now = looking.watching(connection, run), looking.seconds(journal.now(connection))
    chosen = [place for place, number in enumerate(own.people.agents) if agent in (None, number)]
    terms = terms_of(connection, own.row.id)
    held = [(place, one) for place in chosen for one in held_periods(own.state, terms, place)]
    looks = [(place, look) for place, look in periods.open_looks(own.state) if place in set(chosen)]
    lines = [
        LookLine(
            look.number, own.people.agents[place], own.member(place), look.round, awaited(look.asked, own.hold, now)
        )
        for place, look in looks[:MOST]
    ]
    found, (count, released, forfeited) = _settled(connection, own.row.id, agent)
    amount = sum(one.amount for _, one in held)
    return RunLooks(
        own.row.id, run, amount, released, forfeited, waiting(held), lines, len(looks), found, count,
    )  # fmt: skip


def totals(connection: Connection, run: int) -> tuple[int, int, int]:
    """Return what a run, by its number, holds, and what looks released and took of its pay, in micro-units."""
    account = tables.accounts.c
    held = select(func.sum(account.balance)).where(account.run == run, account.kind == "held")
    row: AnyRow = connection.execute(_totals().where(tables.settled.c.run == run)).one()
    return int(connection.execute(held).scalar() or 0), int(row[1] or 0), int(row[2] or 0)


def waiting(held: Sequence[tuple[int, HeldPeriod]]) -> list[str]:
    """Return what is held of members (by place) and until when, in words: together what waits for the same."""
    reasons: dict[str, list[tuple[int, HeldPeriod]]] = {}
    for place, one in held:
        why = "until their open looks are decided" if one.ends is None and one.looks else one.until
        reasons.setdefault(why, []).append((place, one))
    found: list[str] = []
    for why, those in reasons.items():
        people, amount = len({place for place, _ in those}), sum(one.amount for _, one in those)
        found.append(f"{format_amount(amount)} of {people} member{'s' * (people > 1)} {why}")
    return found


def settled_words(run: str, row: Any) -> str:
    """Return what became of a member's period, in words; `row`: of the table `settled`."""
    looks: dict[str, str] = json.loads(row.looks)
    others = [f"round {number}: {outcome}" for number, outcome in looks.items() if outcome != Outcome.PASSED]
    words = f"{run}, rounds {row.first} to {row.last}: {_passed(looks)} of {len(looks)} looks passed"
    words += f" ({', '.join(others)})" if others else ""
    words += f"; {format_amount(row.released)} released" if row.released else ""
    return words + (f"; {format_amount(row.forfeited)} forfeited to the reserve" if row.forfeited else "")


def until_words(hold: Looks, first: int, number: int, *, is_last: bool) -> str:
    """Return until when the pay of a round is held, in words; `first`: the run's first round, `is_last`: its last one.

    >>> until_words(Looks(period=50, auditor="ab" * 32), 1, 7, is_last=False)
    'until the looks of round 50'
    """
    return f"until the looks of round {number if is_last else hold.end_of_period(number, first)}"


def status_of(status: str, hold: Any) -> str:
    """Return a payment's status for people: what looks hold is not paid yet."""
    return HELD if status == Status.PAID.label and isinstance(hold, Looks) else status


def fates(connection: Connection, run: int) -> Callable[[int, int], str]:
    """Return what became of the pay of an agent, by number, in a round of a run under looks: a status for people."""
    own = tables.settled.c
    query = select(own.agent, own.first, own.last, own.forfeited).where(own.run == run).order_by(own.agent, own.first)
    rows = connection.execute(query).all()
    by_agent = {agent: list(those) for agent, those in groupby(rows, key=lambda row: row.agent)}

    def fate(agent: int, number: int) -> str:
        for row in by_agent.get(agent, ()):
            if row.first <= number <= row.last:
                return "forfeited, all or in part" if row.forfeited else "released"
        return HELD

    return fate


def _settled(connection: Connection, run: int, agent: int | None) -> tuple[list[PeriodLine], tuple[int, int, int]]:
    """Return the newest periods that are over, and of all: how many, what was released, what was forfeited."""
    own, record = tables.settled, tables.records
    mine = (own.c.run == run) & (own.c.agent == agent if agent is not None else True)
    totals = connection.execute(_totals().where(mine)).one()
    names = tables.agents.c
    query = select(own, record.c.created_at, names.name, tables.runs.c.name.label("run_name"))
    query = query.join(record, record.c.seq == own.c.record).join(tables.agents, names.id == own.c.agent)
    query = query.join(tables.runs, tables.runs.c.id == own.c.run).where(mine)
    newest = query.order_by(own.c.record.desc(), own.c.agent, own.c.first).limit(MOST)
    count, released, forfeited = (int(total or 0) for total in totals)
    return [_period(row) for row in connection.execute(newest)], (count, released, forfeited)


def _totals() -> Any:
    own = tables.settled.c
    return select(func.count(), func.sum(own.released), func.sum(own.forfeited))


def _period(row: AnyRow) -> PeriodLine:
    looks: Mapping[str, str] = json.loads(row.looks)
    return PeriodLine(
        row.record, row.created_at, row.agent, row.name, row.first, row.last, _passed(looks), len(looks), row.released,
        row.forfeited, settled_words(row.run_name, row),
    )  # fmt: skip


def _passed(looks: Mapping[str, str]) -> int:
    return sum(outcome == Outcome.PASSED for outcome in looks.values())
