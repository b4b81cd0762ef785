"""How to time and weigh: the best of several runs, and the peak of what Python's allocators handed out."""

import time
import tracemalloc
from collections.abc import Callable
from typing import NamedTuple


class Promise(NamedTuple):
    """What was promised of a number, and what it is now."""

    what: str
    now: float
    promised: float
    unit: str = ""
    least: bool = False  # the number must be at least, not at most, what is promised

    @property
    def kept(self) -> bool:
        """Tell whether the promise holds; a number that was not measured keeps none."""
        return self.now >= self.promised if self.least else self.now <= self.promised


def best_time(function: Callable[[], object], runs: int = 7) -> float:
    """Return the shortest of several runs in seconds, after one to warm up: noise only ever adds."""
    return best_times(function, runs=runs)[0]


def best_times(
    *functions: Callable[[], object], runs: int = 15, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the shortest of several runs of each, taking turns, so that what else the machine does is shared."""
    for function in functions:
        function()
    times = [[_time(function, clock) for function in functions] for _ in range(runs)]
    return [min(own) for own in zip(*times, strict=True)]


def peak_memory(function: Callable[[], object]) -> int:
    """Return the most bytes that were allocated at once while `function` ran (NumPy reports to tracemalloc)."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _time(function: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    function()
    return clock() - start
