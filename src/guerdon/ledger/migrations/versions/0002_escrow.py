"""Escrow by run, and by which tables the ledger is kept from a record on."""

from guerdon.ledger.migrations.helpers import append_only, create_tables

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create two tables that are only ever added to."""
    create_tables("versions", "escrow")
    append_only("versions")
    append_only("escrow")
