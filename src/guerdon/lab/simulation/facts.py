"""What only a simulation knows: the truth at a model, when the goal is reached, and what it can be asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from guerdon.arrays import Array
from guerdon.lab.agents import Agent
from guerdon.lab.problems import Problem
from guerdon.lab.truth import Informed
from guerdon.requests import FixedRequest, Requests
from guerdon.rule import Need
from guerdon.server import Sends, Server, ServerState
from guerdon.statistical.dithers import Dither
from guerdon.witness import witness_samples

AROUND = frozenset({Need.PREDICTION, Need.TRUTH})  # evidence is gathered around it


class TruthAtModel(NamedTuple):
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


def check_witness(rules: Mapping[str, Any], witness: int, max_batch: int) -> None:
    """Raise where a rule wants another witness than there is."""
    for rule in rules.values():
        if Need.WITNESS in rule.needs and (witness < 2 or witness * max_batch != witness_samples(rule)):
            raise ValueError(
                f"`witness` must be at least 2 minibatches of {max_batch} samples that the server draws itself, "
                f"{witness_samples(rule)} samples in all, for {type(rule).__name__}, got {witness}"
            )


def without_dimension(
    problem: Any, agents: Sequence[Agent], servers: Sequence[Server], witness: int, wanted: bool | None
) -> Any:
    """Return the problem in the frame of its gradients where this changes no result, else as it is.

    It changes none where agents look at no vector and send what they computed, and servers look at products alone. What
    an agent's class inherits does not count: a class that overrides `choose` must say `size_only` itself.
    """
    blind = all(vars(type(agent)).get("size_only", False) for agent in agents) and not witness
    plain = not any(isinstance(server.rule, Informed) for server in servers)
    able = wanted is not False and blind and plain and hasattr(problem, "in_frame")
    seeing = able and any(_follows_vectors(problem, len(agents), server) for server in servers)
    framed = problem.in_frame(len(agents)) if able and not seeing else None
    if wanted and framed is None:
        raise ValueError(
            "`dimension_free` must be False or None here: it needs `linear_regression` with features alike and more "
            "dimensions than agents, agents that choose batch sizes only, and rules and requests that follow no vector"
        )
    return problem if framed is None else framed


def _follows_vectors(problem: Any, num_agents: int, server: Server) -> bool:
    """Tell whether a server looks at more of gradients than their products with each other."""

    def first() -> ServerState:
        return server.init(problem.init(jax.random.key(0)), num_agents)

    state: Any = jax.eval_shape(first)  # pyright: ignore[reportUnknownMemberType]
    return server.sends == "models" or bool(AROUND & server.rule.needs) or server.needs_mean(state)


def check_rounds(dither: Dither | None, rounds: int, requests: Requests, sends: Sends) -> None:
    """Raise where models cannot be made of reports, or a pair of rounds is left unfinished."""
    if sends == "models" and not (isinstance(requests, FixedRequest) and requests.step > 0):
        raise ValueError(
            f"`requests` must be a FixedRequest with a step above 0 where agents send models, got {requests!r}"
        )
    if sends == "gradients" and dither is not None and rounds % 2:
        raise ValueError(f"`rounds` must be even under a dither, which steps once in two rounds, got {rounds}")


def check_joins(joins: Sequence[int | Sequence[int]], num_agents: int) -> Array:
    """Return the rounds (agents, names) in which each agent joins, or comes back under a new name, or raise."""
    given: list[list[int]] = [[entry] if isinstance(entry, int) else list(entry) for entry in joins]
    if len(given) != num_agents or not all(given) or min(map(min, given)) < 0:
        raise ValueError(
            f"`joins` must be a round of at least 0, or several, for each of the {num_agents} agents, got {joins!r}"
        )
    most = max(map(len, given))
    return jnp.asarray([rounds + rounds[:1] * (most - len(rounds)) for rounds in given])


def validation_loss(problem: Any, model: Array) -> Array:
    """Return the loss of a model on data of the server's own; its first metric if it has none."""
    if hasattr(problem, "validation_loss"):
        return problem.validation_loss(model)
    return next(iter(problem.metrics(model).values()))
