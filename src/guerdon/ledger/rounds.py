"""One round as the ledger keeps it: what was handed in, checked; paid by the rule; every row ready to be written."""

import functools
import hashlib
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from guerdon.arrays import as_mask, check_positive_integer, to_numpy
from guerdon.evidence import Evidence
from guerdon.ledger import chain
from guerdon.ledger.canonical import canonical
from guerdon.ledger.errors import RefusedError
from guerdon.ledger.money import to_micro
from guerdon.ledger.recorded_rules import described, restored
from guerdon.rules import Mechanism, Payments, Status

LATEST = 2**62  # no round has a greater number: databases hold 64 bits
LONGEST_NOTE = 500
LABELS = {status.value: status.label for status in Status}
NUMBERS = ("deviation", "length", "alignment", "distance", "expected_distance", "variance")


@dataclass(frozen=True)
class RoundInput:
    """A round as it was handed in, in plain NumPy; its rule and cost as the ledger writes them."""

    number: int
    request: int
    rule: str
    cost: str
    evidence: Evidence
    participating: Any
    gradients: Sequence[bytes | None]
    signatures: Sequence[bytes | None]
    notes: Sequence[str]
    held: Any  # in micro-units
    metrics: str
    checkpoint: bytes | None  # its hash

    @property
    def mechanism(self) -> Mechanism:
        """The rule, as it is read again for every verification."""
        return restored(self.rule, self.cost)

    def pay(self, state: Any) -> tuple[Payments, Any]:
        """Return what the rule pays for the evidence, and its next state."""
        described(self.mechanism)  # raises for a rule of version 0.1 that can only be read
        try:
            paid, following = self.mechanism.pay(state, self.evidence, self.participating, self.request)
        except (ValueError, TypeError) as error:
            raise RefusedError(f"round {self.number} cannot be paid: {error}") from error
        declined, invalid = (paid.status == status.value for status in (Status.DECLINED, Status.INVALID))
        if (declined == self.participating).any() or ((declined | invalid) == self.evidence.counted).any():
            raise RefusedError(
                f"the rule {self.rule} must give DECLINED to agents that sent nothing, INVALID to others that are not "
                f"counted, and neither to the rest, as `statuses` does; it gave {paid.status.tolist()}"
            )
        return paid, following

    @functools.cached_property
    def payload(self) -> bytes:
        """A hash of all of it."""
        texts = [self.number, self.request, self.rule, self.cost, self.metrics, self.checkpoint, *self.notes]
        numbers = np.array([*self.evidence, self.participating, self.held], dtype="<f8")
        return hashlib.sha256(repr([texts, self.gradients, self.signatures]).encode() + numbers.tobytes()).digest()

    def parts(self) -> dict[str, Any]:
        """Return all of it by name, in plain values that can be compared."""
        own = (field.name for field in fields(self) if field.name != "evidence")
        found = self.evidence._asdict() | {name: getattr(self, name) for name in own}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}

    def row(self, run: int) -> dict[str, Any]:
        """Return the row of the round itself."""
        names = ("number", "request", "rule", "cost", "metrics", "checkpoint")
        return {"run": run, **{name: getattr(self, name) for name in names}, "payload": self.payload}

    def payment_columns(self, record: int, agents: Sequence[int], paid: Payments, cut: Any) -> dict[str, Sequence[Any]]:
        """Return the columns of all payments, with their hashes."""
        numbers = np.zeros(len(agents), dtype=chain.PAYMENT)
        numbers["record"], numbers["position"], numbers["agent"] = record, np.arange(len(agents)), agents
        numbers["status"], numbers["amount"] = paid.status, to_micro(paid.reward)
        numbers["cut"], numbers["held"] = cut, self.held
        for source in (self.evidence, paid):
            for name in set(NUMBERS) & set(source._fields):
                numbers[name] = getattr(source, name) + 0.0  # no negative zero: SQLite would not keep its sign
        sealed = chain.payment_hashes(numbers, self.gradients, self.signatures, self.notes)
        columns: dict[str, Sequence[Any]] = {name: numbers[name].tolist() for name in chain.PAYMENT.names or ()}
        columns["status"] = [LABELS[value] for value in columns["status"]]
        for name in ("distance", "expected_distance", "variance"):
            columns[name] = [None if value != value else value for value in columns[name]]  # NaN
        return columns | {"gradient": self.gradients, "signature": self.signatures, "note": self.notes, "hash": sealed}


def as_input(
    number: Any, request: Any, rule: tuple[str, str], evidence: Evidence, participating: Any, extras: Mapping[str, Any]
) -> RoundInput:
    """Return a round in plain NumPy, or raise if its parts are not of one size or make no sense."""
    check_positive_integer("request", request)
    sent = to_numpy(participating)
    sent = as_mask(np, sent, (sent.size,))
    numbers = [to_numpy(part).astype(np.float64) + 0.0 for part in evidence[:3]]  # no negative zero
    seen = Evidence(*numbers, counted=to_numpy(evidence.counted).astype(np.bool_))
    _check_evidence(seen, sent)
    held = to_numpy(np.zeros(sent.size) if extras["held"] is None else extras["held"]).astype(np.float64)
    if held.shape != sent.shape or not (held >= 0).all():
        raise RefusedError(f"`held` must be {sent.size} amounts of at least 0")
    metrics: Mapping[str, Any] = extras["metrics"] or {}
    return RoundInput(
        number=as_round(number),
        request=int(request),
        rule=rule[0],
        cost=rule[1],
        evidence=seen,
        participating=sent,
        gradients=_bytes("gradients", extras["gradients"], sent.size, length=32),
        signatures=_bytes("signatures", extras["signatures"], sent.size),
        notes=_notes(extras["notes"], sent.size),
        held=to_micro(held),
        metrics=canonical({clean(str(name)): _finite_or_none(value) for name, value in metrics.items()}),
        checkpoint=extras["checkpoint"],
    )


def as_round(number: Any) -> int:
    """Return a round's number as an integer, or raise."""
    whole = None if isinstance(number, bool) or not hasattr(number, "__index__") else operator.index(number)
    if whole is None or not 0 <= whole < LATEST:
        raise TypeError(f"`round` must be an integer of at least 0, got {number!r}")
    return whole


def _check_evidence(evidence: Evidence, sent: Any) -> None:
    for name, part in evidence._asdict().items():
        if part.shape != sent.shape:
            raise RefusedError(f"`{name}` must have one entry for each of the {sent.size} agents, got {part.shape}")
    if not all(np.isfinite(part).all() for part in evidence[:3]):
        raise RefusedError("`evidence` must hold finite numbers only, got NaN or infinity")
    if (evidence.deviation < 0).any() or (evidence.length < 0).any():
        raise RefusedError("`evidence` must come from `gather`: no deviation and no length is negative")
    if (evidence.counted & ~sent).any():
        raise RefusedError(
            f"`participating` must be the mask that `evidence` was gathered with, got False for agent "
            f"{int(np.argmax(evidence.counted & ~sent))}, which `evidence` counts"
        )


def _finite_or_none(value: Any) -> float | None:
    """Return a metric as JSON can hold it: a loss that is no number must not stop the pay."""
    return float(value) if math.isfinite(value) else None


def _bytes(name: str, values: Any, count: int, length: int | None = None) -> list[bytes | None]:
    given: Sequence[Any] = [None] * count if values is None else values
    taken = [None if value is None else bytes(value) for value in given]
    if len(taken) != count:
        raise RefusedError(f"`{name}` must have one entry for each of the {count} agents, got {len(taken)}")
    if length is not None and any(value is not None and len(value) != length for value in taken):
        raise RefusedError(f"`{name}` must be hashes of {length} bytes, as `gradient_hash` gives")
    return taken


def _notes(values: Sequence[str] | None, count: int) -> list[str]:
    taken = [""] * count if values is None else [clean(str(value))[:LONGEST_NOTE] for value in values]
    if len(taken) != count:
        raise RefusedError(f"`notes` must have one entry for each of the {count} agents, got {len(taken)}")
    return taken


def clean(text: str) -> str:
    """Return text that every database can keep: no NUL characters, no halves of surrogate pairs."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
