"""Every attack on a payment rule that we know: agents that do not send what was requested.

A crew of up to five agents plays an attack, against agents that do as asked. All crews are agents of one kind, so that
all attacks on a problem run in one compiled simulation, and a search can find the best of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from guerdon.arrays import Array
from guerdon.lab._trees import register
from guerdon.lab.agents import Agent, Foreseeing, Portion, Reporting, View
from guerdon.lab.experiments.attackers import Attacker, Recall, nothing_kept
from guerdon.lab.problems import Problem

CREW = 5  # the most agents in an attack
SHARED = 0.05  # of the honest variance, that a crew adds as common noise in secret
FRAMED = 1 / 3  # of its length, to which a report is shortened so that others' look long
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
    crew: tuple[Attacker, ...]
    blind: bool = False  # made from public knowledge alone
    shared: bool = False  # one batch serves the whole crew, which shares its cost
    share: float = 1.0

    @property
    def hides(self) -> bool:
        """Whether noise makes its reports as long as honest ones."""
        return self.crew[0].base.base.honest_noise > 0

    def agents(self, num_agents: int, absence: float = 0.0) -> list[Agent]:
        """Return the crew and the others; places of the crew that are not needed hold honest agents."""
        first = self.crew[0]
        honest = Attacker(Foreseeing(_reporting(self.share), first.base.dim), first.recall)
        spare = [honest] * (CREW - len(self.crew))
        return [*self.crew, *spare, *[UnreliablePortion(self.share, absence)] * (num_agents - CREW)]


class AttackerKnowledge(NamedTuple):
    """What attackers know of a problem: its size, the noise scale they meet, and how its loss is curved."""

    dim: int
    request: int
    total_noise_scale: float  # σ²/‖m‖²
    noise_scale: float  # σ²/‖m − p‖²
    curvature: float
    recall: Recall = nothing_kept  # what old rows say of the gradient at a model

    @property
    def shrinkage(self) -> float:
        """The a that is right."""
        return self.request / (self.request + self.noise_scale)

    def agent(self, base: Reporting | Foreseeing, **more: Any) -> Attacker:
        """Return an agent of a crew."""
        inner = base if isinstance(base, Foreseeing) else Foreseeing(base, self.dim)
        return Attacker(inner, self.recall, **more)


def known_attacks(known: AttackerKnowledge) -> list[Attack]:
    """Return all attacks but the search's, the honest agent first."""
    groups = (_working, _idle, _informed, _together, _now_and_then, _hurting)
    return [attack for group in groups for attack in group(known)]


def searched(known: AttackerKnowledge, numbers: Sequence[float]) -> Attack:
    """Return the attack of eleven numbers: one of the family that the search covers.

    Where it shares noise in secret, it is two agents that do the same.
    """
    share, gradient, echo, prediction, forecast, memory, curvature, noise, cached, stretch, secret = map(float, numbers)
    least = share if share * known.request >= 0.5 else 0.0
    base = _reporting(least, gradient, echo=echo, prediction=prediction, noise=noise)
    inner = Foreseeing(base, known.dim, forecast, memory, curvature)
    agent = known.agent(inner, cached=cached, stretch=stretch, secret=max(secret, 0.0))
    return Attack("the search's best", "found by search", (agent,) * (2 if secret > 0 else 1))


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
    return [Attack(name, "no work at all", (known.agent(agent),), blind=True) for name, agent in made.items()]


def _informed(known: AttackerKnowledge) -> list[Attack]:
    """Return the attacks that know more than public knowledge, or make it look like samples."""
    predicting, working = _reporting(0.0, 0.0, prediction=1.0), _reporting(1.0)
    extrapolating = Foreseeing(_reporting(0.0, 0.0), known.dim, 1.0, LONG, known.curvature)
    made = {
        "stretched extrapolation": known.agent(extrapolating, stretch=1.0),
        "surrogate": known.agent(predicting, cached=1.0),
        "surrogate, stretched": known.agent(predicting, cached=1.0, stretch=1.0),
        "knowing ã": known.agent(working, usual=known.shrinkage),
        "mirror": known.agent(working, mirror=1.0),
    }
    return [Attack(name, "knows more", (agent,)) for name, agent in made.items()]


def _together(known: AttackerKnowledge) -> list[Attack]:
    """Return the attacks of several agents: one batch for all of them, and all agents working less."""
    attacks: list[Attack] = []
    for count, words in ((2, "two"), (3, "three")):
        for noise, rest in ((0.0, ""), (0.25, ", with noise")):
            crew = (known.agent(_reporting(1.0, noise=noise, leader=0)),) * count
            attacks.append(Attack(f"{words} share a batch{rest}", "together", crew, shared=True))
    hidden = known.agent(_reporting(1.0), secret=SHARED)
    for count, words in ((2, "two"), (3, "three"), (5, "five")):
        attacks.append(Attack(f"{words} share 5 % noise", "together", (hidden,) * count))
    everybody = (known.agent(_reporting(0.5)),) * CREW
    return [*attacks, Attack("everybody uses half", "together", everybody, share=0.5)]


def _now_and_then(known: AttackerKnowledge) -> list[Attack]:
    cheating = _reporting(0.0, 0.0, prediction=1.0)
    return [
        _one("work and cheat in turn", "now and then", Foreseeing(cheating, known.dim, period=STRETCH), known),
        _one("steer, then cheat", "now and then", Foreseeing(cheating, known.dim, period=STRETCH, lift=3.0), known),
    ]


def _hurting(known: AttackerKnowledge) -> list[Attack]:
    made = ((f"garbage of size {size:g}", _reporting(0.0, 0.0, size=size)) for size in (0.3, 3.0, 1e3, 1e6))
    short = known.agent(_reporting(1.0, FRAMED, prediction=1 - FRAMED))
    framing = [Attack(f"framing by {words}", "framing", (short,) * count) for count, words in ((2, "two"), (4, "four"))]
    noisy = known.agent(_reporting(1.0), secret=1.0)
    framing.append(Attack("framing by four, shared noise", "framing", (noisy,) * 4))
    return [*(Attack(name, "to hurt", (known.agent(base),), blind=True) for name, base in made), *framing]


def _one(name: str, group: str, base: Reporting | Foreseeing, known: AttackerKnowledge) -> Attack:
    return Attack(name, group, (known.agent(base),))


def _reporting(share: float, gradient: float = 1.0, *, noise: float = 0.0, size: float = 0.0, **more: Any) -> Reporting:
    return Reporting(Portion(share), gradient, honest_noise=noise, noise=size, fabricates=True, **more)
