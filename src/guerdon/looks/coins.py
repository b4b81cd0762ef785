"""The auditor's part of the coins, in two files: what it commits to before a run, and what it opens afterwards.

An auditor need not be there in every round. It commits to a nonce for each round before the run begins; the server puts
the commitment of a round into its ask. When rounds are closed, at the end of a period say, it opens their nonces: in
the order of the rounds, and never that of a round whose reports it has not seen closed.
"""

import hmac
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from guerdon.arrays import check_positive_integer
from guerdon.canonical import canonical
from guerdon.looks.draw import commitment, nonce

COMMITTED, OPENED = "guerdon-coin-commitments", "guerdon-coin-nonces"


class CoinCommitments(NamedTuple):
    """What an auditor committed to for the coins of a run: one hash for each round, from round `first` on.

    `auditor`, `sealing`: its public keys in hexadecimal, for verdicts (Ed25519) and for what is sealed to it (X25519).
    """

    ledger: str
    run: str
    auditor: str
    sealing: str
    first: int
    hashes: tuple[bytes, ...]

    def of_round(self, number: int) -> bytes:
        """Return the commitment for a round, or raise a ValueError where there is none."""
        if not 0 <= number - self.first < len(self.hashes):
            last = self.first + len(self.hashes) - 1
            raise ValueError(
                f"the auditor's coins must be for round {number} of run {self.run!r}, got those of rounds {self.first} "
                f"to {last}: `guerdon looks coins` makes more"
            )
        return self.hashes[number - self.first]

    @property
    def message(self) -> bytes:
        """The bytes that the auditor signs."""
        return canonical(["guerdon coin commitments 1", self._plain()]).encode()

    def to_json(self, key: Ed25519PrivateKey) -> str:
        """Return the commitments as they are kept in a file, signed by the auditor."""
        told = {"format": COMMITTED, "version": 1, **self._plain(), "signature": key.sign(self.message).hex()}
        return json.dumps(told, indent=1) + "\n"

    def _plain(self) -> dict[str, Any]:
        return self._asdict() | {"hashes": [one.hex() for one in self.hashes]}


def auditor_secret(key: Ed25519PrivateKey) -> bytes:
    """Return the secret from which an auditor's nonces follow: its key is all that it must keep."""
    return hmac.digest(key.private_bytes_raw(), b"guerdon coin secret 1", "sha256")


def sealing_key(key: Ed25519PrivateKey) -> X25519PrivateKey:
    """Return the key that opens what is sealed to an auditor; it follows from the key that signs."""
    return X25519PrivateKey.from_private_bytes(hmac.digest(key.private_bytes_raw(), b"guerdon sealing key 1", "sha256"))


def commit_coins(key: Ed25519PrivateKey, ledger: str, run: str, rounds: int, first: int = 1) -> CoinCommitments:
    """Return an auditor's commitments for so many `rounds` of a run, from round `first` on.

    >>> key = Ed25519PrivateKey.generate()
    >>> told = commit_coins(key, "books", "heart", rounds=200)
    >>> read_commitments(told.to_json(key)) == told
    True
    """
    check_positive_integer("rounds", rounds)
    secret, public = auditor_secret(key), key.public_key().public_bytes_raw().hex()
    numbers = range(first, first + rounds)
    hashes = tuple(commitment(open_coin(secret, ledger, run, one), "auditor", ledger, run, one) for one in numbers)
    sealing = sealing_key(key).public_key().public_bytes_raw().hex()
    return CoinCommitments(ledger, run, public, sealing, first, hashes)


def open_coin(secret: bytes, ledger: str, run: str, number: int) -> bytes:
    """Return the auditor's nonce of a round, from its `auditor_secret`."""
    return nonce(secret, "auditor", ledger, run, number)


def read_commitments(text: str) -> CoinCommitments:
    """Return what `CoinCommitments.to_json` wrote, or raise a ValueError unless the auditor that it names signed it."""
    try:
        told = _read(text, COMMITTED)
        signature, hashes = bytes.fromhex(told.pop("signature")), tuple(map(bytes.fromhex, told.pop("hashes")))
        found = CoinCommitments(hashes=hashes, **told)
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(found.auditor)).verify(signature, found.message)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"coins must be a file that `guerdon looks coins` wrote: {error}") from error
    except InvalidSignature:
        raise ValueError("coins must be as the auditor signed them: this file was changed afterwards") from None
    return found


def nonces_to_json(ledger: str, run: str, nonces: Mapping[int, bytes]) -> str:
    """Return opened nonces, by round, as they are sent to the operator; the ledger checks them itself."""
    told = {str(number): one.hex() for number, one in sorted(nonces.items())}
    return json.dumps({"format": OPENED, "version": 1, "ledger": ledger, "run": run, "nonces": told}, indent=1) + "\n"


def read_nonces(text: str) -> tuple[str, str, dict[int, bytes]]:
    """Return ledger, run and nonces by round of a file that `nonces_to_json` wrote, or raise a ValueError."""
    try:
        told = _read(text, OPENED)
        nonces = {int(number): bytes.fromhex(one) for number, one in told["nonces"].items()}
        return str(told["ledger"]), str(told["run"]), nonces
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"nonces must be a file that `guerdon looks open` wrote: {error}") from error


def _read(text: str, form: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(text)
    if (told.pop("format"), told.pop("version")) != (form, 1):
        raise ValueError(f"it is not of format {form!r}, version 1")
    return told
