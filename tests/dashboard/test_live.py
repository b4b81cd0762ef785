"""What happens while one looks: rounds are recorded, the ledger is tampered with, disappears and comes back."""

import http.client
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from guerdon.dashboard import monitor
from guerdon.ledger import Ledger
from tests.dashboard.conftest import Served, Visitor, ask
from tests.support.dashboard_scenes import NAMES, Training

pytestmark = pytest.mark.slow  # each of them waits for something to happen

GUERDON = str(Path(sys.executable).parent / "guerdon")


def test_rounds_appear_without_a_reload(tmp_path: Path, serve: Callable[..., Served], visitor: Visitor) -> None:
    path = tmp_path / "live.db"
    served = serve(path)
    page = visitor.visit(f"{served.address}/runs")
    page.evaluate("window.same = true")
    assert "There is no ledger here yet" in page.inner_text("main")
    with Ledger(path, unit="EUR") as ledger:
        training = Training(ledger, "live", NAMES)
        page.get_by_role("link", name="live").wait_for()
        assert page.evaluate("window.same"), "the page was not loaded again"
        page.get_by_role("link", name="live").click()
        page.wait_for_url("**/runs/1")
        page.evaluate("window.same = true")
        for number in (1, 2, 5):
            training.play(number - training.number)
            visitor.until(f"document.querySelector('#run').dataset.drawn === '{number}'")
            assert page.locator(".tiles li").first.inner_text().split() == [str(number), "rounds"]
        assert page.evaluate("document.querySelector('#request .plot').data[0].x") == [1, 2, 3, 4, 5]
        visitor.until("document.querySelector('#verification').dataset.state === 'verified'")
        ledger.payout()
    assert page.evaluate("window.same"), "the page was not loaded again"
    visitor.leave(served.address)


def test_rounds_by_another_process_reach_the_stream(small: Path, serve: Callable[..., Served]) -> None:
    served = serve(small)
    connection = http.client.HTTPConnection(served.address.removeprefix("http://"), timeout=20)
    connection.request("GET", "/api/events")
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    before = next_status(answer)
    assert before["available"]
    subprocess.run([GUERDON, "ledger", "enrol", "newcomer", "--db", str(small)], check=True, capture_output=True)
    while (now := next_status(answer))["record"] == before["record"]:
        pass
    assert now["record"] == before["record"] + 1
    assert now["head"] != before["head"]
    connection.close()


def next_status(answer: Any) -> dict[str, Any]:
    for line in answer:
        if line.startswith(b"data: "):
            return json.loads(line[6:])
    raise AssertionError("the stream ended")


def tamper(path: Path) -> None:
    """Give Vigo a million more, as a person with write access to the file could."""
    with closing(sqlite3.connect(path)) as connection:
        triggers = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in names:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE payments SET released = released + 1000000 WHERE record = 20 AND position = 5")
        for sql in triggers:
            connection.execute(sql)
        connection.commit()


def test_a_tampered_ledger_is_shown_in_red(small: Path, serve: Callable[..., Served], visitor: Visitor) -> None:
    tamper(small)
    served = serve(small)
    for path in ("/runs", "/runs/1", "/agents/6", "/payouts", "/playground"):
        page = visitor.visit(served.address + path)
        page.wait_for_selector("#verification[data-state=failed]")
        assert page.locator("#verification").inner_text() == "verification failed"
        assert page.evaluate("getComputedStyle(document.querySelector('#verification')).backgroundColor") == "rgb(179, 38, 30)"  # noqa: E501  # fmt: skip
        banner = page.locator("#broken")
        assert banner.is_visible()
        assert "Vigo" in banner.inner_text()
        assert "does not have the hash of its contents" in banner.inner_text()
    assert ask(served, "/api/status").json()["verification"]["state"] == "failed"
    visitor.leave(served.address)


def test_tampering_while_one_looks(
    small: Path, serve: Callable[..., Served], visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "AGAIN", 0.5)
    monkeypatch.setattr(monitor, "REST", 0.0)
    served = serve(small)
    page = visitor.visit(f"{served.address}/runs/1")
    page.wait_for_selector("#verification[data-state=verified]")
    tamper(small)  # the head does not move
    page.wait_for_selector("#broken:visible")
    visitor.leave(served.address)


def test_what_cannot_be_read_is_said(small: Path, serve: Callable[..., Served], visitor: Visitor) -> None:
    with closing(sqlite3.connect(small)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE rounds SET metrics = 'not json'")
        connection.execute("UPDATE runs SET rule = 'nor this' WHERE id = 2")
        connection.commit()
    served = serve(small)
    assert ask(served, "/agents").status == 200, "what can be read is shown"
    for path in ("/runs/2", "/api/runs", "/api/runs/1/rounds"):
        answer = ask(served, path)
        assert answer.status == 503, path
        assert "run `guerdon ledger verify`" in answer.text
        assert "Traceback" not in answer.text
    page = visitor.visit(f"{served.address}/runs/1")
    page.wait_for_selector("#stale:visible")
    assert "cannot be read" in page.locator("#stale").inner_text()


def test_a_database_that_disappears_and_comes_back(
    small: Path, serve: Callable[..., Served], visitor: Visitor, capfd: pytest.CaptureFixture[str]
) -> None:
    served = serve(small)
    page = visitor.visit(f"{served.address}/runs/1")
    visitor.drawn("matrix")
    page.wait_for_selector("#verification[data-state=verified]")
    page.evaluate("window.same = true")
    hidden = small.with_suffix(".hidden")
    for file in small.parent.glob("small.db-*"):
        file.unlink()
    small.rename(hidden)
    page.wait_for_selector("#gone:visible")
    assert (
        "there is no" in page.locator("#gone").inner_text() or "cannot be opened" in page.locator("#gone").inner_text()
    )
    assert page.locator("#verification").inner_text() == "no ledger"
    assert "heart 2026" in page.inner_text("h1"), "what was read before is still shown"
    for path, status in (("/runs", 200), ("/runs/1", 503), ("/agents", 503), ("/playground", 200), ("/api/runs", 503)):
        answer = ask(served, path)
        assert answer.status == status, path
        assert "Traceback" not in answer.text
    shutil.copy(hidden, small)
    page.wait_for_selector("#gone", state="hidden")
    page.wait_for_selector("#verification[data-state=verified]")
    assert ask(served, "/runs/1").status == 200
    assert page.evaluate("window.same")
    assert "Traceback" not in capfd.readouterr().err
    visitor.leave(served.address)


def test_another_ledger_in_the_same_place(small: Path, serve: Callable[..., Served], tmp_path: Path) -> None:
    served = serve(small)
    assert ask(served, "/api/runs/1/rounds").json()["round"][-1] == 62
    other = tmp_path / "other.db"
    with Ledger(other, unit="USD") as ledger:
        Training(ledger, "heart 2026", NAMES, seed=9).play(3)
    for file in tmp_path.glob("small.db-*"):
        file.unlink()
    os.replace(other, small)
    rounds = ask(served, "/api/runs/1/rounds").json()
    assert (rounds["round"], rounds["unit"]) == ([1, 2, 3], "USD"), "nothing of the old one is left"


def test_a_server_that_goes_away(small: Path, visitor: Visitor) -> None:
    process, served = start("--db", str(small))
    page = visitor.visit(f"{served.address}/runs")
    page.wait_for_selector("#verification[data-state=verified]")
    process.terminate()
    _, error = process.communicate(timeout=20)
    assert error == "", "an open stream does not hold it up"
    page.wait_for_selector("#offline:visible")
    assert (page.locator("#verification").get_attribute("data-state"), page.inner_text("#verification")) == (
        "none",
        "not connected",
    )
    visitor.context.close()


def test_a_run_falls_silent_while_one_looks(
    small: Path, serve: Callable[..., Served], visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(small) as ledger:
        Training(ledger, "ends", NAMES).play(2)
    monkeypatch.setattr("guerdon.dashboard.explanations.QUIET", 4.0)
    served = serve(small)
    page = visitor.visit(f"{served.address}/runs")
    row = page.locator("tr", has_text="ends").locator(".state")
    assert row.inner_text() == "active"
    visitor.until("![...document.querySelectorAll('.state')].some((state) => state.textContent === 'active')")
    assert row.inner_text() == "quiet"
    visitor.leave(served.address)


def start(*arguments: str) -> tuple[subprocess.Popen[str], Served]:
    command = [GUERDON, "dashboard", "--port", "0", "--no-browser", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    found = re.search(r"http://[^/]+", process.stderr.readline())
    assert found is not None
    return process, Served(None, found[0])  # pyright: ignore[reportArgumentType]


def refused(*arguments: str, code: int = 2, **environment: str) -> str:
    """Run the command, which must fail with one line and no traceback."""
    env = os.environ | {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "300"} | environment
    command = [GUERDON, "dashboard", "--no-browser", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.strip()


def test_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        message = refused("--port", port)
    assert message == (
        f"error: cannot listen on port {port} of 127.0.0.1 (Address already in use); choose another with --port, or 0 for any"  # noqa: E501
    )


def test_what_else_can_be_wrong(tmp_path: Path) -> None:
    refusal = refused("--host", "nowhere.invalid")
    assert "`--host` must be an address of this machine only where there is no TLS, got 'nowhere.invalid'" in refusal
    assert "at least 16 ASCII characters" in refused(GUERDON_DASHBOARD_TOKEN="short")  # noqa: S106
    assert "`--token-file` must be a file that can be read" in refused("--token-file", str(tmp_path / "none"))
    assert "a ledger is kept in an SQLite file or in PostgreSQL" in refused("--db", "mysql://root:secret@x/y")


def test_a_missing_extra(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nold = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'fastapi' else old(name, package)\n"
    )
    message = refused(PYTHONPATH=str(tmp_path))
    assert message == "error: `guerdon dashboard` needs fastapi; in a checkout: pip install '.[dashboard]'"


@pytest.mark.slow
def test_it_stops_at_once_with_a_verification_running(ledgers: Callable[[str], Path]) -> None:
    process, served = start("--db", str(ledgers("large")))
    assert ask(served, "/api/status").json()["verification"]["state"] in ("waiting", "checking")
    begun = time.monotonic()
    process.terminate()
    _, error = process.communicate(timeout=20)
    assert error == ""
    assert time.monotonic() - begun < 10
