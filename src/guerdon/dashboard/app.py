"""The dashboard as one application: pages, API, guard and the threads that watch the ledger."""

import gzip
import mimetypes
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException

import guerdon
from guerdon.dashboard import api, metrics, pages
from guerdon.dashboard.monitor import LedgerMonitor
from guerdon.dashboard.playground import SimulationQueue
from guerdon.dashboard.queries import UnknownError
from guerdon.dashboard.security import TITLES, Access, Guard, problem
from guerdon.dashboard.source import LedgerSource
from guerdon.ledger.books.errors import RefusedError, RuleMissingError, UnavailableError

HERE = Path(str(files("guerdon.dashboard")))
PLOTLY = next((HERE / "vendor").glob("plotly-basic-*.min.js.gz"))
FOREVER = "public, max-age=31536000, immutable"
FRESH = "no-cache"


def create_app(
    where: str,
    report: Path = Path("results/report.html"),
    access: Access | None = None,
    pilot: Path | None = None,
) -> FastAPI:
    """Return the dashboard of the ledger at `where`, and of a pilot; it starts to watch when it is served."""
    source = LedgerSource(where)
    monitor = LedgerMonitor(source)

    @asynccontextmanager
    async def watched(_: FastAPI) -> AsyncGenerator[None]:
        monitor.start()
        try:
            yield
        finally:
            monitor.join()
            source.close()

    app = FastAPI(
        title="Guerdon dashboard", version=guerdon.__version__, lifespan=watched, docs_url=None, redoc_url=None,
        openapi_url="/api/openapi.json", description="What a Guerdon ledger holds, and the game behind it. Read only.",
        redirect_slashes=False,
    )  # fmt: skip
    state = app.state
    state.source, state.monitor, state.report, state.pilot = source, monitor, report, pilot
    state.streams = 0
    state.access, state.simulations = access or Access(), SimulationQueue(lambda: monitor.closing)
    state.version, state.plotly = guerdon.__version__, f"/static/{PLOTLY.stem}"
    state.templates = _templates()
    app.include_router(api.router)
    app.include_router(metrics.router)
    app.include_router(pages.router)
    app.add_api_route("/static/{name}", _static, include_in_schema=False)
    _answer_errors(app)
    app.add_middleware(Guard, access=state.access, answering=monitor.answering)
    return app


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(pages.FILTERS)
    return environment


def _static(request: Request, name: str) -> Response:
    """Return a script or a style."""
    if name == PLOTLY.stem:
        return _plotly("gzip" in request.headers.get("accept-encoding", ""))
    folder = HERE / "static"
    if name not in {file.name for file in folder.iterdir()}:
        raise UnknownError(f"there is no file {name[:80]!r}")
    return FileResponse(folder / name, media_type=mimetypes.guess_type(name)[0], headers={"cache-control": FRESH})


def _plotly(compressed: bool) -> Response:
    """Return Plotly's script as it is kept, or for a program that does not read that, as it was published."""
    kept, headers = PLOTLY.read_bytes(), {"cache-control": FOREVER, "vary": "accept-encoding"}
    if compressed:
        return Response(kept, media_type="text/javascript", headers=headers | {"content-encoding": "gzip"})
    return Response(gzip.decompress(kept), media_type="text/javascript", headers=headers)


def _answer_errors(app: FastAPI) -> None:
    """Answer every error in words: to programs as JSON, to people as a page."""

    def answer(request: Request, error: Exception) -> Response:
        code, detail = _explain(error)
        if request.url.path.startswith(("/api/", "/metrics")):
            shown = problem(code, detail)
        else:
            words = f"there is no page {request.url.path[:80]!r}" if (code, detail) == (404, "Not Found") else detail
            title = TITLES.get(code, "Error")
            shown = pages.show(request, "error.html", code, code=code, title=title, detail=words)
        shown.headers.update(getattr(error, "headers", None) or {})
        return shown

    for kind in (UnknownError, RefusedError, UnavailableError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, answer)


def _explain(error: Any) -> tuple[int, str]:
    """Return the status of an error and what went wrong."""
    if isinstance(error, RuleMissingError):
        return 503, str(error)
    if isinstance(error, UnknownError | RefusedError):
        return 404, str(error)
    if isinstance(error, UnavailableError):
        return 503, str(error)
    if isinstance(error, HTTPException):
        only_reads = "the dashboard only reads: use GET"
        return error.status_code, only_reads if error.status_code == 405 else str(error.detail)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        given = repr(first.get("input"))
        shown = given if len(given) <= 80 else f"something of {len(given)} characters"
        return 422, f"`{first['loc'][-1]}`: {first['msg'].lower()}, got {shown}"
    return 500, f"this is our mistake ({type(error).__name__}); the log has more"
