"""Verified work in a real Flower deployment: pay is held, an auditor looks, and cheats forfeit."""

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from examples.deployment import Deployment, deployed

from guerdon.ledger import Ledger
from guerdon.ledger.pay.looking import OpenLook
from guerdon.ledger.proof.submissions import read_public_key
from guerdon.looks.coins import auditor_secret, commit_coins, open_coin, sealing_key
from guerdon.looks.commitment import Commitment
from guerdon.looks.draw import nonce
from guerdon.looks.isolation import Limits, code_hash, run_isolated
from guerdon.looks.opening import Opening, check, committed_in
from guerdon.looks.recompute import compare, repeat_error, rows_effect, tolerances
from guerdon.looks.rows import Table, stacked
from guerdon.looks.sealing import LookOf, seal, sealed_hash, unseal
from guerdon.looks.verdict import Verdict, judged, sign
from guerdon.run.archive import Archive
from guerdon.run.messages import Work
from guerdon.run.reports import hash_of
from guerdon.run.work import NamedWork
from guerdon.terms import Looks
from tests.flower.wire import public_key
from tests.support.namespaces import ROOT

pytestmark = pytest.mark.slow  # Flower asks for replies every three seconds

APP = ROOT / "examples/paid-numpy"
WORK, RUN = "paid_numpy.task:work", "looked"
NODES = {"Basel": "honest", "Lyon": "replacing", "Porto": "replaying"}
# A period of two rounds, and one that the run's end cuts short after the third. In round 1 the report that is replayed
# later is honest: so only in the second period is every round of that member a cheat, whatever the coins are.
PERIOD, ROUNDS, REQUEST = 2, 3, 16
HELD = [2, 1]  # rounds of each period
PAY = 17_850_000  # micro-units for a round: 1 + 16 units, and 5 % of it
AUDITOR = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)
KEY = AUDITOR.public_key().public_bytes_raw().hex()


class Played(NamedTuple):
    """A run that is over: its ledger, and what each member committed to."""

    ledger: Ledger
    commitments: Mapping[str, Commitment]
    log: str


@pytest.fixture(scope="module")
def task() -> Iterator[Any]:
    """The application's module, as members and auditor import it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(APP)
        yield importlib.import_module("paid_numpy.task")


@pytest.fixture(scope="module")
def played(task: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Three members commit, the auditor commits to its coins, and the example runs on SuperNodes."""
    folder = tmp_path_factory.mktemp("looked")
    nodes = {name: {"partition-id": i, "behaviour": kind} for i, (name, kind) in enumerate(NODES.items())}
    with Ledger(folder / "guerdon.db") as ledger, deployed(folder / "flower", nodes) as flower:
        coins = commit_coins(AUDITOR, ledger.name, RUN, rounds=ROUNDS)
        Archive(ledger.files, RUN).put_coins(coins, coins.to_json(AUDITOR))
        commitments = {
            name: Commitment.of(
                Table(task.own_rows(i)), ledger=ledger.name, run=RUN, member=name, secret=bytes([i]) * 32
            )
            for i, name in enumerate(NODES)
        }
        for own in commitments.values():
            ledger.looks.commit(own.committed())
        yield Played(ledger, commitments, train(flower, ledger))


def train(flower: Deployment, ledger: Ledger) -> str:
    """Enrol the nodes' keys, run the example, and return what it logged."""
    ledger.enrol({name: read_public_key(public_key(flower, name)) for name in NODES})
    told = {"rule": "flat", "max-samples": REQUEST, "auditor": KEY, "period": PERIOD, "min-nodes": len(NODES)}
    told |= {"num-server-rounds": ROUNDS, "guerdon-db": ledger.where, "guerdon-run": RUN}
    run = flower.run_app(APP, told)
    assert run.wait(120) == "finished:completed", run.log()[-3000:]
    return run.log()


def test_honest_work_is_paid_and_each_cheat_that_is_looked_at_forfeits(
    played: Played, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = played.ledger
    assert "declined" not in played.log
    assert [money(ledger, name) for name in NODES] == [(0, ROUNDS * PAY)] * len(NODES), "all pay is held"
    draw_coins(ledger)
    looks = ledger.looks.open(RUN)
    assert {look.member for look in looks} == set(NODES)
    passed = {(look.member, look.round): look_at(played, look, task) for look in looks}
    for (member, number), is_passed in passed.items():
        honest = NODES[member] == "honest" or (NODES[member] == "replaying" and number == 1)
        assert is_passed == honest, f"{member} in round {number}"
    assert {one.member for one in ledger.looks.settle(RUN)} <= {"Basel", "Porto"}, "a failed look may be appealed"
    pass_time(monkeypatch, Looks().appeal + 1)
    ledger.looks.settle(RUN)
    settled = {name: [one for one in ledger.looks.settled(RUN) if one.member == name] for name in NODES}
    released = {name: [one.released for one in settled[name]] for name in NODES}
    assert released["Basel"] == [PAY * rounds for rounds in HELD]
    assert released["Lyon"] == [0, 0]
    by_coins: dict[tuple[int, ...], int] = {
        (1,): 2 * PAY,
        (1, 2): PAY,
        (2,): 0,
    }  # half of the period's pay hangs on each of its two looks
    assert released["Porto"] == [by_coins[rounds_of("Porto", passed)[:-1]], 0]
    for name, periods in settled.items():
        assert [one.released + one.forfeited for one in periods] == [PAY * rounds for rounds in HELD], name
        assert money(ledger, name) == (sum(released[name]), 0)
    assert money(ledger, "Basel")[0] == ROUNDS * PAY
    assert ledger.verify().holds


def rounds_of(member: str, looks: Iterable[tuple[str, int]]) -> tuple[int, ...]:
    """Return the rounds in which a member was looked at."""
    return tuple(sorted(number for name, number in looks if name == member))


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """Let the ledger's clock be so much later from now on."""
    later = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(seconds=seconds))
    monkeypatch.setattr("guerdon.ledger.books.journal.datetime", later)


def money(ledger: Ledger, name: str) -> tuple[int, int]:
    """Return what a member can be paid, and what the run holds of it, in micro-units."""
    (own,) = [balance for balance in ledger.balances() if balance.agent == name]
    return own.balance, own.held


def draw_coins(ledger: Ledger) -> None:
    """The operator and the auditor open what they had committed to."""
    secret = Archive(ledger.files, RUN).secret()
    for one in ledger.looks.work(RUN):
        own = nonce(secret, "server", ledger.name, RUN, one.round)
        ledger.looks.draw(RUN, one.round, own, open_coin(auditor_secret(AUDITOR), ledger.name, RUN, one.round))


def look_at(played: Played, look: OpenLook, task: Any) -> bool:
    """Have a member open the named rows, and the auditor compute the work again; return whether it passed."""
    ledger, of = played.ledger, LookOf(played.ledger.name, RUN, look.round, look.member)
    named = named_for(ledger, look)
    opening = played.commitments[look.member].open(named.rows)
    sealed = seal(opening.to_bytes(), sealing_key(AUDITOR).public_key().public_bytes_raw(), of)
    ledger.looks.answer(RUN, look.number, sealed_hash(sealed))
    committed = committed_in(ledger.looks.changes(RUN)[look.member], look.round)
    opened = check(committed, Opening.from_bytes(unseal(sealed, sealing_key(AUDITOR), of)), named.rows)
    rows = stacked(opened[row] for row in named.rows)
    archive = Archive(ledger.files, RUN)
    model, report = archive.model(look.round), archive.report(look.round, look.member)
    ran = run_isolated(WORK, rows, model, [named.seed], Limits(wall=60), path=[str(APP), *sys.path])
    assert (ran.ending, ran.code) == ("done", named.code), "the code of the terms is that of the checkout"
    effect = rows_effect(task.work, model, rows, named.seed)
    tolerance = tolerances(repeat_error(task.work, model, rows, named.seed, effect), report)
    comparison = compare(ran.reports[0], report, effect, tolerance)
    outcome, reasons = judged(ran, comparison)
    verdict = Verdict(
        ledger.name, RUN, look.round, look.number, look.member, committed.root.hex(), hash_of(report).hex(), outcome,
        comparison.errors, comparison.tolerance, reasons, ran.code, ran.network,
    )  # fmt: skip
    ledger.looks.verdict(sign(verdict, AUDITOR).to_json())
    return comparison.passed


def named_for(ledger: Ledger, look: OpenLook) -> Work:
    """Return the rows and the seed that a round named for a member, from the ledger alone."""
    code = code_hash(WORK, [str(APP)])[0]
    names = NamedWork(ledger, RUN, Looks(auditor=KEY, code=code))
    names.open()
    (one,) = [found for found in ledger.looks.work(RUN) if found.round == look.round]
    return names.of(look.member, one.named, look.round, REQUEST)
