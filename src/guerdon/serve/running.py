"""Serving a run until it is interrupted."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from safetensors import SafetensorError
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]

from guerdon.ledger.books.checks import check_name
from guerdon.rule import Need, Rule
from guerdon.run.driver import PaidRun
from guerdon.serve.access import Members
from guerdon.serve.app import create_service_app
from guerdon.serve.service import Service
from guerdon.web import Connections, Exposure, Front, address_of, check_private, listen, names_of
from guerdon.words import FEWEST

log = logging.getLogger("guerdon.serve")


def read_model(path: Path) -> dict[str, np.ndarray]:
    """Return the model in a safetensors file, or raise."""
    try:
        return load_file(path)
    except (SafetensorError, OSError, TypeError) as error:
        raise ValueError(f"`MODEL` must be a safetensors file of arrays that NumPy has, got {path}: {error}") from error


def read_tokens(path: Path) -> dict[str, str]:
    """Return the tokens in a JSON file, by agent, or raise; a file that others can open is refused."""
    check_private(path, "--tokens")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`--tokens` must be a JSON file, got {path}: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(token, str) for token in found.values()):  # pyright: ignore[reportUnknownVariableType]
        raise ValueError(f'`--tokens` must be a JSON object {{"agent": "token", …}}, got {path}')
    return found  # pyright: ignore[reportUnknownVariableType]


class NamedIn:
    """The names in a file, one on each line, as the file is now: who works for a run may be changed while it goes on.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "heart.members"
    >>> _ = file.write_text("north\\nsouth  # since May\\n")
    >>> NamedIn(file)()
    ['north', 'south']
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = self._read()

    def __call__(self) -> list[str]:
        """Return the names; those that were read last where the file cannot be read."""
        try:
            self._last = self._read()
        except ValueError as error:
            log.warning("Members stay as they were: %s", error)
        return self._last

    def _read(self) -> list[str]:
        try:
            found = names_of(self._path.read_text(encoding="utf-8").splitlines())
            for name in found:
                check_name("a name", name)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"`--members` must be a file with the name of an agent on each line, got {self._path}: {error}"
            ) from error
        return found


def write_lines(path: Path) -> Callable[[dict[str, float]], None]:
    """Return what appends the numbers of each round to a file, a line of JSON each; pay does not wait for a full disk.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rounds.jsonl"
    >>> write_lines(file)({"guerdon/round": 1.0, "guerdon/paid": 34.0})
    >>> file.read_text()
    '{"guerdon/round": 1.0, "guerdon/paid": 34.0}\\n'
    """
    try:
        path.open("a").close()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ValueError(f"`--log` must be a file that can be written, got {path}: {why}") from error

    def write(told: dict[str, float]) -> None:
        try:
            with path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(told) + "\n")
        except OSError as error:
            log.warning("The numbers of round %d are not in %s: %s", told["guerdon/round"], path, error)

    return write


def check_members(members: Members, rule: Rule) -> None:
    """Raise where nobody could work for a run; warn of fewer than it takes to compare reports."""
    names = members.names()
    if not names:
        raise ValueError(
            "`guerdon serve` must have agents of this run, got no enrolled key and no token: run `guerdon ledger "
            "enrol NAME --public-key FILE` for each and name them in the file of `--members`, or give `--tokens FILE`"
        )
    lacking = members.without_proof()
    if lacking:
        log.warning("`--members` names %s, without a key in the ledger or a token (yet)", ", ".join(lacking[:10]))
    if Need.OTHERS in rule.needs and len(names) < FEWEST:
        log.warning(
            "Only %d of the agents that it takes, %d, can work (%s): so few reports cannot be compared. Enrol more: "
            "they can join while the run goes on", len(names), FEWEST, ", ".join(names),
        )  # fmt: skip


def run_service(
    run: PaidRun,
    spool: Path,
    members: Members,
    exposed: Exposure,
    port: int,
    tell: Callable[[str], None],
) -> None:
    """Serve a run until interrupted; `tell` is given the address once agents can ask."""
    check_members(members, run.server.rule)
    connections = Connections()
    with listen(exposed.host, port, connections) as opened:
        app = create_service_app(Service(run, spool, members), loopback=exposed.loopback)
        tell(address_of(opened, exposed.host, secure=exposed.tls is not None))
        front: Any = Front(app, connections, exposed.proxies)
        uvicorn.Server(uvicorn.Config(front, **exposed.settings())).run(sockets=[opened])
