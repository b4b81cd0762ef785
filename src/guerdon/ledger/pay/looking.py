"""Verified work in the ledger: roots that members commit to, coins, leavings, answers, verdicts, and what they settle.

What is held, and which looks are open, is a state (`guerdon.looks.periods`) that each of these records leads on.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from guerdon.canonical import canonical
from guerdon.ledger.books import journal, tables
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.tables import RESERVE, AnyRow
from guerdon.ledger.pay import holding
from guerdon.ledger.pay.enrolment import enrol
from guerdon.ledger.pay.losses import NO_LINES, moved, released_lines
from guerdon.ledger.pay.recorded_terms import terms_of
from guerdon.ledger.read import queries
from guerdon.looks import draw, periods
from guerdon.looks.draw import Draw, Reported
from guerdon.looks.naming import NamedRound
from guerdon.looks.opening import Committed, RootChange, committed_in
from guerdon.looks.outcomes import Asked
from guerdon.looks.periods import Settled, Watched
from guerdon.looks.verdict import Verdict, read
from guerdon.rule import PAID_LABELS
from guerdon.terms import Looks

paid, played, agents = tables.payments.c, tables.rounds.c, tables.agents.c


CLOCK = 60  # seconds by which two machines' clocks may differ: far less than any deadline


class OpenLook(NamedTuple):
    """A look that is not settled: its number in the run, whose round it is of, and what has come of it so far.

    `deadline`: until when the member must have answered, in seconds since 1970.
    """

    run: str
    number: int
    member: str
    round: int
    asked: Asked
    deadline: int


class SettledPeriod(NamedTuple):
    """A member's period that is over: its rounds, what was released and forfeited in micro-units, and its looks.

    `looks`: of each round that was looked at, the outcome in words.
    """

    run: str
    member: str
    first: int
    last: int
    released: int
    forfeited: int
    looks: dict[int, str]
    record: int


class RecordedWork(NamedTuple):
    """What a recorded round named: its number, what its ask carried, and how many rows each member used."""

    round: int
    named: NamedRound
    used: dict[str, int]
    record: int


class Watching(NamedTuple):
    """A run under looks, as it is now."""

    row: AnyRow
    hold: Looks
    people: queries.Roster
    state: Watched

    def member(self, place: int) -> str:
        """Return the name of the member at a place."""
        return self.people.names[place]


def watching(connection: Connection, run: str) -> Watching:
    """Return a run under looks, or raise."""
    row = queries.need_run(connection, run)
    terms, people = terms_of(connection, row.id), queries.roster(connection, row.id)
    state = holding.joined(holding.load(connection, row.id, terms), len(people.names))
    if not isinstance(state, Watched) or not isinstance(terms.hold, Looks):
        raise RefusedError(f"run {run!r} holds no pay until looks: its terms must say `hold=Looks(...)`")
    return Watching(row, terms.hold, people, state)


def commit(connection: Connection, ledger: str, told: Committed) -> int | None:
    """Record the root of a member's rows for a run; return the record, or None where it is what counts already.

    It counts from the first round on; where the member takes part already, from the next period on.
    """
    if told.ledger != ledger:
        raise RefusedError(f"`ledger` of a commitment must be this ledger's name, {ledger}, got {told.ledger!r:.80}")
    enrol(connection, {told.member: None})
    member = queries.find_agent(connection, told.member)
    if member.name != told.member:
        raise RefusedError(f"`member` of a commitment must be a whole name, got {told.member!r}: {member.name!r}?")
    known = changes(connection, ledger, told.run).get(member.name, [])
    start = _counts_from(connection, told, member, known=bool(known))
    if known and known[-1].committed == told:
        return None
    row = {"agent": member.id, "run_name": told.run, "root": told.root, "size": told.size, "different": told.distinct,
           "stream": int(told.stream), "from_round": start}  # fmt: skip
    return journal.append(connection, "commit", {"commitments": [row]})


def changes(connection: Connection, ledger: str, run: str) -> dict[str, list[RootChange]]:
    """Return the roots that members have committed to for a run, by name, in the order of their records."""
    own, found = tables.commitments, dict[str, list[RootChange]]()
    query = select(own, agents.name).join(tables.agents, agents.id == own.c.agent).where(own.c.run_name == run)
    for row in connection.execute(query.order_by(own.c.record)):
        told = Committed(ledger, run, row.name, bytes(row.root), row.size, row.different, bool(row.stream))
        found.setdefault(row.name, []).append(RootChange(told, row.from_round))
    return found


def record_draw(
    connection: Connection, ledger: str, run: str, number: int, server: bytes | None, auditor: bytes | None
) -> int | None:
    """Record what server and auditor had committed to for a round, and open the looks that follow; None: it is there.

    None in the place of a nonce: its owner did not say. Coins are drawn in the order of the rounds.
    """
    own, given = watching(connection, run), (server, auditor)
    there = tables.draws.c
    done = connection.execute(select(tables.draws).where(there.run == own.row.id, there.round == number)).first()
    if done is not None:
        if (done.server_nonce, done.auditor_nonce) != given:
            raise RefusedError(f"the coins of round {number} of run {run!r} are drawn already, by other nonces")
        return None
    following = periods.next_draw(own.state)
    if following != number:
        which = "no round waits for coins" if following is None else f"round {following} comes next"
        raise RefusedError(f"`round` must be the next whose coins are not drawn, got {number}: {which}")
    coins = coins_of(named_draw(connection, ledger, own.row, number, given), own.hold.looks)
    row = {"run": own.row.id, "round": number, "server_nonce": server, "auditor_nonce": auditor}
    moment = journal.now(connection)
    record = journal.append(connection, "draw", {"draws": [row]}, at=moment)
    holding.save(connection, own.row.id, periods.drawn(own.state, number, coins, seconds(moment)))
    return record


def named_draw(
    connection: Connection, ledger: str, run: AnyRow, number: int, nonces: tuple[bytes | None, bytes | None]
) -> Draw:
    """Return what a round's coins are computed from."""
    named = named_round(connection, run.id, number)
    if named is None:
        raise RefusedError(f"round {number} of run {run.name!r} is not recorded")
    query = select(agents.name, paid.released, paid.gradient, paid.signature).join(
        tables.payments, agents.id == paid.agent
    )
    rows = connection.execute(query.join(tables.rounds).where(played.run == run.id, played.number == number))
    reports = draw.reports_hash(Reported(*row) for row in rows)
    return Draw(ledger, run.name, number, named.server, named.auditor, reports, *nonces)


def recorded_work(connection: Connection, run: str) -> list[RecordedWork]:
    """Return what each round of a run named, and which members' reports counted: they used all rows asked for."""
    row, own = queries.need_run(connection, run), tables.named.c
    query = select(tables.rounds, own.server, own.auditor, own.model, own.number.label("fresh")).join(tables.named)
    rounds = connection.execute(query.where(played.run == row.id).order_by(played.number)).all()
    who = select(paid.record, agents.name).join(tables.agents, agents.id == paid.agent).join(tables.rounds)
    used = dict[int, dict[str, int]]()
    asked = {one.record: one.request for one in rounds}
    for record, name in connection.execute(who.where(played.run == row.id, paid.status.in_(PAID_LABELS))):
        used.setdefault(record, {})[name] = asked[record]
    return [
        RecordedWork(
            one.number, NamedRound(*map(bytes, (one.fresh, one.server, one.auditor, one.model))),
            used.get(one.record, {}), one.record,
        )
        for one in rounds
    ]  # fmt: skip


def named_round(connection: Connection, run: int, number: int) -> NamedRound | None:
    """Return what the ask of a recorded round carried; None where it named no rows."""
    own = tables.named.c
    query = select(own.number, own.server, own.auditor, own.model).join(tables.rounds)
    row = connection.execute(query.where(played.run == run, played.number == number)).one_or_none()
    return None if row is None else NamedRound(*map(bytes, row))


def coins_of(told: Draw, looks: int) -> tuple[int | None, ...]:
    """Return a round's coins, or raise a RefusedError where a nonce is not what its owner had committed to."""
    try:
        return draw.coins(told, looks)
    except ValueError as error:
        raise RefusedError(str(error)) from error


def leave(connection: Connection, run: str, names: Sequence[str] | None, memo: str) -> int | None:
    """End the periods of members (None: of all) in a run under looks; return the record, None where none was open."""
    own = watching(connection, run)
    unknown = sorted(set(names or ()) - set(own.people.names))
    if unknown:
        raise RefusedError(f"there is no agent {unknown[0]!r} in run {run!r}")
    chosen = [
        place
        for place, name in enumerate(own.people.names)
        if (names is None or name in names) and any(not one.ended for one in own.state.members[place])
    ]
    if not chosen:
        return None
    rows = [{"run": own.row.id, "agent": own.people.agents[place]} for place in chosen]
    moment = journal.now(connection)
    ordered = {"leavings": sorted(rows, key=lambda row: row["agent"])}
    record = journal.append(connection, "leave", ordered, memo=memo, at=moment)
    holding.save(connection, own.row.id, periods.leave(own.state, chosen, seconds(moment)))
    return record


def answer(connection: Connection, run: str, look: int, sealed: bytes, *, appeal: bool) -> int | None:
    """Record the hash of what a member sealed for an auditor; None: it is recorded already."""
    own = watching(connection, run)
    row = {"run": own.row.id, "look": look, "appeal": int(appeal), "sealed": sealed}
    if _is_there(connection, tables.answers, row, "sealed"):
        return None
    moment = journal.now(connection)
    state = _changed(periods.answered, own.state, look, own.hold, seconds(moment), appeal=appeal)
    record = journal.append(connection, "answer", {"answers": [row]}, at=moment)
    holding.save(connection, own.row.id, state)
    return record


def record_verdict(connection: Connection, ledger: str, text: str, *, appeal: bool) -> int | None:
    """Record a verdict as its auditor signed it; None: it is recorded already."""
    run = _named_in(text)
    own = watching(connection, run)
    told = checked_verdict(text, ledger, run, own.hold, appeal=appeal)
    row = {"run": own.row.id, "look": told.look, "appeal": int(appeal), "text": text}
    if _is_there(connection, tables.verdicts, row, "text"):
        return None
    _check_of_look(connection, own, told)
    moment = journal.now(connection)
    state = _changed(periods.judged, own.state, told.look, told.outcome, seconds(moment), appeal=appeal)
    record = journal.append(connection, "verdict", {"verdicts": [row]}, at=moment)
    holding.save(connection, own.row.id, state)
    return record


def checked_verdict(text: str, ledger: str, run: str, hold: Looks, *, appeal: bool) -> Verdict:
    """Return a verdict, or raise a RefusedError unless the auditor of the terms signed it for this run."""
    try:
        told = read(text, hold.second_auditor if appeal else hold.auditor)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    if (told.ledger, told.run) != (ledger, run):
        raise RefusedError(f"a verdict must be of this ledger and run {run!r}, got one of {told.run!r} in another")
    return told


def settle_looks(connection: Connection, run: str, memo: str) -> tuple[int | None, list[SettledPeriod]]:
    """Release or forfeit what is held of every period whose looks are decided by now; return the record, and which."""
    own, moment = watching(connection, run), journal.now(connection)
    if journal.ahead(connection) > CLOCK:
        raise RefusedError(
            f"looks are settled by deadlines, and the last record is dated {moment:%Y-%m-%d %H:%M}, later than this "
            "machine's clock: set the clock right, or wait until then"
        )
    done, state = periods.settle(own.state, own.hold, seconds(moment))
    if not done:
        return None, []
    rows = settled_rows(done, own.row.id, own.people.agents)
    entries = settled_lines(done, own.people.accounts, len(own.people.names))
    record = journal.append(connection, "look", {"settled": rows}, entries, memo=memo, at=moment)
    holding.save(connection, own.row.id, state)
    names = dict(zip(own.people.agents, own.people.names, strict=True))
    return record, [_period(run, names[row["agent"]], row, record) for row in rows]


def settled_rows(done: Sequence[Settled], run: int, people: Sequence[int]) -> list[dict[str, Any]]:
    """Return the rows of periods that are over, in the order in which they are kept."""
    rows = [
        {"agent": people[one.place], "first": one.first, "run": run, "last": one.last,
         "released": one.settlement.released, "forfeited": one.settlement.forfeited,
         "looks": canonical({str(number): out.value for number, out in zip(one.rounds, one.outcomes, strict=True)})}
        for one in done
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row["agent"], row["first"]))


def settled_lines(done: Sequence[Settled], accounts: Mapping[str, Any], members: int) -> Any:
    """Return the entries that release what was held, and those that put into the reserve what was forfeited."""
    released, forfeited = periods.amounts(done, members)
    lost = moved(accounts["held"], np.full(members, RESERVE), forfeited) if forfeited.any() else NO_LINES
    return np.concatenate([released_lines(released, accounts), lost])


def open_looks(connection: Connection, run: str | None = None) -> list[OpenLook]:
    """Return the looks that are not settled, of a run or of all."""
    names = [run] if run is not None else _watched_runs(connection)
    found: list[OpenLook] = []
    for name in names:
        own = watching(connection, name)
        found += [
            OpenLook(name, look.number, own.member(place), look.round, look.asked, look.asked.opened + own.hold.answer)
            for place, look in periods.open_looks(own.state)
        ]
    return found


def settled_periods(connection: Connection, run: str) -> list[SettledPeriod]:
    """Return the periods of a run's members that are over, in the order of their records."""
    own, row = tables.settled, queries.need_run(connection, run)
    query = select(own, agents.name).join(tables.agents, agents.id == own.c.agent).where(own.c.run == row.id)
    rows = connection.execute(query.order_by(own.c.record, own.c.agent, own.c.first)).mappings()
    return [_period(run, one["name"], one, one["record"]) for one in map(dict[str, Any], rows)]


def seconds(moment: Any) -> int:
    """Return a moment in whole seconds since 1970, as deadlines are counted."""
    return tables.microseconds(moment) // 1_000_000


def _period(run: str, member: str, row: Mapping[str, Any], record: int) -> SettledPeriod:
    looks = {int(number): outcome for number, outcome in json.loads(row["looks"]).items()}
    return SettledPeriod(run, member, row["first"], row["last"], row["released"], row["forfeited"], looks, record)


def _watched_runs(connection: Connection) -> list[str]:
    rows: list[AnyRow] = list(connection.execute(select(tables.runs).order_by(tables.runs.c.id)))
    return [str(row.name) for row in rows if isinstance(terms_of(connection, row.id).hold, Looks)]


def _counts_from(connection: Connection, told: Committed, member: AnyRow, *, known: bool) -> int:
    """Return from which round on a new root counts."""
    run = queries.find_run(connection, told.run)
    last = None if run is None else queries.last_round(connection, run.id)
    if run is None or last is None:
        return root_counts(None, None, 0, known=known)
    own = watching(connection, told.run)
    there = member.name in own.people.names
    return root_counts(own.hold, own.state.first if there else None, last.number, known=known)


def root_counts(hold: Looks | None, first: int | None, last: int, *, known: bool) -> int:
    """Return from which round on a new root counts, after the recorded round `last` of a run.

    The round after it may be open. Its number is known then, and a member that could still choose its rows would choose
    those that it names. So a root counts from the round after the open one at the earliest. That of a member that takes
    part in a run, which began with round `first`, counts from the first round of the period after that of the open one.
    `hold`: None where no round is recorded: then the first root of a member counts at once (`known`: it has one).
    """
    if hold is None:
        return 2 if known else 0
    if first is None:
        return last + 2
    return first + ((last + 1 - first) // hold.period + 1) * hold.period


def _check_of_look(connection: Connection, own: Watching, told: Verdict) -> None:
    """Raise unless a verdict names the member, round, root and report that its look is of."""
    found: tuple[int, periods.Look] = _changed(periods.find, own.state, told.look)
    place, look = found
    member = own.member(place)
    if (told.member, told.round) != (member, look.round):
        raise RefusedError(f"look {told.look} is of round {look.round} of {member!r}, the verdict of another")
    root = committed_in(changes(connection, told.ledger, own.row.name).get(member, []), look.round).root
    query = select(paid.gradient).join(tables.rounds).where(played.run == own.row.id, played.number == look.round)
    agent = own.people.agents[place]
    sent: Any = connection.execute(query.where(paid.agent == agent)).scalar_one()
    if (told.root, told.report) != (root.hex(), bytes(sent or b"").hex()):
        raise RefusedError(f"the verdict on look {told.look} is not of the rows and the report that are recorded")


def _changed(change: Any, state: Watched, *args: Any, **kwargs: Any) -> Any:
    try:
        return change(state, *args, **kwargs)
    except ValueError as error:
        raise RefusedError(str(error)) from error


def _is_there(connection: Connection, table: Any, row: Mapping[str, Any], what: str) -> bool:
    """Tell whether a row is recorded already; raise where there is another in its place."""
    same = [table.c[name] == row[name] for name in ("run", "look", "appeal")]
    kept = connection.execute(select(table.c[what]).where(*same)).scalar_one_or_none()
    if kept is not None and kept != row[what]:
        raise RefusedError(f"look {row['look']} has another in {table.name} already: the first one counts")
    return kept is not None


def _named_in(text: str) -> str:
    try:
        return str(json.loads(text)["verdict"]["run"])
    except (ValueError, TypeError, KeyError) as error:
        raise RefusedError(f"a verdict must be a file that `guerdon look` wrote: {error}") from error
