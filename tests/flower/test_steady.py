"""Steady pay on Flower: what is held is settled in the last round, and a later start goes on from there."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message

from guerdon import AffineCost, FixedRequest, SteadyPay
from guerdon.flower import FedSGD, Request
from guerdon.ledger import Ledger
from guerdon.statistical.dithers import Dither
from tests.flower.conftest import Make
from tests.flower.grids import MemoryGrid, Node, record, reply

COST, NU, DIM = AffineCost(1, 1), 16, 20
CURVATURE = np.linspace(1, 3, DIM)


class Worker:
    """A node that works, or sends zeros."""

    def __init__(self, seed: int, *, idle: bool = False) -> None:
        self.seed, self.idle = seed, idle

    def __call__(self, message: Message, context: Context) -> Message:
        del context
        request = Request.read(message.content)
        assert request is not None
        rng = np.random.default_rng([self.seed, request.round])
        model = next(iter(message.content.array_records.values()))["w"].numpy()
        gradient = CURVATURE * model + rng.normal(size=DIM) / request.request**0.5
        return reply(message, record(w=0 * gradient if self.idle else gradient))


def test_what_is_held_is_settled_where_a_budget_ends_the_run(rewarded: Make, ledger: Ledger) -> None:
    nodes = [Node(100 + seed, Worker(seed)) for seed in range(5)]
    ledger.enrol({f"n{seed}": node.der for seed, node in enumerate(nodes)})
    rewarded(
        FedSGD(fraction_evaluate=0.0), rule=SteadyPay(COST, period=100), requests=FixedRequest(NU, 0.05),
        dither=Dither(3.0), budget=24.5 * 5 * float(COST(NU)),
    ).start(MemoryGrid(nodes, wire=False), record(w=np.zeros(DIM)), num_rounds=40)  # fmt: skip
    assert len(ledger.rounds("run")) == 24
    paid = np.array([found.paid for found in ledger.earnings("run")]) / (24 * COST(NU))
    assert (paid > 0.5).all()
    assert (paid < 1.25).all()


def test_what_is_held_is_settled_in_the_last_round_of_each_start(
    rewarded: Make, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = [Node(100 + seed, Worker(seed, idle=seed == 5)) for seed in range(6)]
    ledger.enrol({f"n{seed}": node.der for seed, node in enumerate(nodes)})
    paid: list[list[float]] = []
    for rounds in (8, 24, 40):  # the first is too short to tell anything
        rule = SteadyPay(COST, period=100)
        strategy = rewarded(
            FedSGD(fraction_evaluate=0.0), rule=rule, requests=FixedRequest(NU, 0.05), dither=Dither(3.0)
        )
        result = strategy.start(MemoryGrid(nodes, wire=False), record(w=np.zeros(DIM)), num_rounds=rounds)
        paid += [list(metrics["guerdon-pay"]) for metrics in result.train_metrics_clientapp.values()]  # pyright: ignore[reportArgumentType]
    pay = np.array(paid)
    assert pay.shape == (40, 6)
    assert (pay >= 0).all()
    assert not pay[:, 5].any()
    assert not pay[:8].any()
    for first, last in ((0, 24), (24, 40)):
        total = pay[first:last, :5].sum(axis=0)
        assert (total > 0.5 * (last - first) * COST(NU)).all()
        assert (total < 1.25 * (last - first) * COST(NU)).all()
    assert caplog.text.count("rounds are planned: nobody is paid before round 10 of the run") == 1
    assert ledger.verify().holds
    assert "released; earned in this round" in list(ledger.statement("n0").lines)[2].why


def test_a_checkpoint_keeps_what_pairs_agreed(rewarded: Make, ledger: Ledger) -> None:
    """Else a crew would be relied on again after every start; earlier versions kept nothing of it."""
    nodes = [Node(100 + seed, Worker(seed)) for seed in range(5)]
    ledger.enrol({f"n{seed}": node.der for seed, node in enumerate(nodes)})

    def play(rounds: int) -> Any:
        strategy = rewarded(
            FedSGD(fraction_evaluate=0.0), rule=SteadyPay(COST, period=100), requests=FixedRequest(NU, 0.05),
            dither=Dither(3.0),
        )  # fmt: skip
        strategy.start(MemoryGrid(nodes, wire=False), record(w=np.zeros(DIM)), num_rounds=rounds)
        return ledger.resume("run").arrays["lens"]["pairs.credit"]  # type: ignore[union-attr]

    apart = ~np.eye(5, dtype=bool)
    first = play(4)
    assert first.shape == (2, 5, 5)
    assert (first[1][apart] == 4).all()
    assert first[0][apart].any()
    assert (play(8)[1][apart] == 8).all()
    assert ledger.verify().holds
