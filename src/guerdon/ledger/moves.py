"""Moving an agent's money between its accounts and the common ones, by one record each."""

import numpy as np
from sqlalchemy import Connection

from guerdon.ledger import journal, queries, tables
from guerdon.ledger.checks import check_micro
from guerdon.ledger.errors import RefusedError
from guerdon.ledger.money import format_amount


def move(connection: Connection, kind: str, agent: str, amount: int, memo: str) -> int:
    """Move `amount` micro-units as `tables.MOVES` says, and return the record; refuse it if the money is not there."""
    check_micro("amount", amount)
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
    return journal.append(connection, kind, {}, entry, memo=memo)
