"""The tables. Everything is only ever added to, but for cached balances, the head, holdings and current checkpoints.

Every change is a row of `records`; what it consists of lies in the tables that name that record. Money moves in
`entries`, from one account to another, so that a record sums to zero (the view `legs` shows them signed).
Tables are STRICT on SQLite, which then keeps to the types as PostgreSQL does; the large ones lie in the order of their
records.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import LargeBinary, Text

from guerdon.rule import Status

REVISION = "0001"  # the newest migration

# Where each kind of move takes money from and puts it, between an agent's accounts and the common ones.
MOVES = {
    "deposit": ("bank", "deposit"),
    "withdraw": ("deposit", "bank"),
    "hold": ("agent", "held"),
    "release": ("held", "agent"),
    "forfeit": ("held", "treasury"),
    "repay": ("bank", "carried"),
    "waive": ("treasury", "carried"),
}
LOOKS = ("commit", "draw", "leave", "answer", "verdict", "look")  # of verified work
KINDS = ("open", "enrol", "run", "terms", "join", "round", *MOVES, "payout", "settle", "sign", *LOOKS)
# Accounts that there is one of, numbered from 1. What looks forfeit lies in the reserve: nobody gains by a failure.
COMMON = ("treasury", "bank", "payable", "reserve")
TREASURY, BANK, PAYABLE, RESERVE = 1, 2, 3, 4
# Accounts that each agent has one of. In each run that holds pay it has one more of the kind "held".
PERSONAL = ("agent", "deposit", "held", "carried")
# What a line of a payout can become, and what it may have been before: a transfer can come back after it was paid.
LINE_OUTCOMES = {"paid": ("open",), "cancelled": ("open",), "bounced": ("open", "paid")}
# A row's columns are known to the database only, and SQLAlchemy 2.0 and 2.1 type rows differently.
AnyRow: TypeAlias = Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Time(sa.TypeDecorator[datetime]):
    """A moment in UTC: a `timestamptz` on PostgreSQL, microseconds since 1970 on SQLite, which has no such type."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> Any:
        return dialect.type_descriptor(sa.Integer() if dialect.name == "sqlite" else sa.DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Any) -> Any:
        return microseconds(value) if dialect.name == "sqlite" and value is not None else value

    def process_result_value(self, value: Any, dialect: Any) -> datetime | None:
        if value is None:
            return None
        return EPOCH + timedelta(microseconds=value) if dialect.name == "sqlite" else value.astimezone(UTC)


def microseconds(moment: datetime) -> int:
    """Return a moment as whole microseconds since 1970."""
    return (moment - EPOCH) // timedelta(microseconds=1)


Whole: Any = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Real: Any = sa.Double().with_variant(sa.REAL(), "sqlite")  # pyright: ignore[reportUnknownVariableType]


metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _column(name: str, kind: Any = Whole, to: str = "", *, key: bool = False, null: bool = False) -> sa.Column[Any]:
    """Return a column; `to` is the column that it refers to."""
    return sa.Column(name, kind, primary_key=key, nullable=null, autoincrement=False, info={"to": to})


def _columns(kind: Any, *names: str, null: bool = False) -> list[sa.Column[Any]]:
    return [_column(name, kind, null=null) for name in names]


def _record(*, key: bool = False, to: str = "records.seq") -> sa.Column[Any]:
    return _column("record", Whole, to, key=key)


def _table(
    name: str,
    *columns: sa.Column[Any],
    checks: Mapping[str, str] | None = None,
    unique: Sequence[str] = (),
    rowid: bool = True,
) -> sa.Table:
    """Return a table; `unique`: columns, or several with spaces between.

    The constraints follow each other as they always have: on SQLite the text of the tables is hashed.
    """
    table = sa.Table(name, metadata, *columns, sqlite_strict=True, sqlite_with_rowid=rowid)
    for check, condition in (checks or {}).items():
        table.append_constraint(sa.CheckConstraint(condition, name=check))
    for column in sorted((column for column in columns if column.info["to"]), key=lambda column: column.name):
        table.append_constraint(sa.ForeignKeyConstraint([column.name], [column.info["to"]]))
    for names in unique:
        table.append_constraint(sa.UniqueConstraint(*names.split()))
    return table


def _one_of(column: str, choices: Sequence[str]) -> dict[str, str]:
    # Not IN: SQLite builds the list anew for every row, which doubles the time of an insert.
    return {column: " OR ".join(f"{column} = {choice!r}" for choice in choices)}


def _of_length(length: int, *columns: str) -> dict[str, str]:
    return {column: f"length({column}) = {length}" for column in columns}


_FROM_1 = {"id": "id >= 1"}
_NAME = {"name": "length(name) BETWEEN 1 AND 200"}

ledger = _table(
    "ledger",
    _column("id", key=True),
    *_columns(Text, "name", "unit"),  # the name is random: no record fits into another ledger's chain
    _column("head", Whole, "records.seq"),
    _column("hash", LargeBinary),
    checks={"single": "id = 1", **_of_length(32, "hash", "name"), "unit": "length(unit) BETWEEN 2 AND 12"},
)

# By which tables the ledger is kept from a record on: that which opened it, or an upgrade. The schema is their hash.
versions = _table(
    "versions",
    _record(key=True),
    _column("version", Text),
    _column("schema", LargeBinary),
    checks=_of_length(32, "schema"),
)

records = _table(
    "records",
    _column("seq", key=True),
    _column("kind", Text),
    _column("created_at", Time),
    _column("memo", Text),
    *_columns(LargeBinary, "digest", "previous", "hash"),
    checks=_one_of("kind", KINDS) | _of_length(32, "digest", "hash", "previous") | {"seq": "seq >= 1"},
    unique=("hash", "previous"),
)

agents = _table(
    "agents", _column("id", key=True), _record(), _column("name", Text), checks=_FROM_1 | _NAME, unique=("name",)
)

# Of agents that sign what they send, in DER; an agent gets one once.
keys = _table("keys", _column("agent", Whole, "agents.id", key=True), _record(), _column("public_key", LargeBinary))

accounts = _table(
    "accounts",
    _column("id", key=True),
    _record(),
    _column("kind", Text),
    _column("owner", Whole, "agents.id", null=True),  # none for the accounts that there is one of
    _column("run", Whole, "runs.id", null=True),  # in which the pay is held; none where it is held by hand
    _column("balance"),
    checks={
        "balance": "(kind <> 'carried' AND balance >= 0) OR (kind = 'carried' AND balance <= 0) "
        "OR kind = 'treasury' OR kind = 'bank'",
        "owner": "(owner IS NULL) = (kind = 'treasury' OR kind = 'bank' OR kind = 'payable' OR kind = 'reserve')",
        "run": "run IS NULL OR kind = 'held'",
        **_one_of("kind", COMMON + PERSONAL),
        **_FROM_1,
    },
)
# One of each: databases take no two NULLs for the same.
_common, _own, _in_run = (
    sa.text(text) for text in ("owner IS NULL", "owner IS NOT NULL AND run IS NULL", "run IS NOT NULL")
)
sa.Index("ix_accounts_common", accounts.c.kind, unique=True, sqlite_where=_common, postgresql_where=_common)
sa.Index("ix_accounts_own", accounts.c.owner, accounts.c.kind, unique=True, sqlite_where=_own, postgresql_where=_own)
sa.Index(
    "ix_accounts_in_run", accounts.c.run, accounts.c.owner, unique=True, sqlite_where=_in_run, postgresql_where=_in_run
)

runs = _table(
    "runs",
    _column("id", key=True),
    _record(),
    *_columns(Text, "name", "rule", "cost"),
    checks=_FROM_1 | _NAME,
    unique=("name", "record"),
)

# Of a run, from a record on, as `guerdon.terms` writes them; the cost factors have a table of their own.
terms = _table(
    "terms", _record(key=True), _column("run", Whole, "runs.id"), _column("text", Text), unique=("run record",)
)

members = _table(
    "members",
    _column("run", Whole, "runs.id", key=True),
    _column("position", key=True),
    _record(),
    _column("agent", Whole, "agents.id"),
    checks={"position": "position >= 0"},
    unique=("run agent",),
    rowid=False,
)

cost_factors = _table(  # what the cost of a run is multiplied by for an agent, in millionths; without a row it is 1
    "cost_factors",
    _column("run", Whole, "runs.id", key=True),
    _column("agent", Whole, "agents.id", key=True),
    _record(),
    _column("factor"),
    checks={"factor": "factor >= 1"},
    rowid=False,
)

rounds = _table(
    "rounds",
    _record(key=True),
    _column("run", Whole, "runs.id"),
    *_columns(Whole, "number", "request"),
    _column("is_last"),  # whether the run ended with it: what was open, or held, was settled
    *_columns(Text, "rule", "cost", "metrics"),
    _column("payload", LargeBinary),  # hash of the round as it was handed in
    _column("checkpoint", LargeBinary, null=True),  # hash of the arrays saved with the round, where there are any
    checks=_of_length(32, "checkpoint", "payload")
    | {"number": "number >= 0", "request": "request >= 1", "is_last": "is_last = 0 OR is_last = 1"},
    unique=("run number",),
)

payments = _table(
    "payments",
    _record(key=True, to="rounds.record"),
    _column("position", key=True),
    _column("agent", Whole, "agents.id"),
    _column("status", Text),
    _column("trusted"),  # whether the others were compared with it
    *_columns(Real, "squared_deviation", "pair_distance", "squared_length", "alignment"),
    *_columns(Real, "squared_distance", "expected", "variance", null=True),  # none where the rule looks at no distance
    _column("earned"),  # in the round, rounded
    _column("released"),  # by the rule in this round, with what it settles of earlier rounds, whatever the status
    _column("cut"),  # what of a negative reward nobody paid
    _column("gradient", LargeBinary, null=True),  # hash of what the agent sent
    _column("signature", LargeBinary, null=True),  # its own, of that hash
    _column("note", Text),
    _column("hash", LargeBinary),
    checks={
        "unpaid": "status = 'paid' OR variance IS NULL",
        "trusted": "trusted = 0 OR (trusted = 1 AND status <> 'declined' AND status <> 'invalid')",
        **_one_of("status", [status.label for status in Status]),
        # Below 1e308: PostgreSQL would take NaN and infinity for numbers.
        "applied": "(squared_distance IS NULL) = (variance IS NULL) AND (expected IS NULL) = (variance IS NULL) AND "
        "(variance IS NULL OR (variance > 0 AND variance < 1e308 AND squared_distance < 1e308 AND expected < 1e308))",
        "cut": "cut >= 0 AND (cut = 0 OR cut <= -released)",
        "evidence": "squared_deviation >= 0 AND squared_deviation < 1e308 AND pair_distance >= 0 AND "
        "pair_distance < 1e308 AND squared_length >= 0 AND squared_length < 1e308 AND abs(alignment) < 1e308",
        **_of_length(32, "gradient", "hash"),
        "position": "position >= 0",
        "signature": "signature IS NULL OR gradient IS NOT NULL",
    },
    unique=("agent record",),
    rowid=False,
)

entries = _table(
    "entries",
    _record(key=True),
    _column("line", key=True),
    _column("source", Whole, "accounts.id"),
    _column("target", Whole, "accounts.id"),
    _column("amount"),
    checks={"amount": "amount > 0", "line": "line >= 0", "accounts": "source <> target"},
    rowid=False,
)
# Nobody looks up what the treasury paid: half of all entries, and they would all lie in one place.
_not_treasury = sa.text("source <> 1")
sa.Index("ix_entries_source", entries.c.source, sqlite_where=_not_treasury, postgresql_where=_not_treasury)
sa.Index(None, entries.c.target)

closings = _table(  # what a run holds of these agents is released, as far as it is funded
    "closings",
    _record(key=True),
    _column("agent", Whole, "agents.id", key=True),
    _column("run", Whole, "runs.id"),
    rowid=False,
)

payouts = _table("payouts", _record(key=True), _column("number"), checks={"number": "number >= 1"}, unique=("number",))

payees = _table(  # to which bank account an agent is paid, from a record on
    "payees",
    _column("agent", Whole, "agents.id", key=True),
    _record(key=True),
    *_columns(Text, "holder", "account"),
    checks={"holder": "length(holder) BETWEEN 1 AND 200", "account": "length(account) BETWEEN 1 AND 64"},
    rowid=False,
)

batches = _table(  # by what a payout took its balances
    "batches",
    _record(key=True, to="payouts.record"),
    *_columns(Whole, "minimum", "places"),
    checks={"minimum": "minimum >= 1", "places": "places BETWEEN 0 AND 6"},
)

payout_lines = _table(  # how each agent in a payout is to be paid; both are empty where nobody has said it
    "payout_lines",
    _record(key=True, to="batches.record"),
    _column("agent", Whole, "agents.id", key=True),
    *_columns(Text, "holder", "account"),
    rowid=False,
)

outcomes = _table(  # what became of each line of a payout; its remark is that of the record
    "outcomes",
    _record(key=True),
    _column("agent", Whole, "agents.id", key=True),
    _column("payout", Whole, "payouts.record"),
    _column("outcome", Text),
    checks=_one_of("outcome", tuple(LINE_OUTCOMES)),
    unique=("payout agent outcome",),
    rowid=False,
)
sa.Index(None, outcomes.c.agent)

# Verified work. A run is named by text where it may not have begun.

commitments = _table(  # the root of a member's rows, and the first round whose rows are named from it
    "commitments",
    _record(key=True),
    _column("agent", Whole, "agents.id"),
    _column("run_name", Text),
    _column("root", LargeBinary),
    *_columns(Whole, "size", "different", "stream", "from_round"),
    checks={"run_name": "length(run_name) BETWEEN 1 AND 200", **_of_length(32, "root"), "from_round": "from_round >= 0",
            "size": "size >= 0 AND different >= 0 AND different <= size", "stream": "stream = 0 OR stream = 1"},
)  # fmt: skip
sa.Index(None, commitments.c.agent)

named = _table(  # what the ask of a round carried: its number, and what server and auditor committed to; its model
    "named",
    _record(key=True, to="rounds.record"),
    *_columns(LargeBinary, "number", "server", "auditor", "model"),
    checks=_of_length(32, "number", "server", "auditor", "model"),
)

draws = _table(  # what server and auditor had committed to for a round; none where one of them did not say
    "draws",
    _record(key=True),
    _column("run", Whole, "runs.id"),
    _column("round"),
    *_columns(LargeBinary, "server_nonce", "auditor_nonce", null=True),
    checks=_of_length(32, "server_nonce", "auditor_nonce"),
    unique=("run round",),
)

leavings = _table(  # members whose period ends before that of the run
    "leavings",
    _record(key=True),
    _column("agent", Whole, "agents.id", key=True),
    _column("run", Whole, "runs.id"),
    rowid=False,
)

answers = _table(  # hash of what a member sealed for an auditor: for a look, or as an appeal against its verdict
    "answers",
    _record(key=True),
    _column("run", Whole, "runs.id"),
    *_columns(Whole, "look", "appeal"),
    _column("sealed", LargeBinary),
    checks={"appeal": "appeal = 0 OR appeal = 1", "look": "look >= 1", **_of_length(32, "sealed")},
    unique=("run look appeal",),
)

verdicts = _table(  # as its auditor signed it
    "verdicts",
    _record(key=True),
    _column("run", Whole, "runs.id"),
    *_columns(Whole, "look", "appeal"),
    _column("text", Text),
    checks={"appeal": "appeal = 0 OR appeal = 1", "look": "look >= 1"},
    unique=("run look appeal",),
)

settled = _table(  # periods of members whose looks are all decided, and what became of what was held
    "settled",
    _record(key=True),
    _column("agent", Whole, "agents.id", key=True),
    _column("first", key=True),
    _column("run", Whole, "runs.id"),
    *_columns(Whole, "last", "released", "forfeited"),
    _column("looks", Text),  # each round that was looked at, with its outcome
    checks={"amounts": "released >= 0 AND forfeited >= 0", "rounds": "first >= 0 AND last >= first"},
    rowid=False,
)

idempotency = _table(  # what was asked for under a key of the caller's: asked again, it is found
    "idempotency",
    _record(key=True),
    _column("key", Text),
    _column("payload", LargeBinary),
    checks={"key": "length(key) BETWEEN 1 AND 200", **_of_length(32, "payload")},
    unique=("key",),
)

signatures = _table(
    "signatures",
    _record(key=True),
    *_columns(LargeBinary, "public_key", "signature"),
    checks=_of_length(32, "public_key") | _of_length(64, "signature"),
)

checkpoints = _table(  # of the last round of each run: the only table from which anything is removed
    "checkpoints",
    _column("run", Whole, "runs.id", key=True),
    _column("part", key=True),
    _column("data", LargeBinary),
    checks={"part": "part >= 0"},
)

holdings = _table(  # until when the pay of each run is held, after its last record: computed again by `verify`
    "holdings",
    _column("run", Whole, "runs.id", key=True),
    _column("text", Text),
)
