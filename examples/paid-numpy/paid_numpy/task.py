"""What is learned: a logistic regression in 20 dimensions. Nodes, server and auditor compute with this module alone."""

from typing import Any

import numpy as np

DIMENSION = 20
ROWS = 2000  # of a node
TRUTH = np.random.default_rng(1).normal(size=DIMENSION)

Arrays = dict[str, Any]  # by name: a model, a report, or rows, whose first axis counts them


def make_model() -> Arrays:
    """Return the model to begin with: all zero."""
    return {"weights": np.zeros(DIMENSION, np.float32), "bias": np.zeros(1, np.float32)}


def own_rows(node: int) -> Arrays:
    """Return the data set of a node, the same each time: in a real app, a file that the node has."""
    return _draw(ROWS, seed=1000 + node)


def work(model: Arrays, rows: Arrays, seed: int) -> Arrays:
    """Return what a node reports: the mean gradient of the loss over these rows. An auditor computes it again.

    `seed`: of all randomness of the work. A gradient has none; dropout or an order of rows would take it from here.
    """
    del seed
    residual = 1 / (1 + np.exp(-_logits(model, rows))) - rows["label"]
    return {"weights": rows["point"].T @ residual / len(residual), "bias": residual.mean(keepdims=True)}


def loss(model: Arrays, rows: Arrays) -> float:
    """Return the mean loss over these rows."""
    logits = _logits(model, rows)
    return float((np.logaddexp(0, logits) - rows["label"] * logits).mean())


def accuracy(model: Arrays) -> float:
    """Return the share of 5,000 test samples that the model gets right."""
    rows = _draw(5000, seed=2)
    return float(((_logits(model, rows) > 0) == rows["label"]).mean())


def _draw(samples: int, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(samples, DIMENSION))
    labels = rng.random(samples) < 1 / (1 + np.exp(-points @ TRUTH))
    return {"point": points.astype(np.float32), "label": labels.astype(np.float32)}


def _logits(model: Arrays, rows: Arrays) -> Any:
    return rows["point"] @ model["weights"] + model["bias"]
