"""The node's side: the mod, the helpers, signatures, and agents in place of honest nodes."""

# Flower's records are typed as dictionaries of a union, which no plain dictionary is.
# pyright: reportArgumentType=false, reportIncompatibleMethodOverride=false, reportUnhashable=false, reportCallIssue=false

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from guerdon import AffineCost, CalibratedAgreement
from guerdon.flower import FedSGD, Pay, Request, decline, last_pay, paid_work, samples_to_use
from guerdon.flower.messages import Answer, tell
from guerdon.lab.agents import Cooperative, Declining, Fixed, Portion, echo, garbage, learning, sign_flip, zero
from guerdon.lab.strategic_nodes import strategic
from guerdon.ledger import Ledger
from guerdon.ledger.proof.submissions import is_signed_by, submission
from tests.flower.conftest import MODEL, Make
from tests.flower.grids import MemoryGrid, Node, gradients_of, record, reply, worker

UNUSABLE = "nothing: what it sent cannot be used (NaN, infinity, too large, malformed or a copy); it counts as absent"


def key_file(folder: Path, key: Any, form: PrivateFormat = PrivateFormat.OpenSSH) -> str:
    path = folder / "key.private"
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
    return str(path)


@pytest.mark.parametrize("form", [PrivateFormat.OpenSSH, PrivateFormat.PKCS8])
def test_what_is_sent_is_signed_and_the_ledger_keeps_it(
    form: PrivateFormat, tmp_path: Path, nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    for node in nodes[:4]:
        (tmp_path / str(node.number)).mkdir()
        node.context.node_config["guerdon-key"] = key_file(tmp_path / str(node.number), node.key, form)
    rewarded(signatures=True).start(MemoryGrid(nodes), model, num_rounds=2)
    statuses = {slip.agent: (slip.status, slip.why) for slip in ledger.payslips("run")}
    assert statuses.pop("n4") == ("invalid", f"{UNUSABLE}; note: it is not signed")
    assert {status for status, _ in statuses.values()} == {"paid"}
    with ledger._database.reading() as connection:
        rows = connection.exec_driver_sql("SELECT gradient, signature FROM payments ORDER BY record, position").all()
    for number, node in enumerate(nodes[:4]):
        gradient, signature = rows[5 + number]
        assert is_signed_by(node.der, submission(ledger.name, "run", 2, 8, gradient), signature)
        assert not is_signed_by(node.der, submission(ledger.name, "run", 1, 8, gradient), signature)
    assert rows[4] == (None, None)
    assert ledger.verify().holds


def test_a_signature_is_of_the_rounds_request_where_nodes_are_asked_for_different_numbers(
    tmp_path: Path, nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    for node in nodes:
        (tmp_path / str(node.number)).mkdir()
        node.context.node_config["guerdon-key"] = key_file(tmp_path / str(node.number), node.key)
    grid, rule = MemoryGrid(nodes), CalibratedAgreement(AffineCost(1, 1), vary=0.25)
    rewarded(rule=rule, signatures=True).start(grid, model, num_rounds=2)
    asked = [samples_to_use(message) for message in grid.sent if Request.read(message.content) is not None]
    assert set(asked) == {8, 6, 10}
    assert {slip.status for slip in ledger.payslips("run")} == {"paid"}
    assert ledger.verify().holds


def test_a_signature_by_another_key_is_refused(
    tmp_path: Path, nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    nodes[4].context.node_config["guerdon-key"] = key_file(tmp_path, ec.generate_private_key(ec.SECP384R1()))
    rewarded().start(MemoryGrid(nodes), model, num_rounds=1)
    assert ledger.payslips("run")[4].status == "invalid"
    assert ledger.verify().holds


def test_a_replayed_signature_is_refused(
    tmp_path: Path, nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    """The same arrays signed for round 1 are worth nothing in round 2."""
    nodes[4].context.node_config["guerdon-key"] = key_file(tmp_path, nodes[4].key)
    honest, kept = worker(4), list[Message]()

    def replaying(message: Message, context: Context) -> Message:
        if not kept:
            kept.append(honest(message, context))
            return kept[0]
        again = Message(RecordDict(dict(kept[0].content)), reply_to=message)
        again.content["guerdon-answer"] = Answer(2, Answer.read(kept[0].content).signature).record()  # type: ignore[union-attr]
        return again

    nodes[4].app = replaying
    rewarded(FedSGD(fraction_evaluate=0.0)).start(MemoryGrid(nodes), model, num_rounds=2)
    assert [found.statuses for found in ledger.rounds("run")] == [{"paid": 5}, {"invalid": 1, "paid": 4}]


def test_ed25519_keys_sign_too(tmp_path: Path, ledger: Ledger, model: ArrayRecord, rewarded: Make) -> None:
    key = Ed25519PrivateKey.generate()
    node = Node(1, worker(1), key=key)  # type: ignore[arg-type]
    node.context.node_config["guerdon-key"] = key_file(tmp_path, key)
    others = [Node(10 + i, worker(i)) for i in range(3)]
    ledger.enrol({f"n{i}": other.der for i, other in enumerate([node, *others])})
    rewarded().start(MemoryGrid([node, *others]), model, num_rounds=1)
    assert ledger.payslips("run")[0].status == "paid"


@pytest.mark.parametrize("what", ["nowhere", "garbage", "rsa"])
def test_a_key_that_cannot_be_used_is_said_clearly(
    what: str, tmp_path: Path, nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    path = tmp_path / "key"
    if what == "garbage":
        path.write_bytes(b"not a key")
    if what == "rsa":
        path = Path(key_file(tmp_path, rsa.generate_private_key(65537, 2048)))
    nodes[4].context.node_config["guerdon-key"] = str(path)
    rewarded().start(MemoryGrid(nodes), model, num_rounds=1)
    slip = ledger.payslips("run")[4]
    assert slip.status == "declined"
    assert "`guerdon-key` must" in slip.why


def test_an_app_without_the_mod_is_paid_as_well(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    """An existing client app that ignores the request takes part; only what it sends counts."""
    for i, node in enumerate(nodes):
        app = ClientApp()
        node.app = app

        @app.train()
        def train(message: Message, context: Context, number: int = i) -> Message:
            del context
            return reply(message, gradients_of(message, number), loss=1.0)

    rewarded(FedAvg(fraction_evaluate=0.0)).start(MemoryGrid(nodes), model, num_rounds=1)
    assert ledger.rounds("run")[0].statuses == {"paid": 5}


def asked(
    number: int = 3, sends: str = "gradients", pay: Pay | None = None, arrays: ArrayRecord | None = None
) -> Message:
    MemoryGrid([])
    content = RecordDict({"arrays": arrays or record(**MODEL), "config": ConfigRecord({"lr": 0.1})})
    message = Message(content, 5, "train")
    tell(message, Request("run", number, 8, sends).settings() | ({} if pay is None else pay.settings()))
    message.metadata.__dict__["_message_id"] = "m"
    return message


def context(**config: Any) -> Context:
    return Context(1, 5, config, RecordDict(), {})


def test_the_request_is_read() -> None:
    assert samples_to_use(asked()) == 8
    assert Request.read(asked().content) == Request("run", 3, 8, "gradients")
    with pytest.raises(ValueError, match=r"is the server's strategy wrapped in `guerdon\.flower\.Paid`"):
        samples_to_use(Message(RecordDict(), 5, "train"))


def test_declining_sends_nothing_but_the_reason() -> None:
    answer = decline(asked(), "our machines are busy")
    assert Answer.read(answer.content) == Answer(3, b"", "our machines are busy")
    assert not answer.content.array_records
    assert Answer.read(decline(asked(), "").content) == Answer(3, b"", "no reason given")
    through = paid_work()(asked(), context(), lambda message, _: decline(message, "no"))
    assert Answer.read(through.content) == Answer(3, b"", "no")


def test_messages_without_a_request_pass_through() -> None:
    plain = asked()
    del plain.content["config"]
    found = paid_work()(plain, context(), lambda message, _: reply(message, record(**MODEL)))
    assert "guerdon-answer" not in found.content


def test_the_pay_is_told_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("guerdon.flower.client.log.info", lambda text, *parts: told.append(text % parts))
    pay = Pay(2, 8, "paid", 9_250_000, 20_000_000, "EUR", "9 for the 8 samples asked for, plus 0.25")
    message, own = asked(pay=pay), context()
    for _ in range(2):
        paid_work()(message, own, lambda found, _: reply(found, record(**MODEL)))
    assert told == ["Round 2: 9.25 EUR (paid; balance 20.00). 9 for the 8 samples asked for, plus 0.25"]
    assert last_pay(message) == pay == Pay.read(own.state)


def test_failures_of_the_app_are_not_hidden() -> None:
    def failing(message: Message, _: Context) -> Message:
        raise ZeroDivisionError(message.metadata.message_id)

    with pytest.raises(ZeroDivisionError):
        paid_work()(asked(), context(), failing)


# Agents in the place of honest nodes


def sent_by(agent: Any, message: Message, own: Context | None = None) -> tuple[Message, list[int]]:
    """Return the reply of a node with this agent, and the batch sizes that its app was told to use."""
    used: list[int] = []

    def app(found: Message, _: Context) -> Message:
        used.append(samples_to_use(found))
        return reply(found, record(**{name: array + 1 for name, array in MODEL.items()}))

    return as_agent(agent, 0, message, app, own or context()), used


def as_agent(agent: Any, seed: int | None, message: Message, app: Any, own: Context) -> Message:
    """Return the reply of an app whose mods are `paid_work` and a strategic agent."""
    return paid_work()(message, own, lambda m, c: strategic(agent, seed=seed)(m, c, app))


@pytest.mark.parametrize(("agent", "size"), [(Cooperative(), 8), (Portion(0.5), 4), (Fixed(3), 3)])
def test_an_agent_chooses_how_many_samples_are_used(agent: Any, size: int) -> None:
    found, used = sent_by(agent, asked())
    assert used == [size]
    assert found.content.array_records["arrays"]["w"].numpy() == pytest.approx(MODEL["w"] + 1, rel=1e-6)


def test_an_agent_declines_properly() -> None:
    found, used = sent_by(Fixed(0), asked())
    assert used == []
    assert Answer.read(found.content) == Answer(3, b"", "not worth it")


def test_declining_is_at_random_and_repeatable() -> None:
    def declined(seed: int | None) -> list[bool]:
        rounds = [asked(number) for number in range(1, 41)]
        replies = [
            as_agent(Declining(0.5), seed, one, lambda m, _: reply(m, record(**MODEL)), context()) for one in rounds
        ]
        return [not found.content.array_records for found in replies]

    first = declined(1)
    assert 8 <= sum(first) <= 32
    assert declined(1) == first
    assert declined(2) != first
    assert declined(None) != declined(None)


@pytest.mark.parametrize("sends", ["gradients", "models"])
@pytest.mark.parametrize(("agent", "factor"), [(zero(), 0.0), (sign_flip(), -1.0)], ids=["zero", "flip"])
def test_an_agent_reports_something_else(agent: Any, factor: float, sends: str) -> None:
    """In place of the gradient; where models are sent, in place of the move away from the one that was received."""
    message = asked(sends=sends)
    found, used = sent_by(agent, message)
    own = MODEL["w"] + 1 if sends == "gradients" else np.ones_like(MODEL["w"])  # the app's gradient, or its move
    origin = 0 if sends == "gradients" else MODEL["w"]
    assert found.content.array_records["arrays"]["w"].numpy() == pytest.approx(origin + factor * own, abs=1e-6)
    assert found.content.array_records["arrays"]["w"].numpy().dtype == np.float32
    assert used == [1 if agent == zero() else 8]


def test_an_echo_sends_the_last_move_of_the_model() -> None:
    own = context()
    sent_by(echo(), asked(), own)
    moved = asked(arrays=record(**{name: array - 0.5 for name, array in MODEL.items()}))
    found, _ = sent_by(echo(), moved, own)
    assert found.content.array_records["arrays"]["w"].numpy() == pytest.approx(np.full((3, 4), 0.5), abs=1e-6)


def test_a_learning_agent_learns_from_his_pay() -> None:
    agent, own = learning((2, 8), AffineCost(1, 1)), context()
    for number, reward in enumerate([3.0, 20.0, 20.0], start=1):
        pay = Pay(number - 1, 8, "paid", int(reward * 1e6), 0, "EUR", "") if number > 1 else None
        sent_by(agent, asked(number, pay=pay), own)
    tries = own.state.array_records["guerdon-memory"]["0"].numpy()
    assert tries.sum() == 2  # of the third round he has not heard yet
    profits = own.state.array_records["guerdon-memory"]["1"].numpy()
    assert profits.sum() == pytest.approx(20 + 20 - 3 - 9)


def test_agents_that_a_node_chooses() -> None:
    def behaviour(own: Context) -> Any:
        return Portion(0.5) if own.node_config.get("shirks") else None

    assert sent_by(behaviour, asked(), context(shirks=True))[1] == [4]
    assert sent_by(behaviour, asked(), context())[1] == [8]


def test_cheats_are_paid_what_the_rule_says(
    nodes: list[Node], model: ArrayRecord, rewarded: Make, ledger: Ledger
) -> None:
    nodes[3].app, nodes[4].app = worker(3, garbage(10.0)), worker(4, Fixed(0))
    rewarded(FedSGD()).start(MemoryGrid(nodes), model, num_rounds=1)
    slips = ledger.payslips("run")
    assert [slip.status for slip in slips] == ["paid"] * 4 + ["declined"]
    assert slips[3].reward < 0 < min(slip.reward for slip in slips[:3])


def test_arrays_of_other_types_stay() -> None:
    message = asked(arrays=record(**MODEL, seen=np.asarray(3, np.int64)))

    def app(found: Message, _: Context) -> Message:
        return reply(found, record(seen=np.asarray(4, np.int64), **{name: array + 1 for name, array in MODEL.items()}))

    found = as_agent(sign_flip(), 0, message, app, context()).content.array_records["arrays"]
    assert found["seen"].numpy() == 4
    assert found["w"].numpy() == pytest.approx(-(MODEL["w"] + 1))
    assert set(found) == {"w", "b", "seen"}


def test_honest_nodes_need_no_jax_no_database_and_no_rules() -> None:
    """A process is started for every message, and loads what the mod needs."""
    heavy = {"jax", "torch", "sqlalchemy", "guerdon.rule", "guerdon.server", "guerdon.lab.game", "guerdon.statistical"}
    code = f"import sys; from guerdon.flower import paid_work; sys.exit(str({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stderr.strip() == "set()"
