"""Vesting: the terms of a run, and what vests when it is closed."""

from guerdon.ledger.migrations.helpers import append_only, create_tables

revision = "0004"
down_revision = "0003"

NEW = ("terms", "closings")


def upgrade() -> None:
    """Create tables that are only ever added to."""
    create_tables(*NEW)
    for table in NEW:
        append_only(table)
