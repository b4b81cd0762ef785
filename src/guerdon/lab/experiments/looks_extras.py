"""Agreement with looks: flat pay and an extra for agreement, which is settled after the looks.

A round's weight is the larger of its pay and its cost. A failed look costs its share of all weights, also where pay was
less: held pay and collateral. Extras are settled among those that passed, without the reports of those that failed.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.agreement import OutputAgreement
from guerdon.arrays import Array
from guerdon.lab.experiments.claims import Mean, mean_over_repetitions
from guerdon.lab.experiments.looks_strategies import REQUEST
from guerdon.lab.experiments.paper import COST
from guerdon.lab.held import forfeited, kept, nothing_held
from guerdon.requests import FixedRequest
from guerdon.statistical.servers import server_for
from guerdon.terms import Looks

MEMBERS, ROUNDS, STEP = 6, 50, 0.2
SERVER = server_for(OutputAgreement(COST), FixedRequest(REQUEST, STEP), alike=True)
FAIR = float(COST(REQUEST))


class Drawn(NamedTuple):
    """What members computed, (runs, rounds, members, d), and what all know: the last mean, (runs, rounds, d)."""

    halves: Array  # of half of the samples
    works: Array
    last: Array


class Settled(NamedTuple):
    """Profit a round, beyond the cost: of each name that attacks, and of each member that works."""

    attacker: Mean
    at_once: Mean  # of the attacker, where agreement pays at once and nobody looks
    honest: Mean


def _forged(drawn: Drawn) -> Array:
    """Return the reports where the first member sends the last mean, which follows from two broadcasts."""
    return drawn.works.at[..., 0, :].set(drawn.last)


def _never(drawn: Drawn) -> tuple[Array, Array]:
    return _forged(drawn), _all_but(0)


def _in_turn(drawn: Drawn) -> tuple[Array, Array]:
    even = np.arange(ROUNDS)[:, None] % 2 == 0
    return jnp.where(even[..., None], drawn.works, _forged(drawn)), even | _all_but(0)


def _half(drawn: Drawn) -> tuple[Array, Array]:
    return drawn.works.at[..., 0, :].set(drawn.halves[..., 0, :]), _all_but(0)


def _copied(drawn: Drawn) -> tuple[Array, Array]:
    return drawn.works.at[..., 1, :].set(drawn.works[..., 0, :]), _all_but(1)


def _all_but(member: int) -> Any:
    return np.broadcast_to(np.arange(MEMBERS) != member, (ROUNDS, MEMBERS))


class Behaviour(NamedTuple):
    """What is sent, which reports are the named work (rounds, members), and what a round costs each of the crew."""

    forge: Callable[[Drawn], tuple[Array, Any]]
    crew: int
    cost: float


BEHAVIOURS: Mapping[str, Behaviour] = {
    "honest": Behaviour(lambda drawn: (drawn.works, _all_but(-1)), 1, FAIR),
    "the last mean": Behaviour(_never, 1, 0.0),
    "the last mean, in turn": Behaviour(_in_turn, 1, FAIR / 2),
    "half the samples": Behaviour(_half, 1, float(COST(REQUEST // 2))),
    "a copy": Behaviour(_copied, 2, FAIR / 2),
}


def play(problem: Any, behaviour: str, terms: Looks, runs: int, seed: int) -> Settled:
    """Play a period of a federation whose members are alike, in so many runs."""
    forge, crew, cost = BEHAVIOURS[behaviour]
    reports, worked = forge(_drawn(problem, runs, seed))
    everybody = jnp.ones((runs, MEMBERS), bool)
    pay = np.asarray(_paid(reports, everybody), np.float64) + terms.margin * FAIR
    state = nothing_held(np.zeros((runs, MEMBERS)), terms.looks)
    chance, held = np.random.default_rng(seed), np.maximum(pay, FAIR)
    for number in range(1, ROUNDS + 1):
        coins = chance.random((terms.looks, runs, 1))
        state = kept(state, held[:, number - 1], worked[number - 1], number, coins)
    passed = ~(state.failing > 0).any(axis=0)
    again = np.asarray(_paid(reports, jnp.asarray(passed)), np.float64) + terms.margin * FAIR
    released = np.where(passed, again.sum(axis=1), pay.sum(axis=1) - forfeited(state, terms)) / ROUNDS
    at_once = pay[:, :, :crew].mean(axis=(1, 2)) - terms.margin * FAIR - cost
    return Settled(
        mean_over_repetitions(released[:, :crew].mean(axis=1) - cost), mean_over_repetitions(at_once),
        mean_over_repetitions(released[:, crew:].mean(axis=1) - FAIR),
    )  # fmt: skip


@partial(jax.jit, static_argnums=1)
def _drawn(problem: Any, runs: int, seed: int) -> Drawn:
    """Return what members compute along one training. What they report does not change it: all runs are alike."""

    def step(model: Array, key: Array) -> tuple[Array, tuple[Array, Array]]:
        keys = jax.random.split(key, (runs, MEMBERS))

        def computed(size: int) -> Array:
            return jax.vmap(jax.vmap(lambda one: problem.gradient(model, jnp.asarray(size), one)))(keys)

        return model - STEP * problem.population_gradient(model), (computed(REQUEST // 2), computed(REQUEST))

    keys = jax.random.split(jax.random.key(seed), ROUNDS)
    _, drawn = jax.lax.scan(step, problem.init(keys[0]), keys)
    halves, works = (jnp.moveaxis(x, 0, 1) for x in drawn)
    means = works.mean(axis=2)
    return Drawn(halves, works, jnp.concatenate([0 * means[:, :1], means[:, :-1]], axis=1))


@jax.jit
def _paid(reports: Array, here: Array) -> Array:
    """Return what agreement pays in each round to those who are here, without the reports of the others."""

    def one_run(reports: Array, here: Array) -> Array:
        def step(state: Any, now: tuple[Array, Array]) -> tuple[Any, Array]:
            sent, number = now
            ask, state = SERVER.ask(state, model)
            done, after = SERVER.settle(state, ask._replace(is_last=number == ROUNDS - 1), sent, here)
            return jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), state, after), done.payments.released

        model = jnp.zeros(reports.shape[-1])
        state = jax.tree.map(jnp.asarray, SERVER.init(model, MEMBERS))
        return jax.lax.scan(step, state, (reports, jnp.arange(ROUNDS)))[1]

    return jax.vmap(one_run)(reports, here)
