"""What travels beside the model: the request and the last pay to a node, its answer back.

Each is a `ConfigRecord` under a name of its own, so that nothing in an app's own records changes.
"""

from typing import NamedTuple, Self

from flwr.app import ConfigRecord, Message, RecordDict

REQUEST, PAY, ANSWER = "guerdon-request", "guerdon-pay", "guerdon-answer"
CHOSEN = "batch-size"  # what the node decided to use; written by its mod, read by its app

GRADIENTS, MODELS = "gradients", "models"  # what nodes send


class Request(NamedTuple):
    """What a node is asked for: gradients of `request` samples, for this round of this run."""

    run: str
    round: int
    request: int
    sends: str  # GRADIENTS, or MODELS trained from the one that was sent

    def record(self) -> ConfigRecord:
        """Return it as it travels."""
        return ConfigRecord({**self._asdict(), CHOSEN: self.request})

    @classmethod
    def read(cls, content: RecordDict) -> Self | None:
        """Return the request in a message, or None where there is none."""
        found = content.config_records.get(REQUEST)
        if found is None:
            return None
        run, number, request, sends = (found[name] for name in cls._fields)
        return cls(str(run), _whole("round", number), _whole("request", request), str(sends))


class Pay(NamedTuple):
    """What a node was paid for the last round of a run, and why; `reward` and `balance` in millionths of the unit."""

    round: int
    request: int
    status: str
    reward: int
    balance: int
    unit: str
    why: str

    def record(self) -> ConfigRecord:
        """Return it as it travels."""
        return ConfigRecord(self._asdict())

    @classmethod
    def read(cls, content: RecordDict) -> Self | None:
        """Return the pay that a message tells of, or None where it tells of none."""
        found = content.config_records.get(PAY)
        if found is None:
            return None
        number, request, reward, balance = (
            _whole(name, found[name]) for name in ("round", "request", "reward", "balance")
        )
        return cls(number, request, str(found["status"]), reward, balance, str(found["unit"]), str(found["why"]))


class Answer(NamedTuple):
    """What a node says of its reply: the round it is for, a signature of what it sends, and why it declines."""

    round: int
    signature: bytes = b""
    declined: str = ""  # a reason; empty where it does not decline

    def record(self) -> ConfigRecord:
        """Return it as it travels."""
        return ConfigRecord(self._asdict())

    @classmethod
    def read(cls, content: RecordDict) -> Self | None:
        """Return the answer in a reply, None where there is none, or raise if it cannot be one."""
        found = content.config_records.get(ANSWER)
        if found is None:
            if ANSWER in content:
                raise ValueError(f"its record {ANSWER!r} is malformed")
            return None
        signature, declined = found.get("signature", b""), found.get("declined", "")
        if not isinstance(signature, bytes) or not isinstance(declined, str):
            raise ValueError(f"its record {ANSWER!r} is malformed")
        return cls(_whole("round", found.get("round")), signature, declined)


def with_records(message: Message, records: dict[str, ConfigRecord]) -> None:
    """Give a message records of its own; strategies let all messages share one content."""
    message.content = RecordDict({**message.content, **records})


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"its {name} must be a whole number, got {value!r:.40}")
    return value
