"""What travels with the model: the request and the last pay to a node, and its answer back.

Flower stores and fetches every record separately, and its clipping mods demand exactly one `ConfigRecord` in a message.
So request and pay are among the settings that the strategy sends, under names of their own, and the answer is among the
reply's metrics; the server takes it out again.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from guerdon.ledger.errors import RefusedError

ASKED, TOLD = "guerdon-", "guerdon-pay-"  # prefixes of a request's names and of a pay's names among the settings
REQUEST, CHOSEN = "guerdon-request", "guerdon-samples"  # the request; what the node decided to use, written by its mod
OWN, PAY, ANSWER = "guerdon", "guerdon-pay", "guerdon-answer"  # records: in messages, in a node's state, in replies
ROUND, SIGNATURE = "guerdon-round", "guerdon-signature"  # of an answer, among a reply's metrics

GRADIENTS, MODELS = "gradients", "models"  # what nodes send


class Request(NamedTuple):
    """What a node is asked for: gradients of `request` samples, for this round of this run.

    A rule may ask nodes for different numbers. Then `usual` is the round's own, which the ledger keeps and signatures
    are of; 0 where it is `request`.
    """

    run: str
    round: int
    request: int
    sends: str  # GRADIENTS, or MODELS trained from the one that was sent
    usual: int = 0

    @property
    def recorded(self) -> int:
        """The request of the round, as the ledger has it."""
        return self.usual or self.request

    def asking(self, samples: int) -> Self:
        """Return it with another number of samples, for one node."""
        return self._replace(request=samples, usual=self.recorded)

    def settings(self) -> dict[str, Any]:
        """Return what to send among a message's settings."""
        return {ASKED + name: value for name, value in self._asdict().items()} | {CHOSEN: self.request}

    @classmethod
    def read(cls, content: RecordDict) -> Self | None:
        """Return the request in a message, or None where there is none."""
        found = find_settings(content, REQUEST)
        if found is None:
            return None
        number, request, usual = (_whole(name, found[ASKED + name]) for name in ("round", "request", "usual"))
        return cls(str(found[ASKED + "run"]), number, request, str(found[ASKED + "sends"]), usual)


class Pay(NamedTuple):
    """What a node was paid for the last round of a run, and why; `reward` and `balance` in millionths of the unit."""

    round: int
    request: int
    status: str
    reward: int
    balance: int
    unit: str
    why: str

    def settings(self) -> dict[str, Any]:
        """Return what to send among a message's settings."""
        return {TOLD + name: value for name, value in self._asdict().items()}

    @classmethod
    def read(cls, content: RecordDict) -> Self | None:
        """Return the pay in a message, or None where there is none."""
        found = find_settings(content, TOLD + "reward")
        if found is None:
            return None
        told = {name: found[TOLD + name] for name in cls._fields}
        number, request, reward, balance = (
            _whole(name, told[name]) for name in ("round", "request", "reward", "balance")
        )
        return cls(number, request, str(told["status"]), reward, balance, str(told["unit"]), str(told["why"]))


class Answer(NamedTuple):
    """What a node says of its reply: the round it is for, a signature of what it sends, and why it declines."""

    round: int
    signature: bytes = b""
    declined: str = ""  # a reason; empty where it does not decline

    def record(self) -> ConfigRecord:
        """Return the record to send where there are no metrics to add it to."""
        return ConfigRecord(self._asdict())

    def put(self, message: Message) -> None:
        """Add it to a reply: to its metrics, if the reply has exactly one set of them."""
        if len(message.content.metric_records) != 1:
            with_records(message, {ANSWER: self.record()})
            return
        name, metrics = next(iter(message.content.metric_records.items()))
        signed = {SIGNATURE: list(self.signature)} if self.signature else {}
        message.content = RecordDict({**message.content, name: MetricRecord({**metrics, ROUND: self.round, **signed})})

    @classmethod
    def read(cls, content: RecordDict) -> Self | None:
        """Return the answer in a reply, None where there is none, or raise if it cannot be one."""
        found = content.config_records.get(ANSWER)
        if found is None:
            if ANSWER in content:
                raise ValueError(f"its record {ANSWER!r} is malformed")
            return cls._among(content.metric_records.values())
        signature, declined = found.get("signature", b""), found.get("declined", "")
        if not isinstance(signature, bytes) or not isinstance(declined, str):
            raise ValueError(f"its record {ANSWER!r} is malformed")
        return cls(_whole("round", found.get("round")), signature, declined)

    @classmethod
    def _among(cls, metrics: Iterable[MetricRecord]) -> Self | None:
        """Return the answer that goes with one of several sets of metrics."""
        for record in metrics:
            if ROUND in record:
                signature = record.get(SIGNATURE, [])
                if not isinstance(signature, list) or not all(isinstance(x, int) and 0 <= x < 256 for x in signature):
                    raise ValueError(f"its metric {SIGNATURE!r} is no signature")
                return cls(_whole("round", record[ROUND]), bytes(map(int, signature)))
        return None


def without_answer(content: RecordDict) -> RecordDict:
    """Return a reply's content as the app made it: without the answer."""
    kept: dict[str, Any] = {name: value for name, value in content.items() if name != ANSWER}
    for name, metrics in content.metric_records.items():
        if ROUND in metrics or SIGNATURE in metrics:
            kept[name] = MetricRecord({key: value for key, value in metrics.items() if key not in (ROUND, SIGNATURE)})
    return RecordDict(kept)


def find_settings(content: RecordDict, name: str) -> ConfigRecord | None:
    """Return the settings in a message that have this name, or None."""
    return next((record for record in content.config_records.values() if name in record), None)


def tell(message: Message, settings: Mapping[str, Any]) -> None:
    """Add settings to one message only: to its only record of them, or to one of our own if it has none or several."""
    found = message.content.config_records
    name = next(iter(found)) if len(found) == 1 else OWN
    with_records(message, {name: ConfigRecord({**found.get(name, {}), **settings})})


def with_records(message: Message, records: Mapping[str, ConfigRecord | ArrayRecord]) -> None:
    """Add records to one message only: strategies let all messages share one content."""
    message.content = RecordDict({**message.content, **records})


def with_model(message: Message, model: ArrayRecord) -> None:
    """Send a model in place of the strategy's own, which has arrays of the same names."""
    found = [name for name, own in message.content.array_records.items() if own.keys() == model.keys()]
    if not found:
        raise RefusedError("the strategy does not send the model as it is, so a dither cannot be added to it")
    with_records(message, dict.fromkeys(found, model))


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"its {name} must be a whole number, got {value!r:.40}")
    return value
