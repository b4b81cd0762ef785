"""Everything that is read from a ledger, by code that writes to it and by code that only shows it."""

import functools
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, bindparam, case, func, select

from guerdon.ledger.books import tables
from guerdon.ledger.books.checks import AGENT, check_roster, clean, normal_name, tidy
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.money import MICRO
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay.losses import LOOKED_AT, Standing
from guerdon.ledger.pay.recorded_rules import check_same_rule

MANY = 500  # values asked for in one query
LARGEST_ID = 2**62  # what fits into every database

accounts, agents, entries, payments = tables.accounts, tables.agents, tables.entries, tables.payments
records, rounds_, runs_, factors = tables.records, tables.rounds, tables.runs, tables.cost_factors
# The row of a payment's own cost factor, and the factor in millionths.
OF_PAYMENT = (factors.c.run == rounds_.c.run) & (factors.c.agent == payments.c.agent)
FACTOR = func.coalesce(factors.c.factor, MICRO)
PAID = payments.c.released + payments.c.cut  # what a reward moved: what nobody paid of a negative one is cut


class Balance(NamedTuple):
    """What an agent has, in micro-units: payable, deposited, held, and (at most 0) carried into later rounds.

    `earned` is what the treasury gave it in all, less what it took back or failed looks forfeited; `number` is the
    agent's own. `released`: what was held until looks and reached the balance; `forfeited`: what failed looks took.
    """

    agent: str
    balance: int
    deposit: int
    held: int
    carried: int
    earned: int
    number: int
    released: int = 0
    forfeited: int = 0

    @property
    def owed(self) -> int:
        """What a payout would give it now: its balance, less a loss that it carries."""
        return max(self.balance + self.carried, 0)


class Roster(NamedTuple):
    """The agents of a run in their order; per kind of account an array of account numbers; their cost factors.

    The accounts of the kind "held" are the run's own; there are none in a run that holds no pay.
    """

    agents: list[int]
    names: list[str]
    accounts: dict[str, Any]
    factors: Any


class RunSummary(NamedTuple):
    """What a run has done so far."""

    name: str
    rule: str
    cost: str
    losses: str
    agents: int
    rounds: int
    last_round: int | None
    paid: int
    started_at: datetime
    last_activity: datetime
    cost_factors: dict[str, float]  # of agents whose cost is another multiple of the cost than 1

    @property
    def costs(self) -> str:
        """The cost of s samples, and between which factors it is multiplied for agents."""
        factors = [*self.cost_factors.values(), *[1.0] * (self.agents > len(self.cost_factors))]
        return f"{self.cost} (× {min(factors):g} to {max(factors):g})" if self.cost_factors else self.cost


class RoundSummary(NamedTuple):
    """What was asked and paid in one round; `statuses` counts the agents by status."""

    round: int
    request: int
    paid: int
    statuses: dict[str, int]
    metrics: dict[str, float | None]
    recorded_at: datetime
    record: int
    hash: bytes


def find_run(connection: Connection, name: str) -> AnyRow | None:
    """Return the row of a run, or None."""
    return connection.execute(select(runs_).where(runs_.c.name == name)).one_or_none()


def need_run(connection: Connection, name: str) -> AnyRow:
    """Return the row of a run, or raise with a list of the runs."""
    found = find_run(connection, name)
    if found is None:
        known = connection.execute(select(runs_.c.name).order_by(runs_.c.id).limit(10)).scalars().all()
        raise RefusedError(f"there is no run {name!r}; there is {', '.join(map(repr, known)) or 'none yet'}")
    return found


def check_same_run(connection: Connection, run: AnyRow, told: tuple[str, str, list[str]]) -> None:
    """Raise unless a run has the given rule and cost, and had (at first) or has (now) the given agents."""
    member = tables.members.c
    query = select(agents.c.name, member.record).join(tables.members, member.agent == agents.c.id)
    found = connection.execute(query.where(member.run == run.id).order_by(member.position)).all()
    now, first = [name for name, _ in found], [name for name, record in found if record == run.record]
    kept = (run.rule, run.cost, now if told[2] == now else first)
    check_same_rule(run.name, told[0], run.rule)
    for what, new, old in list(zip(("rule", "cost", "agents"), told, kept, strict=True))[1:]:
        if new != old:
            raise RefusedError(f"run {run.name!r} was started with another {what}: {old}, now {new}")


def count_members(connection: Connection, run: int) -> int:
    """Return how many agents a run has; it never has fewer later."""
    query = select(func.count()).select_from(tables.members).where(tables.members.c.run == run)
    return connection.execute(query).scalar_one()


def roster(connection: Connection, run: int) -> Roster:
    """Return a run's agents in their order, with the numbers of their accounts."""
    people, names, *numbers = per_member(connection, run, [agents.c.id, agents.c.name], "id", tables.PERSONAL)
    columns = dict(zip(tables.PERSONAL, numbers, strict=True))
    own = {kind: np.array(column) for kind, column in columns.items() if None not in column}
    return Roster(list(people), list(names), own, factors_of(connection, run, people))


def factors_of(connection: Connection, run: int, people: Sequence[int]) -> Any:
    """Return what the cost of a run is multiplied by for agents, given by their numbers."""
    query = select(factors.c.agent, factors.c.factor).where(factors.c.run == run)
    found: dict[int, int] = {agent: factor for agent, factor in connection.execute(query)}  # noqa: C416 - rows are no pairs
    return np.array([found.get(agent, MICRO) for agent in people], dtype=np.float64) / MICRO


def named_factors(connection: Connection, run: int) -> dict[str, float]:
    """Return what the cost of a run is multiplied by for each agent for which that is not 1, by name."""
    query = select(agents.c.name, factors.c.factor).join(agents, agents.c.id == factors.c.agent)
    found = connection.execute(query.where(factors.c.run == run).order_by(agents.c.name))
    return {name: factor / MICRO for name, factor in found}


def keys(connection: Connection, run: int | None = None) -> dict[str, bytes]:
    """Return the public keys (DER) of all agents that have one, or of those in a run, by name."""
    query = select(agents.c.name, tables.keys.c.public_key).join(tables.keys, tables.keys.c.agent == agents.c.id)
    if run is not None:
        query = query.join(tables.members, tables.members.c.agent == agents.c.id).where(tables.members.c.run == run)
    return {name: bytes(public_key) for name, public_key in connection.execute(query.order_by(agents.c.id))}


def standing(connection: Connection, run: int, losses: str, num_agents: int) -> Standing:
    """Return what the accounts of a run's agents hold, in their order: only those that cover `losses` in this way."""
    kinds = LOOKED_AT[losses]
    columns = per_member(connection, run, [], "balance", kinds) if kinds else []
    unread = Standing(*(np.zeros((3, num_agents), dtype=np.int64)))
    return unread._replace(**{kind: np.array(column) for kind, column in zip(kinds, columns, strict=True)})


def per_member(connection: Connection, run: int, columns: Sequence[Any], what: str, kinds: Sequence[str]) -> list[Any]:
    """Return columns of a run's agents in their order: some of their own, and one of each kind of account.

    Accounts of the kind "held" are those of the run; None where there are none.
    """
    query = _query_per_member(tuple(columns), what, tuple(kinds))
    return list(zip(*connection.execute(query, {"asked": run}).all(), strict=True))


@functools.cache
def _query_per_member(columns: tuple[Any, ...], what: str, kinds: tuple[str, ...]) -> Any:
    """Build the query of `per_member` once: that takes longer than most ledgers take to answer it."""
    member = tables.members
    source: Any = member.join(agents, member.c.agent == agents.c.id) if columns else member
    for kind in kinds:
        own, in_run = accounts.alias(kind), kind == "held"
        mine = (own.c.owner == member.c.agent) & (own.c.kind == kind)
        mine &= own.c.run == member.c.run if in_run else own.c.run.is_(None)
        source = source.join(own, mine, isouter=in_run)
        columns = (*columns, own.c[what].label(f"{kind}_{what}"))
    return select(*columns).select_from(source).where(member.c.run == bindparam("asked")).order_by(member.c.position)


def last_round(connection: Connection, run: int, up_to: int = LARGEST_ID) -> AnyRow | None:
    """Return the row of the last round of a run, or of the last up to some number; None where there is none."""
    query = select(rounds_).where(rounds_.c.run == run, rounds_.c.number <= up_to)
    return connection.execute(query.order_by(rounds_.c.number.desc()).limit(1)).one_or_none()


def known_agents(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Return the numbers of those of the named agents that are enrolled."""
    return {row.name: row.id for row in rows_with(connection, agents.c.name, names)}


def as_enrolled(connection: Connection, names: Sequence[str]) -> list[str]:
    """Return names as the ledger has them: as given where one is enrolled so, else in the one way to write it."""
    known = known_agents(connection, [clean(str(name)) for name in names])
    found = [name if name in known else normal_name(AGENT, name) for name in names]
    if len(set(found)) < len(found):
        check_roster(found)
    return found


def rows_with(connection: Connection, column: Any, values: Sequence[Any]) -> list[AnyRow]:
    """Return the rows of a table whose column has one of many values."""
    parts = (values[start : start + MANY] for start in range(0, len(values), MANY))
    return [row for part in parts for row in connection.execute(select(column.table).where(column.in_(part)))]


def find_agent(connection: Connection, name: str) -> AnyRow:
    """Return the agent with that name, or the only agent whose name begins with it."""
    given, name = clean(name), tidy(clean(name))
    exact = {row.name: row for row in connection.execute(select(agents).where(agents.c.name.in_([given, name])))}
    if exact:
        return exact.get(given) or exact[name]
    begins = func.substr(agents.c.name, 1, len(name)) == name
    query = select(agents).where(begins).order_by(agents.c.name).limit(6)
    alike: Sequence[AnyRow] = connection.execute(query).all() if name else ()
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise RefusedError(f"several agents begin with {name!r}: {', '.join(short(row.name) for row in alike)}")
    raise RefusedError(f"there is no agent {short(name)!r}; `guerdon ledger balances` lists them")


def accounts_of(connection: Connection, name: str) -> dict[str, AnyRow]:
    """Return an agent's accounts by kind, without those in runs; needs the whole name, because money will move."""
    owner = find_agent(connection, name)
    if owner.name not in (name, tidy(name)):
        raise RefusedError(f"there is no agent {short(name)!r}; do you mean {owner.name!r}?")
    query = select(accounts).where(accounts.c.owner == owner.id, accounts.c.run.is_(None))
    return {row.kind: row for row in connection.execute(query)}


def common_accounts(connection: Connection) -> dict[str, AnyRow]:
    """Return the common accounts by kind; there is one of each."""
    return {row.kind: row for row in connection.execute(select(accounts).where(accounts.c.owner.is_(None)))}


def entries_of(connection: Connection, record: int) -> Any:
    """Return the entries of a record as an array (lines, 3)."""
    query = select(entries.c.source, entries.c.target, entries.c.amount).where(entries.c.record == record)
    return np.array([tuple(row) for row in connection.execute(query.order_by(entries.c.line))], dtype=np.int64)


def balances(connection: Connection, people: Sequence[int] | None = None) -> list[Balance]:
    """Return what each agent (or each of some, by number) has, by name; reads balances, not entries."""
    own = [func.sum(case((accounts.c.kind == kind, accounts.c.balance), else_=0)) for kind in tables.PERSONAL]
    query = select(agents.c.id, agents.c.name, *own).join(accounts, accounts.c.owner == agents.c.id)
    query = query if people is None else query.where(agents.c.id.in_(people))
    rows: Any = connection.execute(query.group_by(agents.c.id, agents.c.name).order_by(agents.c.name)).all()
    left, found, looked = _left(connection, people), list[Balance](), settled_by_looks(connection, people)
    for number, name, *values in rows:
        has = [int(value) for value in values]
        released, forfeited = looked.get(number, (0, 0))
        row = Balance(name, *has, earned=sum(has) + left[number], number=number, released=released, forfeited=forfeited)
        found.append(row)
    return found


def settled_by_looks(connection: Connection, people: Sequence[int] | None = None) -> dict[int, tuple[int, int]]:
    """Return what was released to agents after looks, and what failed looks took, in micro-units, by number."""
    own = tables.settled.c
    query = select(own.agent, func.sum(own.released), func.sum(own.forfeited)).group_by(own.agent)
    query = query if people is None else query.where(own.agent.in_(people))
    return {agent: (int(released), int(forfeited)) for agent, released, forfeited in connection.execute(query)}


def collateral(connection: Connection, run: AnyRow | None) -> dict[str, tuple[int, int]]:
    """Return what each agent has deposited, and what a run holds of it."""
    of_run = accounts.c.run == (0 if run is None else run.id)
    cases = accounts.c.kind == "deposit", of_run
    own = [func.sum(case((chosen, accounts.c.balance), else_=0)) for chosen in cases]
    query = select(agents.c.name, *own).join(accounts, accounts.c.owner == agents.c.id).where(cases[0] | of_run)
    rows: Any = connection.execute(query.group_by(agents.c.name))
    return {name: (int(deposit), int(held)) for name, deposit, held in rows}


def _left(connection: Connection, people: Sequence[int] | None) -> Counter[int]:
    """Return what left the accounts of each agent through payouts and the bank, less what came in that way."""
    left, outside = Counter[int](), (tables.BANK, tables.PAYABLE)
    for own, other, sign in ((entries.c.source, entries.c.target, 1), (entries.c.target, entries.c.source, -1)):
        query = select(accounts.c.owner, func.sum(entries.c.amount)).join(accounts, accounts.c.id == own)
        moved = query.where(other.in_(outside), entries.c.source != tables.TREASURY)  # the index leaves it out
        chosen = moved.where(accounts.c.owner.is_not(None) if people is None else accounts.c.owner.in_(people))
        rows = connection.execute(chosen.group_by(accounts.c.owner))
        left.update({owner: sign * int(amount) for owner, amount in rows})
    return left


def runs(connection: Connection) -> list[RunSummary]:
    """Return what each run has done, in the order in which they began."""
    return [run_summary(connection, run) for run in connection.execute(select(runs_).order_by(runs_.c.id)).all()]


def run_summary(connection: Connection, run: AnyRow) -> RunSummary:
    """Return what a run has done, given its row."""
    query = select(func.count(), func.max(rounds_.c.number), func.max(rounds_.c.record)).where(rounds_.c.run == run.id)
    played, last, record = connection.execute(query).one()
    paid = select(func.sum(PAID)).join(rounds_, payments.c.record == rounds_.c.record)
    moments = select(records.c.created_at).where(records.c.seq.in_([run.record, record or run.record]))
    times = list(connection.execute(moments.order_by(records.c.seq)).scalars())
    own = tables.terms.c
    text = select(own.text).where(own.run == run.id).order_by(own.record.desc()).limit(1)
    terms: dict[str, Any] = json.loads(connection.execute(text).scalar_one())
    return RunSummary(
        run.name, run.rule, run.cost, terms["losses"], count_members(connection, run.id), played, last,
        int(connection.execute(paid.where(rounds_.c.run == run.id)).scalar() or 0), times[0], times[-1],
        named_factors(connection, run.id),
    )  # fmt: skip


def rounds(connection: Connection, run: str) -> list[RoundSummary]:
    """Return what was asked and paid in each round of a run."""
    found = need_run(connection, run)
    paid = payments.c
    tally = select(paid.record, paid.status, func.count(), func.sum(PAID)).join(rounds_)
    statuses, totals = defaultdict[int, dict[str, int]](dict), Counter[int]()
    of_run = tally.where(rounds_.c.run == found.id).group_by(paid.record, paid.status)
    for record, status, count, total in connection.execute(of_run):
        statuses[record][status] = count
        totals[record] += int(total)
    query = select(rounds_, records.c.created_at, records.c.hash).join(records, records.c.seq == rounds_.c.record)
    return [
        RoundSummary(
            row.number, row.request, totals[row.record], statuses[row.record], json.loads(row.metrics), row.created_at,
            row.record, row.hash,
        )
        for row in connection.execute(query.where(rounds_.c.run == found.id).order_by(rounds_.c.number))
    ]  # fmt: skip


def short(value: Any) -> str:
    """Return a value in at most 80 characters, for people."""
    shown = value.hex()[:16] + "…" if isinstance(value, bytes) else str(value)
    return shown if len(shown) <= 80 else shown[:77] + "…"
