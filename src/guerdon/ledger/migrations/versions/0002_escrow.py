"""Escrow by run, and by which tables the ledger is kept from a record on."""
# ruff: noqa: D103
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
APPEND_ONLY = ("versions", "escrow")


def upgrade() -> None:
    op.create_table(
        "versions",
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("schema", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("length(schema) = 32", name=op.f("ck_versions_schema")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_versions_record")),
        sa.PrimaryKeyConstraint("record", name=op.f("pk_versions")),
        sqlite_strict=True,
    )
    op.create_table(
        "escrow",
        sa.Column("move", WHOLE, autoincrement=False, nullable=False),
        sa.Column("run", WHOLE, autoincrement=False, nullable=False),
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("amount", WHOLE, nullable=False),
        sa.Column("round", WHOLE, nullable=True),
        sa.CheckConstraint("move <= record", name=op.f("ck_escrow_move")),
        sa.CheckConstraint("amount > 0", name=op.f("ck_escrow_amount")),
        sa.CheckConstraint("round >= 0", name=op.f("ck_escrow_round")),
        sa.ForeignKeyConstraint(["move"], ["records.seq"], name=op.f("fk_escrow_move")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_escrow_record")),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name=op.f("fk_escrow_run")),
        sa.PrimaryKeyConstraint("move", "run", name=op.f("pk_escrow")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    protect = protect_sqlite if op.get_bind().dialect.name == "sqlite" else protect_postgresql
    protect()


def protect_sqlite() -> None:
    for table in APPEND_ONLY:
        for what in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{what.lower()} BEFORE {what} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )


def protect_postgresql() -> None:
    for table in APPEND_ONLY:
        op.execute(
            f"CREATE TRIGGER {table}_no_update BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION guerdon_refuse()"
        )
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION guerdon_refuse()"
        )
