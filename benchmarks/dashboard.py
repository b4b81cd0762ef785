"""The dashboard on 200,000 payments and on a million: what pages take, from asking to the last byte, and drawn.

The peer of a page is the playground in the same run: the page that shows nothing from the ledger. Every page is
requested from a server that has just started and has read nothing yet, as by a user who opens the dashboard. Promised
are the page with the data of its charts, the moment when a browser (where there is one) shows it, and a run's first
chart. Promises are for a quiet machine. The processor time of the server, and of the browser's main thread until the
last chart, says what a busy one would do if it were quiet.

`python -m benchmarks dashboard` runs this one alone.
"""

import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rich.table import Table
from tests.support.dashboard_scenes import large_ledger

from benchmarks.measure import Promise

AGENTS, ROUNDS = 100, 2_000  # 200,000 payments
MANY = (1_000, 1_000)  # agents and rounds of a million
RUNS = 3
FIRST_PAGE, FIRST_CHART, ANY_PAGE = 1.0, 1.0, 2.0  # seconds, promised
PAGES: dict[str, tuple[str, ...]] = {
    "/playground": (),
    "/runs": (),
    "/runs/1": ("/rounds", "/agents", "/distances", "/participation"),
    "/agents": (),
    "/agents/7": ("/runs/1",),
    "/agents/7?size=1000": ("/runs/1",),
    "/agents/7/statement.html": (),
    "/payouts": (),
    "/payouts/1": (),
}
LAST_CHARTS = {"/playground": "curve", "/runs/1": "matrix", "/agents/7": "course"}
CHROMIUM = shutil.which("chromium")
Measured = TypeVar("Measured", bound=tuple[Any, ...])


class Served(NamedTuple):
    """A server of the dashboard: its address, and the process."""

    host: str
    process: int


class Answered(NamedTuple):
    """Seconds until a page and the data of its charts had arrived, and the server's processor time for them."""

    whole: float
    processor: float


class Browsed(NamedTuple):
    """Seconds until a browser showed a page, its first chart and its last, and its main thread's processor time."""

    seen: float = 0.0
    first: float = 0.0
    last: float = 0.0
    processor: float = 0.0


def run() -> tuple[Table, list[Promise]]:
    """Return the table of measurements, and what was promised."""
    table = Table(title="dashboard, nothing read before (seconds)", title_justify="left")
    table.add_column("page")
    for heading in ("page and its numbers", "ratio", "server's CPU", "seen", "first chart", "last", "browser's CPU"):
        table.add_column(heading, justify="right")
    promises: list[Promise] = []
    with tempfile.TemporaryDirectory() as folder:
        sizes = {(AGENTS, ROUNDS): tuple(PAGES), MANY: ("/runs/1",)}
        peer = 0.0
        for (agents, rounds), paths in sizes.items():
            file = Path(folder) / f"{agents * rounds}.db"
            large_ledger(file, agents, rounds)
            for path in paths:
                answered = _best([_fresh(file, lambda served: _answered(served, path)) for _ in range(RUNS)])  # noqa: B023
                browsed = _best([_fresh(file, lambda served: _browsed(served, path)) for _ in range(RUNS)])  # noqa: B023
                peer = peer or answered.whole
                name = path if agents == AGENTS else f"{path}, {agents * rounds:,} payments"
                shown = [f"{seconds:.2f}" if seconds else "–" for seconds in (answered.processor, *browsed)]
                table.add_row(name, f"{answered.whole:.2f}", f"{answered.whole / peer:.1f}", *shown)
                promises += _promises(name, answered, browsed)
    return table, promises


def _promises(name: str, answered: Answered, browsed: Browsed) -> list[Promise]:
    """Return what was promised for a page; of a chart, where a browser could draw it."""
    longest = FIRST_PAGE if name == "/runs" else ANY_PAGE
    promises = [Promise(f"the dashboard's {name}", max(answered.whole, browsed.seen), longest, "s")]
    if name == "/runs/1" and browsed.first:
        promises.append(Promise(f"first chart of {name}", browsed.first, FIRST_CHART, "s"))
    return promises


def _best(times: list[Measured]) -> Measured:
    """Return the shortest of each kind of time: noise only ever adds."""
    return type(times[0])(*map(min, zip(*times, strict=True)))


@contextmanager
def _served(file: Path) -> Generator[Served]:
    """Serve the ledger in a process of its own, as soon as it answers."""
    command = [str(Path(sys.executable).parent / "guerdon"), "dashboard", "--db", str(file)]
    process = subprocess.Popen([*command, "--port", "0", "--no-browser"], stderr=subprocess.PIPE, text=True)
    try:
        host = str(process.stderr and process.stderr.readline()).split("http://")[1].split("/")[0]
        _get(host, "/static/style.css")
        yield Served(host, process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _fresh(file: Path, measure: Callable[[Served], Measured]) -> Measured:
    """Return what is measured of a server that has just started."""
    with _served(file) as served:
        return measure(served)


def _processor(process: int) -> float:
    """Return the processor time of a process so far; 0 where the system does not tell it as Linux does."""
    file = Path(f"/proc/{process}/stat")
    fields = file.read_text().rpartition(")")[2].split() if file.exists() else ["0"] * 13
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _answered(served: Served, path: str) -> Answered:
    """Return how long a page takes, and after it what its charts ask for, one after the other."""
    start, before = time.perf_counter(), _processor(served.process)
    for address in (path, *(f"/api{path.partition('?')[0]}{part}" for part in PAGES[path])):
        _get(served.host, address)
    return Answered(time.perf_counter() - start, _processor(served.process) - before)


def _get(host: str, address: str) -> None:
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", address)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{address} answered {answer.status}")


def _browsed(served: Served, path: str) -> Browsed:
    """Return when a browser shows a page and its charts; the page itself marks when each is painted."""
    if CHROMIUM is None:
        return Browsed()
    from playwright.sync_api import sync_playwright

    last = LAST_CHARTS.get(path.partition("?")[0])
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--no-first-run"])
        page = browser.new_page()
        session: Any = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(f"http://{served.host}{path}")
        if last is not None:
            page.wait_for_selector(f"#{last} .main-svg >> nth=0", state="attached")
        while not (seen := _moments(page, "getEntriesByName('first-contentful-paint')")):
            page.wait_for_timeout(20)
        marks = _moments(page, "getEntriesByType('mark')") or [0.0]
        measured = session.send("Performance.getMetrics")["metrics"]
        busy = next(float(metric["value"]) for metric in measured if metric["name"] == "TaskDuration")
        browser.close()
    return Browsed(min(seen), min(marks), max(marks), busy)


def _moments(page: Any, entries: str) -> list[float]:
    """Return when something happened in a page, in seconds since it was asked for."""
    return page.evaluate(f"performance.{entries}.map((entry) => entry.startTime / 1000)")
