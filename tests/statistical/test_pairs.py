"""The bets against pairs: copies are found, nobody else is, whatever a third party sends."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guerdon.statistical.bets import evidence_against, limit, widened
from guerdon.statistical.pairs import (
    can_tell_apart,
    copying,
    first_pairs,
    identical,
    pair_limit,
    pair_scores,
    suspicious_pairs,
    watch_pairs,
)
from tests.support.libraries import Library, without_jax

AGENTS, DIM = 8, 40
Tamper = Callable[[Any, np.random.Generator], None]  # changes the reports of a round in place


def honest(reports: Any, rng: np.random.Generator) -> None:
    del reports, rng


def half_the_work(reports: Any, rng: np.random.Generator) -> None:
    reports[0] += rng.normal(size=DIM)  # twice the variance


def garbage(reports: Any, rng: np.random.Generator) -> None:
    reports[0] = 5 * rng.normal(size=DIM)


def zeros(reports: Any, rng: np.random.Generator) -> None:
    del rng
    reports[0] = 0


def copy(reports: Any, rng: np.random.Generator) -> None:
    del rng
    reports[1] = reports[0]


def noisy_copy(reports: Any, rng: np.random.Generator) -> None:
    reports[1] = reports[0] + 0.5 * rng.normal(size=DIM)  # a quarter of the honest variance


def watch(rounds: int, tamper: Tamper, seed: int, present: float = 1.0, agents: int = AGENTS) -> Any:
    """Return the wealth of the bets against pairs after each round."""
    rng, wealth, trail = np.random.default_rng(seed), first_pairs(agents), list[Any]()
    for _ in range(rounds):
        reports = 0.5 + rng.normal(size=(agents, DIM))
        tamper(reports, rng)
        counted = rng.random(agents) < present
        reports[~counted] = 0
        wealth = watch_pairs(wealth, reports @ reports.T, counted)
        trail.append(wealth)
    return trail


def alikeness(reports: Any, i: int, j: int) -> float:
    """Return the mean of ⟨X_i − X_a, X_j − X_b⟩ over all other a ≠ b, relative to the same of i and of j alone."""
    everybody = range(len(reports))

    def mean(left: int, right: int) -> float:
        others = [k for k in everybody if k not in (left, right)]
        terms = [(reports[left] - reports[a]) @ (reports[right] - reports[b]) for a in others for b in others if a != b]
        return float(np.mean(terms))

    return mean(i, j) / np.sqrt(mean(i, i) * mean(j, j))


def shorten(reports: Any) -> Any:
    """Return the reports with those longer than the median of the others', around the one in the middle, shortened."""
    apart = np.linalg.norm(reports[:, None] - reports[None, :], axis=2)
    middle = np.argmin([np.sort(np.delete(row, i))[(len(row) - 2) // 2] for i, row in enumerate(apart)])
    around = reports - reports[middle]
    length = np.linalg.norm(around, axis=1)
    longest = [np.sort(np.delete(length, i))[(len(length) - 2) // 2] for i in range(len(length))]
    return around * np.minimum(1, longest / np.where(length > 0, length, 1.0))[:, None]


def test_scores_are_ranks_of_the_mean_product_of_differences() -> None:
    reports = 3 + np.random.default_rng(0).normal(size=(6, 30))
    short = shorten(reports)
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    values = np.array([alikeness(short, i, j) for i, j in pairs])
    scores, others = pair_scores(reports @ reports.T, np.ones(6, dtype=bool))
    assert others.tolist() == (14 * (1 - np.eye(6))).tolist()
    for (i, j), value in zip(pairs, values, strict=True):
        expected = ((values < value).sum() - (values > value).sum()) / (len(pairs) - 1)
        assert scores[i, j] == scores[j, i] == pytest.approx(expected)
    assert (np.diag(scores) == 0).all()


def test_who_is_not_counted_changes_nothing() -> None:
    reports = np.random.default_rng(1).normal(size=(6, 9))
    counted = np.array([True, True, False, True, True, True])
    wrong = reports.copy()
    wrong[2] = 1e6
    scores, others = pair_scores(wrong @ wrong.T, counted)
    assert (others[2] == 0).all()
    assert (scores[2] == 0).all()
    kept = np.flatnonzero(counted)
    np.testing.assert_allclose(
        scores[np.ix_(kept, kept)], pair_scores(reports[kept] @ reports[kept].T, np.ones(5, dtype=bool)).score
    )


@pytest.mark.parametrize("agents", [1, 2, 3])
def test_too_few_cannot_be_compared(agents: int) -> None:
    assert not any(part.any() for part in pair_scores(np.eye(agents) + 1, np.ones(agents, dtype=bool)))


@pytest.mark.parametrize("tamper", [copy, noisy_copy], ids=["copy", "noisy"])
def test_copies_are_found_and_nobody_else(tamper: Tamper) -> None:
    found = [suspicious_pairs(watch(60, tamper, seed)[-1], alpha=0.001) for seed in range(12)]
    assert all([(pair.first, pair.second) for pair in pairs] == [(0, 1)] for pairs in found)


@without_jax
def test_copies_are_left_out_however_many_they_are(library: Library) -> None:
    reports, counted = np.random.default_rng(5).normal(size=(6, 40)), np.arange(6) != 5
    reports[1] = reports[2] = reports[0]

    def found() -> list[bool]:
        gram = reports @ reports.T
        given = library.array(gram), library.array(np.diagonal(gram).copy()), library.mask(counted)
        return np.asarray(identical(*given)).tolist()

    with library.precision():
        assert found() == [True] * 3 + [False] * 3
        reports[3] = reports[4] = reports[0]  # now nobody else is there
        assert not any(found())


def test_two_that_differ_by_what_they_are_themselves_are_no_copies() -> None:
    """Two agents whose data the model fits send next to nothing: far from the prediction, but not the same."""
    rng = np.random.default_rng(5)
    reports, prediction = rng.normal(size=(6, 40)), 10 + rng.normal(size=40)
    reports[:2] *= 1e-4
    apart, everybody = reports - prediction, np.ones(6, dtype=bool)
    raw = np.sum(reports**2, axis=1)
    assert not identical(apart @ apart.T, raw, everybody).any()
    reports[1] = reports[0] * (1 + 1e-9)
    apart, raw = reports - prediction, np.sum(reports**2, axis=1)
    assert np.flatnonzero(identical(apart @ apart.T, raw, everybody)).tolist() == [0, 1]


def test_who_was_found_in_a_pair_is_left_out_of_later_rounds() -> None:
    wealth, everybody = first_pairs(6), np.ones(6, dtype=bool)
    wealth[:, 1, 4] = wealth[:, 4, 1] = pair_limit(0.001, 6) + 1e-6
    assert np.flatnonzero(copying(np.arange(6) == 2, everybody, wealth)).tolist() == [1, 2, 4]


def test_nobody_is_taken_for_a_copy_where_pairs_are_half_of_all() -> None:
    """It cannot be told which half shares something; identical reports are copies all the same."""
    wealth, everybody = first_pairs(6), np.ones(6, dtype=bool)
    for first, second in ((0, 1), (1, 2)):
        wealth[:, first, second] = wealth[:, second, first] = pair_limit(0.001, 7) + 1e-6
    assert np.flatnonzero(copying(np.arange(6) == 4, everybody, wealth)).tolist() == [4]
    assert np.flatnonzero(copying(np.arange(6) == 4, everybody, wealth, num_agents=7)).tolist() == [0, 1, 2, 4]


def test_a_crew_that_is_half_of_those_present_has_nobody_accused() -> None:
    """Four of ten share noise, and the others are there in six rounds of ten. Without the limit honest pairs are."""
    found: list[Any] = []
    for seed in range(12):
        rng, wealth = np.random.default_rng(seed), first_pairs(10)
        for _ in range(60):
            reports = 0.5 + rng.normal(size=(10, DIM))
            reports[:4] += rng.normal(size=DIM)
            counted = (rng.random(10) < 0.6) | (np.arange(10) < 4)
            reports[~counted] = 0
            wealth = watch_pairs(wealth, reports @ reports.T, counted)
        evidence = evidence_against(wealth).max(axis=1)
        suspected = (evidence > pair_limit(0.001, 10))[4:].any()
        found.append((suspected, can_tell_apart(evidence, 10), suspicious_pairs(wealth, 0.001) == []))
    assert sum(honest for honest, *_ in found) >= 2
    assert not any(honest and told for honest, told, _ in found)
    assert all(none for _, told, none in found if not told)


@pytest.mark.parametrize("tamper", [honest, half_the_work, garbage, zeros])
def test_no_independent_pair_is_accused_whatever_a_third_party_sends(tamper: Tamper) -> None:
    # At most 1 of 10 runs on average may accuse anybody at α = 0.1; comparing deviations from the common mean accuses
    # honest pairs in nearly all of them where one agent sends garbage.
    accused = sum(any(suspicious_pairs(w, alpha=0.1) for w in watch(70, tamper, seed, 0.9)) for seed in range(10))
    assert accused <= 1 + 3 * (10 * 0.1 * 0.9) ** 0.5


def test_the_bet_against_a_pair_is_fair() -> None:
    # The mean wealth stays 1: over 28 pairs and 400 runs of 2 rounds, within four standard errors. Later it lies in
    # fortunes too rare to be seen.
    upper = np.triu_indices(AGENTS, k=1)
    wealth = [np.exp(watch(2, honest, seed, 0.8)[-1])[:, *upper].mean(axis=1) for seed in range(400)]
    for share in np.array(wealth).T:
        assert abs(share.mean() - 1) < 4 * share.std() / 400**0.5


@without_jax
def test_scores_are_the_same_on_every_library(library: Library) -> None:
    reports = np.random.default_rng(4).normal(size=(7, 50))
    counted, trusted = np.arange(7) != 3, np.arange(7) != 5
    with library.precision():
        gram = library.array(reports @ reports.T)
        ranks = pair_scores(gram, library.mask(counted), library.mask(trusted))
        for own, expected in zip(ranks, pair_scores(reports @ reports.T, counted, trusted), strict=True):
            np.testing.assert_allclose(np.asarray(own), expected, atol=1e-6)


def test_compiled_they_are_the_same() -> None:
    reports = np.random.default_rng(4).normal(size=(7, 50))
    reports[2] = reports[0]
    counted, trusted = np.arange(7) != 3, np.arange(7) != 5
    given, wealth = (reports @ reports.T).astype(np.float32), first_pairs(7)

    def both(gram: Any, counted: Any, trusted: Any, wealth: Any) -> Any:
        same = identical(gram, jnp.diagonal(gram), counted)
        return *pair_scores(gram, counted, trusted), copying(same, counted, wealth)

    found, expected = jax.jit(both)(given, counted, trusted, wealth), both(given, counted, trusted, wealth)
    assert expected[2].tolist() == [True, False, True] + [False] * 4
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-6)


def test_newcomers_come_last() -> None:
    wealth = watch(5, honest, seed=0, agents=4)[-1]
    reports = np.random.default_rng(9).normal(size=(6, DIM))
    more = watch_pairs(widened(wealth, 6), reports @ reports.T, np.array([True] * 4 + [False] * 2))
    assert more.shape == (len(wealth), 6, 6)
    assert not more[:, 4:, :].any()
    assert (widened(wealth, 4) == wealth).all()


def test_limits_are_for_all_pairs_together() -> None:
    assert pair_limit(0.01, 8) == pytest.approx(np.log(100 * 28))
    wealth = first_pairs(8)
    wealth[:, 2, 5] = wealth[:, 5, 2] = pair_limit(0.01, 8) + 1e-9
    assert [pair[:2] for pair in suspicious_pairs(wealth, 0.01)] == [(2, 5)]
    assert suspicious_pairs(wealth, 0.009) == []
    assert evidence_against(wealth).shape == (8, 8)


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 2.0, float("nan")])
def test_alpha_is_a_probability(alpha: float) -> None:
    with pytest.raises(ValueError, match="`alpha` must be a"):
        limit(alpha)
