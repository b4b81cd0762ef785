"""A member's side of a commitment: the root of a Merkle tree over its rows, which shows none of them.

`Commitment.of` makes it before the run; its `committed()` is what the ledger records. In a look `open` gives the rows
that were named, with salts and proofs, and the auditor's `check` (`guerdon.looks.opening`) says whether they are what
was committed. That module says what a leaf holds, and which cheat is caught by what.

    salt of row i = HMAC-SHA-256(key, i | row),  key = HMAC-SHA-256(secret, "salt" | ledger, run and member)

The member's secret is never opened. Without its salt nobody can confirm a guess of a row from its leaf. Salts depend on
the row too: a second commitment with the same secret, to other rows, gives nothing away about the first.
"""

import hmac
import os
import secrets
import zipfile
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from guerdon.looks.encoding import Rows, encode_rows
from guerdon.looks.opening import Committed, OpenedRow, Opening, context_of, leaf_of
from guerdon.merkle import HASH, Tree

SECRET = 32  # bytes: as many as HMAC-SHA-256 uses; more would add nothing
# Rows that are in memory as bytes at a time. Of rows of 160 bytes, 256 take as long as 16,000; of pictures of 600 kB
# they take 150 MB.
BLOCK = 256


class Commitment:
    """A member's side: its rows, its secret and the tree. `committed` is the record, `open` answers a look.

    Rows are any sequence whose items `encode_row` can write. They are read once when committed, again when they are
    opened, and not copied: the tree takes 72 bytes a row. A dataset that changes its rows when they are read (by random
    augmentation) cannot be committed: give its rows as they are stored.

    >>> from guerdon.looks.opening import check
    >>> rows = np.arange(12.0).reshape(6, 2)
    >>> mine = Commitment.of(rows, ledger="heart", run="run 1", member="Bern", secret=bytes(32))
    >>> mine.committed().size, mine.committed().distinct
    (6, 6)
    >>> check(mine.committed(), mine.open([4, 1]), named=[4, 1])[4]
    array([8., 9.])
    """

    def __init__(self, ledger: str, run: str, member: str, secret: bytes, size: int | None) -> None:
        """Begin without rows: `of` and `load` are what to call. `size` is None for a stream."""
        if type(secret) is not bytes or len(secret) < SECRET:
            raise ValueError(f"`secret` must be {SECRET} bytes or more that nobody knows: use `new_secret`")
        self._names, self._size = (ledger, run, member), size
        self._context = context_of(ledger, run, member)
        keys = [hmac.digest(secret, what + self._context, "sha256") for what in (b"salt", b"tag")]
        self._salting, self._tagging = keys
        self._tree, self._tags, self._parts = Tree(), bytearray(), list[tuple[int, Rows]]()

    @classmethod
    def of(cls, rows: Rows, *, ledger: str, run: str, member: str, secret: bytes, stream: bool = False) -> "Commitment":
        """Return the commitment of a member to its rows; `append` adds to those of a stream.

        The same rows, names and secret give the same root.
        """
        if not stream and len(rows) == 0:
            raise ValueError("`rows` must be at least one: rows that come later are a stream (`stream=True`)")
        found = cls(ledger, run, member, secret, None if stream else len(rows))
        found._add(rows)
        return found

    def __len__(self) -> int:
        return len(self._tree)

    def append(self, rows: Rows) -> None:
        """Add rows to a stream. What is named in a round are rows that were there before its seed was drawn."""
        if self._size is not None:
            raise ValueError("`append` needs a stream: commit with `stream=True`, or to all rows as a `RootChange`")
        self._add(rows)

    def committed(self, size: int | None = None) -> Committed:
        """Return the record of all rows, or of the first `size` of a stream."""
        size = self._counted(size)
        distinct = len(np.unique(self._tags_of(size)))
        return Committed(*self._names, self._tree.root(size), size, distinct, self._size is None)

    def open(self, indices: Iterable[int], size: int | None = None) -> Opening:
        """Return rows with their salts and proofs, each once, of all rows or of the first `size` of a stream."""
        size = self._counted(size)
        return Opening(size, tuple(self._opened(int(index), size) for index in dict.fromkeys(indices)))

    def growth(self, old: int, new: int | None = None) -> list[bytes]:
        """Return the proof that the first `old` rows begin the first `new`: `check_growth` takes it."""
        return self._tree.consistency(old, self._counted(new))

    def save(self, path: Path | str) -> None:
        """Write all but rows and secret to a file (.npz): `load` then need not read a million rows again.

        The file shows no row, but which rows are equal: only its owner may read it.
        """
        path, record = Path(path), self.committed().to_json().encode()
        part = path.with_name(path.name + ".part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            leaves = np.frombuffer(self._tree.leaf_hashes(), dtype=np.uint8).reshape(-1, HASH)
            np.savez(file, record=np.frombuffer(record, dtype=np.uint8), leaves=leaves, tags=self._tags_of(len(self)))
        part.replace(path)

    @classmethod
    def load(cls, path: Path | str, rows: Rows, secret: bytes) -> "Commitment":
        """Return a commitment from its file, the rows and the secret, or raise where these do not belong together."""
        record, leaves, tags = _read(Path(path))
        found = cls(record.ledger, record.run, record.member, secret, None if record.stream else record.size)
        found._tree.extend_hashed(bytes(leaf) for leaf in leaves)
        found._tags += tags.tobytes()
        if found.committed() != record:
            raise ValueError(f"{path} must have the leaves of its root: it is damaged")
        if len(rows) != len(leaves):
            raise ValueError(f"`rows` must be the {len(leaves)} rows that {path} was made of, got {len(rows)}")
        found._parts = [(0, rows)] if len(rows) else []
        found.open([0, len(rows) - 1] if len(rows) else [])  # rows and secret are those of the leaves
        return found

    def _add(self, rows: Rows) -> None:
        """Read rows a block at a time into the tree."""
        first, size = len(self), self._size or 0
        for start in range(0, len(rows), BLOCK):
            block = list(enumerate(encode_rows(rows, start, min(start + BLOCK, len(rows))), first + start))
            salted = [(index, self._salt(index, row), row) for index, row in block]
            self._tree.extend_hashed([leaf_of(self._context, index, size, salt, row) for index, salt, row in salted])
            # 8 bytes of a keyed hash: of a million different rows two look equal with chance 3e-8, to nobody's harm.
            self._tags += b"".join([blake2b(row, key=self._tagging, digest_size=8).digest() for _, row in block])
        self._parts += [(first, rows)] if len(rows) else []

    def _tags_of(self, size: int) -> Any:
        return np.frombuffer(bytes(self._tags), dtype="<u8", count=size)

    def _salt(self, index: int, row: bytes) -> bytes:
        return hmac.digest(self._salting, index.to_bytes(8, "little") + row, "sha256")

    def _counted(self, size: int | None) -> int:
        if size is None or size == len(self):
            return len(self)
        if self._size is not None or not 0 <= size <= len(self):
            what = f"from 0 to {len(self)}" if self._size is None else f"{len(self)}, as it was committed"
            raise ValueError(f"`size` must be {what}, got {size}")
        return size

    def _opened(self, index: int, size: int) -> OpenedRow:
        if not 0 <= index < size:
            raise ValueError(f"`indices` must be from 0 to {size - 1}, got {index}")
        first, rows = next(part for part in reversed(self._parts) if part[0] <= index)
        (row,) = encode_rows(rows, index - first, index - first + 1)
        salt = self._salt(index, row)
        if leaf_of(self._context, index, self._size or 0, salt, row) != self._tree.leaf(index):
            raise ValueError(
                f"`rows` must be what was committed, with the same secret: row {index} is another now. Is it a dataset "
                "that changes its rows when they are read?"
            )
        return OpenedRow(index, row, salt, tuple(self._tree.inclusion(index, size)))


def new_secret() -> bytes:
    """Return a new secret for a member's commitments: one is enough for all its runs, kept where its rows are."""
    return secrets.token_bytes(SECRET)


def _read(path: Path) -> tuple[Committed, Any, Any]:
    """Return the record, leaves and tags of a file, or raise."""
    try:
        with np.load(path, allow_pickle=False) as file:
            record, leaves, tags = file["record"].tobytes().decode(), file["leaves"], file["tags"]
        committed = Committed.from_json(record)
        if leaves.shape != (committed.size, HASH) or leaves.dtype != np.uint8 or tags.shape != (committed.size,):
            raise ValueError(f"it has not one leaf and one tag for each of its {committed.size} rows")
        return committed, leaves, tags.astype("<u8", casting="equiv")
    except (ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} must be a file that `Commitment.save` wrote: {error}") from error
