"""What Flower keeps of a round and of a run: numbers among metrics, and results whose rounds count from the start."""

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Result

from guerdon.flower.replies import Report


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


def renumbered(result: Result, done: int, arrays: ArrayRecord) -> Result:
    """Return a result whose rounds count from the beginning of the run, with the model begun with if none followed."""
    return Result(
        arrays=result.arrays or arrays,
        train_metrics_clientapp={number + done: found for number, found in result.train_metrics_clientapp.items()},
        evaluate_metrics_clientapp={
            number + done: found for number, found in result.evaluate_metrics_clientapp.items()
        },
        evaluate_metrics_serverapp={
            number + done: found for number, found in result.evaluate_metrics_serverapp.items()
        },
    )
