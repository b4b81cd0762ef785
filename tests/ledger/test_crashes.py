"""The writer is killed with signal 9 at random moments: nothing recorded is lost, nothing is recorded twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("kills", [10, pytest.param(120, marks=pytest.mark.slow)])
def test_a_killed_writer_loses_and_doubles_nothing(where: str, tmp_path: Path, kills: int) -> None:
    folder = "postgresql" if "://" in where else str(tmp_path)
    command = [sys.executable, "-m", "tests.ledger.crashing", folder, str(kills)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:] + result.stdout[-2000:]
    outcome = json.loads(result.stdout.splitlines()[-1])
    assert outcome["kills"] == kills
    assert outcome["complete"] >= 1
