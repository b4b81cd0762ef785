"""The door of the service: who asks is proved before anything else is read, and what one agent asks is bounded."""

import time
from collections.abc import MutableMapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response

from guerdon.dashboard.security import GuessedError, problem
from guerdon.serve.access import Allowance, BusyError, Turns, UnknownAgentError
from guerdon.serve.service import Service
from guerdon.web import CLOSE, is_loopback, prove

OPEN = ("/v1/health", "/v1/openapi.json")  # what anybody may ask
LONGEST_BODY = 4096  # bytes of a request that is no report: a reason to decline has at most 200 letters
AGENT = "guerdon.agent"  # in the scope of a request: who was proved to send it


class Door:
    """ASGI middleware: only agents of the run come in, each within its `allowance`."""

    def __init__(self, app: Any, service: Service, allowance: Allowance, *, loopback: bool) -> None:
        self._app, self._service, self._loopback = app, service, loopback
        self._turns = Turns(allowance)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        try:
            scope[AGENT] = agent = await self._proved(scope)
            with self._turns.turn(agent, time.monotonic()):
                prove(scope)
                self._service.see(agent)
                await self._app(scope, _short(scope, receive), send)
        except (UnknownAgentError, GuessedError, BusyError, HTTPException) as error:
            await _refusal(error)(scope, receive, send)

    async def _proved(self, scope: MutableMapping[str, Any]) -> str:
        """Return which agent asks, or raise."""
        headers, members = Headers(scope=scope), self._service.members
        name = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
        if self._loopback and not is_loopback(name.strip("[]")):
            raise HTTPException(421, "this service answers to 127.0.0.1 and localhost only; to serve others use --host")
        query, shown = scope["query_string"].decode("latin-1"), headers.get("authorization", "")
        target = scope.get("raw_path", b"").decode("latin-1") + (f"?{query}" if query else "")
        if members.may_be_new(shown):
            await run_in_threadpool(members.refresh)
        return members.identify(scope["method"], target, shown, (scope.get("client") or [""])[0])


def _refusal(error: Any) -> Response:
    """Return the answer to who is not let in; its connection ends."""
    kinds = {UnknownAgentError: 401, GuessedError: 429, BusyError: 429}
    code = next((code for kind, code in kinds.items() if isinstance(error, kind)), getattr(error, "status_code", 500))
    answer = problem(code, getattr(error, "detail", None) or str(error), getattr(error, "headers", None))
    answer.headers.update(CLOSE)
    return answer


def _short(scope: MutableMapping[str, Any], receive: Any) -> Any:
    """Return what receives a body; one that is no report is short."""
    if scope["method"] == "PUT" and scope["path"].endswith("/report"):
        return receive
    size = 0

    async def received() -> Any:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > LONGEST_BODY:
            raise HTTPException(413, f"this request has at most {LONGEST_BODY} bytes", CLOSE)
        return message

    return received
