"""A grid in memory: real messages, real client apps, every message through Flower's own serialisation."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from guerdon.flower import Request, paid_work, samples_to_use
from guerdon.lab.strategic_nodes import strategic
from guerdon.ledger.proof.submissions import public_key_der

SUPERLINK = 1

Answering = Callable[[Message, Context], "Message | list[Message] | None"]


@dataclass
class Node:
    """A node of the grid: what it runs, and the key it is known by."""

    number: int
    app: Answering
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP384R1()))
    config: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.context = Context(1, self.number, self.config, RecordDict(), {})

    @functools.cached_property
    def pem(self) -> bytes:
        """The public key as Flower has it."""
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    @property
    def der(self) -> bytes:
        """The public key as the ledger has it."""
        return public_key_der(self.pem)


class MemoryGrid(Grid):
    """Delivers each message at once, and keeps what was sent and what came back.

    Without `wire` messages are handed over as they are, which is quicker, for long runs.
    """

    def __init__(self, nodes: Iterable[Node], *, wire: bool = True) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, SUPERLINK
        self.nodes = {node.number: node for node in nodes}
        self.deliver = over_the_wire if wire else (lambda message: message)
        self.sent: list[Message] = []
        self.info: Any = None  # the run, as Flower has it
        self.waiting: dict[str, Message] = {}  # pushed, and not answered yet
        self.late: set[int] = set()  # nodes that have not answered yet, whenever they are asked
        self.strays: list[Message] = []  # replies that nobody asked for, delivered with the next ones

    def set_run(self, run: Any) -> None:
        self.info = run

    @property
    def run(self) -> Any:
        return self.info

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_nodes(self) -> list[NodeInfo]:
        return [NodeInfo(node_id=node.number, public_key=node.pem) for node in self.nodes.values()]

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        for message in messages:
            message.metadata.__dict__["_message_id"] = uuid4().hex
            self.sent.append(message)
            self.waiting[message.metadata.message_id] = message
        return list(self.waiting)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies: list[Message] = []
        for number in set(message_ids) & set(self.waiting):
            node = self.nodes[self.waiting[number].metadata.dst_node_id]
            if node.number not in self.late:
                replies += self._answers(node, self.waiting.pop(number))
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        del timeout
        replies, self.strays = self.strays, []
        for message in list(messages):
            message.metadata.__dict__["_message_id"] = uuid4().hex
            self.sent.append(message)
            replies += self._answers(self.nodes[message.metadata.dst_node_id], message)
        return replies

    def _answers(self, node: Node, message: Message) -> list[Message]:
        try:
            found = node.app(self.deliver(message), node.context)
        except Exception as error:  # noqa: BLE001 - as the SuperNode does
            reply = Message(Error(2, f"Traceback\n{type(error).__name__}: {error}"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = SUPERLINK
            return [reply]
        return [self.deliver(reply) for reply in (found if isinstance(found, list) else [found]) if reply is not None]


def over_the_wire(message: Message) -> Message:
    """Return a message as it arrives: deflated to bytes, and inflated again."""
    number = message.metadata.message_id
    with no_object_id_recompute():
        contents = {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
        arrived = inflate_object_from_contents(message.object_id, contents)
    assert isinstance(arrived, Message)
    arrived.metadata.__dict__["_message_id"] = number
    return arrived


def record(**arrays: np.ndarray) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def reply(message: Message, arrays: ArrayRecord, **metrics: Any) -> Message:
    """Return a reply as Flower's apps make it."""
    told = MetricRecord({"num-examples": 1, **metrics})
    return Message(RecordDict({"arrays": arrays, "metrics": told}), reply_to=message)


def gradients_of(message: Message, number: int) -> ArrayRecord:
    """Return the gradient that a node with this number computes: the same each time, noisier for fewer samples."""
    request = Request.read(message.content)
    assert request is not None
    rng = np.random.default_rng([number, request.round])
    arrays = next(iter(message.content.array_records.values()))
    size = samples_to_use(message)
    noisy = {n: a.numpy() + rng.normal(size=a.shape).astype(a.numpy().dtype) / np.sqrt(size) for n, a in arrays.items()}
    return record(**{name: array.astype(arrays[name].dtype) for name, array in noisy.items()})


def worker(number: int, agent: Any = None) -> ClientApp:
    """Return an app that does what it is asked (or what `agent` chooses)."""
    app = ClientApp(mods=[paid_work(), *([] if agent is None else [strategic(agent, seed=number)])])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        del context
        return reply(message, gradients_of(message, number), loss=float(number))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        del context
        told = MetricRecord({"num-examples": 1, "accuracy": 0.5})
        return Message(RecordDict({"metrics": told}), reply_to=message)

    return app
