"""Many repetitions of the Fig. 3 workload: `python -m benchmarks.accelerator`, on whatever device JAX finds.

What it needs beside JAX: numpy, array-api-compat. On a processor give fewer repetitions: `… accelerator 2000`.
"""

import resource
import sys
import time
from typing import Any

import jax

from benchmarks.workload import AGENTS, ROUNDS, fig3_workload, mean_reward

REPETITIONS = 100_000
LEAST_RATE = 3e8  # agent-rounds a second, promised on an H200
LARGEST_MEMORY = 1e9  # bytes on the host at ten times the repetitions, beyond what JAX itself takes


def rate_of(repetitions: int, **options: bool | int) -> float:
    """Print and return agent-rounds a second, end to end; compiled before."""
    fig3_workload(repetitions, **options)  # pyright: ignore[reportArgumentType]
    start = time.perf_counter()
    reward = mean_reward(fig3_workload(repetitions, **options))  # pyright: ignore[reportArgumentType]
    seconds = time.perf_counter() - start
    rate = repetitions * ROUNDS * AGENTS / seconds
    print(f"{repetitions:,} repetitions {options}: {seconds:.3f} s, {rate:.3g} agent-rounds a second")
    print(f"  mean reward for half the work: {reward:.4f} (exact: 1)")
    return rate


def main(repetitions: int = REPETITIONS) -> int:
    """Print what was measured, and return whether a promise was broken."""
    device: Any = jax.devices()[0]  # pyright: ignore[reportUnknownVariableType]
    print(f"{device.device_kind} ({device.platform}), JAX {jax.__version__}")
    rate = rate_of(repetitions)
    rate_of(repetitions, dim=100_000)
    rate_of(repetitions, dimension_free=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rate_of(10 * repetitions)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(f"host memory beyond what was taken before, at {10 * repetitions:,}: {memory / 1e6:.0f} MB")
    slow = rate < LEAST_RATE and jax.default_backend() != "cpu"
    return 1 if slow or memory > LARGEST_MEMORY else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
