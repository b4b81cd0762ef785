"""The pages. What a page shows first is in its HTML; scripts draw the charts and keep it up to date."""

import unicodedata
from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from guerdon.dashboard import queries
from guerdon.dashboard.api import monitor_of, source_of
from guerdon.dashboard.monitor import LedgerStatus
from guerdon.dashboard.playground import LARGEST_BATCH, MOST_AGENTS, can_simulate, offered_rules
from guerdon.dashboard.security import COOKIE, SANDBOX, SESSION, Access, GuessedError, safe_next
from guerdon.ledger.books.errors import UnavailableError
from guerdon.ledger.pay.holding import held_of
from guerdon.ledger.pay.payouts import find_payout, owed
from guerdon.ledger.read import render
from guerdon.ledger.read.looked import HELD
from guerdon.ledger.read.queries import common_accounts
from guerdon.pilot import PilotRecord, assess, wording

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
LONGEST_FORM = 4096  # bytes of a login
STATEMENT_SIZES = (50, 200, 1000)
TYPES = {"html": "text/html", "csv": "text/csv", "json": "application/json"}


class ListPage(NamedTuple):
    """Which page of a list is shown."""

    page: int
    size: int
    total: int
    query: str  # what else is in the address

    @property
    def start(self) -> int:
        """How many come before this page."""
        return (self.page - 1) * self.size

    @property
    def last(self) -> int:
        """The number of the last page."""
        return max(1, -(-self.total // self.size))


def show(request: Request, template: str, status_code: int = 200, **content: Any) -> HTMLResponse:
    """Return a page made from a template; without the token it says nothing about the ledger."""
    state = request.app.state
    admitted = request.scope["admitted"]
    status = monitor_of(request).status if admitted else LedgerStatus()
    common = {
        "path": request.url.path, "status": status, "unit": status.unit or "", "admitted": admitted,
        "has_report": admitted and state.report.is_file(), "has_pilot": admitted and state.pilot is not None,
        "guarded": state.access.token is not None and admitted,
        "plotly": state.plotly, "version": state.version,
    }  # fmt: skip
    html: str = state.templates.get_template(template).render(common | content)
    return HTMLResponse(html, status_code)


def show_list(request: Request, template: str, pager: ListPage, listed: Any, **more: Any) -> HTMLResponse:
    """Return a page of a list as `queries` found it."""
    return show(request, template, pager=pager._replace(total=listed.total), **vars(listed), **more)


def number_in(text: str, what: str) -> int:
    """Return a number from an address, or raise."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise queries.UnknownError(f"there is no {what} {text[:40]!r}; a {what} has a number")
    return int(text)


def page_of(request: Request, length: int, **also: str) -> ListPage:
    """Return which page of a list is requested; nonsense is the first."""
    text = request.query_params.get("page", "1")
    page = int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 7 else 1
    return ListPage(max(page, 1), length, 0, urlencode({name: value for name, value in also.items() if value}))


@router.get("/")
def front() -> RedirectResponse:
    """Go to the runs."""
    return RedirectResponse("/runs", 303)


@router.get("/runs")
def runs(request: Request) -> HTMLResponse:
    """List the runs; without a ledger, say what to do."""
    pager = page_of(request, 100)
    try:
        with source_of(request).reading() as connection:
            listed = queries.list_runs(connection, pager.start, pager.size)
    except UnavailableError as error:
        return show(request, "runs.html", missing=str(error), runs=[], pager=pager)
    for newest in listed.runs[:1]:  # the one that will most likely be opened
        source_of(request).expect(newest.id)
    return show_list(request, "runs.html", pager, listed)


@router.get("/runs/{number}")
def run(request: Request, number: str) -> HTMLResponse:
    """Show a run."""
    wanted, source = number_in(number, "run"), source_of(request)
    source.expect(wanted)
    with source.reading() as connection:
        overview, looked = queries.need_run(connection, wanted), queries.looks_of_run(connection, wanted)
        unit = queries.read_head(connection).unit
    return show(request, "run.html", run=overview, looked=looked, unit=unit)


@router.get("/agents")
def agents(request: Request) -> HTMLResponse:
    """List the agents."""
    search = request.query_params.get("search", "")[:200]
    pager = page_of(request, 100, search=search)
    with source_of(request).reading() as connection:
        listed = queries.list_agents(connection, pager.start, pager.size, search)
    return show_list(request, "agents.html", pager, listed, search=search)


@router.get("/agents/{number}")
def agent(request: Request, number: str) -> HTMLResponse:
    """Show an agent's money and its statement."""
    wanted = request.query_params.get("size", "")
    size = next((size for size in STATEMENT_SIZES if str(size) == wanted), STATEMENT_SIZES[0])
    pager = page_of(request, size, size=str(size) if wanted else "")
    with source_of(request).reading() as connection:
        row = queries.need_agent(connection, number_in(number, "agent"))
        lines, total = queries.statement_lines(connection, row.id, pager.start, pager.size)
        joined, unit = queries.runs_of_agent(connection, row.id), queries.read_head(connection).unit
        held, looked = held_of(connection, row.id), queries.looks_of_agent(connection, row.id)
    for run, _ in joined[:1]:  # the one that its chart shows first
        source_of(request).expect(run)
    pager, shown = pager._replace(total=total), {"agent": row, "lines": lines, "runs": joined, "unit": unit}
    shown |= {"held": held, "looked": looked, "unmarked": ("paid", "waiting", HELD)}
    return show(request, "agent.html", 200, pager=pager, sizes=STATEMENT_SIZES, **shown)


@router.get("/agents/{number}/statement.{form}")
def statement(request: Request, number: str, form: str) -> Response:
    """Return an agent's whole statement as a file: html to print, csv, json."""
    if form not in TYPES:
        raise queries.UnknownError(f"a statement comes as {', '.join(TYPES)}, not as {form[:20]!r}")
    source = source_of(request)
    with source.reading() as connection:
        row = queries.need_agent(connection, number_in(number, "agent"))

    def pieces() -> Iterator[str]:
        with source.reading() as connection:
            yield from render.statement_pieces(connection, row.name, form)

    headers = {"content-security-policy": SANDBOX}
    if form != "html":
        headers["content-disposition"] = f'attachment; filename="statement-{row.id}.{form}"'
    stream = pieces()
    begun = chain([next(stream)], stream)  # what cannot be read at all is said before anything is sent
    return StreamingResponse(begun, media_type=f"{TYPES[form]}; charset=utf-8", headers=headers)


@router.get("/payouts")
def payouts(request: Request) -> HTMLResponse:
    """List the payout batches, and what is owed now."""
    pager = page_of(request, 50)
    with source_of(request).reading() as connection:
        listed = queries.list_payouts(connection, pager.start, pager.size)
        common = {kind: account.balance for kind, account in common_accounts(connection).items()}
        owing = owed(connection)
    net = owing.balance + owing.carried
    due = net[net > 0]
    return show_list(request, "payouts.html", pager, listed, common=common, owed=(len(due), int(due.sum())))


@router.get("/payouts/{number}")
def payout(request: Request, number: str) -> HTMLResponse:
    """Show one payout batch."""
    with source_of(request).reading() as connection:
        batch = find_payout(connection, number_in(number, "payout"))
        unit = queries.read_head(connection).unit
    return show(request, "payout.html", payout=batch, unit=unit)


@router.get("/playground")
def playground(request: Request) -> HTMLResponse:
    """Show the playground; it needs no ledger."""
    limits = {"most_agents": MOST_AGENTS, "largest_batch": LARGEST_BATCH}
    return show(request, "playground.html", can_simulate=can_simulate(), rules=offered_rules(), **limits)


@router.get("/report")
def report(request: Request) -> HTMLResponse:
    """Show the reproduction report, or how to make one."""
    file = request.app.state.report
    made = datetime.fromtimestamp(file.stat().st_mtime).astimezone() if file.is_file() else None
    return show(request, "report.html", made=made, file=str(file))


@router.get("/report/file")
def report_file(request: Request) -> Response:
    """Return the report as it is, in a sandbox: a program made it, but anybody may have changed the file."""
    file = request.app.state.report
    if not file.is_file():
        raise queries.UnknownError(f"there is no report at {file}; `guerdon reproduce` writes one")
    return Response(file.read_bytes(), media_type="text/html", headers={"content-security-policy": SANDBOX})


@router.get("/pilot")
def pilot(request: Request) -> HTMLResponse:
    """Show what a pilot says, as its file is now; a pilot may be under way."""
    try:
        if request.app.state.pilot is None:
            raise ValueError("No pilot was named")
        report = assess(PilotRecord.load(request.app.state.pilot))
    except (ValueError, OSError) as error:
        return show(request, "pilot.html", report=None, missing=str(error))
    return show(
        request, "pilot.html", report=report, title=wording.title(report), notes=wording.closing(report),
        explained=wording.EXPLAINED, measured=wording.measured(report), agents=wording.honest_rows(report),
    )  # fmt: skip


@router.get("/api")
def api_page(request: Request) -> HTMLResponse:
    """Document the JSON API from its own schema."""
    return show(request, "api.html", schema=request.app.openapi())


@router.get("/login")
def login_page(request: Request) -> Response:
    """Ask for the token."""
    if request.app.state.access.token is None:
        return RedirectResponse("/", 303)
    return show(request, "login.html", wanted=safe_next(request.query_params.get("next", "/")), wrong="")


@router.post("/login")
async def login(request: Request) -> Response:
    """Take the token and answer with a cookie that does not hold it."""
    access: Access = request.app.state.access
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_FORM:
            return PlainTextResponse("too long", 413)
    fields = parse_qs(body.decode("utf-8", "replace"))
    wanted = safe_next(fields.get("next", ["/"])[0])
    try:
        right = access.knows(fields.get("token", [""])[0].strip(), request.client.host if request.client else "")
    except GuessedError as error:
        shown = show(request, "login.html", 429, wanted=wanted, wrong=str(error))
        shown.headers.update(error.headers)
        return shown
    if not right:
        return show(request, "login.html", 401, wanted=wanted, wrong="this is not the token")
    answer = RedirectResponse(wanted, 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, access.session(), max_age=SESSION, httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/logout")
def logout(request: Request) -> Response:
    """Forget the cookie, here and in the browser."""
    request.app.state.access.end_session(request.headers)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def brief(micro: int) -> str:
    """Return an amount rounded to two decimals, for where the exact one stands beside it."""
    return f"{micro / 1_000_000:,.2f}"


def moment(at: datetime | None) -> str:
    """Return a moment in UTC for people."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M}"


def named(name: str) -> str:
    """Return a name that can be seen: of a blank one it says so."""
    visible = any(unicodedata.category(letter)[0] in "LNPS" for letter in name)
    return name if visible else "(blank name)"


def sentence(words: str) -> str:
    """Return words with a capital at their beginning."""
    return words[:1].upper() + words[1:]


FILTERS = {"sentence": sentence, "money": render.aligned, "brief": brief, "moment": moment, "named": named}
