"""The first tables: all that `guerdon.ledger.books.tables` has."""

from alembic import op

from guerdon.ledger.books.migrations.helpers import append_only, create_tables, forbid, on_sqlite
from guerdon.ledger.books.tables import metadata

revision = "0001"
down_revision = None

LEGS = """
CREATE VIEW legs AS
SELECT record, line, source AS account, -amount AS amount FROM entries
UNION ALL
SELECT record, line, target AS account, amount FROM entries
"""
REFUSE = """
CREATE FUNCTION guerdon_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$
"""


def upgrade() -> None:
    """Create the tables, the view of signed entries, and what keeps anything from being changed."""
    create_tables(*metadata.tables)
    op.execute(LEGS)
    if not on_sqlite():
        op.execute(REFUSE)
    for table in metadata.tables:
        if table not in ("ledger", "accounts", "holdings", "checkpoints"):
            append_only(table)
    forbid("accounts", "DELETE", "UPDATE OF id, record, kind, owner, run")
    forbid("ledger", "DELETE")
