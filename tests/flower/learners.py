"""Nodes that learn a quadratic, honest and not, and what information pay makes of them in plain NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Context, Message

from guerdon import InformationPay, gather, round_of
from guerdon.broadcast import StepObservation
from guerdon.flower import Request, decline
from guerdon.gram import shortening
from guerdon.ledger import Ledger
from guerdon.statistical.dithers import Dither
from guerdon.statistical.predictions import Prediction
from tests.flower.grids import Node, record, reply

DIM, NOISE, LOCAL = 20, 3.0, 0.1
TARGET = np.linspace(-1, 1, DIM)
SHAPES = {"w": (4, 4), "b": (4,)}

Forging = Callable[["Learner", np.ndarray, np.random.Generator], np.ndarray]


def arrays(vector: np.ndarray) -> Any:
    """Return a vector as a model of two arrays."""
    return record(w=vector[:16].reshape(SHAPES["w"]).astype(np.float32), b=vector[16:].astype(np.float32))


def vector(found: Any) -> np.ndarray:
    """Return a model of two arrays as a vector."""
    return np.concatenate([found[name].numpy().reshape(-1) for name in SHAPES]).astype(np.float64)


class Learner:
    """A node whose gradient is θ − target and noise, the same each time for a round; `forge` says what it sends.

    The target may wander: then every round there is something new to be learned.
    """

    def __init__(self, number: int, forge: Forging | None = None, *, wanders: float = 0.0) -> None:
        self.number, self.forge, self.wanders = number, forge, wanders
        self.models: list[np.ndarray] = []  # that it was sent
        self.sent: list[np.ndarray] = []
        self.absent: set[int] = set()

    def __call__(self, message: Message, context: Context) -> Message:
        del context
        request = Request.read(message.content)
        assert request is not None
        if request.round in self.absent:
            return decline(message, "busy")
        model = vector(message.content.array_records["arrays"])
        self.models.append(model)
        rng = np.random.default_rng([self.number, request.round])
        common = np.random.default_rng([10**6, request.round]).normal(size=DIM)
        gradient = model - TARGET - self.wanders * common + NOISE * rng.normal(size=DIM) / request.request**0.5
        if self.forge is not None:
            gradient = self.forge(self, gradient, rng)
        sent = arrays(gradient if request.sends == "gradients" else model - LOCAL * gradient)
        self.sent.append(vector(sent))
        return reply(message, sent)


def zeros(learner: Learner, gradient: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Send nothing but zeros."""
    del learner, rng
    return np.zeros_like(gradient)


def echo(learner: Learner, gradient: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Send the last move of the model, as a gradient."""
    del gradient, rng
    return (learner.models[-2 if len(learner.models) > 1 else -1] - learner.models[-1]) / LOCAL


def garbage(*sizes: float) -> Forging:
    """Return a forger who sends noise of these sizes in turn."""

    def forge(learner: Learner, gradient: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return sizes[len(learner.sent) % len(sizes)] * rng.normal(size=gradient.shape)

    return forge


def enrolled(ledger: Ledger, learners: list[Learner]) -> list[Node]:
    """Return nodes for learners, with keys that the ledger knows; accounts are in their order."""
    nodes = [Node(100 + learner.number, learner) for learner in learners]
    ledger.enrol({f"n{learner.number:02}": node.der for learner, node in zip(learners, nodes, strict=True)})
    return nodes


def by_hand(
    rule: InformationPay,
    prediction: Prediction,
    models: np.ndarray,
    reports: np.ndarray,
    *,
    request: int,
    dither: Dither | None = None,
    moves: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return rewards (rounds, agents) and steps along which the model moved, as the simulator computes them.

    `models` are those that were broadcast, `reports` (rounds, agents, dim) what came back.
    """
    agents = reports.shape[1]
    everybody, state, trust = np.ones(agents, dtype=bool), rule.init(agents), rule.trust.init(agents)
    known, paid, taken, first = prediction.init(0 * models[0]), list[Any](), list[Any](), 0 * models[0]
    for number, (model, sent) in enumerate(zip(models, reports, strict=True)):
        expected = prediction.predict(known, model) + (model if moves else 0.0)
        apart = sent - expected
        factors = shortening((apart**2).sum(axis=1), everybody, rule.limit)
        compared = expected + factors[:, None] * apart
        trusted = rule.trust.reference(trust, everybody)
        evidence = gather(compared, everybody, expected, trusted)
        payments, state = rule.pay(state, round_of(evidence, everybody, request, trusted))
        trust = rule.trust.learn(trust, evidence, trusted, request)
        paid.append(payments.released)
        aggregate = compared[trusted].mean(axis=0) - (model if moves else 0.0)
        halves = dither is not None and not moves
        taken += [aggregate] if not halves else [(first + aggregate) / 2] if number % 2 else []
        if dither is None or number % 2:
            along = aggregate if dither is None else (first + aggregate) / 2
            known = prediction.learn(known, StepObservation(model, along))
        first = aggregate
    return np.array(paid), np.array(taken)
