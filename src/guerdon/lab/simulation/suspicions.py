"""What a simulation records of the evidence against agents and pairs of them."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array
from guerdon.audit import BETS, TESTS, against_agents, evidence_against, proven_ranks
from guerdon.bets import bet
from guerdon.rules import Mechanism
from guerdon.server import ServerState, Settlement


def accusations(mechanisms: tuple[Mechanism, ...], states: tuple[ServerState, ...], number: int) -> Array:
    """Return the logarithm of the evidence against each agent, of the first rule that keeps any; else zeros."""
    found = [rule.suspicion(state.rule) for rule, state in zip(mechanisms, states, strict=True)]
    return next((against for against in found if against is not None), jnp.zeros(number))


def collusions(mechanisms: tuple[Mechanism, ...], states: tuple[ServerState, ...], number: int) -> Array:
    """Return the evidence against the worst pair of each agent, of the first rule that compares pairs; else zeros."""
    watched = [state for rule, state in zip(mechanisms, states, strict=True) if rule.compares_pairs]
    return jnp.max(evidence_against(watched[0].pairs), axis=0) if watched else jnp.zeros(number)


def nothing_proven(num_agents: int) -> Any:
    """Return the wealth of the bets that an accusation rests on, before the first round."""
    return np.zeros((len(BETS), len(TESTS), num_agents))


def prove(mechanism: Mechanism, wealth: Array, before: ServerState, done: Settlement) -> Array:
    """Return the same after a round, where the rule keeps bets."""
    if not mechanism.keeps_bets:
        return wealth
    return bet(wealth, proven_ranks(done.evidence, done.comparison.trusted, before.rule.tenure))


def proofs(mechanism: Mechanism, wealth: Array) -> Array:
    """Return the logarithm of the evidence that an accusation of each agent rests on; else zeros."""
    return against_agents(wealth) if mechanism.keeps_bets else jnp.zeros(wealth.shape[-1])
