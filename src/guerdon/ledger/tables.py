"""The tables. Everything but cached balances, the head and the current checkpoints is only ever added to.

Every change is a row of `records`, numbered without gaps and chained by hash; what the change consists of lies in the
tables that name that record. Money moves in `entries`, each from one account to another, so that the legs of a record
sum to zero by construction (the view `legs` shows them signed). Amounts are integers of a millionth of a unit.

Tables are STRICT on SQLite, which then keeps to the declared types as PostgreSQL does; the large ones lie in the order
of their records. A time is a `timestamptz` on PostgreSQL and the number of microseconds since 1970, UTC, on SQLite,
which has no such type.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from sqlalchemy import (
    REAL,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)

from guerdon.rules import Status

REVISION = "0002"  # the newest migration

# Where each kind of move takes money from and puts it, between an agent's accounts and the common ones.
MOVES = {
    "deposit": ("bank", "deposit"),
    "withdraw": ("deposit", "bank"),
    "hold": ("agent", "escrow"),
    "release": ("escrow", "agent"),
    "forfeit": ("escrow", "treasury"),
    "repay": ("bank", "carried"),
    "waive": ("treasury", "carried"),
}
KINDS = ("open", "enrol", "run", "join", "round", *MOVES, "payout", "settle", "sign")
COMMON = ("treasury", "bank", "payable")  # accounts that there is one of, numbered from 1
TREASURY, BANK, PAYABLE = 1, 2, 3
PERSONAL = ("agent", "deposit", "escrow", "carried")  # accounts that each agent has one of
LIABILITIES = ("carry", "deposit", "floor")
OUTCOMES = ("paid", "cancelled")
# A row's columns are known to the database only, and SQLAlchemy 2.0 and 2.1 type rows differently.
AnyRow: TypeAlias = Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Time(TypeDecorator[datetime]):
    """A moment in UTC, to the microsecond."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> Any:
        """Return an integer for SQLite, a timestamp with time zone otherwise."""
        return dialect.type_descriptor(Integer() if dialect.name == "sqlite" else DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Any) -> Any:
        """Return the moment as the database keeps it."""
        return microseconds(value) if dialect.name == "sqlite" and value is not None else value

    def process_result_value(self, value: Any, dialect: Any) -> datetime | None:
        """Return the moment as Python has it."""
        if value is None:
            return None
        return EPOCH + timedelta(microseconds=value) if dialect.name == "sqlite" else value.astimezone(UTC)


def microseconds(moment: datetime) -> int:
    """Return a moment as whole microseconds since 1970."""
    return (moment - EPOCH) // timedelta(microseconds=1)


Whole: Any = BigInteger().with_variant(Integer(), "sqlite")
Real: Any = Double().with_variant(REAL(), "sqlite")  # pyright: ignore[reportUnknownVariableType]


def _choice(column: str, choices: tuple[str, ...]) -> CheckConstraint:
    # Not IN: SQLite builds the list anew for every row, which doubles the time of an insert.
    return CheckConstraint(" OR ".join(f"{column} = {choice!r}" for choice in choices), name=column)


def _record(*, primary_key: bool = True, table: str = "records.seq") -> Column[Any]:
    return Column("record", Whole, ForeignKey(table), primary_key=primary_key, nullable=False, autoincrement=False)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", Whole, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),  # random: no record fits into another ledger's chain
    Column("unit", Text, nullable=False),
    Column("schema", LargeBinary, nullable=False),  # hash of the tables' own definitions, when the ledger was made
    Column("head", Whole, ForeignKey("records.seq"), nullable=False),
    Column("hash", LargeBinary, nullable=False),
    CheckConstraint("id = 1", name="single"),
    CheckConstraint("length(name) = 32", name="name"),
    CheckConstraint("length(unit) BETWEEN 2 AND 12", name="unit"),
    CheckConstraint("length(schema) = 32", name="schema"),
    CheckConstraint("length(hash) = 32", name="hash"),
    sqlite_strict=True,
)

versions = Table(  # by which tables the ledger is kept from a record on: that which opened it, or an upgrade
    "versions",
    metadata,
    _record(),
    Column("version", Text, nullable=False),
    Column("schema", LargeBinary, nullable=False),  # hash of the tables' own definitions
    CheckConstraint("length(schema) = 32", name="schema"),
    sqlite_strict=True,
)

records = Table(
    "records",
    metadata,
    Column("seq", Whole, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("created_at", Time, nullable=False),
    Column("memo", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("previous", LargeBinary, nullable=False, unique=True),
    Column("hash", LargeBinary, nullable=False, unique=True),
    CheckConstraint("seq >= 1", name="seq"),
    _choice("kind", KINDS),
    CheckConstraint("length(digest) = 32", name="digest"),
    CheckConstraint("length(previous) = 32", name="previous"),
    CheckConstraint("length(hash) = 32", name="hash"),
    sqlite_strict=True,
)

agents = Table(
    "agents",
    metadata,
    Column("id", Whole, primary_key=True, autoincrement=False),
    _record(primary_key=False),
    Column("name", Text, nullable=False, unique=True),
    CheckConstraint("id >= 1", name="id"),
    CheckConstraint("length(name) BETWEEN 1 AND 200", name="name"),
    sqlite_strict=True,
)

keys = Table(  # of agents who sign what they send; an agent gets one once
    "keys",
    metadata,
    Column("agent", Whole, ForeignKey("agents.id"), primary_key=True, autoincrement=False),
    _record(primary_key=False),
    Column("public_key", LargeBinary, nullable=False),  # DER
    sqlite_strict=True,
)

accounts = Table(
    "accounts",
    metadata,
    Column("id", Whole, primary_key=True, autoincrement=False),
    _record(primary_key=False),
    Column("kind", Text, nullable=False),
    Column("owner", Whole, ForeignKey("agents.id")),  # none for the accounts that there is one of
    Column("balance", Whole, nullable=False),
    CheckConstraint("id >= 1", name="id"),
    _choice("kind", COMMON + PERSONAL),
    CheckConstraint("(owner IS NULL) = (kind = 'treasury' OR kind = 'bank' OR kind = 'payable')", name="owner"),
    CheckConstraint(
        "(kind <> 'carried' AND balance >= 0) OR (kind = 'carried' AND balance <= 0) "
        "OR kind = 'treasury' OR kind = 'bank'",
        name="balance",
    ),
    UniqueConstraint("owner", "kind"),
    Index(
        "ix_accounts_common",
        "kind",
        unique=True,
        sqlite_where=text("owner IS NULL"),
        postgresql_where=text("owner IS NULL"),
    ),
    sqlite_strict=True,
)

runs = Table(
    "runs",
    metadata,
    Column("id", Whole, primary_key=True, autoincrement=False),
    Column("record", Whole, ForeignKey("records.seq"), nullable=False, unique=True),
    Column("name", Text, nullable=False, unique=True),
    Column("rule", Text, nullable=False),
    Column("cost", Text, nullable=False),
    Column("liability", Text, nullable=False),
    CheckConstraint("id >= 1", name="id"),
    CheckConstraint("length(name) BETWEEN 1 AND 200", name="name"),
    _choice("liability", LIABILITIES),
    sqlite_strict=True,
)

members = Table(
    "members",
    metadata,
    Column("run", Whole, ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    Column("position", Whole, primary_key=True, autoincrement=False),
    _record(primary_key=False),
    Column("agent", Whole, ForeignKey("agents.id"), nullable=False),
    CheckConstraint("position >= 0", name="position"),
    UniqueConstraint("run", "agent"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

rounds = Table(
    "rounds",
    metadata,
    _record(),
    Column("run", Whole, ForeignKey("runs.id"), nullable=False),
    Column("number", Whole, nullable=False),
    Column("request", Whole, nullable=False),
    Column("rule", Text, nullable=False),
    Column("cost", Text, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),  # hash of the round as it was handed in
    Column("checkpoint", LargeBinary),  # hash of the arrays saved with the round, where there are any
    CheckConstraint("number >= 0", name="number"),
    CheckConstraint("request >= 1", name="request"),
    CheckConstraint("length(payload) = 32", name="payload"),
    CheckConstraint("length(checkpoint) = 32", name="checkpoint"),
    UniqueConstraint("run", "number"),
    sqlite_strict=True,
)

payments = Table(
    "payments",
    metadata,
    _record(table="rounds.record"),
    Column("position", Whole, primary_key=True, autoincrement=False),
    Column("agent", Whole, ForeignKey("agents.id"), nullable=False),
    Column("status", Text, nullable=False),
    Column("deviation", Real, nullable=False),
    Column("length", Real, nullable=False),
    Column("alignment", Real, nullable=False),
    Column("distance", Real),  # these three: none where the rule was not applied, or looks at no distance
    Column("expected_distance", Real),
    Column("variance", Real),
    Column("amount", Whole, nullable=False),  # the reward, rounded
    Column("cut", Whole, nullable=False),  # what of a negative reward nobody paid
    Column("held", Whole, nullable=False),  # how much of a positive one was to go to escrow
    Column("gradient", LargeBinary),  # hash of what the agent sent
    Column("signature", LargeBinary),  # its own, of that hash
    Column("note", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    CheckConstraint("position >= 0", name="position"),
    _choice("status", tuple(status.label for status in Status)),
    # Below 1e308: PostgreSQL would take NaN and infinity for numbers.
    CheckConstraint(
        "deviation >= 0 AND deviation < 1e308 AND length >= 0 AND length < 1e308 AND abs(alignment) < 1e308",
        name="evidence",
    ),
    CheckConstraint(
        "(distance IS NULL) = (variance IS NULL) AND (expected_distance IS NULL) = (variance IS NULL) AND "
        "(variance IS NULL OR (variance > 0 AND variance < 1e308 AND distance < 1e308 AND expected_distance < 1e308))",
        name="applied",
    ),
    CheckConstraint("status = 'paid' OR (amount = 0 AND variance IS NULL)", name="unpaid"),
    CheckConstraint("cut >= 0 AND (cut = 0 OR cut <= -amount)", name="cut"),
    CheckConstraint("held >= 0", name="held"),
    CheckConstraint("length(gradient) = 32", name="gradient"),
    CheckConstraint("signature IS NULL OR gradient IS NOT NULL", name="signature"),
    CheckConstraint("length(hash) = 32", name="hash"),
    UniqueConstraint("agent", "record"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

entries = Table(
    "entries",
    metadata,
    _record(),
    Column("line", Whole, primary_key=True, autoincrement=False),
    Column("source", Whole, ForeignKey("accounts.id"), nullable=False),
    Column("target", Whole, ForeignKey("accounts.id"), nullable=False, index=True),
    Column("amount", Whole, nullable=False),
    CheckConstraint("line >= 0", name="line"),
    CheckConstraint("amount > 0", name="amount"),
    CheckConstraint("source <> target", name="accounts"),
    # Nobody looks up what the treasury paid: half of all entries, and they would all lie in one place.
    Index("ix_entries_source", "source", sqlite_where=text("source <> 1"), postgresql_where=text("source <> 1")),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

escrow = Table(  # which run a release or forfeit takes how much from; what no row claims was held by hand, for no run
    "escrow",
    metadata,
    Column("move", Whole, ForeignKey("records.seq"), primary_key=True, autoincrement=False),
    Column("run", Whole, ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    _record(primary_key=False),  # that of the move itself, or of the upgrade that looked at an old move
    Column("amount", Whole, nullable=False),
    Column("round", Whole),  # where it leaves nothing that was held up to this round, because of the audit
    CheckConstraint("move <= record", name="move"),
    CheckConstraint("amount > 0", name="amount"),
    CheckConstraint("round >= 0", name="round"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

payouts = Table(
    "payouts",
    metadata,
    _record(),
    Column("number", Whole, nullable=False, unique=True),
    CheckConstraint("number >= 1", name="number"),
    sqlite_strict=True,
)

settlements = Table(
    "settlements",
    metadata,
    _record(),
    Column("payout", Whole, ForeignKey("payouts.record"), nullable=False, unique=True),
    Column("outcome", Text, nullable=False),
    _choice("outcome", OUTCOMES),
    sqlite_strict=True,
)

signatures = Table(
    "signatures",
    metadata,
    _record(),
    Column("public_key", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    CheckConstraint("length(public_key) = 32", name="public_key"),
    CheckConstraint("length(signature) = 64", name="signature"),
    sqlite_strict=True,
)

checkpoints = Table(  # of the last round of each run: the only table from which anything is removed
    "checkpoints",
    metadata,
    Column("run", Whole, ForeignKey("runs.id"), primary_key=True, autoincrement=False),
    Column("part", Whole, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
    CheckConstraint("part >= 0", name="part"),
    sqlite_strict=True,
)
