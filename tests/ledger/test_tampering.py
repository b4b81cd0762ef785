"""An attacker with write access: whatever row he deletes, edits, inserts or moves, `verify` finds it."""

import random
import shutil
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import Connection, Table, create_engine, select, text
from sqlalchemy.exc import DBAPIError

from guerdon.ledger import Ledger, RefusedError, UnavailableError, sign_submission, submission
from guerdon.ledger.books.database import parse_url
from guerdon.ledger.books.definitions import schema_digest
from guerdon.ledger.books.journal import DETAILS, detail
from guerdon.ledger.books.tables import KINDS, LINE_OUTCOMES, REVISION, metadata
from guerdon.ledger.proof.verify import Verification, verify
from guerdon.rule import Status
from tests.support.ledger_scenes import AT_ONCE, NAMES, RULE, dump, fill_busily, on, play, prepare, record

TABLES = [table for table in metadata.sorted_tables if table.name != "alembic_version"]
CHOICES = {
    "kind": KINDS,
    "status": [status.label for status in Status],
    "outcome": tuple(LINE_OUTCOMES),
}


@contextmanager
def attacker(where: str, *, keeps: bool = False) -> Generator[Connection]:
    """A connection on which nothing is protected; what it does is undone at the end, unless it `keeps` it."""
    url = parse_url(where)
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        if url.get_backend_name() == "sqlite":
            connection.execute(text("PRAGMA foreign_keys = OFF"))
            connection.execute(text("BEGIN IMMEDIATE"))
        else:
            connection.execute(text("BEGIN"))
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        try:
            yield connection
        finally:
            connection.execute(text("COMMIT" if keeps else "ROLLBACK"))
            connection.close()
            engine.dispose()


def after(connection: Connection, change: Any) -> Verification | None:
    """Return what `verify` finds after a change, which is then undone; None if the database itself refused it."""
    connection.execute(text("SAVEPOINT attack"))
    try:
        try:
            connection.execute(change)
        except DBAPIError:
            return None
        return verify(connection)
    finally:
        connection.execute(text("ROLLBACK TO SAVEPOINT attack"))


def rows(connection: Connection, table: Table) -> list[Any]:
    return list(connection.execute(select(table).order_by(*table.primary_key.columns)).mappings())


def this(table: Table, row: Any) -> Any:
    return [column == row[column.name] for column in table.primary_key.columns]


def others(column: Any, value: Any, rng: random.Random) -> list[Any]:
    """Return values near `value` that the column could hold."""
    if column.name in CHOICES:
        return [choice for choice in CHOICES[column.name] if choice != value]
    if value is None:
        return [bytes(32)] if column.name in ("checkpoint", "gradient", "signature", "public_key") else [1.0]
    near: list[Any] = {
        "bool": lambda: [not value],
        "int": lambda: [value + 1, value - 1],
        "float": lambda: [float(np.nextafter(value, np.inf)), value * 2 + 1],
        "str": lambda: [value + " ", value[:-1] or "x"],
        "bytes": lambda: [flipped(value, rng.randrange(8 * len(value)))] if value else [b"x"],
        "datetime": lambda: [value.replace(microsecond=(value.microsecond + 1) % 10**6)],
    }[type(value).__name__]()
    return [*near, None] if column.nullable else near


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def reseal(connection: Connection, details: Iterable[str] = DETAILS) -> None:
    """Recompute all hashes as a patient attacker would, so that only the recomputation of money can find it."""
    from guerdon.ledger.books import chain, tables
    from guerdon.ledger.proof.replay import read_payments

    sealed = chain.START
    for row in connection.execute(select(tables.records).order_by(tables.records.c.seq)).all():
        block = read_payments(connection, row.seq, row.seq)
        hashes = chain.payment_hashes(block.numbers, block.gradients, block.signatures, block.notes)
        paid = tables.payments
        for place, value in zip(block.numbers["position"].tolist(), hashes, strict=True):
            one = (paid.c.record == row.seq) & (paid.c.position == place)
            connection.execute(paid.update().where(one).values(hash=value))
        content: dict[str, list[dict[str, Any]]] = {}
        for name in details:
            table = metadata.tables[name]
            query = select(table).where(table.c.record == row.seq).order_by(*table.primary_key.columns)
            content[name] = [dict(one) for one in connection.execute(query).mappings()]
        if row.seq == 1:
            head = connection.execute(select(tables.ledger)).mappings().one()
            content["ledger"] = [{name: head[name] for name in ("name", "unit")}]
        entry = tables.entries.c
        query = select(entry.source, entry.target, entry.amount).where(entry.record == row.seq).order_by(entry.line)
        lines = np.array([tuple(row) for row in connection.execute(query)], dtype=np.int64).reshape(-1, 3)
        contents = chain.digest(detail(content), hashes, lines)
        previous, sealed = sealed, chain.link(row.seq, row.kind, row.created_at, row.memo, contents, sealed)
        connection.execute(tables.records.update().where(tables.records.c.seq == row.seq).values(
            digest=contents, previous=previous, hash=sealed))  # fmt: skip
    connection.execute(tables.ledger.update().values(hash=sealed))


def unprotect(where: str) -> None:
    """Make an SQLite ledger one that never had triggers, so that only `verify` stands in the attacker's way."""
    engine = create_engine(parse_url(where))
    with engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            for (name,) in connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
                connection.execute(text(f"DROP TRIGGER {name}"))
            connection.execute(metadata.tables["versions"].update().values(schema=schema_digest(connection)))
            reseal(connection)
    engine.dispose()


def fill_unprotected(where: str) -> None:
    fill_busily(where)
    unprotect(where)
    with Ledger(where) as ledger:
        ledger.sign(Ed25519PrivateKey.generate())


@pytest.fixture
def busy(where: str) -> str:
    return prepare(where, fill_unprotected)


ALL = 10**6
few_or_all = pytest.mark.parametrize("each", [2, pytest.param(ALL, marks=pytest.mark.slow)])


def varied(connection: Connection, kept: list[Any], each: int) -> list[Any]:
    """Return up to `each` rows of every sort: of every kind, of every kind of record, and of every run."""
    query = text("SELECT seq, kind, run FROM records LEFT JOIN rounds ON record = seq")
    records = {seq: (kind, run) for seq, kind, run in connection.execute(query)}
    sorts: dict[Any, list[Any]] = {}
    for row in kept:
        record = records.get(row.get("seq", row.get("record")), ())
        sorts.setdefault((row.get("kind"), row.get("run"), record), []).append(row)
    rng = random.Random(0)
    return [row for sort in sorts.values() for row in rng.sample(sort, min(each, len(sort)))]


@pytest.mark.slow
@few_or_all
def test_every_deleted_row_is_found(busy: str, each: int) -> None:
    tried = 0
    with attacker(busy) as connection:
        assert verify(connection).holds
        for table in TABLES:
            for row in varied(connection, rows(connection, table), each):
                found = after(connection, table.delete().where(*this(table, row)))
                assert found is not None
                assert not found.holds, (table.name, dict(row))
                tried += 1
    assert tried > (250 if each == ALL else 70)


def edits(connection: Connection, rng: random.Random, rows_each: int) -> Iterator[tuple[str, Any]]:
    """Yield edits of every column, in some rows where it holds something and in some where it holds nothing.

    Of one row each, one edit that is drawn; of several all of them.
    """
    for table in TABLES:
        kept = rows(connection, table)
        for column in table.c:
            full = [row for row in kept if row[column.name] is not None]
            empty = [row for row in kept if row[column.name] is None]
            for row in (row for part in (full, empty) for row in rng.sample(part, min(rows_each, len(part)))):
                near = others(column, row[column.name], rng)
                for value in near if rows_each > 1 else rng.sample(near, 1):
                    where = f"{table.name}.{column.name} {row[column.name]!r} → {value!r}"
                    yield where, table.update().where(*this(table, row)).values({column.name: value})


@pytest.mark.parametrize(("rows_each", "least"), [(1, 70), pytest.param(4, 300, marks=pytest.mark.slow)])
def test_every_kind_of_edit_is_found(busy: str, rows_each: int, least: int) -> None:
    found = refused = 0
    with attacker(busy) as connection:
        for what, change in edits(connection, random.Random(0), rows_each):
            result = after(connection, change)
            assert result is None or not result.holds, what
            found, refused = found + (result is not None), refused + (result is None)
    assert found >= least
    assert refused < found


def test_every_inserted_row_is_found(busy: str) -> None:
    tried = 0
    with attacker(busy) as connection:
        for table in TABLES:
            for row in rows(connection, table)[-2:]:
                key = next(column for column in reversed(list(table.primary_key.columns)))
                unique = {
                    "name": "x" * 32,
                    "hash": b"h" * 32,
                    "previous": b"p" * 32,
                    "number": 99,
                    "agent": 1,
                    "owner": 9,
                }
                fresh = {name: unique.get(name, value) for name, value in row.items()} | {
                    key.name: row[key.name] + 1000
                }
                found = after(connection, table.insert().values(fresh))
                assert found is None or not found.holds, (table.name, fresh)
                tried += found is not None
    assert tried >= 8


@pytest.mark.parametrize("name", ["records", "payments", "entries", "members"])
@few_or_all
def test_every_swap_of_neighbours_is_found(busy: str, name: str, each: int) -> None:
    table = metadata.tables[name]
    keys = [column.name for column in table.primary_key.columns]
    with attacker(busy) as connection:
        kept = rows(connection, table)
        following = {tuple(first[k] for k in keys): second for first, second in pairwise(kept)}
        tried = 0
        for first in varied(connection, kept[:-1], each):
            second = following[tuple(first[k] for k in keys)]
            if all(first[k] == second[k] or k in keys for k in first):
                continue  # twins
            connection.execute(text("SAVEPOINT swap"))
            for row in (first, second):
                connection.execute(table.delete().where(*this(table, row)))
            try:
                for row, other in ((first, second), (second, first)):
                    connection.execute(table.insert().values({k: (other if k in keys else row)[k] for k in row}))
            except DBAPIError:  # the database itself refused
                pass
            else:
                assert not verify(connection).holds, (dict(first), dict(second))
                tried += 1
            connection.execute(text("ROLLBACK TO SAVEPOINT swap"))
    assert tried >= 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE payments SET released = released + 1 WHERE record = 6 AND position = 2",
         "payments: the payment of agent 'east' in round 1 of run 'heart' does not have the hash of its contents"),
        ("UPDATE payments SET hash = previous FROM records WHERE seq = 6 AND record = 6 AND position = 2",
         "payments: the payment of agent 'east' in round 1 of run 'heart' does not have"),
        ("UPDATE entries SET amount = amount + 1 WHERE record = 6 AND line = 1", "entries: record 6, line 1, is "),
        ("UPDATE accounts SET balance = balance + 5000000 WHERE id = 9",
         "accounts: the balance of agent of 'south' is "),
        ("UPDATE records SET memo = 'x' WHERE seq = 3", "records: record 3 (deposit) does not have the hash"),
        ("UPDATE rounds SET metrics = '{\"loss\"\\:1}' WHERE record = 7",
         "records: the contents of record 7 (round 2 of run 'heart') are not what was recorded"),
        ("DELETE FROM records WHERE seq = 6", "records: record 6 is missing"),
        ("UPDATE ledger SET head = 3", "ledger: the head is not record"),
        ("UPDATE agents SET name = 'norht' WHERE id = 1", "records: the contents of record 2 (enrol)"),
        ("DELETE FROM checkpoints WHERE run = 1", "checkpoints: the checkpoint of run 'heart'"),
        ("UPDATE alembic_version SET version_num = '9'", f"alembic_version: must be {REVISION} once, is 9"),
    ],
)  # fmt: skip
def test_the_first_bad_row_is_named(busy: str, change: str, message: str) -> None:
    with attacker(busy) as connection:
        found = after(connection, text(change))
    assert found is not None
    assert str(found.problem).startswith(message), found.problem


def test_the_first_of_several_is_named(busy: str) -> None:
    with attacker(busy) as connection:
        connection.execute(text("UPDATE payments SET note = 'x' WHERE record IN (6, 9)"))
        connection.execute(text("UPDATE records SET memo = 'x' WHERE seq = 3"))
        found = verify(connection)
    assert found.problem == "records: record 3 (deposit) does not have the hash of its contents"
    assert found.records == 2


def fill_with_money(where: str) -> None:
    with Ledger(where) as ledger:
        ledger.enrol({"north": None})
        ledger.start_run("heart", NAMES, RULE, on("deposit"))
        ledger.move("deposit", "north", 5_000_000)
        record(ledger, "heart", play(6, seed=3))
        ledger.start_run("cuts", NAMES, RULE, on("deposit"))
    unprotect(where)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([], None),
        (["UPDATE payments SET released = released + 5000000 WHERE record = 4 AND position = 0"],
         "payments: the payment of agent 'north' in round 1 of run 'heart' is not what its evidence gives"),
        (["UPDATE payments SET squared_distance = squared_distance / 2 WHERE record = 4 AND position = 0"],
         "is not what its evidence"),
        (["UPDATE payments SET status = 'invalid', trusted = 0, earned = 0, released = 0, squared_distance = NULL, "
          "expected = NULL, variance = NULL WHERE record = 4 AND position = 0"], "is not what its evidence gives"),
        (["UPDATE rounds SET request = 16 WHERE record = 4"], "is not what its evidence gives"),
        (["UPDATE entries SET amount = amount + 5000000 WHERE record = 4 AND line = 0",
          "UPDATE accounts SET balance = balance + 5000000 WHERE id = 4",
          "UPDATE accounts SET balance = balance - 5000000 WHERE id = 1"], "line 0, is "),
        (["UPDATE payments SET cut = 1 WHERE released < 0 AND cut = 0"], "does not follow from the run's terms"),
        (["UPDATE rounds SET number = number + 10 WHERE record = 7"], "does not follow round"),
        (["UPDATE rounds SET number = number + 10 WHERE run = 1"], "round 11 of run 'heart' cannot be the first"),
    ],
    ids=["nothing", "amount", "distance", "status", "request", "entry", "cut", "number", "first"],
)  # fmt: skip
def test_money_is_recomputed_even_where_all_hashes_fit(where: str, change: list[str], message: str | None) -> None:
    prepare(where, fill_with_money)
    with attacker(where) as connection:
        numbers = dict(connection.execute(text("SELECT number, record FROM rounds WHERE run = 1")).all())
        for one in change:  # the records of this ledger lie a little later than those the statements name
            for name, number in {"record = 4": numbers[1], "record = 7": numbers[4]}.items():
                one = one.replace(name, f"record = {number}")
            connection.execute(text(one))
        reseal(connection)
        found = verify(connection)
        assert found.holds if message is None else message in str(found.problem), found.problem


def fill_to_forge(where: str) -> None:
    """A ledger with something of everything that can be forged."""
    key = Ed25519PrivateKey.generate()
    with Ledger(where) as ledger:
        ledger.enrol({"north": key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)})
        ledger.start_run("run", NAMES, RULE, AT_ONCE)
        for one in play(4):
            message = submission(ledger.name, "run", one.number, one.request, one.gradients[0] or b"")
            signatures = [sign_submission(key, message), None, None, None]
            ledger.record_round("run", *one.arguments(), gradients=one.gradients, signatures=signatures)
        ledger.move("deposit", "north", 5_000_000)
        ledger.move("withdraw", "north", 5_000_000)
        ledger.payout()
        ledger.settle_payout(1, "paid")
        ledger.start_run("more", NAMES, RULE, AT_ONCE)
        record(ledger, "more", play(2))
    unprotect(where)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["UPDATE entries SET amount = amount + 1 WHERE record = (SELECT seq FROM records WHERE kind = 'withdraw')"],
         "overdraws deposit of 'north'"),
        (["UPDATE payments SET signature = (SELECT signature FROM payments p WHERE p.signature IS NOT NULL "
          "ORDER BY record DESC LIMIT 1) WHERE signature IS NOT NULL"], "the signature of the payment of"),
        (["UPDATE entries SET source = source + 2 WHERE record = (SELECT record FROM payouts) AND line = 0"],
         "entries: record"),
        (["INSERT INTO entries SELECT record, 99, source, target, amount FROM entries WHERE line = 0 AND "
          "record = (SELECT record FROM payouts)"], "entries: the lines of record"),
        (["INSERT INTO entries SELECT e.record, (SELECT COUNT(*) FROM entries x WHERE x.record = e.record), source, "
          "target, amount FROM entries e WHERE line = 0 AND e.record = (SELECT record FROM payouts)"], "be nothing"),
        (["UPDATE records SET created_at = (SELECT created_at FROM records WHERE seq = 1) WHERE seq = 5"],
         "does not follow the one before it"),
        (["UPDATE rounds SET number = number + 1 WHERE run = 1 AND number = 4"], "does not follow round 3"),
        (["UPDATE payments SET position = position + 1 WHERE record = 5 AND position = 3"],
         "must have one payment per agent, in order"),
        (["UPDATE outcomes SET payout = payout - 1"], "which is no payout before it"),
    ],
    ids=["overdraft", "signature", "payout from deposit", "lines", "twice in a payout", "time", "gap", "position",
         "settled"],
)  # fmt: skip
def test_what_no_writer_would_write_is_found_even_where_all_hashes_fit(
    where: str, change: list[str], message: str
) -> None:
    prepare(where, fill_to_forge)
    with attacker(where) as connection:
        for one in change:
            connection.execute(text(one))
        reseal(connection)
        found = verify(connection)
    assert message in str(found.problem), found.problem


def fill_holding(where: str) -> None:
    """Two runs that hold pay of the same agents, one whose terms changed, and money that is held by hand."""
    with Ledger(where) as ledger:
        for run in ("first", "second"):
            ledger.start_run(run, NAMES, RULE, on(hold=2))
            record(ledger, run, play(3))
        ledger.start_run("second", NAMES, RULE, on(hold=2, quorum=3))
        ledger.move("hold", "north", 1_000_000)
        ledger.move("release", "north", 500_000)
        ledger.move("forfeit", "north", 200_000)
        ledger.close_run("first")
    unprotect(where)


HELD = "(SELECT id FROM accounts WHERE kind = 'held' AND owner = 1 AND run {})"
BY_HAND = "record = (SELECT MIN(seq) FROM records WHERE kind = '{}')"

SHORTER = "UPDATE terms SET text = replace(text, '\"rounds\"\\:2', '\"rounds\"\\:1') WHERE "


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["UPDATE holdings SET text = replace(text, '9000000', '9000001') WHERE run = 2"], "holdings: what is kept of"),
        (["DELETE FROM holdings WHERE run = 2"], "holdings: what is kept of run 'second' does not follow"),
        (["INSERT INTO holdings VALUES (7, '{}')"], "holdings: run 7 does not exist"),
        ([SHORTER + "run = 1"], "entries: record"),
        ([SHORTER + BY_HAND.format("terms")], "changes what a run must keep: hold, losses, deposit"),
        (["DELETE FROM terms WHERE " + BY_HAND.format("terms")], "terms: record"),
        (["UPDATE terms SET run = 1 WHERE " + BY_HAND.format("terms")], None),  # a hand may have changed either
        (["UPDATE entries SET source = " + HELD.format("= 2") + " WHERE " + BY_HAND.format("release")],
         "entries: record"),
        (["UPDATE entries SET target = " + HELD.format("= 1") + " WHERE " + BY_HAND.format("hold")], "entries: record"),
        (["UPDATE entries SET source = " + HELD.format("= 2") + " WHERE " + BY_HAND.format("forfeit")],
         "entries: record"),
        (["UPDATE accounts SET run = NULL WHERE id = " + HELD.format("= 1"),
          "UPDATE accounts SET run = 1 WHERE id = " + HELD.format("IS NULL ORDER BY id LIMIT 1")], "accounts: record"),
        (["INSERT INTO versions SELECT 2, version, schema FROM versions"], "versions: record 2 (enrol) must have one"),
    ],
    ids=["state", "no state", "no run", "terms", "changed terms", "no terms", "other run", "release", "hold", "forfeit",
         "account", "version"],
)  # fmt: skip
def test_holding_is_recomputed_even_where_all_hashes_fit(where: str, change: list[str], message: str | None) -> None:
    prepare(where, fill_holding)
    with attacker(where) as connection:
        for one in change:
            try:
                connection.execute(text(one))
            except DBAPIError:
                pytest.skip("the database itself refuses it")
        reseal(connection)
        found = verify(connection)
    assert found.holds if message is None else message in str(found.problem), found.problem


def test_a_payout_settled_twice_is_found(where: str) -> None:
    prepare(where, fill_to_forge)
    records, outcomes = metadata.tables["records"], metadata.tables["outcomes"]
    with attacker(where) as connection:
        if connection.dialect.name == "sqlite":
            pytest.skip("SQLite's own constraint cannot be taken away without making the table anew")
        connection.execute(text("ALTER TABLE outcomes DROP CONSTRAINT uq_outcomes_payout_agent_outcome"))
        kept = rows(connection, records)
        fresh = {"seq": kept[-1]["seq"] + 1, "kind": "settle", "previous": b"p" * 32, "hash": b"h" * 32}
        connection.execute(records.insert().values(dict(kept[-1]) | fresh))
        again = dict(rows(connection, outcomes)[0]) | {"record": fresh["seq"]}
        connection.execute(outcomes.insert().values(again))
        connection.execute(metadata.tables["ledger"].update().values(head=fresh["seq"]))
        connection.execute(metadata.tables["versions"].update().values(schema=schema_digest(connection)))
        reseal(connection)
        found = verify(connection)
    assert "of which a line cannot become paid any more" in str(found.problem)


SCHEMA_ATTACKS = {
    "sqlite": [
        "DROP TRIGGER payments_no_update",
        "DROP VIEW legs",
        "CREATE TABLE extra (x INTEGER)",
        "CREATE TRIGGER thief AFTER INSERT ON payments BEGIN UPDATE accounts SET balance = balance + 1; END",
        "DROP INDEX ix_entries_target",
    ],
    "postgresql": [
        "DROP TRIGGER payments_no_update ON payments",
        "ALTER TABLE payments DISABLE TRIGGER payments_no_update",
        "DROP VIEW legs",
        "CREATE TABLE extra (x INTEGER)",
        "ALTER TABLE payments DROP CONSTRAINT ck_payments_status",
        "ALTER TABLE payments ALTER COLUMN note DROP NOT NULL",
        "DROP VIEW legs; ALTER TABLE entries ALTER amount TYPE numeric; UPDATE entries SET amount = amount + 0.4",
        "CREATE OR REPLACE FUNCTION guerdon_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW;END $$",
        "ALTER TABLE payments DROP CONSTRAINT ck_payments_status; "
        "ALTER TABLE payments ADD CONSTRAINT ck_payments_status CHECK (true)",
        "DROP TRIGGER payments_no_update ON payments; CREATE TRIGGER payments_no_update BEFORE UPDATE OR DELETE ON "
        "payments FOR EACH ROW WHEN (false) EXECUTE FUNCTION guerdon_refuse()",
        "DROP TRIGGER payments_no_update ON payments; CREATE TRIGGER payments_no_update BEFORE DELETE ON payments "
        "FOR EACH ROW EXECUTE FUNCTION guerdon_refuse()",
        "CREATE SCHEMA other; ALTER FUNCTION guerdon_refuse() SET SCHEMA other",
        "ALTER TABLE entries DISABLE TRIGGER ALL",
        "ALTER TABLE entries DROP CONSTRAINT fk_entries_source; ALTER TABLE entries ADD CONSTRAINT fk_entries_source "
        "FOREIGN KEY (source) REFERENCES agents (id) NOT VALID",
        "DROP INDEX ix_entries_target",
        "DROP INDEX ix_accounts_common; CREATE UNIQUE INDEX ix_accounts_common ON accounts (kind) WHERE false",
        "CREATE OR REPLACE VIEW legs AS SELECT record, line, source AS account, amount FROM entries",
        "ALTER TABLE payments ALTER COLUMN note SET DEFAULT 'x'",
        "CREATE SCHEMA other; CREATE TABLE other.more () INHERITS (entries)",
        "ALTER TABLE checkpoints SET UNLOGGED",
    ],
}


def test_tables_that_were_altered_are_found(where: str) -> None:
    with attacker(prepare(where, fill_busily)) as connection:
        for statement in SCHEMA_ATTACKS[connection.dialect.name]:
            connection.execute(text("SAVEPOINT attack"))
            for part in statement.split("; ") if "TRIGGER thief" not in statement else [statement]:
                connection.execute(text(part))
            found = verify(connection)
            assert str(found.problem).startswith("the tables, constraints or triggers are not those"), statement
            connection.execute(text("ROLLBACK TO SAVEPOINT attack"))
        assert verify(connection).holds


LOSSES = {
    "sqlite": {
        "entries": "CREATE TRIGGER lost AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
        "payments": "CREATE TRIGGER lost AFTER INSERT ON payments BEGIN UPDATE payments SET note = 'x' "
        "WHERE record = NEW.record; END",
        "rounds": "CREATE TRIGGER lost AFTER INSERT ON rounds BEGIN UPDATE rounds SET metrics = 'x' "
        "WHERE record = NEW.record; END",
        "accounts": "CREATE TRIGGER lost BEFORE UPDATE ON accounts BEGIN SELECT RAISE(IGNORE); END",
        "records": "CREATE TRIGGER lost AFTER INSERT ON records BEGIN UPDATE records SET memo = 'x' "
        "WHERE seq = NEW.seq; END",
    },
    "postgresql": {
        "entries": "CREATE RULE lost AS ON INSERT TO entries DO INSTEAD NOTHING",
        "payments": "CREATE RULE lost AS ON INSERT TO payments WHERE NEW.position = 1 DO INSTEAD NOTHING",
        "rounds": "CREATE RULE lost AS ON INSERT TO rounds DO ALSO UPDATE rounds SET metrics = 'x' "
        "WHERE record = NEW.record",
        "accounts": "CREATE RULE lost AS ON UPDATE TO accounts DO INSTEAD NOTHING",
        "records": "CREATE RULE lost AS ON INSERT TO records DO ALSO UPDATE records SET memo = 'x' WHERE seq = NEW.seq",
    },
}


@pytest.mark.parametrize("table", LOSSES["sqlite"])
def test_what_the_database_does_not_keep_is_not_recorded(where: str, table: str) -> None:
    with Ledger(where) as ledger:
        ledger.start_run("run", NAMES, RULE, AT_ONCE)
        engine = ledger._database.engine
        with engine.begin() as connection:
            for kind in ("update", "delete") if table != "accounts" else ():
                both = "no_update ON " + table if engine.dialect.name == "postgresql" else f"no_{kind}"
                connection.execute(text(f"DROP TRIGGER IF EXISTS {table}_{both}"))
            connection.execute(text(LOSSES[engine.dialect.name][table]))
        with pytest.raises(UnavailableError, match=r"record 4 \(round\) was not kept as it was written"):
            record(ledger, "run", play(1))
        assert ledger.rounds("run") == []
        assert all(row.balance == 0 for row in ledger.balances())


def test_rules_and_policies_are_refused(where: str) -> None:
    with Ledger(where) as ledger:
        if ledger._database.is_sqlite:
            pytest.skip("of PostgreSQL only")
        with attacker(where, keeps=True) as connection:
            connection.execute(text("CREATE RULE lost AS ON INSERT TO entries DO INSTEAD NOTHING"))
            connection.execute(text("CREATE RULE more AS ON UPDATE TO accounts DO ALSO NOTHING"))
            connection.execute(text("CREATE POLICY few ON payments USING (released > 0)"))
            connection.execute(text("ALTER TABLE payments ENABLE ROW LEVEL SECURITY"))
        named = "a policy few on payments, a row security on payments, a rule lost on entries, a rule more on accounts"
        assert str(ledger.verify().problem).startswith(f"the database has {named}:")
    for read_only in (True, False):
        with pytest.raises(RefusedError, match=f"must have no rules and no row security, has {named}"):
            Ledger(where, read_only=read_only)


@pytest.mark.parametrize("table", ["accounts", "agents", "runs"])
@pytest.mark.parametrize("number", [10**12, 2**62, 0])
def test_numbers_out_of_order_are_found(busy: str, table: str, number: int) -> None:
    with attacker(busy) as connection:
        found = after(connection, text(f"UPDATE {table} SET id = {number} WHERE id = 3"))
    assert found is None or f"{table}: must be numbered from 1 without gaps" in str(found.problem)


def test_large_ledgers_are_checked_block_by_block(busy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["guerdon.ledger.proof.verify"]
    with attacker(busy) as connection:
        whole = verify(connection)
        for size in (5, 20, 35):
            monkeypatch.setattr(module, "BLOCK", size)
            assert verify(connection) == whole
        found = after(connection, text("UPDATE payments SET note = 'x' WHERE record = 9 AND position = 1"))
        assert found is not None
        assert found.records == 8


def test_a_ledger_set_back_to_yesterday_is_found_with_a_receipt(tmp_path: Path) -> None:
    path, copy = tmp_path / "guerdon.db", tmp_path / "yesterday.db"
    with Ledger(path) as ledger:
        ledger.start_run("heart", NAMES, RULE, AT_ONCE)
        record(ledger, "heart", play(3))
    shutil.copy(path, copy)
    key = Ed25519PrivateKey.generate()
    with Ledger(path) as ledger:
        record(ledger, "heart", play(5)[3:])
        receipt = ledger.sign(key)
        assert ledger.verify(receipt).holds
        record(ledger, "heart", play(6)[5:])
        assert ledger.verify(receipt).holds
    with Ledger(copy) as old:
        assert old.verify().holds
        assert f"record {receipt.record} is missing when the receipt was signed" in str(old.verify(receipt).problem)
        record(old, "heart", play(6, seed=0)[3:])  # rewritten since
        assert "the ledger was rewritten" in str(old.verify(receipt).problem)
    with Ledger(tmp_path / "other.db") as other:
        assert "it is of another ledger" in str(other.verify(receipt).problem)
    forged = receipt._replace(record=receipt.record - 1)
    with Ledger(path) as ledger:
        assert "its signature is not by the key it names" in str(ledger.verify(forged).problem)


@pytest.mark.parametrize("times", [80, pytest.param(250, marks=pytest.mark.slow)])
def test_random_damage_to_the_file_is_found_or_harmless(tmp_path: Path, times: int) -> None:
    path = Path(prepare(str(tmp_path / "guerdon.db"), fill_busily))
    whole, before = path.read_bytes(), dump(str(path))
    rng, outcomes = random.Random(1), {"found": 0, "harmless": 0}
    damaged = tmp_path / "damaged.db"
    for _ in range(times):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 4, 64])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        damaged.write_bytes(data)
        try:
            with Ledger(damaged, read_only=True) as ledger:
                found = not ledger.verify().holds
        except (UnavailableError, RefusedError):
            found = True
        outcomes["found" if found else "harmless"] += 1
        assert found or dump(str(damaged)) == before
    assert outcomes["found"] > times // 5
    assert outcomes["harmless"] > 5  # unused space
