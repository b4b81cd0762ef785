"""The same on SQLite and on PostgreSQL: everything answers, and what was recorded since is there."""

from collections.abc import Callable

import pytest

from guerdon.ledger import Ledger
from tests.dashboard.conftest import Served, ask
from tests.dashboard.test_api import GETS
from tests.ledger.conftest import where
from tests.support.dashboard_scenes import NAMES, Training, small_ledger

__all__ = ["where"]  # a fixture
PAGES = ["/runs", "/runs/1", "/agents", "/agents?search=ber", "/agents/6", "/agents/6/statement.csv", "/payouts/1"]


def test_every_database_tells_the_same(where: str, serve: Callable[..., Served]) -> None:
    small_ledger(where)
    served = serve(where)
    for path in (*GETS, *PAGES):
        assert ask(served, path).status == 200, path
    assert ask(served, "/runs/99").status == ask(served, "/api/payouts/4611686018427387903").status == 404
    before = ask(served, "/api/runs/1/rounds").json()
    with Ledger(where) as ledger:
        Training(ledger, "another", NAMES).play(2)
        paid = {row.name: row.paid for row in ledger.runs()}
    assert ask(served, "/api/runs/1/rounds").json() == before
    assert sum(ask(served, "/api/runs/4/rounds").json()["paid"]) == pytest.approx(paid["another"] / 1e6)
    agents = ask(served, "/api/runs/1/agents").json()["agents"]
    assert [agent["verdict"] for agent in agents if agent["name"] == "Vigo"] == ["less"]
    assert ask(served, "/api/runs/1/distances").json()["band"] is not None
