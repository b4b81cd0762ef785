"""Sealed answers: they open for the auditor and this look alone, and say in a sentence why not."""

from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from guerdon.looks import sealing
from guerdon.looks.commitment import Commitment
from guerdon.looks.opening import Opening, check
from guerdon.looks.sealing import HEAD, KEY, TAG, LookOf, SealError, seal, sealed_hash, unseal

AUDITOR = X25519PrivateKey.from_private_bytes(b"a" * 32)
PUBLIC = AUDITOR.public_key().public_bytes_raw()
LOOK = LookOf("heart", "run 1", 7, "Bern")
RECORDED = (
    "67756572646f6e207365616c20310ad645cacd47068aae2fc2aa2caae0a39ff82fdadcc557514574138ce3d579f370b4"
    "8ffd966c46fd73f4cfecb89e60a04bdb04899b1f0574d612"
)


@given(st.binary(max_size=300))
def test_an_answer_comes_back(answer: bytes) -> None:
    assert unseal(seal(answer, PUBLIC, LOOK), AUDITOR, LOOK) == answer


def test_a_sealed_opening_is_checked_by_the_auditor() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 4))
    mine = Commitment.of(rows, ledger="heart", run="run 1", member="Bern", secret=b"s" * 32)
    sealed = seal(mine.open([3, 17]).to_bytes(), PUBLIC, LOOK)
    assert not any(row.tobytes() in sealed for row in rows)
    found = check(mine.committed(), Opening.from_bytes(unseal(sealed, AUDITOR, LOOK)), named=[17, 3])
    np.testing.assert_array_equal(found[17], rows[17])


def test_any_flipped_bit_is_refused() -> None:
    sealed = seal(b"some rows", PUBLIC, LOOK)
    for place in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[place] ^= 1 << bit
            # X25519 ignores the highest bit of a public key. The key is authenticated besides.
            with pytest.raises(SealError, match="`sealed` must be"):
                unseal(bytes(changed), AUDITOR, LOOK)


def test_a_part_or_more_is_refused() -> None:
    sealed = seal(b"some rows", PUBLIC, LOOK)
    for wrong in [sealed[:stop] for stop in range(len(sealed))] + [sealed + b"\0", sealed[1:]]:
        with pytest.raises(SealError, match="`sealed` must be"):
            unseal(wrong, AUDITOR, LOOK)


@pytest.mark.parametrize("field", LookOf._fields)
def test_an_answer_to_another_look_is_refused(field: str) -> None:
    other = LOOK._replace(**{field: 8 if field == "round" else "other"})
    sealed = seal(b"some rows", PUBLIC, other)
    assert unseal(sealed, AUDITOR, other) == b"some rows"
    message = "the look at round 7 of 'Bern' in run 'run 1' of ledger 'heart': it was changed, or sealed to another key"
    with pytest.raises(SealError, match=message):
        unseal(sealed, AUDITOR, LOOK)


def test_names_cannot_be_moved_from_one_field_to_the_next() -> None:
    sealed = seal(b"some rows", PUBLIC, LOOK._replace(ledger="heart r", run="un 1"))
    with pytest.raises(SealError):
        unseal(sealed, AUDITOR, LOOK._replace(ledger="heart ", run="run 1"))


def test_another_key_opens_nothing() -> None:
    sealed = seal(b"some rows", PUBLIC, LOOK)
    with pytest.raises(SealError, match="sealed to another key"):
        unseal(sealed, X25519PrivateKey.generate(), LOOK)


def test_equal_answers_are_sealed_differently() -> None:
    first, second = (seal(b"some rows", PUBLIC, LOOK) for _ in range(2))
    assert first[len(HEAD) + KEY :] != second[len(HEAD) + KEY :]
    assert sealed_hash(first) != sealed_hash(second)
    assert len(first) == len(HEAD) + KEY + len(b"some rows") + TAG


def test_the_form_is_the_one_that_was_recorded() -> None:
    """Answers that were sealed are opened months later: this one was sealed by the first version."""
    assert unseal(bytes.fromhex(RECORDED), AUDITOR, LOOK) == b"some rows"


def test_a_key_that_hides_nothing_is_refused() -> None:
    """Zero is of small order: the shared secret is the same for every key."""
    with pytest.raises(SealError, match="must be one that X25519 made: this one hides nothing"):
        seal(b"some rows", bytes(32), LOOK)
    with pytest.raises(SealError, match="must be one that X25519 made"):
        unseal(HEAD + bytes(KEY + TAG), AUDITOR, LOOK)


def test_what_is_no_key_or_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: Any = Ed25519PrivateKey.generate()
    with pytest.raises(TypeError, match="`key` must be an X25519 private key, got Ed25519PrivateKey"):
        unseal(seal(b"", PUBLIC, LOOK), wrong, LOOK)
    with pytest.raises(ValueError, match="`auditor` must be the 32 raw bytes of an X25519 public key"):
        seal(b"", b"short", LOOK)
    monkeypatch.setattr(sealing, "LONGEST", 3)
    with pytest.raises(ValueError, match="`answer` must be at most 3 bytes, got 4: ask for fewer rows a round"):
        seal(b"rows", PUBLIC, LOOK)
