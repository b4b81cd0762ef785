"""`guerdon flower resume`, and enrolling by key, as typed on the command line."""

import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import ArrayRecord
from flwr.supercore.run import Run

from guerdon.ledger import Ledger
from guerdon.ledger.proof.submissions import fingerprint
from tests.flower.conftest import Make
from tests.flower.grids import MemoryGrid, Node, worker
from tests.support.command_line import Done, run
from tests.support.ledger_scenes import AT_ONCE

APP = str(Path(__file__).parent / "paid_app")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the commands that would have been started."""
    found: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        found.append(command)
        return subprocess.CompletedProcess(command, 7)

    monkeypatch.setattr(subprocess, "run", run)
    return found


def resume(*arguments: str, cwd: Path | None = None) -> Done:
    return run("flower", "resume", *arguments, cwd=cwd)


def test_resume_says_where_a_run_stands_and_starts_the_app(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger, started: list[list[str]]
) -> None:
    rewarded().start(grid, model, num_rounds=2)
    done = resume(APP, "local", "--db", ledger.where, "-c", "samples=4")
    assert "Run 'run' continues with round 3." in done.output
    assert done.code == 7  # flwr's own
    (command,) = started
    assert command[0].endswith("flwr")
    assert command[1:5] == ["run", APP, "local", "--stream"]
    told = [after for before, after in pairwise(command) if before == "--run-config"]
    assert told == ["samples=4", f'guerdon-db="{ledger.where}"', 'guerdon-run="run"']


def test_resume_remembers_what_the_app_was_started_with(
    grid: MemoryGrid, model: ArrayRecord, rewarded: Make, ledger: Ledger, started: list[list[str]]
) -> None:
    info = Run.create_empty(1)
    info.override_config = {"samples": 4, "rule": "agreement", "anonymous": True, "lr": 0.5, "guerdon-db": "other.db"}
    grid.set_run(info)
    rewarded().start(grid, model, num_rounds=2)
    done = resume(APP, "local", "--db", ledger.where, "-c", "samples=8")
    assert 'started with anonymous=true, lr=0.5, rule="agreement", samples=4;' in done.output
    told = [after for before, after in pairwise(started[0]) if before == "--run-config"]
    assert told[:5] == ["samples=4", 'rule="agreement"', "anonymous=true", "lr=0.5", "samples=8"]  # the last one counts
    assert told[5:] == [f'guerdon-db="{ledger.where}"', 'guerdon-run="run"']


def test_a_dry_run_starts_nothing(rewarded: Make, ledger: Ledger, nodes: list[Node], started: list[list[str]]) -> None:
    ledger.start_run("run", ["n0", "n1"], rewarded().server.rule, AT_ONCE)
    done = resume(APP, "--db", ledger.where, "--run", "run", "--dry-run")
    assert (done.code, done.output.strip()) == (0, "Run 'run' has no paid round yet.")
    assert started == []
    assert len(nodes) == 5


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "`APP` must be the folder of a Flower app"),
        ([APP, "--db", "missing.db"], "there is no ledger at"),
        ([APP, "--run", "other"], "`--run` must name a run of the ledger (none), got 'other'"),
        ([APP], "`--run` must name a run of the ledger (none), got None"),
        ([APP, "--db", "postgresql://me:secret@host/name"], "must not hold a password"),
        ([APP, "--db", "postgresql://host/name?user=me&password=secret"], "must not hold a password"),
        ([APP, "--db", "postgresql://host/name?user=me&passw%6Frd=secret"], "must not hold a password"),
        ([APP, "--db", "nonsense://"], "nonsense"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    Ledger(tmp_path / "guerdon.db").close()
    done = resume(*arguments, cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert "secret" not in done.stderr


def test_an_agent_is_enrolled_by_his_key_alone(tmp_path: Path) -> None:
    node = Node(1, worker(1))
    public = node.key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (tmp_path / "node.pub").write_bytes(public)
    where = str(tmp_path / "guerdon.db")
    enrolled = run("ledger", "enrol", "--db", where, "--public-key", str(tmp_path / "node.pub"))
    assert enrolled.output.strip() == f"{fingerprint(node.der)} #1 is enrolled"
    with Ledger(where) as ledger:
        assert ledger.keys() == {fingerprint(node.der): node.der}
    nobody = run("ledger", "enrol", "--db", where)
    assert nobody.code == 2
    assert "an agent must have a name or a public key" in nobody.stderr
