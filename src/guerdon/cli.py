"""The command line: `guerdon COMMAND`. An extra is imported only inside the command that needs it."""

import json
import math
import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import guerdon
from guerdon.costs import ExpressionCost, check_cost
from guerdon.evidence import gather
from guerdon.files import read_gradients
from guerdon.game import MinibatchGame
from guerdon.mechanisms import (
    BalancedVariance,
    EstimatedVariance,
    KnownVariance,
    OutputAgreement,
    Payments,
    Status,
    VarianceRule,
    explain,
)

LARGEST_BATCH = 100_000  # a table over more batch sizes than this helps nobody, and would fill the memory
ROWS_SHOWN = 48

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Pay participants of federated learning for work that nobody can see.",
)


class RuleName(StrEnum):
    """The variance rules by the names they have on the command line."""

    known = "known"
    estimated = "estimated"
    balanced = "balanced"


CostOption = Annotated[
    str,
    typer.Option(metavar="EXPRESSION", help="Cost of a batch of s samples: numbers, s, + - * / ** and parentheses."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")]


def main() -> None:
    """Run the command line; bad input is answered with one line on standard error and exit status 2."""
    try:
        app()
    except (ValueError, TypeError, OSError, ModuleNotFoundError) as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        sys.exit(2)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"guerdon {guerdon.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and stop."),
    ] = False,
) -> None:
    del version


@app.command(
    epilog='Example: [bold]guerdon equilibrium --agents 10 --request 8 --cost "1 + s" --max-batch 32 --plot game.svg[/]'
)
def equilibrium(
    agents: Annotated[int, typer.Option(help="Number of agents.")] = 10,
    request: Annotated[int, typer.Option(help="Batch size that the server asks for.")] = 8,
    cost: CostOption = "1 + s",
    max_batch: Annotated[int | None, typer.Option(help="Largest possible batch size.  [default: 4 × request]")] = None,
    rule: Annotated[RuleName, typer.Option(help="Where the payment rule takes the variance from.")] = RuleName.known,
    others: Annotated[int | None, typer.Option(help="Batch size of all others.  [default: the request]")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it too: .svg, .png or .pdf.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what each batch size earns an agent, his best response, and the equilibria."""
    max_batch = 4 * request if max_batch is None else max_batch
    if max_batch > LARGEST_BATCH:
        raise ValueError(f"`--max-batch` must be at most {LARGEST_BATCH}, got {max_batch}")
    game = MinibatchGame(agents, request, ExpressionCost(cost), max_batch, rule=rule.value)
    others = request if others is None else others
    report = _equilibrium_report(game, others, cost)
    if plot is not None:
        _draw(game, others, cost, plot)
    if as_json:
        _print_json(report)
    else:
        _print_equilibrium(report, plot)


@app.command(epilog='Example: [bold]guerdon pay gradients.npy --request 8 --cost "1 + s" --variance known:4.0[/]')
def pay(
    file: Annotated[
        Path,
        typer.Argument(help="One array (agents × dim), or one array per agent: .npy, .npz or .safetensors."),
    ],
    request: Annotated[int, typer.Option(help="Batch size that was asked for.")],
    cost: CostOption = "1 + s",
    variance: Annotated[
        str,
        typer.Option(
            metavar="known:σ²|estimated|balanced",
            help="Variance of a single-sample gradient: a number you know, the paper's estimate (which underpays), or "
            "the balanced rule.",
        ),
    ] = "balanced",
    as_json: JsonOption = False,
) -> None:
    """Compute what each agent is paid for one round's gradients, and why."""
    expression = ExpressionCost(cost)
    mechanism = OutputAgreement(expression, _parse_variance(variance))
    check_cost(expression, min(max(4 * request, 1), LARGEST_BATCH))
    names, gradients = read_gradients(file)
    everybody = [True] * len(names)
    payments, _ = mechanism.pay(mechanism.init(len(names)), gather(gradients, everybody), everybody, request)
    rows = _payment_rows(names, payments, explain(payments, expression, request))
    if as_json:
        _print_json({"request": request, "cost": cost, "variance": variance, "agents": rows})
    else:
        _print_payments(rows, f"{file.name}: request {request}, h(s) = {cost}, variance {variance}")


def _parse_variance(text: str) -> VarianceRule:
    """Return the rule that `text` names: known:4.0, estimated or balanced."""
    name, _, value = text.partition(":")
    complaint = f"`--variance` must be known:NUMBER, estimated or balanced, got {text!r}"
    if name == RuleName.known:
        try:
            return KnownVariance(float(value))
        except ValueError:
            raise ValueError(f"{complaint}; NUMBER must be finite and above 0") from None
    if text == RuleName.estimated:
        return EstimatedVariance()
    if text == RuleName.balanced:
        return BalancedVariance()
    raise ValueError(complaint)


def _equilibrium_report(game: MinibatchGame, others: int, cost: str) -> dict[str, Any]:
    profile = [others] * game.num_agents
    utilities = [float(u) for u in game.utilities(0, profile)]
    costs = [game.cost(size) for size in range(game.max_batch + 1)]
    return {
        "agents": game.num_agents,
        "request": game.request,
        "cost": cost,
        "max_batch": game.max_batch,
        "rule": game.rule,
        "others": others,
        "best_response": game.best_response(0, profile),
        "symmetric_equilibria": game.symmetric_equilibria(),
        "table": [
            {"batch_size": size, "expected_reward": u + c, "cost": c, "utility": u}
            for size, (u, c) in enumerate(zip(utilities, costs, strict=True))
        ],
    }


def _draw(game: MinibatchGame, others: int, cost: str, path: Path) -> None:
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("`--plot` needs matplotlib; install it with: pip install 'guerdon[sim]'")
    from guerdon.figures import save_figure, utility_figure

    save_figure(utility_figure(game, others, cost), path)


def _print_equilibrium(report: dict[str, Any], plot: Path | None) -> None:
    best, request = report["best_response"], report["request"]
    table = Table(
        title=f"{report['agents']} agents, request {request}, h(s) = {report['cost']}, {report['rule']} variance; "
        f"the others use {report['others']}",
        title_justify="left",
    )
    for heading in ("batch size", "expected reward", "cost", "utility"):
        table.add_column(heading, justify="right")
    table.add_column("")
    rows = report["table"]
    hidden = len(rows) > ROWS_SHOWN
    for row in _worth_showing(rows, {best, request, report["others"]}) if hidden else rows:
        size = row["batch_size"]
        note = "◀ best response" if size == best else "request" if size == request else ""
        figures = (f"{row[key]:.3f}" for key in ("expected_reward", "cost", "utility"))
        table.add_row(str(size), *figures, note, style="bold green" if size == best else None)
    console = Console()
    console.print(table)
    if hidden:
        console.print(f"({len(rows)} batch sizes; --json lists them all)")
    console.print(f"Best response: {_name_size(best, request)}")
    listed = ", ".join(_name_size(size, request) for size in report["symmetric_equilibria"]) or "none"
    console.print(f"Equilibria in which everybody does the same: {listed}")
    if plot is not None:
        console.print(f"Figure: {plot}", soft_wrap=True, highlight=False)


def _worth_showing(rows: list[dict[str, Any]], special: set[int]) -> list[dict[str, Any]]:
    """Return the rows near the special sizes, and a few in each power of two."""
    near = {size + step for size in special for step in range(-3, 4)}
    doubling = {round(2 ** (power / 2)) for power in range(2 * len(rows).bit_length())}
    kept = near | doubling | {0, len(rows) - 1}
    return [row for row in rows if row["batch_size"] in kept]


def _name_size(size: int, request: int) -> str:
    if size == 0:
        return "0 (decline)"
    return f"{size} (the request)" if size == request else str(size)


def _payment_rows(names: list[str], payments: Payments, reasons: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "agent": name,
            "reward": float(reward),
            "status": Status(int(status)).label,
            "distance": _number_or_none(distance),
            "expected_distance": _number_or_none(expected),
            "variance": _number_or_none(variance),
            "why": why,
        }
        for name, reward, distance, expected, variance, status, why in zip(names, *payments, reasons, strict=True)
    ]


def _print_payments(rows: list[dict[str, Any]], title: str) -> None:
    table = Table(title=escape(title), title_justify="left")
    table.add_column("agent")
    table.add_column("reward", justify="right")
    table.add_column("status")
    table.add_column("why")
    for row in rows:
        table.add_row(escape(row["agent"]), f"{row['reward']:.4f}", row["status"], row["why"])
    console = Console()
    console.print(table)
    total = math.fsum(row["reward"] for row in rows)
    paid = sum(row["status"] == Status.PAID.label for row in rows)
    console.print(f"Total {total:.4f}, {paid} of {len(rows)} agents paid")


def _number_or_none(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)


def _print_json(report: dict[str, Any]) -> None:
    typer.echo(json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False))
