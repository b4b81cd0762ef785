"""The service over HTTP: who asks, what comes in, and every error in words."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi import Path as InPath
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException

import guerdon
from guerdon.dashboard.models import ErrorAnswer
from guerdon.dashboard.security import problem
from guerdon.ledger.books.errors import UnavailableError
from guerdon.ledger.read.queries import find_agent
from guerdon.ledger.read.statements import read_lines
from guerdon.serve.access import Allowance
from guerdon.serve.door import AGENT, Door
from guerdon.serve.models import (
    AskAnswer,
    DeclineBody,
    HealthAnswer,
    PayAnswer,
    ReceivedAnswer,
    StatementAnswer,
    StatementRow,
    WorkAnswer,
)
from guerdon.serve.service import ConflictError, Service
from guerdon.serve.spool import SpooledAnswer

BINARY = "application/octet-stream"
LONGEST_WAIT = 60.0  # seconds that a question may wait for the next round
UPLOADS = 2  # of one agent at a time: a broken one may linger beside its repetition
LATEST = 2**62

RoundPath = Annotated[int, InPath(ge=1, le=LATEST)]
SignatureHeader = Annotated[str, Header(alias="guerdon-signature", pattern="^([0-9a-f]{2})*$", max_length=1024)]


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {
        code: {"model": ErrorAnswer, "content": {"application/problem+json": {}}} for code in (401, 429, 503, *codes)
    }


router = APIRouter(prefix="/v1")


def create_service_app(service: Service, *, loopback: bool = True, allowance: Allowance | None = None) -> FastAPI:
    """Return the application of a service; it settles rounds while it is served.

    `loopback`: for this machine only. `allowance`: how much one agent may ask.
    """

    @asynccontextmanager
    async def working(_: FastAPI) -> AsyncGenerator[None]:
        service.start()
        try:
            yield
        finally:
            await run_in_threadpool(service.stop)

    app = FastAPI(
        title="Guerdon service", version=guerdon.__version__, lifespan=working, docs_url=None, redoc_url=None,
        openapi_url="/v1/openapi.json", redirect_slashes=False,
        description="Paid rounds of federated learning, for any framework.",
    )  # fmt: skip
    app.state.service, app.state.uploads = service, dict[str, int]()
    app.include_router(router)
    for kind in (ConflictError, UnavailableError, ValueError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer)
    app.add_middleware(Door, service=service, allowance=allowance or Allowance(), loopback=loopback)
    return app


def _service(request: Request) -> Service:
    return request.app.state.service


def _agent(request: Request) -> str:
    """Return which agent asks: the door has seen its proof."""
    return request.scope[AGENT]


ServiceNow = Annotated[Service, Depends(_service)]
AgentNow = Annotated[str, Depends(_agent)]


@router.get("/health")
def health(service: ServiceNow) -> HealthAnswer:
    """Tell whether rounds go on; anybody may ask."""
    return HealthAnswer(
        run=service.run.name,
        ledger=service.members.ledger,
        round=service.round,
        ended=service.ended,
        problem=service.problem,
    )


@router.get("/ask", responses=_errors(421, 422))
async def ask(
    request: Request,
    service: ServiceNow,
    agent: AgentNow,
    after: Annotated[int, Query(ge=0, le=LATEST, description="A round: wait for a later one, or for the end")] = 0,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for it")] = 0.0,
) -> AskAnswer:
    """Tell what the agent is asked for now, and what it was last paid."""
    end = time.monotonic() + wait
    while service.round <= after and not service.ended and time.monotonic() < end:
        if await request.is_disconnected():  # its turn is over
            break
        await asyncio.sleep(0.05)
    return await run_in_threadpool(_ask_answer, service, agent)


def _ask_answer(service: Service, agent: str) -> AskAnswer:
    asked = service.request_of(agent)
    slip = service.payslip(agent, service.run.done)
    pay = None if slip is None else PayAnswer.of(slip, service.book.unit)
    number = service.run.done if asked is None else asked.round
    return AskAnswer(
        run=service.run.name, agent=agent, round=number, ended=asked is None, answered=service.has_answered(agent),
        request=0 if asked is None else asked.request, recorded=0 if asked is None else asked.recorded,
        sends=service.run.server.sends, seconds=round(service.left, 3), pay=pay,
        work=None if asked is None or asked.work is None else WorkAnswer(**asked.work._asdict()),
    )  # fmt: skip


@router.get(
    "/rounds/{number}/model", response_class=FileResponse,
    responses=_errors(409, 421, 422) | {200: {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}}},
)  # fmt: skip
def model(service: ServiceNow, agent: AgentNow, number: RoundPath) -> FileResponse:
    """Return the model that the agent works at in the open round, as safetensors."""
    del agent
    if service.ended or number != service.round:
        raise ConflictError(f"round {number} is not open; round {service.round} is the newest")
    return FileResponse(service.model, media_type=BINARY, headers={"cache-control": "no-store"})


@router.put(
    "/rounds/{number}/report", responses=_errors(408, 409, 413, 421, 422),
    openapi_extra={"requestBody": {"required": True, "content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}}},  # noqa: E501
)  # fmt: skip
async def report(
    request: Request, service: ServiceNow, agent: AgentNow, number: RoundPath, guerdon_signature: SignatureHeader = ""
) -> ReceivedAnswer:
    """Take the agent's report, safetensors with the model's arrays; the first one of a round counts."""
    uploads = request.app.state.uploads
    if uploads.get(agent, 0) >= UPLOADS:
        raise HTTPException(429, f"{UPLOADS} reports of this agent are arriving already", {"retry-after": "5"})
    uploads[agent] = uploads.get(agent, 0) + 1
    draft = service.spool.draft()
    try:
        await _receive(request, draft, service.largest)
        signature = bytes.fromhex(guerdon_signature)
        answer = await run_in_threadpool(service.accept, agent, number, draft, signature)
    finally:
        service.spool.discard(draft)
        uploads[agent] -= 1
    return _received(service, number, answer)


async def _receive(request: Request, draft: Path, largest: int) -> None:
    """Write what arrives to the disk, a piece at a time; more than `largest` bytes are not taken."""
    size = 0
    if int(request.headers.get("content-length") or 0) > largest:
        raise HTTPException(413, f"a report has at most {largest} bytes here: the model's arrays")
    with draft.open("wb") as file:
        async for piece in request.stream():
            size += len(piece)
            if size > largest:
                raise HTTPException(413, f"a report has at most {largest} bytes here: the model's arrays")
            file.write(piece)


@router.put("/rounds/{number}/decline", responses=_errors(409, 421, 422))
def decline(service: ServiceNow, agent: AgentNow, number: RoundPath, body: DeclineBody) -> ReceivedAnswer:
    """Note that the agent sends nothing in this round: it is paid nothing, and nobody waits for it."""
    return _received(service, number, service.decline(agent, number, body.reason))


def _received(service: Service, number: int, answer: SpooledAnswer) -> ReceivedAnswer:
    parts = {"gradient": answer.gradient.hex(), "declined": answer.declined}
    return ReceivedAnswer(run=service.run.name, agent=answer.agent, round=number, **parts)


@router.get("/rounds/{number}/pay", responses=_errors(404, 421, 422))
def pay(service: ServiceNow, agent: AgentNow, number: RoundPath) -> PayAnswer:
    """Tell what the agent was paid for a round, and why."""
    slip = service.payslip(agent, number)
    if slip is None:
        raise HTTPException(404, f"round {number} is not settled yet, or was settled without this agent")
    return PayAnswer.of(slip, service.book.unit)


@router.get("/statement", responses=_errors(404, 421, 422))
def statement(
    service: ServiceNow,
    agent: AgentNow,
    count: Annotated[int, Query(ge=1, le=1000)] = 100,
    skip: Annotated[int, Query(ge=0, le=LATEST, description="Newest lines to leave out")] = 0,
) -> StatementAnswer:
    """Return the last lines of the agent's statement, over all runs of the ledger."""
    with service.book.ledger.reading() as connection:
        try:
            number = find_agent(connection, agent).id
        except ValueError as error:
            raise HTTPException(404, "the agent has no account yet: nothing was paid") from error
        lines, total = read_lines(connection, number, min(skip, 2**31), count)
    return StatementAnswer(
        agent=agent, unit=service.book.unit, total=total, lines=[StatementRow.of(line) for line in lines]
    )


@router.get(
    "/model", response_class=FileResponse,
    responses=_errors(409, 421) | {200: {"content": {BINARY: {"schema": {"type": "string", "format": "binary"}}}}},
)  # fmt: skip
def final_model(service: ServiceNow, agent: AgentNow) -> FileResponse:
    """Return the trained model as safetensors, once the run has ended."""
    del agent
    if not service.ended:
        raise ConflictError("the model can be had once the run has ended")
    return FileResponse(service.final_model(), media_type=BINARY, headers={"cache-control": "no-store"})


def _answer(request: Request, error: Exception) -> Response:
    """Answer an error in words."""
    del request
    code, detail = _explain(error)
    return problem(code, detail, getattr(error, "headers", None))


def _explain(error: Any) -> tuple[int, str]:
    kinds = {ConflictError: 409, UnavailableError: 503}
    for kind, code in kinds.items():
        if isinstance(error, kind):
            return code, str(error)
    if isinstance(error, HTTPException):
        return error.status_code, str(error.detail)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        return 422, f"`{first['loc'][-1]}`: {first['msg'].lower()}"
    if isinstance(error, ValueError):
        return 422, str(error)
    return 500, f"this is our mistake ({type(error).__name__}); the log has more"
