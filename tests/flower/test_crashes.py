"""Real SuperNodes, a real SuperLink, and -9 for each of them: nobody is paid twice, and no paid round is lost."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.deployment import CONNECTION, Deployment, Run, descendants, program

from guerdon.ledger import Ledger
from guerdon.ledger.proof.submissions import read_public_key
from tests.flower.wire import public_key

pytestmark = pytest.mark.slow

APP = Path(__file__).parent / "paid_app"
NAMES = ["n0", "n1", "n2", "n3"]


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A SuperLink and four SuperNodes for all tests; the last one kills a node."""
    deployment = Deployment(tmp_path_factory.mktemp("flower"))
    try:
        deployment.start_superlink()
        for name in NAMES:
            deployment.register(name)
            start_node(deployment, name)
        yield deployment
    finally:
        deployment.stop()


@pytest.fixture
def ledger(tmp_path: Path, flower: Deployment) -> Iterator[Ledger]:
    with Ledger(tmp_path / "guerdon.db") as opened:
        opened.enrol({name: read_public_key(public_key(flower, name)) for name in NAMES})
        yield opened


def start_node(deployment: Deployment, name: str) -> None:
    key = str(deployment.folder / name)
    deployment.start_node(name, {"partition-id": NAMES.index(name), "guerdon-key": key})


def submit(deployment: Deployment, ledger: Ledger, rounds: int, **changes: Any) -> Run:
    """Start a run; `faults` says what is special about some nodes."""
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


def test_a_run_in_which_every_node_raises_fails_and_records_nothing(flower: Deployment, ledger: Ledger) -> None:
    run = submit(flower, ledger, 2, faults=", ".join(f"{name} fails-in 1" for name in NAMES))
    assert run.wait(90).startswith("finished:failed"), run.log()[-2000:]
    assert "round 1 of run 'run': all 4 nodes failed" in run.log()
    assert paid(ledger) == []


def test_a_serverapp_killed_in_the_middle_of_a_round_goes_on_after_the_last_paid_one(
    flower: Deployment, ledger: Ledger
) -> None:
    run = submit(flower, ledger, 4, faults="n0 takes 2")
    until("two paid rounds", lambda: len(paid(ledger)) == 2)
    before = {balance.agent: balance.balance - balance.carried for balance in ledger.balances()}
    until("the kill", flower.kill_serverapp)
    assert run.wait(90).startswith("finished:failed"), run.log()[-2000:]
    assert len(paid(ledger)) == 2
    said = resume(flower, ledger, 4)
    assert "Run 'run' continues with round 3." in said
    until("the end", lambda: len(paid(ledger)) == 4)
    assert paid(ledger) == [{"paid": 4}] * 4
    assert set(before) == set(NAMES)
    assert [found.round for found in ledger.rounds("run")] == [1, 2, 3, 4]
    assert ledger.verify().holds


def test_a_superlink_killed_and_started_again(flower: Deployment, ledger: Ledger) -> None:
    """Its nodes find it again by themselves, and the run goes on."""
    submit(flower, ledger, 3, faults="n0 takes 2")
    until("a paid round", lambda: len(paid(ledger)) == 1)
    flower.kill("superlink")
    kept = len(paid(ledger))
    flower.start_superlink()
    resume(flower, ledger, 3)
    until("the end", lambda: len(paid(ledger)) == 3, seconds=150)
    assert kept <= 2
    assert [found.round for found in ledger.rounds("run")] == [1, 2, 3]
    assert ledger.verify().holds


def test_nodes_that_fail_or_die_in_the_middle_of_a_round(flower: Deployment, ledger: Ledger) -> None:
    """One raises, one's app aborts, one is killed with all it started while it works; then it comes back."""
    faults = "n1 fails-in 1, n2 dies-in 2, n3 hangs-in 3"
    run = submit(flower, ledger, 4, faults=faults, **{"round-timeout": 40})
    until("round 3", lambda: len(paid(ledger)) == 2)
    until("hanging", lambda: "flwr-clientapp" in _commands(flower.processes["n3"].pid))
    flower.kill("n3")
    until("round 4", lambda: len(paid(ledger)) == 3)
    start_node(flower, "n3")
    assert run.wait(150) == "finished:completed", run.log()[-3000:]
    assert paid(ledger)[:3] == [{"declined": 1, "paid": 3}] * 3
    why = {name: [line.why for line in ledger.statement(name).lines if line.round] for name in NAMES}
    assert "raised an exception (<class 'ZeroDivisionError'>:<'this node cannot count'>)" in why["n1"][0]
    for name, index in (("n2", 1), ("n3", 2)):  # Flower tells of it after a while, perhaps after the deadline
        assert "failed" in why[name][index] or "no reply before the deadline" in why[name][index]
    assert [line.status for line in ledger.statement("n0").lines if line.round] == ["paid"] * 4
    assert ledger.roster("run") == NAMES  # the node that came back has its old account
    assert ledger.verify().holds


def _commands(number: int) -> str:
    found = []
    for child in descendants(number):
        try:
            found.append(Path(f"/proc/{child}/cmdline").read_text())
        except OSError:
            continue
    return " ".join(found)
