"""What every policy promises: one contract, the same on every array library, compiled, and in a server."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load, save

from guerdon import AffineCost, PowerCost, gather
from guerdon.adaptive import BudgetRequest, NoiseScaleRequest
from guerdon.evidence import Evidence
from guerdon.lab.simulation import simulate
from guerdon.requests import FixedRequest, Outcome, Requests, ScheduledRequest
from tests.support.libraries import Library, jax_once

AGENTS, DIM, ROUNDS = 6, 12, 12
POLICIES: dict[str, Requests] = {
    "fixed": FixedRequest(8, 0.25),
    "scheduled": ScheduledRequest([8, 4, 2], [0.5, 0.25, 0.125]),
    "noise scale": NoiseScaleRequest(AffineCost(1, 1), 32),
    "noise scale, convex": NoiseScaleRequest(PowerCost(0.1, 2, 3), 32),
    "budget": BudgetRequest(AffineCost(1, 1), 2000.0, 32),
}
COMPILED = [name for name in POLICIES if name != "noise scale"]  # whose code the convex one and the budget share
every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def rounds() -> list[tuple[Any, Any]]:
    """Return gradients that shrink, and who took part: everybody, then some, then one."""
    rng = np.random.default_rng(0)
    played: list[tuple[Any, Any]] = []
    for t in range(ROUNDS):
        here = np.ones(AGENTS, dtype=bool) if t < 4 else rng.uniform(size=AGENTS) < 0.7
        here = np.arange(AGENTS) < 1 if t == 8 else here
        played.append((0.8**t + rng.normal(size=(AGENTS, DIM)), here))
    return played


def play(policy: Requests, library: Library | None = None, state: Any = None) -> list[Any]:
    """Return what is asked and stepped in every round, the evidence being that of NumPy."""
    found = list[Any]()
    nothing = np.zeros(DIM) if library is None else library.array(np.zeros(DIM))
    state = policy.init(nothing, AGENTS) if state is None else state
    for turn, (gradients, here) in enumerate(rounds()):
        mean = gradients[here].mean(axis=0)
        request = policy.ask(state, turn)
        evidence = gather(gradients, here)
        if library is not None:
            counted, mean = library.mask(evidence.counted), library.array(mean)
            evidence = Evidence(*map(library.array, evidence[:-1]), counted=counted)
        size, state = policy.observe(state, Outcome(int(request), evidence, mean, 30.0))
        found.append((int(request), float(size)))
    return found


@every_policy
@jax_once
def test_array_libraries_agree(policy: Requests, library: Library) -> None:
    expected = play(policy)
    with library.precision():
        found = play(policy, library)
    assert [a for a, _ in found] == [a for a, _ in expected]
    np.testing.assert_allclose(found, expected, rtol=1e-9 if library.dtype == "float64" else 1e-4)


@cache
def compiled() -> dict[str, Any]:
    """Return what every policy asks and steps, all in one `scan`, as in a simulation, the request being traced."""
    played = rounds()
    gradients, masks = jnp.asarray([g for g, _ in played]), jnp.asarray([m for _, m in played])

    def turn(states: Any, x: Any) -> Any:
        drawn, here, number = x
        mean = jnp.sum(jnp.where(here[:, None], drawn, 0.0), axis=0) / jnp.sum(here)
        evidence, after, found = gather(drawn, here), dict[str, Any](), dict[str, Any]()
        for name in COMPILED:
            policy = POLICIES[name]
            request = jnp.asarray(policy.ask(states[name], number), jnp.int32)
            outcome = Outcome(jnp.maximum(request, 1), evidence, mean, jnp.asarray(30.0))
            step, new = policy.observe(states[name], outcome)
            after[name] = jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), states[name], new)
            found[name] = request, jnp.asarray(step)
        return after, found

    def begin(x: Any) -> Any:
        whole = np.issubdtype(np.asarray(x).dtype, np.integer)
        return jnp.asarray(x, jnp.int32 if whole else jnp.float32)

    start = {name: jax.tree.map(begin, POLICIES[name].init(np.zeros(DIM), AGENTS)) for name in COMPILED}
    return jax.lax.scan(turn, start, (gradients, masks, jnp.arange(ROUNDS)))[1]


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_it_is_the_same(name: str) -> None:
    asked, steps = compiled()[name]
    expected = play(POLICIES[name])
    assert asked.tolist() == [a for a, _ in expected]
    np.testing.assert_allclose(steps, [s for _, s in expected], rtol=1e-4)


@every_policy
def test_it_asks_for_whole_samples_within_its_limit(policy: Requests) -> None:
    state = policy.init(np.zeros(DIM), AGENTS)
    request = np.asarray(policy.ask(state, 0))
    assert request.shape == ()
    assert np.issubdtype(request.dtype, np.integer)
    assert all(0 <= asked <= policy.largest(ROUNDS) for asked, _ in play(policy))
    assert all(np.isfinite(step) and step >= 0 for _, step in play(policy))


@every_policy
def test_its_state_can_be_stored_and_read_again(policy: Requests) -> None:
    """As safetensors, in the middle of a training; nothing of what follows changes."""
    state, seen = policy.init(np.zeros(DIM), AGENTS), np.ones(DIM)
    for gradients, here in rounds()[:3]:
        _, state = policy.observe(state, Outcome(8, gather(gradients, here), seen, 30.0))
    leaves, structure = jax.tree.flatten(state)
    content = save({str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)})
    assert len(content) < 10_000
    read = load(content)
    restored = jax.tree.unflatten(structure, [read[str(i)] for i in range(len(leaves))])
    assert play(policy, state=restored) == play(policy, state=state)


@every_policy
def test_nothing_is_changed_in_place(policy: Requests) -> None:
    state = policy.init(np.zeros(DIM), AGENTS)
    before = [np.array(leaf) for leaf in jax.tree.leaves(state)]
    gradients, here = rounds()[0]
    outcome = Outcome(8, gather(gradients, here), np.ones(DIM), 30.0)
    kept = [np.array(part) for part in outcome.evidence]
    one, other = policy.observe(state, outcome), policy.observe(state, outcome)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip([*jax.tree.leaves(state), *outcome.evidence], before + kept, strict=True):
        np.testing.assert_array_equal(a, b)


@every_policy
@pytest.mark.parametrize("num_agents", [0, -1, 2.0, None, "3"])
def test_the_number_of_agents_is_checked(policy: Requests, num_agents: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="`num_agents` must be a positive integer"):
        policy.init(np.zeros(DIM), num_agents)


@every_policy
def test_its_numbers_are_data(policy: Requests) -> None:
    """To a compiled simulation, once `guerdon.lab.simulation` is there: another step or budget compiles nothing."""
    assert simulate  # its module registers the policies with JAX
    leaves, structure = jax.tree.flatten(policy)
    assert leaves
    assert jax.tree.structure(jax.tree.unflatten(structure, [2 * leaf for leaf in leaves])) == structure
