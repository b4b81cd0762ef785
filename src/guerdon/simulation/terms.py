"""What only a simulation knows: the truth at a model, and when the goal is reached."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from guerdon.arrays import Array
from guerdon.problems import Problem


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
