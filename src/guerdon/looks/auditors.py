"""Who looks: the two public keys of an auditor, one that signs verdicts and one that rows are sealed to.

The terms of a run name the signing key. The auditor signs its sealing key with it. So nobody else can put a key of
their own into a task, and read the rows of a member who knows the signing key from its contract.
"""

import json
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from guerdon.canonical import canonical
from guerdon.looks.coins import sealing_key

FORMAT = "guerdon-auditor"


class Auditor(NamedTuple):
    """An auditor's public keys in hexadecimal, and its signature of them.

    `signing`: Ed25519, of verdicts; the terms name it. `sealing`: X25519, that answers are sealed to.
    """

    signing: str
    sealing: str
    signature: str

    @property
    def message(self) -> bytes:
        """The bytes that the auditor signs."""
        return canonical(["guerdon auditor 1", self.signing, self.sealing]).encode()

    def to_json(self) -> str:
        """Return the keys as they are kept in a file, and sent to the operator."""
        return json.dumps({"format": FORMAT, "version": 1, **self._asdict()}, indent=1) + "\n"

    def checked(self) -> "Auditor":
        """Return the keys, or raise a ValueError unless the owner of the signing key signed them."""
        try:
            if len(bytes.fromhex(self.sealing)) != 32:
                raise ValueError("a sealing key has 32 bytes")
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.signing))
            key.verify(bytes.fromhex(self.signature), self.message)
        except (InvalidSignature, ValueError, TypeError):
            raise ValueError(
                "the auditor's keys must be as the auditor signed them (`guerdon looks key`): these were changed, and "
                "rows that are sealed to them could be read by somebody else"
            ) from None
        return self


def auditor_of(key: Ed25519PrivateKey) -> Auditor:
    """Return the public keys of an auditor, signed.

    >>> key = Ed25519PrivateKey.generate()
    >>> read_auditor(auditor_of(key).to_json()) == auditor_of(key)
    True
    """
    signing = key.public_key().public_bytes_raw().hex()
    told = Auditor(signing, sealing_key(key).public_key().public_bytes_raw().hex(), "")
    return told._replace(signature=key.sign(told.message).hex())


def read_auditor(text: str) -> Auditor:
    """Return what `Auditor.to_json` wrote, or raise a ValueError unless the auditor signed it."""
    try:
        told: dict[str, Any] = json.loads(text)
        if (told.pop("format"), told.pop("version")) != (FORMAT, 1):
            raise ValueError(f"it is not of format {FORMAT!r}, version 1")
        found = Auditor(**told)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"an auditor's keys must be a file that `guerdon looks key` wrote: {error}") from error
    return found.checked()
