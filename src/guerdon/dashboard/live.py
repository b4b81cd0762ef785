"""Server-sent events: what changes reaches the page without a reload."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

from guerdon.dashboard.monitor import Monitor, Snapshot

TICK = 0.2  # seconds between two looks at what the monitor knows
PING = 15.0  # seconds of silence after which a comment keeps the connection open


def event(name: str, data: dict[str, Any]) -> str:
    """Return one event as it goes over the wire."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False, allow_nan=False)}\n\n"


def status(snapshot: Snapshot) -> dict[str, Any]:
    """Return what the dashboard knows as JSON has it."""
    head, check = snapshot.head, snapshot.check
    return {
        "available": head is not None,
        "reason": snapshot.reason,
        "ledger": None if head is None else head.ledger,
        "unit": None if head is None else head.unit,
        "record": None if head is None else head.record,
        "head": None if head is None else head.hash,
        "at": None if head is None else head.at.isoformat(),
        "verification": {
            "state": check.state,
            "progress": round(check.progress, 2),
            "record": check.record,
            "payments": check.payments,
            "at": None if check.at is None else check.at.isoformat(),
            "problem": check.problem,
            "summary": summary(snapshot),
        },
    }


def summary(snapshot: Snapshot) -> str:
    """Return in a few words whether the ledger holds."""
    head, check = snapshot.head, snapshot.check
    if head is None:
        return "no ledger"
    if check.record is None or check.at is None:
        return f"checking, {100 * check.progress:.0f} %" if check.state == "checking" else "not checked yet"
    if check.state == "failed":
        return "verification failed"
    newer = head.record - check.record
    return f"verified up to record {check.record:,} at {check.at:%H:%M} UTC" + (
        f", {newer:,} newer" if newer > 0 else ""
    )


async def follow(monitor: Monitor) -> AsyncGenerator[str]:
    """Yield the status now, and again whenever it changes."""
    last, quiet = None, time.monotonic()
    yield "retry: 1000\n\n"
    while not monitor.closing:
        now = status(monitor.snapshot)
        if now != last:
            last, quiet = now, time.monotonic()
            yield event("status", now)
        elif time.monotonic() - quiet > PING:
            quiet = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(TICK)
