"""The agent's side of `guerdon serve`: needs NumPy and safetensors, and cryptography where it signs.

    client = ServiceClient("http://127.0.0.1:8734", run="heart-2026", key="north.pem")
    for task in client.tasks():                                   # until the run ends
        client.report(task, gradient(task.model, task.request))   # arrays named and shaped like the model's
    print(client.statement())

Whatever is asked is asked again while the service is away: it takes every report once.
"""

import http.client
import ipaddress
import json
import logging
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save

SILENT = 2.0  # seconds that a service may be away before the log says so: a restart takes less
AGAIN = 60.0  # seconds until the log says it again

log = logging.getLogger("guerdon.client")


class NamedWork(NamedTuple):
    """The work that a round names: `rows` of those that the agent committed to, and the `seed` of all other randomness.

    `number`, `model` and `code` (hashes, in hexadecimal) are what its signature covers.
    """

    rows: list[int]
    seed: int
    number: str
    model: str
    code: str


class ServiceTask(NamedTuple):
    """What the agent is asked for: `request` samples at `model`, arrays by name; `pay` is for the round before.

    `work`: which samples, where looks hold the pay; None: any will do.
    """

    run: str
    round: int
    request: int
    recorded: int
    sends: str  # "gradients", or "models" that are trained from this one
    model: dict[str, np.ndarray]
    pay: dict[str, Any] | None
    work: NamedWork | None = None


class ServiceError(Exception):
    """The service refuses something; `status` is HTTP's."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{detail} ({status})")
        self.status = status


class ServiceClient:
    """An agent of a run: it signs with the private key in a file (`key`), or shows its `token`.

    - `url`: where the service is: `https://`, or `http://` on this machine.
    - `patience`: seconds that it keeps asking a service that does not answer; the log says so after two.
    - `ledger`: the name of the service's ledger, as the operator tells it. Signatures are for this ledger only. Not
      given, the service is believed.
    """

    def __init__(
        self,
        url: str,
        *,
        run: str,
        key: str | Path | None = None,
        token: str | None = None,
        patience: float = 600.0,
        ledger: str | None = None,
    ) -> None:
        if (key is None) == (token is None):
            raise ValueError("one of `key` and `token` must be given")
        _check_url(url)
        self._url, self._run, self._token, self._patience = url.rstrip("/"), run, token, patience
        self._ledger = ledger
        self._key: Any = None
        if key is not None:
            from guerdon.ledger.proof.submissions import read_private_key

            self._key = read_private_key(Path(key).expanduser())

    def tasks(self) -> Iterator[ServiceTask]:
        """Yield the task of each round, as it opens, until the run ends; one that was answered is left out."""
        done = 0
        while True:
            asked = json.loads(self._ask("GET", f"/v1/ask?after={done}&wait=20"))
            if asked["ended"]:
                return
            if asked["answered"] or asked["round"] <= done:
                done = asked["round"]
                continue
            try:
                model = load(self._ask("GET", f"/v1/rounds/{asked['round']}/model"))
            except ServiceError as error:
                if error.status == 409:  # it was settled meanwhile
                    continue
                raise
            work = None if asked["work"] is None else _checked(NamedWork(**asked["work"]), model)
            told = (asked[name] for name in ServiceTask._fields[:5])
            yield ServiceTask(*told, model=model, pay=asked["pay"], work=work)
            done = asked["round"]

    def report(self, task: ServiceTask, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Send what the agent computed; return what the service received."""
        plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        headers = {"content-type": "application/octet-stream", "guerdon-signature": self._sign(task, plain)}
        return json.loads(self._ask("PUT", f"/v1/rounds/{task.round}/report", save(plain), headers))

    def decline(self, task: ServiceTask, reason: str = "no reason given") -> dict[str, Any]:
        """Send nothing in a round: the agent is paid nothing, and nobody waits for it."""
        body, headers = json.dumps({"reason": reason}).encode(), {"content-type": "application/json"}
        return json.loads(self._ask("PUT", f"/v1/rounds/{task.round}/decline", body, headers))

    def pay(self, number: int) -> dict[str, Any]:
        """Return what the agent was paid for a round, and why."""
        return json.loads(self._ask("GET", f"/v1/rounds/{number}/pay"))

    def statement(self, count: int = 100) -> dict[str, Any]:
        """Return the last lines of the agent's statement."""
        return json.loads(self._ask("GET", f"/v1/statement?count={count}"))

    def model(self) -> dict[str, np.ndarray]:
        """Return the trained model, once the run has ended."""
        return load(self._ask("GET", "/v1/model"))

    def _sign(self, task: ServiceTask, arrays: Mapping[str, np.ndarray]) -> str:
        if self._key is None:
            return ""
        from guerdon.ledger.proof.submissions import gradient_hash, sign_submission, submission

        hashed = gradient_hash(arrays[name] for name in sorted(arrays))
        work = b"" if task.work is None else _hash_of(task.work)
        message = submission(self._ledger_name(), self._run, task.round, task.recorded, hashed, work)
        return sign_submission(self._key, message).hex()

    def _ledger_name(self) -> str:
        """Return the name of the ledger that signatures are for: as it was given, or else as the service says."""
        if self._ledger is None:
            self._ledger = str(json.loads(self._ask("GET", "/v1/health", proves=False))["ledger"])
        return self._ledger

    def _proof(self, method: str, target: str) -> str:
        """Return the header that says which agent this is."""
        if self._key is None:
            return f"Bearer {self._token}"
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        from guerdon.ledger.proof.submissions import access, fingerprint, sign_submission

        public = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        ledger, moment = self._ledger_name(), int(time.time())
        signed = sign_submission(self._key, access(ledger, self._run, method, target, moment))
        return f"Guerdon {fingerprint(public)}.{moment}.{signed.hex()}"

    def _ask(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        proves: bool = True,
    ) -> bytes:
        """Return an answer, asking again while the service is away or busy."""
        begun, wait, said = time.monotonic(), 0.1, -math.inf
        path = urllib.parse.urlsplit(self._url).path + target
        while True:
            proof = {"authorization": self._proof(method, path)} if proves else {}
            asked = urllib.request.Request(self._url + target, body, {**(headers or {}), **proof}, method=method)  # noqa: S310 - the user's URL
            try:
                with urllib.request.urlopen(asked, timeout=120) as answer:  # noqa: S310
                    return answer.read()
            except urllib.error.HTTPError as error:
                problem = ServiceError(error.code, _detail(error.read().decode("utf-8", "replace")))
                if error.code not in (408, 429, 502, 503, 504):
                    raise problem from None
            except (OSError, http.client.HTTPException) as error:  # away, or gone in the middle of an answer
                why = getattr(error, "reason", error)
                problem = ServiceError(0, f"{self._url} does not answer ({why}); is `guerdon serve` running there?")
            now = time.monotonic()
            if now > begun + self._patience:
                raise problem
            if now > begun + SILENT and now > said + AGAIN:
                said = now
                log.warning("%s; asking again for %.0f s", problem, begun + self._patience - now)
            time.sleep(wait)
            wait = min(2 * wait, 2.0)


def _check_url(url: str) -> None:
    """Raise unless nobody on the way can read what is sent to an address."""
    parts = urllib.parse.urlsplit(url)
    try:
        local = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        local = False
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise ValueError(f"`url` must begin with https://, or with http:// on this machine only, got {url!r}")


def _detail(text: str) -> str:
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        return text[:200]


def _checked(work: NamedWork, model: Mapping[str, np.ndarray]) -> NamedWork:
    """Return the work that a round names, or raise: a look would compute it at the model that it names."""
    from guerdon.looks.recompute import arrays_hash

    if arrays_hash(model).hex() != work.model:
        raise ServiceError(200, "the model must be the one that the request names: another was sent")
    return work


def _hash_of(work: NamedWork) -> bytes:
    """Return the hash of the work that the agent's signature covers."""
    from guerdon.looks.naming import NamedRound, work_hash

    return work_hash(NamedRound(bytes.fromhex(work.number), b"", b"", bytes.fromhex(work.model)), work.code)
