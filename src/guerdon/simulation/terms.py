"""What an experiment may say that only a simulation can know: the true variance, and when the goal is reached."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from guerdon.arrays import Array
from guerdon.mechanisms import KnownVariance, Truth, VarianceRule
from guerdon.problems import Problem


@dataclass(frozen=True)
class TrueVariance(VarianceRule):
    """Stands for `KnownVariance(σ²)` with the problem's own σ² at the model of each round."""

    least_participants = 2

    def variances(self, history: Any, spread: Any) -> Any:
        """Raise: only the simulator knows σ²."""
        del history, spread
        raise TypeError(
            "`TrueVariance` must be used in `simulate`, which knows the problem; elsewhere use KnownVariance"
        )

    remember = variances

    def knowing(self, truth: Truth) -> VarianceRule:
        """Return that σ² is known."""
        return KnownVariance(truth.variance)

    @property
    def variance(self) -> Any:
        """Raise likewise."""
        return self.variances(None, None)


class AtModel(NamedTuple):
    """What only the simulator knows: the true gradient and σ² at a model. It is a `Truth`."""

    problem: Problem
    model: Array

    @property
    def gradient(self) -> Array:
        """The true gradient."""
        return self.problem.population_gradient(self.model)

    @property
    def variance(self) -> Array:
        """σ² there."""
        return self.problem.variance(self.model)


@dataclass(frozen=True)
class Stop:
    """When a run has reached its goal: `metric` at most or at least a value. From then on nothing is done or paid."""

    metric: str
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("`Stop` must have either `at_most` or `at_least`, got " + repr(self))

    def reached(self, metrics: Mapping[str, Array]) -> Array:
        """Tell whether the goal is reached."""
        value = metrics[self.metric]
        return value <= self.at_most if self.at_least is None else value >= self.at_least
