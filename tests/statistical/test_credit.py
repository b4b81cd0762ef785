"""Which pairs are relied on: what a crew shares counts for little, however it is spread; honest pairs lose nothing."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from guerdon.arrays import to_numpy
from guerdon.statistical.credit import add_credit, bounded, doubtful_pairs, first_credit, median_product, without_credit
from guerdon.statistical.pairs import accused_pairs, first_pairs, watch_pairs
from tests.support.libraries import Library, jax_once

AGENTS, DIM, ROUNDS = 10, 40, 200
EVERYBODY = np.ones(AGENTS, dtype=bool)
CREW = np.arange(AGENTS) < 4
PAIRINGS = (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
Share = Callable[[Any, int, np.random.Generator], None]


def honest(reports: Any, number: int, rng: np.random.Generator) -> None:
    """Change nothing."""


def steadily(reports: Any, number: int, rng: np.random.Generator) -> None:
    """Share 5 % of the noise's variance in every round."""
    del number
    reports[:4] = 0.95**0.5 * reports[:4] + 0.05**0.5 * rng.normal(size=DIM)


def in_bursts(reports: Any, number: int, rng: np.random.Generator) -> None:
    """Send five times as much of nothing but shared noise in every twelfth round."""
    if number % 12 == 3:
        reports[:4] = 5 * rng.normal(size=DIM) + 0.6 * reports[:4]


def in_turns(reports: Any, number: int, rng: np.random.Generator) -> None:
    """Do not work; share noise with another partner in every round."""
    for pair in PAIRINGS[number % 3]:
        reports[list(pair)] = 0.95 * rng.normal(size=DIM) + 0.3 * rng.normal(size=(2, DIM))


def played(share: Share, seed: int = 0) -> tuple[Any, Any]:
    """Return what crew and honest agents told a round, in units of the signal, with and without doubt of pairs."""
    rng, credit, told = np.random.default_rng(seed), first_credit(AGENTS), []
    for number in range(ROUNDS):
        reports = rng.normal(size=(AGENTS, DIM))
        share(reports, number, rng)
        signal = DIM**0.5 / 2.8 * (z := rng.normal(size=DIM)) / np.linalg.norm(z)
        reports += np.where(CREW & (share is in_turns), 0.0, 1.0)[:, None] * signal
        gram = reports @ reports.T
        usual = median_product(gram, EVERYBODY)
        clipped = bounded(gram, usual)
        credited = without_credit(clipped, EVERYBODY, doubtful_pairs(credit), np.ones(AGENTS))
        credit = add_credit(credit, clipped, usual, EVERYBODY)
        told.append(
            [(x - np.diag(np.diag(x))).sum(axis=1) / (AGENTS - 1) / (signal @ signal) for x in (credited, gram)]
        )
    return tuple(np.mean(told, axis=0))


@pytest.mark.parametrize("share", [steadily, in_bursts, in_turns])
def test_what_a_crew_shares_tells_little_however_it_is_spread(share: Share) -> None:
    """Without doubt of pairs a tenth of the signal at least; with it less than half as much, and a fifth at most."""
    worked = 0.0 if share is in_turns else 1.0
    runs = np.array([played(share, seed) for seed in range(8)])
    with_doubt, without = (runs[:, i, :4].mean() - worked for i in (0, 1))
    error = runs[:, 0, :4].mean(axis=1).std(ddof=1) / len(runs) ** 0.5
    assert without > 0.1  # what the crew shares
    assert with_doubt < 0.2 + 3 * error
    assert with_doubt < without / 2 + 3 * error


def test_honest_agents_tell_the_same_on_average_with_and_without_doubt() -> None:
    """Which pairs are doubtful was known before the round, and bounds cut both sides alike, nearly."""
    runs = np.array([played(honest, seed) for seed in range(12)])
    less = runs[:, 1].mean(axis=1) - runs[:, 0].mean(axis=1)
    assert abs(less.mean()) < 0.03 + 3 * less.std(ddof=1) / len(runs) ** 0.5


def test_few_honest_pairs_are_doubtful_and_most_of_a_crew_long_before_one_is_accused() -> None:
    rng, credit, wealth = np.random.default_rng(3), first_credit(AGENTS), first_pairs(AGENTS)
    for number in range(100):
        reports = rng.normal(size=(AGENTS, DIM)) + 0.4 * rng.normal(size=DIM)
        steadily(reports, number, rng)
        gram = reports @ reports.T
        usual = median_product(gram, EVERYBODY)
        credit = add_credit(credit, bounded(gram, usual), usual, EVERYBODY)
        wealth = watch_pairs(wealth, gram, EVERYBODY)
    found = doubtful_pairs(credit)
    assert found[np.ix_(CREW, CREW)].sum() >= 8  # of 12
    assert found[np.ix_(CREW, ~CREW)].mean() < 0.4
    assert found[np.ix_(~CREW, ~CREW)].mean() < 0.4
    assert not accused_pairs(wealth, AGENTS).any()


def test_a_pair_is_not_credited_for_agreeing_with_itself() -> None:
    """Each one's product becomes what it has with the trusted others, as far as the other one tells; all else stays."""
    gram = (reports := np.random.default_rng(7).normal(size=(6, 40))) @ reports.T
    trusted, pairs, knowledge = np.arange(6) != 5, np.zeros((6, 6), dtype=bool), np.array([1, 1, 0.5, 1, 0.6, 3])
    np.testing.assert_array_equal(without_credit(gram, trusted, pairs, knowledge), gram)
    pairs[1, 4] = pairs[4, 1] = True
    found = without_credit(gram, trusted, pairs, knowledge)
    assert found[1, 4] == pytest.approx(gram[1, [0, 2, 3]].sum() / 2.5 * 0.6)
    assert found[4, 1] == pytest.approx(gram[4, [0, 2, 3]].sum() / 2.5)
    found[[1, 4], [4, 1]] = gram[1, 4]
    np.testing.assert_array_equal(found, gram)


def test_no_product_counts_for_more_than_four_times_the_usual() -> None:
    gram = np.array([[9.0, 1.0, -2.0], [1.0, 50.0, 40.0], [-2.0, 40.0, 60.0]])
    assert median_product(gram, np.ones(3, dtype=bool)) == 2.0
    expected = np.array([[9.0, 1.0, -2.0], [1.0, 50.0, 8.0], [-2.0, 8.0, 60.0]])
    np.testing.assert_array_equal(bounded(gram, np.asarray(2.0)), expected)
    np.testing.assert_array_equal(bounded(gram, median_product(gram, np.array([True, False, False]))), gram)


@jax_once
def test_all_libraries_agree(library: Library) -> None:
    rng, credit = np.random.default_rng(1), first_credit(5)
    trusted = np.array([True, True, True, True, False])
    with library.precision():
        other = library.array(credit)
        for _ in range(30):
            gram = (reports := rng.normal(size=(5, 8))) @ reports.T
            usual = median_product(gram, trusted)
            credit = add_credit(credit, bounded(gram, usual), usual, trusted)
            theirs = library.array(gram)
            size = median_product(theirs, library.mask(trusted))
            other = add_credit(other, bounded(theirs, size), size, library.mask(trusted))
        np.testing.assert_allclose(to_numpy(other), credit, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(to_numpy(doubtful_pairs(other)), doubtful_pairs(credit))


def test_jax_compiles_it() -> None:
    def settle(credit: Any, gram: Any) -> Any:
        usual = median_product(gram, jax.numpy.ones(5, dtype=bool))
        products = bounded(gram, usual)
        return without_credit(products, jax.numpy.ones(5, dtype=bool), doubtful_pairs(credit), jax.numpy.ones(5))

    gram = (reports := np.random.default_rng(1).normal(size=(5, 8))) @ reports.T
    np.testing.assert_allclose(
        np.asarray(jax.jit(settle)(first_credit(5), gram)), settle(first_credit(5), jax.numpy.asarray(gram)), rtol=1e-5
    )
