"""A ledger is brought to newer tables, all or nothing: the next version is one that only these tests have."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import inspect, select, text

from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.books import database, tables
from guerdon.ledger.upgrading import upgrade_ledger
from tests.ledger.test_tampering import attacker
from tests.support.command_line import run as guerdon
from tests.support.ledger_scenes import AT_ONCE, NAMES, RULE, fill_busily, play, prepare, record

NEXT = Path(__file__).parent / "next_version"


@pytest.fixture
def old(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger of the version before the program's."""
    prepare(where, fill_busily)
    changed = tmp_path / "migrations"
    shutil.copytree(database.MIGRATIONS, changed)
    shutil.copytree(NEXT, changed / "versions", dirs_exist_ok=True)
    monkeypatch.setattr(database, "MIGRATIONS", changed)
    monkeypatch.setattr(tables, "REVISION", "0002")
    return where


def test_an_older_ledger_says_what_it_said_and_goes_on(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(tables, "REVISION", "0001")
        with Ledger(old) as ledger:
            (receipt,) = [ledger.sign(Ed25519PrivateKey.from_private_bytes(bytes(32)))]
            balances, head = ledger.balances(), ledger.verify().head
    with pytest.raises(RefusedError, match=r"has tables of version 0001, .* `guerdon ledger upgrade` after a backup"):
        Ledger(old)
    assert guerdon("ledger", "upgrade", "--db", old).stdout == "version 0001 upgraded to 0002\n"
    assert upgrade_ledger(old) == ("0002", "0002")
    with Ledger(old) as ledger:
        assert ledger.verify(receipt).problem is None
        assert ledger.balances() == balances
        with ledger.reading() as connection:
            last = select(tables.records).order_by(tables.records.c.seq.desc()).limit(1)
            now = connection.execute(last).one()
            schemas = connection.execute(select(tables.versions.c.version, tables.versions.c.schema)).all()
        assert (now.kind, now.memo, now.previous) == ("open", "upgraded from version 0001 to 0002", head)
        assert [version for version, _ in schemas] == ["0001", "0002"]
        assert schemas[0][1] != schemas[1][1]
        ledger.start_run("later", NAMES, RULE, AT_ONCE)
        record(ledger, "later", play(3))
        assert ledger.verify(receipt).problem is None


ALTERED = "the tables, constraints or triggers are not those with which the ledger was made; it was"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE accounts SET balance = balance + 1 WHERE id = 1", "not upgraded: accounts: the balance of treasury"),
        ("DROP VIEW legs", ALTERED),
        ("DROP INDEX ix_entries_target", ALTERED),
    ],
)
def test_a_ledger_that_does_not_hold_is_not_upgraded(old: str, change: str, message: str) -> None:
    with attacker(old, keeps=True) as connection:
        connection.execute(text(change))
    with pytest.raises(RefusedError, match=message):
        upgrade_ledger(old)
    with attacker(old) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "0001"


# A program that upgrades a ledger, and is killed just before it would call a function for the n-th time.
KILLED = """
import os, signal, sys
from guerdon.ledger import upgrading
from guerdon.ledger.books import database, journal, tables
from pathlib import Path
where, migrations, module, name, calls = sys.argv[1:]
database.MIGRATIONS, tables.REVISION = Path(migrations), "0002"
place = {"alembic": __import__("alembic.op").op, "journal": journal, "upgrading": upgrading}[module]
call, left = getattr(place, name), int(calls)
def killed(*args, **kwargs):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return call(*args, **kwargs)
setattr(place, name, killed)
upgrading.upgrade_ledger(where)
"""
MOMENTS = [
    "alembic create_table 1",
    "alembic execute 2",
    "alembic add_column 1",
    "journal append 1",
    "upgrading verify 1",
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_upgrade_changes_nothing(old: str, moment: str) -> None:
    command = [sys.executable, "-c", KILLED, old, str(database.MIGRATIONS), *moment.split()]
    assert subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
    with attacker(old) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "0001"
        assert "remarks" not in inspect(connection).get_table_names()
    assert upgrade_ledger(old) == ("0001", "0002")
    with Ledger(old) as ledger:
        assert ledger.verify().problem is None


@pytest.mark.parametrize("version", ["0001", "0005"])
def test_a_ledger_of_a_development_version_is_named_with_a_remedy(tmp_path: Path, version: str) -> None:
    """Their versions were numbered from 0001 too: what tells them is a table that no released version has."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE alembic_version (version_num TEXT); CREATE TABLE settlements (record INTEGER);"
            f"INSERT INTO alembic_version VALUES ('{version}');"
        )
    said = "was made by a development version before 0.1 and cannot be read; start a new one in another place"
    for read_only in (False, True):
        with pytest.raises(RefusedError, match=said):
            Ledger(path, read_only=read_only)
    with pytest.raises(RefusedError, match=said):
        upgrade_ledger(path)
    shown = guerdon("ledger", "balances", "--db", str(path))
    assert shown.code == 2
    assert said in " ".join(shown.stderr.split())
    assert "settlements" not in shown.stderr
