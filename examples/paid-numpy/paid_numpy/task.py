"""What is learned: a logistic regression in 20 dimensions."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

DIMENSION = 20
TRUTH = np.random.default_rng(1).normal(size=DIMENSION)


def make_model() -> ArrayRecord:
    """Return the model to begin with: all zero."""
    return ArrayRecord({"weights": Array(np.zeros(DIMENSION, np.float32)), "bias": Array(np.zeros(1, np.float32))})


def draw(samples: int, seed: int | None = None) -> tuple[Any, Any]:
    """Return fresh samples: in a real app, the node's own data."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(samples, DIMENSION))
    return points, rng.random(samples) < 1 / (1 + np.exp(-points @ TRUTH))


def gradient(model: ArrayRecord, samples: int) -> tuple[ArrayRecord, float]:
    """Return the mean gradient of the loss over this many fresh samples, and the loss."""
    points, labels = draw(samples)
    logits = _logits(model, points)
    residual = 1 / (1 + np.exp(-logits)) - labels
    loss = float((np.logaddexp(0, logits) - labels * logits).mean())
    parts = {"weights": points.T @ residual / samples, "bias": residual.mean(keepdims=True)}
    return ArrayRecord({name: Array(part.astype(np.float32)) for name, part in parts.items()}), loss


def accuracy(model: ArrayRecord) -> float:
    """Return the share of 5,000 test samples that the model gets right."""
    points, labels = draw(5000, seed=2)
    return float(((_logits(model, points) > 0) == labels).mean())


def _logits(model: ArrayRecord, points: Any) -> Any:
    return points @ model["weights"].numpy() + model["bias"].numpy()
