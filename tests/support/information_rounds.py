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

from guerdon import AffineCost, FixedRequest, InformationPay
from guerdon.statistical.bets import BETS, TESTS
from guerdon.statistical.servers import server_for
from guerdon.statistical.signal import SignalState
from guerdon.statistical.trust import TrustState

COST = AffineCost(1, 1)
NU, AGENTS = 8, 10
SHAPE = 0.8  # of log-normal samples
MOST = 16  # samples that are drawn one by one


class Known(NamedTuple):
    """What a server knows of its agents: the state of the rule, and whom it trusts."""

    rule: SignalState
    trust: TrustState


class Played(NamedTuple):
    """Rewards and the logarithm of the evidence against everybody, both (repetitions, rounds, agents)."""

    rewards: Any
    against: Any

    @property
    def mean_of_others(self) -> Any:
        """What agents other than 0 were paid a round, by repetition."""
        return self.rewards[:, :, 1:].mean(axis=(1, 2))


Shape = tuple[int, ...]  # repetitions, rounds, agents, dimensions


@functools.cache
def _normals(seed: int, shape: Shape) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _normal_noise(seed: int, sizes: Any, shape: Shape) -> Any:
    return _normals(seed, shape) * np.sqrt(NU / shape[-1] / sizes)[:, None]


def _skewed_noise(seed: int, sizes: Any, shape: Shape) -> Any:
    """The mean of log-normal samples, drawn one by one."""
    samples = np.exp(SHAPE * _normals(seed, (*shape, MOST)))
    mean, variance = np.exp(SHAPE**2 / 2), (np.exp(SHAPE**2) - 1) * np.exp(SHAPE**2)
    used = np.arange(MOST) < sizes[:, None, None]
    return np.sum(samples - mean, axis=-1, where=used) / sizes[:, None] * np.sqrt(NU / shape[-1] / variance)


def _heavy_noise(seed: int, sizes: Any, shape: Shape) -> Any:
    """Noise whose length has a heavy tail: normal, divided by the root of a χ² of 3 degrees of freedom for each report.

    Its variance is NU/sizes in all, as it should be, and its fourth moment infinite.
    """
    stretch = np.sqrt(1 / np.sum(_normals(seed + 1, (*shape[:-1], 3)) ** 2, axis=-1))
    return _normal_noise(seed, sizes, shape) * stretch[..., None]


NOISE = {"normal": _normal_noise, "skewed": _skewed_noise, "heavy": _heavy_noise}


@functools.cache
def _payer(rule: InformationPay) -> Any:
    """Return the compiled function of a state, v (repetitions, rounds, agents, dimensions) and who takes part."""

    server = server_for(rule, FixedRequest(NU, 0.1), alike=True)

    def one_round(state: Any, sent: Any) -> Any:
        v, mask = sent
        prediction = jnp.full(v.shape[1], 3.0, v.dtype)
        begun = server.init(prediction, len(v))  # nobody copies
        begun = begun._replace(rule=state.rule, lens=begun.lens._replace(trust=state.trust))
        ask, begun = server.ask(begun, prediction)
        payments, _, after = server.pay(begun, ask._replace(prediction=prediction), prediction + v, mask)
        return Known(after.rule, after.lens.trust), (payments.released, rule.trust.suspicion(after.lens.trust))

    def one_repetition(state: Any, v: Any, masks: Any) -> Any:
        return jax.lax.scan(one_round, state, (v, masks))[1]

    return jax.jit(jax.vmap(one_repetition, in_axes=(None, 0, 0)))


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
    state: Known | None = None,
    double: bool = False,
) -> Played:
    """Return what everybody was paid. `present` is with what probability each takes part; `state` is what is known.

    With `double` it is computed in float64, for reports so long that float32 sees nothing beside them.
    """
    shape, signal = (repetitions, rounds, len(sizes), dim), NU / noise_scale
    direction = np.sqrt(signal / dim) * np.where(np.arange(dim) % 2, 1.0, -1.0)
    v = direction + NOISE[noise](seed, np.asarray(sizes), shape)
    made_up = np.sqrt((signal + 1.0) / dim) * _normals(seed + 2, (repetitions, rounds, dim))
    v[:, :, 0] = factor * v[:, :, 0] + extra * made_up
    masks = np.random.default_rng(seed + 3).random(shape[:-1]) < present
    with jax.enable_x64(double):
        begun = state or Known(rule.init(len(sizes)), rule.trust.init(len(sizes)))
        known, sent = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64 if double else jnp.float32), (begun, v))
        rewards, against = _payer(rule)(known, sent, jnp.asarray(masks))
        return Played(np.asarray(rewards, np.float64), np.asarray(against, np.float64))


def knowing(noise_scale: float, agents: int = AGENTS, doubted: tuple[int, ...] = ()) -> Known:
    """Return the state of a server who has seen this noise scale for ever, and doubts some agents."""
    wealth = np.zeros((len(BETS), len(TESTS), agents))
    wealth[..., list(doubted)] = 1e3
    weight = np.full(agents, 1e9)
    trust = TrustState(*(weight for _ in TrustState._fields))
    signal = SignalState(weight / noise_scale, weight)
    return Known(signal, trust._replace(signal=signal.signal, weight=signal.weight, wealth=wealth))
