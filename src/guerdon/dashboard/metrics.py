"""`/metrics` for Prometheus: what a ledger comes to, run by run; nothing of a single agent."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from guerdon.dashboard import queries
from guerdon.dashboard.monitor import LedgerStatus
from guerdon.dashboard.source import RUNS_KEPT, LedgerSource
from guerdon.ledger.books.errors import RuleMissingError
from guerdon.ledger.books.money import MICRO

FORMAT = "text/plain; version=0.0.4; charset=utf-8"
MOST_RUNS = 1000  # the newest

router = APIRouter(include_in_schema=False)

# By name: its kind, and what it is.
HELP = {
    "guerdon_ledger_available": ("gauge", "1 if the ledger can be read"),
    "guerdon_ledger_record": ("gauge", "Number of the last record"),
    "guerdon_ledger_verified_record": ("gauge", "Number of the last record that was recomputed and found right"),
    "guerdon_ledger_sound": ("gauge", "0 if verification failed, or the ledger was set back"),
    "guerdon_rounds_paid_total": ("counter", "Rounds paid"),
    "guerdon_pay": ("gauge", "Sum of all rewards, in the unit of the ledger; it falls where rewards are negative"),
    "guerdon_agents": ("gauge", "Agents of the run"),
    "guerdon_agents_differing": ("gauge", f"Agents that differ from the others; of the newest {RUNS_KEPT} runs"),
    "guerdon_last_round_age_seconds": ("gauge", "Time since the last round"),
}


@router.get("/metrics")
def read_metrics(request: Request) -> PlainTextResponse:
    """Return the numbers of the ledger in Prometheus' text format."""
    samples = [*_of_ledger(request.app.state.monitor.status)]
    if request.app.state.monitor.status.available:
        samples += _of_runs(request.app.state.source)
    return PlainTextResponse(render(samples), media_type=FORMAT)


def render(samples: list[tuple[str, dict[str, str], float]]) -> str:
    r"""Return samples in the text format, those of a name together.

    >>> print(render([("guerdon_agents", {"run": 'a"b'}, 3.0)]), end="")
    # HELP guerdon_agents Agents of the run
    # TYPE guerdon_agents gauge
    guerdon_agents{run="a\"b"} 3.0
    """
    lines: list[str] = []
    for name, (kind, text) in HELP.items():
        of_metric = [(labels, value) for given, labels, value in samples if given == name]
        if of_metric:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for labels, value in of_metric:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _of_ledger(status: LedgerStatus) -> Iterator[tuple[str, dict[str, str], float]]:
    check = status.verification
    yield "guerdon_ledger_available", {}, float(status.available)
    if status.record is not None:
        yield "guerdon_ledger_record", {}, float(status.record)
        yield "guerdon_ledger_sound", {}, float(check.state != "failed" and status.setback is None)
    if check.record is not None and check.state != "unverifiable":
        yield "guerdon_ledger_verified_record", {}, float(check.record)


def _of_runs(source: LedgerSource) -> Iterator[tuple[str, dict[str, str], float]]:
    with source.reading() as connection:
        page = queries.list_runs(connection, 0, MOST_RUNS)
    now = datetime.now(UTC)
    for place, run in enumerate(page.runs):
        labels = {"run": run.name}
        yield "guerdon_rounds_paid_total", labels, float(run.rounds)
        yield "guerdon_pay", {**labels, "unit": page.unit}, run.paid / MICRO
        yield "guerdon_agents", labels, float(run.agents)
        if run.rounds:
            yield "guerdon_last_round_age_seconds", labels, (now - _aware(run.last_activity)).total_seconds()
        if place < RUNS_KEPT and run.rounds:
            with suppress(RuleMissingError):  # nobody can say without the rule
                findings = source.audit(source.run(run.id)).findings
                yield (
                    "guerdon_agents_differing",
                    labels,
                    float(sum(x.verdict in ("differs", "accused") for x in findings)),
                )


def _aware(moment: datetime) -> Any:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
