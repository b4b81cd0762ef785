"""Access, and what a page may do: hosts, a token, and headers that keep the browser to this server."""

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response

from guerdon.web import is_loopback, neighbourhood, prove

COOKIE = "guerdon_session"
SESSION = 12 * 3600  # seconds until one has to log in again
SHORTEST_TOKEN = 16
OPEN_PATHS = ("/login", "/static/")
FREE_GUESSES = 5  # wrong tokens from one address that need not wait; each further one waits twice as long
LONGEST_WAIT = 60.0  # seconds
FORGOTTEN = 900.0  # seconds after its last wrong token an address starts anew
MOST_ADDRESSES = 10_000

log = logging.getLogger("guerdon.dashboard")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# For a file that another program wrote: it may be shown, and do nothing.
SANDBOX = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'"

HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "content-security-policy": POLICY,
    "cache-control": "no-store",
}


def check_token(token: str) -> str:
    """Return a token that is hard enough to guess and can be written in a header, or raise."""
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(
            f"the token must be at least {SHORTEST_TOKEN} ASCII characters without spaces, got {len(token)} characters"
        )
    return token


class GuessedError(Exception):
    """Another wrong token, from an address that sent too many."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many wrong tokens came from this address; try again in {seconds:.0f} s")
        self.headers = {"retry-after": f"{seconds:.0f}"}


class WrongTokens(NamedTuple):
    """How many wrong tokens came from an address, and when the last one did."""

    number: int
    last: float


class Guesses:
    """Wrong tokens by address: after a few, each is noted and logged twice as long after the one before.

    Only what is wrong comes here. Who sends the right token never waits for others at the same address.
    """

    def __init__(self) -> None:
        self._wrong: dict[str, WrongTokens] = {}

    def note(self, address: str, now: float) -> None:
        """Note a wrong token, or raise while its address has to wait; of too many addresses the first is forgotten."""
        address = neighbourhood(address)
        number, last = self._wrong.get(address, (0, now))
        wait = min(LONGEST_WAIT, 2.0 ** min(number - FREE_GUESSES, 60)) if number >= FREE_GUESSES else 0.0
        if last + wait > now:
            raise GuessedError(max(1.0, last + wait - now))
        before = self._wrong.pop(address, WrongTokens(0, now))
        number = 1 if now - before.last > FORGOTTEN else before.number + 1
        self._wrong[address] = WrongTokens(number, now)
        if len(self._wrong) > MOST_ADDRESSES:
            self._wrong.pop(next(iter(self._wrong)))
        log.warning("wrong token from %s (%d)", address or "an unknown address", number)


@dataclass(frozen=True)
class Access:
    """Access to the pages: for everybody on this machine, or for everybody that knows the token."""

    token: str | None = None
    loopback: bool = True
    guesses: Guesses = field(default_factory=Guesses, repr=False)
    _sessions: dict[bytes, float] = field(default_factory=dict[bytes, float], repr=False)  # hash: valid until

    def knows(self, token: str, address: str = "", now: float | None = None) -> bool:
        """Tell, in constant time, whether this is the token; raise where it is not, and its address has to wait."""
        right = self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())
        if not right:
            self.guesses.note(address, time.time() if now is None else now)
        return right

    def session(self, now: float | None = None) -> str:
        """Return what the cookie holds after login: something random; it is kept here until when it is valid."""
        moment, value = time.time() if now is None else now, secrets.token_urlsafe(32)
        for past in [key for key, end in self._sessions.items() if end <= moment]:
            del self._sessions[past]
        self._sessions[_hashed(value)] = moment + SESSION
        return value

    def is_session(self, value: str, now: float | None = None) -> bool:
        """Tell whether a cookie was made here, and is still valid."""
        return self._sessions.get(_hashed(value), 0.0) > (time.time() if now is None else now)

    def end_session(self, headers: Mapping[str, str]) -> None:
        """Forget the sessions of a request: their cookies are worth nothing from now on."""
        for value in _own_cookies(headers):
            self._sessions.pop(_hashed(value), None)

    def admits(self, headers: Mapping[str, str], address: str = "") -> bool:
        """Tell whether a request may see anything but the login page; raise where a wrong token has to wait."""
        if self.token is None or any(self.is_session(value) for value in _own_cookies(headers)):
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.knows(token.strip(), address)

    def accepts_host(self, host: str) -> bool:
        """Tell whether a request names this machine: on loopback, any other name was rebound by DNS."""
        if not self.loopback:
            return True
        name = host[1 : host.find("]")] if host.startswith("[") else host.rpartition(":")[0] or host
        return is_loopback(name)


def _hashed(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()


def _own_cookies(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield what our cookies hold; those of other programs on this host may be written in any way."""
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            yield value


class Guard:
    """ASGI middleware: refuses requests without access, and adds the headers to every answer.

    `answering` is entered with each request, and left when its answer begins.
    """

    def __init__(self, app: Any, access: Access, answering: Callable[[], AbstractContextManager[None]]) -> None:
        self.app, self.access, self.answering = app, access, answering

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        pending = ExitStack()

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                pending.close()
            await send(message)

        with pending:
            pending.enter_context(self.answering())
            answer = self._refusal(scope) or self.app
            await answer(scope, receive, guarded)

    def _refusal(self, scope: Any) -> Response | None:
        headers, path = Headers(scope=scope), str(scope["path"])
        if not self.access.accepts_host(headers.get("host", "")):
            return problem(421, "this dashboard answers to 127.0.0.1 and localhost only; to serve others use --host")
        for_programs = path.startswith(("/api", "/metrics"))
        if for_programs and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return problem(403, "another site may not ask the dashboard")
        try:
            scope["admitted"] = self.access.admits(headers, (scope.get("client") or [""])[0])
        except GuessedError as error:
            return problem(429, str(error), error.headers)
        if scope["admitted"]:
            prove(scope)
        if path.startswith(OPEN_PATHS) or scope["admitted"]:
            return None
        if for_programs:
            return problem(401, "a token is needed: send it as `Authorization: Bearer TOKEN`, or log in")
        query = scope["query_string"].decode("latin-1")
        wanted = f"{path}?{query}" if query else path
        return RedirectResponse(f"/login?next={quote(wanted, safe='')}", 303)


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error of the API."""
    content = {"title": TITLES.get(status, "Error"), "status": status, "detail": detail}
    headers = {"www-authenticate": "Bearer"} if status == 401 else headers
    return JSONResponse(content, status, headers, "application/problem+json")


TITLES = {
    400: "Bad request",
    401: "Token needed",
    403: "Not allowed",
    404: "Not found",
    405: "Read only",
    408: "Too slow",
    421: "Wrong host",
    422: "Not understood",
    429: "Too many requests",
    500: "Something went wrong",
    503: "Ledger not available",
}


def safe_next(path: str) -> str:
    """Return where to go after login: always a path on this server.

    >>> safe_next("/runs/3"), safe_next("//evil.example"), safe_next("https://evil.example")
    ('/runs/3', '/', '/')
    """
    inside = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and path.isascii()
    return path if inside else "/"
