"""Serving the dashboard: its socket, a token where other machines can reach it, and a browser."""

import os
import secrets
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from guerdon.dashboard.app import create_app
from guerdon.dashboard.security import Access, check_token
from guerdon.web import Connections, Exposure, Front, address_of, check_private, listen

TOKEN_VARIABLE = "GUERDON_DASHBOARD_TOKEN"  # noqa: S105 - the name of a variable


def find_token(exposed: Exposure, file: Path | None) -> tuple[str | None, bool]:
    """Return the token that is needed, if one is, and whether it was made here and must be shown."""
    if file is not None:
        check_private(file, "--token-file")
        return check_token(file.read_text(encoding="utf-8").strip()), False
    given = os.environ.get(TOKEN_VARIABLE)
    if given is not None:
        return check_token(given.strip()), False
    return (None, False) if exposed.loopback else (secrets.token_urlsafe(32), True)


class DashboardServer(uvicorn.Server):
    """A server that closes the dashboard's streams first, so that none delays its end."""

    def __init__(self, app: FastAPI, connections: Connections, exposed: Exposure | None = None) -> None:
        exposed = Exposure() if exposed is None else exposed
        front: Any = Front(app, connections, exposed.proxies)
        super().__init__(uvicorn.Config(front, **exposed.settings()))
        self._app = app

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._app.state.monitor.close()
        super().handle_exit(sig, frame)


def serve(
    where: str,
    exposed: Exposure,
    port: int,
    report: Path,
    pilot: Path | None,
    token: str | None,
    browser: bool,
    tell: Any,
) -> None:
    """Serve the dashboard until interrupted; `tell` is given the address once it can be opened."""
    app = create_app(where, report, Access(token, loopback=exposed.loopback), pilot)
    connections = Connections()
    opened = listen(exposed.host, port, connections)
    address = address_of(opened, exposed.host, secure=exposed.tls is not None)
    tell(address)
    # A browser inside the terminal is not wanted.
    has_display = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if browser and has_display:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with opened:
        DashboardServer(app, connections, exposed).run(sockets=[opened])
