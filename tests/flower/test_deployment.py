"""A real SuperLink with TLS and authentication, a real ServerApp, and nodes that speak to it over the wire."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.deployment import CONNECTION, Deployment, make_key
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from guerdon import AffineCost, EstimatedVariance, OutputAgreement, round_of
from guerdon.evidence import gather
from guerdon.flower import Request, decline, paid_work
from guerdon.ledger import Ledger
from guerdon.ledger.books.money import to_micro
from guerdon.ledger.proof.submissions import read_public_key
from tests.flower.wire import WireNode, public_key

pytestmark = pytest.mark.slow  # Flower asks for replies every three seconds

APP = Path(__file__).parent / "paid_app"
RULE = OutputAgreement(AffineCost(1, 1), EstimatedVariance())
NAMES = ["n0", "n1", "n2", "n3", "n4"]
DEADLINE = 12


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path_factory.mktemp("flower"))
    try:
        deployment.start_superlink()
        for name in NAMES:
            deployment.register(name)
        yield deployment
    finally:
        deployment.stop()


@pytest.fixture
def ledger(tmp_path: Path, flower: Deployment) -> Iterator[Ledger]:
    with Ledger(tmp_path / "guerdon.db") as opened:
        opened.enrol({name: read_public_key(public_key(flower, name)) for name in NAMES})
        yield opened


def gradient(message: Message, number: int) -> dict[str, np.ndarray]:
    """Return the gradient of a node: the same each time for a round."""
    request = Request.read(message.content)
    assert request is not None
    rng = np.random.default_rng([number, request.round])
    model = message.content.array_records["arrays"]
    return {name: rng.normal(size=part.shape).astype(np.float32) for name, part in model.items()}


def answer(message: Message, arrays: dict[str, Any], **metrics: Any) -> Message:
    record = ArrayRecord({name: Array(np.asarray(part)) for name, part in arrays.items()})
    told = {"num-examples": 1, "loss": 0.5} | metrics
    return Message(RecordDict({"arrays": record, "metrics": MetricRecord(told)}), reply_to=message)


def honest(number: int) -> ClientApp:
    app = ClientApp(mods=[paid_work()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        del context
        return answer(message, gradient(message, number))

    return app


def bad(kind: str, message: Message) -> Any:
    """Return what an offender answers."""
    arrays = gradient(message, 4)
    if kind == "late":
        time.sleep(DEADLINE + 4)
    other = answer(message, arrays)
    other.content["guerdon-answer"] = ConfigRecord({"round": 1, "signature": b"", "declined": ""})
    return {
        "fine": lambda: answer(message, arrays),
        "nan": lambda: answer(message, arrays | {"w": np.full(16, np.nan, np.float32)}),
        "huge": lambda: answer(message, arrays | {"w": np.full(16, 1e30, np.float32)}),
        "shape": lambda: answer(message, arrays | {"w": np.zeros(17, np.float32)}),
        "dtype": lambda: answer(message, arrays | {"w": np.zeros(16)}),
        "missing": lambda: answer(message, {"w": arrays["w"]}),
        "extra": lambda: answer(message, arrays | {"x": np.zeros(1, np.float32)}),
        "metrics": lambda: answer(message, arrays, more=1.0),
        "empty": lambda: Message(RecordDict(), reply_to=message),
        "other round": lambda: other,
        "declines": lambda: decline(message, "no time"),
        "twice": lambda: [answer(message, arrays), answer(message, arrays | {"w": arrays["w"] + 1})],
        "late": lambda: answer(message, arrays),
    }[kind]()


FAULTS = {
    "fine": ("paid", ""),
    "nan": ("invalid", "not finite"),
    "huge": ("invalid", "beyond 1e+15"),
    "shape": ("invalid", "its array 'w' is float32[17] where float32[16] was asked for"),
    "dtype": ("invalid", "its array 'w' is float64[16]"),
    "missing": ("invalid", "it lacks array 'b'"),
    "extra": ("invalid", "it has array 'x' that nobody asked for"),
    "metrics": ("invalid", "its records have metrics/more"),
    "empty": ("invalid", "it sent no arrays"),
    "other round": ("invalid", "it answers round 1, not round"),
    "declines": ("declined", '"no time"'),
    "twice": ("paid", ""),  # Flower itself takes the first reply and refuses the second
    "late": ("declined", "no reply before the deadline"),
}


def test_every_offence_over_the_wire(flower: Deployment, ledger: Ledger) -> None:
    """In each round the offender does something else; the honest are paid what a round without him pays."""
    kinds = list(FAULTS)

    def offending(message: Message, context: Context) -> Any:
        del context
        request = Request.read(message.content)
        assert request is not None
        return bad(kinds[request.round - 1], message)

    key = {"guerdon-key": str(flower.folder / "n0")}
    nodes = [WireNode(flower, f"n{i}", honest(i), key if i == 0 else None) for i in range(4)]
    nodes.append(WireNode(flower, "n4", offending))
    try:
        for node in nodes:
            node.connect()
        run = flower.run_app(
            APP, {"guerdon-db": ledger.where, "num-server-rounds": len(kinds), "round-timeout": DEADLINE}
        )
        assert run.wait(150) == "finished:completed", run.log()[-3000:]
    finally:
        for node in nodes:
            node.stop()
    assert [node.problem for node in nodes] == [None] * 5
    lines = {name: [line for line in ledger.statement(name).lines if line.round] for name in NAMES}
    for index, kind in enumerate(kinds):
        offender = lines["n4"][index]
        assert offender.status == FAULTS[kind][0], kind
        assert FAULTS[kind][1] in offender.why, kind
        took_part = range(5 if offender.status == "paid" else 4)
        sent = [gradient(node.seen[index], i) for i, node in enumerate(nodes[: len(took_part)])]
        layers = [np.stack([arrays[part] for arrays in sent]) for part in ("w", "b")]
        everybody = np.ones(len(took_part), dtype=bool)
        expected = RULE.pay(RULE.init(len(took_part)), round_of(gather(layers, everybody), everybody, 8))[0].released
        told = [lines[f"n{i}"][index].reward for i in took_part]
        assert told == pytest.approx(to_micro(expected).tolist(), abs=1), kind  # micro-units: the last digit
    assert nodes[4].refused >= 1  # the second of two replies
    assert ledger.verify().holds
    with ledger._database.reading() as connection:
        signed = connection.exec_driver_sql("SELECT count(signature), count(gradient) FROM payments").one()
    assert signed == (len(kinds), 4 * len(kinds) + 5)  # n0 signs; of the offender: fine, nan, huge, metrics, twice


def learning(number: int, *, works: bool) -> ClientApp:
    """Return an app whose gradient is that of a quadratic, with noise, or zeros where it does not work."""
    app = ClientApp(mods=[paid_work()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        del context
        model, noise = message.content.array_records["arrays"], gradient(message, number)
        found = {name: part.numpy() - 1 + 0.5 * noise[name] for name, part in model.items()}
        return answer(message, {name: part if works else 0 * part for name, part in found.items()})

    return app


def test_who_sends_zeros_earns_least_for_information(flower: Deployment, ledger: Ledger) -> None:
    """Under a dither and signed: the ledger verifies, and the model is learned."""
    nodes = [
        WireNode(flower, name, learning(i, works=i != 2), {"guerdon-key": str(flower.folder / name)})
        for i, name in enumerate(NAMES)
    ]
    rounds = 6
    told = {"information": True, "dither": 2.0, "signed": True, "num-server-rounds": rounds, "guerdon-run": "informed"}
    try:
        for node in nodes:
            node.connect()
        run = flower.run_app(APP, told | {"guerdon-db": ledger.where, "round-timeout": DEADLINE})
        assert run.wait(200) == "finished:completed", run.log()[-3000:]
    finally:
        for node in nodes:
            node.stop()
    assert [node.problem for node in nodes] == [None] * 5
    lines = {name: [line for line in ledger.statement(name).lines if line.round] for name in NAMES}
    assert {len(found) for found in lines.values()} == {rounds}
    earned = {name: sum(line.reward or 0 for line in found) for name, found in lines.items()}
    assert min(earned, key=lambda name: earned[name]) == "n2"
    assert earned["n2"] < 0.5 * rounds * to_micro(9.0)
    sent = [
        np.concatenate([part.numpy() for part in m.content.array_records["arrays"].values()]) for m in nodes[0].seen
    ]
    assert np.linalg.norm(sent[0]) == pytest.approx(2.0, rel=1e-5)
    assert sent[0] + sent[1] == pytest.approx(np.zeros(32), abs=1e-6)  # the model was zeros in both
    found = ledger.resume("informed")
    assert found is not None
    assert found.arrays["model"]["w"].mean() > 0.1  # one step of 0.1 in two rounds, towards ones
    assert "The noise scale is" in run.log()
    assert "guerdon-noise-scale" in run.log()
    assert ledger.verify().holds


def test_nobody_gets_in_without_a_registered_key(flower: Deployment) -> None:
    """A SuperNode without a key, or with one that nobody registered, is turned away."""
    make_key(flower.folder / "unregistered")
    for name in ("nameless", "unregistered"):
        with suppress(RuntimeError):  # it may have stopped already
            flower.start_node(name, {})
        assert flower.processes.pop(name).wait(60) != 0
        assert "SuperNode ID" not in flower.log(name)
    assert len(json.loads(flower.flwr("supernode", "list", CONNECTION, "--format", "json"))["nodes"]) == len(NAMES)


def test_a_superlink_without_authentication_pays_nobody(tmp_path: Path) -> None:
    """Anybody may connect there, and every node has a key: but none that is enrolled."""
    deployment = Deployment(tmp_path / "open", secure=False)
    nodes = [WireNode(deployment, f"stranger{i}", honest(i)) for i in range(3)]
    try:
        deployment.start_superlink()
        for node in nodes:
            node.connect()
        run = deployment.run_app(APP, {"guerdon-db": str(tmp_path / "guerdon.db"), "min-nodes": 3})
        assert run.wait(60) == "finished:failed"
        assert "no payment without identity: no public key is enrolled in the ledger" in run.log()
        with Ledger(tmp_path / "guerdon.db", read_only=True) as ledger:
            assert ledger.balances() == []
            assert ledger.runs() == []
        told = {"guerdon-db": str(tmp_path / "guerdon.db"), "min-nodes": 3, "anonymous": True, "num-server-rounds": 1}
        assert deployment.run_app(APP, told).wait(60) == "finished:completed"
        with Ledger(tmp_path / "guerdon.db", read_only=True) as ledger:
            assert [balance.agent.startswith("anonymous-") for balance in ledger.balances()] == [True] * 3
    finally:
        for node in nodes:
            node.stop()
        deployment.stop()
