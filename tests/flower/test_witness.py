"""A server on Flower with data of its own."""

import numpy as np
import pytest
from flwr.app import ArrayRecord

from guerdon import AffineCost, WitnessedPay
from guerdon.flower import FedSGD
from guerdon.ledger import Ledger
from tests.flower.conftest import Make
from tests.flower.grids import MemoryGrid
from tests.flower.learners import DIM, NOISE, TARGET, Learner, arrays, enrolled, vector

COST, NU = AffineCost(1, 1), 8


def test_nodes_are_paid_by_the_witness_and_the_ledger_agrees(rewarded: Make, ledger: Ledger) -> None:
    """Four of five nodes do half the work: they lose, and the one that works does not."""
    rng = np.random.default_rng(1)

    def witness(model: ArrayRecord) -> list[ArrayRecord]:
        exact = vector(model) - TARGET
        return [arrays(exact + NOISE * rng.normal(size=DIM) / 10**0.5) for _ in range(16)]

    def half(learner: Learner, gradient: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        del learner
        return gradient + NOISE * rng.normal(size=DIM) / NU**0.5

    people = [Learner(0), *[Learner(i, half) for i in range(1, 5)]]
    strategy = rewarded(FedSGD(fraction_evaluate=0.0), rule=WitnessedPay(COST, 160), witness=witness)
    result = strategy.start(MemoryGrid(enrolled(ledger, people), wire=False), arrays(np.zeros(DIM)), num_rounds=24)
    paid = np.array([found["guerdon-pay"] for found in result.train_metrics_clientapp.values()])
    errors = paid.std(axis=0) / 24**0.5
    assert abs(paid[:, 0].mean() - COST(NU)) < 4 * errors[0]
    assert (paid[:, 1:].mean(axis=0) + 3 * errors[1:] < COST(NU) - 3).all()  # 1 is expected
    assert ledger.verify().holds
    with pytest.raises(ValueError, match="`witness` must be given with `WitnessedPay`, and with no other rule"):
        rewarded(FedSGD(), rule=WitnessedPay(COST, 160))
    with pytest.raises(ValueError, match="`witness` must be given with `WitnessedPay`, and with no other rule"):
        rewarded(FedSGD(), witness=witness)
