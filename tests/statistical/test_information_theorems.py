"""What is proved of information pay, by Monte Carlo: balance, truthfulness, no information no pay, garbage.

Each test has a fixed seed. A mean "equals" a number when it lies within `SURE` standard errors of it, and each standard
error is asserted to be small enough to find an error of the size that would matter.
"""

import functools
from typing import Any

import numpy as np
import pytest

from guerdon import InformationPay
from tests.support.information_rounds import AGENTS, COST, NU, Played, knowing, play
from tests.support.means import Mean, mean

SURE = 4.0
SLOW = pytest.mark.slow
H = float(COST(NU))
INFINITY = float("inf")
RULE = InformationPay(COST)
STEADY = InformationPay(COST, decay=1.0)  # keeps what it is told of a


def honest_mean(played: Played) -> Mean:
    """What those who took part were paid, each repetition being one draw."""
    paid = played.rewards != 0
    return mean((played.rewards * paid).sum(axis=(1, 2)) / paid.sum(axis=(1, 2)))


# Honest pay is honest cost.


@pytest.mark.parametrize(
    ("numbers", "noise", "dim", "agents"),
    [
        pytest.param({"decay": 0.0, "least": 0.05}, "normal", 20, 6, marks=SLOW),
        pytest.param({}, "heavy", 20, 6, marks=SLOW),
        pytest.param({"decay": 1.0, "least": 0.3}, "skewed", 3, 5, marks=SLOW),
        ({"least": 1.0, "doubt": 1.5, "limit": 1.0}, "skewed", 3, 5),
    ],
    ids=str,
)
def test_honest_pay_is_the_cost(numbers: dict[str, Any], noise: str, dim: int, agents: int) -> None:
    """Exactly, whatever a, with dropouts, few dimensions, and gradients that are skewed or have heavy tails."""
    options: Any = {"dim": dim, "noise": noise, "noise_scale": 4.0, "present": 0.9}
    played = play(InformationPay(COST, **numbers), rounds=8, repetitions=2000, sizes=(NU,) * agents, **options)
    for agent in (0, agents - 1):
        own, here = played.rewards[:, :, agent], played.rewards[:, :, agent] != 0
        measured = mean((own.sum(axis=1) - H * here.sum(axis=1)) / 8)
        assert abs(measured.z(0.0)) < SURE
        assert measured.error < 0.15
    everybody = honest_mean(played)
    assert abs(everybody.z(H)) < SURE
    assert everybody.error < 0.05


@pytest.mark.slow
def test_honest_pay_is_the_cost_also_of_who_is_doubted() -> None:
    """In few dimensions, where a scale estimated from the others alone would pay him a third too little."""
    options: Any = {"sizes": (NU,) * 5, "dim": 3, "noise_scale": 2.0, "state": knowing(2.0, 5, doubted=(0,))}
    played = play(STEADY, rounds=1, repetitions=40_000, **options)
    measured = mean(played.rewards[:, 0, 0])
    assert abs(measured.z(H)) < SURE
    assert measured.error < 0.2


@pytest.mark.slow
def test_a_server_who_doubts_easily_pays_honest_agents_the_same() -> None:
    """Many are doubted for a while, at 3 to 2, and nobody's mean pay changes."""
    options: Any = {"rounds": 60, "repetitions": 300, "dim": 20}
    easily, never = (play(InformationPay(COST, doubt=doubt), **options) for doubt in (1.5, INFINITY))
    assert (easily.against > np.log(1.5)).mean() > 0.02
    for played in (easily, never):
        own = mean(played.rewards[:, :, 0].mean(axis=1))
        assert abs(own.z(H)) < SURE
        assert own.error < 0.1


# What one agent gains by doing something else, where a is known.


def expected_reward(share: float, factor: float, extra: float, x: float, ratio: float = 1.0) -> float:
    """Return the expected pay of agent 0, with its own part in the scale; x = ν/B, and ã = ratio·a.

    In units of σ²/ν an honest v has squared length x + 1, of which x is common to all.
    """
    length = factor**2 * (x + 1 / share) + extra**2 * (x + 1)
    assumed = min(ratio * x / (x + 1), 1.0)
    gained = (1 + x) - length - 2 / assumed * (x - factor * x)
    scale = ((AGENTS - 1) * (1 + x) + length - (AGENTS - 2 + 2 * factor) * x) / AGENTS
    return H + NU * gained / scale


@functools.cache
def paid(size: int, factor: float, extra: float, x: float, ratio: float) -> Any:
    """Return agent 0's pay in many rounds."""
    assumed = ratio * x / (x + 1)
    state = knowing(NU * (1 - assumed) / assumed)
    options: Any = {"rounds": 1, "repetitions": 1500, "dim": 100, "noise_scale": NU / x, "state": state}
    sizes = size, *[NU] * (AGENTS - 1)
    return play(STEADY, sizes=sizes, factor=factor, extra=extra, **options).rewards[:, 0, 0]


def one_round(size: int, factor: float, extra: float, x: float, ratio: float = 1.0) -> Any:
    """Return agent 0's pay in many rounds, less what he would have got by honest work, plus its mean."""
    return paid(size, factor, extra, x, ratio) - paid(NU, 1.0, 0.0, x, ratio) + H


@pytest.mark.parametrize("x", [0.25, pytest.param(1.0, marks=SLOW), 4.0])
@pytest.mark.parametrize(
    ("size", "factor", "extra"),
    [
        (4, 1.0, 0.0),
        (7, 1.0, 0.0),
        (9, 1.0, 0.0),
        (16, 1.0, 0.0),
        (8, 0.5, 0.0),
        (8, 0.9, 0.0),
        (8, 1.5, 0.0),
        (8, -1.0, 0.0),
        (8, 1.0, 0.5),
        (8, 0.0, 0.0),
        (8, 0.0, 1.0),
    ],
)
def test_deviations_earn_what_the_theory_says_and_lose(size: int, factor: float, extra: float, x: float) -> None:
    measured, expected = mean(one_round(size, factor, extra, x)), expected_reward(size / NU, factor, extra, x)
    assert abs(measured.value - expected) < SURE * measured.error + 0.01 * abs(expected - H)  # 1/d is left out
    assert measured.error < 0.25
    work = size if factor else 0
    assert expected - COST(work) < 0  # he loses by it


@pytest.mark.parametrize("x", [0.25, 1.0, 4.0])
def test_the_slope_at_the_request_is_that_of_the_cost(x: float) -> None:
    slope = mean((one_round(9, 1.0, 0.0, x) - one_round(7, 1.0, 0.0, x)) / 2)
    exact = (expected_reward(9 / NU, 1.0, 0.0, x) - expected_reward(7 / NU, 1.0, 0.0, x)) / 2
    assert exact == pytest.approx(COST.slope(NU), rel=0.02)  # a difference is not quite a slope
    assert abs(slope.value - exact) < SURE * slope.error + 0.005
    assert slope.error < 0.01


def test_sending_the_prediction_earns_the_theorys_number() -> None:
    """h − νh'(1 + ν/B) at B = ν, where his own part in the scale is what an honest one would be."""
    assert expected_reward(1.0, 0.0, 0.0, x=1.0) == pytest.approx(H - 2 * NU)
    measured = mean(one_round(NU, 0.0, 0.0, 1.0))
    assert abs(measured.z(H - 2 * NU)) < 3
    assert measured.error < 0.07
    for x in (0.01, 0.25, 4.0, 100.0):
        assert expected_reward(1.0, 0.0, 0.0, x) < COST.fixed


@pytest.mark.parametrize("ratio", [0.5, 0.8, 1.25, 1.9])
def test_rescaling_gains_at_most_the_bound_where_a_is_wrong(ratio: float) -> None:
    """h'ν(1 + ν/B)(a/ã − 1)², by the factor a/ã; n/(n − 1) is for his own part in the scale."""
    x, bound = 1.0, NU * 2.0 * (1 / ratio - 1) ** 2
    factors = 1 / ratio + np.linspace(-0.3, 0.3, 7)
    gains = [expected_reward(1.0, factor, 0.0, x, ratio) - H for factor in factors]
    assert max(gains) < bound * AGENTS / (AGENTS - 1)
    measured = mean(one_round(NU, 1 / ratio, 0.0, x, ratio) - H)
    assert abs(measured.value - gains[3]) < SURE * measured.error + 0.01 * bound
    assert measured.value < bound * AGENTS / (AGENTS - 1)
    assert measured.error < 0.1


def test_twice_the_true_a_pays_for_nothing() -> None:
    """At ã = 2a the penalty of sending the prediction is gone: err on the small side."""
    assert expected_reward(1.0, 0.0, 0.0, x=0.5, ratio=2.0) == pytest.approx(H)
    measured = mean(one_round(NU, 0.0, 0.0, 0.5, 2.0))
    assert abs(measured.value - H) < SURE * measured.error + 0.1
    assert measured.error < 0.1


# And in the long run, where a is estimated.

LONG: Any = {"rounds": 100, "repetitions": 60, "dim": 50}


@pytest.mark.parametrize(
    "noise_scale", [2.0, *[pytest.param(scale, marks=pytest.mark.slow) for scale in (16.0, 64.0)], 150.0]
)
def test_sending_the_prediction_earns_no_more_than_the_fixed_cost(noise_scale: float) -> None:
    played = play(RULE, factor=0.0, noise_scale=noise_scale, **LONG)
    measured = mean(played.rewards[:, :, 0].mean(axis=1))
    assert measured.value + SURE * measured.error < COST.fixed
    assert (played.against[:, -1, 0] > np.log(1000)).all()  # and is found out
    assert (played.against[:, :, 1:].max(axis=(1, 2)) > np.log(1000)).mean() < 0.05


@pytest.mark.parametrize(
    ("size", "factor", "extra", "loss"),
    [(4, 1.0, 0.0, 2.0), (16, 1.0, 0.0, 3.0), (8, 0.5, 0.0, 2.0), (8, 1.5, 0.0, 2.0), (8, 1.0, 0.5, 2.0)],
)
def test_deviations_lose_in_the_long_run(size: int, factor: float, extra: float, loss: float) -> None:
    played = play(RULE, sizes=(size, *[NU] * (AGENTS - 1)), factor=factor, extra=extra, **LONG)
    profit = mean(played.rewards[:, :, 0].mean(axis=1) - COST(size))
    assert profit.value < -loss
    assert profit.error < 0.2


# Garbage.


@pytest.mark.parametrize("size", [0.5, pytest.param(1.0, marks=SLOW), 3.0, pytest.param(30.0, marks=SLOW), 1e6])
def test_garbage_of_any_size_hardly_moves_the_others(size: float) -> None:
    """Over 100 rounds their mean pay is within 5 % of the cost, and nobody's in any round is ruinous."""
    played = play(RULE, factor=0.0, extra=size, **LONG)
    measured = mean(played.mean_of_others)
    assert abs(measured.value - H) + SURE * measured.error < 0.055 * H
    assert abs(measured.value - H) < 0.05 * H
    assert played.rewards[:, :, 1:].min() > -5 * H
    assert played.rewards[:, :, 0].mean() < -0.5 * H
    late = mean(played.rewards[:, 20:, 1:].mean(axis=(1, 2)))
    assert abs(late.z(H)) < SURE  # once he is doubted they are paid as if he were absent
    assert late.error < 0.02


@pytest.mark.slow
def test_what_shortening_and_trust_each_do_alone() -> None:
    """Without trust garbage raises the others' pay for ever; without shortening it ruins some while it is trusted."""
    garbage: Any = {"factor": 0.0, "extra": 30.0, "double": True, "rounds": 60, "repetitions": 40, "dim": 50}
    shortened = play(InformationPay(COST, doubt=INFINITY), **garbage)
    trusted = play(InformationPay(COST, limit=INFINITY), **garbage)
    assert mean(shortened.rewards[:, 20:, 1:].mean(axis=(1, 2))).value > 1.5 * H
    assert shortened.rewards[:, :, 1:].min() > -3 * H
    late = mean(trusted.rewards[:, 30:, 1:].mean(axis=(1, 2)))
    assert abs(late.z(H)) < SURE
    assert trusted.rewards[:, :, 1:].min() < -20 * H
