"""Ranks have mean 0 among equals, bets stay solvent, and hardly anybody honest is accused."""

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from guerdon.statistical.bets import (
    BETS,
    TESTS,
    Ranks,
    agent_scores,
    bet,
    evidence_against,
    least_doubted,
    limit,
    rank_scores,
)
from tests.support.information_oracle import odds
from tests.support.libraries import Library, jax_once, without_jax
from tests.support.means import mean

SURE = 4.0


# Scores of agents.


def slow_ranks(values: Any, counted: Any, reference: Any) -> list[float]:
    result: list[float] = []
    for k in range(len(values)):
        others = [values[i] for i in range(len(values)) if reference[i] and i != k]
        above, below = sum(x > values[k] for x in others), sum(x < values[k] for x in others)
        result.append((above - below) / len(others) if counted[k] and others else 0.0)
    return result


@without_jax
@pytest.mark.parametrize("agents", [1, 2, 7])
def test_ranks_agree_with_the_definition(library: Library, agents: int) -> None:
    """With ties, dropouts, and some whom nobody is compared with."""
    compare_ranks(library, agents)


def test_ranks_in_jax_agree_with_the_definition() -> None:
    compare_ranks(Library("jax", "float32"), 5)


def compare_ranks(library: Library, agents: int) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        values, counted = rng.integers(-2, 3, agents).astype(float), rng.random(agents) < 0.8
        reference = counted & (rng.random(agents) < 0.7)
        with library.precision():
            result = rank_scores(library.array(values), library.mask(counted), library.mask(reference))
            expected = slow_ranks(values, counted, reference)
            np.testing.assert_allclose(np.asarray(result.score), expected, rtol=library.tolerance)
            assert np.asarray(result.others).tolist() == [
                sum(reference) - reference[k] if counted[k] and len({*values[reference], values[k]}) > 1 else 0
                for k in range(agents)
            ]


@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 2.0, 3.0, 3.0], [7.0] * 5])
@pytest.mark.parametrize("counted", [[True] * 5, [True, False, True, True, True]])
def test_ranks_have_mean_zero_among_equals(values: list[float], counted: list[bool]) -> None:
    """Over all orders in which the same values may fall to the agents, exactly."""
    here = np.array(counted)
    total = sum(rank_scores(np.array(order), here, here).score for order in itertools.permutations(values))
    np.testing.assert_allclose(total, 0.0, atol=1e-12)


def test_the_lowest_scores_one_and_the_highest_minus_one() -> None:
    everybody = np.ones(4, bool)
    np.testing.assert_allclose(
        rank_scores(np.array([3.0, -1.0, 2.0, 9.0]), everybody, everybody).score, [-1 / 3, 1, 1 / 3, -1]
    )
    same = rank_scores(np.full(4, 2.0), everybody, everybody)
    assert (same.score == 0).all()
    assert (same.others == 0).all()
    doubted = np.array([True, True, True, False])
    ranks = rank_scores(np.array([3.0, -1.0, 2.0, -9.0]), everybody, doubted)
    np.testing.assert_allclose(ranks.score, [-1, 1, 0, 1])
    assert ranks.others.tolist() == [2, 2, 2, 3]  # who is doubted is ranked among all who are not


def test_lengths_are_ranked_also_where_all_scores_are_the_same() -> None:
    everybody = np.ones(4, bool)
    ranks = agent_scores(np.full(4, 2.0), np.array([3.0, 1.0, 2.0, 9.0]), everybody, everybody)
    np.testing.assert_allclose(ranks.score, [[0, 0, 0, 0], [-1 / 3, 1, 1 / 3, -1], [1 / 3, -1, -1 / 3, 1]])
    assert ranks.others.tolist() == [[0] * 4, [3] * 4, [3] * 4]


# Bets.


def all_ranks(others: int) -> Ranks:
    """Return every rank that one may have among so many others."""
    return Ranks(1 - 2 * np.arange(others + 1) / others, np.full(others + 1, float(others)))


@pytest.mark.parametrize("others", [1, 2, 3, 9, 44, 1000])
def test_the_odds_are_fair(others: int) -> None:
    """Where every rank is as likely as any other, exactly."""
    factors = np.exp(bet(np.zeros((len(BETS), others + 1)), all_ranks(others)))
    np.testing.assert_allclose(factors.mean(axis=1), 1.0, rtol=1e-9)
    assert (factors > 0).all()


@pytest.mark.parametrize("values", [[1.0, 1.0, 2.0, 3.0, 3.0], [1.0, 1.0, 1.0, 1.0, 3.0], [7.0] * 5])
def test_ties_do_not_make_them_better_than_fair(values: list[float]) -> None:
    everybody = np.ones(5, bool)
    ranks = rank_scores(np.array(values), everybody, everybody)
    for side in (ranks, ranks._replace(score=-ranks.score)):
        assert (np.exp(bet(np.zeros((len(BETS), 5)), side)).mean(axis=1) <= 1 + 1e-12).all()


def test_bets_stay_finite() -> None:
    wealth, ranks = np.zeros((len(BETS), 4)), Ranks(np.array([-1.0, 0.0, 1.0, 0.0]), np.array([9.0, 9.0, 9.0, 0.0]))
    for _ in range(10_000):
        wealth = bet(wealth, ranks)
    assert np.isfinite(wealth).all()
    assert (wealth[:, :2] < 0).all()
    assert (wealth[:, 2] > 0).all()
    assert (wealth[:, 3] == 0).all(), "who is not ranked is not bet against"
    assert np.isfinite(evidence_against(wealth)).all()


@jax_once
def test_a_bet_multiplies_wealth_by_its_odds(library: Library) -> None:
    rng = np.random.default_rng(0)
    wealth, scores = rng.normal(size=(len(BETS), 4)), rng.uniform(-1, 1, 4)
    others = np.array([1.0, 4.0, 9.0, 44.0])
    with library.precision():
        result = np.asarray(bet(library.array(wealth), Ranks(library.array(scores), library.array(others))))
        expected = [
            [w + np.log(odds(b, z, int(m))) for w, z, m in zip(row, scores, others, strict=True)]
            for b, row in zip(BETS, wealth, strict=True)
        ]
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_pairs_are_bet_on_likewise() -> None:
    wealth, scores = np.zeros((len(BETS), 3, 3)), np.random.default_rng(1).uniform(-1, 1, (3, 3))
    ranks = Ranks(scores, np.full((3, 3), 5.0))
    alone = bet(np.zeros((len(BETS), 3)), Ranks(scores[1], np.full(3, 5.0)))
    np.testing.assert_allclose(bet(wealth, ranks)[:, 1], alone)
    assert evidence_against(bet(wealth, ranks)).shape == (3, 3)


@jax_once
def test_evidence_is_the_logarithm_of_the_mean_wealth(library: Library) -> None:
    wealth = np.random.default_rng(2).normal(size=(len(BETS), 5))
    with library.precision():
        result = np.asarray(evidence_against(library.array(wealth)))
        np.testing.assert_allclose(result, np.log(np.mean(np.exp(wealth), axis=0)), rtol=1e-5, atol=1e-6)
        huge = np.asarray(evidence_against(library.array(wealth + 5000)))
        np.testing.assert_allclose(huge - 5000, result, atol=1e-3)  # no overflow


def test_nobody_is_suspect_before_the_first_round() -> None:
    assert (evidence_against(np.zeros((len(BETS), 4))) == 0).all()


@functools.cache
def honest_runs() -> Any:
    """Return the highest evidence against each of 2000 × 10 honest agents in 200 rounds, and the wealth after 2."""
    rng, agents, everybody = np.random.default_rng(3), 10, np.ones(10, bool)
    ranks = (2 * np.arange(agents) - (agents - 1)) / (agents - 1)
    assert np.allclose(np.sort(rank_scores(rng.normal(size=agents), everybody, everybody).score), ranks)
    wealth, highest, early = np.zeros((len(BETS), 2000, agents)), np.zeros((2000, agents)), np.empty(0)
    for turn in range(200):
        drawn = rng.permuted(np.tile(ranks, (2000, 1)), axis=1)
        wealth = bet(wealth, Ranks(drawn, np.full(drawn.shape, agents - 1.0)))
        highest = np.maximum(highest, evidence_against(wealth))
        early = np.exp(evidence_against(wealth)) if turn == 1 else early
    return highest, early


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_honest_agents_are_accused_at_most_as_often_as_stated(alpha: float) -> None:
    """Ville's inequality, over 20,000 honest agents of 200 rounds who are looked at after every round."""
    highest, _ = honest_runs()
    accused = mean((highest > limit(alpha)).mean(axis=1))  # agents of one run are not independent
    assert accused.value <= alpha + 3 * accused.error
    assert accused.value > alpha / 20  # and the test is not asleep


def test_fair_bets_keep_their_mean_wealth() -> None:
    """After a few rounds; later it lies in fortunes too rare to be seen in a sample."""
    _, wealth = honest_runs()
    measured = mean(wealth.mean(axis=1))
    assert abs(measured.z(1.0)) < SURE
    assert measured.error < 0.1


def test_a_lasting_difference_is_found() -> None:
    """An agent who is the lowest two times in three is accused at 1 % within two hundred rounds."""
    rng, wealth = np.random.default_rng(4), np.zeros((len(BETS), 500))
    for _ in range(200):
        wealth = bet(wealth, Ranks(np.where(rng.random(500) < 2 / 3, 1.0, -1.0), np.full(500, 9.0)))
    assert (evidence_against(wealth) > limit(0.01)).mean() > 0.8


def test_who_is_the_last_again_and_again_is_found_at_once() -> None:
    wealth, always = np.zeros((len(BETS), 1)), Ranks(np.array([1.0]), np.array([9.0]))
    for _ in range(5):
        wealth = bet(wealth, always)
    assert evidence_against(wealth)[0] > limit(0.001)


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.5, float("nan"), float("inf"), "0.01", None, True])
def test_a_rate_of_false_accusations_is_a_probability(alpha: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"`alpha` must be .* got "):
        limit(alpha)


def test_the_limit_is_the_logarithm_of_the_odds() -> None:
    assert limit(0.01) == pytest.approx(np.log(100))


def test_where_most_are_doubted_the_half_that_is_least_is_ranked_among() -> None:
    """Else four that send short reports would make six honest ones look long for ever."""
    wealth = np.zeros((len(BETS), len(TESTS), 5))
    wealth[:] = [0.1, 3.0, 5.0, 2.5, 9.0]
    assert least_doubted(wealth, np.ones(5, dtype=bool), 10.0).tolist() == [True, True, False, True, False]
    assert least_doubted(wealth, np.arange(5) > 1, 10.0).tolist() == [False, False, True, True, False]
    assert least_doubted(0 * wealth, np.ones(5, dtype=bool), 10.0).all()
