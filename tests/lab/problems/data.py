"""Small data sets and a small network, for tests of problems and of the simulator."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def labelled(rows: int = 60, seed: int = 0) -> tuple[Any, Any]:
    """Return features with an intercept (rows, 4), and labels 0 and 1 that they tell something about."""
    rng = np.random.default_rng(seed)
    features = np.column_stack([rng.normal(size=(rows, 3)), np.ones(rows)])
    return features, (features @ [2.0, -1.0, 0.5, 0.3] + rng.normal(size=rows) > 0).astype(float)


def log_loss(weights: Any, example: Any) -> Any:
    """Return the logistic loss of one example (features, label)."""
    features, label = example
    return jnp.logaddexp(0.0, features @ weights) - label * (features @ weights)


CORNERS = {"x": np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), "y": np.array([0.0, 1.0, 1.0, 0.0])}


def start_network(key: Any) -> Any:
    """Return a network of two layers, 2 → 8 → 1, as a nested dict."""
    first, second = jax.random.split(key)
    return {
        "hidden": {"weights": jax.random.normal(first, (2, 8)), "bias": jnp.zeros(8)},
        "out": {"weights": 0.5 * jax.random.normal(second, (8,)), "bias": jnp.zeros(())},
    }


def network_loss(network: Any, example: Any) -> Any:
    """Return the squared error of the network on one example."""
    hidden = jnp.tanh(example["x"] @ network["hidden"]["weights"] + network["hidden"]["bias"])
    return (hidden @ network["out"]["weights"] + network["out"]["bias"] - example["y"]) ** 2
