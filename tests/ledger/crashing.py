"""Kill the writer, again and again: `python -m tests.ledger.crashing FOLDER|postgresql KILLS` prints what became of it.

Run as a program of its own, so that the forked writers hold no threads of a test session. Each writer records the same
rounds, from wherever the ledger stands, closes the run and pays it out, and is killed at a random moment. After each
kill the ledger must verify. When all rounds are recorded the balances must be those of an uninterrupted run, and a new
ledger begins.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from guerdon.ledger import Ledger
from tests.ledger.conftest import new_database
from tests.support.ledger_scenes import HARSH, NAMES, Played, on, play

ROUNDS = 12


def write(where: str, played: list[Played]) -> None:
    """Record everything: what is there already is found as it was."""
    with Ledger(where) as ledger:
        ledger.enrol(dict.fromkeys(NAMES))
        ledger.start_run("run", NAMES, HARSH, on("deposit", 3))
        resumed = ledger.resume("run")
        if resumed is not None and not np.array_equal(resumed.arrays["model"]["weights"], weights(resumed.round)):
            raise RuntimeError(f"the checkpoint of round {resumed.round} is another's")
        for one in played:
            ledger.record_round("run", *one.arguments(), checkpoint={"model": {"weights": weights(one.number)}})
        ledger.close_run("run")
        ledger.payout(key="the end")


def weights(number: int) -> np.ndarray:
    return np.full(2000, float(number))


def kill_at_random(where: str, played: list[Played], rng: random.Random, longest: float) -> bool:
    """Start a writer and kill it; tell whether it was still at work."""
    child = os.fork()
    if child == 0:
        try:
            write(where, played)
        finally:
            os._exit(0)
    time.sleep(rng.uniform(0, longest))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def check(where: str, expected: list[tuple[str | int, ...]], played: list[Played]) -> bool:
    """Raise unless the ledger verifies; tell whether it is complete, and if so as it should be."""
    if "://" not in where and not Path(where).exists():
        return False
    with Ledger(where) as ledger:
        found = ledger.verify()
        if not found.holds:
            raise SystemExit(f"after a kill: {found.problem}")
        resumed = ledger.resume("run")
        if resumed is None or resumed.round < len(played):
            return False
    write(where, played)  # all of it once more
    with Ledger(where) as ledger:
        if [tuple(row) for row in ledger.balances()] != expected or not ledger.verify().holds:
            raise SystemExit("the balances are not those of an uninterrupted run")
    return True


def main(folder: str, kills: int) -> None:
    """Kill writers to ledgers in a folder, or, where it is "postgresql", to databases of their own."""
    rng, played = random.Random(0), play(ROUNDS, HARSH)
    with place(folder) as where:
        write(where, played)  # imports what is imported late
    with place(folder) as where:
        started = time.perf_counter()
        write(where, played)
        longest = 0.6 * (time.perf_counter() - started)  # several kills to each ledger
        with Ledger(where) as ledger:
            expected = [tuple(row) for row in ledger.balances()]
    done, complete = 0, 0
    while done < kills:
        with place(folder) as where:
            while done < kills and not check(where, expected, played):
                killed = kill_at_random(where, played, rng, longest)
                done, longest = done + killed, longest * (1 if killed else 0.9)  # the machine may have become faster
            write(where, played)  # what the last kill left undone
            complete += check(where, expected, played)
    print(json.dumps({"kills": done, "complete": complete}))  # noqa: T201


@contextmanager
def place(folder: str) -> Generator[str]:
    """A place where no ledger is yet."""
    if folder == "postgresql":
        with new_database() as url:
            yield url
    else:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            yield str(Path(name) / "guerdon.db")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
