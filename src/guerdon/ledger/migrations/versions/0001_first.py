"""The first tables: records in a hash chain, agents and accounts, runs and rounds, payments and entries."""
# ruff: noqa: E501, D103
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
REAL = sa.Double().with_variant(sa.REAL(), "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.Integer(), "sqlite")  # microseconds since 1970, UTC

APPEND_ONLY = (
    "records",
    "agents",
    "keys",
    "runs",
    "members",
    "rounds",
    "payments",
    "entries",
    "payouts",
    "settlements",
    "signatures",
)

LEGS = """
CREATE VIEW legs AS
SELECT record, line, source AS account, -amount AS amount FROM entries
UNION ALL
SELECT record, line, target AS account, amount FROM entries
"""


def upgrade() -> None:
    create_tables()
    op.execute(LEGS)
    protect = protect_sqlite if op.get_bind().dialect.name == "sqlite" else protect_postgresql
    protect()


def protect_sqlite() -> None:
    """Refuse every change of what is recorded: against accidents; an attacker can drop a trigger, not mend the chain."""
    changes = [(table, what) for table in APPEND_ONLY for what in ("UPDATE", "DELETE")]
    changes += [("accounts", "DELETE"), ("accounts", "UPDATE OF id, record, kind, owner"), ("ledger", "DELETE")]
    for table, what in changes:
        op.execute(
            f"CREATE TRIGGER {table}_no_{what[:6].lower()} BEFORE {what} ON {table} "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )


def protect_postgresql() -> None:
    """The same in PostgreSQL's words."""
    op.execute(
        "CREATE FUNCTION guerdon_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
    )
    changes = [(table, "UPDATE OR DELETE") for table in APPEND_ONLY]
    changes += [("accounts", "DELETE"), ("accounts", "UPDATE OF id, record, kind, owner"), ("ledger", "DELETE")]
    for table, what in changes:
        op.execute(
            f"CREATE TRIGGER {table}_no_{what[:6].lower()} BEFORE {what} ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION guerdon_refuse()"
        )
    for table in (*APPEND_ONLY, "accounts", "ledger"):
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION guerdon_refuse()"
        )


def create_tables() -> None:
    op.create_table(
        "records",
        sa.Column("seq", WHOLE, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("memo", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("previous", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint(
            "kind = 'open' OR kind = 'enrol' OR kind = 'run' OR kind = 'join' OR kind = 'round' OR kind = 'deposit' OR kind = 'withdraw' OR kind = 'hold' OR kind = 'release' OR kind = 'forfeit' OR kind = 'repay' OR kind = 'waive' OR kind = 'payout' OR kind = 'settle' OR kind = 'sign'",
            name=op.f("ck_records_kind"),
        ),
        sa.CheckConstraint("length(digest) = 32", name=op.f("ck_records_digest")),
        sa.CheckConstraint("length(hash) = 32", name=op.f("ck_records_hash")),
        sa.CheckConstraint("length(previous) = 32", name=op.f("ck_records_previous")),
        sa.CheckConstraint("seq >= 1", name=op.f("ck_records_seq")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_records")),
        sa.UniqueConstraint("hash", name=op.f("uq_records_hash")),
        sa.UniqueConstraint("previous", name=op.f("uq_records_previous")),
        sqlite_strict=True,
    )
    op.create_table(
        "agents",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.CheckConstraint("id >= 1", name=op.f("ck_agents_id")),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 200", name=op.f("ck_agents_name")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_agents_record")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
        sa.UniqueConstraint("name", name=op.f("uq_agents_name")),
        sqlite_strict=True,
    )
    op.create_table(
        "ledger",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("schema", sa.LargeBinary(), nullable=False),
        sa.Column("head", WHOLE, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_ledger_single")),
        sa.CheckConstraint("length(hash) = 32", name=op.f("ck_ledger_hash")),
        sa.CheckConstraint("length(name) = 32", name=op.f("ck_ledger_name")),
        sa.CheckConstraint("length(schema) = 32", name=op.f("ck_ledger_schema")),
        sa.CheckConstraint("length(unit) BETWEEN 2 AND 12", name=op.f("ck_ledger_unit")),
        sa.ForeignKeyConstraint(["head"], ["records.seq"], name=op.f("fk_ledger_head")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger")),
        sqlite_strict=True,
    )
    op.create_table(
        "payouts",
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("number", WHOLE, nullable=False),
        sa.CheckConstraint("number >= 1", name=op.f("ck_payouts_number")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_payouts_record")),
        sa.PrimaryKeyConstraint("record", name=op.f("pk_payouts")),
        sa.UniqueConstraint("number", name=op.f("uq_payouts_number")),
        sqlite_strict=True,
    )
    op.create_table(
        "runs",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("record", WHOLE, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("cost", sa.Text(), nullable=False),
        sa.Column("liability", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "liability = 'carry' OR liability = 'deposit' OR liability = 'floor'", name=op.f("ck_runs_liability")
        ),
        sa.CheckConstraint("id >= 1", name=op.f("ck_runs_id")),
        sa.CheckConstraint("length(name) BETWEEN 1 AND 200", name=op.f("ck_runs_name")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_runs_record")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("name", name=op.f("uq_runs_name")),
        sa.UniqueConstraint("record", name=op.f("uq_runs_record")),
        sqlite_strict=True,
    )
    op.create_table(
        "signatures",
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("length(public_key) = 32", name=op.f("ck_signatures_public_key")),
        sa.CheckConstraint("length(signature) = 64", name=op.f("ck_signatures_signature")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_signatures_record")),
        sa.PrimaryKeyConstraint("record", name=op.f("pk_signatures")),
        sqlite_strict=True,
    )
    op.create_table(
        "accounts",
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("owner", WHOLE, nullable=True),
        sa.Column("balance", WHOLE, nullable=False),
        sa.CheckConstraint(
            "(kind <> 'carried' AND balance >= 0) OR (kind = 'carried' AND balance <= 0) OR kind = 'treasury' OR kind = 'bank'",
            name=op.f("ck_accounts_balance"),
        ),
        sa.CheckConstraint(
            "(owner IS NULL) = (kind = 'treasury' OR kind = 'bank' OR kind = 'payable')", name=op.f("ck_accounts_owner")
        ),
        sa.CheckConstraint(
            "kind = 'treasury' OR kind = 'bank' OR kind = 'payable' OR kind = 'agent' OR kind = 'deposit' OR kind = 'escrow' OR kind = 'carried'",
            name=op.f("ck_accounts_kind"),
        ),
        sa.CheckConstraint("id >= 1", name=op.f("ck_accounts_id")),
        sa.ForeignKeyConstraint(["owner"], ["agents.id"], name=op.f("fk_accounts_owner")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_accounts_record")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("owner", "kind", name=op.f("uq_accounts_owner_kind")),
        sqlite_strict=True,
    )
    op.create_index(
        "ix_accounts_common",
        "accounts",
        ["kind"],
        unique=True,
        sqlite_where=sa.text("owner IS NULL"),
        postgresql_where=sa.text("owner IS NULL"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("run", WHOLE, autoincrement=False, nullable=False),
        sa.Column("part", WHOLE, autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("part >= 0", name=op.f("ck_checkpoints_part")),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name=op.f("fk_checkpoints_run")),
        sa.PrimaryKeyConstraint("run", "part", name=op.f("pk_checkpoints")),
        sqlite_strict=True,
    )
    op.create_table(
        "keys",
        sa.Column("agent", WHOLE, autoincrement=False, nullable=False),
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["agent"], ["agents.id"], name=op.f("fk_keys_agent")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_keys_record")),
        sa.PrimaryKeyConstraint("agent", name=op.f("pk_keys")),
        sqlite_strict=True,
    )
    op.create_table(
        "members",
        sa.Column("run", WHOLE, autoincrement=False, nullable=False),
        sa.Column("position", WHOLE, autoincrement=False, nullable=False),
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("agent", WHOLE, nullable=False),
        sa.CheckConstraint("position >= 0", name=op.f("ck_members_position")),
        sa.ForeignKeyConstraint(["agent"], ["agents.id"], name=op.f("fk_members_agent")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_members_record")),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name=op.f("fk_members_run")),
        sa.PrimaryKeyConstraint("run", "position", name=op.f("pk_members")),
        sa.UniqueConstraint("run", "agent", name=op.f("uq_members_run_agent")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rounds",
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("run", WHOLE, nullable=False),
        sa.Column("number", WHOLE, nullable=False),
        sa.Column("request", WHOLE, nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("cost", sa.Text(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("checkpoint", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint("length(checkpoint) = 32", name=op.f("ck_rounds_checkpoint")),
        sa.CheckConstraint("length(payload) = 32", name=op.f("ck_rounds_payload")),
        sa.CheckConstraint("number >= 0", name=op.f("ck_rounds_number")),
        sa.CheckConstraint("request >= 1", name=op.f("ck_rounds_request")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_rounds_record")),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name=op.f("fk_rounds_run")),
        sa.PrimaryKeyConstraint("record", name=op.f("pk_rounds")),
        sa.UniqueConstraint("run", "number", name=op.f("uq_rounds_run_number")),
        sqlite_strict=True,
    )
    op.create_table(
        "settlements",
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("payout", WHOLE, nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.CheckConstraint("outcome = 'paid' OR outcome = 'cancelled'", name=op.f("ck_settlements_outcome")),
        sa.ForeignKeyConstraint(["payout"], ["payouts.record"], name=op.f("fk_settlements_payout")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_settlements_record")),
        sa.PrimaryKeyConstraint("record", name=op.f("pk_settlements")),
        sa.UniqueConstraint("payout", name=op.f("uq_settlements_payout")),
        sqlite_strict=True,
    )
    op.create_table(
        "entries",
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("line", WHOLE, autoincrement=False, nullable=False),
        sa.Column("source", WHOLE, nullable=False),
        sa.Column("target", WHOLE, nullable=False),
        sa.Column("amount", WHOLE, nullable=False),
        sa.CheckConstraint("amount > 0", name=op.f("ck_entries_amount")),
        sa.CheckConstraint("line >= 0", name=op.f("ck_entries_line")),
        sa.CheckConstraint("source <> target", name=op.f("ck_entries_accounts")),
        sa.ForeignKeyConstraint(["record"], ["records.seq"], name=op.f("fk_entries_record")),
        sa.ForeignKeyConstraint(["source"], ["accounts.id"], name=op.f("fk_entries_source")),
        sa.ForeignKeyConstraint(["target"], ["accounts.id"], name=op.f("fk_entries_target")),
        sa.PrimaryKeyConstraint("record", "line", name=op.f("pk_entries")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_entries_source",
        "entries",
        ["source"],
        unique=False,
        sqlite_where=sa.text("source <> 1"),
        postgresql_where=sa.text("source <> 1"),
    )
    op.create_index(op.f("ix_entries_target"), "entries", ["target"], unique=False)
    op.create_table(
        "payments",
        sa.Column("record", WHOLE, autoincrement=False, nullable=False),
        sa.Column("position", WHOLE, autoincrement=False, nullable=False),
        sa.Column("agent", WHOLE, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("deviation", REAL, nullable=False),
        sa.Column("length", REAL, nullable=False),
        sa.Column("alignment", REAL, nullable=False),
        sa.Column("distance", REAL, nullable=True),
        sa.Column("expected_distance", REAL, nullable=True),
        sa.Column("variance", REAL, nullable=True),
        sa.Column("amount", WHOLE, nullable=False),
        sa.Column("cut", WHOLE, nullable=False),
        sa.Column("held", WHOLE, nullable=False),
        sa.Column("gradient", sa.LargeBinary(), nullable=True),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint("status = 'paid' OR (amount = 0 AND variance IS NULL)", name=op.f("ck_payments_unpaid")),
        sa.CheckConstraint(
            "status = 'paid' OR status = 'declined' OR status = 'alone' OR status = 'too-few' OR status = 'no-variance' OR status = 'invalid'",
            name=op.f("ck_payments_status"),
        ),
        sa.CheckConstraint(
            "(distance IS NULL) = (variance IS NULL) AND (expected_distance IS NULL) = (variance IS NULL) AND (variance IS NULL OR (variance > 0 AND variance < 1e308 AND distance < 1e308 AND expected_distance < 1e308))",
            name=op.f("ck_payments_applied"),
        ),
        sa.CheckConstraint("cut >= 0 AND (cut = 0 OR cut <= -amount)", name=op.f("ck_payments_cut")),
        sa.CheckConstraint(
            "deviation >= 0 AND deviation < 1e308 AND length >= 0 AND length < 1e308 AND abs(alignment) < 1e308",
            name=op.f("ck_payments_evidence"),
        ),
        sa.CheckConstraint("held >= 0", name=op.f("ck_payments_held")),
        sa.CheckConstraint("length(gradient) = 32", name=op.f("ck_payments_gradient")),
        sa.CheckConstraint("length(hash) = 32", name=op.f("ck_payments_hash")),
        sa.CheckConstraint("position >= 0", name=op.f("ck_payments_position")),
        sa.CheckConstraint("signature IS NULL OR gradient IS NOT NULL", name=op.f("ck_payments_signature")),
        sa.ForeignKeyConstraint(["agent"], ["agents.id"], name=op.f("fk_payments_agent")),
        sa.ForeignKeyConstraint(["record"], ["rounds.record"], name=op.f("fk_payments_record")),
        sa.PrimaryKeyConstraint("record", "position", name=op.f("pk_payments")),
        sa.UniqueConstraint("agent", "record", name=op.f("uq_payments_agent_record")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
