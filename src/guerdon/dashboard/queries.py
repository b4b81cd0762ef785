"""What the dashboard reads: lists a page at a time, and a run's numbers as columns. Nothing here writes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from sqlalchemy import Connection, Table, case, func, select

from guerdon.costs import ExpressionCost
from guerdon.dashboard.explanations import Formula, RunState, formula, run_state
from guerdon.dashboard.models import Amount, PayoutList
from guerdon.ledger.books import tables
from guerdon.ledger.books.chain import STATUS_CODES
from guerdon.ledger.books.errors import RefusedError, RuleMissingError
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay.payouts import payout_summaries
from guerdon.ledger.pay.recorded_rules import restored
from guerdon.ledger.pay.recorded_terms import micro_deposit, terms_of
from guerdon.ledger.read.looked import RunLooks, is_looked_at, run_looks, totals
from guerdon.ledger.read.queries import LARGEST_ID, PAID, balances, last_round, roster, run_summary
from guerdon.ledger.read.statements import Line, payments_of, read_lines
from guerdon.provenance import version_of
from guerdon.rule import Need, Rule
from guerdon.terms import Looks
from guerdon.words import about

agents, members, payments = tables.agents, tables.members, tables.payments
records, rounds, runs = tables.records, tables.rounds, tables.runs
MOST_NOTES = 1000

# A payment as it is read. What was paid, whether it is the first of a round, and its status are one number.
PAYMENT = np.dtype([("packed", np.int64), ("ratio", np.float64)])
STATUSES = 8  # more than there are
UNKNOWN = STATUSES - 1


class UnknownError(Exception):
    """There is no such run, agent or payout."""


@dataclass(frozen=True)
class RunOverview:
    """A run and what it has done so far; `request` is that of its last round."""

    id: int
    name: str
    state: RunState
    rule: str
    cost: str
    agents: int
    rounds: int
    paid: Amount
    started_at: datetime
    last_activity: datetime
    losses: str
    request: int | None
    looks_at: Literal["distance", "information"]
    quiet_in: float | None  # seconds from now until an active run is quiet, if nothing happens
    hold: str  # until when pay is held, in words
    deposit: Amount  # that an agent must have to join later
    cost_factors: dict[str, float]  # what the cost is multiplied by for agents, where that is not 1
    looks: bool  # whether looks hold its pay: then `paid` is what rounds gave, held, released or forfeited since
    held: Amount
    released: Amount  # by looks
    forfeited: Amount  # in failed looks


@dataclass(frozen=True)
class RunList:
    """A page of the list of runs, the newest activity first."""

    unit: str
    total: int
    runs: list[RunOverview]


@dataclass(frozen=True)
class AgentOverview:
    """An agent and what it has."""

    id: int
    name: str
    earned: Amount
    balance: Amount
    deposit: Amount
    held: Amount
    carried: Amount
    released: Amount  # by looks
    forfeited: Amount  # in failed looks


@dataclass(frozen=True)
class AgentList:
    """A page of the list of agents, by name."""

    unit: str
    total: int
    agents: list[AgentOverview]


@dataclass(frozen=True)
class RunMember:
    """An agent of a run."""

    id: int
    name: str


@dataclass(frozen=True)
class RoundNote:
    """A remark on an agent in a round."""

    agent: int
    round: int
    note: str


class RunData(NamedTuple):
    """A run as columns: one entry per round, then one per payment (in the order of the rounds)."""

    id: int
    name: str
    unit: str
    rule: Rule
    agents: list[RunMember]
    factors: Any  # what the cost is multiplied by for each of them
    # Per round:
    record: Any
    number: Any
    request: Any
    work: Any  # h(ν), the common cost of the requested work
    metrics: list[dict[str, float | None]]
    # Per payment:
    round: Any  # index into the rounds
    position: Any  # index into the agents
    status: Any
    paid: Any  # the reward and what was cut of a loss, in micro-units
    ratio: Any  # the distance relative to the expected one, D/E; NaN where the rule looked at none
    seal: bytes  # hash of the last record that was read

    def costs(self, where: Any) -> Any:
        """Return what the requested work cost the agents of some payments."""
        return self.work[self.round[where]] * self.factors[self.position[where]]


def read_head(connection: Connection) -> AnyRow:
    """Return name and unit of the ledger, with number, hash and time of its last record."""
    query = select(tables.ledger, records.c.created_at).join(records, records.c.seq == tables.ledger.c.head)
    return connection.execute(query).one()


def list_runs(connection: Connection, start: int, count: int) -> RunList:
    """Return a page of the runs, the newest activity first."""
    last = select(func.max(rounds.c.record)).where(rounds.c.run == runs.c.id).scalar_subquery()
    query = select(runs).order_by(func.coalesce(last, runs.c.record).desc()).limit(count).offset(start)
    shown = [_run_overview(connection, row) for row in connection.execute(query).all()]
    return RunList(read_head(connection).unit, _count(connection, runs), shown)


def need_run(connection: Connection, number: int) -> RunOverview:
    """Return a run as the list has it, or raise."""
    return _run_overview(connection, _need_row(connection, runs, number))


def _run_overview(connection: Connection, run: AnyRow) -> RunOverview:
    recent = select(records.c.created_at).join(rounds, rounds.c.record == records.c.seq).where(rounds.c.run == run.id)
    times = connection.execute(recent.order_by(rounds.c.number.desc()).limit(20)).scalars().all()
    done, last, (words, kind) = run_summary(connection, run), last_round(connection, run.id), _words_of(run)
    terms = terms_of(connection, run.id)
    state, quiet_in = run_state(done.rounds, done.last_activity, usual_gap(times))
    return RunOverview(
        run.id, run.name, state, words, run.cost,
        done.agents, done.rounds, done.paid, done.started_at, done.last_activity, terms.losses,
        None if last is None else last.request, kind,
        quiet_in, "" if terms.hold is None else terms.hold.words, micro_deposit(terms), done.cost_factors,
        isinstance(terms.hold, Looks), *totals(connection, run.id),
    )  # fmt: skip


def _words_of(run: AnyRow) -> tuple[str, Literal["information", "distance"]]:
    """Return a run's rule in words, and what it pays for; the list of runs is shown also where one is not installed."""
    try:
        rule = rule_of(run)
    except RuleMissingError:
        name, version = version_of(run.rule)
        return f"{name}, in version {version}, which is not installed here", "distance"
    return about(rule).words(rule), "information" if Need.PREDICTION in rule.needs else "distance"


def rule_of(row: AnyRow) -> Rule:
    """Return the payment rule of a run; one that cannot be read is damage, and said before anything is computed."""
    try:
        return restored(row.rule, row.cost)
    except RuleMissingError:
        raise  # the ledger is sound: the page says what to install
    except RefusedError as error:
        raise ValueError(str(error)) from error


def usual_gap(times: Sequence[datetime]) -> float:
    """Return the median number of seconds between neighbouring moments; 0 where there are fewer than two."""
    gaps = [abs((later - sooner).total_seconds()) for later, sooner in pairwise(times)]
    return float(np.median(gaps)) if gaps else 0.0


def list_agents(connection: Connection, start: int, count: int, search: str = "") -> AgentList:
    """Return a page of the agents by name: those with `search` in their name."""
    chosen = select(agents.c.id, agents.c.name)
    if search:
        chosen = chosen.where(func.lower(agents.c.name).contains(search.lower(), autoescape=True))
    rows = connection.execute(chosen.order_by(agents.c.name).limit(count).offset(start)).all()
    unit, total = read_head(connection).unit, _count(connection, chosen.subquery())
    return AgentList(unit, total, _agent_overviews(connection, rows))


def need_agent(connection: Connection, number: int) -> AgentOverview:
    """Return an agent, or raise."""
    return _agent_overviews(connection, [_need_row(connection, agents, number)])[0]


def _agent_overviews(connection: Connection, rows: Sequence[AnyRow]) -> list[AgentOverview]:
    owned = balances(connection, [row.id for row in rows])
    return [
        AgentOverview(
            row.number, row.agent, row.earned, row.balance, row.deposit, row.held, row.carried, row.released,
            row.forfeited,
        )
        for row in owned
    ]  # fmt: skip


def runs_of_agent(connection: Connection, agent: int) -> list[tuple[int, str]]:
    """Return number and name of the runs that an agent belongs to, the newest first."""
    query = select(runs.c.id, runs.c.name).join(members, members.c.run == runs.c.id).where(members.c.agent == agent)
    return [(row.id, row.name) for row in connection.execute(query.order_by(runs.c.id.desc()))]


def looks_of_run(connection: Connection, number: int) -> RunLooks | None:
    """Return a run's looks; None where its pay is not held until looks."""
    row = _need_row(connection, runs, number)
    return run_looks(connection, row.name) if is_looked_at(connection, number) else None


def looks_of_agent(connection: Connection, agent: int) -> list[RunLooks]:
    """Return an agent's looks in each run under looks that it belongs to, the newest run first."""
    joined = runs_of_agent(connection, agent)
    return [run_looks(connection, name, agent) for number, name in joined if is_looked_at(connection, number)]


def statement_lines(
    connection: Connection, agent: int, start: int, count: int
) -> tuple[list[tuple[Line, Formula | None]], int]:
    """Return `count` lines of a statement after the `start` newest, each with its formula; and how many there are."""
    lines, total = read_lines(connection, agent, start, count)
    paid = payments_of(connection, agent, lines[0].record, lines[-1].record) if lines else {}
    return [(line, formula(paid[line.record]) if line.record in paid else None) for line in lines[::-1]], total


def list_payouts(connection: Connection, start: int, count: int) -> PayoutList:
    """Return a page of the payout batches, the newest first."""
    unit, total = read_head(connection).unit, _count(connection, tables.payouts)
    listing = {"unit": unit, "total": total, "payouts": payout_summaries(connection, start, count)}
    return PayoutList.model_validate(listing, from_attributes=True)


def notes_of(connection: Connection, first: int, last: int, run: int) -> list[RoundNote]:
    """Return the remarks on payments of a run, from record to record."""
    paid = payments.c
    query = select(paid.agent, rounds.c.number, paid.note).join(rounds, paid.record == rounds.c.record)
    within = paid.record.between(first, last) & (rounds.c.run == run) & (paid.note != "")
    return [RoundNote(*row) for row in connection.execute(query.where(within).limit(MOST_NOTES))]


def _need_row(connection: Connection, table: Table, number: int) -> AnyRow:
    query = select(table).where(table.c.id == number)
    row = connection.execute(query).one_or_none() if 0 < number < LARGEST_ID else None
    if row is None:
        raise UnknownError(f"there is no {table.name[:-1]} {number}; the page of {table.name} lists them all")
    return row


def _count(connection: Connection, table: Any) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()


def read_run(connection: Connection, number: int, loaded: RunData | None = None) -> RunData:
    """Return a run as columns, reading only what came after `loaded`, if that is still part of the ledger."""
    row = _need_row(connection, runs, number)
    if loaded is None or not _is_still_there(connection, loaded, row):
        loaded = _empty_run(connection, row)
    after = int(loaded.record[-1]) if len(loaded.record) else 0
    columns = (rounds.c[name] for name in ("record", "number", "request", "cost", "metrics"))
    new = select(*columns).where(rounds.c.run == number, rounds.c.record > after).order_by(rounds.c.record)
    played = connection.execute(new).all()
    if not played:
        return loaded
    people, factors = _members(connection, number)
    loaded = loaded._replace(agents=people, factors=factors, seal=seal_of(connection, played[-1].record))
    return _extend(loaded, played, _read_payments(connection, number, after))


def _is_still_there(connection: Connection, loaded: RunData, row: AnyRow) -> bool:
    record = int(loaded.record[-1]) if len(loaded.record) else row.record
    return seal_of(connection, record) == loaded.seal and loaded.name == row.name


def seal_of(connection: Connection, record: int) -> bytes | None:
    """Return the hash of a record, or None if there is none of this number."""
    return connection.execute(select(records.c.hash).where(records.c.seq == record)).scalar()


def _empty_run(connection: Connection, row: AnyRow) -> RunData:
    rule = rule_of(row)
    begun = connection.execute(select(records.c.hash).where(records.c.seq == row.record)).scalar_one()
    whole, real = np.zeros(0, dtype=np.int64), np.zeros(0)
    return RunData(
        row.id, row.name, read_head(connection).unit, rule, *_members(connection, row.id),
        whole, whole, whole, real, [], whole, whole, whole, whole, real, begun,
    )  # fmt: skip


def _members(connection: Connection, number: int) -> tuple[list[RunMember], Any]:
    """Return the agents of a run, and their cost factors."""
    people = roster(connection, number)
    return [RunMember(*member) for member in zip(people.agents, people.names, strict=True)], people.factors


def _read_payments(connection: Connection, number: int, after: int) -> Any:
    """Return the payments of a run after a record, round by round, as one array with named fields.

    Straight from the driver into the array: a million rows would otherwise become as many objects each for SQLAlchemy,
    for Python and for its garbage collector, and take twice as long. Every column costs a tenth more.
    """
    result: Any = connection.execute(_payments_query(number, after))
    return np.fromiter(result.cursor, dtype=PAYMENT)


def _payments_query(number: int, after: int) -> Any:
    paid = payments.c
    code = case({label: status for label, status in STATUS_CODES.items()}, value=paid.status, else_=UNKNOWN)  # noqa: C416
    first = case((paid.position == 0, STATUSES), else_=0)
    query = select(2 * STATUSES * PAID + first + code, paid.squared_distance / func.nullif(paid.expected, 0.0))
    mine = query.join(rounds, rounds.c.record == paid.record).where(rounds.c.run == number, rounds.c.record > after)
    return mine.order_by(rounds.c.number, paid.position)  # as the index of rounds has them: nothing to sort


def _extend(loaded: RunData, played: Sequence[AnyRow], paid: Any) -> RunData:
    status, starts = paid["packed"] & UNKNOWN, np.flatnonzero(paid["packed"] & STATUSES)  # starts of the rounds
    if np.any(status == UNKNOWN) or len(starts) != len(played):
        raise ValueError("a payment has a status that is none, or a round has no payments")
    sizes = np.diff(starts, append=len(status))
    added: dict[str, Any] = {"ratio": paid["ratio"], "status": status}
    added["paid"] = paid["packed"] // (2 * STATUSES)
    added["position"] = np.arange(len(status)) - np.repeat(starts, sizes)  # a round has every agent, in order
    for name in ("record", "number", "request"):
        added[name] = np.array([getattr(row, name) for row in played], dtype=np.int64)
    added["work"] = np.array(_costs(played))
    added["round"] = len(loaded.record) + np.repeat(np.arange(len(played)), sizes)
    grown = {name: np.concatenate([getattr(loaded, name), values]) for name, values in added.items()}
    metrics = json.loads(f"[{','.join(row.metrics for row in played)}]")
    return loaded._replace(**grown, metrics=loaded.metrics + metrics)


def _costs(played: Sequence[AnyRow]) -> list[float]:
    """Return the cost of the requested work of each round; each formula is evaluated once for each request."""
    asked = {(row.cost, row.request) for row in played}
    costs = {(text, request): float(ExpressionCost(text)(request)) for text, request in asked}
    return [costs[row.cost, row.request] for row in played]
