"""What an auditor signs after a look: the outcome, with the numbers and reasons that others can repeat.

A verdict that says "passed" must hold an error within the tolerance for every tensor, and one that says "failed" a
reason. It names the report and the root of the rows that it is of, and the code that computed the work: so two auditors
who look at the same thing can be compared number by number.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from guerdon.arrays import check_positive_integer
from guerdon.canonical import canonical
from guerdon.looks.isolation import Ran
from guerdon.looks.outcomes import Outcome
from guerdon.looks.recompute import Comparison

SIGNED = Outcome.PASSED, Outcome.FAILED, Outcome.UNANSWERED, Outcome.UNREPEATABLE  # silence is not signed
HASHES = "root", "report", "code", "replaces", "task", "answer"


@dataclass(frozen=True)
class Verdict:
    """The outcome of the look at one member's round.

    `ledger`, `run`, `round`, `member`: whose work it is. `look`: the number that the ledger gave to this look. `root`:
    of the rows that the member had committed to. `report`: the hash of what it had sent. `code`: the hash of the
    function's source. `replaces`: the hash of the verdict that an appeal is against. All hashes are SHA-256 in
    hexadecimal, "" where there is none. `network`: how the process was kept from the network, "" where none ran.

    `task`: the hash of all that was looked at (`guerdon.looks.exchange.Subject`): rows, seed and model too. So
    everybody can see that the auditor was told what the ledger says. `answer`: the hash of the sealed answer that was
    judged; "" where the auditor had the rows at the member's site.

    `errors`, `tolerance`: of `recompute.compare`, by tensor. `reasons`: sentences, none where the look is passed.
    """

    ledger: str
    run: str
    round: int
    look: int
    member: str
    root: str
    report: str
    outcome: Outcome
    errors: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    tolerance: Mapping[str, float] = field(default_factory=dict[str, float])
    reasons: tuple[str, ...] = ()
    code: str = ""
    network: str = ""
    replaces: str = ""
    task: str = ""
    answer: str = ""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def message(self) -> bytes:
        """The bytes that are signed."""
        return b"guerdon verdict 1\n" + canonical(self.to_dict()).encode()

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict in the types of JSON."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return values | {"outcome": self.outcome.value, "reasons": list(self.reasons)}


class SignedVerdict(NamedTuple):
    """A verdict with the raw Ed25519 public key of the auditor, and its signature."""

    verdict: Verdict
    public_key: bytes
    signature: bytes

    def to_json(self) -> str:
        """Return the verdict as it is kept in a file."""
        kept = {
            "verdict": self.verdict.to_dict(),
            "public_key": self.public_key.hex(),
            "signature": self.signature.hex(),
        }
        return json.dumps(kept, indent=2, ensure_ascii=False) + "\n"


def sign(verdict: Verdict, key: Ed25519PrivateKey) -> SignedVerdict:
    """Return the verdict, signed.

    >>> key = Ed25519PrivateKey.generate()
    >>> verdict = Verdict("books", "heart", 7, 1, "Basel", "ab" * 32, "cd" * 32, Outcome.UNANSWERED)
    >>> signed = sign(verdict, key)
    >>> read(signed.to_json(), auditor=signed.public_key.hex()) == verdict
    True
    """
    return SignedVerdict(verdict, key.public_key().public_bytes_raw(), key.sign(verdict.message))


def verdict_hash(text: str) -> str:
    """Return the SHA-256 of the signed bytes of a verdict's file, in hexadecimal: what an appeal `replaces`.

    The signature is not checked here.
    """
    return hashlib.sha256(signed_from(text).verdict.message).hexdigest()


def signed_from(text: str) -> SignedVerdict:
    """Return what a verdict's file says, or raise a ValueError where it makes no sense; `read` checks who signed it."""
    try:
        kept = json.loads(text)
        named = kept["verdict"]
        verdict = Verdict(**named | {"outcome": Outcome(named["outcome"]), "reasons": tuple(named["reasons"])})
        public_key, signature = bytes.fromhex(kept["public_key"]), bytes.fromhex(kept["signature"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"a verdict must be a file that `guerdon look` wrote: {error}") from error
    return SignedVerdict(verdict, public_key, signature)


def read(text: str, auditor: str) -> Verdict:
    """Return the verdict in a file, or raise a ValueError unless it makes sense and this auditor signed it.

    `auditor`: the public key that the terms of the run name, in hexadecimal.
    """
    verdict, public_key, signature = signed_from(text)
    if public_key.hex() != auditor:
        got = f"{public_key.hex()[:16]}…"
        raise ValueError(f"a verdict must be signed by the auditor of the terms, {auditor[:16]}…, got one of {got}")
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, verdict.message)
    except (InvalidSignature, ValueError):
        raise ValueError("a verdict must be as its auditor signed it: this one was changed afterwards") from None
    return verdict


def judged(
    ran: Ran,
    comparison: Comparison | None,
    control: Ran | None = None,
    control_comparison: Comparison | None = None,
) -> tuple[Outcome, tuple[str, ...]]:
    """Return the outcome of a look, and its reasons.

    `ran`: the work on the member's rows; `comparison`: with its report, where the work was done. `control`: the same
    work on rows of the auditor's own, as many and of the same kind. `control_comparison`: between two auditors, on
    these rows. Neither may come from the member: one that cheated would make them fail.

    - Work that is done and agrees has passed. If it differs, it failed; but where two auditors differ on control rows
      too, nobody can repeat it.
    - Work that crashed or took too long has failed if it is done on control rows: the member cannot have done it
      either. Without that, the fault may be the auditor's.
    """
    if ran.ending == "done" and comparison is not None:
        if comparison.passed:
            return Outcome.PASSED, ()
        if control_comparison is None or control_comparison.passed:
            return Outcome.FAILED, comparison.reasons
        return Outcome.UNREPEATABLE, tuple(f"control rows: {why}" for why in control_comparison.reasons)
    if control is not None and control.ending == "done":
        return Outcome.FAILED, (
            f"on the member's rows the work could not be done, on control rows it could: {ran.reason}",
        )
    return Outcome.UNREPEATABLE, (f"the work could not be done: {ran.reason}",)


def _check(verdict: Verdict) -> None:
    """Raise unless a verdict is complete and does not contradict itself."""
    for name in ("ledger", "run", "member", "network"):
        if not isinstance(getattr(verdict, name), str):
            raise TypeError(f"`{name}` must be text, got {getattr(verdict, name)!r:.80}")
    if isinstance(verdict.round, bool) or not isinstance(verdict.round, int) or verdict.round < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"`round` must be the number of a round, got {verdict.round!r}")
    check_positive_integer("look", verdict.look)
    for name in HASHES:
        _check_hash(name, getattr(verdict, name), needed=name in ("root", "report"))
    if verdict.outcome not in SIGNED:
        raise ValueError(f"`outcome` must be one that is signed, got {verdict.outcome!r}")
    for name, numbers in (("errors", verdict.errors), ("tolerance", verdict.tolerance)):
        _check_numbers(name, numbers)
    if not all(isinstance(why, str) for why in verdict.reasons):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"`reasons` must be sentences, got {verdict.reasons!r:.80}")
    _check_outcome(verdict)


def _check_hash(name: str, value: object, *, needed: bool) -> None:
    text = value if isinstance(value, str) else " "
    if not (text == "" and not needed) and (len(text) != 64 or not set(text) <= set("0123456789abcdef")):
        raise ValueError(f"`{name}` must be a SHA-256 in hexadecimal, got {value!r:.80}")


def _check_numbers(name: str, numbers: object) -> None:
    pairs = numbers.items() if isinstance(numbers, Mapping) else [(None, numbers)]  # pyright: ignore[reportUnknownVariableType]
    for tensor, number in pairs:  # pyright: ignore[reportUnknownVariableType]
        is_none = number is None and name == "errors"
        is_number = isinstance(number, float) and 0 <= number < float("inf")
        if not isinstance(tensor, str) or not (is_none or is_number):
            raise ValueError(
                f"`{name}` must have a number of at least 0 for each tensor, got {number!r:.80} for {tensor!r}"
            )


def _check_outcome(verdict: Verdict) -> None:
    beyond = [
        name for name, error in verdict.errors.items() if error is None or error > verdict.tolerance.get(name, 0.0)
    ]
    if verdict.outcome is Outcome.PASSED and (beyond or verdict.reasons or not verdict.errors):
        what = (
            f"tensor {beyond[0]!r} beyond the tolerance" if beyond else "no errors" if not verdict.errors else "reasons"
        )
        raise ValueError(f"`outcome` must not be 'passed' in a verdict with {what}")
    if verdict.outcome in (Outcome.FAILED, Outcome.UNREPEATABLE) and not verdict.reasons:
        raise ValueError(f"`reasons` must say why a look {verdict.outcome.value}, got none")
