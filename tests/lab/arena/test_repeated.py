"""Zero-determinant pay, robust weights and reputation."""

import numpy as np
import pytest

from guerdon.evidence import gather
from guerdon.lab.arena.repeated import RobustWeights, ZeroDeterminant
from guerdon.lab.arena.reputation import CosineReputation, cosine_values
from guerdon.statistical.contributions import cosines_to_others
from tests.lab.arena.rounds import COST, facts, pay, reports, rewards


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_zero_determinant_pay_pins_what_an_agent_earns_whatever_it_does(seed: int):
    # Press and Dyson's equaliser: over many rounds pay follows cooperation, whatever its pattern.
    rng, rule, state = np.random.default_rng(seed), ZeroDeterminant(COST), None
    profit, works = 0.0, rng.random(60) < rng.random()
    for turn, work in enumerate(works):
        sent = reports(turn, agents=7, dim=20)
        sent[0] = sent[0] if work else 10 * rng.normal(size=20)
        paid, state = pay(rule, facts(sent), state)
        profit += float(paid.released[0]) - 9.0 * bool(work)
    assert profit == pytest.approx(9.0 * (1 - works[-1]), abs=1e-9)  # of the first and last round, which have no other


def test_zero_determinant_pay_counts_staying_away_as_not_cooperating():
    rule, told = ZeroDeterminant(COST), facts(reports(dim=20))
    _, state = pay(rule, told, sent=[False, True, True, True, True])
    assert np.asarray(pay(rule, told, state)[0].released)[0] == 0


def test_cosines_come_from_the_evidence():
    sent = reports(4)
    sums = sent.sum(axis=0) - sent
    expected = (sent * sums).sum(axis=1) / np.linalg.norm(sent, axis=1) / np.linalg.norm(sums, axis=1)
    assert cosines_to_others(gather(sent, np.ones(5, bool))) == pytest.approx(expected)


def test_robust_weights_share_the_budget_and_give_an_opposite_report_nothing():
    sent = reports(5)
    sent[0] = -0.5 * sent[1:].sum(axis=0)
    found = rewards(RobustWeights(COST), facts(sent))
    assert found.sum() == pytest.approx(45)
    assert found[0] == pytest.approx(0, abs=1e-6)


def test_reputation_follows_its_recursion():
    sent, state = reports(6), None
    reputation = np.full(5, 0.2)
    rule = CosineReputation(COST, memory=0.7)
    for turn in range(4):
        sent = reports(turn)
        unit = sent / np.linalg.norm(sent, axis=1, keepdims=True)
        whole = (reputation[:, None] * unit).sum(axis=0)
        reputation = 0.7 * reputation + 0.3 * unit @ whole / np.linalg.norm(whole)
        reputation /= reputation.sum()
        paid, state = pay(rule, facts(sent), state)
        assert np.asarray(paid.released) == pytest.approx(45 * reputation)


def test_cosines_do_not_depend_on_length():
    sent, everybody = reports(7), np.ones(5, bool)
    stretched = sent * np.array([1, 2, 3, 4, 5])[:, None]
    equal = np.full(5, 0.2)
    assert cosine_values(sent, everybody, equal) == pytest.approx(cosine_values(stretched, everybody, equal))
