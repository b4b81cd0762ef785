"""Any JAX model: a loss of one example, data in memory, and parameters in any pytree."""

# JAX's transformations forget the types of their arguments.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from guerdon.arrays import Array, check_positive_integer
from guerdon.lab._trees import register

VALIDATED = 128  # rows that a server's validation loss is the mean over


@register
@dataclass(frozen=True)
class FromLoss:
    """Learning to minimise `loss(parameters, example)` over the examples of `data`, drawn with replacement."""

    data: Any
    loss: Callable[[Any, Any], Array] = field(metadata={"static": True})
    start: Callable[[Array], Any] = field(metadata={"static": True})
    score: Callable[[Any], dict[str, Array]] = field(metadata={"static": True})
    unravel: Callable[[Array], Any] = field(metadata={"static": True})
    max_batch: int = field(metadata={"static": True})

    def init(self, key: Array) -> Array:
        return ravel_pytree(self.start(key))[0]

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        return self.mean_gradient(model, jax.random.bits(key, (self.max_batch,)) % self.num_rows, batch_size)

    @property
    def num_rows(self) -> int:
        """How many examples there are to draw from."""
        return jax.tree.leaves(self.data)[0].shape[0]

    def mean_gradient(self, model: Array, rows: Array, batch_size: Array) -> Array:
        """Return the mean gradient over the first `batch_size` of some rows."""
        examples = jax.tree.map(lambda x: x[rows], self.data)
        weights = (jnp.arange(len(rows)) < batch_size) / batch_size
        return jax.grad(lambda m: jnp.sum(weights * self._losses(m, examples)))(model)

    def population_gradient(self, model: Array) -> Array:
        return jax.grad(lambda m: jnp.mean(self._losses(m, self.data)))(model)

    def variance(self, model: Array) -> Array:
        def squared_length(example: Any) -> Array:
            return jnp.sum(jax.grad(lambda m: self.loss(self.unravel(m), example))(model) ** 2)

        lengths = jax.lax.map(squared_length, self.data, batch_size=256)
        return jnp.mean(lengths) - jnp.sum(self.population_gradient(model) ** 2)

    def metrics(self, model: Array) -> dict[str, Array]:
        return self.score(self.unravel(model))

    def validation_loss(self, model: Array, rows: int = VALIDATED) -> Array:
        """Return the mean loss over the first rows of the data."""
        return jnp.mean(self._losses(model, jax.tree.map(lambda x: x[:rows], self.data)))

    def _losses(self, model: Array, examples: Any) -> Array:
        return jax.vmap(self.loss, in_axes=(None, 0))(self.unravel(model), examples)


def from_loss(
    loss: Callable[[Any, Any], Array],
    data: Any,
    init: Callable[[Array], Any],
    metrics: Callable[[Any], dict[str, Array]] | None = None,
    max_batch: int = 64,
) -> FromLoss:
    """Return the problem of minimising the mean of `loss(parameters, example)` over the rows of `data`.

    `data` is a pytree of arrays with one row per example, `init(key)` gives parameters in any pytree, and
    `metrics(parameters)` a dict of numbers; without it the metric is the mean loss over all of `data`.
    """
    check_positive_integer("max_batch", max_batch)
    data = jax.tree.map(jnp.asarray, data)
    lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"`data` must hold arrays with the same number of rows, at least 1, got {sorted(lengths)}")
    unravel = ravel_pytree(init(jax.random.key(0)))[1]

    def mean_loss(parameters: Any) -> dict[str, Array]:
        return {"loss": jnp.mean(jax.vmap(loss, in_axes=(None, 0))(parameters, data))}

    return FromLoss(data, loss, init, metrics or mean_loss, unravel, max_batch)
