"""Every attack on a payment rule that we know: agents that do not send what was requested.

A crew of up to three agents plays an attack, against agents that do as asked. All crews are agents of one kind, so that
all attacks on a problem run in one compiled simulation, and a search can find the best of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from guerdon._trees import register
from guerdon.agents import Agent, Foreseeing, Portion, Reporting, View
from guerdon.arrays import Array
from guerdon.problems import Problem

CREW = 3  # the most agents in an attack
LONG = 0.95  # memory of a cheat that remembers longer than the server does
STRETCH = 10  # rounds of work, then rounds of cheating


@register
@dataclass(frozen=True)
class UnreliablePortion(Agent):
    """Uses `share` times the request, and is absent with probability `absence`, independently each round."""

    share: float = 1.0
    absence: float = 0.0

    def choose(self, view: View, key: Array) -> Array:
        size = jnp.asarray(jnp.round(self.share * view.request), jnp.int32)
        return jnp.where(jax.random.bernoulli(key, self.absence), 0, size)


class Attack(NamedTuple):
    """What a crew does, while the others use `share` of the request."""

    name: str
    group: str
    crew: tuple[Foreseeing, ...]
    blind: bool = False  # made from public knowledge alone
    shared: bool = False  # one batch serves the whole crew, which shares its cost
    share: float = 1.0

    def agents(self, num_agents: int, absence: float = 0.0) -> list[Agent]:
        """Return the crew and the others; places of the crew that are not needed hold honest agents."""
        spare = [_as_crew(self.share, self.crew[0].dim)] * (CREW - len(self.crew))
        return [*self.crew, *spare, *[UnreliablePortion(self.share, absence)] * (num_agents - CREW)]


class AttackerKnowledge(NamedTuple):
    """What attackers know of a problem: its size, the noise scale they meet, and how its loss is curved."""

    dim: int
    request: int
    total_noise_scale: float  # σ²/‖m‖²
    noise_scale: float  # σ²/‖m − p‖²
    curvature: float


def known_attacks(known: AttackerKnowledge) -> list[Attack]:
    """Return all attacks but the search's, the honest agent first."""
    return [*_working(known), *_idle(known), *_together(known), *_now_and_then(known), *_hurting(known)]


def searched(known: AttackerKnowledge, numbers: Sequence[float]) -> Attack:
    """Return the attack of eight numbers: one of the family that the search covers."""
    share, gradient, echo, prediction, forecast, memory, curvature, noise = (float(x) for x in numbers)
    least = share if share * known.request >= 0.5 else 0.0
    base = _reporting(least, gradient, echo=echo, prediction=prediction, noise=noise)
    agent = Foreseeing(base, known.dim, forecast, memory, curvature)
    return Attack("the search's best", "found by search", (agent,))


def mean_curvature(problem: Problem, model: Array, length: float, seed: int = 0) -> float:
    """Return ⟨u, m(θ + u) − m(θ − u)⟩/2‖u‖² for random u of a length: what an attacker may know of the loss."""

    def along(key: Array) -> Array:
        u = jax.random.normal(key, model.shape)
        u = u * length / jnp.sqrt(jnp.sum(u * u))
        ahead, behind = problem.population_gradient(model + u), problem.population_gradient(model - u)
        return jnp.sum(u * (ahead - behind)) / (2 * length**2)

    return float(jnp.asarray(jax.lax.map(along, jax.random.split(jax.random.key(seed), 20))).mean())


def _working(known: AttackerKnowledge) -> list[Attack]:
    half = (known.request / 2) / (known.request / 2 + known.noise_scale)
    kept = half / (known.request / (known.request + known.noise_scale))
    least = known.request / (known.request + known.total_noise_scale)
    more = 1 + max(known.request // 4, 1) / known.request
    sizes = {"do as asked": 1.0, "use half": 0.5, "use more": more}
    sent = {"send half of it": 0.5, "send 1.3 times it": 1.3, "send double": 2.0, "flip the sign": -1.0}
    return [
        *(_one(name, "other sizes", _reporting(share), known) for name, share in sizes.items()),
        *(_one(name, "work, send other", _reporting(1.0, factor), known) for name, factor in sent.items()),
        _one("add honest-sized noise", "work, send other", _reporting(1.0, noise=1.0), known),
        _one("shrink to 0, best factor", "work, send other", _reporting(1.0, least), known),
        _one("half, shrunk to p, best factor", "work, send other", _reporting(0.5, kept, prediction=1 - kept), known),
    ]


def _idle(known: AttackerKnowledge) -> list[Attack]:
    predicting = _reporting(0.0, 0.0, prediction=1.0)
    made = {
        "zeros": Foreseeing(_reporting(0.0, 0.0), known.dim),
        "the last mean": Foreseeing(_reporting(0.0, 0.0, echo=1.0), known.dim),
        "the last mean and noise": Foreseeing(_reporting(0.0, 0.0, echo=1.0, noise=1.0), known.dim),
        "the server's prediction": Foreseeing(predicting, known.dim),
        "prediction and noise": Foreseeing(replace(predicting, honest_noise=1.0), known.dim),
        "a longer memory": Foreseeing(_reporting(0.0, 0.0), known.dim, 1.0, LONG),
        "extrapolation": Foreseeing(_reporting(0.0, 0.0), known.dim, 1.0, LONG, known.curvature),
        "extrapolation and noise": Foreseeing(_reporting(0.0, 0.0, noise=1.0), known.dim, 1.0, LONG, known.curvature),
    }
    return [Attack(name, "no work at all", (agent,), blind=True) for name, agent in made.items()]


def _together(known: AttackerKnowledge) -> list[Attack]:
    """Return the attacks of several agents: one batch for all of them, and all agents working less."""
    attacks: list[Attack] = []
    for count, words in ((2, "two"), (3, "three")):
        for noise, rest in ((0.0, ""), (0.25, ", with noise")):
            crew = tuple(Foreseeing(_reporting(1.0, noise=noise, leader=0), known.dim) for _ in range(count))
            attacks.append(Attack(f"{words} share a batch{rest}", "together", crew, shared=True))
    everybody = tuple(_as_crew(0.5, known.dim) for _ in range(CREW))
    return [*attacks, Attack("everybody uses half", "together", everybody, share=0.5)]


def _now_and_then(known: AttackerKnowledge) -> list[Attack]:
    cheating = _reporting(0.0, 0.0, prediction=1.0)
    return [
        Attack("work and cheat in turn", "now and then", (Foreseeing(cheating, known.dim, period=STRETCH),)),
        Attack("steer, then cheat", "now and then", (Foreseeing(cheating, known.dim, period=STRETCH, lift=3.0),)),
    ]


def _hurting(known: AttackerKnowledge) -> list[Attack]:
    made = ((f"garbage of size {size:g}", _reporting(0.0, 0.0, size=size)) for size in (0.3, 3.0, 1e3, 1e6))
    return [Attack(name, "to hurt", (Foreseeing(base, known.dim),), blind=True) for name, base in made]


def _one(name: str, group: str, base: Reporting, known: AttackerKnowledge) -> Attack:
    return Attack(name, group, (Foreseeing(base, known.dim),))


def _as_crew(share: float, dim: int) -> Foreseeing:
    """Return an agent of the crew's kind that uses `share` of the request, and sends what it computed."""
    return Foreseeing(_reporting(share), dim)


def _reporting(share: float, gradient: float = 1.0, *, noise: float = 0.0, size: float = 0.0, **more: Any) -> Reporting:
    return Reporting(Portion(share), gradient, honest_noise=noise, noise=size, fabricates=True, **more)
