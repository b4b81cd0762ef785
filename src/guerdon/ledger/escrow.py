"""What is held until the audit knows more: released to agents who are cleared, forfeited only when that is asked for.

The remark on each move says of which run it is, up to which round it settles, and why. What is settled already is read
from these remarks, which are part of the chain: so the same settlement again moves nothing.
"""

import json
import math
import re
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from guerdon.ledger import queries, tables
from guerdon.ledger.auditing import RunAudit, audit_run
from guerdon.ledger.moves import move

# The run's name as JSON writes it: whatever is in a name, the remark can be read again.
REMARK = re.compile(r'audit of run ("(?:[^"\\]|\\.)*"), rounds to (\d+): ')


class EscrowMove(NamedTuple):
    """One move out of escrow; the amount in micro-units."""

    agent: str
    kind: str  # release or forfeit
    amount: int
    round: int  # up to which it settles
    record: int
    why: str


def settle_escrow(connection: Connection, run: str, alpha: float, *, forfeit_accused: bool) -> list[EscrowMove]:
    """Release what is held for rounds that agents are cleared for, and return the moves that were made."""
    audit = audit_run(connection, run, alpha)
    number = queries.need_run(connection, run).id
    moves: list[EscrowMove] = []
    for agent in range(len(audit.findings)):
        due = _due(audit, agent, forfeit_accused=forfeit_accused)
        if due is None:
            continue
        (kind, last, why), name = due, audit.agents[agent]
        account = queries.accounts_of(connection, name)["escrow"]
        since = _settled_to(connection, run, account.id)
        amount = min(_held(connection, number, account.id, since, last), account.balance)
        if amount > 0:
            remark = f"audit of run {json.dumps(run, ensure_ascii=False)}, rounds to {last}: {why}"
            record = move(connection, kind, name, amount, remark)
            moves.append(EscrowMove(name, kind, amount, last, record, why))
    return moves


def odds(evidence: float) -> str:
    """Return the logarithm of a bet's wealth as people read it: 1,200 to 1."""
    if evidence < 0:
        return f"1 to {_wealth(-evidence)}"
    return f"{_wealth(evidence)} to 1"


def _wealth(evidence: float) -> str:
    if evidence >= math.log(1e6):
        return f"10^{evidence / math.log(10):.0f}"
    value = math.exp(evidence)
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _due(audit: RunAudit, agent: int, *, forfeit_accused: bool) -> tuple[str, int, str] | None:
    """Return what is to be done with what an agent has in escrow, up to which round, and why; None: it stays there."""
    finding = audit.findings[agent]
    if finding.verdict == "accused":
        last = int(audit.rounds[-1])
        why = f"accused in round {audit.round_of(finding.accused_in)}, evidence {odds(finding.highest)}"
        return ("forfeit", last, f"{why} (alpha {audit.alpha:g})") if forfeit_accused else None
    last = audit.round_of(finding.cleared_to)
    if last is None:
        return None
    beyond = odds(float(audit.trail.informed[finding.cleared_to, agent]))
    return "release", last, f"his reports add information, evidence {beyond} (alpha {audit.alpha:g})"


def _settled_to(connection: Connection, run: str, account: int) -> int:
    """Return the last round of a run for which the escrow of an agent is settled; -1: none."""
    entry, record = tables.entries.c, tables.records.c
    query = select(record.memo).join(tables.entries, entry.record == record.seq)
    memos = connection.execute(query.where(entry.source == account, entry.source != tables.TREASURY)).scalars()
    found = [REMARK.match(memo) for memo in memos]
    return max((int(match[2]) for match in found if match and json.loads(match[1]) == run), default=-1)


def _held(connection: Connection, run: int, account: int, after: int, last: int) -> int:
    """Return what went to an escrow account in the rounds of a run after one and up to another."""
    entry, played = tables.entries.c, tables.rounds.c
    query = select(entry.amount).join(tables.rounds, played.record == entry.record)
    within = (played.run == run) & (played.number > after) & (played.number <= last) & (entry.target == account)
    amounts: Any = connection.execute(query.where(within)).scalars()
    return sum(int(amount) for amount in amounts)
