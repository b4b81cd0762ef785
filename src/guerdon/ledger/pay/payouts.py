"""Payouts: balances frozen into a batch, one line for each agent, and what became of each line.

    open ──▶ paid ──▶ bounced      the transfer came back: the share is in the balance again
      ├────────────▶ bounced
      └────────────▶ cancelled     it was never made

A line pays whole coins of the unit; what is less than a coin stays in the balance. The remark on the record that
settles a line is the bank's reference.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, cast, func, select

from guerdon.arrays import check_choice
from guerdon.ledger.books import journal, tables
from guerdon.ledger.books.checks import check_micro, clean, tidy
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.idempotency import find_done, key_rows
from guerdon.ledger.books.money import MOST_PLACES, format_amount, places_of
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay.enrolment import next_number
from guerdon.ledger.pay.losses import freeze, thaw
from guerdon.ledger.read.queries import LARGEST_ID, accounts_of, find_agent, rows_with

accounts, agents, batches, entries = tables.accounts, tables.agents, tables.payouts, tables.entries
lines, outcomes, records = tables.payout_lines, tables.outcomes, tables.records
NOWHERE = {"holder": "", "account": ""}  # what is known of an agent's bank account until somebody says it


class PayoutLine(NamedTuple):
    """One agent's share of a payout: whose bank account it goes to (empty where none was known), what became of it."""

    agent: str
    number: int
    amount: int
    holder: str
    account: str
    outcome: str
    settled_at: datetime | None
    reference: str


class Owed(NamedTuple):
    """Columns, per agent with a balance: its number, account and balance, and the account of its carried losses."""

    agent: Any
    account: Any
    balance: Any
    losses: Any
    carried: Any


class Payout(NamedTuple):
    """A batch of balances frozen to be paid; `states` counts its lines, `outcome` is "mixed" where they differ."""

    number: int
    record: int
    created_at: datetime
    agents: int
    total: int
    outcome: str
    states: dict[str, int]
    settled_at: datetime | None  # when no line was open any more
    reference: str
    memo: str
    items: list[PayoutLine]

    @property
    def state(self) -> str:
        """What became of it, in words: paid, or "2 paid, 1 bounced"."""
        counted = [f"{count:,} {outcome}" for outcome, count in self.states.items()]
        return self.outcome if len(counted) == 1 else ", ".join(counted)


def create(connection: Connection, minimum: int, memo: str, places: int | None, key: str | None) -> int:
    """Freeze what can be paid of all balances of at least `minimum`, and return the number of the batch."""
    check_micro("minimum", minimum)
    unit = connection.execute(select(tables.ledger.c.unit)).scalar_one()
    terms = {"minimum": minimum, "places": places_of(unit) if places is None else places}
    if not 0 <= terms["places"] <= MOST_PLACES:
        raise ValueError(f"`places` must be 0 to {MOST_PLACES} decimals, got {places}")
    asked = key_rows(key, "payout", memo, terms)
    done = find_done(connection, asked)
    if done is not None:
        return connection.execute(select(batches.c.number).where(batches.c.record == done)).scalar_one()
    frozen, to_pay = _frozen(connection, **terms)
    number = next_number(connection, batches.c.number)
    rows = {"payouts": [{"number": number}], "batches": [terms], "payout_lines": to_pay, "idempotency": asked}
    journal.append(connection, "payout", rows, frozen, memo=clean(memo))
    return number


def _frozen(connection: Connection, minimum: int, places: int) -> tuple[Any, list[dict[str, Any]]]:
    """Return the entries of a new batch, and its lines; raise if there is nothing to pay."""
    owing, known = owed(connection), payees(connection)
    frozen = freeze(*owing[1:], minimum, places)
    if not len(frozen):
        least = format_amount(max(minimum, 10 ** (MOST_PLACES - places)))
        raise RefusedError(f"there is nothing to pay out: no balance reaches {least}")
    paid = np.isin(owing.account, frozen[frozen[:, 1] == tables.PAYABLE, 0])
    return frozen, [{"agent": agent, **known.get(agent, NOWHERE)} for agent in owing.agent[paid].tolist()]


def settle(connection: Connection, number: int, outcome: str, memo: str, names: Sequence[str] | None) -> int:
    """Say what became of the lines of some agents, or of all that are open; return the record."""
    check_choice("outcome", outcome, tuple(tables.LINE_OUTCOMES))
    batch = find_payout(connection, number)
    chosen = sorted(_settled_now(batch, outcome, names), key=lambda line: line.number)
    rows = [{"agent": line.number, "payout": batch.record, "outcome": outcome} for line in chosen]
    owned = rows_with(connection, accounts.c.owner, [line.number for line in chosen])
    own = {account.owner: account.id for account in owned if account.kind == "agent"}
    columns = [(own[line.number], line.amount, line.outcome == "paid") for line in chosen]
    sources, amounts, paid = np.array(columns, dtype=np.int64).T
    moved = thaw(sources, amounts, paid, outcome)
    return journal.append(connection, "settle", {"outcomes": rows}, moved, memo=clean(memo))


def _settled_now(batch: Payout, outcome: str, names: Sequence[str] | None) -> list[PayoutLine]:
    """Return the lines that get an outcome, or raise where one cannot get it."""
    if names is None and outcome == "bounced":
        raise ValueError("`agents` must name the agents whose transfers bounced, got none")
    if names is None:
        chosen = [line for line in batch.items if line.outcome == "open"]
        if not chosen:
            when = f"{batch.settled_at:%Y-%m-%d %H:%M} UTC"
            raise RefusedError(f"payout {batch.number} was {batch.state} on {when} already")
        return chosen
    own, chosen = {line.agent: line for line in batch.items}, list[PayoutLine]()
    for name in dict.fromkeys(names):
        line = own.get(name) or own.get(tidy(name))
        if line is None:
            raise RefusedError(f"payout {batch.number} has no line of agent {name!r}")
        if line.outcome not in tables.LINE_OUTCOMES[outcome]:
            was = (
                f"was {line.outcome} on {line.settled_at:%Y-%m-%d %H:%M} UTC already" if line.settled_at else "is open"
            )
            raise RefusedError(f"the line of {name!r} in payout {batch.number} {was}; it cannot become {outcome}")
        chosen.append(line)
    return chosen


def set_payee(connection: Connection, agent: str, holder: str | None, account: str) -> int | None:
    """Write down to which bank account an agent is paid from now on; return the record, or None if it is known."""
    owner, found = accounts_of(connection, agent)["agent"].owner, find_agent(connection, agent)
    told = {"holder": found.name if holder is None else holder, "account": account}
    if payees(connection).get(owner) == told:
        return None
    return journal.append(connection, "enrol", {"payees": [{"agent": owner, **told}]})


def payees(connection: Connection) -> dict[int, dict[str, str]]:
    """Return holder and account of the bank accounts that agents are paid to now, by the agent's number."""
    query = select(tables.payees).order_by(tables.payees.c.record)  # the last one counts
    return {row.agent: {"holder": row.holder, "account": row.account} for row in connection.execute(query)}


def owed(connection: Connection) -> Owed:
    """Return what agents have in their balances, and what they owe."""
    own, losses = accounts.alias("own"), accounts.alias("losses")
    query = select(own.c.owner, own.c.id, own.c.balance, losses.c.id, losses.c.balance)
    query = query.where(losses.c.owner == own.c.owner, losses.c.kind == "carried")
    rows = connection.execute(query.where(own.c.kind == "agent", own.c.balance > 0).order_by(own.c.id)).all()
    return Owed(*np.array([tuple(row) for row in rows], dtype=np.int64).reshape(-1, 5).T)


def payouts(connection: Connection) -> list[Payout]:
    """Return all payout batches with their lines, the newest last."""
    return [one._replace(items=_lines(connection, one)) for one in payout_summaries(connection)[::-1]]


def find_payout(connection: Connection, number: int) -> Payout:
    """Return one payout batch with its lines, or raise."""
    found = payout_summaries(connection, number=number) if 0 < number < LARGEST_ID else []
    if not found:
        raise RefusedError(f"there is no payout {number}; `guerdon ledger payout list` lists them")
    return found[0]._replace(items=_lines(connection, found[0]))


def payout_summaries(
    connection: Connection, start: int = 0, count: int | None = None, number: int | None = None
) -> list[Payout]:
    """Return some payout batches, or one by its number, the newest first, without their lines."""
    frozen = (entries.c.record == batches.c.record) & (entries.c.target == tables.PAYABLE)
    total = cast(func.coalesce(func.sum(entries.c.amount), 0), tables.Whole)
    query = select(
        batches, records.c.created_at, records.c.memo,
        select(func.count()).where(frozen).scalar_subquery().label("agents"),
        select(total).where(frozen).scalar_subquery().label("total"),
    ).join(records)  # fmt: skip
    chosen = query if number is None else query.where(batches.c.number == number)
    page = connection.execute(chosen.order_by(batches.c.number.desc()).limit(count).offset(start)).all()
    states, settled = _settled(connection, [row.record for row in page])
    return [_summary(row, states[row.record], settled[row.record]) for row in page]


def _summary(row: AnyRow, states: dict[str, int], settled: list[AnyRow]) -> Payout:
    waiting = row.agents - sum(states.values())
    states = {"open": waiting, **states} if waiting else states
    outcome = "open" if waiting else next(iter(states)) if len(states) == 1 else "mixed"
    last = None if waiting else max(one.created_at for one in settled)
    references = ", ".join(dict.fromkeys(one.memo for one in settled if one.memo))
    told = (outcome, states, last, references, row.memo)
    return Payout(row.number, row.record, row.created_at, row.agents, row.total, *told, items=[])


def _settled(connection: Connection, numbers: list[int]) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return, by the record of a payout, how many lines have which outcome, and the records that settled some."""
    told, states, settled = outcomes, defaultdict[int, dict[str, int]](dict), defaultdict[int, list[AnyRow]](list)
    mine = told.c.payout.in_(numbers)
    last = select(told.c.payout, told.c.agent, func.max(told.c.record).label("record")).where(mine)
    last = last.group_by(told.c.payout, told.c.agent).subquery()
    same = (told.c.record == last.c.record) & (told.c.agent == last.c.agent)
    tally = select(told.c.payout, told.c.outcome, func.count().label("lines")).join(last, same).where(mine)
    for row in connection.execute(tally.group_by(told.c.payout, told.c.outcome).order_by(told.c.outcome.desc())):
        states[row.payout][row.outcome] = row.lines
    query = select(told.c.payout, records).distinct().join(records, records.c.seq == told.c.record).where(mine)
    for row in connection.execute(query.order_by(records.c.seq)):
        settled[row.payout].append(row)
    return states, settled


def _lines(connection: Connection, batch: Payout) -> list[PayoutLine]:
    """Return the lines of a batch by name."""
    query = select(outcomes.c.agent, outcomes.c.outcome, records.c.created_at, records.c.memo)
    query = query.join(records, records.c.seq == outcomes.c.record).where(outcomes.c.payout == batch.record)
    found = connection.execute(query.order_by(outcomes.c.record))
    told = {row.agent: tuple(row)[1:] for row in found}  # the last counts
    bank = (lines.c.record == entries.c.record) & (lines.c.agent == agents.c.id)
    shares = select(agents.c.name, agents.c.id, entries.c.amount, lines.c.holder, lines.c.account)
    source = entries.join(accounts, entries.c.source == accounts.c.id).join(agents).join(lines, bank)
    frozen = (entries.c.record == batch.record) & (entries.c.target == tables.PAYABLE)
    rows = connection.execute(shares.select_from(source).where(frozen).order_by(agents.c.name))
    return [PayoutLine(*row, *told.get(row.id, ("open", None, ""))) for row in rows]
