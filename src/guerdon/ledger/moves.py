"""Moving an agent's money between its accounts and the common ones, by one record each.

What leaves escrow leaves it for a run: the one that is named, else first what was held by hand, then what was held in
runs, in the order in which they began.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sqlalchemy import Connection

from guerdon.ledger import holdings, journal, queries, tables
from guerdon.ledger.checks import check_micro
from guerdon.ledger.errors import RefusedError
from guerdon.ledger.money import format_amount


def move(connection: Connection, kind: str, agent: str, amount: int, memo: str, run: str | None = None) -> int:
    """Move `amount` micro-units as `tables.MOVES` says, and return the record; refuse it if the money is not there."""
    leaves_escrow = tables.MOVES[kind][0] == "escrow"
    if run is not None and not leaves_escrow:
        raise ValueError(f"`run` must be left out of a {kind}, got {run!r}: only release and forfeit take it")
    check_micro("amount", amount)
    parts = _parts(connection, kind, agent, amount, run) if leaves_escrow else {}
    return write_move(connection, kind, agent, amount, memo, parts)


def write_move(
    connection: Connection, kind: str, agent: str, amount: int, memo: str, parts: Mapping[int, int], to: Any = None
) -> int:
    """Write the record of a move; `parts` says which runs it takes how much from, `to` up to which round it settles."""
    own = queries.accounts_of(connection, agent)
    common = queries.common_accounts(connection)
    source, target = (own.get(name) or common[name] for name in tables.MOVES[kind])
    if tables.MOVES[kind][1] == "carried" and amount > -target.balance:
        raise RefusedError(
            f"cannot {kind} {format_amount(amount)} for {agent!r}: it carries {format_amount(-target.balance)}"
        )
    if tables.MOVES[kind][0] in own and source.balance < amount:
        raise RefusedError(
            f"cannot {kind} {format_amount(amount)} for {agent!r}: its {tables.MOVES[kind][0]} account holds "
            f"{format_amount(source.balance)}"
        )
    entry = np.array([[source.id, target.id, amount]], dtype=np.int64)
    seq = journal.next_seq(connection)
    rows = [{"move": seq, "run": run, "amount": part, "round": to} for run, part in sorted(parts.items())]
    return journal.append(connection, kind, {"escrow": rows}, entry, memo=memo)


def _parts(connection: Connection, kind: str, agent: str, amount: int, run: str | None) -> dict[int, int]:
    """Return which runs a move takes how much from; refuse more than is held."""
    account = queries.accounts_of(connection, agent)["escrow"]
    held = {of: rest for (of, _), rest in holdings.held(connection, account=account.id).items()}
    if run is None:
        return holdings.spread(amount, account.balance - sum(held.values()), held)
    number = queries.need_run(connection, run).id
    if held.get(number, 0) < amount:
        raise RefusedError(
            f"cannot {kind} {format_amount(amount)} for {agent!r} in run {run!r}: "
            f"{format_amount(held.get(number, 0))} is held there, {format_amount(account.balance)} in all"
        )
    return {number: amount}
