"""What the dashboard reads: lists a page at a time, and a run's numbers as columns. Nothing here writes."""

import json
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, case, func, select

from guerdon.costs import ExpressionCost
from guerdon.ledger import tables
from guerdon.ledger.chain import STATUS_CODES
from guerdon.ledger.tables import AnyRow

accounts, agents, entries, members = tables.accounts, tables.agents, tables.entries, tables.members
payments, records, rounds, runs = tables.payments, tables.records, tables.rounds, tables.runs
MOST_NOTES = 1000
FEW = 5  # agents whose payments are found sooner one by one
NO_RUN = "there is no run {}; the page of runs lists them all"
LARGEST_ID = 2**62  # what fits into every database


# A payment as it is read.
PAYMENT = np.dtype([(name, np.int64) for name in ("record", "position", "status", "amount")] + [("distance", np.float64), ("expected", np.float64)])  # noqa: E501  # fmt: skip


class UnknownError(Exception):
    """There is no such run, agent or payout."""


class RunRow(NamedTuple):
    """A run in the list of runs; `paid` in micro-units, `gap` the usual seconds between its last rounds.

    `asked` is what was asked for in the last one.
    """

    id: int
    name: str
    rule: str
    cost: str
    liability: str
    agents: int
    rounds: int
    paid: int
    started_at: datetime
    last_activity: datetime
    gap: float
    asked: int | None


class AgentRow(NamedTuple):
    """An agent in the list of agents; amounts in micro-units."""

    id: int
    name: str
    earned: int
    balance: int
    deposit: int
    escrow: int
    carried: int


class PayoutRow(NamedTuple):
    """A payout batch in the list of payouts."""

    number: int
    created_at: datetime
    agents: int
    total: int
    outcome: str
    settled_at: datetime | None
    memo: str


class RunData(NamedTuple):
    """A run as columns: one entry per round, then one per payment (in the order of the rounds)."""

    id: int
    name: str
    rule: str
    agents: list[tuple[int, str]]
    # Per round:
    record: Any
    number: Any
    request: Any
    work: Any  # h(ν), what the work asked for costs
    metrics: list[dict[str, float | None]]
    # Per payment:
    round: Any  # index into the rounds
    position: Any  # index into the agents
    status: Any
    reward: Any
    distance: Any
    expected: Any
    seal: bytes  # hash of the last record that was read


def list_runs(connection: Connection, start: int, count: int) -> tuple[list[RunRow], int]:
    """Return the runs with the newest activity first, and how many there are in all."""
    total = connection.execute(select(func.count()).select_from(runs)).scalar_one()
    query, last = _runs_with_rounds()
    return _run_rows(connection, query.order_by(last.desc()).limit(count).offset(start)), total


def need_run(connection: Connection, number: int) -> RunRow:
    """Return a run as the list has it, or raise."""
    query, _ = _runs_with_rounds()
    rows = _run_rows(connection, query.where(runs.c.id == number)) if 0 < number < LARGEST_ID else []
    if not rows:
        raise UnknownError(NO_RUN.format(number))
    return rows[0]


def _runs_with_rounds() -> tuple[Any, Any]:
    """Return a query of runs with how many rounds they have, and the record of their last activity."""
    played = select(
        rounds.c.run, func.count().label("played"), func.max(rounds.c.record).label("last")
    ).group_by(rounds.c.run).subquery()  # fmt: skip
    last = func.coalesce(played.c.last, runs.c.record)
    query = select(runs, func.coalesce(played.c.played, 0).label("played"))
    return query.outerjoin(played, played.c.run == runs.c.id), last


def _run_rows(connection: Connection, query: Any) -> list[RunRow]:
    rows = connection.execute(query).all()
    shown = [row.id for row in rows]
    paid = select(rounds.c.run, func.sum(payments.c.amount)).join(rounds, payments.c.record == rounds.c.record)
    sums = _pairs(connection, paid.where(rounds.c.run.in_(shown)).group_by(rounds.c.run))
    crowd = select(members.c.run, func.count()).where(members.c.run.in_(shown)).group_by(members.c.run)
    crowds = _pairs(connection, crowd)
    return [_run_row(connection, row, crowds.get(row.id, 0), int(sums.get(row.id) or 0)) for row in rows]


def _run_row(connection: Connection, row: AnyRow, crowd: int, paid: int) -> RunRow:
    recent = (
        select(records.c.created_at, rounds.c.request)
        .join(rounds, rounds.c.record == records.c.seq)
        .where(rounds.c.run == row.id)
        .order_by(rounds.c.number.desc())
        .limit(20)
    )
    latest = connection.execute(recent).all()
    times = [one.created_at for one in latest]
    started = connection.execute(select(records.c.created_at).where(records.c.seq == row.record)).scalar_one()
    return RunRow(
        row.id, row.name, row.rule, row.cost, row.liability, crowd, row.played, paid, started,
        times[0] if times else started, usual_gap(times), latest[0].request if latest else None,
    )  # fmt: skip


def usual_gap(times: Sequence[datetime]) -> float:
    """Return the median number of seconds between neighbouring moments; 0 where there are fewer than two."""
    gaps = [abs((later - sooner).total_seconds()) for later, sooner in pairwise(times)]
    return float(np.median(gaps)) if gaps else 0.0


def list_agents(connection: Connection, start: int, count: int, search: str = "") -> tuple[list[AgentRow], int]:
    """Return agents by name, those whose name contains `search`, and how many there are in all."""
    chosen = select(agents.c.id, agents.c.name)
    if search:
        chosen = chosen.where(func.lower(agents.c.name).contains(search.lower(), autoescape=True))
    total = connection.execute(select(func.count()).select_from(chosen.subquery())).scalar_one()
    rows = connection.execute(chosen.order_by(agents.c.name).limit(count).offset(start)).all()
    return _agent_rows(connection, rows), total


def _agent_rows(connection: Connection, rows: Sequence[AnyRow]) -> list[AgentRow]:
    shown = [row.id for row in rows]
    own = [func.sum(case((accounts.c.kind == kind, accounts.c.balance), else_=0)) for kind in tables.PERSONAL]
    held = select(accounts.c.owner, *own).where(accounts.c.owner.in_(shown)).group_by(accounts.c.owner)
    standing = {owner: [int(value) for value in values] for owner, *values in connection.execute(held)}
    earned = _pairs(connection, _sums_of(shown))
    return [AgentRow(row.id, row.name, int(earned.get(row.id) or 0), *standing[row.id]) for row in rows]


def _sums_of(numbers: Sequence[int]) -> Any:
    """Return a query of what some agents earned: each looked up by the index if they are few, else all in one pass."""
    if len(numbers) <= FEW:
        own = select(payments.c.agent, func.sum(payments.c.amount)).where(payments.c.agent.in_(numbers))
        return own.group_by(payments.c.agent)
    agent = (payments.c.agent + 0).label("number")  # no column, so that no index leads away from the order of the rows
    return select(agent, func.sum(payments.c.amount)).group_by(agent)


def need_agent(connection: Connection, number: int) -> AgentRow:
    """Return an agent, or raise."""
    query = select(agents.c.id, agents.c.name).where(agents.c.id == number)
    rows = _agent_rows(connection, connection.execute(query).all()) if 0 < number < LARGEST_ID else []
    if not rows:
        raise UnknownError(f"there is no agent {number}; the page of agents lists them all")
    return rows[0]


def runs_of_agent(connection: Connection, agent: int) -> list[tuple[int, str]]:
    """Return number and name of the runs that an agent belongs to, the newest first."""
    query = select(runs.c.id, runs.c.name).join(members, members.c.run == runs.c.id)
    return [(row.id, row.name) for row in connection.execute(query.where(members.c.agent == agent).order_by(runs.c.id.desc()))]  # noqa: E501  # fmt: skip


def evidence_of(connection: Connection, agent: int, numbers: Sequence[int]) -> dict[int, AnyRow]:
    """Return an agent's payments in some records with what they were computed from, by record."""
    query = select(payments, rounds.c.request, rounds.c.cost, rounds.c.rule).join(
        rounds, payments.c.record == rounds.c.record
    )
    found = query.where(payments.c.agent == agent, payments.c.record.in_(numbers))
    return {row.record: row for row in connection.execute(found)}


def list_payouts(connection: Connection, start: int, count: int) -> tuple[list[PayoutRow], int]:
    """Return the payout batches, the newest first, and how many there are in all."""
    batch, settled, end = tables.payouts, tables.settlements, records.alias("settled")
    total = connection.execute(select(func.count()).select_from(batch)).scalar_one()
    query = (
        select(batch.c.number, batch.c.record, records.c.created_at, records.c.memo, settled.c.outcome, end.c.created_at.label("settled_at"))  # noqa: E501
        .select_from(
            batch.join(records, records.c.seq == batch.c.record)
            .outerjoin(settled, settled.c.payout == batch.c.record)
            .outerjoin(end, end.c.seq == settled.c.record)
        )
        .order_by(batch.c.number.desc())
    )  # fmt: skip
    rows = connection.execute(query.limit(count).offset(start)).all()
    shares = select(entries.c.record, func.count(), func.sum(entries.c.amount)).where(
        entries.c.record.in_([row.record for row in rows]), entries.c.target == tables.PAYABLE
    )
    sizes = {record: (people, int(amount)) for record, people, amount in connection.execute(shares.group_by(entries.c.record))}  # noqa: E501  # fmt: skip
    return [
        PayoutRow(row.number, row.created_at, *sizes.get(row.record, (0, 0)), row.outcome or "open", row.settled_at, row.memo)  # noqa: E501
        for row in rows
    ], total  # fmt: skip


def notes_of(connection: Connection, first: int, last: int, run: int) -> list[dict[str, Any]]:
    """Return agent, round and remark of the payments of a run, from record to record, that have a remark."""
    query = select(payments.c.agent, rounds.c.number, payments.c.note).join(
        rounds, payments.c.record == rounds.c.record
    )
    within = payments.c.record.between(first, last) & (rounds.c.run == run) & (payments.c.note != "")
    found = connection.execute(query.where(within).limit(MOST_NOTES))
    return [{"agent": row.agent, "round": row.number, "note": row.note} for row in found]


def owed_now(connection: Connection) -> tuple[int, int]:
    """Return how many agents have a balance to be paid out, and how much in all."""
    query = select(func.count(), func.coalesce(func.sum(accounts.c.balance), 0))
    people, amount = connection.execute(query.where(accounts.c.kind == "agent", accounts.c.balance > 0)).one()
    return people, int(amount)


def read_run(connection: Connection, number: int, known: RunData | None = None) -> RunData:
    """Return a run as columns, reading only what came after `known` where that is still part of the ledger."""
    row = connection.execute(select(runs).where(runs.c.id == number)).one_or_none() if 0 < number < LARGEST_ID else None
    if row is None:
        raise UnknownError(NO_RUN.format(number))
    if known is None or not _is_still_there(connection, known, row):
        known = _empty_run(connection, row)
    query = select(rounds, records.c.hash).join(records, records.c.seq == rounds.c.record)
    after = int(known.record[-1]) if len(known.record) else 0
    new = connection.execute(query.where(rounds.c.run == number, rounds.c.record > after).order_by(rounds.c.record))
    played = new.all()
    return _extend(known._replace(agents=_roster(connection, number)), played, _read_payments(connection, number, after)) if played else known  # noqa: E501  # fmt: skip


def _is_still_there(connection: Connection, known: RunData, row: AnyRow) -> bool:
    record = int(known.record[-1]) if len(known.record) else row.record
    sealed = connection.execute(select(records.c.hash).where(records.c.seq == record)).scalar()
    return sealed == known.seal and known.name == row.name


def _empty_run(connection: Connection, row: AnyRow) -> RunData:
    begun = connection.execute(select(records.c.hash).where(records.c.seq == row.record)).scalar_one()
    whole, real = np.zeros(0, dtype=np.int64), np.zeros(0)
    return RunData(
        row.id, row.name, row.rule, _roster(connection, row.id),
        whole, whole, whole, real, [], whole, whole, whole, whole, real, real, begun,
    )  # fmt: skip


def _roster(connection: Connection, number: int) -> list[tuple[int, str]]:
    query = select(agents.c.id, agents.c.name).join(members, members.c.agent == agents.c.id)
    return [(row.id, row.name) for row in connection.execute(query.where(members.c.run == number).order_by(members.c.position))]  # noqa: E501  # fmt: skip


def _read_payments(connection: Connection, number: int, after: int) -> Any:
    """Return the payments of a run after a record as one array with named fields.

    Straight from the driver into the array: two hundred thousand rows would otherwise become as many objects each for
    SQLAlchemy, for Python and for its garbage collector, and take twice as long.
    """
    paid = payments.c
    code = case({label: status for label, status in STATUS_CODES.items()}, value=paid.status, else_=-1)  # noqa: C416
    query = select(
        paid.record, paid.position, code, paid.amount, paid.distance, paid.expected_distance,
    ).join(rounds, rounds.c.record == paid.record)  # fmt: skip
    chosen = query.where(rounds.c.run == number, rounds.c.record > after).order_by(paid.record, paid.position)
    result: Any = connection.execute(chosen)
    return np.fromiter(result.cursor, dtype=PAYMENT)


def _extend(known: RunData, played: Sequence[AnyRow], paid: Any) -> RunData:
    record = np.array([row.record for row in played], dtype=np.int64)
    if np.any(paid["status"] < 0):
        raise ValueError("a payment has a status that is none")
    added: dict[str, Any] = {
        "record": record,
        "number": np.array([row.number for row in played], dtype=np.int64),
        "request": np.array([row.request for row in played], dtype=np.int64),
        "work": np.array(_costs(played)),
        "round": len(known.record) + np.searchsorted(record, paid["record"]),
        "position": paid["position"],
        "status": paid["status"],
        "reward": paid["amount"],
        "distance": paid["distance"],
        "expected": paid["expected"],
    }
    grown = {name: np.concatenate([getattr(known, name), values]) for name, values in added.items()}
    return known._replace(
        **grown,
        metrics=known.metrics + [json.loads(row.metrics) for row in played],
        seal=played[-1].hash,
    )


def _costs(played: Sequence[AnyRow]) -> list[float]:
    """Return what the work asked for in each round costs, each formula evaluated once for each request."""
    asked = {(row.cost, row.request) for row in played}
    costs = {(text, request): float(ExpressionCost(text)(request)) for text, request in asked}
    return [costs[row.cost, row.request] for row in played]


def _pairs(connection: Connection, query: Any) -> dict[int, Any]:
    return {row[0]: row[-1] for row in connection.execute(query)}
