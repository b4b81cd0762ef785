"""Who may write, and what happens when the database is locked, read-only, full, damaged, missing or somebody else's."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError

from guerdon.ledger import Ledger, Recorded, RefusedError, UnavailableError
from guerdon.ledger.books import journal, tables
from guerdon.ledger.upgrading import upgrade_ledger
from tests.ledger.conftest import NO_SERVER, SERVER, new_database
from tests.support.ledger_scenes import AT_ONCE, NAMES, REMEMBERING, RULE, dump, play, prepare, record

WEIGHTS = np.arange(4.0)
WRITES: dict[str, Callable[[Ledger], Any]] = {
    "enrol": lambda ledger: ledger.enrol({"new": None}),
    "start_run": lambda ledger: ledger.start_run("other", NAMES, RULE, AT_ONCE),
    "record_round": lambda ledger: record(ledger, "heart", play(4)[3:]),
    "move": lambda ledger: ledger.move("deposit", "north", 1),
    "payout": lambda ledger: ledger.payout(),
    "settle_payout": lambda ledger: ledger.settle_payout(1, "paid"),
}


def fill(where: str) -> None:
    with Ledger(where) as ledger:
        ledger.start_run("heart", NAMES, RULE, AT_ONCE)
        record(ledger, "heart", play(3))


@pytest.fixture
def filled(where: str) -> str:
    return prepare(where, fill)


@pytest.mark.parametrize("name", WRITES)
def test_a_ledger_open_for_reading_cannot_be_written(filled: str, name: str) -> None:
    with Ledger(filled, read_only=True) as ledger:
        before = ledger.verify()
        with pytest.raises(UnavailableError, match="open for reading only"):
            WRITES[name](ledger)
        assert ledger.verify() == before


def test_not_even_a_bare_connection_of_it_can_write(filled: str) -> None:
    with Ledger(filled, read_only=True) as ledger:
        for statement in (
            "INSERT INTO members VALUES (1, 9, 1, 1)",
            "DELETE FROM checkpoints",
            "CREATE TABLE x (y INTEGER)",
        ):
            with pytest.raises(DBAPIError, match=r"readonly|read-only"), ledger._database.engine.begin() as connection:
                connection.execute(text(statement))


def test_reading_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="there is no ledger at"):
        Ledger(tmp_path / "guerdon.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_two_writers_at_once_record_every_round_once(filled: str) -> None:
    """Both record the same ten rounds of one run, and ten of a run each."""
    outcomes: list[list[Recorded]] = [[], []]
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            with Ledger(filled) as ledger:
                ledger.start_run(f"own {index}", NAMES, RULE, AT_ONCE)
                for one in play(10):
                    outcomes[index].append(ledger.record_round("heart", *one.arguments(), gradients=one.gradients,
                                           checkpoint={"model": {"weights": WEIGHTS * one.number}}))  # fmt: skip
                    ledger.record_round(f"own {index}", *one.arguments())
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    new = [sum(recorded.new for recorded in outcome) for outcome in outcomes]
    assert sum(new) == 7  # three of the ten were there
    with Ledger(filled) as ledger:
        assert ledger.verify().problem is None
        assert [run.rounds for run in ledger.runs()] == [10, 10, 10]


def test_two_writers_with_different_rounds_one_is_refused(filled: str) -> None:
    with Ledger(filled) as first, Ledger(filled) as second:
        first.record_round("heart", *play(4)[3].arguments())
        with pytest.raises(RefusedError, match="round 4 of run 'heart' is recorded already, with another"):
            second.record_round("heart", *play(4, seed=7)[3].arguments())
        assert second.verify().holds


def test_two_who_create_a_ledger_at_once_make_one(where: str) -> None:
    opened: list[Ledger] = []
    threads = [threading.Thread(target=lambda: opened.append(Ledger(where))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 4
    assert opened[0].verify().records == 1
    for ledger in opened:
        ledger.close()


def test_a_new_file_waits_for_who_else_creates_it(tmp_path: Path) -> None:
    path = tmp_path / "guerdon.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match="another process is writing"):
            Ledger(path, patience=0.1)
        timer = threading.Timer(0.2, other.execute, ["COMMIT"])
        timer.start()
        with Ledger(path) as ledger:
            assert ledger.verify().records == 1
        timer.join()


@pytest.mark.parametrize("where", [None, 3, b"guerdon.db"])
def test_a_ledger_needs_a_place(where: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=f"a ledger must be given by a path or an address, as text, got {where!r}"):
        Ledger(where)
    assert list(tmp_path.iterdir()) == []


def test_a_locked_ledger_says_so_and_loses_nothing(filled: str) -> None:
    with Ledger(filled) as holder, Ledger(filled, patience=0.2) as waiting:
        with holder._database.writing() as _, pytest.raises(UnavailableError, match="another process is writing"):
            record(waiting, "heart", play(4)[3:])
        assert waiting.verify().holds
        record(waiting, "heart", play(4)[3:])
        assert waiting.verify().payments == 16


def test_readers_are_not_held_up_by_a_writer(filled: str) -> None:
    with (
        Ledger(filled) as writer,
        Ledger(filled, read_only=True, patience=0.2) as reader,
        writer._database.writing() as connection,
    ):
        connection.execute(text("UPDATE accounts SET balance = balance + 1 WHERE id = 1"))
        assert reader.verify().holds
        connection.rollback()


def test_a_full_disk_says_so_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "guerdon.db"
    with Ledger(path) as ledger:
        ledger.start_run("heart", NAMES, RULE, AT_ONCE)
        record(ledger, "heart", play(2))
        before = dump(str(path))

        def fill(connection: Any, *_: Any) -> None:  # no page more than there are
            connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")

        event.listen(ledger._database.engine, "checkout", fill)
        big = {"model": {"weights": np.ones(100_000)}}
        with pytest.raises(UnavailableError, match="the disk is full; the last entry was not written"):
            ledger.record_round("heart", *play(3)[2].arguments(), checkpoint=big)
        assert ledger.verify().holds
        assert dump(str(path)) == before
        event.remove(ledger._database.engine, "checkout", fill)
        with ledger._database.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        ledger.record_round("heart", *play(3)[2].arguments(), checkpoint=big)
        assert ledger.verify().holds


CHILD = """
import os, sys
import sqlalchemy
from guerdon.ledger import Ledger
from tests.support.ledger_scenes import play, record
play(1), sqlalchemy.create_engine("sqlite://").connect().close()  # so that all imports are done
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)  # nobody: root may write anywhere
for path in sys.argv[1:]:
    for how in ("read", "write"):
        try:
            with Ledger(path, read_only=how == "read") as ledger:
                print(how, ledger.verify().holds)
                if how == "write":
                    record(ledger, "heart", play(4)[3:])
                    print("written")
        except OSError as error:
            print(how, type(error).__name__)
"""


def test_a_file_one_may_only_read() -> None:
    folders = [Path("/tmp") / f"guerdon-{os.getpid()}-{name}" for name in ("at-rest", "in-use")]  # noqa: S108 - nobody may not enter pytest's own
    try:
        paths = list[str]()
        for folder in folders:
            folder.mkdir()
            paths.append(prepare(str(folder / "guerdon.db"), fill))
        with Ledger(paths[1]) as ledger:
            ledger.enrol({"new": None})
            assert len(list(folders[1].iterdir())) > 1, "in use it has companions"
            for folder in folders:
                for path in folder.iterdir():
                    path.chmod(0o444)
                folder.chmod(0o555)
            command = [sys.executable, "-c", CHILD, *paths]
            result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
        said = [line for line in result.stdout.splitlines() if line != "write True"]  # looking is allowed
        assert said == ["read True", "write UnavailableError"] * 2, result.stdout + result.stderr
    finally:
        for folder in folders:
            folder.chmod(0o755)
            shutil.rmtree(folder)


@pytest.mark.parametrize("content", [b"this is not a database at all" * 100, b"SQLite format 3\0" + bytes(5000)])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "guerdon.db").write_bytes(content)
    with pytest.raises(UnavailableError, match=r"damaged or not a ledger|ledger .*guerdon.db"):
        Ledger(tmp_path / "guerdon.db")
    assert (tmp_path / "guerdon.db").read_bytes() == content


def test_a_truncated_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "guerdon.db"
    with Ledger(path) as ledger:
        ledger.start_run("heart", NAMES, RULE, AT_ONCE)
        record(ledger, "heart", play(3))
    path.write_bytes(path.read_bytes()[:-8192])
    try:
        with Ledger(path, read_only=True) as ledger:
            problem = ledger.verify().problem
    except UnavailableError as error:
        problem = str(error)
    assert problem is not None
    assert "damaged" in problem


def test_somebody_elses_database_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "theirs.db") as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    connection.close()
    with pytest.raises(RefusedError, match=r"holds other tables \(customers\) and is not a ledger"):
        Ledger(tmp_path / "theirs.db")


def test_a_ledger_of_another_version_is_not_touched(filled: str) -> None:
    with Ledger(filled) as ledger, ledger._database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(RefusedError, match=f"has tables of version 9999, this program needs {tables.REVISION}"):
        Ledger(filled)
    with pytest.raises(RefusedError, match=f"has tables of version 9999, this program needs {tables.REVISION}"):
        upgrade_ledger(filled)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("/nowhere/at/all/guerdon.db", "it must be a file in a folder that exists"),
        ("/tmp", "it must be a file in a folder that exists"),  # noqa: S108
        ("mysql://user@host/name", "kept in an SQLite file or in PostgreSQL, got 'mysql'"),
        ("postgresql://user:secret@127.0.0.1:1/name", "the database server cannot be reached"),
        ("postgresql://user:secret@[::bad/name", "the address of a ledger cannot be read"),
        ("sqlite://", "kept in an SQLite file or in PostgreSQL"),
    ],
)
def test_bad_addresses_are_named_without_secrets(where: str, message: str) -> None:
    with pytest.raises((UnavailableError, ValueError), match=message) as caught:
        Ledger(where)
    assert "secret" not in str(caught.value)


def test_the_unit_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`unit` must be 2 to 12 capital letters"):
        Ledger(tmp_path / "guerdon.db", unit="€")
    with Ledger(tmp_path / "guerdon.db", unit="EUR") as ledger:
        assert ledger.unit == "EUR"
    with Ledger(tmp_path / "guerdon.db") as ledger:
        assert ledger.unit == "EUR"
    with pytest.raises(RefusedError, match="counts in EUR, not in USD"):
        Ledger(tmp_path / "guerdon.db", unit="USD")


def test_a_writer_in_another_process_is_seen(filled: str) -> None:
    code = (
        "import sys, json; from guerdon.ledger import Ledger; from tests.support.ledger_scenes import play, record\n"
        "with Ledger(sys.argv[1]) as ledger:\n"
        "    record(ledger, 'heart', play(5)[3:]); print(json.dumps(ledger.runs()[0].rounds))"
    )
    with Ledger(filled) as ledger:
        assert ledger.runs()[0].rounds == 3
        result = subprocess.run([sys.executable, "-c", code, filled], capture_output=True, text=True, check=True,
                                cwd=Path(__file__).parents[2])  # fmt: skip
        assert json.loads(result.stdout) == 5
        assert ledger.runs()[0].rounds == 5
        record(ledger, "heart", play(6)[5:])
        assert ledger.verify().holds


def test_one_ledger_serves_many_threads(filled: str) -> None:
    failures: list[BaseException] = []
    with Ledger(filled) as ledger:

        def work(index: int) -> None:
            try:
                for turn in range(4):
                    ledger.balances()
                    ledger.statement("north")
                    if index % 4 == 0:
                        ledger.move("deposit", "north", 1 + turn)
            except BaseException as error:  # noqa: BLE001 - shown below
                failures.append(error)

        threads = [threading.Thread(target=work, args=(index,)) for index in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert ledger.verify().problem is None
        assert next(row.deposit for row in ledger.balances() if row.agent == "north") == 4 * (1 + 2 + 3 + 4)


def test_a_join_that_was_refused_is_forgotten(filled: str) -> None:
    five = play(4, agents=5)[3]
    with Ledger(filled) as first, Ledger(filled) as second:
        with pytest.raises(RefusedError, match="agent 'north' has a signature"):
            first.record_round("heart", *five.arguments(), agents=[*NAMES, "alice"], signatures=[b"x"] * 5)
        second.enrol({"carol": None})
        second.record_round("heart", *five.arguments(), agents=[*NAMES, "bob"])
        first.record_round("heart", *play(5, agents=5)[4].arguments())
        assert first.verify().problem is None
        assert {row.agent for row in first.balances() if row.balance or row.carried} <= {*NAMES, "bob"}


def test_a_state_that_was_not_committed_is_forgotten(where: str) -> None:
    ours, theirs = play(3, REMEMBERING), play(3, REMEMBERING, seed=5)
    with Ledger(where) as first, Ledger(where) as second:
        first.start_run("run", NAMES, REMEMBERING, AT_ONCE)
        first.record_round("run", *ours[0].arguments())

        def fail(*_: Any) -> None:
            raise RuntimeError("the power fails")

        event.listen(first._database.engine, "commit", fail)
        with pytest.raises(RuntimeError, match="the power fails"):
            first.record_round("run", *ours[1].arguments())
        event.remove(first._database.engine, "commit", fail)
        second.record_round("run", *theirs[1].arguments())
        first.record_round("run", *ours[2].arguments())
        assert first.verify().problem is None


def test_a_reader_through_a_link_sees_everything(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "data" / "guerdon.db")
    with Ledger(tmp_path / "data" / "guerdon.db") as writer, Ledger(tmp_path / "link.db", read_only=True) as reader:
        for count in range(1, 4):
            writer.enrol({f"agent {count}": None})
            assert len(reader.balances()) == count


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    with Ledger(tmp_path / "guerdon.db") as ledger:
        ledger.enrol({"north": None})
        assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


@pytest.mark.parametrize("name", ["with space.db", "per%20cent.db", "what?.db", "hash#.db", "ünï.db"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        with Ledger(tmp_path / name) as ledger:
            ledger.enrol({"north": None})
    with Ledger(tmp_path / name, read_only=True) as ledger:
        assert ledger.verify().records == 2
    assert (tmp_path / name).is_file()


def test_no_password_is_shown_wherever_it_stands() -> None:
    with pytest.raises(UnavailableError) as caught:
        Ledger("postgresql://user@127.0.0.1:1/name?password=secret&sslpassword=secret")
    assert "secret" not in str(caught.value)


def test_options_of_the_address_are_kept_and_no_patience_is_no_waiting(filled: str) -> None:
    if "://" not in filled:
        pytest.skip("of PostgreSQL only")
    with Ledger(filled) as ledger, ledger._database.engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA tenant"))
    with Ledger(f"{filled}?options=-csearch_path%3Dtenant") as tenant:
        assert tenant.balances() == []
        assert tenant.verify().problem is None
    with Ledger(filled) as holder, Ledger(filled, patience=0) as waiting:
        with holder._database.writing(), pytest.raises(UnavailableError, match="another process is writing"):
            waiting.enrol({"x": None})
        assert waiting.verify().problem is None


def test_a_clock_set_back_does_not_reorder(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.enrol({"north": None})
    late = datetime(1999, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(journal, "datetime", type("Clock", (), {"now": staticmethod(lambda _: late)}))
    ledger.enrol({"south": None})
    assert ledger.verify().problem is None


def test_a_balance_that_is_too_large_is_refused_in_words(ledger: Ledger) -> None:
    ledger.enrol({"north": None})
    with ledger._database.engine.begin() as connection:
        connection.execute(text(f"UPDATE accounts SET balance = {2**63 - 6} WHERE kind = 'deposit'"))
    with pytest.raises(RefusedError, match=r"must be at most 9\.2 trillion units; nothing was written"):
        ledger.move("deposit", "north", 10)
    assert [row.deposit for row in ledger.balances()] == [2**63 - 6]


@pytest.mark.skipif(not SERVER, reason=NO_SERVER)
@pytest.mark.parametrize(
    ("address", "message"),
    [("/nowhere", "there is no such database on the server; check its name, or make it with `createdb NAME`"),
     ("stranger@", "the server does not let this user in; check user and password")],
)  # fmt: skip
def test_a_database_or_a_user_that_does_not_exist_is_named(address: str, message: str) -> None:
    server = str(SERVER).rpartition("/")[0]
    where = f"{server}{address}" if address[0] == "/" else re.sub("//.*?@", f"//{address}", str(SERVER))
    for read_only in (True, False):
        with pytest.raises(UnavailableError, match=message):
            Ledger(where, read_only=read_only)


def test_a_backup_verifies(filled: str, tmp_path: Path) -> None:
    with Ledger(filled) as ledger:
        receipt = ledger.sign(Ed25519PrivateKey.generate())
    with ExitStack() as stack:
        if "://" not in filled:
            copy = str(tmp_path / "copy.db")
            with closing(sqlite3.connect(filled)) as source, closing(sqlite3.connect(copy)) as destination:
                source.backup(destination)
        elif shutil.which("pg_dump") is None:
            pytest.skip("no pg_dump here")
        else:
            copy = stack.enter_context(new_database())
            dumped = subprocess.run([str(shutil.which("pg_dump")), filled], capture_output=True, check=True)
            subprocess.run(
                [str(shutil.which("psql")), "-q", copy], input=dumped.stdout, capture_output=True, check=True
            )
        with Ledger(copy) as ledger:
            assert ledger.verify(receipt).problem is None
            record(ledger, "heart", play(4)[3:])
            assert ledger.verify(receipt).problem is None
