"""A run under looks in a ledger: three members that commit to rows, and two auditors; time passes when a test says."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from guerdon import AffineCost, FlatPay, gather, round_of
from guerdon.ledger import Ledger, gradient_hash
from guerdon.ledger.books.tables import EPOCH
from guerdon.ledger.pay.looking import OpenLook
from guerdon.looks import draw
from guerdon.looks.commitment import Commitment
from guerdon.looks.naming import NamedRound
from guerdon.looks.outcomes import Outcome
from guerdon.looks.verdict import SignedVerdict, Verdict, sign
from guerdon.terms import Looks, Terms

NAMES = ["Basel", "Lyon", "Porto"]
RULE = FlatPay(AffineCost(1, 1))
REQUEST = 8  # costs 9 units, and is paid 9.45
AUDITOR, SECOND = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in (1, 2))
SERVER_SECRET, AUDITOR_SECRET = b"s" * 32, b"a" * 32
RUN = "knee"


def public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


LOOKS = Looks(
    period=4, looks=2, auditor=public(AUDITOR), second_auditor=public(SECOND), answer=100, verdict=100, appeal=100,
    work="task:work", code="ab" * 32,
)  # fmt: skip


def rows_of(name: str) -> Any:
    return np.random.default_rng(NAMES.index(name)).normal(size=(40, 3)).astype(np.float32)


def commitment_of(ledger: Ledger, name: str) -> Commitment:
    return Commitment.of(rows_of(name), ledger=ledger.name, run=RUN, member=name, secret=b"m" * 32)


class Clock:
    """The journal's time: `now` is in seconds since 1970."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000
        told = SimpleNamespace(now=lambda _: EPOCH + timedelta(seconds=self.now))
        monkeypatch.setattr("guerdon.ledger.books.journal.datetime", told)
        monkeypatch.setattr("secrets.token_hex", lambda _: "0" * 32)  # the ledger's name: the coins hang on it


def begin(ledger: Ledger, hold: Looks = LOOKS, names: Iterable[str] = NAMES) -> None:
    """Commit, and begin the run."""
    for name in names:
        ledger.looks.commit(commitment_of(ledger, name).committed())
    ledger.start_run(RUN, list(names), RULE, Terms(hold))


def named(ledger: Ledger, number: int) -> NamedRound:
    """Return what the ask of a round carries."""
    nonces = {role: nonce_of(ledger, role, number) for role in draw.ROLES}
    own = [draw.commitment(nonces[role], role, ledger.name, RUN, number) for role in draw.ROLES]
    return NamedRound(bytes([number]) * 32, own[0], own[1], b"model".ljust(32))


def nonce_of(ledger: Ledger, role: str, number: int) -> bytes:
    secret = SERVER_SECRET if role == "server" else AUDITOR_SECRET
    return draw.nonce(secret, role, ledger.name, RUN, number)


def report_of(name: str, number: int) -> Any:
    return np.random.default_rng([NAMES.index(name), number]).normal(size=5)


def play(
    ledger: Ledger,
    number: int,
    *,
    absent: Iterable[str] = (),
    is_last: bool = False,
    names: Iterable[str] = NAMES,
    **rest: Any,
) -> None:
    """Record a round: all members but those `absent` send a report."""
    names, sent = list(names), np.array([name not in set(absent) for name in names])
    reports = np.stack([report_of(name, number) for name in names])
    told = round_of(gather(reports, sent), sent, REQUEST, is_last=is_last)
    gradients = [gradient_hash([report]) if there else None for report, there in zip(reports, sent, strict=True)]
    arguments: dict[str, Any] = {"agents": names, "gradients": gradients, "work": named(ledger, number)} | rest
    ledger.record_round(RUN, number, told, **arguments)


def draw_coins(ledger: Ledger, number: int, *, refused: str = "") -> None:
    nonces = [None if role == refused else nonce_of(ledger, role, number) for role in draw.ROLES]
    ledger.looks.draw(RUN, number, *nonces)


def play_period(ledger: Ledger, first: int = 1, rounds: int = 4, **rest: Any) -> None:
    """Record rounds with their coins."""
    for number in range(first, first + rounds):
        play(ledger, number, **rest)
        draw_coins(ledger, number)


def verdict_on(
    ledger: Ledger,
    look: OpenLook,
    outcome: Outcome = Outcome.PASSED,
    /,
    *,
    by: Ed25519PrivateKey = AUDITOR,
    **other: Any,
) -> SignedVerdict:
    """Return a signed verdict on a look; `other` parts of it may be wrong."""
    root = ledger.looks.changes(RUN)[look.member][-1].committed.root
    told: dict[str, Any] = {
        "ledger": ledger.name, "run": RUN, "round": look.round, "look": look.number, "member": look.member,
        "root": root.hex(), "report": gradient_hash([report_of(look.member, look.round)]).hex(), "outcome": outcome,
        "errors": {"w": 0.0} if outcome is Outcome.PASSED else {}, "tolerance": {"w": 1e-6},
        "reasons": () if outcome is Outcome.PASSED else ("tensor 'w' differs",),
    } | other  # fmt: skip
    return sign(Verdict(**told), by)


def pass_all(ledger: Ledger, *, but: Mapping[str, Outcome] | None = None) -> None:
    """Answer and pass every open look, but those of some members."""
    for look in ledger.looks.open(RUN):
        outcome = (but or {}).get(look.member, Outcome.PASSED)
        ledger.looks.answer(RUN, look.number, look.number.to_bytes(32, "big"))
        ledger.looks.verdict(verdict_on(ledger, look, outcome).to_json())


def watched(ledger: Ledger, clock: Clock, hold: Looks = LOOKS) -> None:
    """Play eleven rounds: a period in which Lyon failed its looks, one whose looks are open, and three rounds more.

    Of the open looks Lyon's are failed, Porto's are answered, and Basel's wait for its rows.
    """
    begin(ledger, hold)
    play_period(ledger)
    pass_all(ledger, but={"Lyon": Outcome.FAILED})
    clock.now += hold.appeal + 1
    ledger.looks.settle(RUN)
    play_period(ledger, 5)
    for look in ledger.looks.open(RUN):
        if look.member != "Basel":
            ledger.looks.answer(RUN, look.number, look.number.to_bytes(32, "big"))
        if look.member == "Lyon":
            ledger.looks.verdict(verdict_on(ledger, look, Outcome.FAILED).to_json())
    play_period(ledger, 9, 3)
