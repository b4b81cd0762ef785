"""What the pages and the API both show, put together from the queries: one way to make each thing."""

import json
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection

from guerdon.dashboard.explanations import Formula, formula
from guerdon.dashboard.queries import AgentRow, RunRow, evidence_of
from guerdon.dashboard.source import read_head
from guerdon.ledger.money import plain_amount
from guerdon.ledger.rules import looks_at
from guerdon.ledger.statements import Line, read_lines

QUIET = 120.0  # seconds without a round after which a run may count as quiet
GAPS = 3.0  # or so many times the usual time between rounds, if that is longer

RunState = Literal["waiting", "active", "quiet"]
RULES = {
    "known": "output agreement, known variance",
    "estimated": "output agreement, estimated variance",
    "balanced": "output agreement, balanced variance",
}


class StatementPage(NamedTuple):
    """Some lines of a statement, the newest first, each with its formula; `total` lines there are in all."""

    agent: AgentRow
    unit: str
    total: int
    lines: list[tuple[Line, Formula | None]]


def run_state(rounds: int, last_activity: datetime, gap: float, now: datetime | None = None) -> RunState:
    """Return whether a run waits for its first round, goes on, or has been quiet for longer than usual."""
    if rounds == 0:
        return "waiting"
    silence = ((now or datetime.now(UTC)) - last_activity).total_seconds()
    return "active" if silence <= max(QUIET, GAPS * gap) else "quiet"


def state_of(run: RunRow) -> RunState:
    """Return a run's state now."""
    return run_state(run.rounds, run.last_activity, run.gap)


def rule_words(rule: str) -> str:
    """Return a recorded rule in words."""
    settings: dict[str, Any] = json.loads(rule)
    if settings.get("rule") == "flat":
        return "flat pay"
    if looks_at(rule) == "information":
        return f"information pay, decay {settings['decay']:g}"
    variance: dict[str, Any] = settings.get("variance", {})
    words = RULES.get(variance.get("kind", ""), str(settings.get("rule")))
    decay = variance.get("decay")
    return words if decay is None else f"{words}, decay {decay:g}"


def run_summary(run: RunRow) -> dict[str, Any]:
    """Return a run of the list as the API has it."""
    return {
        "id": run.id, "name": run.name, "state": state_of(run),
        "rule": rule_words(run.rule), "cost": run.cost, "agents": run.agents, "rounds": run.rounds,
        "paid": plain_amount(run.paid), "started_at": run.started_at, "last_activity": run.last_activity,
    }  # fmt: skip


def agent_summary(agent: AgentRow) -> dict[str, Any]:
    """Return an agent as the API has him."""
    amounts = {name: plain_amount(getattr(agent, name)) for name in agent._fields[2:]}
    return {"id": agent.id, "name": agent.name} | amounts


def statement_page(connection: Connection, agent: AgentRow, start: int, count: int) -> StatementPage:
    """Return `count` lines of an agent's statement from the `start`-th newest on."""
    lines, total = read_lines(connection, agent.id, start, count)
    evidence = evidence_of(connection, agent.id, [line.record for line in lines if line.kind == "round"])
    filled = [(line, formula(evidence[line.record]) if line.record in evidence else None) for line in lines[::-1]]
    return StatementPage(agent, read_head(connection).unit, total, filled)
