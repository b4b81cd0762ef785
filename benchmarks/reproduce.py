"""`guerdon reproduce`, all figures of the paper: where nothing is compiled yet, and again.

What is promised is with the real survey (`GUERDON_HEART_DATA`): with the synthetic one Fig. 5 takes more rounds.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.table import Table

from benchmarks.measure import Promise
from guerdon.lab.problems.heart import VARIABLE

COLD, WARM = 60.0, 50.0  # seconds, promised: Fig. 5 is played on twelve splits and with three steps
COMMAND = Path(sys.executable).with_name("guerdon")


def run() -> tuple[Table, list[Promise]]:
    """Return the table of measurements, and what was promised."""
    with tempfile.TemporaryDirectory() as folder:
        caches = [Path(folder) / name for name in ("one", "other")]
        cold = sorted(_seconds(cache) for cache in caches)
        warm = sorted(_seconds(caches[0]) for _ in range(7))
    real = bool(os.environ.get(VARIABLE))
    survey = "the real survey" if real else "the synthetic survey"
    table = Table(title=f"guerdon reproduce, all four figures, {survey}", title_justify="left")
    for heading in ("", "best", "all"):
        table.add_column(heading, justify="right" if heading else "left")
    promises: list[Promise] = []
    for words, found, promised in (("nothing compiled before", cold, COLD), ("again, nothing is compiled", warm, WARM)):
        table.add_row(words, f"{found[0]:.1f} s", ", ".join(f"{seconds:.1f}" for seconds in found))
        promises.append(Promise(f"guerdon reproduce, {words}", found[0], promised, "s"))
    return table, promises if real else []


def _seconds(cache: Path) -> float:
    """Return how long the command takes with this folder for what JAX compiled."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        command, programs = [COMMAND, "reproduce", "--out", out], {"XDG_CACHE_HOME": str(cache)}
        subprocess.run(command, env=os.environ | programs, check=True, capture_output=True)
    return time.perf_counter() - start
