"""The command line of the arena: `guerdon arena`."""

import runpy
from itertools import count
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from guerdon.cli.options import SIMULATOR, AgentsOption, JsonOption, SeedOption, need
from guerdon.cli.tables import new_table, print_json, progress_bar

if TYPE_CHECKING:
    from guerdon.lab.arena.contest import RuleResult

QUICK = {"repetitions": 4, "generations": 6}


def arena(
    rules: Annotated[
        str, typer.Option(metavar="NAMES", help="Rules to play, with commas between them (default: all).")
    ] = "",
    problem: Annotated[
        str, typer.Option(metavar="NAME", help="What is learned: linear, heart, network, or still (no training).")
    ] = "linear",
    agents: AgentsOption = 10,
    different: Annotated[
        bool, typer.Option("--different", help="Agents with different data (heart, network).")
    ] = False,
    repetitions: Annotated[int, typer.Option(help="Repetitions of each strategy.")] = 16,
    generations: Annotated[int, typer.Option(help="How often agents that learn may change what they do.")] = 16,
    quick: Annotated[bool, typer.Option("--quick", help="A look: few repetitions and generations.")] = False,
    load: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A Python file of yours that enters rules of your own.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report, figures and numbers.")] = Path("arena"),
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Play every way to pay for federated learning on the same game, and write a report.

    For each rule: what every strategy gains over honest work, the best answer that a search finds, what honest agents
    are paid, and where agents end that learn what pays. The first paragraph says where another rule beats ours.
    """
    need("guerdon arena", "sim", *SIMULATOR)
    from guerdon.lab.arena.contest import count_steps_of, run_arena
    from guerdon.lab.arena.entrants import entrants
    from guerdon.lab.arena.report import as_report, write_arena
    from guerdon.lab.arena.settings import setting_of
    from guerdon.lab.arena.verdicts import first_paragraph

    if repetitions < 2 or generations < 2:
        raise ValueError(f"`--repetitions` and `--generations` must be at least 2, got {repetitions} and {generations}")
    if seed < 0:
        raise ValueError(f"`--seed` must be 0 or more, got {seed}")
    named = [name.strip() for name in rules.split(",") if name.strip()]
    if rules and not named:
        raise ValueError(f"`--rules` must name rules with commas between them, as in flat,steady, got {rules!r}")
    sizes = QUICK if quick else {"repetitions": repetitions, "generations": generations}
    if load is not None:
        _load(load)
    entered = entrants(named)
    setting = setting_of(problem, agents, different)
    out.mkdir(parents=True, exist_ok=True)  # a folder that cannot be written to is told before the work
    total, step = count_steps_of(entered), count()
    with progress_bar() as tell:
        results = run_arena(
            setting, entered, sizes["repetitions"], sizes["generations"], seed,
            lambda words: tell(words, next(step) / total),
        )  # fmt: skip
    write_arena(setting, results, out, **sizes, seed=seed, different=different)
    if as_json:
        print_json(as_report(setting, results))
    else:
        title = f"{setting.words}: {agents} agents, ν = {setting.request}, cost {setting.fair:g}"
        _print(results, setting.fair, title, first_paragraph(setting, results), out)


def _load(file: Path) -> None:
    """Run a user's file, which enters rules; what is wrong in it is told with its line."""
    try:
        runpy.run_path(str(file))
    except (OSError, KeyboardInterrupt):
        raise
    except Exception as problem:
        lines = [frame.lineno for frame in extract_tb(problem.__traceback__) if Path(frame.filename) == file]
        line = getattr(problem, "lineno", None) or (lines or [None])[-1]
        where = f"{file}, line {line}" if line else str(file)
        raise ValueError(
            f"`--load` must be a file that runs; {where}: {type(problem).__name__}: {problem}"
        ) from problem


def _print(results: dict[str, "RuleResult"], fair: float, title: str, first: str, out: Path) -> None:
    """Print what was found of each rule, the report's first paragraph, and where the report is.

    `fair`: what a round of honest work costs.
    """
    from guerdon.lab.arena.verdicts import EQUIVALENCE, worth_looks

    headings = ("rule", "pay − cost", "best gain", "agents that learn", "work", "paid", "accuracy")
    table = new_table(title, *headings, text=("rule", "agents that learn"))
    rows = [_row(name, found) for name, found in results.items()]
    for column, heading, *cells in zip(table.columns, headings, *rows, strict=True):  # names are not cut at 80 letters
        column.width = max(len(word) for text in (heading, *cells) for word in text.split())
    for name, *cells in rows:
        table.add_row(escape(name), *cells)
    console = Console(emoji=False)
    console.print(table)
    console.print(first, highlight=False, markup=False)
    worth = ", ".join(f"{name} {worth_looks(found, fair).value:.2f}" for name, found in results.items())
    console.print(f"{EQUIVALENCE} Here: {worth}.", highlight=False, markup=False)
    console.print("Money is in a round. Standard errors are in the report, and in --json.", highlight=False)
    console.print(f"Report: {out / 'arena.html'}", soft_wrap=True, highlight=False, markup=False)


def _row(name: str, found: "RuleResult") -> list[str]:
    settled = found.settled
    return [
        name, _signed(found.rent.value), _signed(found.best.gain.value), settled.strategy,
        f"{settled.effort.value:.0%}", f"{settled.paid.value:,.0f}", f"{settled.accuracy.value:.3f}",
    ]  # fmt: skip


def _signed(value: float) -> str:
    """Return a number with its sign; what rounds to zero has none."""
    return f"{value:+.2f}" if abs(value) >= 0.005 else "0.00"
