"""A member's answer to a look, sealed to the auditor: neither the server that passes it on nor the network sees a row.

    sealed = "guerdon seal 1\\n" | fresh X25519 public key | ChaCha20-Poly1305(answer)
    key    = HKDF-SHA-256(shared secret of X25519, about),  nonce 0, since each key is used once
    about  = ("guerdon seal 1", ledger, run, round, member, fresh key, auditor's key), written as a row

`about` is authenticated too: an answer to another look, of another member or for another auditor does not open. The
seal does not say who made it: the member signs `sealed_hash`, which the ledger records, so that "unanswered" can be
disputed. Its length tells roughly how many bytes were opened.

Who gets the auditor's key later can open all that was sealed to it. So an auditor takes a new key for each run, and
destroys it when the appeals are over.
"""

import hashlib
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from guerdon.looks.encoding import encode_row

NAME = "guerdon seal 1"
HEAD = NAME.encode() + b"\n"
KEY, TAG = 32, 16  # bytes of a key, and of what authenticates
LONGEST = 2**31 - 1 - TAG  # bytes that the cipher of `cryptography` takes at once
_NONCE = bytes(12)


class SealError(ValueError):
    """What should be a sealed answer cannot be opened, or is not for this key or this look."""


class LookOf(NamedTuple):
    """What an answer is the answer to: the round that is looked at, and whose."""

    ledger: str
    run: str
    round: int
    member: str


def seal(answer: bytes, auditor: bytes, look: LookOf) -> bytes:
    """Return an answer sealed to the auditor's public key (32 raw bytes of X25519).

    >>> key, look = X25519PrivateKey.generate(), LookOf("heart", "run 1", 7, "Bern")
    >>> sealed = seal(b"rows", key.public_key().public_bytes_raw(), look)
    >>> unseal(sealed, key, look), len(sealed_hash(sealed))
    (b'rows', 32)
    """
    if type(auditor) is not bytes or len(auditor) != KEY:
        raise ValueError(f"`auditor` must be the {KEY} raw bytes of an X25519 public key, got {auditor!r}")
    if len(answer) > LONGEST:
        raise ValueError(f"`answer` must be at most {LONGEST} bytes, got {len(answer)}: ask for fewer rows a round")
    fresh = X25519PrivateKey.generate()
    public = fresh.public_key().public_bytes_raw()
    about = _about(look, public, auditor)
    return HEAD + public + _cipher(fresh, auditor, about).encrypt(_NONCE, answer, about)


def unseal(sealed: bytes, key: X25519PrivateKey, look: LookOf) -> bytes:
    """Return the answer that was sealed to this key for this look, or raise `SealError`."""
    if not isinstance(key, X25519PrivateKey):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"`key` must be an X25519 private key, got {type(key).__name__}")
    if not sealed.startswith(HEAD) or len(sealed) < len(HEAD) + KEY + TAG:
        raise SealError(f"`sealed` must be what `seal` returned, which begins with {NAME!r}: it is not, or is cut off")
    public = sealed[len(HEAD) : len(HEAD) + KEY]
    about = _about(look, public, key.public_key().public_bytes_raw())
    try:
        return _cipher(key, public, about).decrypt(_NONCE, sealed[len(HEAD) + KEY :], about)
    except InvalidTag as error:
        which = f"round {look.round} of {look.member!r} in run {look.run!r} of ledger {look.ledger!r}"
        raise SealError(
            f"`sealed` must be for this key and the look at {which}: it was changed, or sealed to another key or look"
        ) from error


def sealed_hash(sealed: bytes) -> bytes:
    """Return the hash of a sealed answer: what the member signs, and the ledger records."""
    return hashlib.sha256(sealed).digest()


def _about(look: LookOf, public: bytes, auditor: bytes) -> bytes:
    return encode_row((NAME, *look, public, auditor))


def _cipher(own: X25519PrivateKey, other: bytes, about: bytes) -> ChaCha20Poly1305:
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:  # a point of small order, that gives everybody the same secret
        raise SealError(
            "the public key of the other side must be one that X25519 made: this one hides nothing"
        ) from error
    return ChaCha20Poly1305(HKDF(algorithm=SHA256(), length=KEY, salt=None, info=about).derive(shared))
