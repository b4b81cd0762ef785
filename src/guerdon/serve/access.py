"""Who asks: an agent proves itself by a signature of its enrolled key, or by a token of its own.

    Authorization: Guerdon FINGERPRINT.SECONDS.SIGNATURE      of ledger, run, method, path and time
    Authorization: Bearer TOKEN

A signature holds for some minutes. To send it again changes nothing: reports are signed on their own, and every change
is made once.
"""

import hmac
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from guerdon.dashboard.security import Guesses, check_token
from guerdon.ledger.books.checks import AGENT, check_name
from guerdon.ledger.proof.submissions import access, fingerprint, is_signed_by

SCHEME = "Guerdon"
VALID = 300  # seconds before and after its moment that a signature is accepted
STALE = 1.0  # seconds before the ledger is asked again for a key that is not known


class UnknownAgentError(Exception):
    """Nobody can tell which agent this is."""


class BusyError(Exception):
    """An agent asks too much at once."""

    def __init__(self, detail: str, seconds: float) -> None:
        super().__init__(detail)
        self.headers = {"retry-after": f"{max(1.0, seconds):.0f}"}


class Enrolled(NamedTuple):
    """The keys of a run's agents, by name, and their owners, by fingerprint."""

    keys: Mapping[str, bytes]
    owners: Mapping[str, str]


class Members:
    """The agents of one run: those `named` that have a key in the ledger, and those that have a token.

    - `keys`: returns the public keys (DER) of the ledger, by agent. A key of an agent that is not named opens nothing.
    - `named`: returns the names of the agents of this run.
    - `ledger`: the ledger's random name; a signature for another ledger's run of the same name is refused.

    >>> members = Members("heart", dict, {"north": "a-token-of-sixteen"})
    >>> members.names(), members.identify("GET", "/v1/ask", "Bearer a-token-of-sixteen", "10.0.0.7")
    (['north'], 'north')
    """

    def __init__(
        self,
        run: str,
        keys: Callable[[], Mapping[str, bytes]],
        tokens: Mapping[str, str] | None = None,
        *,
        ledger: str = "",
        named: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._run, self._read_keys, self._tokens = run, keys, dict(tokens or {})
        self._named, self.ledger = named, ledger
        for name, token in self._tokens.items():
            check_name(AGENT, name)
            check_token(token)
        if len(set(self._tokens.values())) < len(self._tokens):
            raise ValueError("`tokens` must be different: two agents have the same")
        self._enrolled = Enrolled({}, {})
        self._read = float("-inf")
        self.guesses = Guesses()

    def names(self) -> list[str]:
        """Return all agents that may work now."""
        self.refresh()
        return sorted({*self._enrolled.keys, *self._tokens})

    def without_proof(self) -> list[str]:
        """Return who is named, and has neither a key in the ledger nor a token: a name may be misspelt."""
        return sorted(set(self._named()) - set(self.names()))

    def key_of(self, agent: str) -> bytes | None:
        """Return the public key (DER) that an agent is enrolled with, if any."""
        return self._enrolled.keys.get(agent)

    def refresh(self) -> None:
        """Read again who is enrolled."""
        named = set(self._named())
        keys = {name: key for name, key in self._read_keys().items() if name in named}
        self._enrolled, self._read = Enrolled(keys, {fingerprint(key): name for name, key in keys.items()}), time.time()

    def may_be_new(self, header: str) -> bool:
        """Tell whether a request shows a key that is not known yet, so that it is worth to `refresh`."""
        scheme, _, proof = header.partition(" ")
        unknown = proof.strip().partition(".")[0] not in self._enrolled.owners
        return scheme == SCHEME and unknown and time.time() - self._read > STALE

    def identify(self, method: str, target: str, header: str, address: str) -> str:
        """Return which agent sent a request, or raise.

        The proof comes first: a right one is never refused because of others at its address. Wrong ones are counted
        by address; after a few, more of them are answered by `GuessedError`.
        """
        now = time.time()
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
        enrolled = self._enrolled
        agent = enrolled.owners.get(finger)
        try:
            signed, when = bytes.fromhex(signature), int(moment)
        except ValueError:
            raise UnknownAgentError("the signature must be FINGERPRINT.SECONDS.HEXADECIMAL") from None
        if agent is None:
            raise UnknownAgentError(
                f"no agent of run {self._run!r} is enrolled with this key: guerdon ledger enrol NAME --public-key "
                "FILE, and name it in the file of `--members`"
            )
        if not is_signed_by(enrolled.keys[agent], access(self.ledger, self._run, method, target, when), signed):
            raise UnknownAgentError(
                f"the signature is not for {method} {target[:80]} of run {self._run!r} in ledger {self.ledger[:8]!r}"
            )
        if abs(now - when) > VALID:
            raise UnknownAgentError(f"the signature is of {when}, and it is {now:.0f} here; set the clock")
        return agent


class Allowance(NamedTuple):
    """What one agent may ask at a time: `together` requests at once, and `burst` at first, then `rate` a second.

    Four at once are a question that waits, a model that is fetched, and a report that is sent again while the broken
    one lingers. A round takes three requests, so 20 a second are for seven rounds a second. At twice these numbers ten
    hostile members could hold all 40 threads that answer; at half of them an honest one would wait for itself.
    """

    together: int = 4
    rate: float = 20.0
    burst: float = 200.0


class Turns:
    """How much each agent asks now. Nobody waits but the agent that asks too much."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowed = allowance
        self._open: dict[str, int] = {}
        self._left: dict[str, tuple[float, float]] = {}  # requests that are left of the burst, and since when

    @contextmanager
    def turn(self, agent: str, now: float) -> Generator[None]:
        """Enter with each request of an agent, `now` in seconds of a steady clock; raise where it asks too much."""
        allowed = self._allowed
        left, since = self._left.get(agent, (allowed.burst, now))
        left = min(allowed.burst, left + allowed.rate * (now - since))
        if left < 1:
            raise BusyError(f"{agent!r} asks more than {allowed.rate:g} times a second", (1 - left) / allowed.rate)
        if self._open.get(agent, 0) >= allowed.together:
            raise BusyError(f"{allowed.together} requests of {agent!r} are being answered already", 1.0)
        self._left[agent] = left - 1, now
        self._open[agent] = self._open.get(agent, 0) + 1
        try:
            yield
        finally:
            self._open[agent] -= 1
