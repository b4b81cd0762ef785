"""A version of the tables that only tests have: a table of remarks, and a column for it."""

import sqlalchemy as sa
from alembic import op

from guerdon.ledger.books.migrations.helpers import append_only

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add a table that is only ever added to, and a column with a default."""
    op.create_table("remarks", sa.Column("record", sa.BigInteger, sa.ForeignKey("records.seq"), primary_key=True))
    append_only("remarks")
    op.add_column("checkpoints", sa.Column("remark", sa.Text, nullable=False, server_default=""))
