"""Monte-Carlo tests of what the paper proves and of what we add to it.

Samples are skewed and heavy-tailed (log-normal), the mean gradient of S of them is computed literally, and nothing is
Gaussian. Each test has a fixed seed. A mean "equals" a number when it lies within `SURE` standard errors of it; with
the few dozen means tested here a false alarm has a chance below 1 in 500. Each test also asserts that its standard
error is small enough to find an error of the size that would matter.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon import (
    AffineCost,
    BalancedVariance,
    EstimatedVariance,
    KnownVariance,
    MinibatchGame,
    OutputAgreement,
    gather,
)
from guerdon.game import Rule
from guerdon.rules import VarianceRule
from tests.support.means import Mean, mean

SURE = 4.0
COST = AffineCost(1, 1)
NU, DIM, LARGEST = 8, 3, 16
# Variance of the log-normal samples below, over all coordinates: (e^{s²} − 1)·e^{s²} each, s = 0.8.
SHAPE = 0.8
DRAWS = 30_000
VARIANCE = DIM * (np.exp(SHAPE**2) - 1) * np.exp(SHAPE**2)


@functools.cache
def running_means(repetitions: int, seed: int) -> Any:
    """Return means of the first 1, 2, … samples (samples, repetitions, agents, dimensions) of six agents."""
    normals = np.random.default_rng(seed).standard_normal((LARGEST, repetitions, 6, DIM))
    return np.cumsum(np.exp(SHAPE * normals), axis=0) / np.arange(1, LARGEST + 1)[:, None, None, None]


def draw_gradients(sizes: Any, repetitions: int, seed: int = 0) -> Any:
    """Return one mean gradient per agent, each over his own number of fresh samples; those of who declines are zero."""
    means = running_means(repetitions, seed)
    return np.stack([means[size - 1, :, k] if size else 0 * means[0, :, k] for k, size in enumerate(sizes)], axis=1)


@functools.cache
def payer(rule: VarianceRule) -> Any:
    """Return a compiled function of gradients (repetitions, rounds, agents, dimensions) and who takes part."""
    mechanism = OutputAgreement(COST, rule)

    def one_repetition(gradients: Any, mask: Any) -> Any:
        def one_round(state: Any, gradients: Any) -> Any:
            payments, state = mechanism.pay(state, gather(gradients, mask), mask, NU)
            return state, payments.reward

        return jax.lax.scan(one_round, mechanism.init(len(mask)), gradients)[1]

    return jax.jit(jax.vmap(one_repetition, in_axes=(0, None)))


def simulate(rule: VarianceRule, sizes: list[int], repetitions: int, rounds: int = 1) -> Any:
    """Return rewards (repetitions, rounds, agents) when everybody plays `sizes` in every round."""
    gradients = draw_gradients(sizes, repetitions * rounds).reshape(repetitions, rounds, len(sizes), DIM)
    with jax.enable_x64(True):
        return np.asarray(payer(rule)(jnp.asarray(gradients), jnp.asarray(sizes) > 0))


def test_lemma_expected_distance() -> None:
    """Lemma 1: E[D_k] = σ²/S_k + σ²/|P∖k|² · Σ 1/S_i, for a mixed profile with somebody absent."""
    sizes = np.array([1, 2, 4, 8, 0, 3])

    def distances(gradients: Any) -> Any:
        return (5 / 4) ** 2 * gather(gradients, sizes > 0).deviation

    with jax.enable_x64(True):
        compiled = jax.jit(jax.vmap(distances))
        draws = np.asarray(compiled(jnp.asarray(draw_gradients(sizes, DRAWS))))
    for k in np.flatnonzero(sizes):
        others = np.delete(sizes, k)
        expected = VARIANCE / sizes[k] + VARIANCE / 16 * np.sum(1 / others[others > 0])
        measured = mean(draws[:, k])
        assert abs(measured.z(expected)) < SURE
        assert measured.error < 0.03 * expected


def test_game_predicts_the_reward_of_every_size() -> None:
    """The closed form of `game.py` for the known rule against simulation: one agent deviates, the others differ."""
    game = MinibatchGame(5, NU, COST, LARGEST)
    for size in (2, 4, 8, 16):
        sizes = [size, 8, 4, 8, 6]
        measured = mean(simulate(KnownVariance(VARIANCE), sizes, DRAWS)[:, 0, 0])
        assert abs(measured.z(float(game.expected_reward(sizes)[0]))) < SURE
        assert measured.error < 0.6


@pytest.mark.parametrize("rule", ["estimated", "balanced"])
def test_game_predicts_rewards_in_many_dimensions(rule: Rule) -> None:
    """Where estimates are sharp, the other closed forms hold for any profile: here noise in 4000 dimensions."""
    variance: VarianceRule = EstimatedVariance() if rule == "estimated" else BalancedVariance()
    mechanism, game = OutputAgreement(COST, variance), MinibatchGame(4, NU, COST, LARGEST, rule=rule)
    everybody = [True] * 4
    rng = np.random.default_rng(0)
    for sizes in ([2, 8, 4, 6], [16, 8, 8, 8], [8, 8, 8, 8]):
        rewards: list[Any] = []
        for _ in range(50):
            noise = rng.normal(size=(4, 4000)) / np.sqrt(sizes)[:, None]
            rewards.append(mechanism.pay(mechanism.init(4), gather(noise, everybody), everybody, NU)[0].reward)
        expected = game.expected_reward(sizes)
        np.testing.assert_allclose(np.mean(rewards, axis=0), expected, atol=0.02 * np.ptp([*expected, 0]))


def test_theorem_budget_balance() -> None:
    """Theorem 1: at cooperation the known rule pays h(ν)."""
    measured = mean(simulate(KnownVariance(VARIANCE), [NU] * 6, DRAWS)[:, 0, 0])
    assert abs(measured.z(COST(NU))) < SURE
    assert measured.error < 0.1


def test_theorem_cooperation_is_a_best_response() -> None:
    """Theorem 1: every other size earns significantly less, declining (worth 0) excepted, which earns no more."""
    utilities: dict[int, Mean] = {}
    for size in (1, 2, 4, 6, 8, 11, 16):
        rewards = simulate(KnownVariance(VARIANCE), [size, *[NU] * 5], DRAWS)[:, 0, 0]
        utilities[size] = mean(rewards - COST(size))
    assert abs(utilities[NU].z(0.0)) < SURE
    for size in set(utilities) - {NU}:
        gap = utilities[NU].value - utilities[size].value
        assert gap > SURE * np.hypot(utilities[NU].error, utilities[size].error)


def test_balanced_rule_pays_the_cost_exactly() -> None:
    """E[R_k] = h(ν) for any distribution (THEORY §4)."""
    rewards = simulate(BalancedVariance(), [NU] * 5, DRAWS, 1)
    measured = mean(rewards[:, 0, 0])
    assert abs(measured.z(COST(NU))) < SURE
    assert measured.error < 0.3
    np.testing.assert_allclose(rewards[:, 0].sum(axis=1), 5 * COST(NU), rtol=1e-9)


@pytest.mark.slow
def test_balanced_rule_deters_shirking_and_overwork() -> None:
    """Others at ν: half and double the work earn significantly less than the work asked for."""
    honest, half, double = (
        mean((simulate(BalancedVariance(), [size, *[NU] * 5], DRAWS // 6, 6)[:, 1:, 0]).mean(axis=1) - COST(size))
        for size in (NU, NU // 2, 2 * NU)
    )
    assert abs(honest.z(0.0)) < SURE
    for other in (half, double):
        assert other.value < -SURE * other.error


def test_estimated_rule_underpays() -> None:
    """Why the balanced rule exists: with an estimate in the denominator an honest agent loses money."""
    measured = mean(simulate(EstimatedVariance(), [NU] * 5, DRAWS)[:, 0, 0])
    assert measured.z(COST(NU)) < -10
    assert measured.value < COST(NU) - 1


def test_estimated_closed_form_for_gaussian_gradients() -> None:
    """The bias f/(f − 2) of `game.py` is exact for Gaussian gradients, others symmetric."""
    agents, dim, others = 5, 4, 6
    mechanism = OutputAgreement(COST, EstimatedVariance())
    game = MinibatchGame(agents, NU, COST, LARGEST, rule="estimated", dimension=dim)
    everybody = np.ones(agents, dtype=bool)

    def rewards(gradients: Any) -> Any:
        return mechanism.pay(mechanism.init(agents), gather(gradients, everybody), everybody, NU)[0].reward

    for size in (4, 8):
        sizes = np.array([size] + [others] * (agents - 1))
        noise = np.random.default_rng(size).normal(size=(60_000, agents, dim)) / np.sqrt(sizes)[:, None]
        with jax.enable_x64(True):
            measured = mean(np.asarray(jax.jit(jax.vmap(rewards))(jnp.asarray(noise)))[:, 0])
        assert abs(measured.z(float(game.expected_reward(sizes)[0]))) < SURE
        assert measured.error < 0.1
