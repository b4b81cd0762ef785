"""The same rounds in plain NumPy loops, in the paper's order: slow, and short enough to read beside the paper.

It shares no code with the engine and the mechanisms, so that each can be tested against it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from guerdon.costs import Cost
from guerdon.evidence import Evidence
from guerdon.requests import Outcome, Requests

Draw = Callable[[Any, int, int, int], Any]  # (model, batch size, round, agent) → mean gradient over fresh samples
Variance = Callable[[Any], float] | str  # σ² at a model, "estimated" or "balanced"


class Run(NamedTuple):
    """One training: the models θ_0…θ_T, and the rewards (rounds, agents)."""

    models: Any
    rewards: Any


def reference(
    draw: Draw,
    start: Any,
    sizes: Sequence[Sequence[int]],
    requests: Sequence[int],
    steps: Sequence[float],
    cost: Cost,
    variance: Variance,
) -> Run:
    """Train once with agents who use `sizes[t][k]` samples (0: decline), paying by output agreement."""
    models: list[Any] = [np.asarray(start, dtype=np.float64)]
    rewards: list[list[float]] = []
    for t, (request, step) in enumerate(zip(requests, steps, strict=True)):
        model = models[-1]
        # The server broadcasts the model and the request; each agent draws his samples and sends their mean gradient.
        gradients: dict[int, Any] = {}
        for k, size in enumerate(sizes[t]):
            if size > 0:
                gradients[k] = np.asarray(draw(model, size, t, k), dtype=np.float64)
        # She pays each by his distance to the mean of the others.
        rewards.append([_reward(k, gradients, request, cost, variance, model) for k in range(len(sizes[t]))])
        # She steps along the mean of what she was sent, if anything.
        models.append(model - step * _mean(list(gradients.values())) if gradients else model)
    return Run(np.array(models), np.array(rewards))


class Planned(NamedTuple):
    """One training under a policy: the models, the rewards (rounds, agents), and what was asked and stepped."""

    models: Any
    rewards: Any
    requests: Any
    steps: Any


def reference_policy(
    draw: Draw,
    start: Any,
    policy: Requests,
    present: Sequence[Sequence[bool]],
    cost: Cost,
    variance: Variance,
) -> Planned:
    """Train once with agents who use what the policy asks for, those of `present[t]`, until it asks for 0."""
    run: list[list[Any]] = [[np.asarray(start, dtype=np.float64)], [], [], []]
    models, rewards, requests, steps = run
    num_agents, state = len(present[0]), policy.init(start, len(present[0]))
    for t, here in enumerate(present):
        model, request = models[-1], int(policy.ask(state, t))
        if request == 0:
            break
        gradients = {k: np.asarray(draw(model, request, t, k), dtype=np.float64) for k in range(num_agents) if here[k]}
        aggregate = _mean(list(gradients.values())) if gradients else np.zeros_like(model)
        rewards.append([_reward(k, gradients, request, cost, variance, model) for k in range(num_agents)])
        outcome = Outcome(request, _evidence(gradients, num_agents), aggregate, np.asarray(sum(rewards[-1])))
        step, state = policy.observe(state, outcome)
        models.append(model - float(step) * aggregate)
        requests.append(request)
        steps.append(float(step))
    return Planned(*map(np.array, run))


def _evidence(gradients: dict[int, Any], num_agents: int) -> Evidence:
    """Return the four numbers per agent by their definitions."""
    numbers = np.zeros((4, num_agents))
    vectors = list(gradients.values())
    for k, x in gradients.items():
        apart = sum(float(np.sum((x - other) ** 2)) for other in vectors) / max(len(vectors) - 1, 1)
        aligned = sum(float(x @ other) for other in vectors)
        numbers[:, k] = np.sum((x - _mean(vectors)) ** 2), apart, x @ x, aligned
    return Evidence(*numbers, counted=np.array([k in gradients for k in range(num_agents)]))


def minibatches(target: Any, rng: np.random.Generator) -> Draw:
    """Return the draw of the paper's linear regression: features, labels and noise, one minibatch at a time."""

    def draw(model: Any, size: int, round: int, agent: int) -> Any:
        del round, agent
        features = rng.normal(size=(size, len(target)))
        labels = features @ target + rng.normal(size=size)
        gradient = np.zeros(len(target))
        for y, v in zip(features, labels, strict=True):
            gradient = gradient + 2 * (y @ model - v) * y
        return gradient / size

    return draw


def _reward(k: int, gradients: dict[int, Any], nu: int, cost: Cost, variance: Variance, model: Any) -> float:
    """Return R_k: the paper's equation (6), with (10) for σ² where it is estimated, or our balanced form."""
    others = [gradients[i] for i in gradients if i != k]
    if k not in gradients or not others or (isinstance(variance, str) and len(others) < 2):
        return 0.0
    n = len(gradients)
    distance = float(np.sum((gradients[k] - _mean(others)) ** 2))
    if not isinstance(variance, str):
        scale = level = variance(model)
    else:
        level = nu * _squares(others) / (len(others) - 1)
        scale = level if variance == "estimated" else nu * _squares(list(gradients.values())) / (n - 1)
    return cost(nu) + cost.slope(nu) * nu**2 / scale * (level / nu * n / (n - 1) - distance)


def _squares(vectors: list[Any]) -> float:
    """Return the sum of squared distances to the mean."""
    centre = _mean(vectors)
    return sum(float(np.sum((vector - centre) ** 2)) for vector in vectors)


def _mean(vectors: list[Any]) -> Any:
    total = np.zeros_like(vectors[0])
    for vector in vectors:
        total = total + vector
    return total / len(vectors)
