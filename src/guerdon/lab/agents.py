"""Strategic agents: how many samples an agent uses, and what it then sends.

An agent knows only its `View`. `choose` gives the batch size that it secretly uses (0: none), `report` what it sends in
place of the gradient that it computed, `learn` what it remembers of the round. An agent that uses no samples declines,
unless it `fabricates`: then it sends a report without samples, at no cost.

Agents are JAX pytrees: their numbers are data, so that a run with another batch size needs no new compilation.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from guerdon.arrays import Array, check_number
from guerdon.costs import Cost
from guerdon.lab._trees import register
from guerdon.lab.game import MinibatchGame, RuleName


class View(NamedTuple):
    """What an agent knows when it chooses its batch size."""

    round: Array  # 0 for the first
    request: Array  # the batch size that the server requests
    model: Array  # the model just broadcast
    aggregate: Array  # the last mean gradient, computed from two broadcasts; zeros in the first round
    origin: Array  # the model at which that gradient was taken
    prediction: Array  # the server's public prediction of the gradient; zeros where it makes none
    variance: Array  # σ² of the last round: more than most agents know; cheats fit their noise to it
    memory: Any  # what `learn` returned: drawn from its own past batch sizes and rewards
    shrinkage: Any = 1.0  # ã of information pay, where that is the rule: nobody is told it


class Agent(Protocol):
    """A participant. By default it sends what it computed and remembers nothing."""

    size_only: ClassVar[bool] = False  # it looks at no vector of its view, and sends what it computed itself

    @property
    def fabricates(self) -> bool:
        """Whether it sends a report even without samples."""
        return False

    @property
    def leader(self) -> int:
        """The position of the agent that draws its samples: colluders share them. −1: itself."""
        return -1

    def init(self) -> Any:
        """Return what it remembers before the first round."""
        return ()

    def choose(self, view: View, key: Array) -> Array:
        """Return the batch size that it uses."""

    def report(self, view: View, gradient: Array, key: Array) -> Array:
        """Return what it sends, given the gradient that it computed (zeros where it used no samples)."""
        del view, key
        return gradient

    def keep(self, view: View, gradient: Array) -> Any:
        """Return what it remembers once it has reported: `learn` is then called with this."""
        del gradient
        return view.memory

    def announce(self, view: View, batch_size: Array) -> Array:
        """Return how many samples it says it used: only some payment rules ask, and nobody can check."""
        del view
        return batch_size

    def learn(self, view: View, batch_size: Array, reward: Array) -> Any:
        """Return what it remembers after the round, paid with `reward`."""
        del batch_size, reward
        return view.memory


@register
@dataclass(frozen=True)
class Cooperative(Agent):
    """Uses the requested batch size."""

    size_only = True

    def choose(self, view: View, key: Array) -> Array:
        del key
        return view.request


@register
@dataclass(frozen=True)
class Fixed(Agent):
    """Uses `size` samples, whatever the request; 0 declines."""

    size_only = True

    size: int

    def choose(self, view: View, key: Array) -> Array:
        del view, key
        return jnp.asarray(self.size)


@register
@dataclass(frozen=True)
class Portion(Agent):
    """Uses `share` times the request, rounded to whole samples: 0.5 does half the work, 2 twice as much, 0 none."""

    size_only = True

    share: float

    def choose(self, view: View, key: Array) -> Array:
        del key
        return jnp.asarray(jnp.round(self.share * view.request), jnp.int32)


@register
@dataclass(frozen=True)
class Declining(Agent):
    """Declines with a probability, independently each round; otherwise uses the requested batch size."""

    size_only = True

    probability: float

    def choose(self, view: View, key: Array) -> Array:
        return jnp.where(jax.random.bernoulli(key, self.probability), 0, view.request)


@register
@dataclass(frozen=True)
class BestResponding(Agent):
    """Plays the best response of the game in closed form, assuming that the others follow the request.

    `table[ν]` is its best batch size for request ν; `best_responding` computes it.
    """

    size_only = True

    table: Array

    def choose(self, view: View, key: Array) -> Array:
        del key
        return self.table[view.request]


def best_responding(
    cost: Cost, num_agents: int, max_batch: int, rule: RuleName = "known", others: int | None = None
) -> BestResponding:
    """Return an agent with this cost that knows the payment rule and assumes the others at `others` (the request).

    >>> from guerdon import AffineCost
    >>> best_responding(AffineCost(1, 1), num_agents=10, max_batch=16, rule="estimated", others=2).table[8]
    Array(4, dtype=int32)
    """
    table = [0]
    for request in range(1, max_batch + 1):
        game = MinibatchGame(num_agents, request, cost, max_batch, rule=rule)
        table.append(game.best_response(0, [request if others is None else others] * num_agents))
    return BestResponding(jnp.asarray(table))


@register
@dataclass(frozen=True)
class Learning(Agent):
    """Knows nothing of the rule: tries the batch sizes in `sizes` and learns from its own pay which one is best.

    A bandit: each round it uses the size with the highest mean profit so far, plus a bonus for sizes tried little
    (UCB1). `exploration` is how far the pay of a single round varies. `costs` are those of the sizes.
    """

    size_only = True

    sizes: Array
    costs: Array
    exploration: float

    def init(self) -> Any:
        return jnp.zeros(self.sizes.shape), jnp.zeros(self.sizes.shape)

    def choose(self, view: View, key: Array) -> Array:
        """Return the most promising size; each is tried once first, in random order."""
        tries, profits = view.memory
        bonus = self.exploration * jnp.sqrt(2 * jnp.log(jnp.maximum(view.round, 1)) / jnp.maximum(tries, 1))
        untried = 1e30 * (1 + jax.random.uniform(key, tries.shape))
        return self.sizes[jnp.argmax(jnp.where(tries > 0, profits / jnp.maximum(tries, 1) + bonus, untried))]

    def learn(self, view: View, batch_size: Array, reward: Array) -> Any:
        tries, profits = view.memory
        used = self.sizes == batch_size
        return tries + used, profits + jnp.where(used, reward - self.costs, 0.0)


def learning(sizes: tuple[int, ...], cost: Cost, exploration: float = 6.0) -> Learning:
    """Return a learning agent with this cost that tries these batch sizes (0 among them: declining)."""
    check_number("exploration", exploration, minimum=0)
    if not sizes or any(isinstance(size, bool) or int(size) != size or size < 0 for size in sizes):
        raise ValueError(f"`sizes` must be whole numbers of at least 0, at least one, got {sizes!r}")
    return Learning(jnp.asarray(sizes), jnp.asarray([float(cost(size)) for size in sizes]), exploration)


@register
@dataclass(frozen=True)
class Reporting(Agent):
    """Chooses as `chooser` does, but instead of the gradient X that it computed it sends

        gradient · X  +  echo · (last aggregate)  +  prediction · (the server's prediction)
            +  noise of total variance  honest_noise · σ²/ν  +  noise² · d

    The last aggregate is public: it follows from two broadcasts. σ²/ν is the noise that honest work would have.
    `fabricates`: it sends this even where it used no samples. Everything is a number, so that all such agents run in
    one compiled simulation, and a search can find the most profitable one. With a `leader`, X is the leader's: the
    gradient of the very same samples. It says that it used `claim` times the request; 0 says the truth.
    """

    chooser: Agent
    gradient: float = 1.0
    echo: float = 0.0
    honest_noise: float = 0.0
    noise: float = 0.0
    prediction: float = 0.0
    fabricates: bool = False  # pyright: ignore[reportIncompatibleMethodOverride]
    leader: int = -1  # pyright: ignore[reportIncompatibleMethodOverride]
    claim: float = 0.0

    def init(self) -> Any:
        return self.chooser.init()

    def choose(self, view: View, key: Array) -> Array:
        return self.chooser.choose(view, key)

    def report(self, view: View, gradient: Array, key: Array) -> Array:
        public = self.echo * view.aggregate + self.prediction * view.prediction
        honest = self.honest_noise * view.variance / view.request / gradient.shape[0]
        noise = jnp.sqrt(honest + self.noise**2) * jax.random.normal(key, gradient.shape, gradient.dtype)
        return self.gradient * gradient + public + noise

    def keep(self, view: View, gradient: Array) -> Any:
        return self.chooser.keep(view, gradient)

    def announce(self, view: View, batch_size: Array) -> Array:
        return jnp.where(jnp.asarray(self.claim) > 0, self.claim * view.request, batch_size)

    def learn(self, view: View, batch_size: Array, reward: Array) -> Any:
        return self.chooser.learn(view, batch_size, reward)


@register
@dataclass(frozen=True)
class Foreseeing(Agent):
    """Reports as `base` does, plus a forecast of the gradient from all broadcasts so far:

        forecast · ( M + curvature · (θ − Θ) )

    M is the mean of all past mean gradients, each weighing `memory` times the next, Θ that of the models they were
    taken at, and θ the model just broadcast: with the right curvature it extrapolates. With a `period` it does so in
    every other stretch of that many rounds only; in between it works, and sends `lift` times its gradient.
    """

    base: Reporting
    dim: int = field(metadata={"static": True})
    forecast: float = 0.0
    memory: float = 0.9
    curvature: float = 0.0
    period: int = 0
    lift: float = 1.0

    @property
    def fabricates(self) -> bool:
        return self.base.fabricates

    @property
    def leader(self) -> int:
        return self.base.leader

    def init(self) -> Any:
        return self.base.init(), jnp.zeros(self.dim), jnp.zeros(self.dim), jnp.zeros(())

    def choose(self, view: View, key: Array) -> Array:
        chosen = self.base.choose(view._replace(memory=view.memory[0]), key)
        return jnp.where(self._works(view), view.request, chosen)

    def report(self, view: View, gradient: Array, key: Array) -> Array:
        gradients, models, weight = self._read(view)
        weight = jnp.where(weight > 0, weight, 1.0)
        expected = gradients / weight + self.curvature * (view.model - models / weight)
        made = self.base.report(view._replace(memory=view.memory[0]), gradient, key) + self.forecast * expected
        return jnp.where(self._works(view), self.lift * gradient, made)

    def keep(self, view: View, gradient: Array) -> Any:
        return self.base.keep(view._replace(memory=view.memory[0]), gradient), *view.memory[1:]

    def learn(self, view: View, batch_size: Array, reward: Array) -> Any:
        return self.base.learn(view._replace(memory=view.memory[0]), batch_size, reward), *self._read(view)

    def _read(self, view: View) -> tuple[Array, Array, Array]:
        """Return the sums with the last mean gradient added; before the first there is nothing to read."""
        _, gradients, models, weight = view.memory
        has_mean = jnp.where(jnp.any(view.aggregate != 0), 1.0, 0.0)
        added = (
            self.memory * old + has_mean * new for old, new in ((gradients, view.aggregate), (models, view.origin))
        )
        return *added, self.memory * weight + has_mean

    def _works(self, view: View) -> Array:
        stretch = view.round // jnp.where(self.period > 0, self.period, 1)
        return (jnp.asarray(self.period) > 0) & (stretch % 2 == 0)


def zero() -> Reporting:
    """Return an agent that does nothing and sends the zero vector."""
    return Reporting(Portion(0.0), gradient=0.0, fabricates=True)


def echo() -> Reporting:
    """Return an agent that does nothing and sends the last aggregate."""
    return Reporting(Portion(0.0), gradient=0.0, echo=1.0, fabricates=True)


def noisy_echo(strength: float = 1.0) -> Reporting:
    """Return an echo that adds noise of `strength` times the variance that honest work would have."""
    check_number("strength", strength, minimum=0)
    return Reporting(Portion(0.0), gradient=0.0, echo=1.0, honest_noise=strength, fabricates=True)


def shrink(factor: float = 0.5, chooser: Agent | None = None) -> Reporting:
    """Return an agent that works but sends its gradient shrunk towards zero by `factor`, at most 1."""
    check_number("factor", factor, minimum=0)
    if factor > 1:
        raise ValueError(f"`factor` must be at most 1, got {factor!r}; `scale` makes a gradient longer")
    return Reporting(chooser or Portion(1.0), gradient=factor)


def scale(factor: float = 2.0, chooser: Agent | None = None) -> Reporting:
    """Return an agent that works but sends `factor` times its gradient."""
    check_number("factor", factor, minimum=0)
    return Reporting(chooser or Portion(1.0), gradient=factor)


def sign_flip(chooser: Agent | None = None) -> Reporting:
    """Return an agent that works but sends the negative of its gradient."""
    return Reporting(chooser or Portion(1.0), gradient=-1.0)


def garbage(size: float = 1e3) -> Reporting:
    """Return an agent that does nothing and sends normal noise of standard deviation `size` in every component."""
    check_number("size", size, minimum=0)
    return Reporting(Portion(0.0), gradient=0.0, noise=size, fabricates=True)
