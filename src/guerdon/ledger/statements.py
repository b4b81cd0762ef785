"""An agent's statement: what was asked, what the agent earned and why, and where the money is, line by line."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, select

from guerdon.ledger import tables
from guerdon.ledger.chain import STATUS_CODES
from guerdon.ledger.money import MICRO, format_amount
from guerdon.ledger.payouts import TOLD
from guerdon.ledger.queries import entries_of, find_agent, find_run, last_round, per_member, roster, rows_with
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


def payslips(connection: Connection, run: str) -> list[Payslip]:
    """Return what each agent of a run was paid for its last round, and why; empty if no round is paid yet."""
    found = find_run(connection, run)
    last = None if found is None else last_round(connection, found.id)
    if found is None or last is None:
        return []
    people, (balances,) = roster(connection, found.id), per_member(connection, found.id, [], "balance", ["agent"])
    changes = Counter[int]()
    for source, target, amount in entries_of(connection, last.record).tolist():
        changes.update({source: -amount, target: amount})
    slips: list[Payslip] = []
    for row in connection.execute(_paid().where(tables.payments.c.record == last.record)):
        moved = {kind: changes[own[row.position]] for kind, own in people.accounts.items()}
        paid = (row.number, row.request, row.status, row.amount, _why(row, moved))
        slips.append(Payslip(people.names[row.position], *paid, balances[row.position]))
    return slips


def statement(connection: Connection, agent: str) -> Statement:
    """Return everything that happened to an agent's money, with reasons; a unique beginning of the name will do."""
    found = find_agent(connection, agent)
    lines, _ = read_lines(connection, found.id)
    head = connection.execute(select(tables.ledger)).one()
    return Statement(found.name, head.unit, head.name, lines)


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
    records = {row.seq: row for row in rows_with(connection, tables.records.c.seq, wanted)}
    standing, lines = Counter[str](), list[Line]()
    for number in numbers[:stop]:
        standing.update(moves[number])
        if number in records:
            lines.append(_line(records[number], paid.get(number), settled.get(number), moves[number], standing))
    return lines, len(numbers)


def _line(
    record: AnyRow, paid: AnyRow | None, settled: str | None, moved: Counter[str], standing: Counter[str]
) -> Line:
    if paid is None:
        round_, why, sealed = (None,) * 6, _why_moved(record, settled, moved), None
    else:
        round_ = (paid.run, paid.number, paid.request, paid.status, paid.amount, paid.cut)
        why, sealed = _why(paid, moved), paid.hash.hex()
    after = (standing[kind] for kind in tables.PERSONAL)
    return Line._make((record.seq, record.created_at, record.kind, *round_, moved["agent"], why, sealed, *after))


def _why_moved(record: AnyRow, settled: str | None, moved: Counter[str]) -> str:
    """Return what a record other than a round did to the agent's accounts, in plain words."""
    netted = moved["carried"] if record.kind == "payout" else 0
    amount = max((abs(change) for change in moved.values()), default=0) - netted
    why = f"{format_amount(amount)} {_MOVED[record.kind]}" if record.kind in _MOVED else settled or ""
    why += f"; {format_amount(netted)} netted against an earlier loss" if netted else ""
    return f"{why}: {record.memo}" if record.memo else why


def _why(paid: AnyRow, moved: Mapping[str, int]) -> str:
    """Return why a round changed the agent's accounts as it did, in plain words."""
    seen = [math.nan if x is None else x for x in (paid.distance, paid.expected_distance, paid.variance)]
    payment = Payments(*([number] for number in (paid.amount / MICRO, *seen)), status=[STATUS_CODES[paid.status]])
    words = [explain(restored(paid.rule, paid.cost), payment, paid.request)[0]]
    said = {
        "of the loss was waived (limited liability)": paid.cut,
        "carried, to be netted against later rewards": -moved["carried"],
        "of it netted against an earlier loss": moved["carried"],
        "charged to the deposit": -moved["deposit"],
        "of it held in escrow": moved["escrow"],
    }
    words += [f"{format_amount(amount)} {what}" for what, amount in said.items() if amount > 0]
    return "; ".join([*words, f"note: {paid.note}"] if paid.note else words)


def _moves(connection: Connection, agent: int) -> defaultdict[int, Counter[str]]:
    """Return, per record, by how much it changed each kind of the agent's accounts."""
    account, entry = tables.accounts.c, tables.entries.c
    mine = select(account.id, account.kind).where(account.owner == agent)
    owned = {row.id: row.kind for row in connection.execute(mine)}
    moves = defaultdict[int, Counter[str]](Counter)
    spent = (entry.source != tables.TREASURY) & entry.source.in_(owned)  # the index leaves out the treasury
    query = select(entry.record, entry.source, entry.target, entry.amount).where(spent | entry.target.in_(owned))
    for record, source, target, amount in connection.execute(query):
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
    return (
        select(paid, played.c.number, played.c.request, played.c.rule, played.c.cost, run.c.name.label("run"))
        .select_from(paid.join(played).join(run))
        .order_by(paid.c.record, paid.c.position)
    )


def _settlements(connection: Connection, agent: int) -> dict[int, str]:
    """Return what happened to the payouts that hold money of the agent, by record of the settlement."""
    batch = tables.payouts
    query = select(TOLD.c.record, TOLD.c.outcome, batch.c.number).join(batch, batch.c.record == TOLD.c.payout)
    rows = connection.execute(query.where(TOLD.c.agent == agent))
    return {row.record: f"payout {row.number} {row.outcome}" for row in rows}
