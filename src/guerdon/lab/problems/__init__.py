"""What is being learned: problems that agents draw stochastic gradients from. They need the extra `sim` (JAX)."""

from typing import Protocol

from guerdon.arrays import Array
from guerdon.lab.problems.from_loss import FromLoss, from_loss
from guerdon.lab.problems.linear_regression import LinearRegression, linear_regression
from guerdon.lab.problems.logistic_regression import LogisticRegression, logistic_regression
from guerdon.lab.problems.quadratic import NoisyQuadratic, noisy_quadratic

__all__ = [
    "FromLoss",
    "LinearRegression",
    "LogisticRegression",
    "NoisyQuadratic",
    "Problem",
    "from_loss",
    "linear_regression",
    "logistic_regression",
    "noisy_quadratic",
]


class Problem(Protocol):
    """A model θ (one flat vector), and the source of stochastic gradients of its loss.

    Every problem is a JAX pytree: its arrays are data, everything else is part of its type.
    """

    @property
    def max_batch(self) -> int:
        """The largest batch size that `gradient` can draw."""
        ...

    def init(self, key: Array) -> Array:
        """Return the model before training."""
        ...

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        """Return the mean gradient over `batch_size` (≥ 1, may be traced) fresh samples."""
        ...

    def population_gradient(self, model: Array) -> Array:
        """Return m, the gradient of the population loss: the mean of the samples' gradients."""
        ...

    def variance(self, model: Array) -> Array:
        """Return σ² = E‖∇ℓ(θ; Z) − m‖², the variance of a single-sample gradient."""
        ...

    def metrics(self, model: Array) -> dict[str, Array]:
        """Return measures of how good a model is, by name."""
        ...
