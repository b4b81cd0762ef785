"""A ledger that was paid by a version of a rule that is not installed here: said as that, never as a forgery."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from guerdon import AffineCost, FixedRequest, FlatPay
from guerdon.dashboard.monitor import LedgerMonitor
from guerdon.dashboard.source import LedgerSource
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.pay.recorded_rules import restored
from guerdon.run.driver import open_run
from guerdon.statistical.servers import server_for
from tests.dashboard.conftest import ask, serving
from tests.support import command_line
from tests.support.ledger_scenes import AT_ONCE, NAMES, RULE, play

FLAT = FlatPay(AffineCost(1, 1))
MISSING = "the rule 'flat' was recorded in version 2, and version 1 is installed here; "


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger with a run by version 2 of a rule of which version 1 is installed, and another that can be verified."""
    path = tmp_path / "guerdon.db"
    with monkeypatch.context() as later, Ledger(path) as ledger:
        later.setattr(FlatPay, "version", 2)
        ledger.start_run("late", NAMES, FLAT, AT_ONCE)
        ledger.start_run("heart", NAMES, RULE, AT_ONCE)
        for one, other in zip(play(3, FLAT), play(3), strict=True):
            ledger.record_round("late", *one.arguments(), payments=one.payments)
            ledger.record_round("heart", *other.arguments(), payments=other.payments)
        assert ledger.verify().holds
    restored.cache_clear()
    return path


def test_verify_says_what_to_install_and_checks_all_else(path: Path) -> None:
    with Ledger(path, read_only=True) as ledger:
        found = ledger.verify()
    assert (found.problem, found.holds, found.payments) == (None, False, 24)
    assert str(found.unverifiable).startswith(f"pay was not recomputed from round 1 of run 'late' on: {MISSING}")
    assert "install the release of guerdon that has this version" in str(found.unverifiable)
    assert "heart" not in str(found.unverifiable)


@pytest.mark.parametrize("run", ["heart", "late"])
def test_what_is_wrong_is_still_called_wrong(path: Path, run: str) -> None:
    """A payment is covered by the chain whichever rule made it."""
    with Ledger(path, read_only=True) as ledger:
        record = ledger.rounds(run)[1].record
    with closing(sqlite3.connect(path)) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(f"UPDATE payments SET released = released + 1 WHERE record = {record}")
        connection.commit()
    with Ledger(path, read_only=True) as ledger:
        assert ledger.verify().problem is not None


def test_the_command_line_has_words_and_a_status_for_it(path: Path) -> None:
    shown = command_line.run("ledger", "verify", cwd=path.parent)
    assert shown.code == 3
    assert f"? cannot be verified here: pay was not recomputed from round 1 of run 'late' on: {MISSING}" in shown.stdout
    assert "All else holds: 10 records, 24 payments, " in shown.stdout
    told = command_line.run("ledger", "verify", "--json", cwd=path.parent)
    read = json.loads(told.stdout)
    assert (told.code, read["holds"], read["problem"]) == (3, False, None)
    assert MISSING in read["unverifiable"]


def test_the_dashboard_says_so_without_an_alarm(path: Path) -> None:
    monitor = LedgerMonitor(LedgerSource(str(path)))
    monitor.look()
    monitor.verify()
    check = monitor.status.verification
    assert (check.state, check.summary) == ("unverifiable", "cannot be verified here")
    assert MISSING in str(check.problem)
    with serving(path) as served:
        served.app.state.monitor.verify()
        page = ask(served, "/payouts").text
        assert 'id="unverifiable"><b>The ledger cannot be verified here.</b>' in page
        assert 'id="broken" hidden' in page
        metrics = ask(served, "/metrics").text
        runs, run = ask(served, "/runs"), ask(served, "/runs/1")
    assert "guerdon_ledger_sound 1" in metrics
    assert "guerdon_ledger_verified_record " not in metrics
    assert "flat, in version 2, which is not installed here" in runs.text
    assert "install the release of guerdon that has this version" in run.text


def test_the_run_is_not_gone_on_with_by_another_version(path: Path) -> None:
    said = "run 'late' was started with version 2 of the rule 'flat', and version 1 is installed here"
    with Ledger(path) as ledger:
        before = ledger.verify()
        with pytest.raises(RefusedError, match=f"{said}.* or begin another run"):
            open_run(server_for(FLAT, FixedRequest(8, 0.1)), ledger, "late", {"w": np.zeros(6)})
        with pytest.raises(RefusedError, match=MISSING):
            ledger.resume("late")
        with pytest.raises(RefusedError, match=MISSING):
            ledger.record_round("late", *play(4, FLAT)[3].arguments())
        assert ledger.verify() == before
        assert ledger.resume("heart") is not None


def test_what_needs_no_rule_is_read_as_before(path: Path) -> None:
    with Ledger(path, read_only=True) as ledger:
        assert {row.agent for row in ledger.earnings("late")} == set(NAMES)
        assert all(row.round_cost == 9 for row in ledger.earnings("late"))
        assert len(ledger.balances()) == len(NAMES)
        assert [row.round for row in ledger.rounds("late")] == [1, 2, 3]
