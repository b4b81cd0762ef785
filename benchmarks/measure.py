"""How to time and weigh: the best of several runs, and the peak of what Python's allocators handed out."""

import time
import tracemalloc
from collections.abc import Callable


def best_time(function: Callable[[], object], runs: int = 7) -> float:
    """Return the shortest of several runs in seconds, after one to warm up: noise only ever adds."""
    function()
    times: list[float] = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_memory(function: Callable[[], object]) -> int:
    """Return the most bytes that were allocated at once while `function` ran (NumPy reports to tracemalloc)."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
