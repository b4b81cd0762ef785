"""A loss that is equally curved in all directions, with noise: what remains of a training when only ‖m‖² and σ² count.

With curvature L the gradient at θ is m = L·θ. A single sample's gradient has variance σ² = base + slope·‖m‖², normal
and equal in all directions. The paper's linear regression is nearly of this kind (L = 2, slope d + 1, base 4d).
Forecasts of a training use this model. Where its numbers are uncertain, every repetition has others, drawn from
`draws`.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array, check_number, check_positive_integer
from guerdon.lab._trees import register


class Numbers(NamedTuple):
    """The five numbers: ‖m‖² before training, L, σ² at the minimum and its growth, and ‖m‖² at the goal."""

    signal: Any
    curvature: Any
    base: Any
    slope: Any
    goal: Any


@register
@dataclass(frozen=True)
class NoisyQuadratic:
    """The problem; a model is θ followed by the numbers of its repetition, which no gradient moves."""

    draws: Array  # (draws, 5)
    dim: int = field(metadata={"static": True})
    max_batch: int = field(metadata={"static": True})

    def init(self, key: Array) -> Array:
        numbers = self.draws[jax.random.randint(key, (), 0, self.draws.shape[0])]
        signal, curvature = numbers[0], numbers[1]
        return jnp.concatenate([jnp.full(self.dim, jnp.sqrt(signal / self.dim) / curvature), numbers])

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        deviation = jnp.sqrt(self.variance(model) / (batch_size * self.dim))
        noise = deviation * jax.random.normal(key, (self.dim,), model.dtype)
        return self.population_gradient(model).at[: self.dim].add(noise)

    def population_gradient(self, model: Array) -> Array:
        return jnp.where(jnp.arange(model.shape[0]) < self.dim, self._numbers(model).curvature * model, 0.0)

    def variance(self, model: Array) -> Array:
        numbers = self._numbers(model)
        return numbers.base + numbers.slope * jnp.sum(self.population_gradient(model) ** 2)

    def metrics(self, model: Array) -> dict[str, Array]:
        """Return ln(‖m‖²/goal): 0 at the goal."""
        signal = jnp.sum(self.population_gradient(model) ** 2)
        return {"left": jnp.log(jnp.maximum(signal, 1e-30) / self._numbers(model).goal)}

    def validation_loss(self, model: Array) -> Array:
        """Return ½L‖θ‖²."""
        return self._numbers(model).curvature * jnp.sum(model[: self.dim] ** 2) / 2

    def _numbers(self, model: Array) -> Numbers:
        return Numbers(*model[self.dim :])


def noisy_quadratic(numbers: Numbers, dim: int = 100, max_batch: int = 64) -> NoisyQuadratic:
    """Return the problem with these numbers, each one value or an array of equally likely values."""
    check_positive_integer("dim", dim)
    check_positive_integer("max_batch", max_batch)
    columns = np.atleast_2d(np.array(np.broadcast_arrays(*numbers), dtype=np.float64).T)
    for name, column in zip(Numbers._fields, columns.T, strict=True):
        for value in column:
            check_number(name, value, minimum=0, inclusive=name == "slope")
    return NoisyQuadratic(jnp.asarray(columns, jnp.float32), dim, max_batch)
