"""Verified work on Flower: nodes are told their rows, sign them, and what they sent can be computed again."""

# pyright: reportArgumentType=false

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

from guerdon import AffineCost, FixedRequest, FlatPay, Server
from guerdon.flower import FedSGD, Paid, named_work, paid_work
from guerdon.flower.payload import read_arrays
from guerdon.ledger import Ledger
from guerdon.looks.coins import auditor_secret, commit_coins, open_coin
from guerdon.looks.commitment import Commitment
from guerdon.looks.draw import nonce
from guerdon.run.archive import Archive
from guerdon.run.messages import Request
from guerdon.terms import Terms
from tests.flower.grids import MemoryGrid, Node, record
from tests.support.look_scenes import AUDITOR, LOOKS, RUN, rows_of, verdict_on

NAMES = ["Basel", "Lyon", "Porto"]
TERMS = Terms(replace(LOOKS, code="ab" * 32), signatures=True)
MODEL = {"w": np.zeros(3, np.float32)}
CHEAT = "Porto"


def work(model: Any, rows: Any, seed: int, sends: str) -> dict[str, Any]:
    """The application's function: the gradient of least squares to a noisy target, or the model after one step."""
    noise = np.random.default_rng(seed).normal(size=len(rows)).astype(np.float32)
    gradient = ((rows @ model["w"] - noise)[:, None] * rows).mean(0)
    return {"w": gradient if sends == "gradients" else model["w"] - np.float32(0.1) * gradient}


def app_of(name: str) -> ClientApp:
    app, data = ClientApp(mods=[paid_work()]), rows_of(name)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        del context
        rows, seed = named_work(message, data)
        if name == CHEAT:
            rows[0] = rows[1]
        request = Request.read(message.content)
        assert request is not None
        (model,) = message.content.array_records.values()
        found = record(**work(read_arrays(model), rows, seed, request.sends))
        metrics = MetricRecord({"num-examples": len(rows)})
        return Message(RecordDict({"arrays": found, "metrics": metrics}), reply_to=message)

    return app


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "guerdon.db") as found:
        coins = commit_coins(AUDITOR, found.name, RUN, rounds=20)
        Archive(found.files, RUN).put_coins(coins, coins.to_json(AUDITOR))
        for name in NAMES:
            own = Commitment.of(rows_of(name), ledger=found.name, run=RUN, member=name, secret=b"m" * 32)
            found.looks.commit(own.committed())
        yield found


@pytest.fixture
def grid(ledger: Ledger, tmp_path: Path) -> MemoryGrid:
    nodes = [Node(100 + place, app_of(name)) for place, name in enumerate(NAMES)]
    for name, node in zip(NAMES, nodes, strict=True):
        path = tmp_path / f"{name}.pem"
        path.write_bytes(node.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        node.context.node_config["guerdon-key"] = str(path)
    ledger.enrol({name: node.der for name, node in zip(NAMES, nodes, strict=True)})
    return MemoryGrid(nodes)


def play(ledger: Ledger, grid: MemoryGrid, strategy: Strategy, rounds: int) -> None:
    server = Server(FlatPay(AffineCost(1, 1)), FixedRequest(8, 0.1))
    paid = Paid(strategy, server, TERMS, run=RUN, ledger=ledger)
    paid.start(grid, record(**MODEL), num_rounds=rounds)


@pytest.mark.parametrize(("kind", "sends"), [(FedSGD, "gradients"), (FedAvg, "models")])
def test_what_nodes_sent_can_be_computed_again_and_one_row_of_eight_shows(
    ledger: Ledger, grid: MemoryGrid, kind: Any, sends: str
) -> None:
    play(ledger, grid, kind(fraction_evaluate=0.0), rounds=4)
    archive, auditor = Archive(ledger.files, RUN), auditor_secret(AUDITOR)
    for one in ledger.looks.work(RUN):
        own = nonce(archive.secret(), "server", ledger.name, RUN, one.round)
        ledger.looks.draw(RUN, one.round, own, open_coin(auditor, ledger.name, RUN, one.round))
    requests = {
        (found.round, message.metadata.dst_node_id): found
        for message in grid.sent
        if (found := Request.read(message.content)) is not None
    }
    looks = ledger.looks.open(RUN)
    assert {look.member for look in looks} == set(NAMES)
    for look in looks:
        asked = requests[look.round, 100 + NAMES.index(look.member)].work
        assert asked is not None
        data = rows_of(look.member)[list(asked.rows)]
        again = work(archive.model(look.round), data, asked.seed, sends)["w"]
        same = np.allclose(again, archive.report(look.round, look.member)["w"], rtol=1e-5, atol=1e-7)
        assert same == (look.member != CHEAT)
    assert ledger.verify().holds
    with ledger.reading() as connection:
        signed = connection.exec_driver_sql("SELECT count(signature) FROM payments").scalar_one()
    assert signed == 4 * len(NAMES)


def test_a_signature_is_of_the_named_work_and_of_no_other(ledger: Ledger, grid: MemoryGrid) -> None:
    play(ledger, grid, FedSGD(fraction_evaluate=0.0), rounds=1)
    with ledger.reading() as connection:
        connection.exec_driver_sql("SELECT 1")
    (one,) = ledger.looks.work(RUN)
    assert set(one.used) == set(NAMES)
    request = next(found for message in grid.sent if (found := Request.read(message.content)) is not None)
    assert request.work is not None
    other = request._replace(work=request.work._replace(number="cd" * 32))
    assert request.signed(b"g") != other.signed(b"g") != request._replace(work=None).signed(b"g")


def test_a_node_does_no_work_at_another_model_than_the_request_names(ledger: Ledger, grid: MemoryGrid) -> None:
    deliver = grid.deliver

    def tampered(message: Message) -> Message:
        if message.metadata.dst_node_id == 101 and message.content.array_records:
            name = next(iter(message.content.array_records))
            message.content = RecordDict({**message.content, name: record(w=np.ones(3, np.float32))})
        return deliver(message)

    grid.deliver = tampered
    play(ledger, grid, FedSGD(fraction_evaluate=0.0), rounds=1)
    statuses = {slip.agent: slip.status for slip in ledger.payslips(RUN)}
    assert statuses == {"Basel": "held until looks", "Lyon": "declined", "Porto": "held until looks"}


def test_work_without_looks_names_no_rows() -> None:
    message = Message(RecordDict({"c": ConfigRecord({}), "a": ArrayRecord()}), dst_node_id=1, message_type="train")
    with pytest.raises(ValueError, match="names no rows: the terms of the run must say"):
        named_work(message)


def test_rows_come_in_the_form_of_the_dataset() -> None:
    told = Request("run", 1, 3, "gradients", 0, "ledger", None)._replace()
    work_ = {"rows": (2, 0, 1), "seed": 7, "number": "ab" * 32, "model": "cd" * 32, "code": ""}
    from guerdon.run.messages import Work

    settings = told._replace(work=Work(**work_)).settings()
    message = Message(RecordDict({"c": ConfigRecord(settings)}), dst_node_id=1, message_type="train")
    assert named_work(message)[0].tolist() == [2, 0, 1]
    assert named_work(message, np.arange(10, 13))[0].tolist() == [12, 10, 11]
    assert named_work(message, {"x": np.arange(10, 13)})[0]["x"].tolist() == [12, 10, 11]
    assert named_work(message, ["a", "b", "c"]) == (["c", "a", "b"], 7)


def test_passed_looks_release_what_flower_s_nodes_are_held(ledger: Ledger, grid: MemoryGrid) -> None:
    play(ledger, grid, FedSGD(fraction_evaluate=0.0), rounds=2)
    archive, auditor = Archive(ledger.files, RUN), auditor_secret(AUDITOR)
    for number in (1, 2):
        own = nonce(archive.secret(), "server", ledger.name, RUN, number)
        ledger.looks.draw(RUN, number, own, open_coin(auditor, ledger.name, RUN, number))
    with ledger.reading() as connection:
        rows = connection.exec_driver_sql(
            "SELECT agents.name, rounds.number, gradient FROM payments JOIN agents ON agents.id = agent "
            "JOIN rounds ON rounds.record = payments.record"
        ).all()
    sent = {(name, number): bytes(gradient).hex() for name, number, gradient in rows}
    for look in ledger.looks.open(RUN):
        ledger.looks.answer(RUN, look.number, bytes(32))
        report = sent[look.member, look.round]
        ledger.looks.verdict(verdict_on(ledger, look, report=report).to_json())
    assert {one.released for one in ledger.looks.settle(RUN)} == {2 * 9_450_000}
