"""Which of its rows a member is to use in a round, and the seed of all other randomness: anybody can compute both.

A member's rows are a deck of cards. Each round its seed deals the next cards from what is left, one after the other:
of m cards left each comes next with chance 1/m. When the deck is used up it is gathered, and a new *pass* begins. So

- each row is used once before any is used again, and every order of a pass is equally likely;
- nobody can predict a row before the round is asked for, not even from all earlier rounds of the pass. (A permutation
  that is fixed for a pass would need a counter only, but its first round would name the rows of all later ones.)
- the cards left follow from earlier rounds: `used` lists their seeds, and how many rows the member used of each.

Every round has one fresh number (`new_number`), which the ask carries and the ledger records. `member_seeds` derives
from it the two seeds of each member, bound to ledger, run and round. Who picks the number could try several until it
names rows that it likes. That changes nobody's pay: which round is looked at is drawn elsewhere, after the reports.

What counts as used, so that both sides agree at the next ask:

- A round counts as soon as the member's report is recorded with the number S of rows that it used: the first S of
  those named. The others are left in the deck, and the next seed deals from all that is left.
- A round that the member declined or missed, or whose report was refused, uses nothing. Its rows are left in the deck
  too: declining can delay a row within a pass, at the price of a round's pay, but not avoid it.
- What a later look finds changes nothing: it would change rows that were named meanwhile.
- When the size changes (another root, or a stream whose size was fixed anew) a new pass over all rows begins, and
  `used` begins with the first round under the new size. A size is fixed before the round's number is drawn.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import check_positive_integer
from guerdon.looks.encoding import encode_row
from guerdon.looks.opening import Committed, RootChange, committed_in

NUMBER = 32  # bytes of a round's number and of a seed: nobody finds one by trying


class Seeds(NamedTuple):
    """A member's two seeds in a round: of the rows that it is to use, and of all other randomness of its work.

    `work` is from 0 to 2**63 - 1: what `random`, NumPy and PyTorch take; JAX takes it in its 64-bit mode.
    """

    rows: bytes
    work: int


class NamedRound(NamedTuple):
    """What the ask of a round carries for looks, 32 bytes each; the ledger records it with the round.

    `number`: fresh, rows and seeds follow from it. `server`, `auditor`: their commitments to their nonces of the coin
    (`guerdon.looks.draw`). `model`: the hash of what was broadcast (`guerdon.looks.recompute.arrays_hash`).
    """

    number: bytes
    server: bytes
    auditor: bytes
    model: bytes


class Used(NamedTuple):
    """A recorded round in which a member took part: its seed of rows, and how many of the named rows it used."""

    seed: bytes
    rows: int


def new_number() -> bytes:
    """Return the fresh number of a round."""
    return secrets.token_bytes(NUMBER)


def member_seeds(number: bytes, *, ledger: str, run: str, round: int, member: str) -> Seeds:
    """Return a member's seeds of a round: HMAC-SHA-256 of who and when, under the round's number.

    >>> seeds = member_seeds(bytes(32), ledger="heart", run="run 1", round=7, member="Bern")
    >>> named_rows(seeds.rows, size=600, used=[], count=4), seeds.work
    (array([...]), ...)
    """
    if type(number) is not bytes or len(number) != NUMBER:
        raise ValueError(f"`number` must be {NUMBER} bytes: use `new_number`")
    context = encode_row(("guerdon seeds 1", ledger, run, round, member))
    rows, work = (hmac.digest(number, what + context, "sha256") for what in (b"rows", b"work"))
    return Seeds(rows, int.from_bytes(work[:8], "little") >> 1)


def named_rows(seed: bytes, size: int, used: Sequence[tuple[bytes, int]], count: int) -> Any:
    """Return the indices of the rows that a round names, in the order in which they are to be used.

    `seed` is the member's seed of rows, `size` how many rows it has committed, `used` a `Used` for each earlier round
    since the size last changed, `count` how many rows are asked for. The first S are the same for every count ≥ S. A
    round may reach into the next pass, and a count above `size` goes through several: a row is then named again, and
    is used again.

    >>> first = named_rows(b"1" * 32, size=6, used=[], count=4)
    >>> later = named_rows(b"2" * 32, size=6, used=[Used(b"1" * 32, 3)], count=3)
    >>> sorted([*first[:3], *later]) == list(range(6))
    True
    """
    check_positive_integer("size", size)
    deck, start = Deck(size), rows_used(used) // size * size
    before = 0
    for earlier, rows in used:
        deck.deal(earlier, rows, skip=min(rows, max(0, start - before)))  # passes that are complete leave nothing
        before += rows
    return deck.peek(seed, count)


def rows_used(used: Sequence[tuple[bytes, int]]) -> int:
    """Return how many rows were used in recorded rounds: the counter that both sides compute."""
    for _, rows in used:
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"`used` must have whole numbers of at least 0, got {rows!r}")
    return sum(rows for _, rows in used)


class Deck:
    """The rows of a member from round to round: `named_rows` without going through all earlier rounds again.

    `peek` names rows, and `deal` takes those that were used. It is a shuffle after Fisher and Yates, whose random words
    come from the seed of the round in which a card is dealt. It holds the places that differ from an unshuffled deck.

    >>> deck = Deck(6)
    >>> named = deck.peek(b"1" * 32, 4)
    >>> bool((deck.deal(b"1" * 32, 3) == named[:3]).all())  # the member used three of four
    True
    """

    def __init__(self, size: int) -> None:
        check_positive_integer("size", size)
        self.size = size
        self._next, self._moved = 0, dict[int, int]()  # place of the next card, and cards that are not at their place

    def deal(self, seed: bytes, count: int, skip: int = 0) -> Any:
        """Take and return the next rows, less those of the first `skip` words of the seed."""
        rows: list[int] = []
        for word in _words(seed, count)[skip:]:
            if self._next == self.size:
                self._next = 0  # all cards were taken from where they had been moved to
            place = self._next + word % (self.size - self._next)
            card = self._moved.pop(self._next, self._next)
            if place != self._next:
                card, self._moved[place] = self._moved.get(place, place), card
            rows.append(card)
            self._next += 1
        return np.array(rows, dtype=np.int64)

    def peek(self, seed: bytes, count: int) -> Any:
        """Return the next rows, and leave them in the deck."""
        check_positive_integer("count", count)
        other = Deck(self.size)
        other._next, other._moved = self._next, self._moved.copy()
        return other.deal(seed, count)


def _words(seed: bytes, count: int) -> list[int]:
    """Return random words of 64 bits. Modulo a size of a million a card is too likely by at most 5e-14."""
    if type(seed) is not bytes or len(seed) != NUMBER:
        raise ValueError(f"`seed` must be {NUMBER} bytes: use `member_seeds`")
    stream = hashlib.shake_256(b"guerdon rows 1" + seed).digest(8 * count)
    return np.frombuffer(stream, dtype="<u8").tolist()


def work_hash(named: NamedRound, code: str) -> bytes:
    """Return the hash of the work of a round, which a member's signature covers: its number, model and code."""
    return hashlib.sha256(encode_row(("guerdon work 1", named.number, named.model, code))).digest()


def used_before(
    changes: Sequence[RootChange], recorded: Sequence[tuple[int, Used]], round: int
) -> tuple[Committed, list[Used]]:
    """Return what counts of a member's roots in a round, and what it has used of these rows in earlier rounds.

    `changes`: its roots. `recorded`: the rounds in which its report counted, in order, each with what it used. Another
    root or another size begins a new pass.
    """
    committed = committed_in(changes, round)
    begin, counting = (
        round,
        {change.from_round: change.committed for change in changes},
    )  # of two for one round the later
    for start in sorted((start for start in counting if start <= round), reverse=True):
        if (counting[start].root, counting[start].size) != (committed.root, committed.size):
            break
        begin = start
    return committed, [used for number, used in recorded if begin <= number < round]
