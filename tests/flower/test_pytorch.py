"""`torch_work`: the work of a PyTorch app is one function, the same for a node and an auditor."""

from typing import Any

import numpy as np
import pytest

from guerdon.flower import torch_work

torch: Any = pytest.importorskip("torch")

ROWS = {
    "y": np.arange(12) % 3,
    "x": np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32),
}


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3))


def train(net: Any, loader: Any, lr: float) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for points, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(points), labels).backward()
        optimizer.step()


WORK = torch_work(network, train, batch_size=4, lr=0.1)


@pytest.fixture
def model() -> dict[str, Any]:
    torch.manual_seed(5)
    return {name: part.numpy() for name, part in network().state_dict().items()}


def report(model: Any, rows: Any = ROWS, seed: int = 1) -> dict[str, Any]:
    return {name: np.asarray(part) for name, part in WORK(model, rows, seed).items()}


def test_the_seed_fixes_all_randomness_and_leaves_the_node_s_own(model: dict[str, Any]) -> None:
    before = torch.random.get_rng_state()
    first = report(model)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(99)
    again, other = report(model), report(model, seed=2)
    assert all((first[name] == again[name]).all() for name in model)
    assert any((first[name] != other[name]).any() for name in model), "dropout takes the seed"
    assert any((first[name] != model[name]).any() for name in model), "it trains"


def test_it_works_in_the_precision_of_the_model(model: dict[str, Any]) -> None:
    double = {name: part.astype(np.float64) for name, part in model.items()}
    found = report(double, ROWS | {"x": ROWS["x"].astype(np.float64)})
    assert {part.dtype for part in found.values()} == {np.dtype(np.float64)}
    assert {part.dtype for part in report(model).values()} == {np.dtype(np.float32)}


def test_rows_are_used_in_their_order_and_by_their_names(model: dict[str, Any]) -> None:
    first = report(model)
    named = report(model, {name: ROWS[name] for name in sorted(ROWS)})
    turned = report(model, {name: part[::-1].copy() for name, part in ROWS.items()})
    assert all((first[name] == named[name]).all() for name in model)
    assert any((first[name] != turned[name]).any() for name in model)
