"""The command line of the arena: `guerdon arena`."""

import runpy
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from guerdon.cli.options import SIMULATOR, AgentsOption, JsonOption, SeedOption, need
from guerdon.cli.tables import new_table, print_json, progress_bar

if TYPE_CHECKING:
    from guerdon.arena.game import RuleResult

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
    generations: Annotated[int, typer.Option(help="How often agents that learn may change what they do.")] = 24,
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
    from guerdon.arena.entrants import entrants
    from guerdon.arena.game import count_steps_of, run_arena
    from guerdon.arena.report import as_report, write_arena
    from guerdon.arena.settings import setting_of

    if repetitions < 2 or generations < 2:
        raise ValueError(f"`--repetitions` and `--generations` must be at least 2, got {repetitions} and {generations}")
    sizes = QUICK if quick else {"repetitions": repetitions, "generations": generations}
    if load is not None:
        runpy.run_path(str(load))
    entered = entrants([name.strip() for name in rules.split(",") if name.strip()])
    setting = setting_of(problem, agents, different)
    total, step = count_steps_of(entered), count()
    with progress_bar() as tell:
        results = run_arena(
            setting, entered, sizes["repetitions"], sizes["generations"], seed,
            lambda words: tell(words, next(step) / total),
        )  # fmt: skip
    write_arena(setting, results, out, repetitions=sizes["repetitions"], seed=seed, different=different)
    if as_json:
        print_json(as_report(setting, results))
    else:
        _print(results, f"{setting.words}: {agents} agents, ν = {setting.request}, cost {setting.fair:g}", out)


def _print(results: dict[str, "RuleResult"], title: str, out: Path) -> None:
    """Print what was found of each rule, and where the report is."""
    text = ("rule", "what pays best", "agents that learn")
    table = new_table(
        title, "rule", "honest pay − cost", "best gain", "what pays best", "agents that learn", "work", "paid",
        "accuracy", text=text,
    )  # fmt: skip
    for name, found in results.items():
        cells: list[Any] = [f"{found.rent.value:+.2f}", f"{found.best.gain.value:+.2f}", escape(found.best.words)]
        cells += [found.settled.strategy, f"{found.settled.effort:.0%}", f"{found.settled.paid:.0f}"]
        table.add_row(escape(name), *cells, f"{found.settled.accuracy:.3f}")
    console = Console(emoji=False)
    console.print(table)
    console.print(f"Report: {out / 'arena.html'}", soft_wrap=True, highlight=False, markup=False)
