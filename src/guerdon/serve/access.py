"""Who asks: an agent proves itself by a signature of its enrolled key, or by a token of its own.

    Authorization: Guerdon FINGERPRINT.SECONDS.SIGNATURE      of method, path and time, for this run
    Authorization: Bearer TOKEN

A signature holds for some minutes. To send it again changes nothing: reports are signed on their own, and every change
is made once.
"""

import hmac
import time
from collections.abc import Callable, Mapping

from guerdon.dashboard.security import Guesses, check_token
from guerdon.ledger.books.checks import AGENT, check_name
from guerdon.ledger.proof.submissions import access, fingerprint, is_signed_by

SCHEME = "Guerdon"
VALID = 300  # seconds before and after its moment that a signature is accepted
STALE = 1.0  # seconds before the ledger is asked again for a key that is not known


class UnknownAgentError(Exception):
    """Nobody can tell which agent this is."""


class Members:
    """The agents of a service: keys that are enrolled in the ledger, and tokens."""

    def __init__(self, run: str, keys: Callable[[], dict[str, bytes]], tokens: Mapping[str, str] | None = None) -> None:
        self._run, self._read_keys, self._tokens = run, keys, dict(tokens or {})
        for name, token in self._tokens.items():
            check_name(AGENT, name)
            check_token(token)
        if len(set(self._tokens.values())) < len(self._tokens):
            raise ValueError("`tokens` must be different: two agents have the same")
        self._keys: dict[str, bytes] = {}
        self._owners: dict[str, str] = {}  # by the fingerprint of their keys
        self._read = float("-inf")
        self.guesses = Guesses()

    def names(self) -> list[str]:
        """Return all agents that may work now."""
        self._refresh()
        return sorted({*self._keys, *self._tokens})

    def key_of(self, agent: str) -> bytes | None:
        """Return the public key (DER) that an agent is enrolled with, if any."""
        return self._keys.get(agent)

    def identify(self, method: str, target: str, header: str, address: str) -> str:
        """Return which agent sent a request, or raise; wrong guesses from an address have to wait."""
        now = time.time()
        self.guesses.check(address, now)
        scheme, _, proof = header.partition(" ")
        try:
            if scheme == SCHEME:
                return self._by_signature(method, target, proof.strip(), now)
            if scheme.lower() == "bearer":
                return self._by_token(proof.strip())
        except UnknownAgentError:
            self.guesses.note(address, now)
            raise
        raise UnknownAgentError("an agent is needed: sign the request, or send `Authorization: Bearer TOKEN`")

    def _by_token(self, token: str) -> str:
        given, found = token.encode("utf-8", "surrogateescape"), ""
        for name, own in self._tokens.items():
            found = name if hmac.compare_digest(given, own.encode()) else found
        if not found:
            raise UnknownAgentError("no agent has this token")
        return found

    def _by_signature(self, method: str, target: str, proof: str, now: float) -> str:
        finger, _, rest = proof.partition(".")
        moment, _, signature = rest.partition(".")
        if finger not in self._owners and now - self._read > STALE:
            self._refresh()
        agent = self._owners.get(finger)
        try:
            signed, when = bytes.fromhex(signature), int(moment)
        except ValueError:
            raise UnknownAgentError("the signature must be FINGERPRINT.SECONDS.HEXADECIMAL") from None
        if agent is None:
            raise UnknownAgentError("no agent is enrolled with this key: guerdon ledger enrol NAME --public-key FILE")
        if not is_signed_by(self._keys[agent], access(self._run, method, target, when), signed):
            raise UnknownAgentError(f"the signature is not for {method} {target[:80]} of run {self._run!r}")
        if abs(now - when) > VALID:
            raise UnknownAgentError(f"the signature is of {when}, and it is {now:.0f} here; set the clock")
        return agent

    def _refresh(self) -> None:
        self._keys, self._read = self._read_keys(), time.time()
        self._owners = {fingerprint(key): name for name, key in self._keys.items()}
