"""A dashboard that is really served, and a real browser that looks at it."""

import http.client
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI

from guerdon.dashboard.app import create_app
from guerdon.dashboard.security import Access
from guerdon.dashboard.serve import DashboardServer
from guerdon.ledger import Ledger
from guerdon.web import Connections, address_of, listen
from tests.support.dashboard_scenes import large_ledger, small_ledger

CHROMIUM = os.environ.get("GUERDON_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
NO_BROWSER = "no Chromium: apt-get install chromium, or set GUERDON_TEST_CHROMIUM to its path"


class Served(NamedTuple):
    """A dashboard that answers at an address."""

    app: FastAPI
    address: str


@contextmanager
def serving(
    where: str | Path, report: Path = Path("no-report"), access: Access | None = None, pilot: Path | None = None,
    connections: Connections | None = None,
) -> Generator[Served]:  # fmt: skip
    """Serve the dashboard of a ledger on a free port, in a thread."""
    app = create_app(str(where), report, access, pilot)
    connections = connections or Connections()
    with listen("127.0.0.1", 0, connections) as opened:
        server = DashboardServer(app, connections)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        try:
            yield Served(app, address_of(opened, "127.0.0.1").rstrip("/"))
        finally:
            app.state.monitor.close()
            server.should_exit = True
            thread.join(timeout=20)
            assert not thread.is_alive(), "the server did not stop"


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """A function that serves a ledger until the test ends."""
    with ExitStack() as stack:
        yield lambda *arguments, **more: stack.enter_context(serving(*arguments, **more))


@pytest.fixture(scope="session")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that gives the ledger of a kind: missing, empty, small, large; made once, not to be written to."""
    folder, made = tmp_path_factory.mktemp("ledgers"), dict[str, Path]()

    def make(kind: str) -> Path:
        if kind not in made:
            path = made[kind] = folder / f"{kind}.db"
            if kind != "missing":
                fill: dict[str, Callable[[Path], None]] = {"small": small_ledger, "large": large_ledger}
                fill.get(kind, lambda path: Ledger(path, unit="EUR").close())(path)
        return made[kind]

    return make


@pytest.fixture
def small(ledgers: Callable[[str], Path], tmp_path: Path) -> Path:
    """A small ledger of one's own, which may be written to, damaged and removed."""
    for file in ledgers("small").parent.glob("small.db*"):
        shutil.copy(file, tmp_path / file.name)
    return tmp_path / "small.db"


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


def ask(served: Served, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """Ask a served dashboard as a program does, following no redirect."""
    connection = http.client.HTTPConnection(served.address.removeprefix("http://"), timeout=30)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        text = answer.read().decode()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, text)
    finally:
        connection.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser."""
    if CHROMIUM is None:
        pytest.skip(NO_BROWSER)
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Visitor:
    """A person with a browser: what must never happen is noted in `troubles`, every address in `asked`."""

    def __init__(self, browser: Any, **settings: Any) -> None:
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | settings))
        self.page = self.context.new_page()
        self.troubles: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", self._refuse)

    def visit(self, address: str, status: int = 200) -> Any:
        """Open a page, which must answer with that status, and return it."""
        answer = self.page.goto(address)
        assert answer is not None
        assert answer.status == status, f"{address}: {answer.status}"
        return self.page

    def until(self, expression: str) -> None:
        """Wait until an expression of JavaScript is true; the policy forbids the page itself to evaluate one."""
        end = time.monotonic() + 20
        while not self.page.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            self.page.wait_for_timeout(50)

    def drawn(self, *charts: str) -> None:
        """Wait until charts are drawn."""
        for chart in charts:
            self.until(f"document.querySelectorAll('#{chart} .main-svg').length > 0")

    def _refuse(self, dialog: Any) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"{message.type}: {message.text}")

    def leave(self, host: str) -> None:
        """Close, and make sure that nothing went wrong and nothing was asked of anybody but `host`."""
        self.context.close()
        assert self.troubles == []
        assert [url for url in self.asked if not url.startswith((f"{host}/", "data:"))] == []


@pytest.fixture
def visitor(chromium: Any) -> Iterator[Visitor]:
    """A person with a browser; the test ends with `leave`."""
    one = Visitor(chromium)
    yield one
    one.context.close()
