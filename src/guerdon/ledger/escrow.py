"""Moving an agent's money between its accounts and the common ones; settling what is held until the audit knows more.

What leaves escrow leaves it for a run, as the rows of `escrow` say. A settlement leaves nothing of what a run held for
an agent up to a round, so the same settlement again moves nothing. The remark on each move is for people.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from guerdon.ledger import holdings, journal, queries, tables
from guerdon.ledger.auditing import RunAudit, audit_run
from guerdon.ledger.checks import check_micro
from guerdon.ledger.errors import RefusedError
from guerdon.ledger.idempotency import find_done, key_rows
from guerdon.ledger.money import format_amount
from guerdon.ledger.unvested import bound_deposit


class EscrowMove(NamedTuple):
    """One move out of escrow; the amount in micro-units."""

    agent: str
    kind: str  # release or forfeit
    amount: int
    round: int  # up to which it settles
    record: int
    why: str


def move(
    connection: Connection, kind: str, agent: str, amount: int, memo: str, run: str | None, key: str | None
) -> tuple[int, bool]:
    """Move `amount` micro-units as `tables.MOVES` says; return the record, and whether it is new.

    It is refused if the money is not there.
    """
    leaves_escrow = tables.MOVES[kind][0] == "escrow"
    if run is not None and not leaves_escrow:
        raise ValueError(f"`run` must be left out of a {kind}, got {run!r}: only release and forfeit take it")
    check_micro("amount", amount)
    asked = key_rows(key, "move", kind, agent, amount, memo, run)
    done = find_done(connection, asked)
    if done is not None:
        return done, False
    parts = _parts(connection, kind, agent, amount, run) if leaves_escrow else {}
    return write_move(connection, kind, agent, amount, memo, parts, asked=asked), True


def write_move(
    connection: Connection,
    kind: str,
    agent: str,
    amount: int,
    memo: str,
    parts: Mapping[int, int],
    to: Any = None,
    asked: Sequence[Mapping[str, Any]] = (),
) -> int:
    """Write the record of a move; `parts` says which runs it takes how much from, `to` up to which round it settles."""
    own = queries.accounts_of(connection, agent)
    common = queries.common_accounts(connection)
    source, target = (own.get(name) or common[name] for name in tables.MOVES[kind])
    refused = f"cannot {kind} {format_amount(amount)} for {agent!r}"
    if target.kind == "carried" and amount > -target.balance:
        raise RefusedError(f"{refused}: it carries {format_amount(-target.balance)}")
    if kind == "withdraw" and own["carried"].balance < 0:
        owes = f"it carries a loss of {format_amount(-own['carried'].balance)}, which must be repaid or waived first"
        raise RefusedError(f"{refused}: {owes}")
    bound = bound_deposit(connection, own["deposit"].owner) if kind == "withdraw" else 0
    if bound and source.balance - amount < bound:
        raise RefusedError(
            f"{refused}: a run that it joined asks for a deposit of {format_amount(bound)} until it is closed"
        )
    if source.kind in own and source.balance < amount:
        raise RefusedError(f"{refused}: its {source.kind} account holds {format_amount(source.balance)}")
    entry = np.array([[source.id, target.id, amount]], dtype=np.int64)
    rows = [{"run": run, "amount": part, "round": to} for run, part in sorted(parts.items())]
    return journal.append(connection, kind, {"escrow": rows, "idempotency": asked}, entry, memo=memo)


def _parts(connection: Connection, kind: str, agent: str, amount: int, run: str | None) -> dict[int, int]:
    """Return which runs a move takes how much from; refuse more than is held."""
    account = queries.accounts_of(connection, agent)["escrow"]
    held = {of: rest for (of, _), rest in holdings.held(connection, account=account.id).items()}
    if run is None:
        free = account.balance - holdings.unvested(connection, [account.owner])[account.owner]
        if free < amount:
            refused = f"cannot {kind} {format_amount(amount)} for {agent!r}"
            rest = "the rest is unvested: `guerdon ledger close` lets it vest at the end of a run"
            raise RefusedError(f"{refused}: its escrow account holds {format_amount(free)}; {rest}")
        return holdings.spread(amount, free - sum(held.values()), held)
    number = queries.need_run(connection, run).id
    there, in_all = held.get(number, 0), account.balance
    if there < amount:
        refused = f"cannot {kind} {format_amount(amount)} for {agent!r} in run {run!r}"
        raise RefusedError(f"{refused}: {format_amount(there)} is held there, {format_amount(in_all)} in all")
    return {number: amount}


def settle_escrow(
    connection: Connection, run: str, alpha: float, *, alike: bool, forfeit_accused: bool
) -> list[EscrowMove]:
    """Release what is held for rounds that agents are cleared for, and return the moves that were made."""
    if forfeit_accused and not alike:
        raise ValueError(
            "`forfeit_accused` needs `alike`: an agent that differs may only have other data. Say that all agents draw "
            "fresh samples of the same kind if you know it, and forfeit nothing otherwise"
        )
    audit = audit_run(connection, run, alpha, alike=alike)
    number = queries.need_run(connection, run).id
    moves: list[EscrowMove] = []
    for agent in range(len(audit.findings)):
        due = _due(audit, agent, forfeit_accused=forfeit_accused)
        if due is None:
            continue
        (kind, last, why), name = due, audit.agents[agent]
        account = queries.accounts_of(connection, name)["escrow"]
        amount = holdings.held(connection, run=number, account=account.id, last=last)[number, account.id]
        if amount > 0:
            remark = f"audit of run {run!r}, rounds to {last}: {why}"
            record = write_move(connection, kind, name, amount, remark, {number: amount}, last)
            moves.append(EscrowMove(name, kind, amount, last, record, why))
    return moves


def odds(evidence: float) -> str:
    """Return the logarithm of a bet's wealth as people read it: 1,200 to 1."""
    size = abs(evidence)
    form = ".2g" if size < math.log(10) else ",.0f"
    wealth = f"{math.exp(size):{form}}" if size < math.log(1e6) else f"10^{size / math.log(10):.0f}"
    return f"1 to {wealth}" if evidence < 0 else f"{wealth} to 1"


def _due(audit: RunAudit, agent: int, *, forfeit_accused: bool) -> tuple[str, int, str] | None:
    """Return what is to be done with what an agent has in escrow, up to which round, and why; None: it stays there."""
    finding = audit.findings[agent]
    if finding.verdict == "accused":
        last = int(audit.rounds[-1])
        why = f"accused in round {audit.round_of(finding.differs_in)}, evidence {odds(finding.highest)}"
        return ("forfeit", last, f"{why} (alpha {audit.alpha:g})") if forfeit_accused else None
    last = audit.round_of(finding.cleared_to)
    if last is None:
        return None
    beyond = odds(float(audit.trail.informed[finding.cleared_to, agent]))
    return "release", last, f"its reports add information, evidence {beyond} (alpha {audit.alpha:g})"
