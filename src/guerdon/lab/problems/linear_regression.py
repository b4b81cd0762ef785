"""The paper's linear regression: Y ~ N(0, I), V = Y·θ* + N(0, 1), squared loss (Y·θ − V)².

Everything is known in closed form. With δ = θ − θ* and x = ‖δ‖²: m = 2δ, σ² = 4((d + 1)x + d), and one
step with mean over K agents of batch size S takes E[x] to x(1 − 2η)² + 4η²((d + 1)x + d)/(K·S), exactly.

Beyond the paper, the features may have unequal variances λ_i, with mean 1. Then the loss is curved unequally, by 2λ_i.
In the coordinates √λ_i·θ_i it is the paper's problem again, and gradients are drawn there; x is the excess loss
Σ λ_i·δ_i².
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array, check_number, check_positive_integer
from guerdon.lab._trees import register
from guerdon.lab.problems._chi_squares import chi_squares, normals, uniforms, words_needed

# Up to this many samples their normal numbers are added up; of more, the sums are drawn, at a cost that does not grow.
# At d = 100 a whole simulation takes 0.9 to 1.1 times as long with the first (16 samples), 0.9 to 1.2 (32), 1.0 to 1.3
# (64): Fig. 3's workload, 100 repetitions, processor time, least of seven, on a busy machine.
FEW = 32


@register
@dataclass(frozen=True)
class LinearRegression:
    """Linear regression towards `target` (θ*), from the zero vector.

    `literal` draws every sample and averages their gradients, as an agent would; otherwise the mean gradient is drawn
    from the same law at a cost that does not depend on the batch size.
    """

    target: Array
    scales: Array  # √λ_i
    max_batch: int = field(metadata={"static": True})
    literal: bool = field(default=False, metadata={"static": True})

    def init(self, key: Array) -> Array:
        del key
        return jnp.zeros_like(self.target)

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        draw = _draw_literally if self.literal else _draw_at_once
        return self.scales * draw(self._error(model), batch_size, self.max_batch, key)

    def population_gradient(self, model: Array) -> Array:
        """Return m = 2λ_i(θ_i − θ*_i)."""
        return 2 * self.scales * self._error(model)

    def variance(self, model: Array) -> Array:
        """Return σ² = 4(d(x + 1) + Σ λ_i²δ_i²), which is 4((d + 1)x + d) where all λ_i are 1."""
        error = self._error(model)
        return 4 * (self.target.shape[0] * (jnp.sum(error**2) + 1) + jnp.sum((self.scales * error) ** 2))

    def metrics(self, model: Array) -> dict[str, Array]:
        """Return the error x = Σ λ_i(θ_i − θ*_i)²."""
        return {"error": jnp.sum(self._error(model) ** 2)}

    def validation_loss(self, model: Array) -> Array:
        """Return the excess loss of the population: what a validation set of any size would show."""
        return jnp.sum(self._error(model) ** 2)

    def in_frame(self, num_agents: int) -> "FramedRegression | None":
        """Return the problem without its dimension for so many agents; None where that is not the same, or not less."""
        if self.literal or num_agents + 1 >= self.target.shape[0] or not np.all(np.asarray(self.scales) == 1):
            return None
        length = jnp.sqrt(jnp.sum(self.target**2))
        dim = jnp.asarray(self.target.shape[0], self.target.dtype)
        return FramedRegression(jnp.zeros(num_agents + 1, length.dtype).at[0].set(length), dim, self.max_batch)

    def _error(self, model: Array) -> Array:
        """Return √λ_i(θ_i − θ*_i)."""
        return self.scales * (model - self.target)


@register
@dataclass(frozen=True)
class FramedRegression:
    """Linear regression as only lengths and angles see it: K agents' gradients at a cost that does not depend on d.

    The law of the gradients is the same in every direction around δ = θ − θ*. So all products of the K gradients and δ
    follow from coordinates in a frame of K + 1 directions: δ's own, and K orthogonal ones that span the rest of the
    gradients. There the parts orthogonal to δ, K normal vectors in d − 1 dimensions, are the rows of a triangular
    matrix: χ variables with d − 1, d − 2, … degrees of freedom on the diagonal, and normal numbers below (Bartlett,
    1933). A model is δ itself; `turn` takes the next δ to the frame's first direction, where the next round needs it.
    Rules that look at products alone, and agents that look at no vector, cannot tell the difference.
    """

    start: Array  # δ before training, in the frame: its length, and zeros
    dim: Array
    max_batch: int = field(metadata={"static": True})

    def init(self, key: Array) -> Array:
        del key
        return self.start

    def gradients(self, model: Array, batch_sizes: Array, key: Array) -> Array:
        """Return all agents' mean gradients (agents, agents + 1), each over its `batch_sizes` (≥ 1) fresh samples."""
        count, dtype = batch_sizes.shape[0], model.dtype
        below = np.tril_indices(count, -1)
        pairs = len(below[0])
        words = uniforms(key, count + pairs + words_needed(3 * count), dtype)
        drawn = normals(words[: count + pairs])
        freedom = jnp.asarray(batch_sizes, dtype)
        squares = jnp.concatenate([freedom, freedom - 1, self.dim - 1 - jnp.arange(count)])
        first, second, diagonal = chi_squares(squares, words[count + pairs :], key).reshape(3, count)
        along, across = _along_and_across(model[0], *_wishart(drawn[:count], first, second))
        rows = jnp.diag(jnp.sqrt(diagonal)).at[below].set(drawn[count:])
        return 2 / freedom[:, None] * jnp.concatenate([along[:, None], across[:, None] * rows], axis=1)

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        """Return the gradient of one agent alone."""
        return self.gradients(model, jnp.broadcast_to(batch_size, (model.shape[0] - 1,)), key)[0]

    def turn(self, model: Array) -> Array:
        """Return the model turned into the frame's first direction."""
        return jnp.zeros_like(model).at[0].set(jnp.sqrt(jnp.sum(model**2)))

    def population_gradient(self, model: Array) -> Array:
        return 2 * model

    def variance(self, model: Array) -> Array:
        """Return σ² = 4((d + 1)x + d)."""
        return 4 * ((self.dim + 1) * jnp.sum(model**2) + self.dim)

    def metrics(self, model: Array) -> dict[str, Array]:
        return {"error": jnp.sum(model**2)}


def linear_regression(
    dim: int = 100, distance: float = 100.0, max_batch: int = 64, literal: bool = False, condition: float = 1.0
) -> LinearRegression:
    """Return linear regression in `dim` dimensions whose squared error is `distance` before training.

    `condition` is the ratio of the largest to the smallest variance of a feature; those between are evenly spaced on a
    logarithmic scale.

    >>> linear_regression(dim=100).target[:3]
    Array([1., 1., 1.], dtype=float32)
    """
    check_positive_integer("dim", dim)
    check_positive_integer("max_batch", max_batch)
    check_number("distance", distance, minimum=0)
    check_number("condition", condition, minimum=1)
    variances = np.geomspace(1.0, condition, dim)
    scales = np.sqrt(variances / np.mean(variances))
    target = np.full(dim, (distance / dim) ** 0.5)
    return LinearRegression(jnp.asarray(target), jnp.asarray(scales, jnp.float32), max_batch, literal)


def expected_errors(dim: int, num_agents: int, batch_size: int, step: float, start: float, rounds: int) -> list[float]:
    """Return E‖θ_t − θ*‖² for t = 0…rounds when all agents use `batch_size`: the exact recursion.

    >>> [round(x, 1) for x in expected_errors(100, 10, 8, optimal_step(100, 10, 8), 100.0, 3)]
    [100.0, 56.0, 31.5, 17.8]
    """
    errors = [start]
    for _ in range(rounds):
        x = errors[-1]
        errors.append(x * (1 - 2 * step) ** 2 + 4 * step**2 * ((dim + 1) * x + dim) / (num_agents * batch_size))
    return errors


def optimal_step(dim: int, num_agents: int, batch_size: int) -> float:
    """Return η(ν) = 1/(2(1 + (d + 1)/(K·ν))), the step that contracts a large error fastest."""
    for name, value in (("dim", dim), ("num_agents", num_agents), ("batch_size", batch_size)):
        check_positive_integer(name, value)
    return 1 / (2 * (1 + (dim + 1) / (num_agents * batch_size)))


def _draw_literally(delta: Array, batch_size: Array, max_batch: int, key: Array) -> Array:
    """Draw `max_batch` samples, use the first `batch_size` of them."""
    features_key, noise_key = jax.random.split(key)
    features = jax.random.normal(features_key, (max_batch, delta.shape[0]), delta.dtype)
    residuals = features @ delta - jax.random.normal(noise_key, (max_batch,), delta.dtype)
    used = jnp.arange(max_batch) < batch_size
    return 2 * jnp.where(used, residuals, 0.0) @ features / batch_size


def _draw_at_once(delta: Array, batch_size: Array, max_batch: int, key: Array) -> Array:
    """Draw the mean gradient from its law: along δ, and orthogonal to it.

    With a_i the sample's component along u = δ/‖δ‖, ε_i its noise and e_i = ‖δ‖a_i − ε_i, the mean gradient is
    (2/S)(u·Σ a_i e_i + √(Σ e_i²)·z), z standard normal orthogonal to u.
    """
    length = jnp.sqrt(jnp.sum(delta**2))
    unit = delta / jnp.where(length > 0, length, 1.0)
    sums = _sums_over_few if max_batch <= FEW else _sums_over_many
    side, products = sums(batch_size, max_batch, delta, key)
    side = side - unit * jnp.sum(unit * side)
    along, across = _along_and_across(length, *products)
    return 2 / batch_size * (unit * along + across * side)


def _along_and_across(length: Array, sum_aa: Array, sum_ae: Array, sum_ee: Array) -> tuple[Array, Array]:
    """Return Σ a_i e_i and √(Σ e_i²)."""
    squares = jnp.maximum(length**2 * sum_aa - 2 * length * sum_ae + sum_ee, 0.0)
    return length * sum_aa - sum_ae, jnp.sqrt(squares)


def _sums_over_few(batch_size: Array, max_batch: int, delta: Array, key: Array) -> tuple[Array, tuple[Array, ...]]:
    """Return z, and Σ a_i², Σ a_i ε_i, Σ ε_i² over `batch_size` samples, added up: one call for all normals."""
    dim = delta.shape[0]
    normals = jax.random.normal(key, (dim + 2 * max_batch,), delta.dtype)
    used = jnp.arange(max_batch) < batch_size
    a = jnp.where(used, normals[dim : dim + max_batch], 0.0)
    noise = jnp.where(used, normals[dim + max_batch :], 0.0)
    return normals[:dim], (jnp.sum(a * a), jnp.sum(a * noise), jnp.sum(noise * noise))


def _sums_over_many(batch_size: Array, max_batch: int, delta: Array, key: Array) -> tuple[Array, tuple[Array, ...]]:
    """Return the same at a cost that does not depend on the number of samples."""
    del max_batch
    dim = delta.shape[0]
    words = uniforms(key, dim + 1 + words_needed(2), delta.dtype)
    drawn = normals(words[: dim + 1])
    freedom = jnp.asarray(batch_size, delta.dtype)
    squares = chi_squares(jnp.stack([freedom, freedom - 1]), words[dim + 1 :], key)
    return drawn[:-1], _wishart(drawn[-1], *squares)


def _wishart(across: Array, first: Array, second: Array) -> tuple[Array, Array, Array]:
    """Return Σ a_i², Σ a_i ε_i, Σ ε_i² over S samples, by Bartlett's decomposition of the Wishart matrix they form.

    `across` is a normal number, and the others are χ² variables with S and S − 1 degrees of freedom.
    """
    return first, jnp.sqrt(first) * across, across**2 + second
