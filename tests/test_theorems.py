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
    EarlierRounds,
    EstimatedVariance,
    FixedRequest,
    KnownVariance,
    MinibatchGame,
    OutputAgreement,
    Status,
    gather,
    round_of,
)
from guerdon.agreement import VarianceRule
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.game import RuleName
from guerdon.scale import MOST_OPEN
from guerdon.settling import with_scale
from guerdon.statistical.servers import server_for
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
def payer(kind: VarianceRule | EarlierRounds, scale: float | None = None) -> Any:
    """Return a compiled function of gradients (repetitions, rounds, agents, dimensions) and who takes part.

    With a `scale` every round is paid as if earlier rounds had given this V.
    """
    rule = OutputAgreement(COST, kind)

    def one_repetition(gradients: Any, mask: Any) -> Any:
        first = rule.init(len(mask))

        def one_round(state: Any, gradients: Any) -> Any:
            before = state if scale is None else with_scale(first, scale)
            payments, after = rule.pay(before, round_of(gather(gradients, mask), mask, NU))
            return state if scale is not None else after, payments.released

        return jax.lax.scan(one_round, first, gradients)[1]

    return jax.jit(jax.vmap(one_repetition, in_axes=(0, None)))


def simulate(
    rule: VarianceRule | EarlierRounds, sizes: list[int], repetitions: int, rounds: int = 1, scale: float | None = None
) -> Any:
    """Return rewards (repetitions, rounds, agents) when everybody plays `sizes` in every round."""
    gradients = draw_gradients(sizes, repetitions * rounds).reshape(repetitions, rounds, len(sizes), DIM)
    with jax.enable_x64(True):
        return np.asarray(payer(rule, scale)(jnp.asarray(gradients), jnp.asarray(sizes) > 0))


def test_lemma_expected_distance() -> None:
    """Lemma 1: E[D_k] = σ²/S_k + σ²/|P∖k|² · Σ 1/S_i, for a mixed profile with somebody absent."""
    sizes = np.array([1, 2, 4, 8, 0, 3])

    def distances(gradients: Any) -> Any:
        return (5 / 4) ** 2 * gather(gradients, sizes > 0).squared_deviation

    with jax.enable_x64(True):
        compiled = jax.jit(jax.vmap(distances))
        draws = np.asarray(compiled(jnp.asarray(draw_gradients(sizes, DRAWS))))
    for k in np.flatnonzero(sizes):
        others = np.delete(sizes, k)
        expected = VARIANCE / sizes[k] + VARIANCE / 16 * np.sum(1 / others[others > 0])
        measured = mean(draws[:, k])
        assert abs(measured.z(expected)) < SURE
        assert measured.error < 0.03 * expected


@pytest.mark.parametrize(("rule", "ratio"), [("known", 1.0), ("agreement", 1.0), ("agreement", 1.5)])
def test_game_predicts_the_reward_of_every_size(rule: RuleName, ratio: float) -> None:
    """The exact closed forms of `game.py` against simulation: one agent deviates, the others differ."""
    game = MinibatchGame(5, NU, COST, LARGEST, rule=rule, ratio=ratio)
    for size in (2, 4, 8, 16):
        sizes = [size, 8, 4, 8, 6]
        if rule == "known":
            rewards = simulate(KnownVariance(VARIANCE), sizes, DRAWS)
        else:
            rewards = simulate(EarlierRounds(), sizes, DRAWS, scale=VARIANCE / ratio)
        measured = mean(rewards[:, 0, 0])
        assert abs(measured.z(float(game.expected_reward(sizes)[0]))) < SURE
        assert measured.error < 0.6 * ratio


def test_game_predicts_rewards_in_many_dimensions() -> None:
    """Where its estimate is sharp, the other closed form holds for any profile: here noise in 4000 dimensions."""
    rule = OutputAgreement(COST, EstimatedVariance())
    game = MinibatchGame(4, NU, COST, LARGEST, rule="estimated")
    everybody = [True] * 4
    rng = np.random.default_rng(0)
    for sizes in ([2, 8, 4, 6], [16, 8, 8, 8], [8, 8, 8, 8]):
        rewards: list[Any] = []
        for _ in range(50):
            noise = rng.normal(size=(4, 4000)) / np.sqrt(sizes)[:, None]
            told = round_of(gather(noise, everybody), everybody, NU)
            rewards.append(rule.pay(rule.init(4), told)[0].released)
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


# The rule by default: agents are compared in pairs, and V comes from earlier rounds.

MEMBERS, ROUNDS = 4, 60


@functools.cache
def federation() -> Any:
    """Return a compiled function of gradients (repetitions, rounds, agents, dimensions): rewards and statuses."""
    server = server_for(OutputAgreement(COST), FixedRequest(NU, step=0.1), alike=True)
    model, everybody = jnp.zeros(DIM), jnp.ones(MEMBERS, dtype=bool)

    def one_round(state: Any, gradients: Any) -> Any:
        ask, state = server.ask(state, model)
        done, state = server.settle(state, ask, gradients, everybody, mean=False)
        return jax.tree.map(jnp.asarray, state), (done.payments.released, done.payments.status)

    def one_repetition(gradients: Any) -> Any:
        first = jax.tree.map(jnp.asarray, server.init(np.zeros(DIM), MEMBERS))
        return jax.lax.scan(one_round, first, gradients)[1]

    return jax.jit(jax.vmap(one_repetition))


def play(gradients: Any) -> Any:
    """Return rewards (repetitions, rounds, agents) of the default rule, after the open rounds.

    Whatever is sent, in every round the work of all is paid and the extras add up to 0.
    """
    shaped = np.reshape(gradients, (-1, ROUNDS, MEMBERS, DIM))
    with jax.enable_x64(True):
        rewards, status = map(np.asarray, federation()(jnp.asarray(shaped)))
    np.testing.assert_allclose(rewards.sum(axis=2), MEMBERS * COST(NU), rtol=1e-9)
    assert (status[:, 0] == Status.WAITING).all()
    assert (status[:, MOST_OPEN:] == Status.PAID).all()
    return rewards[:, MOST_OPEN:]


def utility(rewards: Any, size: int) -> Mean:
    """Return what the first agent earns in a round beyond the cost of `size` samples."""
    return mean(rewards[..., 0].mean(axis=1) - COST(size))


def test_agreement_pays_the_cost_and_deters_shirking_and_overwork() -> None:
    """Others at ν: half and double the work earn significantly less than the work asked for."""
    honest, half, double = (
        utility(play(draw_gradients([size, *[NU] * (MEMBERS - 1)], DRAWS)), size) for size in (NU, NU // 2, 2 * NU)
    )
    assert abs(honest.z(0.0)) < SURE
    assert honest.error < 0.1
    for other in (half, double):
        assert other.value < honest.value - SURE * np.hypot(other.error, honest.error)
        assert other.value < -1


def rare_gradients(sizes: list[int], repetitions: int, seed: int = 1) -> Any:
    """Return mean gradients of samples of which 9 % are ten times as long: they carry 91 % of the variance."""
    rng = np.random.default_rng(seed)
    samples = rng.standard_normal((repetitions, len(sizes), NU, DIM))
    samples *= np.where(rng.random((repetitions, len(sizes), NU, 1)) < 0.09, 10.0, 1.0)
    return np.stack([samples[:, k, :size].mean(axis=1) for k, size in enumerate(sizes)], axis=1)


def test_a_single_sample_loses_under_agreement_where_few_samples_carry_the_variance() -> None:
    """Balanced variance divides by the agent's own spread: there a single sample pays. It is not payable for that."""
    sizes = [1, *[NU] * (MEMBERS - 1)]
    single = rare_gradients(sizes, DRAWS)
    honest = utility(play(rare_gradients([NU] * MEMBERS, DRAWS)), NU)
    lazy = utility(play(single), 1)
    assert abs(honest.z(0.0)) < SURE
    assert lazy.value < min(-SURE * lazy.error, -5)
    with jax.enable_x64(True):
        rewards = np.asarray(payer(BalancedVariance())(jnp.asarray(single[:, None]), jnp.ones(MEMBERS, dtype=bool)))
    balanced = utility(rewards, 1)
    assert balanced.value > max(SURE * balanced.error, 2)


def test_balanced_rule_pays_the_cost_exactly() -> None:
    """E[R_k] = h(ν) for any distribution: the reason to compare with it."""
    rewards = simulate(BalancedVariance(), [NU] * 5, DRAWS, 1)
    measured = mean(rewards[:, 0, 0])
    assert abs(measured.z(COST(NU))) < SURE
    assert measured.error < 0.3
    np.testing.assert_allclose(rewards[:, 0].sum(axis=1), 5 * COST(NU), rtol=1e-9)


def test_estimated_rule_underpays() -> None:
    """Why V comes from earlier rounds: with an estimate of the round in the denominator an honest agent loses money."""
    measured = mean(simulate(EstimatedVariance(), [NU] * 5, DRAWS)[:, 0, 0])
    assert measured.z(COST(NU)) < -10
    assert measured.value < COST(NU) - 1


def test_estimated_closed_form_for_gaussian_gradients() -> None:
    """The bias f/(f − 2) of `game.py` is exact for Gaussian gradients, others symmetric."""
    agents, dim, others = 5, 4, 6
    rule = OutputAgreement(COST, EstimatedVariance())
    game = MinibatchGame(agents, NU, COST, LARGEST, rule="estimated", dimension=dim)
    everybody = np.ones(agents, dtype=bool)

    def rewards(gradients: Any) -> Any:
        told = round_of(gather(gradients, everybody), everybody, NU)
        return rule.pay(rule.init(agents), told)[0].released

    for size in (4, 8):
        sizes = np.array([size] + [others] * (agents - 1))
        noise = np.random.default_rng(size).normal(size=(60_000, agents, dim)) / np.sqrt(sizes)[:, None]
        with jax.enable_x64(True):
            measured = mean(np.asarray(jax.jit(jax.vmap(rewards))(jnp.asarray(noise)))[:, 0])
        assert abs(measured.z(float(game.expected_reward(sizes)[0]))) < SURE
        assert measured.error < 0.1
