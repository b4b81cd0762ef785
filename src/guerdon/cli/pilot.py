"""The command line of pilots: `guerdon pilot`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from guerdon.cli.options import JsonOption, need, need_simulator
from guerdon.cli.tables import new_table, print_json
from guerdon.costs import ExpressionCost, check_cost
from guerdon.pilot import PilotRecord, PilotReport, assess
from guerdon.pilot.wording import EXPLAINED, closing, honest_rows, measured, title
from guerdon.requests import FixedRequest

AGENTS_SHOWN = 20


def pilot(
    file: Annotated[
        Path, typer.Argument(help="What a pilot wrote (.json), or an experiment to simulate one from (.toml).")
    ],
    cost: Annotated[
        str | None, typer.Option(metavar="EXPRESSION", help="What s samples really cost (default: as in the pilot).")
    ] = None,
    alpha: Annotated[float, typer.Option(help="Intervals hold with probability 1 − alpha.")] = 0.05,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as a page too.")] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the pilot (.json) that was simulated.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether a federation is payable, and by which rule: what half work gains, what honest agents earn, and more.

    `guerdon.flower.Pilot` writes a pilot on Flower. A pilot is simulated from a file for `guerdon simulate`, with
    its first request, one repetition, and half the work asked of a random few.
    """
    record = simulated(file) if file.suffix.lower() == ".toml" else PilotRecord.load(file)
    if save is not None:
        record.save(save)
    believed = None if cost is None else ExpressionCost(cost)
    if believed is not None:
        check_cost(believed, record.request)
    report = assess(record, believed, alpha)
    if html is not None:
        need("--html", "sim", "matplotlib")
        from guerdon.lab.experiments.pilot_page import write_page

        write_page(report, html)
    if as_json:
        print_json(report.as_json())
    else:
        print_pilot(report, f"{file.name}: {title(report)}", html)


def simulated(file: Path) -> PilotRecord:
    """Return a pilot of an experiment in a TOML file."""
    need_simulator("guerdon pilot FILE.toml")
    from guerdon.cli.config import read_config
    from guerdon.lab.simulation import run_pilot

    read = read_config(file)
    if not isinstance(read.requests, FixedRequest):
        raise ValueError("`server.request` must be one number for a pilot; write request = 16")
    return run_pilot(
        read.problem, read.agents, read.rules, int(read.requests.batch_size), float(read.requests.step),
        read.rounds, read.seed, prediction=read.prediction, dither=read.dither,
    )  # fmt: skip


def print_pilot(report: PilotReport, heading: str, page: Path | None) -> None:
    """Print what a pilot says: of each rule, of each agent, and which rule to use."""
    console = Console(emoji=False, highlight=False)
    rules = [escape(rule.rule) for rule in report.rules]
    table = new_table(heading, "per round", *rules, text=["per round"])
    for name, cells in measured(report):
        table.add_row(name, *cells)
    console.print(table)
    rows = honest_rows(report)
    agents = new_table("Honest pay of each agent", "agent", *rules, text=["agent"])
    for name, cells in rows[:AGENTS_SHOWN]:
        agents.add_row(escape(name), *cells)
    console.print(agents)
    if len(rows) > AGENTS_SHOWN:
        console.print(f"({len(rows)} agents; --json lists them all)")
    console.print(EXPLAINED)
    *notes, verdict = closing(report)
    for line in notes:
        console.print(line, markup=False)
    console.print(f"[bold]{escape(verdict)}[/]")
    if page is not None:
        console.print(f"Report: {page}", soft_wrap=True, markup=False)
