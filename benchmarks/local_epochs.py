"""Local epochs: what pay by models says about work, when a node takes several steps before it sends its model.

One step on ν samples is exact: the models differ as the gradients do. Several steps on parts of the samples are exact
to first order in the learning rate. An agent uses half, 1.5 times or twice the samples asked for, on a logistic
regression. Measured here: what it gains or loses (pay minus cost, against honest work), by number of steps and
learning rate.

    python -m benchmarks.local_epochs
"""

from typing import Any

import numpy as np

from guerdon import AffineCost, OutputAgreement
from guerdon.evidence import Evidence

AGENTS, DIMENSION, REQUEST = 10, 20, 16
SIZES = (REQUEST // 2, REQUEST, REQUEST * 3 // 2, 2 * REQUEST)
COST = AffineCost(1, 1)


def local_models(
    rng: np.random.Generator, start: Any, truth: Any, sizes: Any, steps: int, rate: float, rounds: int
) -> Any:
    """Return the models (rounds, agents, dim) after `steps` local steps, agent k on `sizes[k]` fresh samples in all."""
    models = np.broadcast_to(start, (rounds, len(sizes), DIMENSION)).copy()
    for _ in range(steps):
        for agent, size in enumerate(sizes):
            part = size // steps
            points = rng.normal(size=(rounds, part, DIMENSION))
            labels = rng.random((rounds, part)) < 1 / (1 + np.exp(-points @ truth))
            logits = np.einsum("rsd,rd->rs", points, models[:, agent])
            residual = 1 / (1 + np.exp(-logits)) - labels
            models[:, agent] -= rate * np.einsum("rs,rsd->rd", residual, points) / part
    return models


def gains(size: int, steps: int, rate: float, rounds: int, seed: int = 0) -> tuple[float, float]:
    """Return the mean gain over honest work, and its s.e., of one agent that uses `size` samples."""
    rng = np.random.default_rng(seed)
    truth = np.random.default_rng(1).normal(size=DIMENSION)
    models = local_models(rng, 0.5 * truth, truth, [size] + [REQUEST] * (AGENTS - 1), steps, rate, rounds)
    centred = models - models.mean(axis=1, keepdims=True)
    deviation = (centred**2).sum(axis=2)
    zeros, everybody = np.zeros_like(deviation), np.ones(deviation.shape, dtype=bool)
    rule = OutputAgreement(COST)
    paid, _ = rule.pay(rule.init(AGENTS), Evidence(deviation, zeros, zeros, everybody), everybody, REQUEST)
    profit = paid.reward[:, 0] - float(COST(size))
    return float(profit.mean()), float(profit.std(ddof=1) / np.sqrt(rounds))


def main(rounds: int = 20_000) -> None:
    """Print the table."""
    print(f"Gain over honest work in a round (s.e.); {AGENTS} agents, {REQUEST} samples asked for, {rounds} rounds\n")
    print("| local steps | learning rate | half the work | as asked | 1.5 times | twice the work |")
    print("|---" * 6 + "|")
    for steps in (1, 2, 4, 8):
        for rate in (0.05, 0.5, 2.0):
            cells = [gains(size, steps, rate, rounds) for size in SIZES]
            print(f"| {steps} | {rate:g} | " + " | ".join(f"{mean:+.2f} ({error:.2f})" for mean, error in cells) + " |")


if __name__ == "__main__":
    main()
