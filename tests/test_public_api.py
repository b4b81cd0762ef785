"""The public names, and what `import guerdon` must not load."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import guerdon

ROOT = Path(__file__).parent.parent


def test_public_names_are_pinned() -> None:
    assert guerdon.__all__ == [
        "AffineCost",
        "AtOnce",
        "BudgetRequest",
        "CalibratedAgreement",
        "Cost",
        "EarlierRounds",
        "EstimatedVariance",
        "Evidence",
        "ExpressionCost",
        "FixedRequest",
        "FlatPay",
        "FunctionCost",
        "InformationPay",
        "KnownVariance",
        "Looks",
        "MinibatchGame",
        "NoiseScaleRequest",
        "Outcome",
        "OutputAgreement",
        "Payments",
        "PowerCost",
        "Requests",
        "Rule",
        "ScheduledRequest",
        "Server",
        "Status",
        "SteadyPay",
        "Terms",
        "Vesting",
        "WitnessedPay",
        "check_cost",
        "estimate_noise",
        "explain",
        "gather",
        "round_of",
    ]
    assert all(hasattr(guerdon, name) for name in guerdon.__all__)


def test_import_loads_nothing_heavy() -> None:
    script = "import sys; from guerdon import *; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert "numpy" in loaded
    heavy = {"jax", "torch", "flwr", "sqlalchemy", "matplotlib", "polars", "typer", "rich", "safetensors", "fastapi"}
    assert not loaded & heavy


def test_names_load_when_asked_for_and_are_listed() -> None:
    script = "import sys, guerdon; print(*sys.modules); assert set(guerdon.__all__) < set(dir(guerdon)); guerdon.Sever"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert {name for name in result.stdout.split() if name.startswith("guerdon")} == {"guerdon"}
    assert "module 'guerdon' has no attribute 'Sever'" in result.stderr


@pytest.mark.parametrize(
    ("wanted", "without", "extra"),
    [
        ("guerdon.ledger import Ledger", "sqlalchemy", "ledger"),
        ("guerdon.flower import Paid", "flwr", "flower"),
        ("guerdon.lab.simulation import simulate", "jax", "sim"),
    ],
)
def test_a_missing_extra_is_named(wanted: str, without: str, extra: str) -> None:
    script = f"import sys; sys.modules[{without!r}] = None\nfrom {wanted}"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert f"needs {without}" in result.stderr
    assert f"pip install 'guerdon[{extra}]'" in result.stderr


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert guerdon.__version__ == project["version"]
    assert f"version: {guerdon.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {guerdon.__version__}" in (ROOT / "CHANGELOG.md").read_text()
