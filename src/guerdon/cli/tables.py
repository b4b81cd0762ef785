"""What every command prints with: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from guerdon.ledger.books.money import format_amount, plain_amount

if TYPE_CHECKING:
    from pathlib import Path

    from guerdon.ledger import Verification
    from guerdon.ledger.read.earnings import Earnings

NARROWEST = 20  # letters of a name or a reason that a line of a table must have room for
UNBOUNDED = 10_000  # columns that no table has


def print_json(report: dict[str, Any]) -> None:
    """Print a report as JSON; infinities are not JSON, and are never printed."""
    typer.echo(json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False))


def new_table(title: str, *headings: str, text: Sequence[str]) -> Table:
    """Return a table without rows; columns that hold text are aligned to the left, numbers to the right."""
    table = Table(title=escape(title), title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in text else "right")
    return table


def print_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, text: Sequence[str], empty: str
) -> None:
    """Print a table, or the text for an empty one; control characters in the cells cannot reach the terminal.

    Numbers are never broken. Where they leave no room for the text, each row is a list of its cells.
    """
    from guerdon.ledger.books.checks import UNPRINTABLE

    console = Console(emoji=False)
    if not rows:
        console.print(empty)
        return
    shown = [[escape(UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", cell)) for cell in row] for row in rows]
    table = new_table(title, *headings, text=text)
    for i, (column, heading) in enumerate(zip(table.columns, headings, strict=True)):
        column.overflow, column.no_wrap = "fold", heading not in text or heading == "when"
        if not column.no_wrap:
            column.min_width = min(NARROWEST, max(len(row[i]) for row in rows))
    for row in shown:
        table.add_row(*row)
    if Measurement.get(console, console.options.update_width(UNBOUNDED), table).minimum <= console.width:
        console.print(table)
        return
    console.print(escape(title), style="italic")
    for row in shown:
        cells = [f"{heading} {cell}" for heading, cell in zip(headings, row, strict=True) if cell]
        console.print("• " + ", ".join(cells), highlight=False)


@contextmanager
def progress_bar() -> Generator[Callable[[str, float], None]]:
    """Yield a function that shows, on a terminal's standard error, what is being done and which share is behind it."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = BarColumn(20), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda words, share: bar.update(task, completed=share, description=words)


def print_verification(found: "Verification") -> None:
    """Print what was checked, and the first bad row if there is one."""
    console = Console(emoji=False, soft_wrap=True, highlight=False)
    checked = f"{found.records:,} records, {found.payments:,} payments, {found.entries:,} entries"
    if found.holds:
        console.print(f"[green]✓ holds:[/] {checked}; head {found.head.hex()[:16]}…")
        if found.coverage is not None:
            console.print(f"The receipt covers the records up to {found.coverage.last:,}.")
        if found.coverage is not None and found.coverage.warning is not None:
            console.print(f"[bold yellow]! {found.coverage.warning}[/]")
    elif found.problem is None:
        console.print(f"[bold yellow]? cannot be verified here:[/] {escape(str(found.unverifiable))}")
        console.print(f"All else holds: {checked}.")
    else:
        console.print(f"[bold red]✗ {escape(str(found.problem))}[/]")
        console.print(f"Before it {checked} hold.")


def print_earnings(earned: "Sequence[Earnings]", unit: str) -> None:
    """Print what each agent is paid in a round against what it costs, where there are rounds enough to say."""
    shown = [(row, row.margin) for row in earned if row.margin is not None]
    places = 2 if all(row.round_cost >= 1 for row, _ in shown) else 6
    cells = [
        [str(row.number), row.agent, str(row.rounds)]
        + [f"{sign}{value:,.{places}f}" for sign, value in (("", row.round_cost), ("", row.pay), ("± ", wide))]
        for row, wide in shown
    ]
    if cells:
        headings = ("no.", "agent", "rounds", "cost a round", "pay a round", "95 %")
        if any(row.forfeited for row, _ in shown):
            headings += ("forfeited",)
            cells = [[*line, f"{row.forfeited:,.{places}f}"] for line, (row, _) in zip(cells, shown, strict=True)]
        print_table(f"Pay against cost, in {unit}", headings, cells, text=("agent",), empty="")


def earnings_report(earned: "Sequence[Earnings]") -> list[dict[str, Any]]:
    """Return the same for JSON; `margin` is null where there is one round only."""
    return [
        {"agent": row.agent, "number": row.number, "rounds": row.rounds, "cost": row.round_cost, "pay": row.pay,
         "margin": row.margin, "forfeited": row.forfeited}
        for row in earned
    ]  # fmt: skip


def write_text(pieces: Iterable[str], out: "Path | None") -> None:
    """Write text to a file, or to the screen where there is none."""
    with nullcontext(sys.stdout) if out is None else out.open("w", encoding="utf-8", newline="") as file:
        file.writelines(pieces)


def money(micro: int | None) -> str:
    """Return an amount for people; empty text where there is none."""
    return "" if micro is None else format_amount(micro)


def json_row(row: dict[str, Any], money: Sequence[str] = ()) -> dict[str, Any]:
    """Return a row for JSON: exact decimal text for money, hexadecimal for hashes, ISO for times."""
    return {name: plain_amount(value) if name in money else _json_value(value) for name, value in row.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else json.loads(json.dumps(value))
