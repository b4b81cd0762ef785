"""The agent that plays every attack: what it sends is made of numbers, so that one compiled simulation serves all.

On top of what `Foreseeing` knows (its samples, all broadcasts, the server's prediction) it may know what old rows say
of the gradient, share noise with a crew in secret, know the ã that the rule will use, and use a sample twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from guerdon.arrays import Array
from guerdon.lab._trees import register
from guerdon.lab.agents import Agent, Foreseeing, View

SECRET = 77  # seed of the noise that a crew shares
FURTHEST = (0.5, 3.0)  # times what an agent computed, that it sends where it knows ã
LEAST = 1e-12

Recall = Callable[[Array], Array]


def nothing_kept(model: Array) -> Array:
    """Return what an agent without old rows knows of the gradient."""
    return 0 * model


@register
@dataclass(frozen=True)
class Attacker(Agent):
    """Reports as `base` does, and beside that:

    - `cached`: so much of what old rows (`recall`) say of the gradient is added, less the prediction;
    - `stretch`: what is sent is moved away from the prediction, at 1 until it is as long as an honest report;
    - `secret`: noise of so many times the honest variance, the same for the whole crew;
    - `usual`: the a that is right, where the agent knows the rule's ã; it then sends a/ã times what it computed;
    - `mirror`: it works in the first round of a dithered pair, and in the second sends the opposite of what it found.
    """

    base: Foreseeing
    recall: Recall = field(metadata={"static": True})
    cached: float = 0.0
    stretch: float = 0.0
    secret: float = 0.0
    usual: float = 0.0
    mirror: float = 0.0

    @property
    def fabricates(self) -> bool:
        return self.base.fabricates

    @property
    def leader(self) -> int:
        return self.base.leader

    def init(self) -> Any:
        return self.base.init(), jnp.zeros(self.base.dim)

    def choose(self, view: View, key: Array) -> Array:
        return jnp.where(self._mirrors(view), 0, self.base.choose(self._inner(view), key))

    def report(self, view: View, gradient: Array, key: Array) -> Array:
        sent = self.base.report(self._inner(view), gradient, key)
        sent = sent + self.cached * (self.recall(view.model) - view.prediction)
        sent = jnp.where(self._mirrors(view), view.prediction - view.memory[1], sent)
        apart = (sent - view.prediction) * self._factor(view)
        square = jnp.maximum(jnp.sum(apart**2), LEAST)
        honest = jnp.sqrt(1 + view.variance / view.request / square)
        noise = jnp.sqrt(self.secret * view.variance / view.request / sent.shape[0]) * _common(view.model)
        return view.prediction + apart * (1 + self.stretch * (honest - 1)) + noise

    def keep(self, view: View, gradient: Array) -> Any:
        return self.base.keep(self._inner(view), gradient), gradient - view.prediction

    def learn(self, view: View, batch_size: Array, reward: Array) -> Any:
        return self.base.learn(self._inner(view), batch_size, reward), view.memory[1]

    def _factor(self, view: View) -> Array:
        known = jnp.clip(self.usual / view.shrinkage, *FURTHEST)
        return jnp.where(jnp.asarray(self.usual) > 0, known, 1.0)

    def _mirrors(self, view: View) -> Array:
        return (jnp.asarray(self.mirror) > 0) & (view.round % 2 == 1)

    def _inner(self, view: View) -> View:
        return view._replace(memory=view.memory[0])


def _common(model: Array) -> Array:
    """Return normal numbers that everybody can make who has agreed on how, and has read the broadcast."""
    number = jax.lax.bitcast_convert_type(jnp.asarray(jnp.sum(model), jnp.float32), jnp.uint32)
    return jax.random.normal(jax.random.fold_in(jax.random.key(SECRET), number), model.shape, model.dtype)
