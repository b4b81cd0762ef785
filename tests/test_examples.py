"""The examples run, and show what they say."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.libraries import needs_torch

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> Any:
    """Return an example as a module; examples are no package."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_mlp(capsys: pytest.CaptureFixture[str]) -> None:
    history = load("mlp").main(rounds=40, repetitions=2)
    accuracy = history.metrics["accuracy"].mean(axis=0)
    assert accuracy[-1] > accuracy[0] + 0.1
    profit = history.utilities["agreement"].mean(axis=(0, 1))
    assert profit[8] < -3  # a quarter of the work does not pay
    assert profit[9] > 10  # sending zeros does: the hole that the docs warn of
    assert "a quarter of the work" in capsys.readouterr().out


@needs_torch
def test_a_plain_loop_in_pytorch_is_paid(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is paid about its cost, half of it less than it cost, zeros nothing; forty lines, without a framework."""
    torch: Any = pytest.importorskip("torch")

    def repeatable(model: list[Any]) -> list[Any]:
        return [torch.randn_like(part) for part in model]

    monkeypatch.setattr("guerdon.statistical.dithers.secret_normals", repeatable)
    load("torch_loop").main()
    paid = [float(amount) for amount in re.findall(r"was paid (-?[\d.]+) a round", capsys.readouterr().out)]
    assert len(paid) == 8
    assert all(13 < amount < 21 for amount in paid[:6])
    assert paid[6] < 9
    assert paid[7] == 0
    code = (EXAMPLES / "torch_loop.py").read_text().split('"""', 2)[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 40


@pytest.mark.slow
@needs_torch
def test_three_processes_in_pytorch_are_paid_over_http() -> None:
    """The one with a quarter of the samples loses, and the others get at least what their work cost."""
    command = [sys.executable, "-m", "examples.served_torch"]
    done = subprocess.run(command, cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = {name: float(amount) for name, amount in re.findall(r"(\w+) has (-?[\d.]+) CREDIT", done.stdout)}
    assert set(found) == {"north", "south", "east"}
    assert found["east"] <= 0 < 20 * 17 < min(found["north"], found["south"])
    assert "Run 'demo' has ended after round 20" in done.stderr
    assert "Round 20 paid " in done.stdout
