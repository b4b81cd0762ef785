"""A rule that asks nodes for different numbers of samples, on Flower: each node is sent its own, and paid for that."""

import numpy as np
from flwr.app import Context, Message

from guerdon import AffineCost, CalibratedAgreement, FixedRequest
from guerdon.flower import FedSGD, Request, samples_to_use
from guerdon.ledger import Ledger
from tests.flower.conftest import Make
from tests.flower.grids import MemoryGrid, Node, record, reply

COST, NU, ROUNDS = AffineCost(1, 1), 16, 19
RULE = CalibratedAgreement(COST, calibration=ROUNDS - 3, vary=0.25)


class Worker:
    """A node that does what it is asked, and remembers how much that was."""

    def __init__(self, seed: int) -> None:
        self.rng, self.asked = np.random.default_rng(seed), list[int]()

    def __call__(self, message: Message, context: Context) -> Message:
        del context
        self.asked.append(samples_to_use(message))
        request = Request.read(message.content)
        assert request is not None
        assert (request.request, request.recorded) == (self.asked[-1], NU)
        return reply(message, record(w=1 + self.rng.normal(size=5) / self.asked[-1] ** 0.5))


def test_each_node_is_asked_for_its_own_number_and_paid_for_it_across_restarts(rewarded: Make, ledger: Ledger) -> None:
    workers = [Worker(seed) for seed in range(5)]
    nodes = [Node(100 + seed, worker) for seed, worker in enumerate(workers)]
    ledger.enrol({f"n{seed}": node.der for seed, node in enumerate(nodes)})
    pay: list[list[float]] = []
    for rounds in (5, ROUNDS):  # two processes: what is asked follows from the ledger
        strategy = rewarded(FedSGD(fraction_evaluate=0.0), rule=RULE, requests=FixedRequest(NU, 0.01))
        result = strategy.start(MemoryGrid(nodes, wire=False), record(w=np.zeros(5)), num_rounds=rounds)
        pay += [list(metrics["guerdon-pay"]) for metrics in result.train_metrics_clientapp.values()]  # pyright: ignore[reportArgumentType]
    asked = np.array([worker.asked for worker in workers]).T
    assert (asked[0] == NU).all()
    assert set(asked[1:].ravel().tolist()) == {12, 20}
    assert (asked[1::2] + asked[2::2] == 2 * NU).all()
    flat = np.array(pay)[: RULE.calibration]
    np.testing.assert_allclose(flat, COST(asked[: RULE.calibration]))
    assert not np.allclose(np.array(pay)[-1], COST(asked[-1]))
    assert ledger.verify().holds
    line = list(ledger.statement("n0").lines)[2]
    assert f"asked for {asked[2, 0]} samples" in line.why
