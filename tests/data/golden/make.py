"""Writes the golden ledgers beside it, one for every rule and one of verified work: `python -m tests.data.golden.make`.

Twelve rounds of five agents: one joins, and sends noise in its second round; one is absent twice; one sends NaN once.
Numbers, times and the ledger's name have seeds, so the same program writes the same rows again. A test verifies what
lies here: it fails where a rule pays another number for the evidence of then. If that is meant, raise the `version` of
the rule, run this script, and say in the changelog what changed. The script writes no other numbers for a version that
has some: `payments.json` holds a digest of what each version pays. Ledgers of older versions stay.
"""

import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from tests.support import look_scenes

from guerdon import AffineCost, EstimatedVariance, FlatPay, InformationPay, KnownVariance, OutputAgreement, gather
from guerdon.evidence import Evidence
from guerdon.ledger import Ledger
from guerdon.ledger.books.tables import EPOCH
from guerdon.looks.outcomes import Outcome
from guerdon.rule import Need, Round, Rule, notice_of, padded, round_of
from guerdon.statistical.calibrated import CalibratedAgreement
from guerdon.statistical.steady import SteadyPay
from guerdon.statistical.trust import trust_of
from guerdon.terms import AtOnce, Terms
from guerdon.witness import WitnessedPay, WitnessSample, evidence_around_witness, witness_samples

HERE = Path(__file__).parent
PINNED, LOOKS = HERE / "payments.json", "looks.db"
CHANGED = (
    "a number of rule {name!r} changed: raise its version (now {version}) and make its golden ledger anew with "
    "`python -m tests.data.golden.make`; say in the changelog what changed"
)
COST = AffineCost(1, 1)
# Short periods and calibrations, so that twelve rounds reach every stage of a rule.
RULES: dict[str, Rule] = {
    "agreement": OutputAgreement(COST),
    "known": OutputAgreement(COST, KnownVariance(8.0)),
    "estimated": OutputAgreement(COST, EstimatedVariance(), "enrolled"),
    "calibrated": CalibratedAgreement(COST, calibration=3),
    "information": InformationPay(COST, probation=2),
    "steady": SteadyPay(COST, period=12, probation=2),
    "witnessed": WitnessedPay(COST, samples=64),
    "flat": FlatPay(COST),
}
NAMES = ["Basel", "Lyon", "Porto", "Turin", "Vigo"]
ROUNDS, DIM, VARIANCE = 12, 24, 8.0  # σ² of one sample
ABSENT = {(3, "Porto"), (7, "Porto")}
JOINS = 4  # the round from which Vigo is there


class GoldenRound(NamedTuple):
    """A round as a server would record it."""

    number: int
    request: int
    agents: list[str]
    evidence: Evidence
    sent: Any
    trusted: Any

    @property
    def told(self) -> Round:
        """What the rule is told of it."""
        return round_of(self.evidence, self.sent, self.request, self.trusted)


def read_pinned() -> dict[str, str]:
    """Return the digest of what each version of each rule pays, by rule and version."""
    return json.loads(PINNED.read_text()) if PINNED.exists() else {}


def play(rule: Rule) -> Iterator[GoldenRound]:
    """Yield the rounds of a rule, the evidence of each gathered as the rule wants it."""
    rng, state, known, trust = np.random.default_rng(12), None, None, trust_of(rule)
    for number in range(1, ROUNDS + 1):
        names, request = NAMES if number >= JOINS else NAMES[:-1], 8 if number < 8 else 12
        state = padded(rule.init(len(names)), state)
        known = padded(trust.init(len(names)), known) if trust else None
        sent = np.array([(number, name) not in ABSENT for name in names])
        prediction, asked = rng.normal(size=DIM), notice_of(rule, state, request).own
        gradient = prediction + rng.normal(size=DIM)
        noise = rng.normal(size=(len(NAMES), DIM))[: len(names)] * np.sqrt(VARIANCE / DIM)
        reports = gradient + noise / np.sqrt(request if asked is None else np.asarray(asked)[:, None])
        if number == 5:
            reports[4] = 2 * rng.normal(size=DIM)
        if number == 6:
            reports[3] = np.nan
        witness = WitnessSample(gradient + rng.normal(size=DIM) * 0.05, np.array(VARIANCE), witness_samples(rule))
        evidence = gather(reports, sent)
        trusted = trust.reference(known, evidence.counted) if trust and known else evidence.counted
        if Need.WITNESS in rule.needs:
            evidence = evidence_around_witness(reports, sent, witness, request)
        if Need.PREDICTION in rule.needs:
            evidence = gather(reports, sent, prediction, trusted)
        one = GoldenRound(number, request, names, evidence, sent, trusted)
        _, state = rule.pay(state, one.told)
        known = trust.learn(known, evidence, trusted, request) if trust and known else None
        yield one


def write(path: Path, name: str) -> None:
    """Write the ledger of a rule, with times of its own and in small pages."""
    seconds = iter(range(10**6))
    clock = SimpleNamespace(now=lambda _: EPOCH + timedelta(days=20_000, seconds=next(seconds)))
    named = hashlib.sha256(name.encode()).hexdigest()[:32]
    seeded = patch("guerdon.ledger.books.journal.datetime", clock), patch("secrets.token_hex", return_value=named)
    with seeded[0], seeded[1], Ledger(path, unit="EUR") as ledger:
        ledger.start_run(name, NAMES[:-1], RULES[name], Terms(AtOnce()))
        for one in play(RULES[name]):
            ledger.record_round(name, one.number, one.told, agents=one.agents)
    shrink(path)


def write_looks(path: Path) -> None:
    """Write a ledger of verified work: two periods of three members, one of whose looks all failed."""
    seconds, known = iter(range(10**6)), "0" * 32
    clock = SimpleNamespace(now=lambda _: EPOCH + timedelta(days=20_000, seconds=next(seconds)))
    seeded = patch("guerdon.ledger.books.journal.datetime", clock), patch("secrets.token_hex", return_value=known)
    with seeded[0], seeded[1], Ledger(path, unit="EUR") as ledger:
        look_scenes.begin(ledger)
        look_scenes.play_period(ledger)
        look_scenes.pass_all(ledger, but={"Lyon": Outcome.FAILED})
        ledger.looks.settle(look_scenes.RUN)
        for _ in range(200):  # until Lyon can no longer appeal
            next(seconds)
        ledger.looks.settle(look_scenes.RUN)
        look_scenes.play_period(ledger, first=5, rounds=3, absent=["Porto"])
        ledger.looks.leave(look_scenes.RUN, ["Basel"])
    shrink(path)


def file_of(name: str) -> str:
    """Return the name of the golden ledger of a rule: it has the rule's version."""
    return f"{name}-{RULES[name].version}.db"


def digest_of(path: Path) -> str:
    """Return a digest of what a ledger pays whom, and with which status: whole micro-units, the same on any machine."""
    query = "SELECT record, position, status, released FROM payments ORDER BY record, position"
    with closing(sqlite3.connect(path)) as connection:
        return hashlib.sha256(json.dumps(connection.execute(query).fetchall()).encode()).hexdigest()


def check_pinned(pinned: dict[str, str], name: str, path: Path) -> dict[str, str]:
    """Return the pinned digests with that of a new ledger, or raise where this version of the rule paid others."""
    version, found = f"{name}-{RULES[name].version}", digest_of(path)
    if pinned.get(version, found) != found:
        raise ValueError(CHANGED.format(name=name, version=RULES[name].version))
    return pinned | {version: found}


def shrink(path: Path) -> None:
    """Store the ledger in pages of 512 bytes: most tables are empty or nearly so."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA page_size = 512", "VACUUM"):
            connection.execute(statement)


def main(folder: Path) -> None:
    """Write all of them; each in its place only if its version pays what it always paid."""
    pinned = read_pinned()
    for name in RULES:
        path, fresh = folder / file_of(name), folder / "fresh.db"
        fresh.unlink(missing_ok=True)
        write(fresh, name)
        pinned = check_pinned(pinned, name, fresh)
        fresh.replace(path)
    fresh = folder / "fresh.db"
    fresh.unlink(missing_ok=True)
    write_looks(fresh)
    fresh.replace(folder / LOOKS)
    (folder / PINNED.name).write_text(json.dumps(pinned, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
