"""Many repetitions of the Fig. 3 workload, and `gather`: `python -m benchmarks.accelerator`, on JAX's own device.

What it needs beside JAX: numpy, array-api-compat. On a processor give fewer repetitions: `… accelerator 2000`.
"""

import resource
import sys
import time
from typing import Any

import jax

from benchmarks.measure import best_times
from benchmarks.workload import AGENTS, ROUNDS, fig3_workload, mean_reward
from guerdon import gather

REPETITIONS = 100_000
LEAST_RATE = 3e8  # agent-rounds a second, promised on an H200
LARGEST_RATIO = 2.0  # of `gather` to a bare mean of the same gradients
SHAPE = 100, 1_000_000  # of those gradients: agents, numbers each
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


def gather_ratio() -> float:
    """Print and return how many times a bare mean the evidence of a round takes."""
    gradients: Any = jax.random.normal(jax.random.key(0), SHAPE)
    everybody = jax.numpy.ones(SHAPE[0], dtype=bool)

    def mean() -> Any:
        return jax.numpy.mean(gradients, axis=0).block_until_ready()

    def evidence() -> Any:
        return jax.block_until_ready(gather(gradients, everybody))  # pyright: ignore[reportUnknownVariableType]

    bare, ours = best_times(mean, evidence)
    print(f"a mean of {SHAPE[0]:,} × {SHAPE[1]:,}: {bare * 1e3:.3f} ms")
    print(f"  gather: {ours * 1e3:.3f} ms, {ours / bare:.2f} times that")
    return ours / bare


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
    slow = (gather_ratio() > LARGEST_RATIO or rate < LEAST_RATE) and jax.default_backend() != "cpu"
    return 1 if slow or memory > LARGEST_MEMORY else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
