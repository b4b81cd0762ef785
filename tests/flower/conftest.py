"""Five nodes with keys enrolled in a new ledger, and a strategy that pays them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.deployment import QUIET
from flwr.serverapp.strategy import Strategy

from guerdon.flower import Paid
from guerdon.ledger import Ledger
from tests.flower.grids import MemoryGrid, Node, record, worker
from tests.ledger.conftest import create, where
from tests.support.ledger_scenes import prepare
from tests.support.paid import RULE, paid_strategy

__all__ = ["RULE", "where"]

os.environ.update(QUIET)  # nothing that is tested here calls home

MODEL = {"w": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4), "b": np.zeros(4, np.float32)}

Make = Callable[..., Paid]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(prepare(str(tmp_path / "guerdon.db"), create)) as opened:
        yield opened


@pytest.fixture
def nodes(ledger: Ledger) -> list[Node]:
    made = [Node(100 + i, worker(i)) for i in range(5)]
    ledger.enrol({f"n{i}": node.der for i, node in enumerate(made)})
    return made


@pytest.fixture
def grid(nodes: list[Node]) -> MemoryGrid:
    return MemoryGrid(nodes)


@pytest.fixture
def rewarded(ledger: Ledger) -> Make:
    """Return a maker of strategies for run "run" of the ledger; any argument can be changed."""

    def make(strategy: Strategy | None = None, **changes: Any) -> Paid:
        return paid_strategy(strategy, **({"ledger": ledger} | changes))

    return make


@pytest.fixture
def model() -> Any:
    return record(**MODEL)
