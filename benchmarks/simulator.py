"""The simulator against three nested loops in NumPy."""

import jax
from rich.table import Table

from benchmarks.measure import Promise, best_time
from benchmarks.naive import naive_rewards
from benchmarks.workload import fig3_workload

LEAST_RATIO = 30.0  # promised as a user would type it
MOST_GROWTH = 1.5  # from d = 100 to d = 100,000
NAIVE_REPETITIONS = 10


def run() -> tuple[Table, list[Promise]]:
    """Return the table of measurements, and what was promised."""
    naive = best_time(lambda: naive_rewards(NAIVE_REPETITIONS, 60, 10, 100, 8, 4), runs=2) * 250 / NAIVE_REPETITIONS
    table = Table(title=f"Fig. 3 workload: 250 × 60 rounds × 10 agents, d = 100, on {jax.devices()[0].platform}")
    for heading in ("", "time", "ratio"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row(f"three nested loops in NumPy ({NAIVE_REPETITIONS} repetitions, scaled)", f"{naive:.2f} s", "1.0")
    times = {
        "simulate, as a user types it (max_batch 64), compilation excluded": best_time(lambda: fig3_workload(250)),
        "the same with d = 100,000": best_time(lambda: fig3_workload(250, dim=100_000)),
        "whole gradients, max_batch 64": best_time(lambda: fig3_workload(250, dimension_free=False)),
        "whole gradients, max_batch 16": best_time(lambda: fig3_workload(250, max_batch=16, dimension_free=False)),
    }
    for words, time in times.items():
        table.add_row(words, f"{time:.3f} s", f"{naive / time:.1f}")
    typed, large, *_ = times.values()
    return table, [
        Promise("simulate, against three loops", naive / typed, LEAST_RATIO, "×", least=True),
        Promise("simulate at d = 100,000, against d = 100", large / typed, MOST_GROWTH, "×"),
    ]
