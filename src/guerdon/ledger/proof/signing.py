"""Signing the head of the chain: a receipt, kept elsewhere, shows any later change of earlier records."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from guerdon.canonical import canonical
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.money import parse_amount, plain_amount


class Share(NamedTuple):
    """One agent's part of a payout batch, in micro-units, and what had become of the batch: open, paid or cancelled."""

    payout: int
    outcome: str
    number: int
    agent: str
    amount: int


class Receipt(NamedTuple):
    """A signed statement that the ledger of this name had this hash at this record; an agent's also has its `share`."""

    ledger: str
    record: int
    hash: bytes
    public_key: bytes
    signature: bytes
    share: Share | None = None

    def to_json(self) -> str:
        """Return the receipt as it is kept in a file."""
        kept = {name: value for name, value in self._asdict().items() if value is not None}
        shown = {name: value.hex() if isinstance(value, bytes) else value for name, value in kept.items()}
        if self.share is not None:
            shown["share"] = self.share._asdict() | {"amount": plain_amount(self.share.amount)}
        return json.dumps(shown, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Receipt":
        """Return a receipt from its file, or raise."""
        try:
            read = json.loads(text)
            parts = (bytes.fromhex(read[name]) for name in ("hash", "public_key", "signature"))
            return cls(str(read["ledger"]), int(read["record"]), *parts, share=_as_share(read.get("share")))
        except (ValueError, TypeError, KeyError) as error:
            raise RefusedError(f"a receipt must be a file that `guerdon ledger` wrote: {error!r}") from error

    def is_genuine(self) -> bool:
        """Return whether the key it names signed it."""
        return is_head_signed(self.public_key, self.ledger, self.record, self.hash, self.signature, self.share)


def _as_share(read: Any) -> Share | None:
    if read is None:
        return None
    numbers = int(read["payout"]), str(read["outcome"]), int(read["number"])
    return Share(*numbers, str(read["agent"]), parse_amount(str(read["amount"])))


def signed(key: object, ledger: str, record: int, sealed: bytes, share: Share | None = None) -> Receipt:
    """Return the receipt for a head, or that of an agent for its share of a payout."""
    if not isinstance(key, Ed25519PrivateKey):
        raise TypeError(f"`key` must be an Ed25519 private key, got {type(key).__name__}")
    public_key = key.public_key().public_bytes_raw()
    return Receipt(ledger, record, sealed, public_key, key.sign(_message(ledger, record, sealed, share)), share)


def is_head_signed(
    public_key: bytes, ledger: str, record: int, sealed: bytes, signature: bytes, share: Share | None = None
) -> bool:
    """Return whether the owner of a raw Ed25519 public key signed this head, or this share of a payout."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, _message(ledger, record, sealed, share))
    except (InvalidSignature, ValueError):
        return False
    return True


def create_key(path: Path) -> bytes:
    """Write a new private key, readable by its owner only, and return its raw public key."""
    key = Ed25519PrivateKey.generate()
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key.public_key().public_bytes_raw()


def load_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a PEM file, or raise."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RefusedError(f"{path} must hold an unencrypted Ed25519 private key (PEM): {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise RefusedError(f"{path} must hold an Ed25519 private key, got {type(key).__name__}")
    return key


def _message(ledger: str, record: int, sealed: bytes, share: Share | None) -> bytes:
    what = "guerdon ledger head 1" if share is None else "guerdon payout share 1"
    return canonical([what, ledger, record, sealed.hex(), *(share or ())]).encode()
