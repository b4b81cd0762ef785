"""Verified work in a real Flower deployment: pay is held, an auditor looks, and cheats forfeit."""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from examples.deployment import Deployment, deployed

from guerdon.ledger import Ledger
from guerdon.ledger.proof.submissions import read_public_key
from guerdon.looks.commitment import Commitment
from tests.flower.wire import public_key
from tests.support.auditing import PUBLIC, Auditor, pass_appeals
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


class Played(NamedTuple):
    """A run that is over: who looks, what each member committed to, and what was logged."""

    auditor: Auditor
    commitments: Mapping[str, Commitment]
    log: str


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    """Three members commit, the auditor commits to its coins, and the example runs on SuperNodes."""
    monkeypatch.syspath_prepend(APP)
    task = importlib.import_module("paid_numpy.task")  # as members and auditor import it
    nodes = {name: {"partition-id": i, "behaviour": kind} for i, (name, kind) in enumerate(NODES.items())}
    with Ledger(tmp_path / "guerdon.db") as ledger, deployed(tmp_path / "flower", nodes) as flower:
        auditor = Auditor(ledger, RUN, REQUEST, WORK, APP, task.work)
        commitments = auditor.commit({name: task.own_rows(i) for i, name in enumerate(NODES)}, ROUNDS)
        yield Played(auditor, commitments, train(flower, ledger))


def train(flower: Deployment, ledger: Ledger) -> str:
    """Enrol the nodes' keys, run the example, and return what it logged."""
    ledger.enrol({name: read_public_key(public_key(flower, name)) for name in NODES})
    told = {"rule": "flat", "max-samples": REQUEST, "auditor": PUBLIC, "period": PERIOD, "min-nodes": len(NODES)}
    told |= {"num-server-rounds": ROUNDS, "guerdon-db": ledger.where, "guerdon-run": RUN}
    run = flower.run_app(APP, told)
    assert run.wait(120) == "finished:completed", run.log()[-3000:]
    return run.log()


def test_honest_work_is_paid_and_each_cheat_that_is_looked_at_forfeits(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    auditor, ledger = played.auditor, played.auditor.ledger
    assert "declined" not in played.log
    assert [money(ledger, name) for name in NODES] == [(0, ROUNDS * PAY)] * len(NODES), "all pay is held"
    auditor.draw()
    looks = ledger.looks.open(RUN)
    assert {look.member for look in looks} == set(NODES)
    passed = {(look.member, look.round): auditor.look(look, played.commitments[look.member]) for look in looks}
    for (member, number), is_passed in passed.items():
        honest = NODES[member] == "honest" or (NODES[member] == "replaying" and number == 1)
        assert is_passed == honest, f"{member} in round {number}"
    assert {one.member for one in ledger.looks.settle(RUN)} <= {"Basel", "Porto"}, "a failed look may be appealed"
    pass_appeals(monkeypatch)
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


def money(ledger: Ledger, name: str) -> tuple[int, int]:
    """Return what a member can be paid, and what the run holds of it, in micro-units."""
    (own,) = [balance for balance in ledger.balances() if balance.agent == name]
    return own.balance, own.held
