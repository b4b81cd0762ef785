"""Logistic regression on a data set held in memory; minibatches are drawn from it with replacement."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array, check_positive_integer
from guerdon.lab._trees import register

VALIDATED = 128  # rows that a server's validation loss is the mean over


@register
@dataclass(frozen=True)
class LogisticRegression:
    """Logistic regression with labels 0 and 1, from the zero vector; its metric is accuracy on the validation set."""

    features: Array
    labels: Array
    validation_features: Array
    validation_labels: Array
    max_batch: int = field(metadata={"static": True})

    def init(self, key: Array) -> Array:
        del key
        return jnp.zeros(self.features.shape[1], self.features.dtype)

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        return self.mean_gradient(model, jax.random.bits(key, (self.max_batch,)) % self.num_rows, batch_size)

    @property
    def num_rows(self) -> int:
        """How many rows there are to draw from."""
        return self.features.shape[0]

    def mean_gradient(self, model: Array, rows: Array, batch_size: Array) -> Array:
        """Return the mean gradient over the first `batch_size` of some rows."""
        features = self.features[rows]
        used = jnp.arange(len(rows)) < batch_size
        return jnp.where(used, _residuals(features, self.labels[rows], model), 0.0) @ features / batch_size

    def population_gradient(self, model: Array) -> Array:
        return _residuals(self.features, self.labels, model) @ self.features / self.features.shape[0]

    def variance(self, model: Array) -> Array:
        lengths = _residuals(self.features, self.labels, model) ** 2 * jnp.sum(self.features**2, axis=1)
        return jnp.mean(lengths) - jnp.sum(self.population_gradient(model) ** 2)

    def metrics(self, model: Array) -> dict[str, Array]:
        positive = model @ self.validation_features.T > 0  # for many models at once, faster than rows @ model
        # Of the rows called positive those that are add 1, and the others take it off: a product, faster than a mean.
        gained = positive.astype(model.dtype) @ (2 * self.validation_labels - 1)
        right = gained + jnp.sum(self.validation_labels < 0.5)  # with no row called positive, all that are not
        return {"accuracy": right / self.validation_labels.shape[0]}

    def validation_loss(self, model: Array) -> Array:
        """Return the mean logistic loss over the first `VALIDATED` validation rows."""
        scores = self.validation_features[:VALIDATED] @ model
        return jnp.mean(jax.nn.softplus(scores) - self.validation_labels[:VALIDATED] * scores)


def logistic_regression(
    features: Any, labels: Any, validation_features: Any, validation_labels: Any, max_batch: int = 64
) -> LogisticRegression:
    """Return logistic regression on the given rows (add a column of ones for an intercept)."""
    check_positive_integer("max_batch", max_batch)
    arrays = [jnp.asarray(array, jnp.float32) for array in (features, labels, validation_features, validation_labels)]
    for name, rows, labelled in (("features", arrays[0], arrays[1]), ("validation_features", arrays[2], arrays[3])):
        if rows.ndim != 2 or labelled.shape != rows.shape[:1] or rows.shape[0] == 0:
            raise ValueError(
                f"`{name}` must be (rows, columns) with one label per row, got {rows.shape} and {labelled.shape}"
            )
        if not np.isin(labelled, (0, 1)).all():
            raise ValueError(f"the labels of `{name}` must be 0 or 1, got others")
    columns, validated = arrays[0].shape[1], arrays[2].shape[1]
    if columns != validated:
        raise ValueError(f"`validation_features` must have the {columns} columns of `features`, got {validated}")
    return LogisticRegression(*arrays, max_batch=max_batch)


def _residuals(features: Array, labels: Array, model: Array) -> Array:
    return jax.nn.sigmoid(features @ model) - labels
