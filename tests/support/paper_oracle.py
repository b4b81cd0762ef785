"""The paper's formulas, transcribed with loops and without any identity: slow, and easy to check by eye."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from guerdon.rule import RESOLUTION


def others_of(k: int, participating: Any) -> list[int]:
    return [i for i in range(len(participating)) if participating[i] and i != k]


def mean_of(gradients: Any, agents: list[int]) -> Any:
    total = np.zeros(gradients.shape[1])
    for i in agents:
        total = total + gradients[i]
    return total / len(agents)


def distance(gradients: Any, participating: Any, k: int) -> float:
    """D_k = ‖X_k − m_{−k}‖²."""
    reference = mean_of(gradients, others_of(k, participating))
    return sum((gradients[k][j] - reference[j]) ** 2 for j in range(gradients.shape[1]))


def squares(gradients: Any, agents: list[int]) -> float:
    """Σ_i ‖X_i − their mean‖²."""
    centre = mean_of(gradients, agents)
    return sum(float(np.sum((gradients[i] - centre) ** 2)) for i in agents)


def squares_of_others(gradients: Any, participating: Any, k: int) -> float:
    """The same without k, but not below what the implementation says it resolves."""
    everybody = [i for i in range(len(participating)) if participating[i]]
    return max(squares(gradients, others_of(k, participating)), RESOLUTION * squares(gradients, everybody))


def evidence(gradients: Any, participating: Any, prediction: Any) -> tuple[Any, Any, Any, Any]:
    """Deviation, mean distance to the others, length and alignment by their definitions."""
    present = [i for i in range(len(participating)) if participating[i]]
    result = np.zeros((4, len(gradients)))
    for k in present:
        result[0, k] = np.sum((gradients[k] - mean_of(gradients, present)) ** 2)
        result[1, k] = pair_distance(gradients, present, k)
        result[2, k] = np.sum((gradients[k] - prediction) ** 2)
        result[3, k] = sum(np.dot(gradients[k] - prediction, gradients[i] - prediction) for i in present)
    return result[0], result[1], result[2], result[3]


def pair_distance(gradients: Any, present: list[int], k: int) -> float:
    """The mean of ‖X_k − X_i‖² over the others, pair by pair; 0 where there are none."""
    others = [i for i in present if i != k]
    return sum(float(np.sum((gradients[k] - gradients[i]) ** 2)) for i in others) / max(len(others), 1)


@dataclass
class PaperRule:
    """R_k = h(ν) + h'(ν)·(ν·c/(c−1) − ν²/σ²·D_k), with σ² known, estimated, or balanced over earlier rounds."""

    cost: Any
    variance: float | str  # a number, "estimated", "shared" (balanced) or "balanced" (with history)
    crowd: str = "present"
    decay: float = 0.9
    past: list[tuple[Any, Any, int]] = field(default_factory=list[Any])

    def pay(self, gradients: Any, participating: Any, request: int) -> Any:
        rewards = np.zeros(len(gradients))
        for k in range(len(gradients)):
            if participating[k]:
                rewards[k] = self._reward(gradients, participating, request, k)
        self.past.append((gradients, participating, request))
        return rewards

    def _reward(self, gradients: Any, participating: Any, nu: int, k: int) -> float:
        others = others_of(k, participating)
        h, slope = self.cost(nu), self.cost.slope(nu)
        crowd = len(others) + 1 if self.crowd == "present" else len(gradients)
        if not others:
            return 0.0
        far = distance(gradients, participating, k)
        if not isinstance(self.variance, str):
            return h + slope * (nu * crowd / (crowd - 1) - nu**2 / self.variance * far)
        history = self._history(k) if self.variance == "balanced" else 0.0
        if len(others) < 2 or (squares(gradients, [*others, k]) == 0 and not history):
            return 0.0
        estimate = nu / (len(others) - 1) * squares_of_others(gradients, participating, k)
        if self.variance == "estimated":
            return h + slope * (nu * crowd / (crowd - 1) - nu**2 / estimate * far)
        scale = history or nu * squares(gradients, [*others, k]) / len(others)
        return h + slope * nu**2 / scale * (estimate / nu * crowd / (crowd - 1) - far)

    def _history(self, k: int) -> float:
        """σ̃²_{−k}: earlier rounds pooled, each weighing `decay` times the next; 0 where there are none."""
        total, freedom = 0.0, 0.0
        for gradients, participating, request in self.past:
            others = others_of(k, participating)
            everybody = [i for i in range(len(participating)) if participating[i]]
            resolved = len(others) >= 2 and squares(gradients, others) > RESOLUTION * squares(gradients, everybody)
            if resolved:
                total = self.decay * total + request * squares_of_others(gradients, participating, k)
                freedom = self.decay * freedom + len(others) - 1
        return total / freedom if freedom else 0.0
