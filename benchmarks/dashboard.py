"""The dashboard on a ledger with 200,000 payments: what each page takes, from asking to the last byte, and drawn.

The peer of a page is the playground in the same run: the page that shows nothing from the ledger. Every page is
requested from a server that has just started and has read nothing yet, while the ledger is being verified in the
background. A user who opens the dashboard sees the same. The promise covers the page, including the data of its charts,
and the time until a browser (where there is one) shows it. The time until charts are drawn is mostly Plotly's start; it
is only reported.
"""

import http.client
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rich.table import Table
from tests.support.dashboard_scenes import large_ledger

AGENTS, ROUNDS = 100, 2_000  # 200,000 payments
RUNS = 3
FIRST_PAGE, ANY_PAGE = 1.0, 2.0  # seconds, promised
PAGES = {
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
CHARTS = {"/playground": "curve", "/runs/1": "matrix", "/agents/7": "course"}
CHROMIUM = shutil.which("chromium")
Measured = TypeVar("Measured")


def run() -> tuple[Table, list[str]]:
    """Return the table of measurements, and what was promised and not kept."""
    table = Table(title=f"dashboard, {AGENTS * ROUNDS:,} payments, nothing read before", title_justify="left")
    for heading in ("page", "page and its numbers", "ratio", "seen in a browser", "its charts drawn"):
        table.add_column(heading, justify="left" if heading == "page" else "right")
    broken: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        large_ledger(Path(folder) / "large.db", AGENTS, ROUNDS)
        peer = 0.0
        for path, parts in PAGES.items():
            answered = min(_fresh(folder, lambda host: _timed(host, path, parts)) for _ in range(RUNS))  # noqa: B023
            seen, drawn = _best(folder, path) if CHROMIUM is not None else (0.0, 0.0)
            peer = peer or answered
            shown = [f"{seconds:.2f} s" if seconds else "–" for seconds in (seen, drawn)]
            table.add_row(path, f"{answered:.2f} s", f"{answered / peer:.1f}", *shown)
            promised, slowest = FIRST_PAGE if path == "/runs" else ANY_PAGE, max(answered, seen)
            if slowest > promised:
                broken.append(f"{path} took {slowest:.2f} s, more than the {promised:g} promised")
    return table, broken


def _best(folder: str, path: str) -> tuple[float, float]:
    """Return the shortest times until a page is seen, and until its charts are drawn."""
    times = [_fresh(folder, lambda host: _browsed(host, path)) for _ in range(RUNS)]
    return min(seen for seen, _ in times), min(drawn for _, drawn in times)


@contextmanager
def _served(folder: str) -> Generator[str]:
    """Serve the ledger in a process of its own; give host and port as soon as it answers."""
    command = [str(Path(sys.executable).parent / "guerdon"), "dashboard", "--db", str(Path(folder) / "large.db")]
    process = subprocess.Popen([*command, "--port", "0", "--no-browser"], stderr=subprocess.PIPE, text=True)
    try:
        host = str(process.stderr and process.stderr.readline()).split("http://")[1].split("/")[0]
        _timed(host, "/static/style.css", ())
        yield host
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _fresh(folder: str, measure: Callable[[str], Measured]) -> Measured:
    """Return what is measured of a server that has just started."""
    with _served(folder) as host:
        return measure(host)


def _timed(host: str, path: str, parts: tuple[str, ...]) -> float:
    """Return how long a page takes, and after it what its charts ask for, one after the other."""
    start = time.perf_counter()
    for address in (path, *(f"/api{path.partition('?')[0]}{part}" for part in parts)):
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("GET", address)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{address} answered {answer.status}")
    return time.perf_counter() - start


def _browsed(host: str, path: str) -> tuple[float, float]:
    """Return how long a browser takes to show a page, and until the last of its charts is drawn, Plotly's start too."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--no-first-run"])
        page = browser.new_page()
        page.goto("about:blank")
        start = time.perf_counter()
        page.goto(f"http://{host}{path}")
        chart = CHARTS.get(path.partition("?")[0])
        if chart is not None:
            page.wait_for_selector(f"#{chart} .main-svg >> nth=0", state="attached")
        drawn = time.perf_counter() - start
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
        seen: float = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        browser.close()
    return seen, drawn
