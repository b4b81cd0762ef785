"""The NumPy example under looks, in a real deployment and in memory: honest work is paid, cheats forfeit."""

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from examples.deployment import deployed
from flwr.app import Context, RecordDict

from guerdon.ledger import Ledger
from guerdon.ledger.proof.submissions import read_public_key
from guerdon.looks.commitment import Commitment
from tests.flower.grids import MemoryGrid, Node
from tests.flower.wire import public_key
from tests.support.auditing import PUBLIC, Auditor, pass_appeals
from tests.support.namespaces import ROOT

APP = ROOT / "examples/paid-numpy"
WORK, RUN = "paid_numpy.task:work", "looked"
NODES = {"Basel": "honest", "Lyon": "replacing", "Porto": "replaying"}
# A period of two rounds, and one that the run's end cuts short after the third. In round 1 the report that is replayed
# later is honest: so only in the second period is every round of that member a cheat, whatever the coins are.
PERIOD, ROUNDS, REQUEST = 2, 3, 16
HELD = [2, 1]  # rounds of each period
PAY = 17_850_000  # micro-units for a round: 1 + 16 units, and 5 % of it
SETTINGS: dict[str, Any] = {
    "rule": "flat", "max-samples": REQUEST, "auditor": PUBLIC, "period": PERIOD, "min-nodes": len(NODES),
    "num-server-rounds": ROUNDS, "guerdon-run": RUN,
}  # fmt: skip


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's module of the work, as members and auditor import it."""
    monkeypatch.syspath_prepend(APP)
    return importlib.import_module("paid_numpy.task")


@pytest.mark.slow  # Flower asks for replies every three seconds
def test_a_deployment_pays_honest_work_and_each_cheat_that_is_looked_at_forfeits(
    task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = {name: config_of(name) for name in NODES}
    with Ledger(tmp_path / "guerdon.db") as ledger, deployed(tmp_path / "flower", nodes) as flower:
        auditor, commitments = begin(ledger, task)
        ledger.enrol({name: read_public_key(public_key(flower, name)) for name in NODES})
        run = flower.run_app(APP, SETTINGS | {"guerdon-db": ledger.where})
        assert run.wait(120) == "finished:completed", run.log()[-3000:]
        check_looks(auditor, commitments, monkeypatch)


def test_the_example_pays_the_same_in_memory(task: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, server = (importlib.import_module(f"paid_numpy.{part}").app for part in ("client_app", "server_app"))
    nodes = [Node(100 + i, client, config=config_of(name)) for i, name in enumerate(NODES)]
    with Ledger(tmp_path / "guerdon.db") as ledger:
        auditor, commitments = begin(ledger, task)
        ledger.enrol({name: node.der for name, node in zip(NODES, nodes, strict=True)})
        for name, node in zip(NODES, nodes, strict=True):
            path = tmp_path / f"{name}.pem"
            path.write_bytes(node.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
            node.context.node_config["guerdon-key"] = str(path)
        told = SETTINGS | {"guerdon-db": ledger.where, "anonymous": False, "round-timeout": 60}
        server(MemoryGrid(nodes), Context(1, 1, {}, RecordDict(), told))
        check_looks(auditor, commitments, monkeypatch)


def config_of(name: str) -> dict[str, Any]:
    """Return the configuration of a member's node."""
    return {"partition-id": list(NODES).index(name), "behaviour": NODES[name]}


def begin(ledger: Ledger, task: Any) -> tuple[Auditor, dict[str, Commitment]]:
    """Record what the auditor and the members commit to."""
    auditor = Auditor(ledger, RUN, REQUEST, WORK, APP, task.work)
    return auditor, auditor.commit({name: task.own_rows(i) for i, name in enumerate(NODES)}, ROUNDS)


def check_looks(auditor: Auditor, commitments: Mapping[str, Commitment], monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the coins, look, and settle a run that is over: who worked is paid all, who cheated forfeits."""
    ledger = auditor.ledger
    assert [money(ledger, name) for name in NODES] == [(0, ROUNDS * PAY)] * len(NODES), "all pay is held"
    auditor.draw()
    looks = ledger.looks.open(RUN)
    assert {look.member for look in looks} == set(NODES)
    passed = {(look.member, look.round): auditor.look(look, commitments[look.member]) for look in looks}
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
    # Half of a period's pay hangs on each of its two looks.
    by_coins: dict[tuple[int, ...], int] = {(1,): 2 * PAY, (1, 2): PAY, (2,): 0}
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
