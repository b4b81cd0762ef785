"""The Fig. 3 workload at 100,000 repetitions: `python -m benchmarks.accelerator`, on whatever device JAX finds."""

import time
from typing import Any

import jax

from benchmarks.workload import fig3_workload

REPETITIONS = 100_000


def main() -> None:
    """Print the device, the time of a first run (with compilation) and of a second one, and what was computed."""
    device: Any = jax.devices()[0]  # pyright: ignore[reportUnknownVariableType]
    print(f"{device.device_kind} ({device.platform}), JAX {jax.__version__}")
    for label in ("with compilation", "without"):
        start = time.perf_counter()
        reward = fig3_workload(REPETITIONS)
        seconds = time.perf_counter() - start
        rate = REPETITIONS * 60 * 10 / seconds / 1e6
        print(f"{label}: {seconds:.2f} s, {rate:.1f} million gradients a second")
        print(f"mean reward for half the work: {reward:.4f} (exact: 1)")


if __name__ == "__main__":
    main()
