"""What is unvested, as the ledger has it: the terms of runs, the state of their agents, and the closing of a run."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, func, or_, select

from guerdon.ledger import journal, queries, tables
from guerdon.ledger.errors import RefusedError
from guerdon.ledger.liability import Flows, vested_lines
from guerdon.ledger.money import LARGEST, format_amount, to_micro
from guerdon.ledger.recorded_rules import restored_cost
from guerdon.ledger.tables import TREASURY, AnyRow
from guerdon.ledger.vesting import (
    MOST_ROUNDS,
    Vesting,
    Waiting,
    advance,
    begin,
    closing,
    ended,
    next_part,
    stayed,
    take,
)
from guerdon.rule import PAID_LABELS, Rule, Status
from guerdon.words import about

entry, played, paid, account_ = tables.entries.c, tables.rounds.c, tables.payments.c, tables.accounts.c
closed = tables.closings.c


class Terms(NamedTuple):
    """After how many rounds of its own an agent's pay vests; what an agent that joins later must have deposited."""

    vesting: int = 0
    deposit: int = 0


class Closing(NamedTuple):
    """A closing of a run: its record (None where there was nothing to do), what vested, and what stays unvested.

    `open`: rounds that paid the cost alone, whose extras still wait for another round.
    """

    record: int | None
    vested: int
    unvested: int
    open: int = 0


def check_losses(rule: Rule, liability: str, terms: Terms) -> None:
    """Raise where losses would be cut under a rule by which others gain them: then doing less would pay again."""
    if about(rule).transfers(rule) and (liability == "floor" or (liability == "deposit" and not terms.vesting)):
        raise ValueError(
            f"`liability` must be 'carry' under {about(rule).words(rule)}, or 'deposit' with `vesting`, got "
            f"{liability!r}: what one member loses others gain, and a loss that is cut makes less work pay"
        )


def check_terms(liability: str, vesting: int | None, deposit: int | None) -> Terms:
    """Return the terms of a new run, or raise."""
    told = Terms(0 if vesting is None else vesting, 0 if deposit is None else deposit)
    for name, value, most in (("vesting", told.vesting, MOST_ROUNDS), ("deposit", told.deposit, LARGEST)):
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= value <= most:
            raise ValueError(f"`{name}` must be an integer from 0 to {most:,}, got {value!r}")
    if told.deposit and not told.vesting:
        raise ValueError("`deposit` needs `vesting` of at least 1 round: else what it secures is paid out at once")
    if told.deposit and liability != "deposit":
        raise ValueError(f"`deposit` must be left out with `liability={liability!r}`: only 'deposit' charges it")
    return told


def check_same_terms(connection: Connection, run: AnyRow, vesting: int | None, deposit: int | None) -> None:
    """Raise where a run that was begun has other terms than it is told now."""
    kept = terms_of(connection, run.id)
    for name, new, old in (("vesting", vesting, kept.vesting), ("deposit", deposit, kept.deposit)):
        if new is not None and new != old:
            raise RefusedError(f"run {run.name!r} was started with another {name}: {old}, now {new}")


def terms_of(connection: Connection, run: int) -> Terms:
    """Return the terms of a run; one without any pays at once and asks for no deposit."""
    found = connection.execute(select(tables.terms).where(tables.terms.c.run == run)).one_or_none()
    return Terms() if found is None else Terms(found.vesting, found.deposit)


def replay_vesting(connection: Connection, run: AnyRow, terms: Terms, agents: Sequence[int] | None = None) -> Vesting:
    """Return what is unvested of a run's agents, or of some, after all that is recorded."""
    people = queries.roster(connection, run.id)
    chosen = list(range(len(people.agents))) if agents is None else [people.agents.index(agent) for agent in agents]
    own = {kind: numbers[chosen] for kind, numbers in people.accounts.items()}
    places = {people.agents[place]: index for index, place in enumerate(chosen)}
    lines, paid_in, closings = (
        _lines(connection, run.id, own),
        _paid(connection, run.id, places),
        _closings(connection, run.id),
    )
    rounds = {row.record: row for row in connection.execute(select(tables.rounds).where(played.run == run.id)).all()}
    vesting = begin(len(chosen), terms.vesting)
    for record in sorted({*rounds, *closings}):
        flows = _flows(lines.get(record, ()), own)
        if record in rounds:
            row, (status, held) = rounds[record], paid_in[record]
            vesting = advance(
                vesting, flows, held, (status, costs_of(row.cost, row.request, people.factors[chosen]), row.number)
            )
        else:
            vesting = ended(vesting, [places[agent] for agent in closings[record] if agent in places])
        vesting = take(vesting, flows.vested)
    return vesting


def costs_of(cost: str, request: int, factors: Any) -> Any:
    """Return what the work that a round asked for costs agents with these cost factors, in micro-units."""
    return to_micro(float(restored_cost(cost)(request)) * factors)


def last_closing(connection: Connection, run: int) -> int:
    """Return the record by which a run was last closed; 0 where it never was."""
    return connection.execute(select(func.max(closed.record)).where(closed.run == run)).scalar() or 0


def waiting_of(connection: Connection, agent: int) -> list[Waiting]:
    """Return what is unvested of an agent run by run, and when the next part vests."""
    member, found = tables.members.c, list[Waiting]()
    query = select(tables.runs, tables.terms.c.vesting, tables.terms.c.deposit).join(tables.terms)
    query = query.join(tables.members, member.run == tables.runs.c.id).where(member.agent == agent)
    for run in connection.execute(query.order_by(tables.runs.c.id)).all():
        if run.vesting:
            vesting = replay_vesting(connection, run, Terms(run.vesting, run.deposit), [agent])
            found += [next_part(vesting, run.name, 0)] if vesting.unvested[0] else []
    return found


def founders(connection: Connection, run: AnyRow) -> Any:
    """Tell which of a run's agents were there when it began."""
    member = tables.members.c
    query = select(member.record).where(member.run == run.id).order_by(member.position)
    return np.array(connection.execute(query).scalars().all()) == run.record


def bound_deposit(connection: Connection, agent: int) -> int:
    """Return what must stay of an agent's deposit: what runs ask for that it joined, and that are not closed for it."""
    member, most = tables.members.c, 0
    query = select(tables.runs, tables.terms.c.vesting, tables.terms.c.deposit).join(tables.terms)
    query = query.join(tables.members, (member.run == tables.runs.c.id) & (member.record != tables.runs.c.record))
    for run in connection.execute(query.where(member.agent == agent)).all():
        last = select(func.max(played.record)).join(tables.payments, paid.record == played.record)
        worked = last.where(played.run == run.id, paid.agent == agent, paid.status.in_(PAID_LABELS))
        ended = select(func.max(closed.record)).where(closed.run == run.id, closed.agent == agent)
        latest, end = connection.execute(worked).scalar() or 0, connection.execute(ended).scalar() or 0
        most = max(most, run.deposit if latest > end else 0)
    return most


def close_run(connection: Connection, run: str, names: Sequence[str] | None, memo: str) -> Closing:
    """Let the rest vest of the agents that stayed to the end, or of those that are named."""
    found = queries.need_run(connection, run)
    terms, last = terms_of(connection, found.id), queries.last_round(connection, found.id)
    people, still = queries.roster(connection, found.id), open_rounds(connection, last)
    if not terms.vesting or last is None:
        return Closing(None, 0, 0, still)
    vesting = replay_vesting(connection, found, terms)
    chosen = stayed(vesting, founders(connection, found), terms.deposit, last.number)
    if names is not None:
        chosen = np.isin(np.arange(len(people.names)), [_place(people.names, name, run) for name in names])
    (carried,) = queries.per_member(connection, found.id, [], "balance", ["carried"])
    amounts = closing(vesting, np.array(carried), chosen)
    rows = [
        {"agent": people.agents[place], "run": found.id}
        for place in np.flatnonzero(chosen & ((amounts > 0) | (vesting.open > 0)))
    ]
    left = int(vesting.unvested.sum() - amounts.sum())
    if not rows:
        return Closing(None, 0, left, still)
    rows.sort(key=lambda row: row["agent"])
    entries = vested_lines(amounts, people.accounts)
    remark = memo or f"run {run!r} closed after round {last.number}"
    record = journal.append(connection, "release", {"closings": rows}, entries, memo=remark)
    return Closing(record, int(amounts.sum()), left, still)


def open_rounds(connection: Connection, last: AnyRow | None) -> int:
    """Return how many rounds of a run wait for their extras after the `last` one: none was paid by the rule since."""
    if last is None or last.is_last:  # nothing follows a last round
        return 0
    of_run = select(paid.record).join(tables.rounds, played.record == paid.record).where(played.run == last.run)
    waiting = connection.execute(of_run.where(paid.status == Status.WAITING.label).distinct()).scalars().all()
    priced = of_run.where(paid.status == Status.PAID.label, paid.variance.is_not(None))
    settled = priced.where(paid.record > max(waiting, default=0)).limit(1)
    return 0 if connection.execute(settled).first() else len(waiting)


def check_deposits(connection: Connection, run: AnyRow, terms: Terms, people: queries.Roster, already: int) -> None:
    """Raise unless every agent that joins a run has deposited what the run asks for."""
    if not terms.deposit:
        return
    (deposits,) = queries.per_member(connection, run.id, [], "balance", ["deposit"])
    for name, deposit in list(zip(people.names, deposits, strict=True))[already:]:
        if deposit < terms.deposit:
            raise RefusedError(
                f"agent {name!r} cannot join run {run.name!r} with a deposit of {format_amount(deposit)}: it must be "
                f"{format_amount(terms.deposit)} or more; enrol it, and record what it pays in by `guerdon ledger move "
                "deposit`"
            )


def _place(names: Sequence[str], name: str, run: str) -> int:
    if name not in names:
        raise RefusedError(f"there is no agent {name!r} in run {run!r}")
    return names.index(name)


def _lines(connection: Connection, run: int, own: Mapping[str, Any]) -> dict[int, list[tuple[int, int, int]]]:
    """Return the entries of a run's rounds and closings that touch escrow or losses of its agents, by record."""
    numbers = [int(number) for kind in ("escrow", "carried") for number in own[kind]]
    found: dict[int, list[tuple[int, int, int]]] = {}
    records = select(played.record).where(played.run == run).union(select(closed.record).where(closed.run == run))
    for start in range(0, len(numbers), queries.MANY):
        some = numbers[start : start + queries.MANY]
        mine = or_((entry.source != TREASURY) & entry.source.in_(some), entry.target.in_(some))
        query = select(entry.record, entry.source, entry.target, entry.amount).where(mine, entry.record.in_(records))
        for record, *line in connection.execute(query):
            found.setdefault(record, []).append((line[0], line[1], int(line[2])))
    return found


def _paid(connection: Connection, run: int, places: Mapping[int, int]) -> dict[int, tuple[Any, Any]]:
    """Return who was paid for each round of a run, and what was to wait for the audit, by record."""
    query = select(paid.record, paid.agent, paid.status, paid.held).join(tables.rounds).where(played.run == run)
    query = query.where(paid.agent == next(iter(places))) if len(places) == 1 else query
    found: dict[int, tuple[Any, Any]] = {}
    for record, agent, status, held in connection.execute(query):
        if record not in found:
            found[record] = np.zeros(len(places), dtype=bool), np.zeros(len(places), dtype=np.int64)
        if agent in places:
            found[record][0][places[agent]], found[record][1][places[agent]] = status in PAID_LABELS, held
    nothing = np.zeros(len(places), dtype=bool), np.zeros(len(places), dtype=np.int64)
    return defaultdict(lambda: nothing, found)


def _closings(connection: Connection, run: int) -> dict[int, list[int]]:
    """Return the agents that a run was closed for, by record."""
    found = defaultdict[int, list[int]](list)
    for record, agent in connection.execute(select(closed.record, closed.agent).where(closed.run == run)):
        found[record].append(agent)
    return found


def _flows(lines: Iterable[tuple[int, int, int]], own: Mapping[str, Any]) -> Flows:
    """Return what entries moved into and out of the escrow and the carried losses of agents."""
    places = {int(number): (kind, place) for kind, numbers in own.items() for place, number in enumerate(numbers)}
    moved = {name: np.zeros(len(own["escrow"]), dtype=np.int64) for name in Flows._fields}
    for source, target, amount in lines:
        if source == TREASURY:
            kind, place = places[target]
            moved[f"to_{kind}"][place] += amount
        elif target == TREASURY:
            kind, place = places[source]
            moved[f"from_{kind}"][place] += amount
        else:
            moved["vested"][places[source][1]] += amount
    return Flows(**moved)
