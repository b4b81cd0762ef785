"""Canonical bytes and hashes: what ties every row to its record, and every record to the one before.

    hash of a payment = SHA-256(its numbers, fixed width, little-endian | gradient hash | signature | note)
    digest of a record = SHA-256(detail as canonical JSON | payment hashes in order | entries as 64-bit integers)
    hash of a record   = SHA-256(sequence number, kind, time, memo, digest, hash of the record before)

Two databases with the same contents have the same hashes, whatever the machine.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from guerdon.canonical import canonical
from guerdon.ledger.books.tables import microseconds
from guerdon.rule import Status

START = bytes(32)  # stands before the first record
STATUS_CODES = {status.label: status.value for status in Status}

# The columns of a payment in the order in which they are hashed; the last three are lengths, -1 where there is nothing.
PAYMENT = np.dtype(
    [
        *((name, "<i8") for name in ("record", "position", "agent", "status", "trusted")),
        *((name, "<f8") for name in ("squared_deviation", "pair_distance", "squared_length", "alignment")),
        *((name, "<f8") for name in ("squared_distance", "expected", "variance")),
        *((name, "<i8") for name in ("earned", "released", "cut", "gradient", "signature", "note")),
    ]
)


def payment_hashes(
    numbers: Any, gradients: Iterable[bytes | None], signatures: Iterable[bytes | None], notes: Iterable[str]
) -> list[bytes]:
    """Return the hash of each payment. `numbers` is an array of type PAYMENT; its lengths are filled in here."""
    tails = [(g, s, n.encode()) for g, s, n in zip(gradients, signatures, notes, strict=True)]
    for place, name in enumerate(("gradient", "signature", "note")):
        numbers[name] = [-1 if (part := tail[place]) is None else len(part) for tail in tails]
    data, width = numbers.tobytes(), PAYMENT.itemsize
    return [
        hashlib.sha256(b"%b%b%b%b" % (data[i * width : (i + 1) * width], g or b"", s or b"", n)).digest()
        for i, (g, s, n) in enumerate(tails)
    ]


def digest(detail: Mapping[str, Any], hashes: Sequence[bytes], entries: Any) -> bytes:
    """Return the digest of a record's contents. `entries` is an array (lines, 3): source, target, amount."""
    lines = np.ascontiguousarray(entries, dtype="<i8").tobytes()
    head = canonical(detail).encode()
    return hashlib.sha256(b"%d|%b|%d|%b|%b" % (len(head), head, len(hashes), b"".join(hashes), lines)).digest()


def link(seq: int, kind: str, created_at: datetime, memo: str, contents: bytes, previous: bytes) -> bytes:
    """Return the hash of a record."""
    head = canonical([seq, kind, microseconds(created_at), memo, contents.hex(), previous.hex()])
    return hashlib.sha256(b"guerdon ledger record 1\n" + head.encode()).digest()
