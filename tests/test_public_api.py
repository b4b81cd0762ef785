"""The public names, and what `import guerdon` must not load."""

import subprocess
import sys
import tomllib
from pathlib import Path

import guerdon

ROOT = Path(__file__).parent.parent


def test_public_names_are_pinned() -> None:
    assert guerdon.__all__ == [
        "AffineCost",
        "BalancedVariance",
        "BudgetRequest",
        "CalibratedAgreement",
        "Cost",
        "EstimatedVariance",
        "Evidence",
        "ExpressionCost",
        "FixedRequest",
        "FlatPay",
        "FunctionCost",
        "GenieAided",
        "InformationPay",
        "KnownVariance",
        "Mechanism",
        "MinibatchGame",
        "NoiseScaleRequest",
        "Outcome",
        "OutputAgreement",
        "Payments",
        "PowerCost",
        "Requests",
        "ScheduledRequest",
        "Server",
        "Status",
        "SteadyPay",
        "WitnessedPay",
        "check_cost",
        "estimate_noise",
        "explain",
        "gather",
    ]
    assert all(hasattr(guerdon, name) for name in guerdon.__all__)


def test_import_loads_nothing_heavy() -> None:
    script = "import sys, guerdon; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert "numpy" in loaded
    heavy = {"jax", "torch", "flwr", "sqlalchemy", "matplotlib", "polars", "typer", "rich", "safetensors", "fastapi"}
    assert not loaded & heavy


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert guerdon.__version__ == project["version"]
    assert f"version: {guerdon.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {guerdon.__version__}" in (ROOT / "CHANGELOG.md").read_text()
