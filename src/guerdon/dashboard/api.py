"""The JSON API under /api: reads, and nothing else."""

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request
from fastapi.responses import StreamingResponse

from guerdon.dashboard import models, queries, views
from guerdon.dashboard.live import follow, status
from guerdon.dashboard.monitor import Monitor
from guerdon.dashboard.playground import LARGEST_BATCH, MOST_AGENTS, Desk, Settings, can_simulate, play
from guerdon.dashboard.series import agent_course, round_series, status_matrix
from guerdon.dashboard.source import Source, read_head
from guerdon.dashboard.statistics import histogram as histogram_of
from guerdon.dashboard.statistics import honest_band, pay_against_cost
from guerdon.ledger.money import plain_amount
from guerdon.ledger.queries import find_payout
from guerdon.mechanisms import Status


def _problem(status: int, description: str) -> dict[int | str, dict[str, Any]]:
    schema = models.Problem.model_json_schema()
    return {status: {"description": description, "content": {"application/problem+json": {"schema": schema}}}}


MISSING = _problem(404, "There is no such thing")
NO_LEDGER = _problem(503, "The ledger is missing, locked or damaged")
WRONG = _problem(422, "A parameter is not what it must be")

router = APIRouter(prefix="/api", responses=WRONG)

Id = Annotated[int, Path(ge=1, lt=queries.LARGEST_ID, description="A number as the lists give it.")]
Start = Annotated[int, Query(ge=0, le=10**9, description="How many to leave out at the beginning.")]
Count = Annotated[int, Query(ge=1, le=1000, description="How many to return.")]
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}


def source_of(request: Request) -> Source:
    """Return the ledger that is shown."""
    return request.app.state.source


def monitor_of(request: Request) -> Monitor:
    """Return what watches it."""
    return request.app.state.monitor


def game_settings(
    agents: Annotated[int, Query(ge=1, le=MOST_AGENTS, description="Number of agents.")] = 10,
    request: Annotated[int, Query(ge=1, le=LARGEST_BATCH, description="Batch size that the server asks for.")] = 8,
    cost: Annotated[str, Query(max_length=200, description="Cost of s samples: numbers, s, + - * / **.")] = "1 + s",
    rule: Annotated[Literal["known", "estimated", "balanced"], Query(description="Variance rule.")] = "known",
    others: Annotated[int, Query(ge=0, le=LARGEST_BATCH, description="Batch size of all others.")] = 8,
    max_batch: Annotated[int, Query(ge=1, le=LARGEST_BATCH, description="Largest possible batch size.")] = 32,
) -> Settings:
    """Return the playground's settings."""
    return Settings(agents, request, cost, rule, others, max_batch)


Game = Annotated[Settings, Depends(game_settings)]


@router.get("/status")
def read_status(request: Request) -> models.Status:
    """Return whether there is a ledger, where it stands and whether it holds."""
    return models.Status.model_validate(status(monitor_of(request).snapshot))


@router.get("/events", response_class=StreamingResponse, responses=STREAM)
async def events(request: Request) -> StreamingResponse:
    """Follow the ledger: server-sent events named `status`, each with what `/api/status` returns."""
    return StreamingResponse(follow(monitor_of(request)), media_type="text/event-stream")


@router.get("/runs", responses=NO_LEDGER)
def list_runs(request: Request, start: Start = 0, count: Count = 100) -> models.Runs:
    """List the runs, the newest activity first."""
    with source_of(request).reading() as connection:
        rows, total = queries.list_runs(connection, start, count)
        unit, shown = read_head(connection).unit, [views.run_summary(row) for row in rows]
    return models.Runs.model_validate({"unit": unit, "total": total, "runs": shown})


@router.get("/runs/{run}", responses=MISSING | NO_LEDGER)
def read_run(request: Request, run: Id) -> models.Run:
    """Return what a run has done so far."""
    with source_of(request).reading() as connection:
        return models.Run.model_validate(views.run_summary(queries.need_run(connection, run)))


@router.get("/runs/{run}/rounds", responses=MISSING | NO_LEDGER)
def read_rounds(
    request: Request,
    run: Id,
    points: Annotated[int, Query(ge=1, le=5000, description="The most points; more rounds are averaged.")] = 400,
) -> models.Rounds:
    """Return what was asked, paid and measured in each round."""
    source = source_of(request)
    with source.reading() as connection:
        data, unit = source.run(connection, run), read_head(connection).unit
    return models.Rounds.model_validate({"unit": unit, **round_series(data, points)._asdict()})


@router.get("/runs/{run}/agents", responses=MISSING | NO_LEDGER)
def read_agents_of_run(request: Request, run: Id) -> models.AgentsOfRun:
    """Return every agent's pay against the cost of the work asked for, with 95 % intervals."""
    source = source_of(request)
    with source.reading() as connection:
        data, unit = source.run(connection, run), read_head(connection).unit
    return models.AgentsOfRun.model_validate(
        {"unit": unit, "agents": [row._asdict() for row in pay_against_cost(data)]}
    )


@router.get("/runs/{run}/distances", responses=MISSING | NO_LEDGER)
def read_distances(request: Request, run: Id) -> models.Distances:
    """Return how far from the others' mean the gradients lay, against what is expected of honest work."""
    source = source_of(request)
    with source.reading() as connection:
        data = source.run(connection, run)
        band = honest_band(data)
    counted = histogram_of(data, band)
    shown = {"band": band and band._asdict(), "histogram": counted and counted._asdict()}
    return models.Distances.model_validate(shown)


@router.get("/runs/{run}/participation", responses=MISSING | NO_LEDGER)
def read_participation(
    request: Request,
    run: Id,
    last: Annotated[int | None, Query(ge=0, lt=queries.LARGEST_ID, description="Round to end with.")] = None,
) -> models.Participation:
    """Return who took part in 120 rounds: up to 40 agents, those who missed most if there are more."""
    source = source_of(request)
    with source.reading() as connection:
        data = source.run(connection, run)
        matrix = status_matrix(data, last)
        ends = data.record[np.searchsorted(data.number, [matrix.first, matrix.last])] if matrix.rounds else (0, 0)
        notes = queries.notes_of(connection, int(ends[0]), int(ends[-1]), run)
    newest = int(data.number[-1]) if len(data.number) else 0
    members = [{"id": number, "name": name} for number, name in matrix.agents]
    shown = matrix._asdict() | {"labels": [code.label for code in Status], "newest": newest, "notes": notes}
    shown |= {"agents": members}
    return models.Participation.model_validate(shown)


@router.get("/agents", responses=NO_LEDGER)
def list_agents(
    request: Request,
    start: Start = 0,
    count: Count = 100,
    search: Annotated[str, Query(max_length=200, description="Part of the name.")] = "",
) -> models.Agents:
    """List the agents by name, with what they have."""
    with source_of(request).reading() as connection:
        rows, total = queries.list_agents(connection, start, count, search)
        unit = read_head(connection).unit
    agents = [views.agent_summary(row) for row in rows]
    return models.Agents.model_validate({"unit": unit, "total": total, "agents": agents})


@router.get("/agents/{agent}", responses=MISSING | NO_LEDGER)
def read_agent(request: Request, agent: Id) -> models.Agent:
    """Return what an agent has."""
    with source_of(request).reading() as connection:
        return models.Agent.model_validate(views.agent_summary(queries.need_agent(connection, agent)))


@router.get("/agents/{agent}/statement", responses=MISSING | NO_LEDGER)
def read_statement(request: Request, agent: Id, start: Start = 0, count: Count = 100) -> models.Statement:
    """Return an agent's statement, the newest line first, each payment with its formula filled in."""
    with source_of(request).reading() as connection:
        page = views.statement_page(connection, queries.need_agent(connection, agent), start, count)
    lines = [
        {"record": line.record, "at": line.at, "what": line.what, "request": line.request, "status": line.status,
         "reward": None if line.reward is None else plain_amount(line.reward), "change": plain_amount(line.change),
         "balance": plain_amount(line.balance), "why": line.why, "formula": filled and filled.filled}
        for line, filled in page.lines
    ]  # fmt: skip
    shown = {"unit": page.unit, "agent": page.agent.name, "total": page.total, "lines": lines}
    return models.Statement.model_validate(shown)


@router.get("/agents/{agent}/runs/{run}", responses=MISSING | NO_LEDGER)
def read_course(request: Request, agent: Id, run: Id) -> models.Course:
    """Return an agent's pay and the cost of the work asked of him in a run, added up round by round."""
    source = source_of(request)
    with source.reading() as connection:
        data, unit = source.run(connection, run), read_head(connection).unit
    if agent not in {number for number, _ in data.agents}:
        raise queries.UnknownError(f"agent {agent} does not belong to run {run}")
    return models.Course.model_validate({"unit": unit, **agent_course(data, agent)._asdict()})


@router.get("/payouts", responses=NO_LEDGER)
def list_payouts(request: Request, start: Start = 0, count: Count = 100) -> models.Payouts:
    """List the payout batches, the newest first."""
    with source_of(request).reading() as connection:
        rows, total = queries.list_payouts(connection, start, count)
        unit = read_head(connection).unit
    batches = [row._asdict() | {"total": plain_amount(row.total)} for row in rows]
    return models.Payouts.model_validate({"unit": unit, "total": total, "payouts": batches})


@router.get("/payouts/{number}", responses=MISSING | NO_LEDGER)
def read_payout(request: Request, number: Id) -> models.PayoutDetail:
    """Return a payout batch with everybody's share."""
    with source_of(request).reading() as connection:
        batch, unit = find_payout(connection, number), read_head(connection).unit
    items = [{"agent": name, "amount": plain_amount(amount)} for name, amount in batch.items]
    shown = batch._asdict() | {"agents": len(items), "total": plain_amount(batch.total), "items": items, "unit": unit}
    return models.PayoutDetail.model_validate(shown)


@router.get("/game")
def read_game(settings: Game) -> models.Game:
    """Return what every batch size earns an agent, his best response, and the equilibria."""
    try:
        return models.Game.model_validate(play(settings))
    except (ValueError, ArithmeticError) as error:
        raise HTTPException(422, str(error)) from error


@router.get("/game/simulation", response_class=StreamingResponse, responses=STREAM | NO_LEDGER)
async def simulate_game(request: Request, settings: Game) -> StreamingResponse:
    """Simulate what batch sizes earn: server-sent events `queued`, `progress`, then `result` or `failed`.

    One simulation runs at a time; it is cancelled when the connection closes.
    """
    if not can_simulate():
        raise HTTPException(503, "the simulator is not installed; pip install 'guerdon[sim]'")
    try:
        settings.game()
    except (ValueError, ArithmeticError) as error:
        raise HTTPException(422, str(error)) from error
    desk: Desk = request.app.state.desk
    return StreamingResponse(desk.follow(settings), media_type="text/event-stream")
