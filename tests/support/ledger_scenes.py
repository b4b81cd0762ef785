"""Rounds to record: real gradients, real evidence, real payments."""

import atexit
import csv
import functools
import io
import os
import secrets
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from sqlalchemy import create_engine, make_url, text

from guerdon import AffineCost, InformationPay, KnownVariance, OutputAgreement, gather, round_of
from guerdon.costs import Cost
from guerdon.evidence import Evidence
from guerdon.ledger import Ledger, gradient_hash
from guerdon.rule import PAID_LABELS, Payments, Round, Rule
from guerdon.terms import AtOnce, Losses, Terms, Vesting

RULE = OutputAgreement(AffineCost(1, 1), KnownVariance(20.0))  # rewards differ from the first round on
HARSH = OutputAgreement(AffineCost(1, 1), KnownVariance(10.0))  # some rewards are negative
REMEMBERING = InformationPay(AffineCost(1, 1), doubt=float("inf"))
NAMES = ["north", "south", "east", "west"]
AT_ONCE = Terms(AtOnce())  # a balance after every round


def on(losses: Losses = "carry", hold: int = 0, deposit: float = 0.0, **rest: Any) -> Terms:
    """Return terms; `hold`: for how many rounds pay is held, 0: it is paid at once."""
    return Terms(Vesting(hold) if hold else AtOnce(), losses, deposit, **rest)


class Played(NamedTuple):
    """A round as a server has it."""

    number: int
    request: int
    payments: Payments
    evidence: Evidence
    sent: Any
    gradients: list[bytes | None]

    def arguments(self) -> tuple[int, Round]:
        return self.number, round_of(self.evidence, self.sent, self.request)


def play(rounds: int, rule: Rule = RULE, agents: int = len(NAMES), seed: int = 0, request: int = 8) -> list[Played]:
    """Return consecutive rounds of a server; somebody declines now and then, and one gradient is unusable."""
    rng, state, played = np.random.default_rng(seed), rule.init(agents), list[Played]()
    for number in range(1, rounds + 1):
        gradients = 0.5 + rng.normal(size=(agents, 6)) * 0.5
        taking = rng.random(agents) < 0.85
        taking[: min(3, agents)] = True
        if number == 3:
            gradients[-1, 0], taking[-1] = np.nan, True
        evidence = gather(gradients, taking)
        payments, state = rule.pay(state, round_of(evidence, taking, request))
        hashes = [gradient_hash([row]) if took else None for row, took in zip(gradients, taking, strict=True)]
        played.append(Played(number, request, payments, evidence, taking, hashes))
    return played


def record(ledger: Ledger, run: str, played: list[Played], **extras: Any) -> None:
    """Record rounds with a checkpoint each."""
    for one in played:
        checkpoint = {"model": {"weights": np.arange(4.0) * one.number}}
        ledger.record_round(run, *one.arguments(), gradients=one.gradients, checkpoint=checkpoint, **extras)


def busy_ledger(ledger: Ledger) -> None:
    """Fill a ledger with something of everything."""
    ledger.enrol({"north": None, "south": None})
    ledger.move("deposit", "north", 50_000_000, "transfer 1")
    ledger.start_run("heart", NAMES, RULE, AT_ONCE)
    record(ledger, "heart", play(4))
    ledger.move("hold", "north", 1_000_000)
    ledger.move("release", "north", 500_000)
    ledger.start_run("harsh", NAMES, HARSH, on("deposit"))
    record(ledger, "harsh", play(4, HARSH, seed=1))
    for name in ("south", "east"):
        ledger.move("hold", name, 500_000)
    ledger.move("release", "south", 250_000)
    ledger.move("forfeit", "east", 100_000)
    ledger.set_payee("north", "DE89370400440532013000", "North Hospital")
    ledger.payout(key="October")
    ledger.settle_payout(1, "bounced", "closed", agents=["west"])
    ledger.settle_payout(1, "paid", "bank 17")
    ledger.settle_payout(1, "bounced", "returned", agents=["east"])
    record(ledger, "heart", play(6)[4:])
    ledger.payout()
    ledger.settle_payout(2, "cancelled")
    ledger.start_run("memory", [*NAMES, "new"], REMEMBERING, on("floor"))
    record(ledger, "memory", play(5, REMEMBERING, agents=5, seed=2))
    ledger.payout()
    ledger.move("deposit", "new", 5_000_000)
    told = {"north": 1.5, "new": 0.8}
    ledger.start_run("vesting", NAMES, HARSH, on("deposit", hold=2, deposit=4, cost_factors={"north": 1.5}))
    record(ledger, "vesting", play(4, HARSH, seed=3))
    record(ledger, "vesting", play(6, HARSH, agents=5, seed=4)[4:], agents=[*NAMES, "new"], cost_factors=told)
    ledger.close_run("vesting")
    ledger.start_run("vesting", NAMES, HARSH, on("deposit", hold=2, deposit=4, quorum=3))


def check_totals(ledger: Ledger) -> None:
    """Make sure that runs, agents, treasury and exports agree to the micro-unit on what was paid, earned and owed."""
    agents, runs = {row.agent: row for row in ledger.balances()}, {row.name: row.paid for row in ledger.runs()}
    payments, journal = (exported_rows(ledger, table) for table in ("payments", "journal"))
    of_run, of_agent, taken = Counter[str](), Counter[str](), Counter[str]()
    for row in payments:
        of_run[row["run"]] += micro(row["released"]) + micro(row["cut"])
        of_agent[row["agent"]] += micro(row["released"]) + micro(row["cut"])
    for row in journal:
        if row["kind"] in ("forfeit", "waive") and row["agent"]:
            taken[row["agent"]] -= micro(row["amount"])
    assert runs == {name: of_run[name] for name in runs}
    assert runs == {name: sum(one.paid for one in ledger.rounds(name)) for name in runs}
    earned = {name: row.earned for name, row in agents.items()}
    assert earned == {name: of_agent[name] - taken[name] for name in agents}
    assert earned == {name: ledger.statement(name).earned for name in agents}
    treasury = ledger.common_balances()["treasury"]
    assert -treasury == sum(earned.values()) == sum(runs.values()) - sum(taken.values())
    assert treasury == sum(micro(row["amount"]) for row in journal if row["account"] == "treasury")


def check_agreement(ledger: Ledger, run: str, paid: Sequence[Mapping[str, float]], cost: Cost = RULE.cost) -> None:
    """Make sure that a run by the default rule adds up, verifies, and recorded what its driver paid each agent.

    In every round the work that was paid gets its cost; the extras, with what is settled of open rounds, add up to 0.
    """
    rounds: dict[int, list[dict[str, str]]] = {}
    for row in exported_rows(ledger, "payments"):
        if row["run"] == run:
            rounds.setdefault(int(row["round"]), []).append(row)
    statuses = [{row["status"] for row in rows} for rows in rounds.values()]
    assert "waiting" in statuses[0]
    assert "paid" in statuses[-1]
    assert len({len(rows) for rows in rounds.values()}) > 1, "somebody joins"
    assert any(row["status"] == "declined" for rows in rounds.values() for row in rows), "somebody is absent"
    assert len(rounds) == len(paid) >= 10
    for rows, told in zip(rounds.values(), paid, strict=True):
        work = sum(float(cost(int(row["request"]))) for row in rows if row["status"] in PAID_LABELS)
        assert sum(micro(row["released"]) for row in rows) == pytest.approx(work * 1e6, abs=len(rows))
        assert {row["agent"]: float(row["released"]) for row in rows} == pytest.approx(dict(told), abs=1e-6)
    *_, last = rounds.values()
    assert len({row["released"] for row in last if row["status"] in PAID_LABELS}) > 1, "not everybody is paid the same"
    assert ledger.verify().problem is None


def exported_rows(ledger: Ledger, table: str) -> list[dict[str, str]]:
    """Return an exported table; none where there is nothing to export."""
    out = io.StringIO()
    try:
        ledger.export("csv", out, table)
    except ValueError:
        return []
    return list(csv.DictReader(io.StringIO(out.getvalue())))


def micro(amount: str) -> int:
    """Return micro-units from exact decimal text."""
    return int(Decimal(amount) * 10**6)


def prepare(where: str, fill: Callable[[str], None]) -> str:
    """Let `fill` make a ledger at `where`; it is made only once, and copied from then on: ten times as fast."""
    if "://" in where:
        server, _, name = where.rpartition("/")
        template = _template_by(server, fill)
        administer(f"DROP DATABASE {name}", f"CREATE DATABASE {name} TEMPLATE {template}")
    else:
        Path(where).touch(mode=0o600)
        Path(where).write_bytes(_made_by(fill))
    return where


def administer(*commands: str) -> None:
    """Run commands on the PostgreSQL server, outside of any transaction."""
    url = make_url(os.environ["GUERDON_TEST_POSTGRES"]).set(drivername="postgresql+psycopg")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for command in commands:
            connection.execute(text(command))
    engine.dispose()


@functools.cache
def _template_by(server: str, fill: Callable[[str], None]) -> str:
    name = f"guerdon_template_{secrets.token_hex(8)}"
    administer(f"CREATE DATABASE {name}")
    atexit.register(administer, f"DROP DATABASE {name} WITH (FORCE)")
    fill(f"{server}/{name}")
    return name


@functools.cache
def _made_by(fill: Callable[[str], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        fill(f"{folder}/guerdon.db")
        return Path(folder, "guerdon.db").read_bytes()


def fill_busily(where: str) -> None:
    """Make a ledger with something of everything."""
    with Ledger(where) as ledger:
        busy_ledger(ledger)


def dump(path: str) -> list[str]:
    """Return every row of an SQLite file, read by scanning the tables."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
        ]
        return [f"{name} {row!r}" for name in tables for row in connection.execute(f"SELECT * FROM {name} NOT INDEXED")]
    finally:
        connection.close()
