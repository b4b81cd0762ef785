"""Cost factors: by how much the cost of a run is multiplied for an agent."""

from guerdon.ledger.migrations.helpers import append_only, create_tables

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create a table that is only ever added to."""
    create_tables("cost_factors")
    append_only("cost_factors")
