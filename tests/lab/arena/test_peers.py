"""Peer prediction: agreement in signs, and squared deviation."""

import math
from typing import Any

import numpy as np
import pytest

from guerdon.agreement import KnownVariance, OutputAgreement
from guerdon.lab.arena.peers import DirectionAgreement, SignAgreement, SquaredDeviation, agreement_slope, sign_agreement
from tests.lab.arena.rounds import COST, facts, pay, rewards

DIM, REQUEST, SCALE = 50, 8, 8.0


def draw(rng: Any, sizes: Any) -> Any:
    """Return reports around a surprise, with σ² = DIM and ‖surprise‖² = σ²/SCALE."""
    surprise = rng.normal(size=DIM) / SCALE**0.5
    return surprise + rng.normal(size=(len(sizes), DIM)) / np.sqrt(sizes)[:, None]


def test_agreement_is_the_difference_between_the_same_task_and_others():
    surprises = np.array([[1.0, -2.0, 3.0], [0.5, 1.0, 2.0], [-1.0, -1.0, -1.0]])
    signs = np.sign(surprises)
    for k in range(3):
        for j in range(3):
            if k != j:
                same = np.mean(signs[k] * signs[j])
                apart = [signs[k, i] * signs[j, o] for i in range(3) for o in range(3) if i != o]
                assert sign_agreement(surprises, np.ones(3, bool))[k, j] == pytest.approx(same - np.mean(apart))


def test_always_the_same_sign_agrees_with_nobody():
    rng = np.random.default_rng(0)
    found = [sign_agreement(np.vstack([np.ones(DIM), draw(rng, [8, 8])]), np.ones(3, bool))[0, 1:] for _ in range(400)]
    assert np.mean(found) == pytest.approx(0, abs=1e-9)


def test_agreement_of_normal_reports_and_its_slope_are_those_of_the_arc_sine():
    rng, mean = np.random.default_rng(1), {}
    for size in (6, 8, 10):
        draws = [sign_agreement(draw(rng, [size] + [8] * 40), np.ones(41, bool))[0, 1:].mean() for _ in range(2000)]
        mean[size] = np.mean(draws), np.std(draws) / math.sqrt(2000)
        correlation = 1 / math.sqrt((1 + SCALE / size) * (1 + SCALE / 8))
        assert mean[size][0] == pytest.approx(2 / math.pi * math.asin(correlation), abs=4 * mean[size][1])
    slope = (mean[10][0] - mean[6][0]) / 4
    error = math.hypot(mean[10][1], mean[6][1]) / 4
    assert error < 0.1 * slope
    # The second-order part of the difference between 6 and 10 is below 3 % of it.
    assert slope == pytest.approx(float(agreement_slope(np.array(1 / 3), 8)), abs=4 * error + 0.03 * slope)


def test_sign_agreement_pays_honest_agents_their_cost_and_public_knowledge_much_less():
    rng, rule, state = np.random.default_rng(2), SignAgreement(COST), None
    paid = []
    for _ in range(600):
        sent = draw(rng, [8] * 10)
        sent[0] = 0.0  # the prediction itself
        payments, state = pay(rule, facts(sent), state, request=REQUEST)
        paid.append(np.asarray(payments.released))
    honest, forged = np.mean(paid, axis=0)[1:].mean(), np.mean(paid, axis=0)[0]
    # Agreement 1/3 over its slope is 29 for ν = B = 8. The forger lowers what the others are compared with, by a ninth.
    assert forged == pytest.approx(9 - 29, rel=0.2)
    assert honest == pytest.approx(9 + 29 / 9, rel=0.1)


def test_directions_pay_the_cost_in_all_and_nothing_for_length():
    rule, (first, sent) = DirectionAgreement(COST), draw(np.random.default_rng(4), [8] * 12).reshape(2, 6, DIM)
    _, state = pay(rule, facts(first))
    paid = rewards(rule, facts(sent), state=state)
    assert paid.sum() == pytest.approx(6 * 9)
    assert paid.std() > 1
    longer = sent * np.array([3.0, 1, 1, 1, 1, 1])[:, None]
    assert rewards(rule, facts(longer), state=state) == pytest.approx(paid)


def test_directions_pay_less_for_the_last_sample_than_it_costs():
    """With S samples E[C] = √(ρ_S·ρ): pay falls by 2ν·(1 − √(ρ_S/ρ)), with ν = B = 8 by 2.9 for half the work."""
    rng, rule, state, lost = np.random.default_rng(5), DirectionAgreement(COST), None, []
    for _ in range(1500):
        payments, state = pay(rule, facts(draw(rng, [4] + [8] * 39)), state, request=REQUEST)
        lost.append(float(np.mean(payments.released[1:]) - payments.released[0]))
    expected = 2 * 8 * (1 - math.sqrt((4 / 12) / (8 / 16)))
    error = float(np.std(lost[50:])) / math.sqrt(len(lost[50:]))
    assert error < 0.1
    assert np.mean(lost[50:]) == pytest.approx(expected, abs=4 * error + 0.1)  # a cosine of 50 numbers is a little less
    assert np.mean(lost[50:]) < 4 - 3 * error  # what half the work saves


def test_fines_are_given_to_the_others_and_make_the_papers_rule():
    rng = np.random.default_rng(3)
    sent = draw(rng, [8] * 6)
    found = rewards(SquaredDeviation(COST, KnownVariance(float(DIM))), facts(sent))
    assert found.sum() == pytest.approx(6 * 9)
    paper = rewards(OutputAgreement(COST, KnownVariance(float(DIM))), facts(sent))
    # Each agent is fined as in the paper; what is given back is not the same for all.
    distances = ((sent - (sent.sum(axis=0) - sent) / 5) ** 2).sum(axis=1)
    fines = 8**2 / DIM * distances
    assert found == pytest.approx(9 - fines + (fines.sum() - fines) / 5)
    assert np.argsort(found).tolist() == np.argsort(paper).tolist()
