"""A round that does not wait for everybody: settled once a quorum has replied, or at the deadline of the terms."""

# Flower's records are typed as dictionaries of a union, which no plain dictionary is.
# pyright: reportArgumentType=false

import pytest
from flwr.app import ArrayRecord

from guerdon.flower import rounds
from guerdon.ledger import Ledger
from tests.flower.conftest import Make
from tests.flower.grids import MemoryGrid


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "BETWEEN", 0.0)


def statuses(ledger: Ledger, number: int) -> dict[str, str]:
    return {slip.agent: slip.status for slip in ledger.payslips("run", number)}


def test_a_quorum_settles_a_round_without_who_is_late(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    grid.late = {101, 104}
    rewarded(quorum=3).start(grid, model, num_rounds=1, timeout=3600)
    assert statuses(ledger, 1) == {"n0": "paid", "n1": "declined", "n2": "paid", "n3": "paid", "n4": "declined"}
    grid.late = set()
    rewarded(quorum=3).start(grid, model, num_rounds=2, timeout=3600)
    assert set(statuses(ledger, 2).values()) == {"paid"}
    assert ledger.verify().holds


def test_without_a_quorum_the_deadline_of_the_terms_settles(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    grid.late = {101}
    rewarded(quorum=5, deadline=0.05).start(grid, model, num_rounds=1, timeout=3600)
    assert statuses(ledger, 1)["n1"] == "declined"
    (late,) = (slip for slip in ledger.payslips("run", 1) if slip.agent == "n1")
    assert late.why.endswith("note: no reply before the deadline")
