"""Server-sent events: what changes reaches the page without a reload."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

from fastapi.encoders import jsonable_encoder

from guerdon.dashboard.monitor import LedgerMonitor

TICK = 0.2  # seconds between two looks at what the monitor knows
PING = 15.0  # seconds of silence after which a comment keeps the connection open


def event(name: str, data: Any) -> str:
    """Return one event as it goes over the wire."""
    return f"event: {name}\ndata: {json.dumps(jsonable_encoder(data), ensure_ascii=False, allow_nan=False)}\n\n"


async def follow(monitor: LedgerMonitor) -> AsyncGenerator[str]:
    """Yield the status now, and again whenever it changes."""
    last, quiet = None, time.monotonic()
    yield "retry: 1000\n\n"
    while not monitor.closing:
        now = monitor.status
        if now != last:
            last, quiet = now, time.monotonic()
            yield event("status", now)
        elif time.monotonic() - quiet > PING:
            quiet = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(TICK)
