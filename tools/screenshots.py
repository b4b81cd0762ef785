"""`python -m tools.screenshots`: draw the pictures of dashboard and statement in docs/images again. Needs Chromium."""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from tests.dashboard.conftest import ARGUMENTS, CHROMIUM, serving
from tests.support.dashboard_scenes import NAMES, small_ledger

from guerdon.ledger import Ledger
from guerdon.ledger.read.render import statement_pieces

IMAGES = Path(__file__).parent.parent / "docs" / "images"
LARGEST = 200_000  # bytes of a picture


def main() -> None:
    """Serve a small ledger, look at it, and keep what is seen."""
    if CHROMIUM is None or not shutil.which(CHROMIUM):
        raise SystemExit("Chromium is needed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "guerdon.db"
        small_ledger(path)
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        with serving(path) as served:
            wide = {"width": 1200, "height": 3000}
            page = browser.new_context(viewport=wide, color_scheme="light").new_page()  # pyright: ignore[reportArgumentType]
            _run(page, served.address, "dashboard-run.png", 0, 1660)
            _agent(page, served.address)
            _playground(page, served.address)
            page = browser.new_context(viewport=wide, color_scheme="dark").new_page()  # pyright: ignore[reportArgumentType]
            _run(page, served.address, "dashboard-run-dark.png", 1180, 1450)
            page = browser.new_context(viewport=wide, color_scheme="light").new_page()  # pyright: ignore[reportArgumentType]
            _statement(page, path)
        browser.close()


def _run(page: Page, address: str, name: str, top: int, height: int) -> None:
    page.goto(f"{address}/runs/1")
    page.wait_for_selector("#audit .main-svg >> nth=0")
    page.wait_for_selector("#verification[data-state=verified]", timeout=60_000)
    _keep(page, name, height, top)


def _agent(page: Page, address: str) -> None:
    page.goto(f"{address}/agents/6")
    page.wait_for_selector("#course .main-svg >> nth=0")
    _keep(page, "dashboard-agent.png", 1300)


def _playground(page: Page, address: str) -> None:
    page.goto(f"{address}/playground?agents=10&request=8&others=8&rule=known")
    page.wait_for_selector("#curve .main-svg >> nth=0")
    page.get_by_role("button", name="Simulate").click()
    page.wait_for_selector(".playground[data-simulated=yes]", timeout=120_000)
    _keep(page, "dashboard-playground.png", 900)


def _statement(page: Page, path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.move("hold", NAMES[0], 2_000_000, "asked for its logs")
        with ledger.reading() as connection:
            page.set_content("".join(statement_pieces(connection, NAMES[0], "html")))
    _keep(page, "statement.png", 1000)


def _keep(page: Page, name: str, height: int, top: int = 0) -> None:
    """Take a picture of a part of the page."""
    page.wait_for_timeout(300)
    file = IMAGES / name
    page.screenshot(path=file, clip={"x": 0, "y": top, "width": 1200, "height": height})
    print(f"{file}: {file.stat().st_size:,} bytes")
    if file.stat().st_size > LARGEST:
        raise SystemExit(f"{file} is larger than {LARGEST:,} bytes")


if __name__ == "__main__":
    main()
