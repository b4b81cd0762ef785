"""The Merkle tree: the vectors of certificate transparency, a slow oracle after RFC 6962, and proofs that are wrong."""

import hashlib
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.merkle import Tree, check_consistency, check_inclusion, leaf_hash, node_hash, root_of

# The reference implementation's eight leaves, and the roots of the first 0 to 8 of them.
LEAVES = [bytes.fromhex(text) for text in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"
)]  # fmt: skip
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
# Its proofs: of the leaf at `index` among the first `size`, and that the first `old` begin the first `new`.
INCLUSION = {
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        ROOTS[4],
    ],
}
CONSISTENCY = {
    (1, 8): INCLUSION[0, 8],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        ROOTS[4],
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
MANY = [b"%d" % i for i in range(70)]  # with all ways to lie around the powers of two up to 64


def largest_power_below(n: int) -> int:
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def slow_root(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1."""
    if len(leaves) < 2:
        return hashlib.sha256(b"\0" + leaves[0] if leaves else b"").digest()
    k = largest_power_below(len(leaves))
    return hashlib.sha256(b"\1" + slow_root(leaves[:k]) + slow_root(leaves[k:])).digest()


def slow_path(m: int, leaves: list[bytes]) -> list[bytes]:
    """PATH of RFC 6962, section 2.1.1."""
    if len(leaves) == 1:
        return []
    k = largest_power_below(len(leaves))
    if m < k:
        return [*slow_path(m, leaves[:k]), slow_root(leaves[k:])]
    return [*slow_path(m - k, leaves[k:]), slow_root(leaves[:k])]


def slow_proof(m: int, leaves: list[bytes], *, whole: bool = True) -> list[bytes]:
    """SUBPROOF of RFC 6962, section 2.1.2."""
    if m == len(leaves):
        return [] if whole else [slow_root(leaves)]
    k = largest_power_below(len(leaves))
    if m <= k:
        return [*slow_proof(m, leaves[:k], whole=whole), slow_root(leaves[k:])]
    return [*slow_proof(m - k, leaves[k:], whole=False), slow_root(leaves[:k])]


@pytest.mark.parametrize("size", range(9))
def test_roots_are_those_of_certificate_transparency(size: int) -> None:
    assert slow_root(LEAVES[:size]).hex() == ROOTS[size]
    assert root_of(LEAVES[:size]).hex() == ROOTS[size]
    assert Tree(LEAVES[:size]).root().hex() == ROOTS[size]
    assert Tree(LEAVES).root(size).hex() == ROOTS[size]


def test_proofs_are_those_of_certificate_transparency() -> None:
    tree = Tree(LEAVES)
    assert {key: [part.hex() for part in tree.inclusion(*key)] for key in INCLUSION} == INCLUSION
    assert {key: [part.hex() for part in tree.consistency(*key)] for key in CONSISTENCY} == CONSISTENCY


def test_roots_and_proofs_are_those_of_the_definition() -> None:
    tree = Tree(MANY)
    for size in range(1, len(MANY) + 1):
        leaves = MANY[:size]
        assert tree.root(size) == root_of(iter(leaves)) == slow_root(leaves)
        for index in range(size):
            assert tree.inclusion(index, size) == slow_path(index, leaves)
            assert tree.consistency(index + 1, size) == slow_proof(index + 1, leaves)


def test_every_proof_is_accepted_where_it_belongs() -> None:
    tree = Tree(MANY)
    roots = [tree.root(size) for size in range(len(MANY) + 1)]
    for size in range(1, len(MANY) + 1):
        for index in range(size):
            assert check_inclusion(leaf_hash(MANY[index]), index, size, tree.inclusion(index, size), roots[size])
        for old in range(size + 1):
            assert check_consistency(old, roots[old], size, roots[size], tree.consistency(old, size))


def test_appending_in_any_portions_gives_the_same_tree() -> None:
    whole, grown = Tree(MANY), Tree()
    for start, stop in ((0, 1), (1, 1), (1, 6), (6, 31), (31, 32), (32, 70)):
        grown.extend(MANY[start:stop])
        assert len(grown) == stop
        assert grown.root() == whole.root(stop)
    assert grown.consistency(31) == whole.consistency(31)
    assert grown.leaf_hashes() == b"".join(map(leaf_hash, MANY))
    assert grown.leaf(3) == leaf_hash(MANY[3])


SIZES = st.integers(1, 300)
TREE = Tree(b"%d" % i for i in range(300))


@given(SIZES, st.data())
def test_no_other_leaf_place_size_or_proof_is_accepted(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    leaf, proof, root = TREE.leaf(index), TREE.inclusion(index, size), TREE.root(size)
    assert check_inclusion(leaf, index, size, proof, root)
    other = data.draw(st.integers(-1, size).filter(lambda place: place != index))
    assert not check_inclusion(leaf, other, size, proof, root)
    assert not check_inclusion(leaf_hash(b"another"), index, size, proof, root)
    assert not check_inclusion(leaf, index, size, proof, TREE.root(size - 1))
    assert not check_inclusion(leaf, index, size, [*proof, bytes(32)], root)
    assert not any(check_inclusion(leaf, index, size, wrong, root) for wrong in broken(proof))


@given(SIZES, st.data())
def test_no_other_old_tree_is_accepted(new: int, data: st.DataObject) -> None:
    old = data.draw(st.integers(1, new))
    roots, proof = (TREE.root(old), TREE.root(new)), TREE.consistency(old, new)
    assert check_consistency(old, roots[0], new, roots[1], proof)
    assert not check_consistency(old, leaf_hash(b"x"), new, roots[1], proof)
    assert not check_consistency(old, roots[0], new, leaf_hash(b"x"), proof)
    assert not check_consistency(old, roots[0], new, roots[1], [*proof, bytes(32)])
    assert not any(check_consistency(old, *roots[:1], new, roots[1], wrong) for wrong in broken(proof))
    other = data.draw(st.integers(-1, new + 1).filter(lambda size: size != old))
    assert not check_consistency(other, roots[0], new, roots[1], proof)


def broken(proof: list[bytes]) -> Iterator[list[bytes]]:
    """Yield a proof with a part left out, changed, too long, and with two parts in the wrong order."""
    for at, part in enumerate(proof):
        yield proof[:at] + proof[at + 1 :]
        yield [*proof[:at], bytes([part[0] ^ 1]) + part[1:], *proof[at + 1 :]]
        yield [*proof[:at], part + b"\0", *proof[at + 1 :]]
    if len(proof) > 1:
        yield [*proof[-2:], *proof[:-2]] if len(proof) > 2 else proof[::-1]


def test_a_tree_that_was_rewritten_has_no_consistency_proof() -> None:
    before, after = Tree(MANY[:20]), Tree([b"another", *MANY[1:40]])
    assert not check_consistency(20, before.root(), 40, after.root(), after.consistency(20))


def test_nothing_is_the_beginning_of_everything() -> None:
    empty = hashlib.sha256().digest()
    assert Tree().root() == root_of([]) == empty
    assert check_consistency(0, empty, 8, TREE.root(8), [])
    assert check_consistency(0, empty, 0, empty, [])
    assert not check_consistency(0, TREE.root(1), 8, TREE.root(8), [])
    assert not check_consistency(0, empty, 0, TREE.root(1), [])


def test_a_node_is_no_leaf() -> None:
    """Without different first bytes the two halves of a tree could be shown as its two leaves."""
    tree = Tree(MANY[:4])
    halves = tree.root(2), node_hash(leaf_hash(MANY[2]), leaf_hash(MANY[3]))
    assert check_inclusion(halves[0], 0, 2, [halves[1]], tree.root())  # what a hash alone can show
    assert leaf_hash(leaf_hash(MANY[0]) + leaf_hash(MANY[1])) != halves[0]  # but no leaf has this hash


def test_the_root_needs_little_memory_and_a_tree_64_bytes_a_leaf() -> None:
    count = 40_000

    def leaves() -> Iterator[bytes]:
        return (bytes(1000) + b"%d" % i for i in range(count))

    tracemalloc.start()
    root = root_of(leaves())
    assert tracemalloc.get_traced_memory()[1] < 20_000
    tracemalloc.reset_peak()
    tree = Tree(leaves())
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert tree.root() == root
    assert 64 * count <= kept < 80 * count  # a bytearray may have room for an eighth more


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tree: tree.root(5), "`size` must be from 0 to 4, got 5"),
        (lambda tree: tree.inclusion(4), "`index` must be from 0 to 3, got 4"),
        (lambda tree: tree.inclusion(2, 2), "`index` must be from 0 to 1, got 2"),
        (lambda tree: tree.inclusion(-1), "`index` must be from 0 to 3, got -1"),
        (lambda tree: tree.consistency(3, 2), "`old` must be from 0 to 2, got 3"),
        (lambda tree: tree.consistency(3, 7), "`new` must be from 0 to 4, got 7"),
        (lambda tree: tree.extend_hashed([b"short"]), "`hashes` must be 32 bytes each"),
    ],
)
def test_what_is_not_there_is_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call(Tree(MANY[:4]))
