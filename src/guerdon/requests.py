"""How the server chooses what to ask for: the batch size ν_t and the step size η_t of each round.

A policy is a JAX pytree with pure functions, so that it runs inside a compiled simulation: another batch size or step
needs no new compilation.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from guerdon.arrays import Array, check_number, check_positive_integer


class Request(NamedTuple):
    """What is asked in a round, and how far the server will step."""

    batch_size: Array
    step: Array


class Requests(Protocol):
    """A policy for ν_t and η_t."""

    def ask(self, round: Array) -> Request:  # noqa: A002
        """Return what to ask for in `round` (0 for the first)."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FixedRequest:
    """The same request and step in every round: what the paper does."""

    batch_size: int
    step: float

    def ask(self, round: Array) -> Request:  # noqa: A002
        """Return the request."""
        del round
        return Request(jnp.asarray(self.batch_size), jnp.asarray(self.step))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ScheduledRequest:
    """A request and a step for each round; after the last, the last one again."""

    batch_sizes: Array
    steps: Array

    def ask(self, round: Array) -> Request:  # noqa: A002
        """Return the request scheduled for `round`."""
        turn = jnp.minimum(round, self.batch_sizes.shape[0] - 1)
        return Request(self.batch_sizes[turn], self.steps[turn])


def fixed_request(batch_size: int, step: float) -> FixedRequest:
    """Return the policy that always asks for `batch_size` and steps by `step`."""
    check_positive_integer("batch_size", batch_size)
    check_number("step", step, minimum=0)
    return FixedRequest(batch_size, step)


def scheduled_request(batch_sizes: Sequence[int], steps: Sequence[float]) -> ScheduledRequest:
    """Return the policy that follows a schedule, one entry per round."""
    if not batch_sizes or len(batch_sizes) != len(steps):
        raise ValueError(
            f"`batch_sizes` and `steps` must have one entry per round, got {len(batch_sizes)} and {len(steps)}"
        )
    for size, step in zip(batch_sizes, steps, strict=True):
        check_positive_integer("batch_sizes", size)
        check_number("steps", step, minimum=0)
    return ScheduledRequest(jnp.asarray(batch_sizes), jnp.asarray(steps, jnp.float32))
