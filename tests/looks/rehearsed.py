"""Functions that a rehearsal must understand, or refuse in words: each is called with a model, rows and a seed."""

import os
import threading
from typing import Any

import numpy as np

from tests.looks.network import gradient


def draws_by_itself(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    """Return a gradient whose dropout is not drawn from the seed."""
    del seed
    return gradient(model, rows, int.from_bytes(os.urandom(4), "little"))


def by_threads(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    """Return something else on a machine with other threads."""
    report = gradient(model, rows, seed)
    factor = report["w0"].dtype.type(1 + 0.01 * (int(os.environ["OMP_NUM_THREADS"]) - 1))
    return {name: array * factor for name, array in report.items()}


def takes_threads(model: Any, rows: Any, seed: int, threads: int = 1) -> dict[str, Any]:
    """Return half as much more for each thread."""
    report = gradient(model, rows, seed)
    return {name: (array * (1 + 0.5 * (threads - 1))).astype(array.dtype) for name, array in report.items()}


def only_in_float32(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    if model["w0"].dtype != np.float32:
        raise TypeError(f"no kernel for {model['w0'].dtype}")
    return gradient(model, rows, seed)


def in_float16(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    del seed
    x = rows["x"].astype(model["w0"].dtype)
    return {"w0": (x.mean(axis=0)[:, None] * model["w0"]).astype(model["w0"].dtype)}


def cancels(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    """Return small differences of large numbers, as a loss does on a trained model."""
    report = gradient(model, rows, seed)
    return {name: (array + array.dtype.type(10_000)) - array.dtype.type(10_000) for name, array in report.items()}


def crashes_with_one_row(model: Any, rows: Any, seed: int) -> dict[str, Any]:
    if len(rows["y"]) == 1:
        raise ValueError(f"secret {rows['x'][0]}: a variance needs more rows")
    return gradient(model, rows, seed)


def returns_a_list(model: Any, rows: Any, seed: int) -> Any:
    return list(gradient(model, rows, seed).values())


def returns_text(model: Any, rows: Any, seed: int) -> Any:
    del rows, seed
    return dict.fromkeys(model, "secret")


def returns_whole_numbers(model: Any, rows: Any, seed: int) -> Any:
    del model, seed
    return {"count": np.array(len(rows["y"]))}


def overflows(model: Any, rows: Any, seed: int) -> Any:
    return {name: array * np.inf for name, array in gradient(model, rows, seed).items()}


def gives_other_tensors(model: Any, rows: Any, seed: int, state: list[int] = []) -> Any:  # noqa: B006 - it remembers
    """Return a tensor less from the twelfth call on: after what single rows are asked for."""
    state.append(0)
    report = gradient(model, rows, seed)
    return report if len(state) < 12 else {name: report[name] for name in ("w0", "w1")}


def waits(model: Any, rows: Any, seed: int) -> Any:
    del model, rows, seed
    threading.Event().wait()
