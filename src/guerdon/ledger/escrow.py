"""What is held until the audit knows more: released to agents that are cleared, forfeited only when that is asked for.

A settlement leaves nothing of what a run held for an agent up to a round. The rows of `escrow` say what it took from
which run, so the same settlement again moves nothing. The remark on each move is for people.
"""

import math
from typing import NamedTuple

from sqlalchemy import Connection

from guerdon.ledger import holdings, queries
from guerdon.ledger.auditing import RunAudit, audit_run
from guerdon.ledger.moves import write_move


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
        amount = holdings.due(connection, number, account.id, last)
        if amount > 0:
            remark = f"audit of run {run!r}, rounds to {last}: {why}"
            record = write_move(connection, kind, name, amount, remark, {number: amount}, last)
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
    return "release", last, f"its reports add information, evidence {beyond} (alpha {audit.alpha:g})"
