"""A connection that is used again: what a request proves is not taken back by the one before it."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from guerdon.web import CONNECTION, Connections, Front

PEER = ("127.0.0.1", 4321)


def test_a_request_that_cleans_up_late_does_not_take_back_what_the_next_has_proved() -> None:
    connections, cleaned = Connections(), asyncio.Event()
    ours, theirs = socket.socketpair()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        del receive, send
        scope[CONNECTION].proven = True
        if scope["path"] == "/first":
            await cleaned.wait()  # its answer was sent, and its coroutine has not ended

    async def both() -> bool:
        front: Any = Front(app, connections)
        scopes = [{"type": "http", "client": PEER, "path": path, "headers": []} for path in ("/first", "/second")]
        first = asyncio.create_task(front(scopes[0], None, None))
        await asyncio.sleep(0)
        second: Any = connections.find(PEER)
        number = front._begin(second)
        second.proven = True
        cleaned.set()
        await first
        return second.proven and number == 2

    with ours, theirs:
        assert connections.add(ours, PEER)
        with ThreadPoolExecutor() as pool:  # a browser's test may have left a loop in this thread
            assert pool.submit(asyncio.run, both()).result(), "the second request is still being answered"
