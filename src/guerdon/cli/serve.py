"""The command line of the service: `guerdon serve`. The service itself is imported inside the command."""

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from guerdon.arrays import check_number, check_positive_integer
from guerdon.cli.options import (
    DEFAULT,
    CostOption,
    DbOption,
    ProxyOption,
    RuleOption,
    TlsCertOption,
    TlsKeyOption,
    chosen_rule,
    need,
    need_posix,
)
from guerdon.costs import ExpressionCost, check_cost
from guerdon.statistical.servers import server_for

PORT = 8734
LARGEST_CHECKED = 1_000_000


def serve(
    model: Annotated[Path, typer.Argument(help="The model to begin with: a safetensors file.")],
    run: Annotated[str, typer.Option(help="The run's name in the ledger; one that was interrupted goes on.")],
    request: Annotated[int, typer.Option(help="Samples that every agent is asked for in a round.")],
    step: Annotated[float, typer.Option(help="How far a step goes along the mean gradient.")] = 0.1,
    cost: CostOption = "1 + s",
    rule: RuleOption = "steady",
    rounds: Annotated[int, typer.Option(help="How many rounds the run has in all.")] = 100,
    sends: Annotated[
        Literal["gradients", "models"],
        typer.Option(metavar="WHAT", help="What agents send: gradients, or models they trained."),
    ] = "gradients",
    dither: Annotated[float | None, typer.Option(help="Ask this far from the model, to either side in turn.")] = None,
    alike: Annotated[bool, typer.Option(help="All agents draw fresh samples of the same kind.")] = False,
    terms: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Terms of the run (TOML): deadline, budget, hold, losses, cost_factors, …"),
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help='Agents without keys: JSON, {"agent": "token", …}.')
    ] = None,
    members: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Who works for this run: a file with the name of an enrolled agent a line."),
    ] = None,
    spool: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the open round is kept (default: RUN.spool).")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append the numbers of each round to a file, as lines of JSON.")
    ] = None,
    db: DbOption = DEFAULT,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="Port to listen on; 0 takes any free port.")] = PORT,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    behind_proxy: ProxyOption = None,
) -> None:
    """Pay agents of any framework over HTTP: they ask, send signed reports, and read what they were paid."""
    need_posix("guerdon serve")
    need("guerdon serve", "serve", "fastapi", "uvicorn", "sqlalchemy", "cryptography")
    from guerdon.ledger import Ledger
    from guerdon.requests import FixedRequest
    from guerdon.run.driver import open_run
    from guerdon.run.terms_file import read_terms
    from guerdon.serve.access import Members
    from guerdon.serve.running import NamedIn, read_model, read_tokens, run_service, write_lines
    from guerdon.statistical.dithers import Dither
    from guerdon.terms import Terms
    from guerdon.web import exposure

    exposed = exposure(host, tls_cert, tls_key, behind_proxy)
    check_positive_integer("--request", request)
    if dither is not None:
        check_number("--dither", dither, minimum=0, inclusive=False)
    price = ExpressionCost(cost)
    check_cost(price, min(max(4 * request, 1), LARGEST_CHECKED))
    space = None if dither is None else Dither(dither)
    server = server_for(chosen_rule(rule, price), FixedRequest(request, step), None, space, sends, alike)
    agreed = Terms() if terms is None else read_terms(terms)
    arrays, known = read_model(model), {} if tokens is None else read_tokens(tokens)
    named = tuple if members is None else NamedIn(members)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("guerdon").setLevel(logging.INFO)

    def tell(address: str) -> None:
        console.print(f"Run {escape(repr(run))} is served at [bold]{escape(address)}[/] (Ctrl-C stops it)")

    with Ledger(db) as ledger:
        told = None if log is None else write_lines(log)
        paid = open_run(server, ledger, run, arrays, agreed, rounds=rounds, on_round=told)
        own = Members(run, paid.book.keys, known, ledger=ledger.name, named=named)
        run_service(paid, spool or Path(f"{run}.spool"), own, exposed, port, tell)
