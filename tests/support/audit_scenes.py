"""Runs to be audited: a server that predicts, dithers and pays for information, and agents who do what they like."""

from collections.abc import Callable
from typing import Any

import numpy as np

from guerdon import AffineCost, FixedRequest, InformationPay, round_of
from guerdon.gram import multiply
from guerdon.ledger import Ledger
from guerdon.rule import Rule, padded
from guerdon.statistical.audit import PlayedRound
from guerdon.statistical.bets import widened
from guerdon.statistical.pairs import first_pairs, watch_pairs
from guerdon.statistical.servers import server_for
from guerdon.statistical.trust import trust_of
from tests.support.ledger_scenes import AT_ONCE

COST = AffineCost(1, 1)
RULE = InformationPay(COST)
DIM, REQUEST = 30, 8

# What a cheat sends, given the prediction, the true gradient, his honest report, the round and a generator.
Cheat = Callable[[Any, Any, Any, int, np.random.Generator], Any]


def send_prediction(prediction: Any, *_: Any) -> Any:
    """Send the public prediction: no work, no information."""
    return prediction


def send_noise(prediction: Any, true: Any, honest: Any, number: int, rng: np.random.Generator) -> Any:
    """Send the prediction and noise of the right size."""
    del true, honest, number
    return prediction + rng.normal(size=DIM) * (2 / DIM) ** 0.5


class Training:
    """A server whose predictions miss the true gradient by as much as an honest report does, in a fresh direction."""

    def __init__(self, agents: int, rule: Rule = RULE, seed: int = 0, present: float = 1.0) -> None:
        self.agents, self.rule, self.present = agents, rule, present
        self.rng, self.number = np.random.default_rng(seed), 0
        self.state, self.trust = None, None  # of the rule, and whom it trusts
        self.prediction = np.zeros(DIM)

    def play(self, cheats: dict[int, Cheat] | None = None) -> tuple[PlayedRound, Any, Any]:
        """Return a round as it was paid, its payments and its reports."""
        self.number += 1
        self.prediction = self.rng.normal(size=DIM)
        true = self.prediction + self.rng.normal(size=DIM) / DIM**0.5
        reports = true + self.rng.normal(size=(self.agents, DIM)) / DIM**0.5
        for agent, cheat in (cheats or {}).items():
            reports[agent] = cheat(self.prediction, true, reports[agent], self.number, self.rng)
        here = self.rng.random(self.agents) < self.present
        here[:3] = True
        server = server_for(self.rule, FixedRequest(REQUEST, 0.1), alike=True)
        known = server.init(self.prediction, self.agents)
        known = known._replace(rule=padded(known.rule, self.state))
        if trust_of(self.rule):  # nothing is known of pairs
            known = known._replace(lens=known.lens._replace(trust=padded(known.lens.trust, self.trust)))
        ask, known = server.ask(known, self.prediction)
        payments, found, after = server.pay(known, ask._replace(prediction=self.prediction), reports, here)
        self.state, self.trust = after.rule, getattr(after.lens, "trust", None)
        return PlayedRound(self.rule, found.evidence, here, REQUEST, found.trusted), payments, reports


def played(rounds: int, agents: int, cheats: dict[int, Cheat] | None = None, **settings: Any) -> list[PlayedRound]:
    """Return the rounds of a training."""
    training = Training(agents, **settings)
    return [training.play(cheats)[0] for _ in range(rounds)]


def record_training(
    ledger: Ledger,
    run: str,
    names: list[str],
    rounds: int,
    cheats: dict[int, Cheat] | None = None,
    copies: bool = False,
    **settings: Any,
) -> Training:
    """Record a training with the watch over pairs; with `copies` the last agent sends the first's report."""
    training = Training(len(names), **settings)
    ledger.start_run(run, names, training.rule, AT_ONCE)
    record_more(ledger, run, names, training, rounds, cheats, copies)
    return training


def record_more(
    ledger: Ledger,
    run: str,
    names: list[str],
    training: Training,
    rounds: int,
    cheats: dict[int, Cheat] | None = None,
    copies: bool = False,
) -> None:
    """Record further rounds of a training; names added at the end join."""
    training.agents = len(names)
    resumed = ledger.resume(run)
    pairs = first_pairs(len(names)) if resumed is None else resumed.arrays["lens"]["pairs.wealth"]
    for _ in range(rounds):
        one, _, reports = training.play(cheats)
        if copies:
            reports[-1] = reports[0]
        products = multiply(reports, one.participating, training.prediction)
        pairs = watch_pairs(widened(pairs, len(names)), products.inner, one.evidence.counted)
        ledger.record_round(
            run, training.number, round_of(one.evidence, one.participating, REQUEST, one.trusted), agents=names,
            checkpoint={"model": {"weights": np.zeros(2)}, "lens": {"pairs.wealth": pairs}},
        )  # fmt: skip
