"""Many gradients at once, compiled once for each kind and shape of problem, whatever the batch sizes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.lab.problems import Problem

DRAWS = 12_000


def _gradient(problem: Problem, model: Any, size: Any, key: Any) -> Any:
    return problem.gradient(model, size, key)


sample: Any = jax.jit(jax.vmap(_gradient, in_axes=(None, None, 0, 0)))


def draw(problem: Problem, model: Any, size: Any, seed: int) -> Any:
    """Return `DRAWS` independent mean gradients over `size` samples each (one number, or one per draw)."""
    sizes = jnp.broadcast_to(jnp.asarray(size, jnp.int32), (DRAWS,))
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    return np.asarray(sample(problem, jnp.asarray(model, jnp.float32), sizes, keys), dtype=np.float64)
