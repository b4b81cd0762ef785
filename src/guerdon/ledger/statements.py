"""An agent's statement: what was asked, what the agent earned and why, and where the money is, line by line."""

import math
from collections import defaultdict
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, or_, select

from guerdon.ledger import tables
from guerdon.ledger.chain import STATUS_CODES
from guerdon.ledger.money import MICRO, format_amount
from guerdon.ledger.queries import entries_of, find_agent, last_round
from guerdon.ledger.recorded_rules import restored
from guerdon.ledger.tables import AnyRow
from guerdon.rules import Payments, explain

_MOVED = {
    "deposit": "deposit paid in",
    "withdraw": "deposit paid back",
    "hold": "moved from the balance into escrow",
    "release": "released from escrow to the balance",
    "forfeit": "forfeited from escrow",
    "repay": "of a carried loss repaid",
    "waive": "of a carried loss waived",
    "payout": "frozen to be paid out",
}


class Line(NamedTuple):
    """One event; amounts are in micro-units, and the last four are what the accounts held afterwards."""

    record: int
    at: datetime
    kind: str
    run: str | None
    round: int | None
    request: int | None
    status: str | None
    reward: int | None
    cut: int | None
    change: int  # of the balance
    why: str
    hash: str | None  # of the payment
    balance: int
    deposit: int
    escrow: int
    carried: int

    @property
    def what(self) -> str:
        """What happened, in a few words."""
        return f"{self.run}, round {self.round}" if self.kind == "round" else self.kind.replace("settle", "payout")


class Statement(NamedTuple):
    """All that happened to one agent's money, in order."""

    agent: str
    unit: str
    ledger: str
    lines: list[Line]

    @property
    def earned(self) -> int:
        """The rewards of all rounds together."""
        return sum(line.reward or 0 for line in self.lines)


class Payslip(NamedTuple):
    """What an agent was paid for the last round of a run and why, and what it has now; amounts in micro-units."""

    agent: str
    round: int
    request: int
    status: str
    reward: int
    why: str
    balance: int


def payslips(connection: Connection, run: AnyRow) -> list[Payslip]:
    """Return what each agent of a run was paid for the last round, in order; empty if no round is paid yet."""
    last = last_round(connection, run.id)
    if last is None:
        return []
    account, person = tables.accounts.c, tables.agents.c
    owned = select(account.id, account.owner, account.kind, account.balance, person.name).where(
        account.owner == person.id,
        account.owner.in_(select(tables.members.c.agent).where(tables.members.c.run == run.id)),
    )
    owners = {row.id: row for row in connection.execute(owned)}
    moves: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for source, target, amount in entries_of(connection, last.record).tolist():
        for number, change in ((source, -amount), (target, amount)):
            if number in owners:
                moves[owners[number].owner][owners[number].kind] += change
    people = {row.owner: row for row in owners.values() if row.kind == "agent"}
    paid = connection.execute(
        _paid().where(tables.payments.c.record == last.record).order_by(tables.payments.c.position)
    )
    return [
        Payslip(people[row.agent].name, row.number, row.request, row.status, row.amount, _why(row, moves[row.agent]),
                people[row.agent].balance)
        for row in paid
    ]  # fmt: skip


def statement(connection: Connection, name: str) -> Statement:
    """Return the statement of the agent with that name, or of the only agent whose name begins with it."""
    agent = find_agent(connection, name)
    lines, _ = read_lines(connection, agent.id)
    head = connection.execute(select(tables.ledger)).one()
    return Statement(agent.name, head.unit, head.name, lines)


def read_lines(
    connection: Connection, agent: int, skipped: int = 0, count: int | None = None
) -> tuple[list[Line], int]:
    """Return an agent's lines in order, and how many there are; with a `count`, that many before the last `skipped`.

    What the accounts held is added up from the beginning, but only the wanted lines are made.
    """
    moves, settled = _moves(connection, agent), _settlements(connection, agent)
    paid_in = select(tables.payments.c.record).where(tables.payments.c.agent == agent)
    numbers = sorted(set(moves) | set(settled) | set(connection.execute(paid_in).scalars()))
    stop = max(len(numbers) - skipped, 0)
    wanted = numbers[0 if count is None else max(stop - count, 0) : stop]
    if not wanted:
        return [], len(numbers)
    paid = payments_of(connection, agent, wanted[0], wanted[-1])
    records = {row.seq: row for row in _in_parts(connection, tables.records, tables.records.c.seq, wanted)}
    standing: dict[str, int] = dict.fromkeys(tables.PERSONAL, 0)
    lines: list[Line] = []
    for number in numbers[:stop]:
        moved = moves.get(number, {})
        for kind, amount in moved.items():
            standing[kind] += amount
        if number in records:
            lines.append(_line(records[number], paid.get(number), settled.get(number), moved, standing))
    return lines, len(numbers)


def _line(
    record: AnyRow, paid: AnyRow | None, settled: str | None, moved: dict[str, int], standing: dict[str, int]
) -> Line:
    after = {"balance" if kind == "agent" else kind: amount for kind, amount in standing.items()}
    if paid is None:
        netted = moved.get("carried", 0) if record.kind == "payout" else 0
        amount = max((abs(change) for change in moved.values()), default=0) - netted
        why = f"{format_amount(amount)} {_MOVED[record.kind]}" if record.kind in _MOVED else settled or ""
        why += f"; {format_amount(netted)} netted against an earlier loss" if netted else ""
        why += f": {record.memo}" if record.memo else ""
        nothing = dict.fromkeys(("run", "round", "request", "status", "reward", "cut", "hash"))
    else:
        why = _why(paid, moved)
        nothing = {
            "run": paid.run, "round": paid.number, "request": paid.request, "status": paid.status,
            "reward": paid.amount, "cut": paid.cut, "hash": paid.hash.hex(),
        }  # fmt: skip
    shown: dict[str, Any] = nothing | after
    return Line(
        record=record.seq, at=record.created_at, kind=record.kind, change=moved.get("agent", 0), why=why, **shown
    )


def _why(paid: AnyRow, moved: dict[str, int]) -> str:
    """Return why a round changed the agent's accounts as it did, in plain words."""
    seen = [math.nan if x is None else x for x in (paid.distance, paid.expected_distance, paid.variance)]
    payment = Payments(*([number] for number in (paid.amount / MICRO, *seen)), status=[STATUS_CODES[paid.status]])
    words = [explain(restored(paid.rule, paid.cost), payment, paid.request)[0]]
    if paid.cut:
        words.append(f"{format_amount(paid.cut)} of the loss was waived (limited liability)")
    if moved.get("carried", 0) < 0:
        words.append(f"{format_amount(-moved['carried'])} carried, to be netted against later rewards")
    if moved.get("carried", 0) > 0:
        words.append(f"{format_amount(moved['carried'])} of it netted against an earlier loss")
    if moved.get("deposit", 0) < 0:
        words.append(f"{format_amount(-moved['deposit'])} charged to the deposit")
    if moved.get("escrow", 0) > 0:
        words.append(f"{format_amount(moved['escrow'])} of it held in escrow")
    if paid.note:
        words.append(f"note: {paid.note}")
    return "; ".join(words)


def _moves(connection: Connection, agent: int) -> dict[int, dict[str, int]]:
    """Return, per record, by how much it changed each kind of the agent's accounts."""
    account, entry = tables.accounts.c, tables.entries.c
    mine = select(account.id, account.kind).where(account.owner == agent)
    owned = {row.id: row.kind for row in connection.execute(mine)}
    moves: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    query = select(entry.record, entry.source, entry.target, entry.amount)
    for record, source, target, amount in connection.execute(
        query.where(or_((entry.source != tables.TREASURY) & entry.source.in_(owned), entry.target.in_(owned)))
    ):
        for number, change in ((source, -amount), (target, amount)):
            if number in owned:
                moves[record][owned[number]] += change
    return moves


def payments_of(connection: Connection, agent: int, first: int, last: int) -> dict[int, AnyRow]:
    """Return the agent's payments from record to record, each with its round, by record."""
    paid = tables.payments.c
    mine = _paid().where(paid.agent == agent, paid.record.between(first, last))
    return {row.record: row for row in connection.execute(mine)}


def _paid() -> Select[Any]:
    """Return the query for payments, each with its round."""
    paid, played, run = tables.payments, tables.rounds, tables.runs
    return select(
        paid, played.c.number, played.c.request, played.c.rule, played.c.cost, run.c.name.label("run")
    ).select_from(paid.join(played, paid.c.record == played.c.record).join(run, played.c.run == run.c.id))


def _settlements(connection: Connection, agent: int) -> dict[int, str]:
    """Return what happened to the payouts that hold money of the agent, by record of the settlement."""
    settled, batch, entry, account = tables.settlements, tables.payouts, tables.entries, tables.accounts
    query = select(settled.c.record, settled.c.outcome, batch.c.number).select_from(
        settled.join(batch, settled.c.payout == batch.c.record)
        .join(entry, entry.c.record == batch.c.record)
        .join(account, account.c.id == entry.c.source)
    )
    mine = query.where(account.c.owner == agent, entry.c.source != tables.TREASURY)  # the index leaves out the treasury
    rows = connection.execute(mine)
    return {row.record: f"payout {row.number} {row.outcome}" for row in rows}


def _in_parts(connection: Connection, table: Any, column: Any, values: list[int]) -> list[AnyRow]:
    """Return the rows whose column has one of many values."""
    rows: list[AnyRow] = []
    for start in range(0, len(values), 500):
        rows += connection.execute(select(table).where(column.in_(values[start : start + 500]))).all()
    return rows
