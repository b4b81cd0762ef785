"""Every page in a real browser, on no ledger, an empty one, a small one and one with 200,000 payments."""

import gzip
import http.client
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import gather, round_of
from guerdon.dashboard.pages import FILTERS
from guerdon.ledger import Ledger
from tests.dashboard.conftest import Served, Visitor, ask, serving
from tests.pilot.records import made_up
from tests.support.dashboard_scenes import NAMES

CHARTS = ["learning", "request", "payout", "total", "pay", "distances", "spread", "matrix"]
PAGES = ["/runs", "/agents", "/payouts", "/playground", "/report", "/pilot", "/api"]


@pytest.fixture(scope="module", params=["missing", "empty", "small", pytest.param("large", marks=pytest.mark.slow)])
def shown(request: pytest.FixtureRequest, ledgers: Callable[[str], Path]) -> Iterator[tuple[str, Served]]:
    """A served ledger of each kind."""
    with serving(ledgers(request.param)) as served:
        yield request.param, served


def needs_ledger(path: str) -> bool:
    return path in ("/agents", "/payouts")


def test_every_page(shown: tuple[str, Served], visitor: Visitor) -> None:
    kind, served = shown
    for path in PAGES:
        page = visitor.visit(served.address + path, 503 if kind == "missing" and needs_ledger(path) else 200)
        assert page.locator("h1").count() == 1, path
        assert page.locator("main").inner_text().strip(), path
        assert page.locator("#gone").is_visible() == (kind == "missing"), path
    visitor.troubles = [trouble for trouble in visitor.troubles if kind != "missing" or "503" not in trouble]
    visitor.leave(served.address)


def test_what_to_do_where_there_is_nothing(shown: tuple[str, Served], visitor: Visitor) -> None:
    kind, served = shown
    page = visitor.visit(f"{served.address}/runs")
    text = page.locator("main").inner_text()
    if kind == "missing":
        assert "There is no ledger here yet" in text
        assert "record_round" in text
    elif kind == "empty":
        assert "No run has begun yet" in text
        assert "No agent is enrolled yet" in visitor.visit(f"{served.address}/agents").locator("main").inner_text()
        assert "Nothing was paid out yet" in visitor.visit(f"{served.address}/payouts").locator("main").inner_text()
    else:
        assert page.locator("tbody tr").count() == {"small": 3, "large": 1}[kind]
    visitor.leave(served.address)


def test_a_run_with_all_its_charts(shown: tuple[str, Served], visitor: Visitor) -> None:
    kind, served = shown
    if kind in ("missing", "empty"):
        visitor.visit(f"{served.address}/runs/1", 503 if kind == "missing" else 404)
        return
    page = visitor.visit(f"{served.address}/runs/1")
    for chart in CHARTS:
        visitor.drawn(chart)
        assert len(page.locator(f"#{chart} .plot").get_attribute("aria-label") or "") > 20
    if kind == "large":
        assert page.get_by_role("button", name="Audit this run").is_visible()
        assert not [url for url in visitor.asked if url.endswith("/audit")], "a large run is audited if wanted"
        assert "1,000 agents" in page.locator(".tiles").inner_text().replace("\n", " ")
        assert "the 40 agents that missed most rounds" in page.locator("#matrix .remark").inner_text()
    page.wait_for_selector("#verification[data-state=verified]")
    assert re.fullmatch(r"verified up to record \d+ at \d\d:\d\d UTC", page.locator("#verification").inner_text())
    visitor.leave(served.address)


@pytest.mark.slow
def test_verdicts_and_what_colours_mean(chromium: Any, small_served: Served) -> None:
    visitor = Visitor(chromium, color_scheme="dark")
    page = visitor.visit(f"{small_served.address}/runs/1")
    visitor.drawn("audit", "pay", "spread")
    assert "1 of 10 agents differ (Vigo #6)" in page.locator("#audit .remark").inner_text()
    for chart, meanings in (
        ("pay", ["fits the cost", "paid less than it costs", "paid more than it costs"]),
        ("audit", ["like the others so far", "differs"]),
    ):
        assert page.locator(f"#{chart} .legendtext").all_text_contents() == meanings
    assert "To the left lie reports that agree better" in page.locator("#spread .note").inner_text()
    # The band is well apart from the card that it lies on, in the dark too.
    look = page.locator("#spread .shapelayer path").first.get_attribute("style") or ""
    assert float(re.findall(r"fill-opacity: ([\d.]+)", look)[0]) > 0.3
    assert "stroke-width: 1px" in look
    visitor.leave(small_served.address)


def test_the_numbers_behind_a_chart(shown: tuple[str, Served], visitor: Visitor) -> None:
    kind, served = shown
    if kind != "small":
        return
    page = visitor.visit(f"{served.address}/runs/1")
    visitor.drawn("matrix")
    page.locator("#request summary").click()
    rows = page.locator("#request tbody tr")
    rows.nth(61).wait_for()  # the table is made when it is opened
    assert rows.count() == 62
    assert rows.nth(0).inner_text().split() == ["1", "8", "10"]
    page.locator("#pay summary").click()
    page.locator("#pay tbody tr").first.wait_for()
    vigo = next(text for text in page.locator("#pay tbody tr").all_inner_texts() if text.startswith("Vigo"))
    assert "paid less than it costs" in vigo
    page.locator("#matrix summary").click()
    page.locator("#matrix tbody tr").first.wait_for()
    assert "no reply within 60 s" in page.locator("#matrix tbody").inner_text()
    visitor.leave(served.address)


BARS = """document.querySelector('#matrix .plot').data.filter((trace) => trace.type === 'bar')
    .flatMap(({ name, y, x, base }) => y.map((row, i) => ({ name, row, first: base[i] + 0.5, length: x[i] })))"""


def test_the_bars_are_who_took_part(small: Path, serve: Callable[..., Served], visitor: Visitor) -> None:
    """Against the API's own table, with an agent that joined late: every bar says what each of its rounds was."""
    with Ledger(small) as ledger:
        gradients, present = np.random.default_rng(5).normal(size=(11, 60)), np.ones(11, dtype=bool)
        ledger.record_round("heart 2026", 63, round_of(gather(gradients, present), present, 8), agents=[*NAMES, "Bern"])
    served = serve(small)
    visitor.visit(f"{served.address}/runs/1")
    visitor.drawn("matrix")
    shown = ask(served, "/api/runs/1/participation").json()
    told = {
        (row, number): shown["labels"][code]
        for row, line in enumerate(shown["statuses"])
        for number, code in zip(shown["rounds"], line, strict=True)
        if code >= 0
    }
    bars = visitor.page.evaluate(BARS)
    drawn = {(bar["row"], bar["first"] + i): bar["name"] for bar in bars for i in range(bar["length"])}
    assert drawn == told
    assert sum(bar["length"] for bar in bars) == len(told) == 10 * 63 + 1
    assert len(bars) < len(told) / 3, "neighbours are one bar"
    visitor.leave(served.address)


def test_plotly_is_sent_as_it_is_kept(small_served: Served) -> None:
    place = small_served.app.state.plotly
    plain = ask(small_served, place)
    assert f"plotly.js (basic - minified) v{re.findall(r'[0-9.]+[0-9]', place)[0]}" in plain.text[:100]
    connection = http.client.HTTPConnection(small_served.address.removeprefix("http://"), timeout=30)
    connection.request("GET", place, headers={"accept-encoding": "gzip, br"})
    answer = connection.getresponse()
    assert gzip.decompress(answer.read()).decode() == plain.text
    connection.close()
    assert (answer.headers["content-encoding"], plain.headers.get("content-encoding")) == ("gzip", None)
    for headers in (answer.headers, plain.headers):
        assert "immutable" in headers["cache-control"]
        assert headers["vary"] == "accept-encoding"


def test_without_plotly_the_page_says_so(small_served: Served, visitor: Visitor) -> None:
    visitor.page.route("**/plotly-*", lambda route: route.abort())
    page = visitor.visit(f"{small_served.address}/runs/1")
    page.locator("#stale", has_text="the script that draws them did not load; reload the page").wait_for()
    assert "6,454" in page.locator(".tiles").inner_text()
    page.locator("#request summary").click()
    page.locator("#request tbody tr").nth(61).wait_for()  # the numbers need no drawing


def test_a_run_without_metrics_distances_or_rounds(shown: tuple[str, Served], visitor: Visitor) -> None:
    kind, served = shown
    if kind != "small":
        return
    page = visitor.visit(f"{served.address}/runs/2")  # flat pay: no distances
    visitor.drawn("payout")
    assert page.locator("#distances .empty").is_visible()
    page = visitor.visit(f"{served.address}/runs/3")  # nothing recorded yet
    page.wait_for_selector("#request .empty:visible")
    for chart in CHARTS:
        assert page.locator(f"#{chart} .empty").is_visible(), chart
        assert not page.locator(f"#{chart} details").is_visible(), chart
    visitor.leave(served.address)


def test_an_agent_and_its_statement(shown: tuple[str, Served], visitor: Visitor) -> None:
    kind, served = shown
    if kind in ("missing", "empty"):
        visitor.visit(f"{served.address}/agents/1", 503 if kind == "missing" else 404)
        return
    page = visitor.visit(f"{served.address}/agents/6")
    visitor.drawn("course")
    assert page.locator("table.list tbody tr").count() == 50
    first = page.locator(".formula").first.inner_text()
    assert re.search(r"\d+ \+ 1 · \d+² ÷ [\d,.]+ · \([\d,.]+ − [\d,.]+\) = -?[\d.]+", first), first
    page.get_by_role("link", name="Next").click()
    page.wait_for_url("**page=2*")
    assert page.locator("table.list tbody tr").count() > 0
    visitor.leave(served.address)


def test_payouts(shown: tuple[str, Served], visitor: Visitor) -> None:
    kind, served = shown
    if kind in ("missing", "empty"):
        visitor.visit(f"{served.address}/payouts/1", 503 if kind == "missing" else 404)
        return
    page = visitor.visit(f"{served.address}/payouts")
    states = page.locator("tbody .state").all_inner_texts()
    assert states == (["open", "cancelled", "9 paid, 1 bounced"] if kind == "small" else ["paid"] * 4)
    page.get_by_role("link", name="Payout 1", exact=True).click()
    page.wait_for_url("**/payouts/1")  # and until all of it is there
    assert page.locator("tbody tr").count() == (10 if kind == "small" else 1000)
    if kind == "small":
        returned = page.locator("tbody tr", has_text="bounced").inner_text()
        assert "…3000" in returned
        assert "AC04 closed account" in returned
    visitor.leave(served.address)


@pytest.fixture(scope="module")
def small_served(ledgers: Callable[[str], Path]) -> Iterator[Served]:
    with serving(ledgers("small")) as served:
        yield served


@pytest.mark.parametrize("width", [380, 1600])
def test_nothing_is_wider_than_the_window(chromium: Any, small_served: Served, width: int) -> None:
    visitor = Visitor(chromium, viewport={"width": width, "height": 800})
    charts = {"/runs/1": "matrix", "/agents/6": "course", "/playground": "curve"}
    for path in (*PAGES, "/runs/1", "/agents/6", "/nothing"):
        page = visitor.visit(small_served.address + path, 404 if path == "/nothing" else 200)
        if path in charts:
            visitor.drawn(charts[path])
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    visitor.context.close()


@pytest.mark.slow
def test_on_a_phone(chromium: Any, ledgers: Callable[[str], Path], tmp_path: Path) -> None:
    """Navigation is one line, with every entry; a statement shows reward, balance and reason; titles are whole."""
    (tmp_path / "report.html").write_text("<h1>Report</h1>")
    (tmp_path / "pilot.json").write_text("{}")
    with serving(ledgers("small"), tmp_path / "report.html", pilot=tmp_path / "pilot.json") as served:
        visitor = Visitor(chromium, viewport={"width": 390, "height": 844})
        page = visitor.visit(f"{served.address}/runs/1")
        assert page.locator(".bar nav a").count() == 6
        assert len(set(page.evaluate("[...document.querySelectorAll('.bar nav a')].map((a) => a.offsetTop)"))) == 1
        visitor.drawn("pay", "spread", "audit")
        for chart in ("pay", "spread", "distances", "audit"):
            place = page.locator(f"#{chart} .xtitle").bounding_box()
            assert place is not None
            assert (place["x"] >= 0, place["x"] + place["width"] <= 390) == (True, True), chart
        page = visitor.visit(f"{served.address}/agents/6/statement.html")
        cells = page.evaluate("[...document.querySelectorAll('td')].map((cell) => cell.getBoundingClientRect().right)")
        assert max(cells) <= 390
        assert "reward" in page.evaluate(
            "getComputedStyle(document.querySelector('td:nth-child(4)'), '::before').content"
        )
        visitor.leave(served.address)


@pytest.mark.slow
def test_rounds_are_whole(chromium: Any, small_served: Served) -> None:
    visitor = Visitor(chromium)
    page = visitor.visit(f"{small_served.address}/runs/2")  # three rounds
    visitor.drawn("payout", "matrix")
    assert page.locator("#payout .xtick").all_text_contents() == ["1", "2", "3"]
    page.locator("#payout summary").click()
    assert page.locator("#payout caption").text_content() == "Paid per round"
    ask_for = "(rounds) => import('/static/charts.js').then((charts) => charts.roundAxis(rounds))"
    for rounds, step in (([1, 1], 1), ([1, 9], 1), ([1, 62], 10), ([99_900, 100_000], 20)):
        assert page.evaluate(ask_for, rounds) == {
            "title": {"text": "round"},
            "tickformat": ",d",
            "tick0": 0,
            "dtick": step,
        }
    visitor.leave(small_served.address)


def test_every_table_has_a_caption(small_served: Served) -> None:
    for path in ("/runs", "/agents", "/agents/6", "/agents/6/statement.html", "/payouts", "/payouts/1", "/api"):
        tables = re.findall(r"<table[^>]*>(<caption>\w[^<]+</caption>)?", ask(small_served, path).text)
        assert tables, path
        assert all(tables), path


@pytest.mark.parametrize("name", [" ", "", "\u200b", "\u2007\u00ad"])
def test_a_blank_name_can_be_clicked(name: str) -> None:
    named: Any = FILTERS["named"]
    assert named(name) == "(blank name)"
    assert named(f"Basel{name}") == f"Basel{name}"


def test_light_and_dark(chromium: Any, small_served: Served) -> None:
    visitor = Visitor(chromium, color_scheme="dark")
    page = visitor.visit(f"{small_served.address}/runs/1")
    paper = "getComputedStyle(document.body).backgroundColor"
    axis = "document.querySelector('#request .xtick text').style.fill"
    visitor.drawn("request")
    dark = page.evaluate(paper), page.evaluate(axis)
    page.get_by_role("button", name="Switch between light and dark").click()
    light = page.evaluate(paper), page.evaluate(axis)
    assert dark[0] != light[0]
    assert dark[1] != light[1], "charts follow the theme"
    page.reload()
    assert page.evaluate(paper) == light[0], "the choice is remembered"
    visitor.leave(small_served.address)


def test_with_the_keyboard_alone(chromium: Any, small_served: Served) -> None:
    visitor = Visitor(chromium)
    page = visitor.visit(f"{small_served.address}/runs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "waiting", "the first run, after the table itself"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/3")
    unnamed = "[...document.querySelectorAll('button, a, input, select')].filter(e => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).length"  # noqa: E501
    for path in ("/runs/1", "/agents", "/agents/6", "/playground"):
        assert visitor.visit(small_served.address + path).evaluate(unnamed) == 0, path
    visitor.leave(small_served.address)


def test_printing_leaves_the_statement_only(chromium: Any, small_served: Served) -> None:
    visitor = Visitor(chromium)
    page = visitor.visit(f"{small_served.address}/agents/6")
    visitor.drawn("course")
    page.emulate_media(media="print")
    assert not page.locator("nav").first.is_visible()
    assert not page.locator("#course").is_visible()
    assert page.locator(".formula").first.is_visible()
    assert page.get_by_role("heading", name="Vigo").is_visible()
    visitor.leave(small_served.address)


def test_finding_an_agent(chromium: Any, small_served: Served) -> None:
    visitor = Visitor(chromium)
    page = visitor.visit(f"{small_served.address}/agents")
    assert page.locator("tbody tr").count() == len(NAMES)
    page.get_by_label("Name contains").fill("ber")
    page.keyboard.press("Enter")
    page.wait_for_url("**search=ber*")
    assert page.locator("tbody th").all_inner_texts() == ["Berlin Charité #2"]
    assert "No agent has this name" in visitor.visit(f"{small_served.address}/agents?search=xyz").inner_text("main")
    visitor.leave(small_served.address)


@pytest.mark.slow
def test_earlier_and_later_rounds(chromium: Any, ledgers: Callable[[str], Path]) -> None:
    with serving(ledgers("large")) as served:
        visitor = Visitor(chromium)
        page = visitor.visit(f"{served.address}/runs/1")
        remark = page.locator("#matrix .remark")
        visitor.until("document.querySelector('#matrix .remark').textContent.startsWith('Rounds 81 to 200')")
        page.get_by_role("button", name="earlier").click()
        visitor.until("document.querySelector('#matrix .remark').textContent.startsWith('Rounds 1 to 80')")
        assert page.get_by_role("button", name="earlier").is_disabled()
        page.get_by_role("button", name="later").click()
        visitor.until("document.querySelector('#matrix .remark').textContent.startsWith('Rounds 81 to 200')")
        assert "960 more" in remark.inner_text()
        visitor.leave(served.address)


def test_the_report_is_one_click_away(chromium: Any, ledgers: Callable[[str], Path], tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    with serving(ledgers("empty"), report) as served:
        visitor = Visitor(chromium)
        page = visitor.visit(f"{served.address}/runs")
        assert page.get_by_role("link", name="Report", exact=True).count() == 0
        assert "guerdon reproduce" in visitor.visit(f"{served.address}/report").inner_text("main")
        report.write_text("<style>h1{color:red}</style><h1>Reproduced</h1><script>parent.hacked = 1</script>")
        page = visitor.visit(f"{served.address}/runs")
        page.get_by_role("link", name="Report", exact=True).click()
        inside = page.frame_locator("iframe")
        assert inside.locator("h1").inner_text() == "Reproduced"
        assert inside.locator("h1").evaluate("e => getComputedStyle(e).color") == "rgb(255, 0, 0)"
        assert page.evaluate("window.hacked") is None
        assert any("sandboxed" in trouble for trouble in visitor.troubles), "the script was blocked"
        visitor.context.close()


def test_a_pilot_is_shown_as_its_file_is_now(chromium: Any, ledgers: Callable[[str], Path], tmp_path: Path) -> None:
    file = tmp_path / "pilot.json"
    with serving(ledgers("empty"), pilot=file) as served:
        visitor = Visitor(chromium)
        assert "There is no pilot to show" in visitor.visit(f"{served.address}/pilot").inner_text("main")
        made_up(3, 2, rounds=30).save(file)
        visitor.visit(f"{served.address}/runs")
        visitor.page.click("nav >> text=Pilot")
        assert "pays shirkers here" in visitor.page.inner_text("main")
        assert "Use none of these rules here." in visitor.page.inner_text("main h2")
        file.write_text(file.read_text().replace('"a3"', '"<b>[x]"'))
        assert "<b>[x]" in visitor.visit(f"{served.address}/pilot").inner_text("main")
        file.write_text("{}")
        assert "cannot be read as a pilot" in visitor.visit(f"{served.address}/pilot").inner_text("main")
        visitor.leave(served.address)
