"""What an agent can gain from a request that adapts, in the round itself: nothing.

The request of a round follows from earlier rounds alone, so within the round the game is that of a fixed request.
"""

from dataclasses import dataclass

import jax.numpy as jnp

from guerdon.adaptive import NoiseScaleRequest
from guerdon.arrays import Array
from guerdon.lab._trees import register
from guerdon.lab.agents import Agent, Cooperative, View
from guerdon.lab.experiments.claims import Claim, exceeds
from guerdon.lab.experiments.paper import AGENTS, COST, DEFAULT, DIM, START
from guerdon.lab.problems import linear_regression
from guerdon.lab.simulation import History, simulate

ROUNDS = 30
ONCE = 6  # the round of a single deviation
LARGEST = 128


@register
@dataclass(frozen=True)
class Once(Agent):
    """Cooperates except in one round, in which it uses `share` times the request."""

    round: int
    share: float

    def choose(self, view: View, key: Array) -> Array:
        del key
        share = jnp.where(view.round == self.round, self.share, 1.0)
        return jnp.asarray(jnp.round(share * view.request), jnp.int32)


def play(agent: Agent, repetitions: int, seed: int) -> History:
    """Train with one agent of this kind and nine that cooperate."""
    agents = [agent, *[Cooperative()] * (AGENTS - 1)]
    requests = NoiseScaleRequest(COST, LARGEST // 2)
    return simulate(linear_regression(DIM, START, LARGEST), agents, DEFAULT, requests, ROUNDS, repetitions, seed)


def incentive_claims(repetitions: int, seed: int) -> list[Claim]:
    """Claim that in a single round of an adaptive training half and double the work both lose."""
    honest = play(Once(ONCE, 1.0), repetitions, seed)
    claims: list[Claim] = []
    for words, share in (("half", 0.5), ("double", 2.0)):
        other = play(Once(ONCE, share), repetitions, seed)
        lost = honest.utilities["reward"][:, ONCE, 0] - other.utilities["reward"][:, ONCE, 0]
        claims.append(exceeds("planner", f"adaptive request: {words} the work in one round loses, in that round", lost))
    return claims
