"""The ledger against bare SQLite: recording a round, verifying everything, and balances over a million entries."""

import hashlib
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.measure import Promise, best_time
from guerdon import AffineCost, OutputAgreement, gather, round_of
from guerdon.ledger import Ledger
from guerdon.terms import AtOnce, Terms

AGENTS, ROUNDS = 1_000, 1_000  # a million payments, and about as many entries
SMALL_AGENTS, SMALL_ROUNDS = 10, 5_000
LARGEST_RATIO = 25.0  # promised: recording 1,000 payments against inserting 1,000 rows
LONGEST_VERIFY = 2.5  # promised, in rounds of 1,000 agents: against reading all rows, and a hash of each payment
RULE = OutputAgreement(AffineCost(1, 1))


def run() -> tuple[Table, list[Promise]]:
    """Return the table of measurements, and what was promised."""
    table = Table(title="ledger on SQLite, against bare SQLite", title_justify="left")
    for heading in ("what", "bare", "ledger", "ratio"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    with tempfile.TemporaryDirectory() as folder:
        bare = _bare_insert(Path(folder) / "bare.db")
        with Ledger(Path(folder) / "large.db") as ledger:
            recorded = _fill(ledger, AGENTS, ROUNDS)
            table.add_row("record 1,000 payments, one transaction", *_times(bare, recorded))
            large = _verify_times(ledger, Path(folder) / "large.db")
            table.add_row(f"balances of {AGENTS:,} agents, {AGENTS * ROUNDS:,} entries", *_balances(ledger, folder))
        with Ledger(Path(folder) / "small.db") as ledger:
            _fill(ledger, SMALL_AGENTS, SMALL_ROUNDS)
            small = _verify_times(ledger, Path(folder) / "small.db")
    table.add_row(f"verify {AGENTS * ROUNDS:,} payments, {AGENTS:,} agents a round", *_times(*large))
    table.add_row(f"verify {SMALL_AGENTS * SMALL_ROUNDS:,} payments, {SMALL_AGENTS} agents a round", *_times(*small))
    return table, [
        Promise("recording 1,000 payments, against inserting rows", recorded / bare, LARGEST_RATIO, "×"),
        Promise("verify, against reading and a hash of each payment", large[1] / large[0], LONGEST_VERIFY, "×"),
    ]


def _bare_insert(path: Path) -> float:
    """Return the time of one transaction that inserts 1,000 rows, as durable as the ledger's."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, agent INTEGER, amount INTEGER)")
    rows = [(agent, 9_000_000 + agent) for agent in range(AGENTS)]

    def insert() -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO rows (agent, amount) VALUES (?, ?)", rows)
        connection.execute("COMMIT")

    seconds = best_time(insert, runs=50)
    connection.close()
    return seconds


def _fill(ledger: Ledger, agents: int, rounds: int) -> float:
    """Record rounds of a run; return the shortest time that recording one took."""
    rng, everybody, shortest = np.random.default_rng(0), np.ones(agents, dtype=bool), float("inf")
    ledger.start_run("run", [f"agent {index}" for index in range(agents)], RULE, Terms(AtOnce()))
    played = [gather(rng.normal(size=(agents, 40)), everybody) for _ in range(20)]
    for number in range(1, rounds + 1):
        start = time.perf_counter()
        ledger.record_round("run", number, round_of(played[number % len(played)], everybody, 8))
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def _verify_times(ledger: Ledger, path: Path) -> tuple[float, float]:
    """Return how long it takes to read all payments and entries and hash each payment, and to verify them."""
    found = ledger.verify()
    if not found.holds:
        raise RuntimeError(str(found.problem))
    connection = sqlite3.connect(path)

    def read() -> None:
        connection.execute("SELECT * FROM entries").fetchall()
        for row in connection.execute("SELECT * FROM payments"):
            hashlib.sha256(repr(row).encode()).digest()

    times = best_time(read, runs=3), best_time(ledger.verify, runs=3)
    connection.close()
    return times


def _balances(ledger: Ledger, folder: str) -> list[str]:
    """Return the time against adding up the entries, which is what a ledger without balances would do."""
    connection = sqlite3.connect(Path(folder) / "large.db")
    scan = best_time(
        lambda: connection.execute("SELECT target, SUM(amount) FROM entries GROUP BY target").fetchall(), 3
    )
    connection.close()
    return _times(scan, best_time(ledger.balances))


def _times(bare: float, ours: float) -> list[str]:
    return [f"{bare * 1e3:.2f} ms", f"{ours * 1e3:.2f} ms", f"{ours / bare:.3g}"]
