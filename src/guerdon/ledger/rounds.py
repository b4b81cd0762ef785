"""One round as the ledger keeps it: what came in checked, every reward recomputed, every row ready to be written."""

import hashlib
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from guerdon.arrays import check_positive_integer, to_numpy
from guerdon.evidence import Evidence
from guerdon.ledger import chain
from guerdon.ledger.canonical import canonical
from guerdon.ledger.errors import RefusedError
from guerdon.ledger.money import to_micro
from guerdon.ledger.recorded_rules import described
from guerdon.ledger.replay import largest_term
from guerdon.rules import Mechanism, Payments, Status
from guerdon.rules.mechanism import RESOLUTION

# What single precision may put between a reward as it was paid and as it is recomputed, relative to its largest term.
ROUNDING, REMEMBERED = 1e-4, 0.2
LATEST = 2**62  # no round has a greater number: databases hold 64 bits
LONGEST_NOTE = 500
LABELS = {status.value: status.label for status in Status}
NUMBERS = ("deviation", "length", "alignment", "distance", "expected_distance", "variance")


@dataclass(frozen=True)
class Round:
    """One round as it was handed in, in plain NumPy; `payments` are the caller's, not yet believed."""

    number: int
    request: int
    mechanism: Mechanism
    payments: Payments
    evidence: Evidence
    gradients: Sequence[bytes | None]
    signatures: Sequence[bytes | None]
    notes: Sequence[str]
    held: Any
    metrics: str
    checkpoint: bytes | None

    @property
    def participating(self) -> Any:
        """Who took part."""
        return self.payments.status != Status.DECLINED.value

    def recompute(self, state: Any) -> tuple[Payments, Any]:
        """Return the payments that follow from the evidence, and the next state; raise if they are not those given."""
        try:
            own, following = self.mechanism.pay(state, self.evidence, self.participating, self.request)
        except (ValueError, TypeError) as error:
            raise RefusedError(f"round {self.number} cannot be recomputed: {error}") from error
        slack = self._slack() * largest_term(self.mechanism, own, self.request, self.evidence.length) + 1e-6
        wrong = (own.status != self.payments.status) | ~(np.abs(own.reward - self.payments.reward) <= slack)
        if wrong.any():
            k = int(np.argmax(wrong))
            raise RefusedError(
                f"`payments` must be what the run's rule makes of `evidence`: agent {k} has "
                f"{self.payments.reward[k]:g} ({LABELS[int(self.payments.status[k])]}), the rule gives "
                f"{own.reward[k]:g} ({LABELS[int(own.status[k])]}); pass the `mechanism` that was used"
            )
        return own, following

    def payload(self, agents: Sequence[str]) -> bytes:
        """Return a hash of the whole round as it was handed in: the same call has the same one."""
        texts = [described(self.mechanism), self.request, self.metrics, list(agents), list(self.notes)]
        blobs = [
            [None if part is None else part.hex() for part in parts] for parts in (self.gradients, self.signatures)
        ]
        head = canonical([*texts, *blobs, None if self.checkpoint is None else self.checkpoint.hex()])
        numbers = np.array([*self.payments, *self.evidence, self.held], dtype="<f8") + 0.0
        numbers[np.isnan(numbers)] = np.nan  # there are many
        return hashlib.sha256(head.encode() + numbers.tobytes()).digest()

    def row(self, run: int, agents: Sequence[str]) -> dict[str, Any]:
        """Return the row of the round itself."""
        rule, cost = described(self.mechanism)
        return {
            "run": run,
            "number": self.number,
            "request": self.request,
            "rule": rule,
            "cost": cost,
            "metrics": self.metrics,
            "checkpoint": self.checkpoint,
            "payload": self.payload(agents),
        }

    def payment_columns(self, record: int, agents: Sequence[int], own: Payments, cut: Any) -> dict[str, Sequence[Any]]:
        """Return the columns of all payments, with their hashes."""
        numbers = np.zeros(len(agents), dtype=chain.PAYMENT)
        numbers["record"], numbers["position"], numbers["agent"] = record, np.arange(len(agents)), agents
        numbers["status"], numbers["amount"] = own.status, to_micro(own.reward)
        numbers["cut"], numbers["held"] = cut, self.held
        for source in (self.evidence, own):
            for name in set(NUMBERS) & set(source._fields):
                numbers[name] = getattr(source, name) + 0.0  # no negative zero: SQLite would not keep its sign
        sealed = chain.payment_hashes(numbers, self.gradients, self.signatures, self.notes)
        columns: dict[str, Sequence[Any]] = {name: numbers[name].tolist() for name in chain.PAYMENT.names or ()}
        columns["status"] = [LABELS[value] for value in columns["status"]]
        for name in ("distance", "expected_distance", "variance"):
            columns[name] = [None if value != value else value for value in columns[name]]  # NaN
        return columns | {"gradient": self.gradients, "signature": self.signatures, "note": self.notes, "hash": sealed}

    def columns(self) -> dict[str, list[Any]]:
        """Return what was handed in per agent, as the payments' columns have it."""
        return {
            "status": [LABELS[value] for value in self.payments.status.tolist()],
            **{name: (getattr(self.evidence, name) + 0.0).tolist() for name in ("deviation", "length", "alignment")},
            "gradient": list(self.gradients),
            "signature": list(self.signatures),
            "note": list(self.notes),
            "held": self.held.tolist(),
        }

    def _slack(self) -> Any:
        """Return what single precision may have changed in each reward, relative to its largest term.

        The others' squares are everybody's less its own: where it is most of them, digits are lost. A rule that
        remembers carries such losses on; what the ledger recomputes in double precision is what counts.
        """
        if self.mechanism.remembers:
            return REMEMBERED
        deviation, count = self.evidence.deviation, max(2, int(self.evidence.counted.sum()))
        squares = deviation.sum()
        of_others = np.maximum(squares - count / (count - 1) * deviation, RESOLUTION * squares)
        return ROUNDING + 1e-6 * squares / np.where(of_others > 0, of_others, 1.0)


def take_in(
    number: Any,
    request: Any,
    mechanism: Mechanism,
    payments: Payments,
    evidence: Evidence,
    agents: Sequence[str],
    extras: Mapping[str, Any],
) -> Round:
    """Return a round in plain NumPy, or raise if its parts are not of one size or make no sense."""
    check_positive_integer("request", request)
    plain = Payments(*(as_numpy(part, np.float64) for part in payments[:4]), status=as_numpy(payments.status, np.int64))
    numbers = [as_numpy(part, np.float64) for part in evidence[:3]]
    seen = Evidence(*numbers, counted=as_numpy(evidence.counted, np.bool_))
    _check_arrays(plain, seen, len(agents))
    held = as_numpy(extras["held"] if extras["held"] is not None else np.zeros(len(agents)), np.float64)
    if held.shape != (len(agents),) or not (held >= 0).all():
        raise RefusedError(f"`held` must be {len(agents)} amounts of at least 0")
    metrics: Mapping[str, Any] = extras["metrics"] or {}
    return Round(
        number=number,
        request=int(request),
        mechanism=mechanism,
        payments=plain,
        evidence=seen,
        gradients=_bytes("gradients", extras["gradients"], len(agents), length=32),
        signatures=_bytes("signatures", extras["signatures"], len(agents)),
        notes=_notes(extras["notes"], len(agents)),
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


def _check_arrays(payments: Payments, evidence: Evidence, count: int) -> None:
    for name, part in [*payments._asdict().items(), *evidence._asdict().items()]:
        if part.shape != (count,):
            raise RefusedError(f"`{name}` must have one entry for each of the {count} agents, got shape {part.shape}")
    if not all(np.isfinite(part).all() for part in evidence[:3]):
        raise RefusedError("`evidence` must hold finite numbers only, got NaN or infinity")
    if (evidence.deviation < 0).any() or (evidence.length < 0).any():
        raise RefusedError("`evidence` must come from `gather`: no deviation and no length is negative")
    if not set(payments.status.tolist()) <= set(LABELS):
        raise RefusedError(f"`status` must hold values of `Status`, got {payments.status.tolist()}")


def _finite_or_none(value: Any) -> float | None:
    """Return a metric as JSON can hold it: a loss that is no number must not stop the pay."""
    return float(value) if math.isfinite(value) else None


def as_numpy(array: Any, dtype: Any) -> Any:
    """Return an array of any library as NumPy's."""
    return to_numpy(array).astype(dtype)


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
