"""The hash of what an agent sends, and its signature of it: nobody can later claim that something else was sent."""

import hashlib
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from guerdon.arrays import gradient_hash as gradient_hash  # what is signed; looks hash it too
from guerdon.canonical import canonical
from guerdon.ledger.books.errors import RefusedError


def submission(ledger: str, run: str, number: int, request: int, gradient: bytes, work: bytes = b"") -> bytes:
    """Return the bytes that an agent signs: its gradient's hash, for this round of this ledger and no other.

    `ledger`: the random name that a ledger has from its first record on (`Ledger.name`). `work`: the hash of the named
    work, where looks hold the pay (`guerdon.looks.naming.work_hash`).
    """
    told = ["guerdon submission 1", ledger, run, int(number), int(request), gradient.hex(), *[work.hex()] * bool(work)]
    return canonical(told).encode()


def access(ledger: str, run: str, method: str, target: str, moment: int) -> bytes:
    """Return the bytes that an agent signs to ask something of a service: for this ledger, run, path and moment."""
    return canonical(["guerdon access 1", ledger, run, method, target, moment]).encode()


def sign_submission(key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey, message: bytes) -> bytes:
    """Return the signature of a submission by an Ed25519 or elliptic-curve key."""
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(message)
    return key.sign(message, ec.ECDSA(hashes.SHA256()))


def read_private_key(path: Path) -> Ed25519PrivateKey | ec.EllipticCurvePrivateKey:
    """Return the private key in a file, PEM or OpenSSH as Flower's SuperNodes have it, or raise."""
    try:
        text = path.read_bytes()
        pem = b"OPENSSH" not in text.partition(b"\n")[0]
        key = (serialization.load_pem_private_key if pem else serialization.load_ssh_private_key)(text, None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RefusedError(f"{path} must hold a private key (PEM or OpenSSH): {error}") from error
    if not isinstance(key, (Ed25519PrivateKey, ec.EllipticCurvePrivateKey)):
        raise RefusedError(f"{path} must hold an Ed25519 key or one on an elliptic curve, got {type(key).__name__}")
    return key


def is_signed_by(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether the owner of a public key (DER) signed `message`."""
    key = load_public_key(public_key)
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, message)
        else:
            key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def fingerprint(public_key: bytes) -> str:
    """Return the name of a public key (DER): the first 40 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:40]


def read_public_key(path: Path) -> bytes:
    """Return the public key in a file, PEM or OpenSSH as Flower's SuperNodes have it, as DER, or raise."""
    try:
        return public_key_der(path.read_bytes())
    except RefusedError as error:
        raise RefusedError(f"{path}: {error}") from error


def public_key_der(text: bytes) -> bytes:
    """Return a public key given as PEM or in OpenSSH's form as DER, or raise."""
    try:
        is_pem = text.lstrip().startswith(b"-----")
        key = (serialization.load_pem_public_key if is_pem else serialization.load_ssh_public_key)(text)
    except Exception as error:  # the parsers fail in many ways on what anybody may send as a key
        raise RefusedError(f"must hold a public key (PEM or OpenSSH): {error}") from error
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    load_public_key(der)
    return der


def load_public_key(public_key: bytes) -> Ed25519PublicKey | ec.EllipticCurvePublicKey:
    """Return a public key given as DER (SubjectPublicKeyInfo), or raise."""
    try:
        key = serialization.load_der_public_key(public_key)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RefusedError(f"a public key must be given as DER (SubjectPublicKeyInfo): {error}") from error
    if not isinstance(key, (Ed25519PublicKey, ec.EllipticCurvePublicKey)):
        raise RefusedError(f"a public key must be Ed25519 or on an elliptic curve, got {type(key).__name__}")
    return key
