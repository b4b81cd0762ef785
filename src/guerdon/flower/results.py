"""What is kept of a round: the numbers among its metrics, and nothing of its replies."""

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Message, MetricRecord, RecordDict

from guerdon.run.reports import Report


def numbers(prefix: str, metrics: MetricRecord | None) -> dict[str, float]:
    """Return the single numbers among metrics."""
    found: Mapping[str, Any] = MetricRecord() if metrics is None else metrics
    return {prefix + name: float(value) for name, value in found.items() if not isinstance(value, list)}


def release_memory(reports: Sequence[Report], replies: Sequence[Message]) -> None:
    """Drop what the replies hold: the checkpoint needs the memory, and nobody else the replies."""
    for report in reports:
        report.release()
    for reply in replies:
        if reply.has_content():
            reply.content = RecordDict()
