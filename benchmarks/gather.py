"""`gather` against a bare mean over the agents, on the same array, in NumPy and in PyTorch."""

import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.measure import Promise, best_times, peak_memory
from guerdon import gather
from guerdon.arrays import is_numpy

SHAPES = [(100, 1_000_000), (10, 10_000_000), (1_000, 100_000)]
LARGEST_RATIO, LARGEST_MEMORY = 3.0, 16e6  # promised for the first shape; the memory in NumPy


def run() -> tuple[Table, list[Promise]]:
    """Return the table of measurements, and what was promised."""
    table = Table(title="gather: one pass over float32 gradients", title_justify="left")
    for heading in ("library", "agents × dim", "mean(axis=0)", "gather", "ratio", "memory beyond the input"):
        table.add_column(heading, justify="left" if heading == "library" else "right")
    promises: list[Promise] = []
    for agents, dim in SHAPES:
        gradients = np.random.default_rng(0).standard_normal((agents, dim), dtype=np.float32)
        everybody = np.ones(agents, dtype=bool)
        measured = {"NumPy": _times(np.mean, gradients, everybody)}
        if find_spec("torch") is not None:
            torch: Any = import_module("torch")  # not installed everywhere, so not known to the type checker
            measured["PyTorch"] = _times(torch.mean, torch.from_numpy(gradients), torch.from_numpy(everybody))
        memory = peak_memory(lambda x=gradients, m=everybody: gather(x, m))
        for library, (bare, ours) in measured.items():
            weight = f"{memory / 1e6:.1f} MB" if library == "NumPy" else "not traced"
            table.add_row(library, *_cells(agents, dim, bare, ours), weight)
            if (agents, dim) == SHAPES[0]:
                promises.append(Promise(f"gather in {library}, against a mean", ours / bare, LARGEST_RATIO, "×"))
        if (agents, dim) == SHAPES[0]:
            promises.append(Promise("memory of gather beyond its input", memory / 1e6, LARGEST_MEMORY / 1e6, "MB"))
            bare, ours = _times(np.mean, gradients + np.float32(10), everybody)
            table.add_row("NumPy, mean 10", *_cells(agents, dim, bare, ours), "")
    return table, promises


def _cells(agents: int, dim: int, bare: float, ours: float) -> list[str]:
    return [f"{agents:,} × {dim:,}", f"{bare * 1e3:.1f} ms", f"{ours * 1e3:.1f} ms", f"{ours / bare:.2f}"]


def _times(mean: Any, gradients: Any, everybody: Any) -> list[float]:
    """Return the times of both; NumPy uses one core, so that its processor time does not hang on what else runs."""
    clock = time.process_time if is_numpy(gradients) else time.perf_counter
    return best_times(lambda: mean(gradients, 0), lambda: gather(gradients, everybody), clock=clock)
