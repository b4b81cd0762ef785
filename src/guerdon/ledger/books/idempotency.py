"""Keys of the caller's: what is asked for twice under one key is done once."""

import hashlib
from typing import Any

from sqlalchemy import Connection, select

from guerdon.canonical import canonical
from guerdon.ledger.books import tables
from guerdon.ledger.books.checks import check_name
from guerdon.ledger.books.errors import RefusedError


def key_rows(key: str | None, *asked: Any) -> list[dict[str, Any]]:
    """Return the row that remembers what was asked for under a key; none where there is no key."""
    if key is None:
        return []
    check_name("`key`", key)
    return [{"key": key, "payload": hashlib.sha256(canonical(list(asked)).encode()).digest()}]


def find_done(connection: Connection, rows: list[dict[str, Any]]) -> int | None:
    """Return the record in which the same was done under the same key, or None; raise if the key was for another."""
    for row in rows:
        own = select(tables.idempotency).where(tables.idempotency.c.key == row["key"])
        found = connection.execute(own).one_or_none()
        if found is not None and found.payload != row["payload"]:
            raise RefusedError(
                f"the key {row['key']!r} belongs to record {found.record}, which was asked for with other values; "
                "nothing was changed. A new move or payout needs a new key"
            )
        return None if found is None else found.record
    return None
