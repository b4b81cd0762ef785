"""What makes the quick tests quick: it would go unnoticed if it did nothing."""

from pathlib import Path

import jax
import pytest

from guerdon.ledger import Ledger
from tests.conftest import UNOPTIMISED
from tests.support.compiling import NAME, optimised
from tests.support.statements import COMPILED


def test_a_second_ledger_compiles_none_of_our_statements(tmp_path: Path) -> None:
    counts: list[int] = []
    for name in ("one", "two"):
        with Ledger(tmp_path / f"{name}.db") as ledger:
            assert ledger.verify().holds
        counts.append(len(COMPILED))
    assert counts[0] > 50
    assert counts[1] - counts[0] <= 1, "Alembic's own note of the version is another statement each time"


def test_quick_tests_leave_optimising_out(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.option.markexpr != "not slow" or jax.config.values[NAME], f"{UNOPTIMISED} came too late"
    with optimised():
        assert not jax.config.values[NAME]
