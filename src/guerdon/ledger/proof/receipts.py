"""Receipts against a ledger: which records one covers, and whether the ledger still says what was signed.

A receipt covers every record up to the signature itself. What comes after it can be rewritten or cut off unseen: only a
newer receipt shows that.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from guerdon.ledger.books import journal, tables
from guerdon.ledger.books.money import format_amount
from guerdon.ledger.pay.payouts import find_payout
from guerdon.ledger.proof.signing import Receipt, Share, signed

# What may have become of a share since its receipt was signed: a transfer that was paid may have come back.
LATER = {
    "open": ("open", "paid", "cancelled", "bounced"),
    "paid": ("paid", "bounced"),
    "cancelled": ("cancelled",),
    "bounced": ("bounced",),
}


class Coverage(NamedTuple):
    """What a receipt protects: all up to record `last`; `later` counts the records after it by kind."""

    last: int
    later: dict[str, int]

    @property
    def warning(self) -> str | None:
        """What must be said of the records after it, or None where there are none."""
        if not self.later:
            return None
        count = sum(self.later.values())
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.later.items())
        return (
            f"{count:,} record{'s' if count > 1 else ''} after it ({kinds}) could be rewritten or cut off unseen; "
            "verify with a newer receipt, or sign now"
        )


def coverage(connection: Connection, receipt: Receipt) -> Coverage:
    """Return what a receipt protects in a ledger that it fits."""
    record = tables.records.c
    query = select(record.kind, func.count()).where(record.seq > receipt.record + 1)
    return Coverage(
        receipt.record + 1, dict(connection.execute(query.group_by(record.kind).order_by(record.kind)).all())
    )


def contradiction(connection: Connection, receipt: Receipt) -> str | None:
    """Return how a ledger contradicts a receipt, or None; one that verifies is then the one that was signed."""
    name = connection.execute(select(tables.ledger.c.name)).scalar_one()
    if not receipt.is_genuine():
        return "receipt: its signature is not by the key it names"
    if receipt.ledger != name:
        return f"receipt: it is of another ledger ({receipt.ledger}, this one is {name})"
    found = connection.execute(select(tables.records.c.hash).where(tables.records.c.seq == receipt.record)).scalar()
    if found != receipt.hash:
        what = f"record {receipt.record} {'is missing' if found is None else 'was another'}"
        return f"records: {what} when the receipt was signed: the ledger was rewritten"
    mark = tables.signatures.c
    signer = connection.execute(select(mark.public_key).where(mark.record == receipt.record + 1)).scalar()
    if signer != receipt.public_key:
        return f"records: record {receipt.record + 1} must be the signature of the receipt: the ledger was cut off"
    return None if receipt.share is None else _other_share(connection, receipt.share)


def sign_head(connection: Connection, key: object, shares: Sequence[Share] = ()) -> list[Receipt]:
    """Sign the head in the chain, and return the receipt for it, then one for each share of a payout."""
    head = connection.execute(select(tables.ledger)).one()
    receipts = [signed(key, head.name, head.head, head.hash, share) for share in (None, *shares)]
    row = {"public_key": receipts[0].public_key, "signature": receipts[0].signature}
    journal.append(connection, "sign", {"signatures": [row]})
    return receipts


def shares(connection: Connection, number: int) -> list[Share]:
    """Return each agent's part of a payout batch, by the agents' numbers."""
    lines = sorted(find_payout(connection, number).items, key=lambda line: line.number)
    return [Share(number, line.outcome, line.number, line.agent, line.amount) for line in lines]


def _other_share(connection: Connection, told: Share) -> str | None:
    """Return how a payout differs from what an agent's receipt says, but for what may have happened since."""
    for found in shares(connection, told.payout):
        if found.number == told.number:
            if found._replace(outcome=told.outcome) == told and found.outcome in LATER.get(told.outcome, ()):
                return None
            has, says = (f"{format_amount(one.amount)} for {one.agent!r}, {one.outcome}" for one in (found, told))
            return f"payouts: payout {told.payout} has {has}; the receipt says {says}"
    return f"payouts: payout {told.payout} has nothing for agent {told.number}, which the receipt is of"
