"""Federations as they are: every agent has data of its own, and may take several steps on them before it reports.

The paper's agents draw fresh samples of one population. `Federation` gives each agent its own rows of a data set: small
pools of the same kind, or rows of different kinds (`guerdon.lab.problems.splits`). `LocalTraining` lets agents train as
FedAvg's do: fewer samples are fewer steps.
"""

# JAX's transformations forget the types of their arguments.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array, check_number, check_positive_integer
from guerdon.lab._trees import register


class _OfProblem:
    """What a federation has of its problem as it is."""

    problem: Any

    def init(self, key: Array) -> Array:
        """Return the model before training."""
        return self.problem.init(key)

    def population_gradient(self, model: Array) -> Array:
        """Return the gradient over all rows."""
        return self.problem.population_gradient(model)

    def variance(self, model: Array) -> Array:
        """Return σ² over all rows."""
        return self.problem.variance(model)

    def metrics(self, model: Array) -> dict[str, Array]:
        """Return the metrics of the problem."""
        return self.problem.metrics(model)

    def validation_loss(self, model: Array) -> Array:
        """Return the loss of the problem on the server's own data."""
        return self.problem.validation_loss(model)


@register
@dataclass(frozen=True)
class Federation(_OfProblem):
    """A problem with rows (`logistic_regression`, `from_loss`) whose agents draw from rows of their own.

    `rows` is (agents, most rows), of which agent k has the first `counts[k]`; `federation` makes it.
    """

    problem: Any
    rows: Array
    counts: Array

    @property
    def max_batch(self) -> int:
        """The largest batch size."""
        return self.problem.max_batch

    @property
    def num_agents(self) -> int:
        """How many agents have data."""
        return self.rows.shape[0]

    def local_gradient(self, model: Array, agent: Array, batch_size: Array, key: Array) -> Array:
        """Return the mean gradient over `batch_size` of an agent's own rows, drawn with replacement."""
        drawn = jax.random.bits(key, (self.max_batch,)) % self.counts[agent].astype(jnp.uint32)
        return self.problem.mean_gradient(model, self.rows[agent, drawn], batch_size)

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        """Return the mean gradient over rows of all."""
        return self.problem.gradient(model, batch_size, key)


def federation(problem: Any, rows: Sequence[Any]) -> Federation:
    """Return the problem with agent k drawing from `rows[k]` alone (indices of rows, at least one each).

    >>> from guerdon.lab.problems import logistic_regression
    >>> data = np.eye(4), np.array([0, 1, 0, 1])
    >>> federation(logistic_regression(*data, *data), [[0, 1], [2, 3, 1]]).counts
    Array([2, 3], dtype=int32)
    """
    if not hasattr(problem, "mean_gradient"):
        raise TypeError(f"`problem` must have rows, as those of `logistic_regression` have, got {problem!r}")
    given = [np.asarray(indices) for indices in rows]
    for agent, indices in enumerate(given):
        if (
            indices.ndim != 1
            or not len(indices)
            or indices.dtype.kind not in "iu"
            or not 0 <= indices.min() <= indices.max() < problem.num_rows
        ):
            raise ValueError(
                f"`rows[{agent}]` must be indices of the {problem.num_rows} rows, at least one, got {indices}"
            )
    most = max(map(len, given))
    return Federation(
        problem,
        jnp.asarray([np.resize(indices, most) for indices in given], jnp.int32),
        jnp.asarray([len(indices) for indices in given], jnp.int32),
    )


@register
@dataclass(frozen=True)
class LocalTraining(_OfProblem):
    """Agents that train as under FedAvg: a step of `rate` for every `problem.max_batch` samples that they use.

    What they send is how far they moved, divided by the rate: the sum of the gradients on their way. A server that
    steps by `rate` along the mean of these does what FedAvg does. Fewer samples are fewer steps, as in any data loader.
    """

    problem: Any  # whose max_batch is the size of a minibatch
    rate: float
    max_batch: int = field(metadata={"static": True})

    def local_gradient(self, model: Array, agent: Array, batch_size: Array, key: Array) -> Array:
        """Return the sum of the gradients on an agent's way, as many as its samples allow."""
        minibatch = self.problem.max_batch

        def step(number: Array, trained: Array) -> Array:
            left = jnp.clip(batch_size - number * minibatch, 0, minibatch)
            drawn = draw_gradient(self.problem, trained, agent, jnp.maximum(left, 1), jax.random.fold_in(key, number))
            return trained - self.rate * jnp.where(left > 0, drawn, 0.0)

        trained = jax.lax.fori_loop(0, -(-self.max_batch // minibatch), step, model)
        return (model - trained) / self.rate

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        """Return the move of the first agent."""
        return self.local_gradient(model, jnp.asarray(0), batch_size, key)


def local_training(problem: Any, rate: float, max_batch: int = 64) -> LocalTraining:
    """Return the problem with agents that take a step of `rate` per minibatch of `problem.max_batch` samples."""
    check_number("rate", rate, minimum=0, inclusive=False)
    check_positive_integer("max_batch", max_batch)
    return LocalTraining(problem, rate, max_batch)


def draw_gradient(problem: Any, model: Array, agent: Array, batch_size: Array, key: Array) -> Array:
    """Return what an agent computes of `batch_size` samples: of its own, where the problem has such."""
    if draws_alike(problem):
        return problem.gradient(model, batch_size, key)
    return problem.local_gradient(model, agent, batch_size, key)


def draws_alike(problem: Any) -> bool:
    """Tell whether all agents draw fresh samples of the same kind: the problem gives them no data of their own."""
    return not hasattr(problem, "local_gradient")
