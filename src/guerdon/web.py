"""What the service and the dashboard share: sockets that outlast an attack, TLS off loopback, and proxies.

A connection has `patience` seconds to prove itself: to finish the TLS handshake and a request's header, and to be let
in by the application. When all places are taken, a new connection takes the place of one that has proved nothing; of
these, the oldest one from the address that has most. So half-open connections cost only each other.
"""

import asyncio
import ipaddress
import os
import socket
import ssl
import stat
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

Peer: TypeAlias = tuple[str, int]
Networks: TypeAlias = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]

PATIENCE = 10.0  # seconds for handshake and header: TCP sends a lost packet again after 1, 3 and 7 s
STALLED = 60.0  # seconds without a byte after which a body is given up
BACKLOG = 128  # connections that are accepted at once, before any of them is closed
SPARE = 64  # files that the process opens for itself: ledger, logs, listening socket
FEWEST = 32  # connections, however few files may be open
LAST_PORT = 65535  # a port is written in 16 bits
UNKNOWN = 256  # files that may be open where the system does not say: the least that Linux and macOS have
CLOSE = {"connection": "close"}  # a header: nothing more is read from who sent this
CONNECTION = "guerdon.connection"  # in the scope of a request: what it came by


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def neighbourhood(address: str) -> str:
    """Return what one sender has of addresses: one of IPv4, or 2⁶⁴ of IPv6, as providers hand them out.

    >>> neighbourhood("::ffff:192.0.2.7"), neighbourhood("2001:db8:1:2:3:4:5:6"), neighbourhood("")
    ('192.0.2.7', '2001:db8:1:2::/64', '')
    """
    address = _plain(address)
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False)) if isinstance(found, ipaddress.IPv6Address) else address


def most_connections() -> int:
    """Return how many connections this process can hold: each may have a file open beside its socket.

    416 where the system allows 1,024 open files, as Linux does by default; `ulimit -n` raises both.
    """
    try:
        import resource
    except ImportError:
        soft = UNKNOWN
    else:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        soft = 2**20 if soft == resource.RLIM_INFINITY else soft
    return max(FEWEST, (soft - SPARE - BACKLOG) // 2)


@dataclass(eq=False)
class Connection:
    """An accepted socket: since when it has proved nothing, whether a request on it has, and how many it had."""

    taken: socket.socket
    peer: Peer
    since: float
    proven: bool = False
    requests: int = 0

    def end(self) -> None:
        """Break it off; its reader or writer closes it."""
        with suppress(OSError):
            self.taken.shutdown(socket.SHUT_RDWR)


@dataclass
class Connections:
    """The open connections of a server; at most `most`, and none that proves nothing for `patience` seconds."""

    most: int = field(default_factory=most_connections)
    patience: float = PATIENCE
    _open: dict[Peer, Connection] = field(default_factory=dict[Peer, Connection])

    def add(self, taken: socket.socket, peer: Peer) -> bool:
        """Note a new connection; False where there is no place, because all others have proved themselves."""
        if len(self._open) >= self.most and not self._make_room():
            return False
        self._open[peer] = Connection(taken, peer, time.monotonic())
        return True

    def drop(self, taken: socket.socket, peer: Peer) -> None:
        """Forget a connection that is closed."""
        found = self._open.get(peer)
        if found is not None and found.taken is taken:
            del self._open[peer]

    def find(self, peer: Peer | None) -> Connection | None:
        """Return the connection of a peer."""
        return None if peer is None else self._open.get((peer[0], peer[1]))

    def sweep(self) -> None:
        """Break off all that have proved nothing for too long."""
        late = time.monotonic() - self.patience
        for found in [one for one in self._open.values() if not one.proven and one.since < late]:
            self._end(found)

    async def sweep_forever(self) -> None:
        """Sweep again and again."""
        while True:
            await asyncio.sleep(min(1.0, self.patience / 4))
            self.sweep()

    def _make_room(self) -> bool:
        waiting = [one for one in self._open.values() if not one.proven]
        if not waiting:
            return False
        counts = Counter(neighbourhood(one.peer[0]) for one in waiting)
        self._end(max(waiting, key=lambda one: (counts[neighbourhood(one.peer[0])], -one.since)))
        return True

    def _end(self, found: Connection) -> None:
        self._open.pop(found.peer, None)
        found.end()


class Accepted(socket.socket):
    """An accepted socket, which its listener forgets once it is closed."""

    connections: Connections
    peer: Peer

    def close(self) -> None:
        """Close it."""
        self.connections.drop(self, self.peer)
        super().close()


class Listener(socket.socket):
    """A socket that listens, and takes no more connections than there is place for."""

    connections: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection, as asyncio asks for it; raise as if it had gone where there is no place."""
        taken, address = super().accept()
        accepted = Accepted(taken.family, taken.type, taken.proto, fileno=taken.detach())
        accepted.connections, accepted.peer = self.connections, (str(address[0]), int(address[1]))
        if not self.connections.add(accepted, accepted.peer):
            accepted.close()
            raise ConnectionAbortedError("no place")
        return accepted, address


def listen(host: str, port: int, connections: Connections | None = None) -> Listener:
    """Return a socket that listens, or raise an OSError that says what to do."""
    if not 0 <= port <= LAST_PORT:
        raise ValueError(f"`--port` must be a number from 0 (any free port) to {LAST_PORT}, got {port}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise OSError(f"`--host` must be an address of this machine, got {host!r}") from error
    opened = Listener(family, socket.SOCK_STREAM)
    opened.connections = Connections() if connections is None else connections
    try:
        if os.name == "posix":  # elsewhere it would let two programs share a port
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise OSError(
            f"cannot listen on port {port} of {host} ({error.strerror}); choose another with --port, or 0 for any"
        ) from error
    return opened


def address_of(opened: socket.socket, host: str, *, secure: bool = False) -> str:
    """Return the address to type into a browser."""
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)  # noqa: S104 - compared with
    shown = f"[{name}]" if ":" in name else name
    return f"{'https' if secure else 'http'}://{shown}:{opened.getsockname()[1]}/"


class Exposure(NamedTuple):
    """How a server is reached: where it listens, its certificate and key, and the proxies whose word it takes."""

    host: str = "127.0.0.1"
    tls: tuple[Path, Path] | None = None
    proxies: Networks = ()

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine reach it."""
        return is_loopback(self.host) and not self.proxies

    def check(self) -> None:
        """Raise where others could read what is sent, or the certificate cannot be used."""
        if self.tls is not None:
            check_private(self.tls[1], "--tls-key")
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self.tls, password=_no_password)
            except (OSError, ValueError) as error:
                raise ValueError(
                    f"`--tls-cert` and `--tls-key` must be a certificate (PEM) and its key, without a password, got "
                    f"{self.tls[0]} and {self.tls[1]}: {error}"
                ) from error
        elif not is_loopback(self.host) and not self.proxies:
            raise ValueError(
                f"`--host` must be an address of this machine only where there is no TLS, got {self.host!r}: anybody "
                "on the way could read what is sent; give --tls-cert and --tls-key, or --behind-proxy ADDRESS where a "
                "proxy has the certificate"
            )

    def settings(self) -> dict[str, Any]:
        """Return the settings of uvicorn: no access log, which would keep addresses; no header is believed."""
        quiet = {"log_level": "error", "access_log": False, "server_header": False, "ws": "none", "backlog": BACKLOG}
        # `Listener.accept` is called by asyncio's own loop.
        safe = {"proxy_headers": False, "loop": "asyncio", "timeout_graceful_shutdown": 3}
        return quiet | safe | ({} if self.tls is None else {"ssl_certfile": self.tls[0], "ssl_keyfile": self.tls[1]})


def _no_password() -> str:
    raise ValueError("the key has a password")


def exposure(host: str, tls_cert: Path | None, tls_key: Path | None, behind_proxy: str | None) -> Exposure:
    """Return how a server is reached, from the options of a command, or raise."""
    if (tls_cert is None) != (tls_key is None):
        raise ValueError("`--tls-cert` and `--tls-key` must be given together, got one of them")
    tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    found = Exposure(host, tls, () if behind_proxy is None else read_proxies(behind_proxy))
    found.check()
    return found


def read_proxies(text: str) -> Networks:
    """Return the proxies that are named, addresses or networks with commas between, or raise.

    >>> [str(one) for one in read_proxies("10.0.0.5,192.168.7.0/24")]
    ['10.0.0.5/32', '192.168.7.0/24']
    """
    try:
        found = tuple(ipaddress.ip_network(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise ValueError(
            f"`--behind-proxy` must be the addresses of the proxies, such as 10.0.0.5,192.168.7.0/24, got {text!r}: "
            f"{error}"
        ) from error
    if any(one.prefixlen == 0 for one in found):
        raise ValueError(f"`--behind-proxy` must name the proxies, got {text!r}: that is every address")
    return found


def check_private(path: Path, option: str) -> None:
    """Raise where other users of this machine may read or change the file of a secret."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise ValueError(f"`{option}` must be a file that can be read, got {path}: {_why(error)}") from error
    if os.name == "posix" and mode & 0o007:
        raise ValueError(
            f"`{option}` must be a file that other users cannot open, got {path} with mode {mode:04o}: run "
            f"chmod o-rwx {path}"
        )


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def prove(scope: Any) -> None:
    """Note that the sender of a request was let in: its connection is no longer hurried."""
    found: Connection | None = scope.get(CONNECTION)
    if found is not None:
        found.proven = True


class Front:
    """ASGI middleware, the outermost: watches connections, answers proxies only where some are named, reads bodies.

    `app` sees the address that a named proxy tells; without proxies, `X-Forwarded-For` is not looked at.
    """

    def __init__(self, app: Any, connections: Connections, proxies: Networks = (), stalled: float = STALLED) -> None:
        self._connections, self._proxies, self._stalled = connections, proxies, stalled
        self._app = ProxyHeadersMiddleware(app, [str(one) for one in proxies]) if proxies else app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            sweeping = asyncio.create_task(self._connections.sweep_forever())
            try:
                await self._app(scope, receive, send)
            finally:
                sweeping.cancel()
            return
        peer: Peer | None = scope.get("client")
        scope[CONNECTION] = found = self._connections.find(peer)
        scope["client"] = peer = None if peer is None else (_plain(peer[0]), peer[1])
        number = self._begin(found)
        try:
            answer = self._app if self._is_expected(peer) else PlainTextResponse("only the proxy may ask", 403, CLOSE)
            await answer(scope, _steady(receive, self._stalled), send)
        finally:
            # The next request may have begun before this one's clean-up ends: what it proves is its own.
            if found is not None and found.requests == number:
                found.proven, found.since = False, time.monotonic()

    def _begin(self, found: Connection | None) -> int:
        """Return the number of a request on its connection."""
        if found is None:
            return 0
        found.requests += 1
        return found.requests

    def _is_expected(self, peer: Peer | None) -> bool:
        if not self._proxies:
            return True
        return peer is not None and any(ipaddress.ip_address(peer[0]) in network for network in self._proxies)


def _plain(host: str) -> str:
    """Return an address as IPv4 where it is one that a socket for both shows as IPv6."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return host if mapped is None else str(mapped)


def _steady(receive: Any, stalled: float) -> Any:
    """Return what receives a body, and gives it up where nothing of it arrives for too long."""
    whole = False

    async def received() -> Any:
        nonlocal whole
        if whole:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), stalled)
        except TimeoutError:
            raise HTTPException(408, f"nothing arrived for {stalled:g} s; send it again", CLOSE) from None
        whole = not message.get("more_body", False)
        return message

    return received


def names_of(lines: Iterable[str]) -> list[str]:
    """Return the names in lines, one each; what follows a # is left out.

    >>> names_of(["# who works", "north", "  south # since May", ""])
    ['north', 'south']
    """
    return [name for line in lines if (name := line.partition("#")[0].strip())]
