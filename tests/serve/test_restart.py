"""A service that is killed, again and again, under load: no round is lost, none is paid twice."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]

from guerdon.client import ServiceClient, ServiceTask
from guerdon.ledger import Ledger
from guerdon.statistical.dithers import Dither
from tests.serve.conftest import MODEL, TOKENS, gradient, make_service, save_draft, together, write_key

NAMES = ("north", "south", "east", "west")


def test_a_round_is_opened_again_as_it_was(tmp_path: Path, ledger: Ledger) -> None:
    """With the same dither, the same members and the reports that were acknowledged."""
    first = make_service(tmp_path, ledger, dither=Dither(0.3))
    before, kept = dict(first.run.sent), first.accept("north", 1, save_draft(first, gradient(0)), b"")
    draft = first.spool.draft()
    draft.write_bytes(b"cut off")
    first.spool.close()
    again = make_service(tmp_path, ledger, dither=Dither(0.3), tokens={**TOKENS, "new": "token-of-new-is-long"})
    assert all(np.array_equal(again.run.sent[name], before[name]) for name in MODEL)
    assert not np.array_equal(before["b"], MODEL["b"])
    assert again.has_answered("north")
    assert again.accept("north", 1, save_draft(again, gradient(0)), b"") == kept
    assert not draft.exists()
    again.spool.close()


def test_killed_between_ledger_and_spool(tmp_path: Path, ledger: Ledger) -> None:
    """The round is in the ledger, and its reports are still in the folder: they are not paid again."""
    first = make_service(tmp_path, ledger)
    for i, name in enumerate(NAMES):
        first.accept(name, 1, save_draft(first, gradient(i)), b"")
    first.run.settle([first._report(1, name) for name in NAMES])
    first.spool.close()
    again = make_service(tmp_path, ledger)
    assert again.round == 2
    assert not again.has_answered("north")
    assert not again.settle_if_due()
    assert [path.name for path in again.spool.folder.glob("round-*")] == ["round-00000002"]
    again.spool.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class Killed:
    """A served run that is killed with SIGKILL at random moments, and started again."""

    def __init__(self, folder: Path, rounds: int, seed: int) -> None:
        save_file(MODEL, folder / "model.safetensors")
        (folder / "run.members").write_text("\n".join(NAMES))
        self.port, self.kills, self._rng = free_port(), 0, np.random.default_rng(seed)
        self._command = [
            str(Path(sys.executable).with_name("guerdon")), "serve", "model.safetensors", "--run", "run",
            "--request", "8", "--members", "run.members",
            "--rule", "information", "--dither", "0.3", "--rounds", str(rounds), "--port", str(self.port),
        ]  # fmt: skip
        self._folder, self._stopping = folder, threading.Event()
        self._thread = threading.Thread(target=self._haunt)

    def __enter__(self) -> "Killed":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _haunt(self) -> None:
        while not self._stopping.is_set():
            with (self._folder / "log").open("a") as told:
                process = subprocess.Popen(self._command, cwd=self._folder, stdout=told, stderr=told)
            self._stopping.wait(self._moment())
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            self.kills += 1

    def _moment(self) -> float:
        """Return when to kill: some time after the service answers."""
        for _ in range(1200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        return float(self._rng.uniform(0.5, 1.5)) if self.kills < 5 else 1e6


@pytest.mark.slow
def test_kill_nine_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    rounds, answers = 15, dict[tuple[str, int], list[Any]]()
    with Ledger(tmp_path / "guerdon.db") as ledger:
        ledger.enrol({name: write_key(tmp_path / name) for name in NAMES})

    def work(place: int, name: str) -> None:
        client = ServiceClient(f"http://127.0.0.1:{killed.port}", run="run", key=tmp_path / name, patience=300)
        for task in client.tasks():
            answers.setdefault((name, task.round), []).append(task.model["b"])
            time.sleep(0.3)  # work: a run of fifteen rounds outlives several kills
            told = client.report(task, report(place, task))
            assert told == client.report(task, report(place, task))  # sent twice, on purpose

    def report(place: int, task: ServiceTask) -> dict[str, np.ndarray]:
        return gradient(1000 * task.round + place)

    with Killed(tmp_path, rounds, seed=1) as killed:
        together(*(lambda p=p, n=n: work(p, n) for p, n in enumerate(NAMES)))
    assert killed.kills >= 3
    with Ledger(tmp_path / "guerdon.db", read_only=True) as ledger:
        assert ledger.verify().holds
        assert [(run.rounds, run.last_round) for run in ledger.runs()] == [(rounds, rounds)]
        slips = [slip for number in range(1, rounds + 1) for slip in ledger.payslips("run", number)]
    assert all(slip.gradient is not None for slip in slips), "a report that was acknowledged is missing"
    assert len(slips) == rounds * len(NAMES)
    for number in range(1, rounds + 1):  # all saw the same model in a round, before and after a kill
        seen = [model for name in NAMES for model in answers.get((name, number), [])]
        assert all(np.array_equal(model, seen[0]) for model in seen)
