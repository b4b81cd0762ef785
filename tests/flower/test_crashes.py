"""Real SuperNodes, a real SuperLink, and -9 for each of them: nobody is paid twice, and no paid round is lost."""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from examples.deployment import CONNECTION, Deployment, Run, descendants, program

from guerdon.ledger import Ledger
from guerdon.ledger.submissions import read_public_key
from tests.flower.wire import public_key

pytestmark = pytest.mark.slow

APP = Path(__file__).parent / "paid_app"
NAMES = ["n0", "n1", "n2", "n3"]

Up = Callable[[Mapping[str, Mapping[str, Any]]], tuple[Deployment, Ledger]]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Return a function that starts a SuperLink and four SuperNodes, with something special about some of them."""
    deployment = Deployment(tmp_path / "flower")
    ledger = Ledger(tmp_path / "guerdon.db")

    def start(special: Mapping[str, Mapping[str, Any]]) -> tuple[Deployment, Ledger]:
        deployment.start_superlink()
        for i, name in enumerate(NAMES):
            deployment.register(name)
            start_node(deployment, i, special.get(name, {}))
        ledger.enrol({name: read_public_key(public_key(deployment, name)) for name in NAMES})
        return deployment, ledger

    try:
        yield start
    finally:
        deployment.stop()
        ledger.close()


def start_node(deployment: Deployment, number: int, special: Mapping[str, Any]) -> None:
    key = str(deployment.folder / NAMES[number])
    deployment.start_node(NAMES[number], {"partition-id": number, "guerdon-key": key, **special})


def submit(deployment: Deployment, ledger: Ledger, rounds: int, **changes: Any) -> Run:
    told = {"guerdon-db": ledger.where, "num-server-rounds": rounds, "min-nodes": 4, "signed": True}
    return deployment.run_app(APP, told | changes)


def until(what: str, holds: Callable[[], object], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{what} did not happen within {seconds:.0f} s"
        time.sleep(0.2)


def paid(ledger: Ledger, run: str = "run") -> list[dict[str, int]]:
    return [found.statuses for found in ledger.rounds(run)] if ledger.roster(run) else []


def resume(deployment: Deployment, ledger: Ledger, rounds: int) -> str:
    """Continue the run as an operator would, and return what was printed; other settings are those of its start."""
    command = [program("guerdon"), "flower", "resume", str(APP), CONNECTION, "--db", ledger.where, "--run", "run"]
    command += ["-c", f"num-server-rounds={rounds}"]
    done = subprocess.run(command, env=deployment.environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = (line for line in done.stdout.splitlines() if line.startswith("It was started with "))
    assert "min-nodes=4, " in told
    assert "signed=true" in told
    return done.stdout + done.stderr


def test_nodes_that_fail_or_die_in_the_middle_of_a_round(up: Up) -> None:
    """One raises, one's app aborts, one is killed with all it started while it works; then it comes back."""
    special = {"n1": {"fails-in": 1}, "n2": {"dies-in": 2}, "n3": {"hangs-in": 3}}
    deployment, ledger = up(special)
    run = submit(deployment, ledger, 4, **{"round-timeout": 40})
    until("round 3", lambda: len(paid(ledger)) == 2)
    until("hanging", lambda: "flwr-clientapp" in _commands(deployment.processes["n3"].pid))
    deployment.kill("n3")
    until("round 4", lambda: len(paid(ledger)) == 3)
    start_node(deployment, 3, {})
    assert run.wait(150) == "finished:completed", run.log()[-3000:]
    assert paid(ledger)[:3] == [{"declined": 1, "paid": 3}] * 3
    why = {name: [line.why for line in ledger.statement(name).lines if line.round] for name in NAMES}
    assert "raised an exception (<class 'ZeroDivisionError'>:<'this node cannot count'>)" in why["n1"][0]
    for name, index in (("n2", 1), ("n3", 2)):  # Flower tells of it after a while, perhaps after the deadline
        assert "failed" in why[name][index] or "no reply before the deadline" in why[name][index]
    assert [line.status for line in ledger.statement("n0").lines if line.round] == ["paid"] * 4
    assert ledger.roster("run") == NAMES  # the node that came back has its old account
    assert ledger.verify().holds


def test_a_run_in_which_every_node_raises_fails_and_records_nothing(up: Up) -> None:
    deployment, ledger = up({name: {"fails-in": 1} for name in NAMES})
    run = submit(deployment, ledger, 2)
    assert run.wait(90).startswith("finished:failed"), run.log()[-2000:]
    assert "round 1 of run 'run': all 4 nodes failed" in run.log()
    assert paid(ledger) == []


def test_a_serverapp_killed_in_the_middle_of_a_round_goes_on_after_the_last_paid_one(up: Up) -> None:
    deployment, ledger = up({"n0": {"takes": 2}})
    run = submit(deployment, ledger, 4)
    until("two paid rounds", lambda: len(paid(ledger)) == 2)
    before = {balance.agent: balance.balance - balance.carried for balance in ledger.balances()}
    until("the kill", deployment.kill_serverapp)
    assert run.wait(90).startswith("finished:failed"), run.log()[-2000:]
    assert len(paid(ledger)) == 2
    said = resume(deployment, ledger, 4)
    assert "Run 'run' continues with round 3." in said
    until("the end", lambda: len(paid(ledger)) == 4)
    assert paid(ledger) == [{"paid": 4}] * 4
    assert set(before) == set(NAMES)
    assert [found.round for found in ledger.rounds("run")] == [1, 2, 3, 4]
    assert ledger.verify().holds


def test_a_superlink_killed_and_started_again(up: Up) -> None:
    """Its nodes find it again by themselves, and the run goes on."""
    deployment, ledger = up({"n0": {"takes": 2}})
    submit(deployment, ledger, 3)
    until("a paid round", lambda: len(paid(ledger)) == 1)
    deployment.kill("superlink")
    kept = len(paid(ledger))
    deployment.start_superlink()
    resume(deployment, ledger, 3)
    until("the end", lambda: len(paid(ledger)) == 3, seconds=150)
    assert kept <= 2
    assert [found.round for found in ledger.rounds("run")] == [1, 2, 3]
    assert ledger.verify().holds


def _commands(number: int) -> str:
    found = []
    for child in descendants(number):
        try:
            found.append(Path(f"/proc/{child}/cmdline").read_text())
        except OSError:
            continue
    return " ".join(found)
