"""How much a round's reports tell beyond a public prediction, and how much of that is noise: a = g²/(g² + σ²/ν).

With v_k = X_k − p and w_k the mean of the other trusted members' v, a round is described by `InformationScores`. The
ratio g²/σ² changes little while a training converges, so it is remembered over rounds (`Signal`): for each agent
without its own reports, or one for all. Information pay scores by it, and trust ranks by it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, at_least_one, check_number, namespace
from guerdon.evidence import Evidence
from guerdon.rule import RESOLUTION

CAREFUL = 0.8  # times the estimate of a: too large a one pays for reports that shrink


class SignalState(NamedTuple):
    """What earlier rounds said of the ratio, per agent without its own reports."""

    signal: Array  # decayed sum of g²/σ²: unlike g² itself, it changes little while a training converges
    weight: Array  # and of rounds


class InformationScores(NamedTuple):
    """A round in the terms of the rule: per agent, and among the others."""

    agreement: Array  # ⟨v_k, w_k⟩
    squared_length: Array  # ‖v_k‖²
    signal_of_others: Array  # g², as the others have it
    squared_length_of_others: Array  # their mean ‖v‖²
    others: Array  # how many they are

    @property
    def cosine(self) -> Array:
        """cos(v_k, w_k); 0 where one of them is nothing."""
        xp, others = namespace(self.squared_length), at_least_one(self.others)
        square = self.squared_length * ((others - 1) * self.signal_of_others + self.squared_length_of_others) / others
        return xp.where(square > 0, self.agreement / xp.sqrt(xp.where(square > 0, square, 1.0)), 0.0)


@dataclass(frozen=True)
class Signal:
    """Remembers g²/σ²: see `InformationPay` for the settings."""

    decay: float = 0.7
    least: float = 0.005
    pooled: bool = False

    def __post_init__(self) -> None:
        for name, value in (("decay", self.decay), ("least", self.least)):
            check_number(name, value, minimum=0, inclusive=name == "decay")
            if value > 1:
                raise ValueError(f"`{name}` must be at most 1, got {value!r}")

    def init(self, num_agents: int) -> SignalState:
        """Return the state before the first round: nothing is known."""
        return SignalState(np.zeros(num_agents), np.zeros(num_agents))

    def shrinkage(self, state: SignalState, request: Any) -> Array:
        """Return ã as earlier rounds have it, per agent; 1 before the first."""
        xp = namespace(state.signal)
        ratio, remembered = self._ratio(state)
        return xp.where(remembered, self._shrunk(ratio, request), 1.0)

    def variance_and_shrinkage(self, state: SignalState, scores: InformationScores, nu: Array) -> tuple[Array, Array]:
        """Return σ² as all have it in this round, and a as earlier rounds had it without k.

        All are the trusted and k itself, so that where k is honest no agent among them is special. In the first round a
        too is from all.
        """
        xp = namespace(scores.squared_length)
        others = scores.others
        signal = ((others - 1) * scores.signal_of_others + 2 * scores.agreement) / (others + 1)
        length = (others * scores.squared_length_of_others + scores.squared_length) / (others + 1)
        variance = nu * _resolved(length - signal, length)
        now = signal / xp.where(variance > 0, variance, 1.0)
        ratio, remembered = self._ratio(state)
        return variance, self._shrunk(xp.where(remembered, ratio, now), nu)

    def learn(self, state: SignalState, scores: InformationScores, nu: Array) -> SignalState:
        """Return the state with this round added; a round of fewer than two others says nothing."""
        xp = namespace(scores.squared_length)
        noise, informative = noise_of_others(scores)
        ratio = scores.signal_of_others / (nu * xp.where(informative, noise, 1.0))
        signal = xp.where(informative, self.decay * state.signal + ratio, state.signal)
        weight = xp.where(informative, self.decay * state.weight + 1, state.weight)
        return SignalState(signal, weight)

    def _ratio(self, state: SignalState) -> tuple[Array, Array]:
        """Return g²/σ² as earlier rounds have it, and whether there were any."""
        xp, past, weight = namespace(state.signal), state.signal, state.weight
        if self.pooled:
            past, weight = xp.sum(past) + 0 * past, xp.sum(weight) + 0 * weight
        remembered = weight > 0
        return xp.where(remembered, past / xp.where(remembered, weight, 1.0), 0.0), remembered

    def _shrunk(self, ratio: Array, nu: Any) -> Array:
        """Return a at a ratio g²/σ²."""
        xp = namespace(ratio)
        strength = nu * xp.where(ratio > 0, ratio, 0.0)
        careful = CAREFUL if self.pooled else 1.0
        return xp.clip(careful * strength / (strength + 1), self.least, 1.0)


def information_scores(evidence: Evidence, trusted: Array) -> InformationScores:
    """Return the round's scores, from lengths and alignments with the trusted participants alone."""
    xp = namespace(evidence.squared_length)
    weight = xp.astype(trusted, evidence.squared_length.dtype)
    count = xp.sum(weight)
    others = count - weight
    cross = evidence.alignment - weight * evidence.squared_length  # ⟨v_k, sum of the other trusted v⟩
    pairs = at_least_one(others * (others - 1))
    signal = (xp.sum(weight * cross) - 2 * weight * cross) / pairs
    length = (xp.sum(weight * evidence.squared_length) - weight * evidence.squared_length) / at_least_one(others)
    return InformationScores(cross / at_least_one(others), evidence.squared_length, signal, length, others)


def noise_of_others(scores: InformationScores) -> tuple[Array, Array]:
    """Return σ²/ν as the others have it, and whether the round says anything of it: of fewer than two it does not."""
    noise = _resolved(scores.squared_length_of_others - scores.signal_of_others, scores.squared_length_of_others)
    return noise, (scores.others > 1) & (noise > 0)


def _resolved(noise: Array, length: Array) -> Array:
    """Return noise that is a difference of lengths; 0 where it is too small a part of them to be told from rounding."""
    return namespace(noise).where(noise > RESOLUTION * length, noise, 0.0)
