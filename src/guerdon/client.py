"""The agent's side of `guerdon serve`: needs NumPy and safetensors, and cryptography where it signs.

    client = ServiceClient("http://127.0.0.1:8734", run="heart-2026", key="north.pem")
    for task in client.tasks():                                   # until the run ends
        client.report(task, gradient(task.model, task.request))   # arrays named and shaped like the model's
    print(client.statement())

Whatever is asked is asked again while the service is away: it takes every report once.
"""

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save


class ServiceTask(NamedTuple):
    """What the agent is asked for: `request` samples at `model`, arrays by name; `pay` is for the round before."""

    run: str
    round: int
    request: int
    recorded: int
    sends: str  # "gradients", or "models" that are trained from this one
    model: dict[str, np.ndarray]
    pay: dict[str, Any] | None


class ServiceError(Exception):
    """The service refuses something; `status` is HTTP's."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{detail} ({status})")
        self.status = status


class ServiceClient:
    """An agent of a run: it signs with the private key in a file (`key`), or shows its `token`.

    `patience` is how many seconds it keeps asking a service that does not answer.
    """

    def __init__(
        self, url: str, *, run: str, key: str | Path | None = None, token: str | None = None, patience: float = 600.0
    ) -> None:
        if (key is None) == (token is None):
            raise ValueError("one of `key` and `token` must be given")
        self._url, self._run, self._token, self._patience = url.rstrip("/"), run, token, patience
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
            yield ServiceTask(*(asked[name] for name in ServiceTask._fields[:5]), model=model, pay=asked["pay"])
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
        return sign_submission(self._key, submission(self._run, task.round, task.recorded, hashed)).hex()

    def _proof(self, method: str, target: str) -> str:
        """Return the header that says which agent this is."""
        if self._key is None:
            return f"Bearer {self._token}"
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        from guerdon.ledger.proof.submissions import access, fingerprint, sign_submission

        public = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        moment = int(time.time())
        signed = sign_submission(self._key, access(self._run, method, target, moment))
        return f"Guerdon {fingerprint(public)}.{moment}.{signed.hex()}"

    def _ask(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return an answer, asking again while the service is away or busy."""
        end, wait = time.monotonic() + self._patience, 0.1
        path = urllib.parse.urlsplit(self._url).path + target
        while True:
            signed = {**(headers or {}), "authorization": self._proof(method, path)}
            asked = urllib.request.Request(self._url + target, body, signed, method=method)  # noqa: S310 - the user's URL
            try:
                with urllib.request.urlopen(asked, timeout=120) as answer:  # noqa: S310
                    return answer.read()
            except urllib.error.HTTPError as error:
                text = error.read().decode("utf-8", "replace")
                if error.code not in (408, 429, 502, 503, 504) or time.monotonic() > end:
                    raise ServiceError(error.code, _detail(text)) from None
            except (OSError, http.client.HTTPException) as error:  # away, or gone in the middle of an answer
                if time.monotonic() > end:
                    raise ServiceError(0, f"{self._url} does not answer: {error}") from error
            time.sleep(wait)
            wait = min(2 * wait, 2.0)


def _detail(text: str) -> str:
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
