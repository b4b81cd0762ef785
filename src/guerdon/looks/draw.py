"""Which rounds are looked at: M candidates per member, kept by weighted reservoir sampling.

Round t has the weight f_t, the pay that is held for it, and F_t = f_1 + … + f_t. When the round is closed, it replaces
candidate m with chance f_t / F_t. So at any time each candidate is round s with chance f_s / F_t, and

    Y_t = F_t · 1{candidate was worked} − Σ f_s over worked rounds s ≤ t

is a martingale for whatever members do: cheating in a round is worth what declining it is worth.

**The coin** of a round comes from three contributions. The order matters:

1. the ask carries two commitments: hashes of a nonce of the server, and of a nonce of the auditor;
2. the round closes: `reports_hash` of all signed reports *and weights* is recorded; nothing in it can change any more;
3. the auditor opens its nonce, then the server opens its own; the ledger checks both against the commitments.

One number per round and look is shared by all members. Members of equal pay have equal candidates, so that an archive
holds M rounds, and members × M at most where pay differs.

**A refusal.** Who opens last knows the coin, and may refuse to open. So a coin that is not complete at the deadline
is `None`, and the round *joins* every candidate instead of replacing it: both are looked at. That is never better for
a member that cheated than either side of the coin, and costs an honest member nothing but one more look. Without any
coin every round is looked at.

A round that was closed stays closed: it is never asked again, whatever its coin is.

**Who can steer the coin, and what for.** "Nothing" means that no cheat earns more than declining would.

- *Members*, any number of them, know neither nonce: nothing.
- *The server with members* knows its own nonce, and chooses which late report counts, but the auditor's nonce is
  opened after that: nothing, as long as the auditor opens a round once, for reports that it has seen closed. A server
  that is told the nonce, goes back to a copy of its ledger and records other reports, chooses the coin: the commitment
  does not bind the auditor's nonce to the reports. By refusing the server can cause more looks.
- *The auditor with members*: nothing by the coin. It could sign a false verdict, or stay silent.
- *Server and auditor together* know the coin of every set of reports before they fix one. With a member they can see
  to it that its cheats are never looked at: it is paid without work. An honest member loses nothing by any coin,
  because each of its rounds passes.

All arithmetic is in Python's integers: every machine draws the same rounds.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from guerdon.arrays import check_positive_integer
from guerdon.canonical import canonical

BITS = 256  # of a coin: a chance f/F is met to within 2⁻²⁵⁶
ROLES = "server", "auditor"  # who contributes; bound into the commitment, so that nobody can copy the other's
LEAST_SECRET = 16  # bytes: a nonce that can be guessed is none


class Candidates(NamedTuple):
    """What is held of one member in a period, and the rounds that would be looked at if it ended now.

    `weight` is F in micro-units. `rounds` has an entry for each look: no round before anything is held, one round, or
    more where coins were refused.
    """

    weight: int
    rounds: tuple[tuple[int, ...], ...]

    @property
    def due(self) -> tuple[int, ...]:
        """The rounds to look at when the period ends, the member leaves or the run ends: each once, in order."""
        return tuple(sorted({number for look in self.rounds for number in look}))


class Reported(NamedTuple):
    """One line of a closed round: what a member sent, and the weight in micro-units that the round has for it."""

    member: str
    weight: int
    report: bytes | None  # hash of the report; None: nothing was sent
    signature: bytes | None


class Draw(NamedTuple):
    """What everybody needs to compute a round's coins: two commitments, the hash of the reports, two openings.

    A nonce is None where its owner had not opened it at the deadline.
    """

    ledger: str
    run: str
    round: int
    server: bytes
    auditor: bytes
    reports: bytes
    server_nonce: bytes | None
    auditor_nonce: bytes | None


def begin(looks: int) -> Candidates:
    """Return the state of a member at the start of a period, or when it joins: nothing is held.

    `looks` is M of the terms. A member whose evidence is odd may have more looks, from its next period on.
    """
    check_positive_integer("looks", looks)
    return Candidates(0, ((),) * looks)


def kept(state: Candidates, weight: int, round: int, coins: Sequence[int | None]) -> Candidates:
    """Return the state after a closed round.

    `weight`: what is held for the round, f_t, in micro-units; 0 where the member is paid nothing, which changes
    nothing. `round`: its number. `coins`: one for each look at least (see `coins`), None where an opening was refused.

    >>> state = kept(begin(looks=2), weight=17_000_000, round=1, coins=[0, 0])
    >>> kept(state, weight=17_000_000, round=2, coins=[2**255 - 1, 2**255])  # replaces below one half
    Candidates(weight=34000000, rounds=((2,), (1,)))
    >>> kept(state, weight=17_000_000, round=2, coins=[None, None]).due  # refused: both are looked at
    (1, 2)
    """
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"`weight` must be a whole number of micro-units of at least 0, got {weight!r}")
    if len(coins) < len(state.rounds):
        raise ValueError(f"`coins` must have one for each of the {len(state.rounds)} looks, got {len(coins)}")
    if any(number >= round for look in state.rounds for number in look):
        raise ValueError(f"`round` must come after the rounds that are kept, {state.due}, got {round}: apply each once")
    if weight == 0:
        return state
    total = state.weight + weight
    pairs = zip(state.rounds, coins, strict=False)
    return Candidates(total, tuple(_after(look, round, weight, total, coin) for look, coin in pairs))


def _after(look: tuple[int, ...], round: int, weight: int, total: int, coin: int | None) -> tuple[int, ...]:
    if coin is None:
        return (*look, round)
    return (round,) if coin * total < weight << BITS else look


def nonce(secret: bytes, role: str, ledger: str, run: str, round: int) -> bytes:
    """Return the nonce of the server or the auditor for a round, from a secret that it never shows.

    So nothing has to be kept for every round, and a restarted program opens what it committed to.
    """
    if len(secret) < LEAST_SECRET:
        raise ValueError(f"`secret` must have {LEAST_SECRET} bytes or more, got {len(secret)}: secrets.token_bytes(32)")
    return hmac.new(secret, _text("guerdon coin nonce 1", _role(role), ledger, run, round), "sha256").digest()


def commitment(nonce: bytes, role: str, ledger: str, run: str, round: int) -> bytes:
    """Return the hash of a nonce that the ask of the round carries; the role and the round are part of it.

    >>> mine = nonce(b"a secret of the server", "server", "books", "heart", 1)
    >>> commitment(mine, "server", "books", "heart", 1) == commitment(mine, "auditor", "books", "heart", 1)
    False
    """
    return hashlib.sha256(_text("guerdon coin commitment 1", _role(role), ledger, run, round, nonce.hex())).digest()


def reports_hash(reports: Iterable[Reported]) -> bytes:
    """Return the hash of all signed reports and weights of a round, in the order of the members' names."""
    lines = sorted(reports, key=lambda line: line.member)
    if len({line.member for line in lines}) < len(lines):
        raise ValueError(f"`reports` must name each member once, got {[line.member for line in lines]!r}")
    return hashlib.sha256(_text("guerdon round reports 1", *(_line(line) for line in lines))).digest()


def coins(draw: Draw, looks: int) -> tuple[int | None, ...]:
    """Return the coin of each look at a round, from 0 to 2²⁵⁶ − 1; None for all where a nonce was not opened.

    Raises ValueError where a nonce is not what its owner had committed to: such an opening must not be recorded.
    """
    check_positive_integer("looks", looks)
    return tuple(_number(draw, "candidate", look) for look in range(looks))


def segments(draw: Draw, look: int, number: int) -> tuple[int, ...]:
    """Return which of `number` segments of a round are looked at, counted from 0: one; all where a nonce is missing.

    Local training of many steps is looked at in segments. The signed report holds the hash of the model at the end of
    each, so that the segment is drawn after these are fixed. With segments of equal cost the theorem holds for each as
    it does for rounds: a segment that was not worked is found with chance 1/`number` when its round is looked at.
    """
    check_positive_integer("number", number)
    drawn = _number(draw, "segment", look)
    return tuple(range(number)) if drawn is None else (drawn * number >> BITS,)


def _number(draw: Draw, what: str, look: int) -> int | None:
    """Return 256 bits that depend on all three contributions, what is drawn and for which look."""
    opened = _opening(draw, "server"), _opening(draw, "auditor")
    if opened[0] is None or opened[1] is None:
        return None
    parts = draw.ledger, draw.run, draw.round, opened[0].hex(), opened[1].hex(), draw.reports.hex(), what, look
    return int.from_bytes(hashlib.sha256(_text("guerdon coin 1", *parts)).digest(), "big")


def _opening(draw: Draw, role: str) -> bytes | None:
    committed, opened = (draw.server, draw.server_nonce) if role == "server" else (draw.auditor, draw.auditor_nonce)
    if opened is not None and commitment(opened, role, draw.ledger, draw.run, draw.round) != committed:
        raise ValueError(
            f"`{role}_nonce` must be what round {draw.round} of run {draw.run!r} has the commitment of, "
            f"{committed.hex()[:16]}…, got another: take it for a refusal"
        )
    return opened


def _role(role: str) -> str:
    if role not in ROLES:
        raise ValueError(f"`role` must be one of {', '.join(map(repr, ROLES))}, got {role!r}")
    return role


def _line(line: Reported) -> list[str | int | None]:
    sent = (None if part is None else part.hex() for part in (line.report, line.signature))
    return [line.member, line.weight, *sent]


def _text(*parts: object) -> bytes:
    return canonical(list(parts)).encode()
