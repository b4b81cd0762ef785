"""The adaptive rule once more, in plain Python: one curvature at a time, from the gradients themselves.

Written from the formulas in the documentation and sharing no code with `guerdon.noise_scale`, only its constants.
"""

import math
from typing import Any

import numpy as np

from guerdon import noise_scale as constants


class Oracle:
    """The filter of one training; `observe` takes the gradients of a round, and returns step and noise scale."""

    def __init__(self, num_agents: int, curvature: float = constants.CURVATURE) -> None:
        span = constants.DECADES * math.log(10)
        self.offsets = [-span + 2 * span * i / (constants.POINTS - 1) for i in range(constants.POINTS)]
        guess = [math.exp(-((x / constants.GUESS) ** 2) / 2) for x in self.offsets]
        self.guess = [math.log(g / sum(guess)) for g in guess]
        self.curvatures = [curvature * math.exp(x) for x in self.offsets]
        self.beliefs = [
            {"signal": 0.0, "variance": 0.0, "turn": 0.0, "turn_variance": 0.0, "weight": g} for g in self.guess
        ]
        self.past: list[Any] = []
        self.variances: list[float] = []
        self.crowd = float(num_agents)
        self.unit = self.step = 0.0
        self.freedom, self.scatter = constants.FIRST_DIMENSION, 1.0
        self.kappa, self.zeta = [0.0, 0.0], [0.0, 0.0]

    def observe(self, gradients: Any, request: int) -> tuple[float, float]:
        n = len(gradients)
        mean: Any = sum(gradients) / n
        trail: Any = 0 * mean
        for age, old in enumerate(reversed(self.past)):
            trail = trail + constants.TRAIL**age * old
        self.past.append(mean)
        self._count(n, request, gradients, mean)
        v, first = 1 / (n * request), len(self.variances) == 1
        square, signal = float(mean @ mean) / self.unit, _cross(gradients) / self.unit
        self._dimension(gradients, signal, v)
        turn = float(mean @ trail) / self.unit
        turn_noise = float(trail @ trail) / self.unit * v / self.dimension + 1e-6 * v * v
        predicted = [max(b["signal"], 0.0) for b in self.beliefs]
        for b, g in zip(self.beliefs, self.guess, strict=True):
            self._correct(b, g, signal, turn, turn_noise, v, first)
        top = max(b["weight"] for b in self.beliefs)
        total = top + math.log(sum(math.exp(b["weight"] - top) for b in self.beliefs))
        for b in self.beliefs:
            b["weight"] = max(b["weight"] - total, constants.UNLIKELY)
        if not first:
            self._regress(predicted, signal, turn, turn_noise, v)
        else:
            self.kappa, self.zeta = [0.0, 0.0], [0.0, 0.0]
        return self._decide(square, turn, v)

    def _count(self, n: int, request: int, gradients: Any, mean: Any) -> None:
        self.variances.append(request * sum(float((x - mean) @ (x - mean)) for x in gradients) / (n - 1))
        weights = [constants.RECENT**age for age in range(len(self.variances))]
        unit = sum(w * s for w, s in zip(weights, reversed(self.variances), strict=True)) / sum(weights)
        ratio = self.unit / unit
        for b in self.beliefs:
            for name, power in (("signal", 1), ("variance", 2), ("turn", 1), ("turn_variance", 2)):
                b[name] *= ratio**power
        self.unit = unit
        self.crowd = constants.RECENT * self.crowd + (1 - constants.RECENT) * n

    def _dimension(self, gradients: Any, signal: float, v: float) -> None:
        n = len(gradients)
        if n > 2:
            left_out = [_cross([x for i, x in enumerate(gradients) if i != k]) / self.unit for k in range(n)]
            jackknife = (n - 1) / n * sum((x - signal) ** 2 for x in left_out)
            self.freedom = constants.WATCH * self.freedom + 4 + 4 * max(signal, 0.0) / v
            self.scatter = constants.WATCH * self.scatter + jackknife / v**2
        self.dimension = min(max(self.freedom / self.scatter, 1.0), 1e6)

    def _noise(self, signal: float, v: float) -> float:
        return (2 * v * v + 4 * signal * v) / self.dimension

    def _correct(
        self, b: dict[str, float], guess: float, signal: float, turn: float, turn_noise: float, v: float, first: bool
    ) -> None:
        noise = self._noise(max(signal, 0.0) if first else max(b["signal"], 0.0), v)
        prior = 1e6 * noise if first else b["variance"]
        total, turn_total = prior + noise, b["turn_variance"] + turn_noise
        miss, turn_miss = signal - b["signal"], turn - b["turn"]
        fit = -(miss**2 / total + math.log(total)) / 2 - (turn_miss**2 / turn_total + math.log(turn_total)) / 2
        b["signal"] += prior / total * miss
        b["variance"] = prior * noise / total
        b["turn"] = 0.0 if first else b["turn"] + b["turn_variance"] / turn_total * turn_miss
        b["turn_variance"] = 0.0 if first else b["turn_variance"] * turn_noise / turn_total
        b["signal"] = max(b["signal"], constants.FAINT * math.sqrt(b["variance"]))
        b["weight"] = constants.MEMORY * b["weight"] + (1 - constants.MEMORY) * guess + (0.0 if first else fit)

    def _mean(self, values: list[float]) -> float:
        weights = [math.exp(b["weight"]) for b in self.beliefs]
        return sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)

    def _regress(self, predicted: list[float], signal: float, turn: float, turn_noise: float, v: float) -> None:
        before, now = self._mean(predicted), self._mean([b["signal"] for b in self.beliefs])
        noise = self._noise(before, v)
        for sums, decay, y, x, variance in (
            (self.kappa, constants.WATCH, signal, before, noise),
            (self.zeta, constants.STEADY, turn, now, turn_noise),
        ):
            sums[0] = decay * sums[0] + y * x / variance
            sums[1] = decay * sums[1] + x * x / variance

    def _decide(self, square: float, turn: float, v: float) -> tuple[float, float]:
        trust = constants.DOUBT**-2
        kappa = min(max((trust + self.kappa[0]) / (trust + self.kappa[1]), 0.25), 4.0)
        zeta = self.zeta[0] / (1 + self.zeta[1])
        strong = kappa * min(max(1 + constants.PERSISTENCE * zeta, 0.5), 3.0)
        strong *= self._mean([b["signal"] for b in self.beliefs])
        steep = [c * (kappa * b["signal"] + v) for c, b in zip(self.curvatures, self.beliefs, strict=True)]
        step = strong / self._mean(steep)
        self.step = min(step, constants.GROWTH * self.step) if self.step > 0 else step
        for c, b in zip(self.curvatures, self.beliefs, strict=True):
            self._predict(b, min(self.step * c, constants.OVERSHOOT), square, turn, v)
        return self.step, 1 / strong

    def _predict(self, b: dict[str, float], moved: float, square: float, turn: float, v: float) -> None:
        signal, off = b["signal"], (constants.MODEL_ERROR * b["signal"]) ** 2
        share = 2 * signal / (2 * signal + v)
        along = signal + share / 2 * (square - v - signal)
        along_variance = b["variance"] * (1 - share / 2) ** 2 + (1 - share) * signal * v / self.dimension
        b["turn"] = constants.TRAIL * b["turn"] + along - moved * (constants.TRAIL * turn + square)
        b["turn_variance"] = constants.TRAIL**2 * b["turn_variance"] + along_variance + off
        b["signal"] = signal * (1 - moved) ** 2 + moved**2 * v
        b["variance"] = b["variance"] * (1 - moved) ** 4 + off


def _cross(gradients: Any) -> float:
    """Return the mean of ⟨X_i, X_j⟩ over i ≠ j."""
    pairs = [(i, j) for i in range(len(gradients)) for j in range(len(gradients)) if i != j]
    return float(np.mean([gradients[i] @ gradients[j] for i, j in pairs]))
