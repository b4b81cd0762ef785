"""What a simulation records of the evidence against agents and pairs of them."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array
from guerdon.server import Server, ServerState, Settlement
from guerdon.statistical.audit import proven_ranks
from guerdon.statistical.bets import BETS, TESTS, against_agents, bet, evidence_against
from guerdon.statistical.lenses import Pairwise


def accusations(servers: tuple[Server, ...], states: tuple[ServerState, ...], number: int) -> Array:
    """Return the logarithm of the evidence against each agent, of the first lens that keeps any; else zeros."""
    evidence = (
        server.lens.trust.suspicion(state.lens.trust)
        for server, state in zip(servers, states, strict=True)
        if isinstance(server.lens, Pairwise)
    )
    return next(evidence, jnp.zeros(number))


def collusions(servers: tuple[Server, ...], states: tuple[ServerState, ...], number: int) -> Array:
    """Return the evidence against the worst pair of each agent, of the first lens that compares pairs; else zeros."""
    evidence = (
        jnp.max(evidence_against(state.lens.pairs.wealth), axis=0)
        for server, state in zip(servers, states, strict=True)
        if isinstance(server.lens, Pairwise)
    )
    return next(evidence, jnp.zeros(number))


def nothing_proven(num_agents: int) -> Any:
    """Return the wealth of the bets that an accusation rests on, before the first round."""
    return np.zeros((len(BETS), len(TESTS), num_agents))


def prove(server: Server, wealth: Array, before: ServerState, done: Settlement) -> Array:
    """Return the same after a round, where the server keeps bets."""
    if not isinstance(server.lens, Pairwise):
        return wealth
    return bet(wealth, proven_ranks(done.evidence, done.reading.trusted, before.lens.trust.tenure))


def proofs(server: Server, wealth: Array) -> Array:
    """Return the logarithm of the evidence that an accusation of each agent rests on; else zeros."""
    return against_agents(wealth) if isinstance(server.lens, Pairwise) else jnp.zeros(wealth.shape[-1])
