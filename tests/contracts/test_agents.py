"""What every agent promises, whatever he chooses and sends."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import AffineCost
from guerdon.lab.agents import (
    Agent,
    Cooperative,
    Declining,
    Fixed,
    Foreseeing,
    Portion,
    Reporting,
    View,
    best_responding,
    echo,
    garbage,
    learning,
    noisy_echo,
    scale,
    shrink,
    sign_flip,
    zero,
)

COST = AffineCost(1, 1)
LARGEST, DIM = 16, 5

# Each with another agent of his kind, who has other numbers.
AGENTS: dict[str, tuple[Agent, Agent]] = {
    "cooperative": (Cooperative(), Cooperative()),
    "fixed": (Fixed(3), Fixed(16)),
    "refusing": (Fixed(0), Fixed(1)),
    "half": (Portion(0.5), Portion(2.0)),
    "declining": (Declining(0.5), Declining(0.1)),
    "best-responding": (
        best_responding(COST, 10, LARGEST),
        best_responding(AffineCost(5, 2), 10, LARGEST, rule="estimated", others=2),
    ),
    "learning": (learning((0, 4, 8, 16), COST), learning((1, 2, 3, 5), AffineCost(0, 2), exploration=1.0)),
    "zero": (zero(), zero()),
    "echo": (echo(), echo()),
    "noisy-echo": (noisy_echo(), noisy_echo(0.5)),
    "shrink": (shrink(), shrink(0.1)),
    "shrinking-learner": (shrink(0.5, learning((1, 4, 8, 16), COST)), shrink(0.1, learning((2, 3, 4, 5), COST))),
    "scale": (scale(2.0), scale(0.0)),
    "sign-flip": (sign_flip(), sign_flip()),
    "garbage": (garbage(), garbage(5.0)),
    "foreseeing": (Foreseeing(zero(), DIM, forecast=1.0), Foreseeing(echo(), DIM, memory=0.5, period=2, lift=3.0)),
    "predicting": (
        Reporting(Portion(0.0), gradient=0.0, prediction=1.0, fabricates=True),
        Reporting(Portion(0.0), gradient=0.0, prediction=0.5, fabricates=True),
    ),
    "following": (Reporting(Portion(1.0), leader=0), Reporting(Portion(1.0), leader=1)),
}
every_agent = pytest.mark.parametrize("agent", [pair[0] for pair in AGENTS.values()], ids=AGENTS)
every_pair = pytest.mark.parametrize("pair", AGENTS.values(), ids=AGENTS)


def view_of(agent: Agent, request: int = 8, turn: int = 3, seed: int = 0) -> View:
    """Return what an agent might know in a round."""
    model, aggregate, origin, prediction = jnp.asarray(np.random.default_rng(seed).normal(size=(4, DIM)), jnp.float32)
    numbers = jnp.asarray(turn), jnp.asarray(request)
    return View(*numbers, model, aggregate, origin, prediction, jnp.float32(50.0), agent.init())


def gradient() -> Any:
    return jnp.asarray(np.random.default_rng(1).normal(size=DIM), jnp.float32)


KEYS = jax.random.split(jax.random.key(0), 18)
TOGETHER = 6  # so many are played at once, always, because JAX compiles for each number


def play(agent: Agent, view: View, given: Any, key: Any) -> Any:
    size = agent.choose(view, key)
    return size, agent.report(view, given, key), agent.learn(view, size, jnp.float32(3.0))


# Compiled once for each kind of agent, their numbers being data.
together: Any = jax.jit(jax.vmap(play, in_axes=(0, 0, None, 0)))


def stack(*trees: Any) -> Any:
    """Return some pytrees as one, again and again from the first on until there are as many as are played at once."""
    return jax.tree.map(lambda *leaves: np.stack([leaves[i % len(leaves)] for i in range(TOGETHER)]), *trees)


def as_data(agent: Agent) -> Any:
    return jax.tree.map(jnp.asarray, agent)


@every_agent
def test_he_uses_a_number_of_samples_that_exists(agent: Agent) -> None:
    views = stack(*(view_of(agent, request) for request in (1, 8, 16)))
    for keys in KEYS.reshape(-1, TOGETHER):
        sizes, _, _ = together(stack(as_data(agent)), views, gradient(), keys)
        assert sizes.shape == (TOGETHER,)
        assert jnp.issubdtype(sizes.dtype, jnp.integer)
        assert ((np.asarray(sizes) >= 0) & (np.asarray(sizes) <= LARGEST)).all()


@every_agent
def test_he_sends_a_vector_like_his_gradient(agent: Agent) -> None:
    for given in (gradient(), jnp.zeros(DIM)):
        sent = agent.report(view_of(agent), given, KEYS[0])
        assert sent.shape == (DIM,)
        assert sent.dtype == jnp.float32
        assert np.isfinite(np.asarray(sent)).all()


@every_agent
def test_he_manages_the_first_round(agent: Agent) -> None:
    """When there is no mean gradient yet, and no prediction."""
    model, nothing = np.arange(DIM, dtype=np.float32), np.zeros(DIM, np.float32)
    view = View(np.int32(0), np.int32(8), model, nothing, model, nothing, np.float32(50), agent.init())
    sizes, sent, _ = together(stack(as_data(agent)), stack(view), gradient(), KEYS[:TOGETHER])
    assert (np.asarray(sizes) >= 0).all()
    assert np.isfinite(np.asarray(sent)).all()


@every_agent
def test_he_runs_compiled_and_mapped(agent: Agent) -> None:
    views = [view_of(agent, request=request, seed=request) for request in (2, 16)]
    mapped = together(stack(as_data(agent)), stack(*views), gradient(), KEYS[:TOGETHER])
    for i, view in enumerate(views):
        expected = play(agent, view, gradient(), KEYS[i])
        for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(mapped), strict=True):
            np.testing.assert_allclose(a, b[i], rtol=1e-5, atol=1e-5)


@every_agent
def test_the_same_key_gives_the_same_choice_and_report(agent: Agent) -> None:
    """He has no memory but the one in his view, and no randomness but his key's."""
    view = view_of(agent)
    first = agent.choose(view, KEYS[0]), agent.report(view, gradient(), KEYS[0])
    for key in KEYS[1:4]:
        agent.choose(view, key)
        agent.report(view, gradient(), key)
        agent.learn(view, agent.choose(view, key), jnp.float32(-100.0))
    assert agent.choose(view, KEYS[0]) == first[0]
    np.testing.assert_array_equal(agent.report(view, gradient(), KEYS[0]), first[1])


def test_a_view_holds_what_an_agent_could_know() -> None:
    """Nobody's batch size, gradient or pay but his own: a new field here needs a reason."""
    fields = ("round", "request", "model", "aggregate", "origin", "prediction", "variance", "memory", "shrinkage")
    assert View._fields == fields


@every_agent
def test_what_he_remembers_keeps_its_shape(agent: Agent) -> None:
    """A compiled simulation takes it from round to round."""
    before = agent.init()
    after = agent.learn(view_of(agent), agent.choose(view_of(agent), KEYS[0]), jnp.float32(2.0))
    assert jax.tree.structure(before) == jax.tree.structure(after)
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


@every_pair
def test_his_numbers_are_data(pair: tuple[Agent, Agent]) -> None:
    """Two agents of a kind with other numbers are alike to the compiler, and can be played together."""
    one, other = map(as_data, pair)
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
    both = together(stack(one, other), stack(*map(view_of, pair)), gradient(), KEYS[:TOGETHER])
    for i, agent in enumerate(pair):
        expected = play(agent, view_of(agent), gradient(), KEYS[i])
        for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(both), strict=True):
            np.testing.assert_allclose(a, b[i], rtol=1e-5, atol=1e-5)


def test_no_two_kinds_are_one_to_the_compiler() -> None:
    """Else a compiled simulation may play the one for the other."""
    structures = {type(agent): jax.tree.structure(agent) for pair in AGENTS.values() for agent in pair}
    for kind, structure in structures.items():
        assert [other for other, its in structures.items() if its == structure] == [kind]


@every_agent
def test_he_is_a_pytree_that_cannot_be_changed(agent: Agent) -> None:
    leaves, structure = jax.tree.flatten(agent)
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is type(agent)
    assert jax.tree.structure(again) == structure
    for name in [field.name for field in dataclasses.fields(agent)] or ["anything"]:  # pyright: ignore[reportArgumentType]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(agent, name, 1)


@every_agent
def test_only_who_does_nothing_fabricates(agent: Agent) -> None:
    assert isinstance(agent.fabricates, bool)
    if agent.fabricates:
        assert int(agent.choose(view_of(agent), KEYS[0])) == 0


def test_every_agent_is_here() -> None:
    """A new kind of agent joins by one line in `AGENTS`."""
    kinds = {type(agent) for agent, _ in AGENTS.values()}
    assert kinds == {kind for kind in Agent.__subclasses__() if kind.__module__ == "guerdon.lab.agents"}
