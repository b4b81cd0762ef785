"""A run under looks in the dashboard: held, open looks and settled periods, on pages and for programs."""

from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from guerdon.ledger import Ledger
from guerdon.ledger.read.looked import HELD
from tests.dashboard.conftest import Served, Visitor, ask, serving
from tests.support.look_scenes import NAMES, Clock, watched


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A served ledger of eleven rounds: see `watched`."""
    path = tmp_path_factory.mktemp("looks") / "guerdon.db"
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        with Ledger(path, unit="EUR") as ledger:
            watched(ledger, clock)
        with serving(path) as one:  # within the time of the scene: no deadline has passed
            yield one


def text(served: Served, path: str) -> str:
    answer = ask(served, path)
    assert answer.status == 200, answer.text
    return " ".join(unescape(answer.text).split())


def test_a_run_shows_what_is_held_and_which_looks_are_open(served: Served) -> None:
    page = text(served, "/runs/1")
    for amount, words in (("198.45", HELD), ("75.60", "released by looks"), ("37.80", "forfeited in failed looks")):
        assert f"{amount} <small>EUR</small></b><span>{words}</span>" in page
    assert "paid in all" not in page
    assert "Held, in EUR: 85.05 of 3 members until the looks of round 12." in page
    assert "The member must open its rows by 1970-01-12 13:50 UTC, else the look counts as unanswered." in page
    assert "Failed; the member may appeal by 1970-01-12 13:50 UTC, else that is final." in page
    assert "The auditor must sign a verdict by 1970-01-12 13:50 UTC, else the look says nothing against" in page
    settled = page[page.index("Settled periods") :]
    assert settled.count("2 of 2") == 2
    assert settled.count("0 of 2") == 1
    assert page.index("Open looks") < page.index("Learning curve"), "it is in the first view"


def test_a_member_sees_its_own_looks_only(served: Served) -> None:
    page = text(served, "/agents/2")
    assert "Looks in <bdi>knee</bdi>" in page
    assert "66.15 held in run knee: 37.80 for rounds 5 to 8, until one open look is decided" in page
    assert "the member may appeal" in page
    assert "must open its rows" not in page, "that look is another member's"
    assert "R = (1 + margin) · h(ν)" in page
    assert "1.05 · h(8) = 9.45" in page
    assert 'class="unpaid"' in page[: page.index("Statement")], "a forfeited period stands out"
    assert 'class="unpaid"' not in page[page.index("Statement") :], "held pay is nothing wrong"


def test_lists_show_held_pay_apart_from_paid(served: Served) -> None:
    runs, agents = text(served, "/runs"), text(served, "/agents")
    assert 'data-label="total paid (EUR)" class="n">75.60' in runs
    assert 'data-label="held" class="n">198.45' in runs
    assert 'data-label="forfeited" class="n">37.80' in agents
    assert "forfeited is what failed looks took" in agents


def test_programs_get_the_same(served: Served) -> None:
    page = ask(served, "/api/runs/1/looks").json()
    (told,) = page["runs"]
    assert page["unit"] == "EUR"
    assert (told["held"], told["released"], told["forfeited"]) == ("198.450000", "75.600000", "37.800000")
    assert {one["member"]: one["by"] for one in told["open"]} == dict(
        zip(NAMES, ("member", "appeal", "auditor"), strict=True)
    )
    assert told["open"][0]["until"] == "1970-01-12T13:50:01Z"
    assert (told["open_total"], told["settled_total"]) == (len(told["open"]), len(told["settled"])) == (3, 3)
    (own,) = ask(served, "/api/agents/2/looks").json()["runs"]
    assert (own["held"], [one["member"] for one in own["settled"]]) == ("66.150000", ["Lyon"])
    run = ask(served, "/api/runs/1").json()
    assert (run["looks"], run["held"], run["released"]) == (True, "198.450000", "75.600000")


def test_the_matrix_says_held_released_and_forfeited(served: Served) -> None:
    told = ask(served, "/api/runs/1/participation").json()
    names = [[told["labels"][code] for code in line] for line in told["statuses"]]
    assert names[0] == ["released"] * 4 + [HELD] * 7
    assert names[1] == ["forfeited, all or in part"] * 4 + [HELD] * 7


def test_a_run_without_looks_has_none(ledgers_small: Served) -> None:
    assert "paid in all" in text(ledgers_small, "/runs/1")
    assert "Open looks" not in text(ledgers_small, "/runs/1")
    assert ask(ledgers_small, "/api/runs/1").json()["looks"] is False
    for path in ("/api/runs/1/looks", "/api/agents/1/looks"):
        assert ask(ledgers_small, path).json() == {"unit": "EUR", "runs": []}


@pytest.fixture
def ledgers_small(small: Path) -> Iterator[Served]:
    with serving(small) as one:
        yield one


def test_pages_are_drawn_without_troubles(served: Served, visitor: Visitor) -> None:
    page = visitor.visit(f"{served.address}/runs/1")
    visitor.drawn("payout", "matrix")
    names = page.locator("#matrix .legendtext").all_text_contents()
    assert names == ["released", HELD, "forfeited, all or in part"]
    assert "pay, held until looks" in page.locator("#payout .legendtext").all_text_contents()
    page = visitor.visit(f"{served.address}/agents/2")
    visitor.drawn("course")
    assert "pay, held until looks" in page.locator("#course .legendtext").all_text_contents()
    visitor.leave(served.address)
