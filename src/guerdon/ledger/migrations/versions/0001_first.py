"""The first tables: records in a hash chain, agents and accounts, runs and rounds, payments and entries."""

from alembic import op

from guerdon.ledger.migrations.helpers import LATER, append_only, create_tables, forbid, on_sqlite
from guerdon.ledger.tables import metadata

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
    tables = [name for name in metadata.tables if name not in LATER]
    create_tables(*tables)
    op.execute(LEGS)
    if not on_sqlite():
        op.execute(REFUSE)
    for table in tables:
        if table not in ("ledger", "accounts", "checkpoints"):
            append_only(table)
    forbid("accounts", "DELETE", "UPDATE OF id, record, kind, owner")
    forbid("ledger", "DELETE")
