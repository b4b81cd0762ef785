"""Noise and signal: unbiased in one round, and followed through a training as an independent transcription does."""

from typing import Any

import numpy as np
import pytest

from guerdon import gather
from guerdon.noise_scale import (
    TRAIL,
    NoiseFilter,
    TrailProducts,
    estimate_noise,
    extend_trail,
    first_filter,
    trail_products,
    update_filter,
)
from tests.support.filter_oracle import Oracle
from tests.support.means import mean

SURE = 4.0
AGENTS, DIM = 6, 20


def rounds_of(signal: float, request: int, agents: int = AGENTS, tail: bool = False, draws: int = 1000) -> Any:
    """Draw gradients (draws, agents, dim) whose mean has the length √signal and whose σ² is DIM."""
    rng = np.random.default_rng(0)
    centre = np.full(DIM, np.sqrt(signal / DIM))
    # Noise with heavy tails: a random size, the same for all components of a gradient, with mean square 1.
    sizes = np.sqrt(rng.exponential(size=(draws, agents, 1))) if tail else 1.0
    return centre + sizes * rng.normal(size=(draws, agents, DIM)) / np.sqrt(request)


@pytest.mark.parametrize("tail", [False, True])
@pytest.mark.parametrize(("signal", "request_", "agents"), [(0.0, 1, 6), (4.0, 8, 6), (100.0, 4, 2), (0.5, 64, 3)])
def test_both_estimates_are_unbiased(signal: float, request_: int, agents: int, tail: bool) -> None:
    everybody = np.ones(agents, dtype=bool)
    drawn = rounds_of(signal, request_, agents, tail)
    seen = [estimate_noise(gather(x, everybody), request_) for x in drawn]
    variance, strength = mean([s.variance for s in seen]), mean([s.signal for s in seen])
    assert abs(variance.z(DIM)) < SURE
    assert variance.error < 0.03 * DIM
    assert abs(strength.z(signal)) < SURE
    assert strength.error < 0.03 * (signal + DIM / request_ / agents)


def test_the_jackknife_knows_the_error_of_the_signal() -> None:
    """Where there is signal it is unbiased; where there is none it has the variance 2(n − 1)/(n − 2) times."""
    everybody = np.ones(AGENTS, dtype=bool)
    for signal, factor in ((100.0, 1.0), (0.0, 2 * (AGENTS - 1) / (AGENTS - 2))):
        seen = [estimate_noise(gather(x, everybody), 4) for x in rounds_of(signal, 4, draws=2000)]
        true = np.var([s.signal for s in seen])
        claimed = np.mean([s.signal_variance for s in seen])
        assert claimed == pytest.approx(factor * true, rel=0.15)


def test_one_round_by_hand() -> None:
    gradients = np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0]])
    seen = estimate_noise(gather(gradients, np.ones(3, dtype=bool)), 4)
    assert float(seen.variance) == pytest.approx(4 * (1 + 1 + 1 + 1 + 4) / 2)
    assert float(seen.signal) == pytest.approx((3 + 2 + 6) / 3)
    assert float(seen.square) == pytest.approx(2**2 + 1**2)
    assert float(seen.count) == 3


def test_absent_agents_say_nothing() -> None:
    drawn = rounds_of(4.0, 8, draws=1)[0]
    here = np.array([True, False, True, True, False, True])
    one, other = (estimate_noise(e, 8) for e in (gather(drawn, here), gather(drawn[here], np.ones(4, dtype=bool))))
    np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("present", [0, 1])
def test_fewer_than_two_say_nothing(present: int) -> None:
    here = np.arange(AGENTS) < present
    seen = estimate_noise(gather(rounds_of(4.0, 8, draws=1)[0], here), 8)
    assert (float(seen.variance), float(seen.signal), float(seen.signal_variance)) == (0, 0, 0)
    before = first_filter(AGENTS)
    after = update_filter(before, seen, 8, TrailProducts(0.0, 0.0), 2.0)
    assert float(after.step) == 0
    for old, new in zip(before._replace(step=after.step), after, strict=True):
        np.testing.assert_array_equal(old, new)


def test_identical_gradients_need_no_averaging() -> None:
    """Without noise the step is one over the curvature as far as it is believed, and the noise scale as good as 0."""
    everybody = np.ones(AGENTS, dtype=bool)
    seen = estimate_noise(gather(np.ones((AGENTS, DIM)), everybody), 8)
    after = update_filter(first_filter(AGENTS), seen, 8, TrailProducts(0.0, 0.0), 2.0)
    assert 0.05 < float(after.step) < 1
    assert float(after.noise_scale) < 1e-6
    assert all(np.isfinite(part).all() for part in after)


def test_gradients_that_are_all_zero_move_nothing() -> None:
    everybody = np.ones(AGENTS, dtype=bool)
    seen = estimate_noise(gather(np.zeros((AGENTS, DIM)), everybody), 8)
    after = update_filter(first_filter(AGENTS), seen, 8, TrailProducts(0.0, 0.0), 2.0)
    assert float(after.step) == 0
    assert float(after.rounds) == 0


@pytest.mark.parametrize("request_", [0, -1, 2.5, True, "8"])
def test_the_request_is_checked(request_: Any) -> None:
    evidence = gather(np.eye(3), np.ones(3, dtype=bool))
    with pytest.raises((ValueError, TypeError), match="`request` must be a positive integer"):
        estimate_noise(evidence, request_)


def test_the_trail_is_a_decayed_sum() -> None:
    rng = np.random.default_rng(0)
    aggregates = rng.normal(size=(4, 5))
    trail: Any = np.zeros(5)
    for g in aggregates[:3]:
        trail = extend_trail(trail, g)
    expected = TRAIL**2 * aggregates[0] + TRAIL * aggregates[1] + aggregates[2]
    np.testing.assert_allclose(trail, expected)
    np.testing.assert_allclose(trail_products(trail, aggregates[3]), [expected @ aggregates[3], expected @ expected])


def test_a_model_in_layers_has_the_same_trail() -> None:
    rng = np.random.default_rng(1)
    whole, aggregate = rng.normal(size=(2, 12))

    def split(x: Any) -> list[Any]:
        return [x[:8].reshape(4, 2), x[8:]]

    np.testing.assert_allclose(trail_products(split(whole), split(aggregate)), trail_products(whole, aggregate))
    longer = extend_trail(split(whole), split(aggregate))
    np.testing.assert_allclose(np.concatenate([x.ravel() for x in longer]), extend_trail(whole, aggregate))
    with pytest.raises(ValueError, match="zip"):
        trail_products(split(whole), split(aggregate)[:1])


def play(seed: int, rounds: int, curvature: float, present: Any) -> tuple[list[Any], Oracle, NoiseFilter]:
    """Follow a quadratic with the filter and with its transcription; return their steps and noise scales."""
    rng = np.random.default_rng(seed)
    steepness = np.geomspace(0.3, 3.0, DIM)
    model, trail = np.ones(DIM), np.zeros(DIM)
    pairs: list[Any] = []
    oracle, state = Oracle(AGENTS, curvature), first_filter(AGENTS)
    for t in range(rounds):
        here, nu = present(t, rng), 1 + t % 5
        drawn = steepness * model + 2 * rng.normal(size=(AGENTS, DIM)) / np.sqrt(nu)
        evidence, aggregate = gather(drawn, here), drawn[here].mean(axis=0)
        state = update_filter(state, estimate_noise(evidence, nu), nu, trail_products(trail, aggregate), curvature)
        trail = extend_trail(trail, aggregate)
        pairs.append(((float(state.step), float(state.noise_scale)), oracle.observe(drawn[here], nu)))
        model = model - float(state.step) * aggregate
    return pairs, oracle, state


def everybody(t: int, rng: np.random.Generator) -> Any:
    del t, rng
    return np.ones(AGENTS, dtype=bool)


def at_least_two(t: int, rng: np.random.Generator) -> Any:
    del t
    return (rng.uniform(size=AGENTS) < 0.5) | (np.arange(AGENTS) < 2)


@pytest.mark.parametrize("present", [everybody, at_least_two])
@pytest.mark.parametrize("curvature", [0.2, 2.0, 20.0])
def test_it_follows_the_transcription(curvature: float, present: Any) -> None:
    for seed in range(2):
        pairs, oracle, state = play(seed, 40, curvature, present)
        np.testing.assert_allclose(*np.swapaxes(np.array(pairs), 0, 1), rtol=1e-6)
        np.testing.assert_allclose(state.log_weight, [b["weight"] for b in oracle.beliefs], atol=1e-6)
        assert float(state.crowd) == pytest.approx(oracle.crowd)


@pytest.mark.parametrize("true", [0.02, 0.2, 2.0, 20.0, 200.0])
def test_it_finds_the_curvature_from_far_away(true: float) -> None:
    """A loss a hundred times flatter or steeper than guessed: the error is soon a thousandth of what it was."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        model, trail, state = np.full(DIM, 10.0), np.zeros(DIM), first_filter(AGENTS)
        for _ in range(60):
            drawn = true * model + 0.5 * true * rng.normal(size=(AGENTS, DIM))
            aggregate = drawn.mean(axis=0)
            noise = estimate_noise(gather(drawn, np.ones(AGENTS, dtype=bool)), 8)
            state = update_filter(state, noise, 8, trail_products(trail, aggregate), 2.0)
            trail = extend_trail(trail, aggregate)
            model = model - float(state.step) * aggregate
        assert np.sum(model**2) < 1e-3 * DIM * 100


def test_a_signal_lost_in_noise_does_not_run_away() -> None:
    """At the minimum ‖m‖² is 0: the step shrinks, and everything stays finite and positive."""
    rng = np.random.default_rng(0)
    state, trail = first_filter(AGENTS), np.zeros(DIM)
    steps: list[float] = []
    for _ in range(300):
        drawn = rng.normal(size=(AGENTS, DIM))
        noise = estimate_noise(gather(drawn, np.ones(AGENTS, dtype=bool)), 8)
        state = update_filter(state, noise, 8, trail_products(trail, drawn.mean(axis=0)), 2.0)
        trail = extend_trail(trail, drawn.mean(axis=0))
        steps.append(float(state.step))
        assert np.isfinite(float(state.noise_scale))
        assert float(state.noise_scale) > 0
    assert 0 < np.mean(steps[-20:]) < 0.5 * np.mean(steps[:5])
