"""Payouts line by line: bank accounts, outcomes, callers' keys; PostgreSQL's hash of the tables covers definitions."""

from guerdon.ledger.migrations.helpers import append_only, create_tables

revision = "0003"
down_revision = "0002"

NEW = ("payees", "batches", "payout_lines", "outcomes", "idempotency")


def upgrade() -> None:
    """Create tables that are only ever added to."""
    create_tables(*NEW)
    for table in NEW:
        append_only(table)
