"""Many rounds of cheap gradients around a known prediction, paid for their information: what the theorems are about.

Everybody's v_k = X_k − p is one fixed vector of squared length g² = σ²/B plus noise of variance σ²/S_k, σ² = ν. Agent 0
may send something else: factor·v_0 + extra·(noise as long as an honest report). The same seed gives the same draws
whatever the sizes and reports, so that differences between runs are hardly noisy.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from guerdon import AffineCost, InformationPay
from guerdon.audit import BETS, TESTS, against_agents
from guerdon.information import Knowledge
from guerdon.simulation.paying import Round, settle

COST = AffineCost(1, 1)
NU, AGENTS = 8, 10
SHAPE = 0.8  # of log-normal samples
MOST = 16  # samples that are drawn one by one


class Played(NamedTuple):
    """Rewards and the logarithm of the evidence against everybody, both (repetitions, rounds, agents)."""

    rewards: Any
    against: Any

    @property
    def mean_of_others(self) -> Any:
        """What agents other than 0 were paid a round, by repetition."""
        return self.rewards[:, :, 1:].mean(axis=(1, 2))


def _normal_noise(key: Any, sizes: Any, dim: int) -> Any:
    return jax.random.normal(key, (sizes.shape[0], dim)) * jnp.sqrt(NU / dim / sizes)[:, None]


def _skewed_noise(key: Any, sizes: Any, dim: int) -> Any:
    """The mean of log-normal samples, drawn one by one."""
    samples = jnp.exp(SHAPE * jax.random.normal(key, (sizes.shape[0], MOST, dim)))
    mean, variance = np.exp(SHAPE**2 / 2), (np.exp(SHAPE**2) - 1) * np.exp(SHAPE**2)
    used = (jnp.arange(MOST) < sizes[:, None])[..., None]
    return jnp.sum(jnp.where(used, samples - mean, 0.0), axis=1) / sizes[:, None] * np.sqrt(NU / dim / variance)


def _heavy_noise(key: Any, sizes: Any, dim: int) -> Any:
    """Noise whose length has a heavy tail: normal, divided by the root of a χ² of 3 degrees of freedom for each report.

    Its variance is NU/sizes in all, as it should be, and its fourth moment infinite.
    """
    first, second = jax.random.split(key)
    stretch = jnp.sqrt(1 / jnp.sum(jax.random.normal(second, (sizes.shape[0], 3)) ** 2, axis=1))
    return _normal_noise(first, sizes, dim) * stretch[:, None]


NO_PROBLEM: Any = None  # information pay knows no more than a server can
NOISE = {"normal": _normal_noise, "skewed": _skewed_noise, "heavy": _heavy_noise}


@functools.cache
def _player(rule: InformationPay, rounds: int, dim: int, noise: str) -> Any:
    """Return the compiled function; all numbers of `play` are data to it."""

    def one_round(setting: Any, state: Any, key: Any) -> Any:
        sizes, factor, extra, noise_scale, present = setting
        ours, theirs, rows = jax.random.split(key, 3)
        signal = NU / noise_scale
        prediction = jnp.full(dim, 3.0)
        direction = jnp.sqrt(signal / dim) * jnp.ones(dim).at[::2].set(-1.0)
        v = direction + NOISE[noise](ours, sizes, dim)
        made_up = jnp.sqrt((signal + 1.0) / dim) * jax.random.normal(theirs, (dim,))
        v = v.at[0].set(factor * v[0] + extra * made_up)
        mask = jax.random.uniform(rows, sizes.shape) < present
        pairs = jnp.zeros((len(BETS), len(sizes), len(sizes)))  # nobody copies
        played = Round(pairs, prediction + v, mask, jnp.asarray(NU), prediction, NO_PROBLEM, prediction)
        settled = settle((rule,), (state,), played)
        return settled.states[0], (settled.rewards[0], against_agents(settled.states[0].wealth))

    def one_repetition(key: Any, setting: Any, state: Any) -> Any:
        return jax.lax.scan(functools.partial(one_round, setting), state, jax.random.split(key, rounds))[1]

    return jax.jit(jax.vmap(one_repetition, in_axes=(0, None, None)))


def play(
    rule: InformationPay,
    *,
    rounds: int,
    repetitions: int,
    sizes: Any = (NU,) * AGENTS,
    factor: float = 1.0,
    extra: float = 0.0,
    noise_scale: float = 8.0,
    present: float = 1.0,
    dim: int = 50,
    noise: str = "normal",
    seed: int = 0,
    state: Knowledge | None = None,
    double: bool = False,
) -> Played:
    """Return what everybody was paid. `present` is with what probability each takes part; `state` is what is known.

    With `double` it is computed in float64, for reports so long that float32 sees nothing beside them.
    """
    with jax.enable_x64(double):
        start = jax.tree.map(
            lambda x: jnp.asarray(x, jnp.float64 if double else jnp.float32), state or rule.init(len(sizes))
        )
        setting = jnp.asarray(sizes), factor, extra, noise_scale, present
        keys = jax.random.split(jax.random.key(seed), repetitions)
        rewards, against = _player(rule, rounds, dim, noise)(keys, setting, start)
        return Played(np.asarray(rewards, np.float64), np.asarray(against, np.float64))


def knowing(noise_scale: float, agents: int = AGENTS, doubted: tuple[int, ...] = ()) -> Knowledge:
    """Return the state of a server who has seen this noise scale for ever, and doubts some agents."""
    wealth = np.zeros((len(BETS), len(TESTS), agents))
    wealth[..., list(doubted)] = 1e3
    return Knowledge(np.full(agents, 1e9 / noise_scale), np.full(agents, 1e9), wealth)
