"""Ledgers to look at: none, an empty one, a small one with something of everything, and one with 200,000 payments."""

from pathlib import Path
from typing import Any

import numpy as np

from guerdon import AffineCost, FlatPay, OutputAgreement, gather, round_of
from guerdon.ledger import Ledger
from guerdon.rule import Rule
from tests.support.ledger_scenes import AT_ONCE

RULE = OutputAgreement(AffineCost(1, 1))
NAMES = ["Basel University Hospital", "Berlin Charité", "Lyon", "Porto", "Turin", "Vigo", "Zürich", "Kraków", "Ghent", "Oslo"]  # noqa: E501  # fmt: skip
SHIRKER = 5  # Vigo does half the work
DIMENSION = 60


class Training:
    """A server that plays rounds and records them."""

    def __init__(self, ledger: Ledger, run: str, names: list[str], rule: Rule = RULE, seed: int = 3) -> None:
        self.ledger, self.run = ledger, run
        self.rng, self.crowd, self.number = np.random.default_rng(seed), len(names), 0
        ledger.start_run(run, names, rule, AT_ONCE)

    def play(self, rounds: int = 1, request: int = 8, shirker: int | None = SHIRKER, **extras: Any) -> None:
        """Record rounds in which somebody is absent now and then; every ninth holds a gradient that is unusable."""
        for _ in range(rounds):
            self.number += 1
            used = np.full(self.crowd, request)
            if shirker is not None and shirker < self.crowd:
                used[shirker] = request // 2
            gradients = 1 + self.rng.normal(size=(self.crowd, DIMENSION)) / np.sqrt(used)[:, None]
            present = self.rng.random(self.crowd) < 0.95
            present[:3] = True
            if self.number % 9 == 0:
                gradients[-1, 0], present[-1] = np.nan, True
            notes = ["" if there else "no reply within 60 s" for there in present]
            accuracy = 0.764 - 0.26 * np.exp(-self.number / 12) + 0.004 * self.rng.normal()
            metrics = {"accuracy": float(accuracy), "loss": float(0.48 + 0.21 * np.exp(-self.number / 12))}
            told: dict[str, Any] = {"notes": notes, "metrics": metrics} | extras
            self.ledger.record_round(
                self.run, self.number, round_of(gather(gradients, present), present, request), **told
            )


def small_ledger(path: Path | str) -> None:
    """Fill a ledger with runs, a cheat, losses, a deposit and payouts of every outcome."""
    with Ledger(path, unit="EUR") as ledger:
        ledger.enrol({NAMES[0]: None})
        ledger.move("deposit", NAMES[0], 50_000_000, "transfer 17")
        heart = Training(ledger, "heart 2026", NAMES)
        heart.play(29)
        heart.play(31, request=12)
        ledger.set_payee(NAMES[1], "DE89370400440532013000")
        ledger.settle_payout(ledger.payout(memo="November"), "paid", "SEPA 4711")
        ledger.settle_payout(1, "bounced", "AC04 closed account", agents=[NAMES[1]])
        heart.play(2)
        ledger.settle_payout(ledger.payout(memo="by mistake"), "cancelled")
        ledger.payout(memo="December")
        Training(ledger, "control", NAMES[:4], FlatPay(AffineCost(1, 1))).play(3)
        Training(ledger, "waiting", NAMES[:4])


def large_ledger(path: Path, agents: int = 1000, rounds: int = 200) -> None:
    """Fill a ledger with agents × rounds payments; the gradients of ten rounds come again and again."""
    rng, played = np.random.default_rng(0), list[Any]()
    for _ in range(10):
        gradients, present = rng.normal(size=(agents, 40)), rng.random(agents) < 0.97
        played.append(round_of(gather(gradients, present), present, 8))
    with Ledger(path) as ledger:
        ledger.start_run("large", [f"agent {index:04d}" for index in range(agents)], RULE, AT_ONCE)
        for number in range(1, rounds + 1):
            ledger.record_round("large", number, played[number % len(played)], metrics={"loss": 1 / number})
            if number % max(1, rounds // 4) == 0:
                ledger.settle_payout(ledger.payout(), "paid")
