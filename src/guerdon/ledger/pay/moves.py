"""Moving an agent's money by hand, between its own accounts and the common ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection

from guerdon.ledger.books import journal, tables
from guerdon.ledger.books.checks import check_micro
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.idempotency import find_done, key_rows
from guerdon.ledger.books.money import format_amount
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay.closing import bound_deposit
from guerdon.ledger.read import queries


def move(connection: Connection, kind: str, agent: str, amount: int, memo: str, key: str | None) -> tuple[int, bool]:
    """Move `amount` micro-units as `tables.MOVES` says; return the record, and whether it is new.

    It is refused if the money is not there. What a run holds is moved by its terms only, and by no hand.
    """
    check_micro("amount", amount)
    asked = key_rows(key, "move", kind, agent, amount, memo)
    done = find_done(connection, asked)
    return (done, False) if done is not None else (_write(connection, kind, agent, amount, memo, asked), True)


def _write(
    connection: Connection, kind: str, agent: str, amount: int, memo: str, asked: Sequence[Mapping[str, Any]]
) -> int:
    """Write the record of a move, or refuse it."""
    own, common = queries.accounts_of(connection, agent), queries.common_accounts(connection)
    source, target = (own.get(name) or common[name] for name in tables.MOVES[kind])
    why = _refusal(connection, kind, own, source, target, amount)
    if why:
        raise RefusedError(f"cannot {kind} {format_amount(amount)} for {agent!r}: {why}")
    entry = np.array([[source.id, target.id, amount]], dtype=np.int64)
    return journal.append(connection, kind, {"idempotency": asked}, entry, memo=memo)


def _refusal(
    connection: Connection, kind: str, own: Mapping[str, AnyRow], source: AnyRow, target: AnyRow, amount: int
) -> str:
    """Return why money cannot be moved; empty where it can."""
    if target.kind == "carried" and amount > -target.balance:
        return f"it carries {format_amount(-target.balance)}"
    if kind == "withdraw" and own["carried"].balance < 0:
        return f"it carries a loss of {format_amount(-own['carried'].balance)}, which must be repaid or waived first"
    bound = bound_deposit(connection, own["deposit"].owner) if kind == "withdraw" else 0
    if bound and source.balance - amount < bound:
        return f"a run that it joined asks for a deposit of {format_amount(bound)} until it is closed"
    if source.kind in own and source.balance < amount:
        what = f"its {source.kind} account has {format_amount(source.balance)}"
        runs = " by hand; what a run holds is released by the run's terms" if source.kind == "held" else ""
        return what + runs
    return ""
