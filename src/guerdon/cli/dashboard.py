"""The command line of the dashboard: `guerdon dashboard`. The dashboard itself is imported inside the command."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from guerdon.cli.options import DEFAULT, DbOption, ProxyOption, TlsCertOption, TlsKeyOption, need

PORT = 8733


def dashboard(
    db: DbOption = DEFAULT,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that others reach needs a token and TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="Port to listen on; 0 takes any free port.")] = PORT,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Ask for the token in this file (or in the variable GUERDON_DASHBOARD_TOKEN)."
        ),
    ] = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    behind_proxy: ProxyOption = None,
    report: Annotated[
        Path, typer.Option(metavar="FILE", help="The report that `guerdon reproduce` wrote, to link to.")
    ] = Path("results/report.html"),
    pilot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A pilot to show too, as `guerdon.flower.Pilot` writes it.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open it in the browser.")] = True,
) -> None:
    """Show runs, agents, payouts and a playground in the browser; reads the ledger, and never writes to it."""
    need("guerdon dashboard", "dashboard", "fastapi", "uvicorn", "jinja2", "sqlalchemy")
    from guerdon.dashboard.serve import find_token, serve
    from guerdon.web import exposure

    exposed = exposure(host, tls_cert, tls_key, behind_proxy)
    token, made_up = find_token(exposed, token_file)
    console = Console(stderr=True, soft_wrap=True, highlight=False)

    def tell(address: str) -> None:
        console.print(f"Dashboard of {escape(shown(db))}: [bold]{escape(address)}[/] (Ctrl-C stops it)")
        if made_up:
            console.print(f"Token, shown this once: [bold]{token}[/]")

    serve(db, exposed, port, report, pilot, token, browser, tell)


def shown(db: str) -> str:
    """Return the address of a ledger, without passwords."""
    from guerdon.ledger.books.database import parse_url

    url = parse_url(db)
    return url.set(query={}).render_as_string(hide_password=True) if url.host else str(url.database)
