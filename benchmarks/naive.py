"""The Fig. 3 workload as a researcher would write it: three nested loops in NumPy. The peer of the simulator."""

from typing import Any

import numpy as np


def naive_rewards(repetitions: int, rounds: int, agents: int, dim: int, request: int, size: int) -> Any:
    """Return the known-variance rewards (repetitions, rounds, agents); agent 0 uses `size` samples."""
    rng = np.random.default_rng(0)
    target = np.ones(dim)
    step = 1 / (2 * (1 + (dim + 1) / (agents * request)))
    rewards = np.zeros((repetitions, rounds, agents))
    for repetition in range(repetitions):
        theta = np.zeros(dim)
        for t in range(rounds):
            gradients = np.zeros((agents, dim))
            for k in range(agents):
                batch = size if k == 0 else request
                features = rng.normal(size=(batch, dim))
                labels = features @ target + rng.normal(size=batch)
                gradients[k] = 2 / batch * features.T @ (features @ theta - labels)
            variance = 4 * ((dim + 1) * np.sum((theta - target) ** 2) + dim)
            for k in range(agents):
                others = np.mean(np.delete(gradients, k, axis=0), axis=0)
                distance = np.sum((gradients[k] - others) ** 2)
                rewards[repetition, t, k] = (
                    request + 1 + request * agents / (agents - 1) - request**2 / variance * distance
                )
            theta = theta - step * np.mean(gradients, axis=0)
    return rewards
