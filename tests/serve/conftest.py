"""A service that is really served, and agents that really ask."""

import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from safetensors.numpy import save

from guerdon import AffineCost, FixedRequest, InformationPay
from guerdon.client import ServiceClient
from guerdon.ledger import Ledger
from guerdon.run.driver import open_run
from guerdon.serve.access import Allowance, Members
from guerdon.serve.app import create_service_app
from guerdon.serve.service import Service
from guerdon.statistical.servers import server_for
from guerdon.terms import Terms
from guerdon.web import Connections, Exposure, Front, address_of, listen

MODEL = {"a": np.zeros((2, 4)), "b": np.zeros(4)}
TOKENS = {name: f"token-of-{name}-is-long" for name in ("north", "south", "east", "west")}
RULE = InformationPay(AffineCost(1, 1))


class Served(NamedTuple):
    """A service that answers at an address."""

    address: str
    service: Service

    def client(self, token: str, **options: Any) -> ServiceClient:
        """Return an agent that shows a token."""
        return ServiceClient(self.address, run=self.service.run.name, token=token, patience=10, **options)


def make_service(
    folder: Path, ledger: Ledger, *, rule: Any = RULE, requests: Any = None, tokens: Mapping[str, str] = TOKENS,
    deadline: float = 60.0, model: Mapping[str, np.ndarray] = MODEL, run: Mapping[str, Any] | None = None,
    terms: Mapping[str, Any] | None = None, named: Collection[str] = (),
    **options: Any,
) -> Service:  # fmt: skip
    """Return the service of a run, whose agents have tokens, or keys and are `named`; `options` are the server's."""
    server = server_for(rule, requests or FixedRequest(8, 0.05), **options)
    told = dict[str, Any](deadline=deadline) | dict(terms or {})
    paid = open_run(server, ledger, "run", model, Terms(**told), **(dict[str, Any](rounds=3) | dict(run or {})))
    return Service(
        paid, folder / "spool", Members("run", paid.book.keys, tokens, ledger=ledger.name, named=lambda: named)
    )


@contextmanager
def serving(
    service: Service, *, connections: Connections | None = None, exposed: Exposure | None = None,
    allowance: Allowance | None = None, stalled: float = 60.0,
) -> Generator[Served]:  # fmt: skip
    """Serve in a thread, as `run_service` does."""
    exposed, connections = exposed or Exposure(), connections or Connections()
    opened = listen(exposed.host, 0, connections)
    app = create_service_app(service, loopback=exposed.loopback, allowance=allowance)
    front: Any = Front(app, connections, exposed.proxies, stalled)
    settings: dict[str, Any] = {**exposed.settings(), "log_level": "critical"}
    server = uvicorn.Server(uvicorn.Config(front, **settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    with opened:
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield Served(address_of(opened, exposed.host, secure=exposed.tls is not None).rstrip("/"), service)
        server.should_exit = True
        thread.join()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "guerdon.db") as opened:
        yield opened


@pytest.fixture
def served(tmp_path: Path, ledger: Ledger) -> Iterator[Served]:
    """A run of three rounds whose agents have tokens."""
    with serving(make_service(tmp_path, ledger)) as one:
        yield one


def write_key(path: Path) -> bytes:
    """Write a new private key, and return its public key (DER)."""
    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def gradient(seed: int, model: Mapping[str, np.ndarray] = MODEL) -> dict[str, np.ndarray]:
    """Return what an honest agent sends: something common, and noise."""
    rng = np.random.default_rng(seed)
    return {name: 1.0 + rng.normal(size=array.shape).astype(array.dtype) for name, array in model.items()}


def save_draft(service: Service, arrays: Mapping[str, np.ndarray]) -> Path:
    """Write a report as if it had arrived."""
    draft = service.spool.draft()
    draft.write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
    return draft


def work(client: ServiceClient, send: Callable[[Any], Mapping[str, np.ndarray]]) -> None:
    """Work until the run ends."""
    for task in client.tasks():
        client.report(task, send(task))


def together(*jobs: Callable[[], None]) -> None:
    """Do several jobs at the same time, and raise what any of them raised."""
    failures: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
