"""Which account a node belongs to: only a node whose public key is enrolled in the ledger has an account.

A node cannot fetch or answer a message without the private key that belongs to its public key: Flower checks that. A
ServerApp cannot see whether the SuperLink admits unknown nodes (whether `--enable-supernode-auth` is on). Without that
option every node has a key too: one it made up, or even another node's, in another spelling. So the ledger keeps
its own list of members that may be paid. If several nodes show the same key, at most one is asked.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.proof.submissions import fingerprint, load_public_key, public_key_der

log = logging.getLogger("flwr.guerdon")

REMEDY = (
    "Enrol the members' public keys (guerdon ledger enrol NAME --public-key FILE) and start the SuperLink with "
    "--enable-supernode-auth; for experiments without real money, give `allow_anonymous=True`"
)


class Member(NamedTuple):
    """A node that may be paid: its account in the ledger, and the key (DER) it is enrolled with, if any."""

    node: int
    account: str
    key: bytes | None


def find_member(node: Any, keys: Mapping[bytes, str], anonymous: Mapping[int, str]) -> Member | None:
    """Return the member that a node belongs to, given the accounts of enrolled keys and of nodes without; or None."""
    key = _key_of(node)
    if key is not None and key in keys:
        return Member(node.node_id, keys[key], key)
    return Member(node.node_id, anonymous[node.node_id], None) if node.node_id in anonymous else None


def name_anonymous(nodes: Sequence[Any]) -> dict[int, str]:
    """Return accounts for nodes without enrolled keys: by their number, or in a simulation by their order.

    A simulation registers its nodes in the order of their partitions, under numbers that are new each time.
    """
    simulated = sorted((node.registered_at, node.node_id) for node in nodes if _key_of(node) is None)
    names = {number: f"simulated-{place}" for place, (_, number) in enumerate(simulated)}
    return {node.node_id: f"anonymous-{node.node_id}" for node in nodes} | names


def _key_of(node: Any) -> bytes | None:
    """Return a node's public key as DER, or None where it has none (in a simulation it is random bytes)."""
    try:
        return public_key_der(node.public_key)
    except ValueError:
        return None


def _only(nodes: list[Any]) -> int | None:
    """Return an account's only node; if several show its key, the one that spells it as Flower does, or None."""
    if len(nodes) > 1:
        nodes = [node for node in nodes if _is_canonical(node.public_key)]
    return nodes[0].node_id if len(nodes) == 1 else None


def _is_canonical(key: bytes) -> bool:
    pem = load_public_key(public_key_der(key)).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return key == pem


class MembersGrid(Grid):
    """A grid that shows only members: a strategy samples and waits for members only."""

    def __init__(
        self,
        grid: Grid,
        keys: Mapping[str, bytes],
        short_of: Callable[[str], str] = lambda _: "",
        *,
        allow_anonymous: bool,
        warned: set[int | str],
    ) -> None:
        if not keys and not allow_anonymous:
            raise RefusedError(f"no payment without identity: no public key is enrolled in the ledger. {REMEDY}")
        self._grid, self._keys = grid, {key: name for name, key in keys.items()}
        self._allow_anonymous, self._short_of = allow_anonymous, short_of
        self._strangers = warned  # a warning about these was logged already
        self.members: dict[int, Member] = {}

    def get_nodes(self) -> list[Any]:
        """Return the connected nodes that may be paid, one for each account."""
        nodes = list(self._grid.get_nodes())
        anonymous = name_anonymous(nodes) if self._allow_anonymous else {}
        found = {node.node_id: find_member(node, self._keys, anonymous) for node in nodes}
        owned: dict[str, list[Any]] = {}
        for node in nodes:
            member = found[node.node_id]
            if member is not None and not self._short_of(member.account):
                owned.setdefault(member.account, []).append(node)
        chosen = {_only(group) for group in owned.values()}
        self.members |= {number: member for number, member in found.items() if member is not None and number in chosen}
        for node in nodes:
            if node.node_id not in chosen and node.node_id not in self._strangers:
                log.warning("Node %s is left out, %s", node.node_id, self._why_not(node, found[node.node_id]))
                self._strangers.add(node.node_id)
        return [node for node in nodes if node.node_id in chosen]

    def accounts(self, messages: Iterable[Message]) -> list[str]:
        """Return the accounts that messages are for; empty for a node that is no member's."""
        found = (self.members.get(message.metadata.dst_node_id) for message in messages)
        return ["" if member is None else member.account for member in found]

    def _why_not(self, node: Any, member: Member | None) -> str:
        """Return why a node may not be paid, and what to do about it."""
        short = "" if member is None else self._short_of(member.account)
        if member is not None and short:
            return f"{short}: record what it pays in (guerdon ledger move deposit {member.account} AMOUNT)"
        why = "its key is not enrolled" if member is None else "another node has the same key"
        return f"{why}: {_describe(node)}. {REMEDY}"

    def get_node_ids(self) -> list[int]:
        """Return the ids of the connected nodes that may be paid."""
        return [node.node_id for node in self.get_nodes()]

    # Everything else is the grid's own.

    def set_run(self, run: Any) -> None:
        """Pass on to the grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The grid's run."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Pass on to the grid."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on to the grid."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on to the grid."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Pass on to the grid."""
        return self._grid.send_and_receive(messages, timeout=timeout)


def _describe(node: Any) -> str:
    key = _key_of(node)
    return "it has none" if key is None else f"fingerprint {fingerprint(key)}"
