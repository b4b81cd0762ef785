"""Who may look, and what pages may do: hosts, tokens, policy, and names that would like to be markup."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

from guerdon.dashboard.security import (
    COOKIE,
    FREE_GUESSES,
    LONGEST_WAIT,
    SESSION,
    Access,
    GuessedError,
    check_token,
    safe_next,
)
from guerdon.dashboard.serve import find_token
from guerdon.ledger import Ledger
from guerdon.web import Exposure, is_loopback, read_proxies
from tests.dashboard.conftest import Served, Visitor, ask
from tests.dashboard.test_live import tamper
from tests.support.dashboard_scenes import Training

TOKEN = "correct-horse-battery-staple"  # noqa: S105
HOSTILE = [
    '<img src=x onerror="alert(1)">',
    "<script>alert(2)</script>",
    "<b>bold</b> & <a href='javascript:alert(3)'>x</a>",
    "{{ 7 * 7 }}{% include 'base.html' %}",
    "$\\frac{1}{0}$ %{x} <br><sup>up</sup>",
    "日本語 العربية 👩🔬 é ﷽",
    "</title></script><svg onload=alert(4)>" + "x" * 150,
    "=HYPERLINK(\"http://evil.example\")",
]  # fmt: skip


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A ledger in which all that can be named is named badly."""
    path = tmp_path / "hostile.db"
    names = [f"{name}"[:200] for name in HOSTILE]
    with Ledger(path) as ledger:
        training = Training(ledger, "<script>alert('run')</script>", names)
        training.play(12, metrics={"<i>loss</i><script>alert(5)</script>": 0.5, "b": 1.0}, notes=names)
        ledger.settle_payout(ledger.payout(memo="<script>alert('memo')</script>"), "paid")
    return path


def test_names_never_become_markup(hostile: Path, serve: Callable[..., Served], visitor: Visitor) -> None:
    served = serve(hostile)
    page = visitor.visit(f"{served.address}/runs/1")
    visitor.drawn("learning", "pay", "spread", "matrix")
    for chart in ("learning", "pay", "matrix", "distances"):
        page.locator(f"#{chart} summary").click()
    # Nothing in the charts is bold, raised or linked, and no element was made from a name.
    assert page.locator(".plot a, .plot b, .plot sup, main img, main script, main svg a").count() == 0
    assert page.evaluate("[...document.querySelectorAll('.plot tspan')].filter(e => e.style.fontWeight).length") == 0
    labels = page.locator("#pay .ytick").all_text_contents()
    assert any(label.startswith("<img src=x onerror=") for label in labels), labels
    assert any(label.startswith("<b>bold</b> & <a") for label in labels), labels
    table = page.locator("#pay tbody").inner_text()
    for name in HOSTILE:
        assert name[:200] in table
    page.locator("#pay .plot").hover()
    for path in ("/runs", "/agents", "/payouts", "/payouts/1", *(f"/agents/{number}" for number in range(1, 9))):
        page = visitor.visit(served.address + path)
        assert page.locator("main img, main script, main svg").count() in (0, page.locator(".plot svg").count()), path
    assert HOSTILE[3] in visitor.visit(f"{served.address}/agents").inner_text("main")
    visitor.leave(served.address)


def test_names_that_are_too_long_do_not_get_in(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        for name in ("x" * 10_000, "é" * 201, "tab\there", "\u202eturned"):
            with pytest.raises(ValueError, match="printable characters"):
                ledger.enrol({name: None})


def test_a_whole_statement_of_a_hostile_agent(hostile: Path, serve: Callable[..., Served], visitor: Visitor) -> None:
    served = serve(hostile)
    page = visitor.visit(f"{served.address}/agents/1/statement.html")
    assert page.locator("img, script").count() == 0
    answer = ask(served, "/agents/1/statement.html")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "script-src" not in answer.headers["content-security-policy"]
    assert "attachment" in ask(served, "/agents/1/statement.csv").headers["content-disposition"]
    visitor.leave(served.address)


@pytest.mark.parametrize("path", ["/runs", "/runs/1", "/runs/999", "/api/runs", "/api/nothing", "/static/style.css", "/playground", "/api"])  # noqa: E501  # fmt: skip
def test_headers_on_every_answer(ledgers: Callable[[str], Path], serve: Callable[..., Served], path: str) -> None:
    headers = ask(serve(ledgers("small")), path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:1", 200), ("localhost", 200), ("[::1]:80", 200), ("127.9.9.9", 200), ("evil.example", 421),
     ("evil.example:8733", 421), ("127.0.0.1.evil.example", 421), ("", 421), ("localhost.evil.example:80", 421)],
)  # fmt: skip
def test_only_this_machine_by_its_own_name(
    ledgers: Callable[[str], Path], serve: Callable[..., Served], host: str, status: int
) -> None:
    served = serve(ledgers("empty"))
    for path in ("/runs", "/api/status", "/static/style.css", "/login"):
        expected = 303 if (path, status) == ("/login", 200) else status
        assert ask(served, path, Host=host).status == expected, path


def test_other_sites_may_not_ask(ledgers: Callable[[str], Path], serve: Callable[..., Served]) -> None:
    served = serve(ledgers("empty"))
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert ask(served, "/api/game", Sec_Fetch_Site=site).status == status


@pytest.fixture
def locked(ledgers: Callable[[str], Path], serve: Callable[..., Served]) -> Served:
    """A dashboard that asks for a token."""
    return serve(ledgers("small"), access=Access(TOKEN, loopback=False))


def test_without_the_token_nothing_is_shown(locked: Served) -> None:
    for path in (
        "/runs",
        "/runs/1",
        "/agents/1/statement.json",
        "/payouts",
        "/playground",
        "/report",
        "/pilot",
        "/api",
        "/logout",
    ):
        answer = ask(locked, path)
        assert answer.status == (401 if path == "/api" else 303), path
        assert "heart 2026" not in answer.text
    for path in ("/api/runs", "/api/status", "/api/events", "/api/openapi.json", "/api/game"):
        answer = ask(locked, path)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    for given in ("Bearer wrong", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer é"):
        locked.app.state.access.guesses._wrong.clear()  # or the last would have to wait
        assert ask(locked, "/api/runs", Authorization=given.encode().decode("latin-1")).status == 401, given
    assert ask(locked, f"/api/runs?token={TOKEN}").status == 401, "a token in an address is no token"
    assert ask(locked, "/runs", Cookie=f"{COOKIE}={TOKEN}").status == 303
    assert ask(locked, "/runs", Cookie=f'{COOKIE}="a;b\\"; =').status == 303


def test_who_is_not_let_in_learns_nothing(small: Path, serve: Callable[..., Served]) -> None:
    tamper(small)
    served = serve(small, access=Access(TOKEN, loopback=False))
    while served.app.state.monitor.status.verification.state != "failed":
        time.sleep(0.05)
    pages = [ask(served, path).text for path in ("/login", "/static/nothing", "/static/%2e%2e%2fapp.py")]
    pages.append(ask(served, "/login", "POST", b"token=wrong").text)
    told = ask(served, "/payouts", Authorization=f"Bearer {TOKEN}").text
    secrets = ["Vigo", "EUR", "verification failed", str(served.app.state.monitor.status.head)]
    for secret in secrets:
        assert secret in told, "or this test shows nothing"
        assert not [page for page in pages if secret in page]


def test_with_the_token(locked: Served) -> None:
    assert ask(locked, "/api/runs", Authorization=f"Bearer {TOKEN}").status == 200
    form = urlencode({"token": TOKEN, "next": "/playground?agents=5"}).encode()
    answer = ask(locked, "/login", "POST", form)
    assert (answer.status, answer.headers["location"]) == (303, "/playground?agents=5")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert TOKEN not in cookie
    assert ask(locked, "/runs", Cookie=cookie.split(";")[0]).status == 200
    assert ask(locked, "/api/runs", Cookie=cookie.split(";")[0]).status == 200
    assert ask(locked, "/login", "POST", urlencode({"token": "wrong"}).encode()).status == 401
    assert ask(locked, "/login", "POST", b"x" * 100_000).status == 413


def test_logging_in_with_a_browser(locked: Served, visitor: Visitor) -> None:
    page = visitor.visit(f"{locked.address}/playground?agents=5")
    assert page.url.endswith("/login?next=%2Fplayground%3Fagents%3D5")
    page.get_by_label("Token").fill("not the token at all")
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("this is not the token.").wait_for()
    visitor.troubles.clear()  # the browser reports the 401
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/playground?agents=5*")
    visitor.drawn("curve")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    assert visitor.visit(f"{locked.address}/runs").url.endswith("/login?next=%2Fruns")
    assert not [url for url in visitor.asked if TOKEN in url]
    visitor.leave(locked.address)


def test_sessions_end_and_cannot_be_made_up() -> None:
    access = Access(TOKEN)
    session, now = access.session(), time.time()
    assert access.is_session(session)
    assert not access.is_session(session, now + SESSION + 1)
    assert not Access(TOKEN).is_session(session), "another process has other sessions"
    for nonsense in ("", ".", "9" * 400, f"{session}x", session[:-1], "é.é", "\udc80"):
        assert not access.is_session(nonsense)
    access.session(now + SESSION + 1)
    assert len(access._sessions) == 1, "what is over is forgotten"
    assert TOKEN not in repr(access._sessions)


@pytest.mark.parametrize("before", ['prefs={"a":1}; ', "a[b]=c d; ", "=; ;", f"{COOKIE}=stale; ", "x=é; "])
def test_cookies_of_other_programs_do_not_end_a_session(before: str) -> None:
    access = Access(TOKEN)
    assert access.admits({"cookie": f"{before}{COOKIE}={access.session()}; after=1"})
    assert not access.admits({"cookie": f"{before}x{COOKIE}={access.session()}"})


def test_a_cookie_is_worth_nothing_after_logout(locked: Served) -> None:
    cookies = [
        ask(locked, "/login", "POST", urlencode({"token": TOKEN}).encode()).headers["set-cookie"].split(";")[0]
        for _ in range(2)
    ]
    assert [ask(locked, "/api/runs", Cookie=cookie).status for cookie in cookies] == [200, 200]
    assert ask(locked, "/logout", "POST", Cookie=cookies[0]).status == 303
    assert [ask(locked, "/api/runs", Cookie=cookie).status for cookie in cookies] == [401, 200]


def test_guesses_wait_ever_longer_and_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    access, now, tried, waits = Access(TOKEN), 1000.0, list[float](), list[int]()
    session = access.session()
    while now < 1300:
        try:
            assert not access.knows("wrong", "10.0.0.7", now)
            tried.append(now)
        except GuessedError as error:
            waits.append(int(error.headers["retry-after"]))
        now += 0.25
    assert (min(waits), max(waits)) == (1, LONGEST_WAIT)
    gaps = np.diff(tried)
    assert gaps[:FREE_GUESSES].tolist() == [0.25] * (FREE_GUESSES - 1) + [1.0]
    assert gaps[FREE_GUESSES:].tolist() == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert [record.getMessage() for record in caplog.records][:2] == [
        f"wrong token from 10.0.0.7 ({n})" for n in (1, 2)
    ]
    assert len(caplog.records) == len(tried)
    assert TOKEN not in caplog.text
    assert "wrong" not in caplog.text.replace("wrong token", ""), "nor is the guess logged"
    with pytest.raises(GuessedError):
        access.knows("wrong", "10.0.0.7", tried[-1] + 1)
    assert access.knows(TOKEN, "10.0.0.7", tried[-1] + 1), "who has the token does not wait for others at its address"
    assert not access.knows("wrong", "10.0.0.8", tried[-1] + 1), "another address does not wait"
    assert access.admits({"cookie": f"{COOKIE}={session}"}, "10.0.0.7"), "who is logged in does not either"
    assert not access.knows("wrong", "10.0.0.7", tried[-1] + 3600)
    assert caplog.records[-1].getMessage() == "wrong token from 10.0.0.7 (1)", "an hour later it is forgotten"


def test_one_network_of_ipv6_is_one_address() -> None:
    access = Access(TOKEN)
    for number in range(FREE_GUESSES):
        assert not access.knows("wrong", f"2001:db8::{number}", 0.0)
    with pytest.raises(GuessedError):
        access.knows("wrong", "2001:db8::ffff", 0.0)
    assert not access.knows("wrong", "2001:db8:0:1::1", 0.0)


def test_of_too_many_addresses_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guerdon.dashboard.security.MOST_ADDRESSES", 3)
    access = Access(TOKEN)
    for number in range(9):
        access.knows("wrong", f"10.0.0.{number}", 0.0)
    assert list(access.guesses._wrong) == ["10.0.0.6", "10.0.0.7", "10.0.0.8"]


def test_guessing_at_the_door(locked: Served) -> None:
    """By the form and by the header alike; each request counts once."""
    form = urlencode({"token": "wrong"}).encode()
    answers = [ask(locked, "/login", "POST", form).status for _ in range(3)]
    answers += [ask(locked, "/api/runs", Authorization="Bearer wrong").status for _ in range(2)]
    assert answers == [401] * 5
    waiting = ask(locked, "/login", "POST", form)
    assert (waiting.status, waiting.headers["retry-after"]) == (429, "1")
    assert "too many wrong tokens came from this address" in waiting.text
    refused = ask(locked, "/api/runs", Authorization="Bearer wrong")
    assert (refused.status, refused.json()["title"]) == (429, "Too many requests")
    assert ask(locked, "/api/runs", Authorization=f"Bearer {TOKEN}").status == 200
    assert ask(locked, "/login", "POST", urlencode({"token": TOKEN}).encode()).status == 303


@pytest.mark.parametrize("path", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "", "/a\nb"])  # noqa: E501  # fmt: skip
def test_login_leads_nowhere_else(path: str) -> None:
    assert safe_next(path) == "/"


def test_where_the_token_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GUERDON_DASHBOARD_TOKEN", raising=False)
    here, there = Exposure(), Exposure("0.0.0.0")  # noqa: S104
    assert find_token(here, None) == (None, False)
    assert find_token(Exposure(proxies=read_proxies("127.0.0.1")), None)[1], "the proxy's users are not on this machine"
    made, told = find_token(there, None)
    assert told
    assert made is not None
    assert len(made) > 40
    assert made != find_token(there, None)[0]
    monkeypatch.setenv("GUERDON_DASHBOARD_TOKEN", TOKEN)
    assert find_token(here, None) == (TOKEN, False)
    (tmp_path / "token").write_text(f"{TOKEN}-2\n")
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(ValueError, match=r"`--token-file` must be a file that other users cannot open, .*mode 0644"):
        find_token(there, tmp_path / "token")
    (tmp_path / "token").chmod(0o640)
    assert find_token(there, tmp_path / "token") == (f"{TOKEN}-2", False)
    for short in ("", "short", "has a space in it, long", "é" * 20):
        with pytest.raises(ValueError, match="at least 16 ASCII characters"):
            check_token(short)
    assert not is_loopback("10.0.0.1")


def test_nothing_secret_is_printed(ledgers: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    command = [str(Path(sys.executable).parent / "guerdon"), "dashboard", "--db", str(ledgers("small")), "--port", "0"]
    command += ["--no-browser", "--token-file", str(tmp_path / "token"), "--host", "127.0.0.1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"TERM": "dumb"})  # noqa: E501  # fmt: skip
    assert process.stderr is not None
    try:
        first = process.stderr.readline()
        served = Served(None, re.search(r"http://[^/]+", first)[0])  # pyright: ignore[reportArgumentType, reportOptionalSubscript]
        assert ask(served, "/api/runs", Authorization=f"Bearer {TOKEN}").status == 200
        assert ask(served, f"/api/runs?token={TOKEN}").status == 401
        assert ask(served, "/login", "POST", urlencode({"token": TOKEN}).encode()).status == 303
    finally:
        process.terminate()
        out, error = process.communicate(timeout=20)
    assert process.returncode in (0, -15)
    assert TOKEN not in first + out + error
    assert error == "", "nothing is logged"
