"""A ledger that version 0.1.0 wrote: it opens, holds, and says what it said then."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from guerdon.ledger import Ledger

RELEASED = Path(__file__).parents[1] / "data" / "released"
EXPECTED: dict[str, Any] = json.loads((RELEASED / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A copy of the ledger as it was released."""
    return Path(shutil.copy(RELEASED / "guerdon.db", tmp_path))


def test_a_released_ledger_opens_and_says_what_it_said(released: Path) -> None:
    with Ledger(released) as ledger:
        found = ledger.verify()
        assert found.problem is None
        assert found.head.hex() == EXPECTED["head"]
        assert [list(row) for row in ledger.balances()] == EXPECTED["balances"]
        assert ledger.common_balances() == EXPECTED["common"]
        assert {run.name: run.rounds for run in ledger.runs()} == EXPECTED["rounds"]
        assert ledger.unit == "EUR"
