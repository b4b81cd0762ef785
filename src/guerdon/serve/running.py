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

from guerdon.dashboard.security import is_loopback
from guerdon.dashboard.sockets import address_of, listen
from guerdon.rule import Need, Rule
from guerdon.run.driver import PaidRun
from guerdon.serve.access import Members
from guerdon.serve.app import create_service_app
from guerdon.serve.service import Service
from guerdon.words import FEWEST

log = logging.getLogger("guerdon.serve")


def read_model(path: Path) -> dict[str, np.ndarray]:
    """Return the model in a safetensors file, or raise."""
    try:
        return load_file(path)
    except (SafetensorError, OSError, TypeError) as error:
        raise ValueError(f"`MODEL` must be a safetensors file of arrays that NumPy has, got {path}: {error}") from error


def read_tokens(path: Path) -> dict[str, str]:
    """Return the tokens in a JSON file, by agent, or raise."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`--tokens` must be a JSON file, got {path}: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(token, str) for token in found.values()):  # pyright: ignore[reportUnknownVariableType]
        raise ValueError(f'`--tokens` must be a JSON object {{"agent": "token", …}}, got {path}')
    return found  # pyright: ignore[reportUnknownVariableType]


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
            "`guerdon serve` must have agents, got no enrolled key and no token: run `guerdon ledger enrol NAME "
            "--public-key FILE` for each, or give `--tokens FILE`"
        )
    if Need.OTHERS in rule.needs and len(names) < FEWEST:
        log.warning(
            "Only %d of the agents that it takes, %d, can work (%s): so few reports cannot be compared. Enrol more: "
            "they can join while the run goes on", len(names), FEWEST, ", ".join(names),
        )  # fmt: skip


def run_service(
    run: PaidRun,
    spool: Path,
    tokens: dict[str, str],
    host: str,
    port: int,
    tls: tuple[Path, Path] | None,
    tell: Callable[[str], None],
) -> None:
    """Serve a run until interrupted; `tell` is given the address once agents can ask."""
    members = Members(run.name, run.book.keys, tokens)
    check_members(members, run.server.rule)
    opened = listen(host, port)
    with opened:
        service = Service(run, spool, members)
        app = create_service_app(service, loopback=is_loopback(host))
        quiet: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False, "ws": "none"}
        secure: dict[str, Any] = {} if tls is None else {"ssl_certfile": tls[0], "ssl_keyfile": tls[1]}
        address = address_of(opened, host)
        tell(address if tls is None else address.replace("http://", "https://", 1))
        uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=3, **quiet, **secure)).run(sockets=[opened])
