"""Who is paid: only nodes whose public keys are enrolled in the ledger."""

# Flower's records are typed as dictionaries of a union, which no plain dictionary is.
# pyright: reportArgumentType=false, reportIncompatibleMethodOverride=false, reportUnhashable=false, reportCallIssue=false

import base64
import secrets
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import ArrayRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp.strategy import FedAvg
from hypothesis import given
from hypothesis import strategies as st

from guerdon.flower import last_pay
from guerdon.flower.nodes import Member, MembersGrid, find_member
from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.proof.submissions import fingerprint, read_public_key
from tests.flower.conftest import Make
from tests.flower.grids import MemoryGrid, Node, worker
from tests.support.paid import paid_strategy


def test_nobody_is_paid_without_identity(model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    grid = MemoryGrid([Node(i, worker(i)) for i in range(1, 6)])
    with pytest.raises(
        RefusedError, match=r"no payment without identity.*no public key is enrolled.*allow_anonymous=True"
    ):
        rewarded().start(grid, model)
    assert not grid.sent
    assert ledger.runs() == []
    assert ledger.balances() == []


def test_a_stranger_is_neither_asked_nor_paid_nor_counted(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    stranger = Node(7, worker(7))
    grid = MemoryGrid([stranger, *nodes])
    rewarded().start(grid, model, num_rounds=2)
    assert 7 not in {message.metadata.dst_node_id for message in grid.sent}
    assert ledger.roster("run") == ["n0", "n1", "n2", "n3", "n4"]
    assert {balance.agent for balance in ledger.balances()} == {"n0", "n1", "n2", "n3", "n4"}


def test_strangers_alone_are_waited_out(nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    """Members that are away for a moment do not end the run, whoever else is there."""
    stranger = Node(7, worker(7))

    class Late(MemoryGrid):
        looks = 0

        def get_nodes(self) -> Any:
            self.looks += 1
            self.nodes = {node.number: node for node in ([stranger] if self.looks < 3 else [stranger, *nodes])}
            return super().get_nodes()

    rewarded(FedAvg(min_train_nodes=5, fraction_evaluate=0.0)).start(Late([]), model, num_rounds=1)
    assert ledger.rounds("run")[0].statuses == {"paid": 5}


def spelled(node: Node) -> bytes:
    """Return a node's public key in another spelling than Flower's."""
    return node.key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def test_one_key_is_one_node(nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    """A ghost that shows a member's key in another spelling is not asked; nor are twins that cannot be told apart."""
    rewarded(run="alone").start(MemoryGrid(nodes), model, num_rounds=1)

    class Haunted(MemoryGrid):
        def get_nodes(self) -> Any:
            ghosts = [NodeInfo(node_id=900 + i, public_key=spelled(nodes[0])) for i in range(3)]
            return [*ghosts, *super().get_nodes()]

    rewarded().start(haunted := Haunted(nodes), model, num_rounds=1)
    assert {message.metadata.dst_node_id for message in haunted.sent} == {node.number for node in nodes}
    assert {slip.agent: slip.reward for slip in ledger.payslips("run")} == {
        slip.agent: slip.reward for slip in ledger.payslips("alone")
    }
    twin = Node(800, worker(9), key=nodes[0].key)
    rewarded(run="twins").start(twins := MemoryGrid([*nodes, twin]), model, num_rounds=1)
    assert {message.metadata.dst_node_id for message in twins.sent} == {node.number for node in nodes[1:]}
    assert ledger.roster("twins") == ["n1", "n2", "n3", "n4"]


def test_the_account_is_the_keys_whatever_the_nodes_number(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    inner = FedAvg(fraction_evaluate=0.0)
    rewarded(inner).start(MemoryGrid(nodes), model, num_rounds=1)
    for i, node in enumerate(nodes):
        node.number = 900 - i
    rewarded(inner).start(MemoryGrid(nodes), model, num_rounds=2)
    assert ledger.roster("run") == ["n0", "n1", "n2", "n3", "n4"]
    assert [found.statuses for found in ledger.rounds("run")] == [{"paid": 5}, {"paid": 5}]


def test_a_node_enrolled_later_joins(nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    late = Node(7, worker(7))
    grid = MemoryGrid([*nodes, late])

    def enrol(server_round: int, _: ArrayRecord) -> None:
        if server_round == 1:
            ledger.enrol({fingerprint(late.der): late.der})

    rewarded(FedAvg(fraction_evaluate=0.0)).start(grid, model, num_rounds=2, evaluate_fn=enrol)
    assert ledger.roster("run") == ["n0", "n1", "n2", "n3", "n4", fingerprint(late.der)]
    assert ledger.rounds("run")[1].statuses == {"paid": 6}


def test_simulated_nodes_keep_their_accounts_when_a_run_goes_on(
    model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    """A simulation gives its nodes new numbers and keys each time, and registers them in the order of their data."""
    told: dict[int, Any] = {}
    for rounds, numbers in ((1, [41, 7, 33, 12]), (2, [2, 51, 8, 70])):
        grid = Simulated([Node(number, worker(i)) for i, number in enumerate(numbers)])
        rewarded(FedAvg(fraction_evaluate=0.0), allow_anonymous=True).start(grid, model, num_rounds=rounds)
        told = {message.metadata.dst_node_id: last_pay(message) for message in grid.sent}
    assert ledger.roster("run") == [f"simulated-{i}" for i in range(4)]
    first = [next(x.reward for x in ledger.statement(name).lines if x.round) for name in ledger.roster("run")]
    assert [told[number].reward for number in (2, 51, 8, 70)] == first


class Simulated(MemoryGrid):
    """A grid as a simulation has it: keys are random bytes."""

    def get_nodes(self) -> list[NodeInfo]:
        found = [
            NodeInfo(node_id=number, public_key=secrets.token_bytes(32), registered_at=f"2026-01-01T00:00:0{i}")
            for i, number in enumerate(self.nodes)
        ]
        return found[::-1]


def test_nothing_is_evaluated_where_nobody_can_be_paid(grid: MemoryGrid, model: ArrayRecord, tmp_path: Path) -> None:
    evaluated: list[int] = []
    strategy = paid_strategy(FedAvg(), ledger=tmp_path / "empty.db")
    with pytest.raises(RefusedError, match="no payment without identity"):
        strategy.start(grid, model, num_rounds=1, evaluate_fn=lambda number, _: evaluated.append(number))
    assert evaluated == []


def test_anonymous_nodes_are_paid_only_if_that_is_asked_for(model: ArrayRecord, rewarded: Make, ledger: Ledger) -> None:
    grid = MemoryGrid([Node(i, worker(i)) for i in range(1, 6)])
    rewarded(allow_anonymous=True).start(grid, model, num_rounds=1)
    assert ledger.roster("run") == [f"anonymous-{i}" for i in range(1, 6)]
    with pytest.raises(RefusedError, match="no payment without identity"):
        rewarded().start(grid, model, num_rounds=2)


BROKEN = b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n"


@pytest.mark.parametrize("key", [b"", b"\x01" * 32, BROKEN, b"\xff"])
def test_a_key_that_is_none_belongs_to_nobody(key: bytes, nodes: list[Node]) -> None:
    keys, node = {node.der: "n" for node in nodes} | {key: "thief"}, NodeInfo(node_id=1, public_key=key)
    assert find_member(node, keys, {}) is None
    assert find_member(node, keys, {1: "anonymous-1"}) == Member(1, "anonymous-1", None)


@given(st.one_of(st.binary(max_size=64), st.binary(max_size=20).map(lambda noise: b"ecdsa-sha2-nistp384 " + noise)))
def test_no_key_makes_it_stumble(key: bytes) -> None:
    """Simulated nodes have random bytes for a key."""
    assert find_member(NodeInfo(node_id=1, public_key=key), {}, {}) is None


def test_a_key_with_a_compressed_point_is_none() -> None:
    """The parser has not implemented it, and says so in its own way."""
    point = Node(1, worker(1)).key.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    parts = [b"ecdsa-sha2-nistp384", b"nistp384", point]
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    key = b"ecdsa-sha2-nistp384 " + base64.b64encode(blob)
    assert find_member(NodeInfo(node_id=1, public_key=key), {}, {}) is None


@pytest.mark.parametrize("key", [b"\x80 x", b" \x80\x81 \x82", b"ssh-dss AAAA"])
def test_keys_of_unknown_kinds_are_none(key: bytes) -> None:
    assert find_member(NodeInfo(node_id=1, public_key=key), {}, {}) is None


def test_an_agent_without_a_key_cannot_be_claimed(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    """An account opened by name alone is nobody's: no node can earn for it."""
    ledger.enrol({"anonymous-7": None, "north": None})
    grid = MemoryGrid([Node(7, worker(7)), *nodes])
    rewarded().start(grid, model, num_rounds=1)
    balances = {balance.agent: balance.balance for balance in ledger.balances()}
    assert balances["anonymous-7"] == balances["north"] == 0


def test_two_agents_cannot_share_a_key(nodes: list[Node], ledger: Ledger) -> None:
    with pytest.raises(RefusedError, match="belongs to 'n0' already"):
        ledger.enrol({"other": nodes[0].der})
    with pytest.raises(RefusedError, match="belongs to 'a' already"):
        ledger.enrol({"a": (new := Node(1, worker(1)).der), "b": new})
    assert sorted(ledger.keys()) == ["n0", "n1", "n2", "n3", "n4"]


def test_everything_else_is_the_grids_own(nodes: list[Node]) -> None:
    class Recording(MemoryGrid):
        def __getattribute__(self, name: str) -> Any:
            calls.append(name)
            return super().__getattribute__(name)

    grid, calls = Recording(nodes), list[str]()
    seen = MembersGrid(grid, {}, allow_anonymous=True, warned=set())
    calls.clear()
    seen.set_run(None)
    assert seen.run is None
    assert seen.send_and_receive([], timeout=1) == []
    assert list(seen.push_messages([])) == list(seen.pull_messages([])) == []
    with pytest.raises(NotImplementedError):
        seen.create_message(RecordDict(), "train", 1, "")
    assert {"set_run", "run", "send_and_receive", "push_messages", "pull_messages", "create_message"} <= set(calls)


def test_flowers_own_keys_can_be_enrolled(tmp_path: Path, nodes: list[Node]) -> None:
    """SuperNodes have OpenSSH's form of a key, the SuperLink hands out PEM: both are the same account."""
    public = nodes[0].key.public_key()
    (tmp_path / "node.pub").write_bytes(public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    (tmp_path / "node.pem").write_bytes(nodes[0].pem)
    assert read_public_key(tmp_path / "node.pub") == read_public_key(tmp_path / "node.pem") == nodes[0].der
