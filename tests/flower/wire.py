"""A node without Flower's SuperNode: speaks to a real SuperLink over the wire, and may answer as no SuperNode would."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from examples.deployment import HOST, Deployment
from flwr.app import Context, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import RunNotRunningException
from flwr.supernode.fleet_http_connection import http_request_response

Answering = Callable[[Message, Context], "Message | list[Message] | None"]


class WireNode(threading.Thread):
    """A node of a deployment that answers with `app`, once per message, or as often as it returns replies."""

    def __init__(self, deployment: Deployment, name: str, app: Answering, config: dict[str, Any] | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self.deployment, self.app = deployment, app
        self.context = Context(1, 1, config or {}, RecordDict(), {})
        self.seen: list[Message] = []
        self.refused = 0  # replies that the SuperLink did not take
        self.problem: BaseException | None = None
        self._stop_asked = threading.Event()
        self.connected = threading.Event()

    def connect(self) -> None:
        """Start, and wait until the SuperLink has let the node in."""
        self.start()
        while not self.connected.wait(0.1):
            if self.problem is not None or not self.is_alive():
                raise AssertionError(f"{self.name} could not connect: {self.problem!r}")

    def stop(self) -> None:
        self._stop_asked.set()
        if self.is_alive():
            self.join(30)

    def run(self) -> None:
        try:
            self._serve()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the test looks at it
            self.problem = error

    def _serve(self) -> None:
        path = self.deployment.folder / self.name
        key: Any = load_ssh_private_key(path.read_bytes(), None) if path.exists() else None
        pair = None if key is None else (key, key.public_key())
        authority = (self.deployment.folder / "ca.crt").read_bytes() if self.deployment.secure else None
        address = f"{HOST}:{self.deployment.port}"
        with http_request_response(address, not self.deployment.secure, authority, pair, 3, 20) as connection:
            number, receive, send, _, _, pull, push, confirm = connection
            self.context.node_id = number
            self.connected.set()
            while not self._stop_asked.is_set():
                found = receive()
                if found is None:
                    time.sleep(0.2)
                    continue
                header, tree = found
                contents = {
                    one.object_id: _pull(pull, header.metadata.run_id, one.object_id)
                    for one in iterate_object_tree(tree)
                }
                message: Any = inflate_object_from_contents(header.metadata.message_id, contents)
                message.metadata.__dict__["_message_id"] = header.metadata.message_id
                confirm(header.metadata.run_id, header.metadata.message_id)
                self.seen.append(message)
                answers = self.app(message, self.context)
                for reply in answers if isinstance(answers, list) else [answers] if answers is not None else []:
                    self._send(reply, send, push)

    def _send(self, reply: Message, send: Any, push: Any) -> None:
        reply.metadata.__dict__["_message_id"] = reply.object_id
        objects = get_all_nested_objects(reply)
        try:
            wanted, session = send(reply, get_object_tree(reply), 0.0)
        except RunNotRunningException:  # too late: the run is over
            return
        self.refused += not wanted
        for number in wanted:
            with suppress(Exception):  # the round, or the run, may be over
                push(reply.metadata.run_id, session, number, objects[number].deflate())


def _pull(pull: Any, run: int, number: str) -> bytes:
    """Return an object; it may still be on its way to the SuperLink."""
    for _ in range(100):
        with suppress(Exception):
            return pull(run, number)
        time.sleep(0.1)
    raise TimeoutError(number)


def public_key(deployment: Deployment, name: str) -> Path:
    return deployment.folder / f"{name}.pub"
