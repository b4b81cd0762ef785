"""The writer is killed with signal 9 at random moments: nothing recorded is lost, nothing is recorded twice."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.ledger.conftest import new_database

ROOT = Path(__file__).parent.parent.parent
PLACES = 100  # ledgers for 200 kills: most take several


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_killed_writer_loses_and_doubles_nothing(where: str, tmp_path: Path, kills: int) -> None:
    with ExitStack() as stack:
        if "://" in where:
            places = [where, *(stack.enter_context(new_database()) for _ in range(PLACES * kills // 200 + 5))]
        else:
            places = [str(tmp_path / f"{index}.db") for index in range(PLACES * kills // 200 + 6)]
        result = subprocess.run(
            [sys.executable, "-m", "tests.ledger.crashing", *places, str(kills)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:] + result.stdout[-2000:]
    outcome = json.loads(result.stdout.splitlines()[-1])
    assert outcome["kills"] == kills
    assert outcome["complete"] >= 1  # the last one may still be on its way
