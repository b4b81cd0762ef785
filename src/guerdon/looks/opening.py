"""Records of commitments, and rows that a member opens: what an auditor needs, who has neither rows nor secret.

A leaf of the tree is the hash of the following, one after the other; numbers have 8 bytes, little-endian.

    SHA-256 of ("guerdon row 1", ledger, run, member), written as a row
    index of the row, from 0
    size: how many rows were committed; 0 for a stream, whose size grows
    salt of 32 bytes
    the row, in the form of `guerdon.looks.encoding`

What catches what:

- A row that was changed after the commitment, another row at its place, a wrong size: the proof, which fixes leaf,
  place and size under the root.
- Rows of another member or of an earlier run, with the proofs that were opened there: ledger, run and member in the
  leaf.
- One row committed 600 times: salts make all leaves different, so the tree cannot show it. The record says how many
  rows are `distinct`: 1 here, for everybody to see. A member that claims 600 is refused as soon as two equal rows are
  opened. Data that honestly repeat themselves lose nothing by saying so.
- The same rows under two names: nothing here. `guerdon.looks.digests` compares every row of all members.
- Rows that are nearly equal, or not true: nothing here. An auditor finds them who compares rows with their sources.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from guerdon.looks.encoding import decode_row, encode_row
from guerdon.merkle import HASH, check_consistency, check_inclusion, leaf_hash

FORMAT, VERSION = "guerdon-commitment", 1
OPENING = "guerdon opening 1"


class OpeningError(ValueError):
    """What a member opened is not what it had committed to. `row` is the index that fails, None for the whole."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class Committed(NamedTuple):
    """What everybody sees, and the ledger records: who committed, the root, how many rows, and how many differ.

    The rows of a `stream` grow: `size` is then the number that counts from this record on.
    """

    ledger: str
    run: str
    member: str
    root: bytes
    size: int
    distinct: int
    stream: bool = False

    def to_json(self) -> str:
        """Return the record as it is kept in a file or sent."""
        return json.dumps({"format": FORMAT, "version": VERSION, **self._asdict(), "root": self.root.hex()})

    @classmethod
    def from_json(cls, text: str) -> "Committed":
        """Return a record from its text, or raise."""
        try:
            read: dict[str, Any] = json.loads(text)
            if (read.pop("format"), read.pop("version")) != (FORMAT, VERSION):
                raise ValueError(f"it is not of format {FORMAT!r}, version {VERSION}")
            read["root"] = bytes.fromhex(read["root"])
            found = cls(**read)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"a commitment must be what `Committed.to_json` wrote: {error}") from error
        return _checked(found)


class RootChange(NamedTuple):
    """A member's new root, and the first round whose rows are named from it: the first of the next period.

    The rounds of a period that has begun stay with the root that was recorded before it.
    """

    committed: Committed
    from_round: int


def committed_in(changes: Sequence[RootChange], round: int) -> Committed:
    """Return what counts in a round: the last of a member's changes that is in effect.

    >>> first = Committed("heart", "run 1", "Bern", bytes(32), size=600, distinct=600)
    >>> committed_in([RootChange(first, 0), RootChange(first._replace(size=650), 50)], round=49).size
    600
    """
    found = [change for change in changes if change.from_round <= round]
    if not found:
        raise ValueError(f"`changes` must have a root from round {round} on, got {[c.from_round for c in changes]}")
    return max(reversed(found), key=lambda change: change.from_round).committed  # of two for one round the later


@dataclass(frozen=True, slots=True)
class OpenedRow:
    """One row as the auditor receives it: its index, bytes, salt, and the hashes that lead to the root."""

    index: int
    data: bytes
    salt: bytes
    proof: tuple[bytes, ...]


class Opening(NamedTuple):
    """The rows that a member opens, of the first `size` rows. `to_bytes` is what gets sealed; it holds data only."""

    size: int
    rows: tuple[OpenedRow, ...]

    def to_bytes(self) -> bytes:
        """Return the opening as bytes."""
        rows = tuple((row.index, row.data, row.salt, b"".join(row.proof)) for row in self.rows)
        return encode_row((OPENING, self.size, rows))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Opening":
        """Return an opening from its bytes, or raise `OpeningError`."""
        try:
            read = decode_row(data)
        except ValueError as error:
            raise OpeningError(f"an opening must be what `Opening.to_bytes` wrote: {error}") from error
        if not _has_types(read, str, int, tuple) or read[0] != OPENING:
            raise OpeningError(f"an opening must be what `Opening.to_bytes` wrote, and begin with {OPENING!r}")
        if not all(_has_types(row, int, bytes, bytes, bytes) for row in read[2]):
            raise OpeningError("an opening must have rows of an index, bytes, a salt and a proof")
        return cls(read[1], tuple([OpenedRow(index, row, salt, _parted(proof)) for index, row, salt, proof in read[2]]))


def context_of(ledger: str, run: str, member: str) -> bytes:
    """Return the hash of who commits, that every leaf begins with."""
    for name, value in (("ledger", ledger), ("run", run), ("member", member)):
        if not isinstance(value, str) or not value:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"`{name}` must be its name, got {value!r}")
    return hashlib.sha256(encode_row(("guerdon row 1", ledger, run, member))).digest()


def check(committed: Committed, opening: Opening, named: Iterable[int] | None = None) -> dict[int, Any]:
    """Return the rows of an opening by their index, or raise `OpeningError`: it says which row fails, and why.

    `committed` is the record that counted when the rows were named, `named` the rows that must be there (default: any).
    """
    if opening.size != committed.size:
        raise OpeningError(f"the opening must be of the {committed.size} rows committed, got {opening.size}")
    context = context_of(committed.ledger, committed.run, committed.member)
    found: dict[int, Any] = {}
    for row in opening.rows:
        if row.index in found:
            raise OpeningError(f"row {row.index} must be opened once, got it twice", row.index)
        _check_row(committed, context, row)
        found[row.index] = _decoded(row)
    missing = sorted({int(index) for index in (() if named is None else named)} - found.keys())
    if missing:
        raise OpeningError(f"row {missing[0]} was named and must be opened ({len(missing)} are missing)", missing[0])
    _check_repeats(committed, opening)
    return found


def check_growth(old: Committed, new: Committed, proof: Sequence[bytes]) -> None:
    """Raise `OpeningError` unless a stream's new record only adds rows to the old one (`Commitment.growth`)."""
    if (old.ledger, old.run, old.member, old.stream, new.stream) != (new.ledger, new.run, new.member, True, True):
        raise OpeningError("the records must be of one member's stream in one run: else it is a `RootChange`")
    if not check_consistency(old.size, old.root, new.size, new.root, proof):
        raise OpeningError(f"the first {old.size} rows of the stream must be those of the old record: they are others")


def _check_row(committed: Committed, context: bytes, row: OpenedRow) -> None:
    if not 0 <= row.index < committed.size:
        raise OpeningError(f"row {row.index} must be one of the {committed.size} committed", row.index)
    if len(row.salt) != HASH:
        raise OpeningError(f"row {row.index} must have a salt of {HASH} bytes, got {len(row.salt)}", row.index)
    leaf = leaf_of(context, row.index, 0 if committed.stream else committed.size, row.salt, row.data)
    if not check_inclusion(leaf, row.index, committed.size, row.proof, committed.root):
        whose = f"{committed.member!r} committed in run {committed.run!r}"
        raise OpeningError(
            f"row {row.index} is not the one that {whose}: row, salt and proof give another root", row.index
        )


def _decoded(row: OpenedRow) -> Any:
    try:
        return decode_row(row.data)
    except ValueError as error:
        raise OpeningError(f"row {row.index} must be in the form of `encode_row`: {error}", row.index) from error


def _check_repeats(committed: Committed, opening: Opening) -> None:
    """Raise where more rows are equal than the record says: of 600 rows with 598 distinct, two may repeat others."""
    first: dict[bytes, int] = {}
    allowed = committed.size - committed.distinct
    for row in opening.rows:
        same = first.setdefault(row.data, row.index)
        allowed -= same != row.index
        if allowed < 0:
            says = f"{committed.distinct} of {committed.size} rows differ"
            raise OpeningError(f"rows {same} and {row.index} are equal, and the commitment says that {says}", row.index)


def leaf_of(context: bytes, index: int, size: int, salt: bytes, row: bytes) -> bytes:
    """Return the hash of a leaf, see above."""
    place = index.to_bytes(8, "little") + size.to_bytes(8, "little")
    return leaf_hash(b"%b%b%b%b" % (context, place, salt, row))


def _checked(record: Committed) -> Committed:
    """Return a record whose fields have their types and are in their bounds, or raise."""
    if not _has_types(tuple(record), str, str, str, bytes, int, int, bool):
        raise ValueError(
            f"a commitment must have three names, a root, two whole numbers and true or false, got {record}"
        )
    least = 0 if record.stream and record.size == 0 else 1  # a stream may begin without rows
    if len(record.root) != HASH or not least <= record.distinct <= record.size < 2**63:
        raise ValueError(f"a commitment must have a root of {HASH} bytes and 1 ≤ distinct ≤ size, got {record}")
    return record


def _has_types(values: Any, *types: type) -> bool:
    return type(values) is tuple and len(values) == len(types) and all(map(_is_of, values, types))  # pyright: ignore[reportUnknownArgumentType]


def _is_of(value: Any, kind: type) -> bool:
    return type(value) is kind  # of `isinstance` True would be a whole number


def _parted(proof: bytes) -> tuple[bytes, ...]:
    return tuple([proof[at : at + HASH] for at in range(0, len(proof), HASH)])
