"""A Merkle tree after RFC 6962 (certificate transparency), with SHA-256: roots, and proofs that need no other leaf.

    root of no leaf    = SHA-256 of nothing
    hash of a leaf     = SHA-256(0x00 | leaf)
    hash of n leaves   = SHA-256(0x01 | hash of the first k | hash of the rest), k the largest power of two below n

Leaves and inner nodes have different first bytes, so neither can be shown as the other. Leaves are only ever appended:
every earlier root stays provable. RFC 6962, section 2.1, has the definitions; the functions below follow them.
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import islice

HASH = 32  # bytes of SHA-256
# Leaves that are hashed at a time: their hashes take 0.5 MB. A hundred times fewer is no slower.
BLOCK = 16_384


def leaf_hash(leaf: bytes) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(b"\0" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node from those of its two children."""
    return hashlib.sha256(b"\1%b%b" % (left, right)).digest()


def root_of(leaves: Iterable[bytes]) -> bytes:
    """Return the root of any number of leaves, which are read once; at most 64 hashes are held in memory.

    >>> root_of([b"row 1", b"row 2"]) == node_hash(leaf_hash(b"row 1"), leaf_hash(b"row 2"))
    True
    """
    waiting: list[bytes] = []  # one complete subtree for each 1 in the binary number of leaves, the largest first
    for count, leaf in enumerate(leaves):
        new = leaf_hash(leaf)
        while count & 1:
            new = node_hash(waiting.pop(), new)
            count >>= 1
        waiting.append(new)
    if not waiting:
        return hashlib.sha256().digest()
    root = waiting.pop()
    while waiting:
        root = node_hash(waiting.pop(), root)
    return root


class Tree:
    """A tree that grows, and proves: 64 bytes of memory for each leaf, whatever the leaf's own size.

    `extend` and `append` add leaves. `root(size)` is the root that the first `size` leaves had (default: all).

    >>> tree = Tree([b"first", b"second", b"third"])
    >>> check_inclusion(leaf_hash(b"second"), 1, 3, tree.inclusion(1), tree.root())
    True
    >>> earlier = tree.root()
    >>> tree.append(b"fourth")
    >>> check_consistency(3, earlier, 4, tree.root(), tree.consistency(3))
    True
    """

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        self._levels: list[bytearray] = [bytearray()]  # hashes of all complete subtrees of 1, 2, 4, … leaves
        self.extend(leaves)

    def __len__(self) -> int:
        return len(self._levels[0]) // HASH

    def append(self, leaf: bytes) -> None:
        """Add a leaf."""
        self.extend_hashed([leaf_hash(leaf)])

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Add leaves, which are read once and not kept."""
        self.extend_hashed(map(leaf_hash, leaves))

    def extend_hashed(self, hashes: Iterable[bytes]) -> None:
        """Add leaves by their hashes."""
        source = iter(hashes)
        while block := b"".join(islice(source, BLOCK)):
            if len(block) % HASH:
                raise ValueError(f"`hashes` must be {HASH} bytes each: use `extend` for the leaves themselves")
            self._levels[0] += block
            self._complete()

    def leaf_hashes(self) -> bytes:
        """Return the hashes of all leaves, one after the other: what a saved tree needs."""
        return bytes(self._levels[0])

    def leaf(self, index: int) -> bytes:
        """Return the hash of one leaf."""
        return self._node(0, index)

    def root(self, size: int | None = None) -> bytes:
        """Return the root of the first `size` leaves."""
        size = self._checked("size", len(self) if size is None else size, 0, len(self))
        return self._over(0, size) if size else hashlib.sha256().digest()

    def inclusion(self, index: int, size: int | None = None) -> list[bytes]:
        """Return the proof that a leaf is the one at `index` of the first `size` leaves (RFC 6962: PATH)."""
        size = self._checked("size", len(self) if size is None else size, 1, len(self))
        self._checked("index", index, 0, size - 1)
        proof, start, stop = list[bytes](), 0, size
        while stop - start > 1:
            middle = start + _split(stop - start)
            if index < middle:
                proof.append(self._over(middle, stop))
                stop = middle
            else:
                proof.append(self._over(start, middle))
                start = middle
        return proof[::-1]

    def consistency(self, old: int, new: int | None = None) -> list[bytes]:
        """Return the proof that the first `old` leaves begin the first `new` leaves (RFC 6962: PROOF)."""
        new = self._checked("new", len(self) if new is None else new, 0, len(self))
        self._checked("old", old, 0, new)
        if old in (0, new):
            return []
        proof, start, stop = list[bytes](), 0, new
        while stop != old:
            middle = start + _split(stop - start)
            if old <= middle:
                proof.append(self._over(middle, stop))
                stop = middle
            else:
                proof.append(self._over(start, middle))
                start = middle
        if start:  # else it is the whole old tree, whose root the verifier has
            proof.append(self._over(start, stop))
        return proof[::-1]

    def _complete(self) -> None:
        """Add to each level the nodes whose children have come."""
        for height, children in enumerate(self._levels):
            if len(children) < 2 * HASH:
                return
            if height + 1 == len(self._levels):
                self._levels.append(bytearray())
            parents, pairs = (
                self._levels[height + 1],
                range(2 * len(self._levels[height + 1]), len(children) - HASH, 2 * HASH),
            )
            parents += b"".join([hashlib.sha256(b"\1" + children[at : at + 2 * HASH]).digest() for at in pairs])

    def _over(self, start: int, stop: int) -> bytes:
        """Return the hash of the leaves from `start` to `stop`: a range that the definition of the tree has."""
        count = stop - start
        if count & (count - 1) == 0:
            height = count.bit_length() - 1
            return self._node(height, start >> height)
        middle = start + _split(count)
        return node_hash(self._over(start, middle), self._over(middle, stop))

    def _node(self, height: int, place: int) -> bytes:
        return bytes(self._levels[height][place * HASH : (place + 1) * HASH])

    @staticmethod
    def _checked(name: str, value: int, least: int, most: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"`{name}` must be from {least} to {most}, got {value}")
        return value


def check_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Return whether a proof shows that the leaf of this hash is the one at `index` of the `size` leaves of a root."""
    if not 0 <= index < size or not _are_hashes(proof):
        return False
    sides: list[bool] = []  # whether the leaf is on the left, from the root down
    while size > 1:
        half = _split(size)
        sides.append(index < half)
        index, size = (index, half) if index < half else (index - half, size - half)
    if len(sides) != len(proof):
        return False
    node = leaf
    for is_left, other in zip(reversed(sides), proof, strict=True):
        node = node_hash(node, other) if is_left else node_hash(other, node)
    return node == root


def check_consistency(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether a proof shows that the `old` leaves of one root begin the `new` leaves of another."""
    if not 0 <= old <= new or not _are_hashes(proof):
        return False
    if old in (0, new):
        return not proof and old_root == (new_root if old == new else hashlib.sha256().digest())
    sides: list[bool] = []  # whether the last of the old leaves is on the left, from the root down
    size, rest, is_whole = new, old, True
    while rest != size:
        half = _split(size)
        sides.append(rest <= half)
        is_whole, rest, size = (is_whole, rest, half) if rest <= half else (False, rest - half, size - half)
    hashes = [old_root, *proof] if is_whole else list(proof)
    if len(hashes) != len(sides) + 1:
        return False
    was = now = hashes[0]
    for is_left, other in zip(reversed(sides), hashes[1:], strict=True):
        was, now = (was, node_hash(now, other)) if is_left else (node_hash(other, was), node_hash(other, now))
    return was == old_root and now == new_root


def _are_hashes(proof: Sequence[bytes]) -> bool:
    return all(len(part) == HASH for part in proof)


def _split(size: int) -> int:
    """Return the largest power of two below `size`."""
    return 1 << ((size - 1).bit_length() - 1)
