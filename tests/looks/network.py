"""A small network in NumPy, as an application's function: in the precision of its model, and as two machines do it."""

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
SIZES = 16, 48, 48, 8
CLASSES = np.random.default_rng(7).standard_normal((SIZES[-1], SIZES[0]))


def rows(count: int, seed: int) -> dict[str, np.ndarray]:
    """Return rows of eight classes that hardly overlap."""
    chance = np.random.default_rng(seed)
    label = chance.integers(0, SIZES[-1], count)
    noise = chance.standard_normal((count, SIZES[0]))
    return {"x": (3 * CLASSES[label] + noise).astype(np.float32), "y": label}


def untrained(dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """Return a model that has learnt nothing."""
    chance, model = np.random.default_rng(0), dict[str, np.ndarray]()
    for layer, (size, out) in enumerate(pairwise(SIZES)):
        model[f"w{layer}"] = (chance.standard_normal((size, out)) * (2 / size) ** 0.5).astype(dtype)
        model[f"b{layer}"] = np.zeros(out, dtype)
    return model


@cache
def trained(steps: int) -> dict[str, np.ndarray]:
    """Return a model after so many steps of 64 rows."""
    model = untrained()
    for step in range(steps):
        report = gradient(model, rows(64, 1000 + step), 0)
        model = {name: array - np.float32(0.1) * report[name] for name, array in model.items()}
    return model


def gradient(model: Arrays, rows: Arrays, seed: int, /, micro_batch: int = 0, other: bool = False) -> dict[str, Any]:
    """Return the mean gradient of a step. The seed drops a tenth of the input, as augmentation would.

    `other`: as another machine does it: sums in another order, and an exponential function with other last bits.
    """
    total, size = len(rows["y"]), micro_batch or len(rows["y"])
    dtype = model["w0"].dtype
    kept = np.random.default_rng(seed).random((total, SIZES[0])) > 0.1
    x, y = (rows["x"] * kept).astype(dtype), rows["y"]
    sums = [_sums(model, x[at : at + size], y[at : at + size], other) for at in range(0, total, size)]
    return {name: (np.add.reduce([part[name] for part in sums]) / total).astype(dtype) for name in model}


def local_training(model: Arrays, rows: Arrays, seed: int, /, steps: int = 4, other: bool = False) -> dict[str, Any]:
    """Return the model after steps of equal batches of the rows."""
    size, now = max(len(rows["y"]) // steps, 1), dict(model)
    for at in range(0, len(rows["y"]) // size * size, size):
        batch = {name: array[at : at + size] for name, array in rows.items()}
        report = gradient(now, batch, seed + at, other=other)
        now = {name: (array - 0.1 * report[name]).astype(array.dtype) for name, array in now.items()}
    return now


def _sums(model: Arrays, x: np.ndarray, y: np.ndarray, other: bool) -> dict[str, Any]:
    """Return the gradient added up over rows."""
    inputs, layers = [x], len(SIZES) - 1
    for layer in range(layers):
        weights, signal = model[f"w{layer}"], inputs[-1]
        order = np.random.default_rng(layer).permutation(len(weights)) if other else slice(None)
        out = signal[:, order] @ weights[order] + model[f"b{layer}"]
        inputs.append(np.maximum(out, 0) if layer < layers - 1 else out)
    error, result = _chances(inputs[-1], other), dict[str, Any]()
    error[np.arange(len(y)), y] -= 1
    for layer in range(layers - 1, -1, -1):
        backward = slice(None, None, -1) if other else slice(None)
        result[f"w{layer}"] = inputs[layer][backward].T @ error[backward]
        result[f"b{layer}"] = error[backward].sum(axis=0)
        error = (error @ model[f"w{layer}"].T) * (inputs[layer] > 0)
    return result


def _chances(logits: np.ndarray, other: bool) -> np.ndarray:
    """Return the softmax as most libraries have it: the exponential function of its logarithm."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return np.exp2(logarithms * logits.dtype.type(np.log2(np.e))) if other else np.exp(logarithms)
