"""A run under information pay on the dashboard: scores in words and formulas, and no band of distances."""

import json
from collections.abc import Callable
from pathlib import Path

from guerdon.ledger import Ledger
from tests.dashboard.conftest import Served, Visitor, ask
from tests.support.audit_scenes import record_training, send_prediction

NAMES = ["Basel", "Lyon", "Porto", "Turin"]


def test_what_the_pages_say(tmp_path: Path, serve: Callable[..., Served]) -> None:
    with Ledger(tmp_path / "guerdon.db") as ledger:
        record_training(ledger, "heart", NAMES, 25, {3: send_prediction})
    served = serve(tmp_path / "guerdon.db")
    run = ask(served, "/runs/1").text
    assert "information pay, decay 0.7" in run
    assert "not for its distance to the others" in run
    assert json.loads(ask(served, "/api/runs/1/distances").text) == {"band": None, "histogram": None}
    agents = json.loads(ask(served, "/api/runs/1/agents").text)["agents"]
    assert [agent["median_distance"] for agent in agents] == [None] * 4
    statement = ask(served, "/agents/4").text
    assert "less about the gradient than the others" in statement
    assert "· (I − J)" in statement
    assert "Under information pay" in statement


def test_the_charts_in_a_browser(tmp_path: Path, serve: Callable[..., Served], visitor: Visitor) -> None:
    with Ledger(tmp_path / "guerdon.db") as ledger:
        record_training(ledger, "heart", NAMES, 25)
    served = serve(tmp_path / "guerdon.db")
    page = visitor.visit(f"{served.address}/runs/1")
    visitor.until("document.querySelectorAll('#pay .main-svg').length > 0")
    for chart in ("distances", "spread"):
        assert "not for its distance" in page.locator(f"#{chart} .empty").inner_text()
        assert not page.locator(f"#{chart} .remark").is_visible()
    visitor.leave(served.address)
