"""What travels with the model: the request and the last pay to a node, and its answer back.

Flower stores and fetches every record separately, and its clipping mods demand exactly one `ConfigRecord` in a message.
So request and pay are among the settings that the strategy sends, under names of their own, and the answer is among the
reply's metrics; the server takes it out again.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from guerdon.ledger.books.errors import RefusedError
from guerdon.run.messages import whole

OWN, PAY, ANSWER = "guerdon", "guerdon-pay", "guerdon-answer"  # records: in messages, in a node's state, in replies
ROUND, SIGNATURE = "guerdon-round", "guerdon-signature"  # of an answer, among a reply's metrics


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
        return cls(whole("round", found.get("round")), signature, declined)

    @classmethod
    def _among(cls, metrics: Iterable[MetricRecord]) -> Self | None:
        """Return the answer that goes with one of several sets of metrics."""
        for record in metrics:
            if ROUND in record:
                signature = record.get(SIGNATURE, [])
                if not isinstance(signature, list) or not all(isinstance(x, int) and 0 <= x < 256 for x in signature):
                    raise ValueError(f"its metric {SIGNATURE!r} is no signature")
                return cls(whole("round", record[ROUND]), bytes(map(int, signature)))
        return None


def without_answer(content: RecordDict) -> RecordDict:
    """Return a reply's content as the app made it: without the answer."""
    kept: dict[str, Any] = {name: value for name, value in content.items() if name != ANSWER}
    for name, metrics in content.metric_records.items():
        if ROUND in metrics or SIGNATURE in metrics:
            kept[name] = MetricRecord({key: value for key, value in metrics.items() if key not in (ROUND, SIGNATURE)})
    return RecordDict(kept)


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
