"""Dithered broadcasts: what cancels, what stays hidden, how long the offset becomes, and what is refused."""

from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost
from guerdon.statistical.dithers import MARGIN, QUICKEST, Dither, DitherState, MeanNoise, secret_normals
from guerdon.statistical.information import noise_scale_bound
from guerdon.statistical.predictions import RunningMean
from tests.support.libraries import Library, every_library, jax_once

COST = AffineCost(1, 1)
NU, AGENTS, DIM = 16, 10, 30
CURVATURE = np.diag(np.linspace(0.5, 3.0, DIM))


def pair(dither: Dither, state: DitherState, model: Any, rng: Any, variance: float) -> Any:
    """Play a block on the quadratic θ'Hθ/2; return what its rounds showed, the state, and what was broadcast."""
    shown, seen = [], None
    for _ in range(dither.block):
        placed, state = dither.place(state, model, rng.normal(size=DIM))
        samples = NU * AGENTS
        aggregate = CURVATURE @ placed + np.sqrt(variance / DIM / samples) * rng.normal(size=DIM)
        noise = MeanNoise(np.asarray(variance), np.asarray(float(samples)))
        seen, state = dither.observe(state, model, aggregate, 0 * model, noise)
        shown.append(placed)
    return seen, dither.adapt(state, NU), shown


@jax_once
def test_pairs_lie_around_the_model_at_the_length_asked_for(library: Library) -> None:
    rng, dither = np.random.default_rng(0), Dither(0.7)
    with library.precision():
        model = library.array(rng.normal(size=DIM))
        state = dither.init(model)
        seen = []
        for t in range(4):
            normals = library.array(rng.normal(size=DIM))
            placed, state = dither.place(state, model, normals)
            state = state._replace(answered=np.asarray((t + 1) % 2), offsets=((t + 1) % 2) * state.offset)
            seen.append(np.asarray(placed) - np.asarray(model))
        loose = 1e-5 if library.dtype == "float32" else 1e-12
        np.testing.assert_allclose([np.linalg.norm(u) for u in seen], 0.7, rtol=10 * loose)
        np.testing.assert_allclose(seen[0], -seen[1], atol=loose)
        np.testing.assert_allclose(seen[2], -seen[3], atol=loose)
        assert abs(seen[0] @ seen[2]) < 0.4  # fresh for every pair


def test_layers_share_one_offset() -> None:
    dither, model = Dither(2.0), [np.zeros((2, 3)), np.zeros(5)]
    rng = np.random.default_rng(1)
    noise = MeanNoise(np.asarray(1.0), np.asarray(8.0))
    placed, state = dither.place(dither.init(model), model, [rng.normal(size=(2, 3)), rng.normal(size=5)])
    assert sum(float(np.sum(part**2)) for part in placed) == pytest.approx(4.0)
    _, state = dither.observe(state, model, placed, model, noise)
    back, state = dither.place(state, model, [rng.normal(size=(2, 3)), rng.normal(size=5)])
    seen, state = dither.observe(state, model, back, model, noise)
    for part, zero in zip(seen.mean, model, strict=True):
        np.testing.assert_allclose(part, zero, atol=1e-12)
    for part, offset in zip(seen.response, seen.offset, strict=True):
        np.testing.assert_allclose(part, offset)


def test_a_tuple_of_layers_will_do() -> None:
    model = (np.ones(2), np.ones(3))
    dither = Dither(1.0)
    placed, _ = dither.place(dither.init(model), model, (np.ones(2), np.ones(3)))
    np.testing.assert_allclose(np.concatenate(placed), 1 + 1 / np.sqrt(5))


@pytest.mark.parametrize("block", [2, 3, 4, 7])
def test_the_offsets_cancel_to_first_order(block: int) -> None:
    """On a quadratic a block's mean gradient is that at the model, exactly, and what the last one adds to it is H·u."""
    rng, dither = np.random.default_rng(2), Dither(1.5, block=block)
    model = rng.normal(size=DIM)
    seen, state, shown = pair(dither, dither.init(model), model, rng, variance=1e-30)
    np.testing.assert_allclose(seen.mean, CURVATURE @ model, atol=1e-12)
    np.testing.assert_allclose(seen.response, CURVATURE @ (shown[-1] - model), atol=1e-12)
    np.testing.assert_array_equal(seen.model, model)
    np.testing.assert_allclose(seen.offset, shown[-1] - model)
    np.testing.assert_allclose(np.linalg.norm(np.array(shown) - model, axis=1), 1.5)
    assert int(state.answered) == 0
    assert not np.any(state.offsets)


def test_in_a_longer_block_no_offset_is_another_ones_opposite() -> None:
    """So what an agent found in one round does not tell the answer of another, up to its sign."""
    rng, dither, model = np.random.default_rng(9), Dither(1.0, block=4), np.zeros(400)
    state, shown = dither.init(model), list[Any]()
    noise = MeanNoise(np.asarray(1.0), np.asarray(1.0))
    for _ in range(8):
        placed, state = dither.place(state, model, rng.normal(size=400))
        _, state = dither.observe(state, model, placed, model, noise)
        shown.append(placed)
    apart = np.array(shown) @ np.array(shown).T
    np.testing.assert_allclose(apart[:4, :4][~np.eye(4, dtype=bool)], -1 / 3, atol=0.2)
    assert np.abs(apart[:4, 4:]).max() < 0.2  # the next block is new


@pytest.mark.parametrize("block", [2, 4])
def test_the_noise_scale_is_seen_without_bias(block: int) -> None:
    """What a round adds to its block is mostly noise where ‖u‖ is small: it must be taken off."""
    rng, variance, length = np.random.default_rng(3), 2000.0, 0.5
    model, dither = np.zeros(DIM), Dither(length, block=block)
    answers: list[float] = []
    for _ in range(4000):
        _, state, shown = pair(dither, dither.init(model), model, rng, variance)
        answers.append(float(state.signal))
        del shown
    exact = float(np.trace(CURVATURE @ CURVATURE)) / DIM / variance  # ‖Hu‖²/(σ²‖u‖²), u in a random direction
    assert abs(np.mean(answers) - exact) < 4 * np.std(answers) / np.sqrt(4000)
    assert np.std(answers) / np.sqrt(4000) < 0.15 * exact


def settle(dither: Dither, variance: float, pairs: int = 60, seed: int = 4) -> list[float]:
    """Return ‖u‖ after each pair."""
    rng, model = np.random.default_rng(seed), np.zeros(DIM)
    state, result = dither.init(model), []
    for _ in range(pairs):
        _, state, _ = pair(dither, state, model, rng, variance)
        result.append(float(state.length))
    return result


SQUARE = float(np.trace(CURVATURE @ CURVATURE)) / DIM  # ‖Hu‖²/‖u‖² on average


@pytest.mark.parametrize("start", [0.2, 1.9])
@pytest.mark.parametrize("variance", [50.0, 300.0])
@pytest.mark.parametrize("fixed", [1.0, 100.0])
def test_the_length_settles_where_the_noise_scale_is_what_it_should_be(
    start: float, variance: float, fixed: float
) -> None:
    """At B = σ²/(‖u‖²·mean of H's squared eigenvalues) = ν, or 0.7 · the bound where that is less."""
    cost = AffineCost(fixed, 1)
    target = min(MARGIN * noise_scale_bound(cost, NU), NU)
    assert (target < NU) == (fixed > 1)
    lengths = settle(Dither(start, cost, largest=50.0), variance)
    wanted = np.sqrt(variance / (SQUARE * target))
    assert np.mean(lengths[30:]) == pytest.approx(wanted, rel=0.1)
    ratios = np.array(lengths[1:]) / np.array(lengths[:-1])
    assert ratios.max() <= QUICKEST**0.5 + 1e-9
    assert ratios.min() >= QUICKEST**-0.5 - 1e-9


def test_a_noise_scale_out_of_reach_leaves_the_length_at_the_largest() -> None:
    lengths = settle(Dither(0.5, COST, largest=1.2), variance=1e5)
    assert max(lengths) == pytest.approx(1.2)
    assert np.mean(np.array(lengths[10:]) == 1.2) > 0.9


def test_the_finest_noise_scale_is_aimed_at_where_it_is_above_the_bound() -> None:
    variance, finest = 1e5, 1.5 * noise_scale_bound(COST, NU)
    lengths = settle(Dither(0.5, COST, largest=50.0, finest=finest), variance, pairs=100)
    assert np.mean(lengths[50:]) == pytest.approx(np.sqrt(variance / (SQUARE * finest)), rel=0.15)


def test_without_a_cost_the_length_stays() -> None:
    assert set(settle(Dither(0.3), 100.0, pairs=5)) == {0.3}


def test_a_cost_without_a_fixed_part_needs_a_dither_too() -> None:
    """Every noise scale is below an infinite bound, but pay is noise where it is above the request."""
    lengths = settle(Dither(0.5, AffineCost(0, 1), largest=50.0), 100.0)
    assert np.mean(lengths[30:]) == pytest.approx(np.sqrt(100.0 / (SQUARE * NU)), rel=0.1)


def test_rounds_without_reports_teach_nothing() -> None:
    dither, model = Dither(0.5, COST), np.zeros(DIM)
    state = dither.init(model)
    for _ in range(2):
        _, state = dither.observe(state, model, model, model, MeanNoise(np.asarray(0.0), np.asarray(0.0)))
    assert float(state.weight) == 0
    assert np.isinf(state.noise_scale)
    assert float(dither.adapt(state, NU).length) == 0.5


def test_the_prediction_learns_only_what_the_step_shows() -> None:
    """What a pair shows a prediction without curvature is the same for every u."""
    rule, model = RunningMean(), np.ones(DIM)
    told: list[Any] = []
    for seed in (5, 6):
        rng, dither = np.random.default_rng(seed), Dither(1.0)
        seen, _, shown = pair(dither, dither.init(model), model, rng, variance=1e-30)
        state = rule.learn(rule.learn(rule.init(model), seen), seen)
        told.append((rule.predict(state, shown[0]), shown[0]))
    np.testing.assert_allclose(told[0][0], told[1][0], atol=1e-9)
    assert not np.allclose(told[0][1], told[1][1])


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ({"length": 0.0}, ValueError, "`length` must be a finite number above 0, got 0.0"),
        ({"length": -1.0}, ValueError, "`length` must be a finite number above 0, got -1.0"),
        ({"length": "1"}, TypeError, "`length` must be a finite number above 0, got '1'"),
        ({"length": 1.0, "largest": 0.0}, ValueError, "`largest` must be a finite number above 0, got 0.0"),
        ({"length": 1.0, "largest": None}, TypeError, "`largest` must be a finite number above 0, got None"),
        ({"length": 1.0, "largest": float("inf")}, ValueError, "`largest` must be a finite number above 0, got inf"),
        ({"length": 1.0, "finest": -1.0}, ValueError, "`finest` must be a finite number of at least 0, got -1.0"),
        (
            {"length": 3.0, "cost": COST},
            ValueError,
            r"`length` must be at most `largest` \(2\), got 3: give a larger `largest`, or no `cost`",
        ),
        ({"length": 1.0, "block": 1}, ValueError, "`block` must be at least 2, so that offsets can cancel, got 1"),
        ({"length": 1.0, "finest": True}, TypeError, "`finest` must be a finite number of at least 0, got True"),
    ],
)
def test_bad_numbers_are_refused(numbers: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Dither(**numbers)


@every_library
def test_normals_of_a_real_server_are_never_the_same(library: Library) -> None:
    with library.precision():
        model = library.array(np.zeros(40))
        drawn = secret_normals(model)
        one, other = np.asarray(drawn), np.asarray(secret_normals([library.array(np.zeros((4, 10)))])[0])
    assert type(drawn) is type(model)
    assert library.name == "numpy" or drawn.dtype == model.dtype
    assert other.shape == (4, 10)
    assert abs(one @ other.reshape(-1)) < 0.99 * np.linalg.norm(one) * np.linalg.norm(other)
    assert 15 < one @ one < 85  # a χ² of 40 degrees of freedom is outside with probability 1e-4
