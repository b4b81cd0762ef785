"""The JSON API under /api: it reads, and nothing else."""

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, HTTPException, Path, Query, Request
from fastapi.responses import StreamingResponse

from guerdon.dashboard import audits, queries, series, statistics
from guerdon.dashboard.models import (
    ErrorAnswer,
    LooksOfRun,
    LooksPage,
    PayoutDetail,
    PayoutList,
    PayoutShare,
    StatementLine,
    StatementPage,
)
from guerdon.dashboard.monitor import LedgerMonitor, LedgerStatus, follow
from guerdon.dashboard.playground import GameAnswer, GameSettings, SimulationQueue, can_simulate, play
from guerdon.dashboard.security import problem
from guerdon.dashboard.source import LedgerSource
from guerdon.ledger.pay.payouts import find_payout
from guerdon.ledger.read.looked import fates, is_looked_at
from guerdon.ledger.read.queries import LARGEST_ID


def _problem(status: int, description: str) -> dict[int | str, dict[str, Any]]:
    schema = ErrorAnswer.model_json_schema()
    return {status: {"description": description, "content": {"application/problem+json": {"schema": schema}}}}


NO_LEDGER = _problem(503, "The ledger is missing, locked or damaged")
MISSING = _problem(404, "There is no such run, agent or payout") | NO_LEDGER
FULL = _problem(503, "All places are taken, or the simulator is not installed")
WRONG = _problem(422, "A parameter is not what it must be")

# Pages that follow at a time: each looks five times a second, and keeps a connection. Of the 416 that a process has on
# Linux, this leaves most for pages.
MOST_STREAMS = 64

router = APIRouter(prefix="/api", responses=WRONG)

Id = Annotated[int, Path(ge=1, lt=LARGEST_ID, description="A number as the lists give it.")]
Start = Annotated[int, Query(ge=0, le=10**9, description="How many to leave out at the beginning.")]
Count = Annotated[int, Query(ge=1, le=1000, description="How many to return.")]
Points = Annotated[int, Query(ge=1, le=5000, description="The most points; more rounds are averaged.")]
Last = Annotated[int | None, Query(ge=0, lt=LARGEST_ID, description="Round to end with.")]
Search = Annotated[str, Query(max_length=200, description="Part of the name.")]
Settings = Annotated[GameSettings, Query()]
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}


class Stream(StreamingResponse):
    """Server-sent events; when all places are taken, the answer is that they are."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        state = scope["app"].state
        if state.streams >= MOST_STREAMS:
            full = f"{MOST_STREAMS} pages follow the ledger already; close some"
            await problem(503, full, {"retry-after": "5"})(scope, receive, send)
            return
        state.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            state.streams -= 1


def source_of(request: Request) -> LedgerSource:
    """Return the ledger that is shown."""
    return request.app.state.source


def monitor_of(request: Request) -> LedgerMonitor:
    """Return what watches it."""
    return request.app.state.monitor


@router.get("/status")
def read_status(request: Request) -> LedgerStatus:
    """Return whether there is a ledger, its last record, and whether it was found right."""
    return monitor_of(request).status


@router.get("/events", response_class=StreamingResponse, responses=STREAM | FULL)
async def events(request: Request) -> StreamingResponse:
    """Follow the ledger: server-sent events named `status`, each with what `/api/status` returns."""
    return Stream(follow(monitor_of(request)), media_type="text/event-stream")


@router.get("/runs", responses=NO_LEDGER)
def list_runs(request: Request, start: Start = 0, count: Count = 100) -> queries.RunList:
    """List the runs, the newest activity first."""
    with source_of(request).reading() as connection:
        return queries.list_runs(connection, start, count)


@router.get("/runs/{run}", responses=MISSING)
def read_run(request: Request, run: Id) -> queries.RunOverview:
    """Return what a run has done so far."""
    with source_of(request).reading() as connection:
        return queries.need_run(connection, run)


@router.get("/runs/{run}/rounds", responses=MISSING)
def read_rounds(request: Request, run: Id, points: Points = series.MOST_POINTS) -> series.RoundSeries:
    """Return what was requested, paid and measured in each round."""
    return series.round_series(source_of(request).run(run), points)


@router.get("/runs/{run}/agents", responses=MISSING)
def read_agents_of_run(request: Request, run: Id) -> statistics.RunPay:
    """Return every agent's pay against the cost of the requested work, with 95 % intervals."""
    data = source_of(request).run(run)
    return statistics.RunPay(data.unit, statistics.pay_against_cost(data))


@router.get("/runs/{run}/distances", responses=MISSING)
def read_distances(request: Request, run: Id) -> statistics.Distances:
    """Return how far gradients lay from the mean of the others, against what is expected of honest work."""
    data = source_of(request).run(run)
    band = statistics.honest_band(data)
    return statistics.Distances(band, statistics.histogram(data, band))


@router.get("/runs/{run}/audit", responses=MISSING)
def read_audit(request: Request, run: Id) -> audits.RunVerdicts:
    """Return which agents of a run differ from the others, and which are cleared, as `guerdon audit` tests it.

    A large run is audited a tenth of the time at most; in between the answer may end before the last round.
    """
    data = source_of(request).run(run)
    return audits.verdicts(source_of(request).audit(data), data)


@router.get("/runs/{run}/looks", responses=MISSING)
def read_looks(request: Request, run: Id) -> LooksPage:
    """Return what looks hold of a run's pay, which looks are open, and which periods are settled."""
    with source_of(request).reading() as connection:
        found, unit = queries.looks_of_run(connection, run), queries.read_head(connection).unit
    return LooksPage(unit=unit, runs=[] if found is None else [LooksOfRun.of(found)])


@router.get("/runs/{run}/participation", responses=MISSING)
def read_participation(request: Request, run: Id, last: Last = None) -> series.Participation:
    """Return which agents took part in 120 rounds: up to 40 agents; of more, those that missed most."""
    data = source_of(request).run(run)
    shown = series.participation(data, last)
    ends = data.record[np.searchsorted(data.number, [shown.first, shown.last])] if shown.rounds else (0, 0)
    with source_of(request).reading() as connection:
        shown = replace(shown, notes=queries.notes_of(connection, int(ends[0]), int(ends[-1]), run))
        return series.with_fates(shown, fates(connection, run)) if is_looked_at(connection, run) else shown


@router.get("/agents", responses=NO_LEDGER)
def list_agents(request: Request, start: Start = 0, count: Count = 100, search: Search = "") -> queries.AgentList:
    """List the agents by name, with what they have."""
    with source_of(request).reading() as connection:
        return queries.list_agents(connection, start, count, search)


@router.get("/agents/{agent}", responses=MISSING)
def read_agent(request: Request, agent: Id) -> queries.AgentOverview:
    """Return what an agent has."""
    with source_of(request).reading() as connection:
        return queries.need_agent(connection, agent)


@router.get("/agents/{agent}/statement", responses=MISSING)
def read_statement(request: Request, agent: Id, start: Start = 0, count: Count = 100) -> StatementPage:
    """Return an agent's statement, the newest line first, each payment with its formula filled in."""
    with source_of(request).reading() as connection:
        name = queries.need_agent(connection, agent).name
        rows, total = queries.statement_lines(connection, agent, start, count)
        unit = queries.read_head(connection).unit
    lines = [
        StatementLine.model_validate(line._asdict() | {"what": line.what, "formula": formula and formula.filled})
        for line, formula in rows
    ]
    return StatementPage(unit=unit, agent=name, total=total, lines=lines)


@router.get("/agents/{agent}/looks", responses=MISSING)
def read_looks_of_agent(request: Request, agent: Id) -> LooksPage:
    """Return an agent's looks in each run under looks that it belongs to, the newest run first."""
    with source_of(request).reading() as connection:
        queries.need_agent(connection, agent)
        found, unit = queries.looks_of_agent(connection, agent), queries.read_head(connection).unit
    return LooksPage(unit=unit, runs=[LooksOfRun.of(one) for one in found])


@router.get("/agents/{agent}/runs/{run}", responses=MISSING)
def read_agent_in_run(request: Request, agent: Id, run: Id) -> series.AgentSeries:
    """Return an agent's pay and the cost of its requested work in a run, added up round by round."""
    data = source_of(request).run(run)
    if agent not in {member.id for member in data.agents}:
        raise queries.UnknownError(f"agent {agent} does not belong to run {run}")
    return series.agent_series(data, agent)


@router.get("/payouts", responses=NO_LEDGER)
def list_payouts(request: Request, start: Start = 0, count: Count = 100) -> PayoutList:
    """List the payout batches, the newest first."""
    with source_of(request).reading() as connection:
        return queries.list_payouts(connection, start, count)


@router.get("/payouts/{number}", responses=MISSING)
def read_payout(request: Request, number: Id) -> PayoutDetail:
    """Return a payout batch with the share of each agent."""
    with source_of(request).reading() as connection:
        batch, unit = find_payout(connection, number), queries.read_head(connection).unit
    items = [PayoutShare.model_validate(line._asdict() | {"account": line.account[-4:]}) for line in batch.items]
    return PayoutDetail.model_validate(batch._asdict() | {"items": items, "unit": unit, "state": batch.state})


@router.get("/game")
def read_game(settings: Settings) -> GameAnswer:
    """Return what every batch size earns an agent, its best response, and the equilibria."""
    try:
        return play(settings)
    except (ValueError, ArithmeticError) as error:
        raise HTTPException(422, str(error)) from error


@router.get("/game/simulation", response_class=StreamingResponse, responses=STREAM | FULL)
async def simulate_game(request: Request, settings: Settings) -> StreamingResponse:
    """Simulate what batch sizes earn: server-sent events `queued`, `progress`, then `result` or `failed`.

    One simulation runs at a time; it is cancelled when the connection closes.
    """
    if not can_simulate():
        raise HTTPException(503, "the simulator is not installed; pip install '.[sim]'")
    try:
        settings.check_simulation()
    except (ValueError, ArithmeticError) as error:
        raise HTTPException(422, str(error)) from error
    queue: SimulationQueue = request.app.state.simulations
    return Stream(queue.follow(settings), media_type="text/event-stream")
