"""The agents of a simulation: those of one kind are played together, their numbers stacked."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array
from guerdon.lab.agents import Agent, View


class Players(NamedTuple):
    """Which agents belong to each kind, and the agents of each kind, stacked."""

    positions: tuple[tuple[int, ...], ...]
    kinds: tuple[Any, ...]

    @property
    def number(self) -> int:
        """How many agents there are."""
        return sum(map(len, self.positions))


class Choices(NamedTuple):
    """Every agent's batch size, whether it sends something even without samples, and whose samples it draws."""

    sizes: Array
    fabricates: Array
    leaders: Array


class _PerAgent(NamedTuple):
    """What each agent sees for itself: one number for all, or each its own."""

    request: Array
    shrinkage: Array


def choose(players: Players, view: View, memories: tuple[Any, ...], keys: Array) -> Choices:
    """Return every agent's choices; `view.request` is one for all, or each agent's own; so is `view.shrinkage`."""

    def one(agent: Agent, memory: Any, given: _PerAgent, key: Array) -> Choices:
        size = agent.choose(view._replace(memory=memory, **given._asdict()), key)
        return Choices(size, jnp.asarray(agent.fabricates), jnp.asarray(agent.leader))

    parts = by_kind(players, one, memories, _per_agent(players, view), keys)
    sizes, fabricates, leaders = (_in_order(players, list(values)) for values in zip(*parts, strict=True))
    return Choices(sizes, fabricates, jnp.where(leaders < 0, jnp.arange(len(leaders)), leaders))


def report(
    players: Players,
    view: View,
    memories: tuple[Any, ...],
    sizes: Array,
    gradients: Array,
    keys: Array,
) -> Array:
    """Return what every agent sends; what an agent that declines would have sent is not looked at."""
    if all(type(kind).report is Agent.report for kind in players.kinds):
        return gradients  # all send what they computed: nothing to copy

    def one(agent: Agent, memory: Any, given: _PerAgent, gradient: Array, key: Array) -> Array:
        return agent.report(view._replace(memory=memory, **given._asdict()), gradient, key)

    computed = _computed(sizes, gradients)
    return _in_order(players, by_kind(players, one, memories, _per_agent(players, view), computed, keys))


def announce(players: Players, view: View, memories: tuple[Any, ...], sizes: Array) -> Array:
    """Return how many samples every agent says it used."""

    def one(agent: Agent, memory: Any, given: _PerAgent, size: Array) -> Array:
        return jnp.asarray(agent.announce(view._replace(memory=memory, **given._asdict()), size), view.model.dtype)

    return _in_order(players, by_kind(players, one, memories, _per_agent(players, view), sizes))


def learn(
    players: Players, view: View, memories: tuple[Any, ...], sizes: Array, gradients: Array, rewards: Array
) -> tuple[Any, ...]:
    """Return what every agent remembers after the round, kind by kind."""

    def one(agent: Agent, memory: Any, given: _PerAgent, size: Array, gradient: Array, reward: Array) -> Any:
        view_before = view._replace(memory=memory, **given._asdict())
        return agent.learn(view_before._replace(memory=agent.keep(view_before, gradient)), size, reward)

    computed = _computed(sizes, gradients)
    return tuple(by_kind(players, one, memories, _per_agent(players, view), sizes, computed, rewards))


def _computed(sizes: Array, gradients: Array) -> Array:
    """Return the gradients, zeros for agents that used no samples."""
    return jnp.where((sizes > 0)[:, None], gradients, 0.0)


def _per_agent(players: Players, view: View) -> _PerAgent:
    return _PerAgent(*(jnp.broadcast_to(jnp.asarray(x), (players.number,)) for x in (view.request, view.shrinkage)))


def by_kind(players: Players, function: Callable[..., Any], memories: tuple[Any, ...], *per_agent: Any) -> list[Any]:
    """Return, kind by kind, function(agent, memory, …) of every agent, given its part of each array."""
    return [
        jax.vmap(function)(kind, memory, *(jax.tree.map(partial(_take, where), values) for values in per_agent))
        for kind, memory, where in zip(players.kinds, memories, players.positions, strict=True)
    ]


def _take(where: tuple[int, ...], values: Array) -> Array:
    """Return the rows `where`; a run of neighbours is a slice, which costs nothing."""
    first, last = where[0], where[-1] + 1
    return values[first:last] if where == tuple(range(first, last)) else values[jnp.asarray(where)]


def _in_order(players: Players, parts: list[Array]) -> Array:
    """Return what was computed kind by kind in the order of the agents."""
    order = np.argsort([position for where in players.positions for position in where])
    joined = jnp.concatenate(parts)
    return joined if np.array_equal(order, np.arange(len(order))) else joined[order]


def sort_by_kind(agents: Sequence[Agent]) -> tuple[tuple[tuple[int, ...], ...], tuple[Any, ...]]:
    """Return, for each kind of agent, their positions and their numbers stacked."""
    kinds: dict[Any, list[int]] = {}
    converted = [jax.tree.map(jnp.asarray, agent) for agent in agents]
    for position, agent in enumerate(converted):
        leaves, structure = jax.tree.flatten(agent)
        kinds.setdefault((structure, tuple((x.shape, x.dtype) for x in leaves)), []).append(position)
    stacked = tuple(_stack([converted[position] for position in where]) for where in kinds.values())
    return tuple(map(tuple, kinds.values())), stacked


def _stack(agents: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *agents)
