"""Who may look, and what a page may do: hosts, a token, and headers that keep the browser to this server."""

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response

COOKIE = "guerdon_session"
SESSION = 12 * 3600  # seconds until one has to log in again
SHORTEST_TOKEN = 16
OPEN_PATHS = ("/login", "/static/")

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


def check_token(token: str) -> str:
    """Return a token that is hard enough to guess and can be written in a header, or raise."""
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(
            f"the token must be at least {SHORTEST_TOKEN} ASCII characters without spaces, got {len(token)} characters"
        )
    return token


@dataclass(frozen=True)
class Access:
    """Who may look: all who reach the server under a loopback name, or all who know the token."""

    token: str | None = None
    loopback: bool = True
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def knows(self, token: str) -> bool:
        """Tell, in constant time, whether this is the token."""
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def session(self, now: float | None = None) -> str:
        """Return what the cookie holds after login: until when it is valid, signed; not the token."""
        expiry = str(int((time.time() if now is None else now) + SESSION))
        return f"{expiry}.{self._sign(expiry)}"

    def is_session(self, value: str, now: float | None = None) -> bool:
        """Tell whether a cookie was made here, and is still valid."""
        expiry, _, signature = value.partition(".")
        genuine = hmac.compare_digest(signature.encode(), self._sign(expiry).encode())
        return genuine and expiry.isdigit() and int(expiry) > (time.time() if now is None else now)

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Tell whether a request may see anything but the login page."""
        if self.token is None:
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.knows(token.strip()):
            return True
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return morsel is not None and self.is_session(morsel.value)

    def accepts_host(self, host: str) -> bool:
        """Tell whether a request names this machine: on loopback, any other name was rebound by DNS."""
        if not self.loopback:
            return True
        name = host[1 : host.find("]")] if host.startswith("[") else host.rpartition(":")[0] or host
        return is_loopback(name)

    def _sign(self, expiry: str) -> str:
        return hmac.new(self.secret, expiry.encode(), hashlib.sha256).hexdigest()


class Guard:
    """ASGI middleware: refuses requests without access, and adds the headers to every answer."""

    def __init__(self, app: Any, access: Access, asked: Callable[[], None]) -> None:
        self.app, self.access, self.asked = app, access, asked

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        self.asked()

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope) or self.app
        await answer(scope, receive, guarded)

    def _refusal(self, scope: Any) -> Response | None:
        headers, path = Headers(scope=scope), str(scope["path"])
        if not self.access.accepts_host(headers.get("host", "")):
            return problem(421, "this dashboard answers to 127.0.0.1 and localhost only; to serve others use --host")
        if path.startswith("/api") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return problem(403, "another site may not ask the dashboard")
        if path.startswith(OPEN_PATHS) or self.access.admits(headers):
            return None
        if path.startswith("/api"):
            return problem(401, "a token is needed: send it as `Authorization: Bearer TOKEN`, or log in")
        query = scope["query_string"].decode("latin-1")
        wanted = f"{path}?{query}" if query else path
        return RedirectResponse(f"/login?next={quote(wanted, safe='')}", 303)


def problem(status: int, detail: str) -> Response:
    """Return an error of the API."""
    content = {"title": TITLES.get(status, "Error"), "status": status, "detail": detail}
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(content, status, headers, "application/problem+json")


TITLES = {
    400: "Bad request",
    401: "Token needed",
    403: "Not allowed",
    404: "Not found",
    405: "Read only",
    421: "Wrong host",
    422: "Not understood",
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
