"""`gather` against a bare mean over the agents, on the same array, in NumPy and in PyTorch."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.measure import best_time, peak_memory
from guerdon import gather

SHAPES = [(100, 1_000_000), (10, 10_000_000), (1_000, 100_000)]
LARGEST_RATIO, LARGEST_MEMORY = 6.0, 16e6  # promised for the first shape, in NumPy


def run() -> tuple[Table, list[str]]:
    """Return the table of measurements, and what was promised and not kept."""
    table = Table(title="gather: one pass over float32 gradients", title_justify="left")
    for heading in ("library", "agents × dim", "mean(axis=0)", "gather", "ratio", "memory beyond the input"):
        table.add_column(heading, justify="left" if heading == "library" else "right")
    broken: list[str] = []
    for agents, dim in SHAPES:
        gradients = np.random.default_rng(0).standard_normal((agents, dim), dtype=np.float32)
        everybody = np.ones(agents, dtype=bool)
        bare = best_time(lambda x=gradients: np.mean(x, axis=0))
        ours = best_time(lambda x=gradients, m=everybody: gather(x, m))
        memory = peak_memory(lambda x=gradients, m=everybody: gather(x, m))
        table.add_row("NumPy", *_cells(agents, dim, bare, ours), f"{memory / 1e6:.1f} MB")
        if (agents, dim) == SHAPES[0]:
            broken += _check(ours / bare, memory)
        if find_spec("torch") is not None:
            table.add_row("PyTorch", *_cells(agents, dim, *_torch_times(gradients, everybody)), "not traced")
    return table, broken


def _cells(agents: int, dim: int, bare: float, ours: float) -> list[str]:
    return [f"{agents:,} × {dim:,}", f"{bare * 1e3:.1f} ms", f"{ours * 1e3:.1f} ms", f"{ours / bare:.2f}"]


def _torch_times(gradients: Any, everybody: Any) -> tuple[float, float]:
    torch: Any = import_module("torch")  # not installed everywhere, so not known to the type checker
    tensor, mask = torch.from_numpy(gradients), torch.from_numpy(everybody)
    return best_time(lambda: torch.mean(tensor, dim=0)), best_time(lambda: gather(tensor, mask))


def _check(ratio: float, memory: float) -> list[str]:
    broken: list[str] = []
    if ratio > LARGEST_RATIO:
        broken.append(f"gather took {ratio:.2f} times a bare mean, more than the {LARGEST_RATIO:g} promised")
    if memory > LARGEST_MEMORY:
        broken.append(f"gather allocated {memory / 1e6:.1f} MB, more than the {LARGEST_MEMORY / 1e6:g} promised")
    return broken
