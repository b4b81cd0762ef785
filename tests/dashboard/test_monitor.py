"""What the dashboard remembers of a ledger: it alarms when an older or another one takes its place."""

import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread

import numpy as np

from guerdon import gather, round_of
from guerdon.dashboard.monitor import QUIET, LedgerMonitor
from guerdon.dashboard.source import LedgerSource
from guerdon.ledger import Ledger
from tests.dashboard.conftest import ask, serving
from tests.support.ledger_scenes import AT_ONCE, NAMES, RULE, play, record


def put(copy: Path, path: Path) -> None:
    """Put a copy of a file in the place of a ledger."""
    for file in path.parent.glob(f"{path.name}-*"):
        file.unlink()
    shutil.copy(copy, path)


def looked(monitor: LedgerMonitor) -> tuple[str, str | None]:
    """Look and verify once, and return the badge and the problem."""
    monitor.look()
    monitor.verify()
    monitor.look()
    check = monitor.status.verification
    return check.state, check.problem


def test_an_older_file_over_a_failing_one_does_not_turn_the_badge_green(tmp_path: Path) -> None:
    path, old = tmp_path / "guerdon.db", tmp_path / "old.db"
    with Ledger(path) as ledger:
        ledger.start_run("run", NAMES, RULE, AT_ONCE)
        record(ledger, "run", play(2))
    shutil.copy(path, old)
    with Ledger(path) as ledger:
        record(ledger, "run", play(6)[2:])
    newest = shutil.copy(path, tmp_path / "newest.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE accounts SET balance = balance + 1 WHERE id = 1")
        connection.commit()
    monitor = LedgerMonitor(LedgerSource(str(path)))
    assert looked(monitor)[0] == "failed"
    put(old, path)
    state, problem = looked(monitor)
    assert state == "failed"
    assert "record 9 of ledger " in str(problem)
    assert "now it ends with record 5: it was set back or replaced" in str(problem)
    assert monitor.status.verification.summary == "the ledger was set back"
    with Ledger(path) as ledger:  # it grows past the record, but is another
        for one in play(8, seed=4)[2:]:
            ledger.record_round("run", *one.arguments())
    monitor.look()
    assert "now its record 9 is another" in str(monitor.status.setback)
    with Ledger(tmp_path / "other.db") as ledger:
        ledger.enrol({"north": None})
    put(tmp_path / "other.db", path)
    monitor.look()
    assert "now this is another ledger" in str(monitor.status.setback)
    path.unlink()
    monitor.look()
    assert monitor.status.verification.summary == "no ledger"
    put(Path(newest), path)
    assert looked(monitor) == ("verified", None), "the right one is back"


def test_a_ledger_that_grows_is_no_alarm(tmp_path: Path) -> None:
    monitor = LedgerMonitor(LedgerSource(str(tmp_path / "guerdon.db")))
    assert looked(monitor)[0] == "waiting"
    sent = np.ones(3, dtype=bool)
    with Ledger(tmp_path / "guerdon.db") as ledger:
        ledger.start_run("run", NAMES[:3], RULE, AT_ONCE)
        for number in (1, 2):
            ledger.record_round("run", number, round_of(gather(np.eye(3), sent), sent, 8))
            assert looked(monitor) == ("verified", None)


def test_pages_and_programs_are_told(tmp_path: Path) -> None:
    path = tmp_path / "guerdon.db"
    with Ledger(path) as ledger:
        ledger.enrol({"north": None})
    shutil.copy(path, tmp_path / "old.db")
    with Ledger(path) as ledger:
        ledger.enrol({"south": None})
    with serving(path) as served:
        put(tmp_path / "old.db", path)
        served.app.state.monitor.look()
        status = ask(served, "/api/status").json()
        assert status["setback"] == status["verification"]["problem"]
        page = ask(served, "/agents").text
        assert "the ledger was set back" in page
        assert "Do not pay anything out before this is explained" in page


def test_verification_waits_until_what_was_asked_is_answered(tmp_path: Path) -> None:
    with Ledger(tmp_path / "guerdon.db") as ledger:
        ledger.enrol({"north": None})
    monitor = LedgerMonitor(LedgerSource(str(tmp_path / "guerdon.db")))
    monitor._asked = -math.inf  # long ago
    waiting = Thread(target=monitor._give_way)
    with monitor.answering():
        waiting.start()
        waiting.join(2 * QUIET)  # longer than it waits after a request
        assert waiting.is_alive()
    monitor._asked = -math.inf
    waiting.join(10)
    assert not waiting.is_alive()
