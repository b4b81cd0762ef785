"""Groups that share noise in secret: found where no pair of them need be, and nobody is where all are honest."""

from typing import Any

import numpy as np
import pytest

from guerdon.statistical.bets import BETS, Ranks, bet, evidence_against
from guerdon.statistical.groups import agreement_of_pairs, largest_by_chance, suspicious_group
from guerdon.statistical.pairs import first_pairs, pair_limit, watch_pairs

AGENTS, DIM, ROUNDS = 10, 20, 60
EVERYBODY = np.ones(AGENTS, dtype=bool)


def watched(crew: int, share: float, seed: int, rounds: int = ROUNDS) -> Any:
    """Return the bets against pairs after some rounds in which a crew adds noise of `share` of the variance."""
    rng, wealth = np.random.default_rng(seed), first_pairs(AGENTS)
    for _ in range(rounds):
        reports = 0.3 * rng.normal(size=DIM) + rng.normal(size=(AGENTS, DIM))
        reports[:crew] += share**0.5 * rng.normal(size=DIM)
        wealth = watch_pairs(wealth, reports @ reports.T, EVERYBODY)
    return wealth


def test_a_crew_is_found_that_no_pair_gives_away() -> None:
    wealth = watched(crew=3, share=0.2, seed=1)
    found = suspicious_group(wealth, alpha=0.001)
    assert found is not None
    assert found.members == (0, 1, 2)
    assert found.strength > found.expected
    assert evidence_against(wealth).max() < pair_limit(0.001, AGENTS)


def test_of_two_halves_it_is_not_known_which_shares_something() -> None:
    found = suspicious_group(watched(crew=5, share=0.3, seed=1), alpha=0.001)
    assert found is not None
    assert set(found.members) in ({0, 1, 2, 3, 4}, {5, 6, 7, 8, 9})


def test_nothing_is_found_of_honest_agents_or_of_too_few_rounds() -> None:
    for seed in range(10):
        assert suspicious_group(watched(0, 0.0, seed), alpha=0.001) is None
    assert suspicious_group(watched(crew=5, share=4.0, seed=1, rounds=15), alpha=0.001) is None
    assert suspicious_group(first_pairs(4), alpha=0.001) is None


def test_two_bets_tell_the_sum_of_ranks_and_how_many_there_were() -> None:
    """Also where a pair was compared in some rounds only."""
    rng, wealth, total = np.random.default_rng(0), first_pairs(AGENTS), np.zeros((AGENTS, AGENTS))
    pairs = AGENTS * (AGENTS - 1) // 2
    seen = np.zeros((AGENTS, AGENTS))
    for number in range(90):
        score = np.triu(rng.integers(0, pairs, (AGENTS, AGENTS)) * 2 / (pairs - 1) - 1, k=1)
        score += score.T
        there = ~np.eye(AGENTS, dtype=bool)
        if number % 3 == 0:
            there[0, :] = there[:, 0] = False
        wealth = bet(wealth, Ranks(np.where(there, score, 0.0), np.where(there, pairs - 1.0, 0.0)))
        total, seen = total + np.where(there, score, 0.0), seen + there
    variance = (pairs + 1) / (3 * (pairs - 1))
    expected = np.where(seen > 0, total / np.sqrt(variance * np.maximum(seen, 1)), 0.0)
    np.testing.assert_allclose(agreement_of_pairs(wealth), expected, atol=1e-6)
    assert len(BETS) == len(wealth)


@pytest.mark.parametrize(("agents", "alpha"), [(10, 0.01), (30, 0.01), (10, 0.05)])
def test_chance_exceeds_the_limit_no_more_often_than_stated(agents: int, alpha: float) -> None:
    rng, draws = np.random.default_rng(2), 4000
    drawn = np.triu(rng.normal(size=(draws, agents, agents)), k=1)
    largest = np.linalg.eigvalsh(drawn + np.swapaxes(drawn, 1, 2))[:, -1]
    share = np.mean(largest > largest_by_chance(agents, alpha))
    assert alpha / 10 < share <= alpha


def test_the_rate_is_a_probability() -> None:
    with pytest.raises(ValueError, match="alpha"):
        suspicious_group(first_pairs(6), alpha=2.0)
