"""On PostgreSQL too, the hash of the tables covers every definition: the record of the upgrade has the new one."""

revision = "0004"
down_revision = "0002"


def upgrade() -> None:
    """Change no table."""
