"""What an agent can gain from a request that adapts: in the round itself, and by steering later requests.

The request of a round follows from earlier rounds alone, so within the round the game is that of a fixed request. But
what an agent sends now changes later requests. The value of that is the difference between what a deviation gains under
the adaptive request and what it gains when requests and steps are frozen at those of an honest training.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from guerdon.agents import Agent, Cooperative, Portion, Reporting, View, scale, shrink, zero
from guerdon.arrays import Array
from guerdon.costs import AffineCost, Cost
from guerdon.experiments.claims import Claim, Mean, exceeds, mean_over_repetitions
from guerdon.experiments.paper import AGENTS, BALANCED, COST, DIM, START
from guerdon.problems import linear_regression
from guerdon.requests import Requests, noise_scale_request, scheduled_request
from guerdon.simulation import History, simulate
from guerdon.trees import register

ROUNDS = 30
ONCE = 6  # the round of a single deviation
LARGEST = 128
CHEAP = AffineCost(1, 0.8)  # of an agent with samples a fifth cheaper than the server assumes

DEVIATIONS: dict[str, Agent] = {
    "use half": Portion(0.5),
    "use double": Portion(2.0),
    "send half": shrink(0.5),
    "send double": scale(2.0),
    "add noise": Reporting(Portion(1.0), honest_noise=1.0),
    "send zeros": zero(),
}


class Gain(NamedTuple):
    """What a deviation gains per round, adapting and frozen, what steering is worth, and the mean requests."""

    deviation: str
    cost: str
    adaptive: Mean
    frozen: Mean
    steering: Mean
    request: float
    honest_request: float


@register
@dataclass(frozen=True)
class Once(Agent):
    """Cooperates except in one round, in which it uses `share` times the request."""

    round: int
    share: float

    def choose(self, view: View, key: Array) -> Array:
        """Return the request, or its share of it in that round."""
        del key
        share = jnp.where(view.round == self.round, self.share, 1.0)
        return jnp.asarray(jnp.round(share * view.request), jnp.int32)


def play(agent: Agent, requests: Requests, cost: Cost, repetitions: int, seed: int) -> History:
    """Train with one agent of this kind and nine that cooperate."""
    problem = linear_regression(DIM, START, LARGEST)
    agents, costs = [agent, *[Cooperative()] * (AGENTS - 1)], [cost, *[COST] * (AGENTS - 1)]
    return simulate(problem, agents, BALANCED, requests, ROUNDS, repetitions, seed, costs=costs)


def steering(repetitions: int, seed: int) -> list[Gain]:
    """Return what each deviation gains, for an agent with the cost that the server assumes, and for a cheaper one."""
    adaptive = noise_scale_request(COST, LARGEST // 2)
    honest = play(Once(0, 1.0), adaptive, COST, repetitions, seed)
    sizes = [int(nu) for nu in np.median(honest.request, axis=0)]
    frozen = scheduled_request(sizes, [float(step) for step in np.median(honest.step, axis=0)])
    gains: list[Gain] = []
    for words, cost in (("as believed", COST), ("a fifth less", CHEAP)):
        before = [_profit(play(Once(0, 1.0), policy, cost, repetitions, seed)) for policy in (adaptive, frozen)]
        for name, agent in DEVIATIONS.items():
            played = play(agent, adaptive, cost, repetitions, seed)
            changed = _profit(played) - before[0]
            same = _profit(play(agent, frozen, cost, repetitions, seed)) - before[1]
            one, other, worth = (mean_over_repetitions(x) for x in (changed, same, changed - same))
            asked, otherwise = (float(np.mean(history.request)) for history in (played, honest))
            gains.append(Gain(name, words, one, other, worth, asked, otherwise))
    return gains


def incentive_claims(repetitions: int, seed: int) -> list[Claim]:
    """Claim that in a single round of an adaptive training half and double the work both lose."""
    adaptive = noise_scale_request(COST, LARGEST // 2)
    honest = play(Once(ONCE, 1.0), adaptive, COST, repetitions, seed)
    claims: list[Claim] = []
    for words, share in (("half", 0.5), ("double", 2.0)):
        other = play(Once(ONCE, share), adaptive, COST, repetitions, seed)
        lost = honest.utilities["reward"][:, ONCE, 0] - other.utilities["reward"][:, ONCE, 0]
        claims.append(exceeds("planner", f"adaptive request: {words} the work in one round loses, in that round", lost))
    return claims


def _profit(history: History) -> Any:
    """Return the first agent's profit per round in each repetition."""
    return np.mean(history.utilities["reward"][:, :, 0], axis=1, dtype=np.float64)
