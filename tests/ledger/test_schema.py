"""The database itself keeps the rules: not null, foreign keys, checks, append-only; and migrations make the tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import insert, inspect, select, text
from sqlalchemy.exc import DBAPIError

from guerdon.ledger import Ledger, RefusedError, UnavailableError
from guerdon.ledger.books import tables as t
from guerdon.ledger.upgrading import upgrade_ledger
from tests.support import look_scenes
from tests.support.ledger_scenes import AT_ONCE, NAMES, RULE, busy_ledger, play, record

# The only columns that may be empty, each because there may be nothing to say.
NULLABLE = {
    "accounts.owner", "rounds.checkpoint", "payments.squared_distance", "payments.expected",
    "payments.variance", "payments.gradient", "payments.signature", "accounts.run",
    "draws.server_nonce", "draws.auditor_nonce",
}  # fmt: skip


def test_the_migrations_make_exactly_the_tables(ledger: Ledger) -> None:
    with ledger._database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, t.metadata) == []


def test_nothing_is_empty_that_must_not_be(ledger: Ledger) -> None:
    with ledger._database.engine.connect() as connection:
        inspector = inspect(connection)
        nullable = {
            f"{table}.{column['name']}"
            for table in t.metadata.tables
            for column in inspector.get_columns(table)
            if column["nullable"]
        }
        checks = {table: len(inspector.get_check_constraints(table)) for table in t.metadata.tables}
        keys = [key for table in t.metadata.tables for key in inspector.get_foreign_keys(table)]
    assert nullable == NULLABLE
    assert checks == {
        "ledger": 4, "records": 5, "agents": 2, "keys": 0, "accounts": 5, "runs": 2, "members": 1, "rounds": 5,
        "payments": 10, "entries": 3, "versions": 1, "payouts": 1, "signatures": 2,
        "checkpoints": 1, "payees": 2, "batches": 2, "payout_lines": 0, "outcomes": 1, "idempotency": 2,
        "terms": 0, "closings": 0, "cost_factors": 1, "holdings": 0,
        "commitments": 5, "named": 4, "draws": 2, "leavings": 0, "answers": 3, "verdicts": 2, "settled": 2,
    }  # fmt: skip
    assert len(keys) == 55


def test_tables_keep_to_their_types_on_sqlite_too(tmp_path: Any) -> None:
    with Ledger(tmp_path / "guerdon.db") as ledger, ledger._database.engine.connect() as connection:
        rows = connection.execute(text("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'")).all()
        assert {name for name, strict in rows if not strict} == {"sqlite_schema", "alembic_version", "legs"}
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2


def test_what_is_recorded_cannot_be_changed(ledger: Ledger) -> None:
    busy_ledger(ledger)
    look_scenes.begin(ledger)
    look_scenes.play_period(ledger, rounds=2)
    ledger.looks.leave(look_scenes.RUN, look_scenes.NAMES)
    look_scenes.pass_all(ledger)
    ledger.looks.settle(look_scenes.RUN)
    key = Ed25519PrivateKey.generate()
    ledger.enrol({"north": key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)})
    ledger.sign(key)
    tried = 0
    for name, table in t.metadata.tables.items():
        if name in ("checkpoints", "ledger", "accounts", "holdings"):
            continue
        column = next(iter(table.c)).name
        for statement in (f"UPDATE {name} SET {column} = {column}", f"DELETE FROM {name}"):
            tried += 1
            with (
                pytest.raises(DBAPIError, match=f"{name} is append-only"),
                ledger._database.engine.begin() as connection,
            ):
                connection.execute(text(statement))
    assert tried == 52


@pytest.mark.parametrize("statement", ["DELETE FROM accounts", "UPDATE accounts SET id = id", "DELETE FROM ledger"])
def test_accounts_and_the_head_stay(ledger: Ledger, statement: str) -> None:
    with pytest.raises(DBAPIError, match="is append-only"), ledger._database.engine.begin() as connection:
        connection.execute(text(statement))


ROUND: dict[str, Any] = {
    "record": 1, "run": 1, "number": 9, "request": 8, "rule": "", "cost": "", "metrics": "", "payload": bytes(32),
    "is_last": 0,
}  # fmt: skip
BAD: list[tuple[Any, dict[str, Any]]] = [
    (t.entries, {"record": 1, "line": 0, "source": 1, "target": 1, "amount": 5}),
    (t.entries, {"record": 1, "line": 0, "source": 1, "target": 2, "amount": 0}),
    (t.entries, {"record": 1, "line": 0, "source": 1, "target": 2, "amount": -5}),
    (t.entries, {"record": 99, "line": 0, "source": 1, "target": 2, "amount": 5}),
    (t.entries, {"record": 1, "line": 0, "source": 1, "target": 99, "amount": 5}),
    (t.accounts, {"id": 50, "record": 1, "kind": "agent", "owner": None, "balance": 0}),
    (t.accounts, {"id": 50, "record": 1, "kind": "bank", "owner": 1, "balance": 0}),
    (t.accounts, {"id": 50, "record": 1, "kind": "bank", "owner": None, "balance": 0}),
    (t.accounts, {"id": 50, "record": 1, "kind": "agent", "owner": 1, "balance": 0}),
    (t.accounts, {"id": 50, "record": 1, "kind": "purse", "owner": 1, "balance": 0}),
    (t.agents, {"id": 50, "record": 1, "name": "north"}),
    (t.agents, {"id": 50, "record": 1, "name": ""}),
    (t.runs, {"id": 9, "record": 1, "name": "", "rule": "", "cost": ""}),
    (t.rounds, ROUND | {"number": 1}),
    (t.rounds, ROUND | {"request": 0}),
    (t.rounds, ROUND | {"checkpoint": b"x"}),
    (t.rounds, ROUND | {"payload": b"x"}),
    (t.rounds, ROUND | {"is_last": 2}),
    (t.accounts, {"id": 50, "record": 1, "kind": "agent", "owner": 1, "run": 1, "balance": 0}),
    (t.accounts, {"id": 50, "record": 1, "kind": "held", "owner": 1, "run": 99, "balance": 0}),
    (t.accounts, {"id": 50, "record": 1, "kind": "held", "owner": 1, "run": None, "balance": 0}),
    (t.terms, {"record": 99, "run": 1, "text": "{}"}),
    (t.terms, {"record": 1, "run": 99, "text": "{}"}),
    (t.holdings, {"run": 99, "text": "{}"}),
    (t.payees, {"agent": 1, "record": 2, "holder": "", "account": "1"}),
    (t.payees, {"agent": 1, "record": 2, "holder": "x", "account": ""}),
    (t.outcomes, {"record": 2, "agent": 1, "payout": 2, "outcome": "lost"}),
    (t.idempotency, {"record": 2, "key": "", "payload": bytes(32)}),
    (t.versions, {"record": 2, "version": "9", "schema": b"x"}),
    (t.signatures, {"record": 1, "public_key": b"x", "signature": b"x" * 64}),
    (t.ledger, {"id": 2, "name": "x" * 32, "unit": "EUR", "head": 1, "hash": bytes(32)}),
    (t.records, {"seq": 0, "kind": "open", "created_at": datetime.now(UTC), "memo": "", "digest": bytes(32),
                 "previous": b"p" * 32, "hash": b"h" * 32}),
    (t.records, {"seq": 99, "kind": "gift", "created_at": datetime.now(UTC), "memo": "", "digest": bytes(32),
                 "previous": b"p" * 32, "hash": b"h" * 32}),
    (t.records, {"seq": 99, "kind": "open", "created_at": datetime.now(UTC), "memo": None, "digest": bytes(32),
                 "previous": b"p" * 32, "hash": b"h" * 32}),
]  # fmt: skip


def test_the_database_refuses_what_makes_no_sense(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    record(ledger, "run", play(1))
    for table, row in BAD:
        refused = pytest.raises(DBAPIError, match=r"(?i)constraint|null|unique")
        with refused, ledger._database.engine.begin() as connection:
            connection.execute(insert(table), row)
    assert ledger.verify().holds


PAYMENT: dict[str, Any] = {
    "position": 0, "agent": 1, "status": "paid", "trusted": 1, "squared_deviation": 1.0, "pair_distance": 1.0,
    "squared_length": 1.0, "alignment": -1.0, "squared_distance": 1.0, "expected": 1.0, "variance": 1.0, "earned": -5,
    "released": -5, "cut": 2, "gradient": bytes(32), "signature": b"s", "note": "", "hash": bytes(32),
}  # fmt: skip


# Without a distance a payment may have any status, and what is settled of earlier rounds.
NO_DISTANCE = dict.fromkeys(("squared_distance", "expected", "variance"))
IMPOSSIBLE: list[dict[str, Any]] = [
    {"status": "declined"} | NO_DISTANCE,
    {"variance": float("inf")}, {"alignment": float("-inf")}, {"squared_distance": 1e309},
    {"position": -1}, {"trusted": 2}, {"trusted": None}, {"status": "lucky"},
    {"squared_deviation": -1.0}, {"pair_distance": -1.0}, {"pair_distance": None},
    {"pair_distance": float("inf")}, {"squared_length": None},
    {"squared_distance": None},
    {"variance": None}, {"status": "declined"}, {"status": "waiting"}, {"cut": 6}, {"cut": -1},
    {"gradient": b"x"}, {"gradient": None}, {"hash": b""}, {"agent": 77}, {"released": None},
    {"earned": None}, {"note": None},
]  # fmt: skip


POSSIBLE: list[dict[str, Any]] = [
    {}, {"trusted": 0}, {"status": "waiting"} | NO_DISTANCE, {"status": "paid"} | NO_DISTANCE,
    {"status": "declined", "trusted": 0} | NO_DISTANCE,
]  # fmt: skip


def test_the_database_refuses_impossible_payments(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    for change in [*POSSIBLE, *IMPOSSIBLE]:
        with ledger._database.engine.connect() as connection:
            connection.execute(insert(t.rounds), ROUND)
            row = PAYMENT | {"record": 1} | change
            if change in POSSIBLE:
                connection.execute(insert(t.payments), row)
            else:
                with pytest.raises(DBAPIError, match=r"(?i)constraint|null"):
                    connection.execute(insert(t.payments), row)
            connection.rollback()


@pytest.mark.parametrize("kind", ["agent", "deposit", "held", "carried", "payable"])
def test_no_account_can_be_overdrawn(ledger: Ledger, kind: str) -> None:
    balance = 1 if kind == "carried" else -1
    ledger.enrol({"north": None})
    with pytest.raises(DBAPIError, match="ck_accounts_balance"), ledger._database.engine.begin() as connection:
        connection.execute(t.accounts.update().where(t.accounts.c.kind == kind).values(balance=balance))


def test_times_are_moments_in_utc(ledger: Ledger) -> None:
    before = datetime.now(UTC)
    ledger.enrol({"north": None})
    with ledger._database.reading() as connection:
        moment = connection.execute(select(t.records.c.created_at).where(t.records.c.seq == 2)).scalar_one()
        kind = connection.execute(text("SELECT created_at FROM records WHERE seq = 2")).scalar_one()
    assert moment.tzinfo is not None
    assert moment.utcoffset() == timedelta(0)
    assert before <= moment <= datetime.now(UTC)
    assert isinstance(kind, int if ledger._database.is_sqlite else datetime)


def test_legs_of_every_record_sum_to_zero_and_to_the_balances(ledger: Ledger) -> None:
    busy_ledger(ledger)
    with ledger._database.reading() as connection:
        sums = connection.execute(text("SELECT record, SUM(amount) FROM legs GROUP BY record")).all()
        kept = dict(connection.execute(text("SELECT id, balance FROM accounts")).all())
        found = dict(connection.execute(text("SELECT account, SUM(amount) FROM legs GROUP BY account")).all())
    assert len(sums) > 15
    assert all(total == 0 for _, total in sums)
    assert {account: found.get(account, 0) for account in kept} == kept


def test_upgrading_what_is_new_changes_nothing(where: str) -> None:
    with pytest.raises((RefusedError, UnavailableError), match="there is no ledger at"):
        upgrade_ledger(where)
    with Ledger(where) as ledger:
        ledger.enrol({"north": None})
    assert upgrade_ledger(where) == (t.REVISION, t.REVISION)
    with Ledger(where) as ledger:
        assert ledger.verify().holds
