"""The dashboard on a hostile network: half-open connections and open streams do not keep its readers out."""

import contextlib
import http.client
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from guerdon.dashboard import api
from guerdon.dashboard.security import Access
from guerdon.web import Connections
from tests.dashboard.conftest import Served, ask

TOKEN = "correct-horse-battery-staple"  # noqa: S105


def connect(served: Served) -> socket.socket:
    host, _, port = served.address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def test_half_open_connections_cost_only_each_other(
    ledgers: Callable[[str], Path], serve: Callable[..., Served]
) -> None:
    connections = Connections(most=10, patience=30.0)
    served = serve(ledgers("small"), connections=connections, access=Access(TOKEN, loopback=False))
    with contextlib.ExitStack() as held:
        for _ in range(100):
            half = held.enter_context(connect(served))
            with contextlib.suppress(OSError):
                half.sendall(b"GET /runs HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            assert len(connections._open) <= 10
        assert ask(served, "/api/runs", Authorization=f"Bearer {TOKEN}").status == 200


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /runs HTTP/1.1\r\nHost: ", b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\ntoken="],
)
def test_who_is_not_let_in_does_not_stay(
    begun: bytes, ledgers: Callable[[str], Path], serve: Callable[..., Served]
) -> None:
    access = Access(TOKEN, loopback=False)
    served = serve(ledgers("empty"), connections=Connections(patience=0.4), access=access)
    with connect(served) as half:
        half.sendall(begun)
        with contextlib.suppress(ConnectionError):
            while half.recv(4096):  # a timeout fails the test
                pass
    assert ask(served, "/api/status", Authorization=f"Bearer {TOKEN}").status == 200


def test_streams_are_bounded(
    ledgers: Callable[[str], Path], serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "MOST_STREAMS", 3)
    served = serve(ledgers("small"), connections=Connections(patience=0.4))
    with contextlib.ExitStack() as held:
        streams = [http.client.HTTPConnection(served.address.removeprefix("http://"), timeout=20) for _ in range(3)]
        for stream in streams:
            held.callback(stream.close)
            stream.request("GET", "/api/events")
            assert stream.getresponse().status == 200
        refused = ask(served, "/api/events")
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert "3 pages follow the ledger already" in refused.json()["detail"]
        assert ask(served, "/api/status").status == 200, "pages are served as before"
        time.sleep(1.0)  # more than the patience: who is let in may stay
        assert served.app.state.streams == 3
    end = time.monotonic() + 20
    while ask(served, "/api/status").status == 200 and served.app.state.streams:
        assert time.monotonic() < end, "a stream that ended keeps its place"
    assert served.app.state.streams == 0
