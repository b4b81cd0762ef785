"""The command line of rehearsals: `guerdon looks try`."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from guerdon.arrays import check_positive_integer
from guerdon.cli.files import read_arrays
from guerdon.cli.options import JsonOption
from guerdon.cli.tables import new_table, print_json
from guerdon.looks.isolation import Limits
from guerdon.looks.rehearsal import SHARE, THREADS, Rehearsal, advice
from guerdon.looks.rehearsal import rehearse as rehearsed
from guerdon.looks.rows import KINDS, read_rows

TENSORS_SHOWN = 12  # in a table: more fill a screen; `--json` has all
ABOUT = "about"  # the array of a saved rehearsal that says what its reports were made of
GIB = 2**30


def rehearse(
    function: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="What computes the work.")],
    rows: Annotated[Path, typer.Option(help="Rows of the kind that members have: .parquet, .csv or .npz.")],
    model: Annotated[Path, typer.Option(help="The current model, arrays by name: .npz or .safetensors.")],
    request: Annotated[int, typer.Option(help="Rows that are named in a round.")] = 16,
    looks: Annotated[int, typer.Option(help="How many looks are rehearsed.")] = 20,
    sends: Annotated[
        Literal["gradients", "models"], typer.Option(help="What it returns; of models the moves are compared.")
    ] = "gradients",
    ways: Annotated[
        list[str] | None,
        typer.Option("--way", metavar="NAME=VALUE", help="An option in which honest members may differ; repeatable."),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of the second process, which does the honest work.")] = THREADS,
    share: Annotated[float, typer.Option(help="Share of the named rows that may be skipped unseen.")] = SHARE,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="NAME=KIND", help=f"Type of a .csv column: {', '.join(KINDS)}; repeatable."),
    ] = None,
    path: Annotated[Path, typer.Option(help="Folder that the module is in.")] = Path(),
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the reports (.npz), for --against on another machine.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Reports that another machine saved: look at these instead.")
    ] = None,
    minutes: Annotated[int, typer.Option(help="Give up after so many minutes.")] = 30,
    memory: Annotated[int, typer.Option(help="Gigabytes that the work may take; with a GPU far more is reserved.")] = 8,
    seed: Annotated[int, typer.Option(help="Chooses which rows are named.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Say whether work can be looked at: how exactly it repeats, and which rows could be skipped unseen.

    For a member and an operator, before money moves. An auditor's process measures its tolerance, a second one with
    more threads does the honest work, and every look compares them. Nothing leaves this machine: the function runs
    without network. Exit status 1 if the work cannot be looked at as it is.
    """
    if save is not None and save.suffix != ".npz":
        raise ValueError(f"`--save` must end in .npz, got {save}")
    table = read_rows(rows, _pairs("--type", types or []))
    check_positive_integer("--minutes", minutes)
    limits = Limits(wall=60 * minutes, cpu=60 * minutes, memory=memory * GIB)
    with Console(stderr=True).status(f"rehearsing {looks} looks"):
        found = rehearsed(
            function, table, read_arrays(model), request=request, looks=looks, seed=seed, sends=sends, threads=threads,
            ways=[way_of(text) for text in ways or []], most=share, limits=limits, path=[path],
            others=None if against is None else _saved(against),
        )  # fmt: skip
    if save is not None and found.reports:
        _save(found, save)
    if as_json:
        print_json(_report(found))
    else:
        _print(found, against, threads)
    if not found.is_strict:
        raise typer.Exit(1)


def _pairs(option: str, given: list[str]) -> dict[str, str]:
    parts = [text.rpartition("=") for text in given]
    for text, (name, _, value) in zip(given, parts, strict=True):
        if not name or not value:
            raise ValueError(f"`{option}` must be a name and a value, such as age=number, got {text!r}")
    return {name: value for name, _, value in parts}


def way_of(text: str) -> dict[str, Any]:
    """Return an option of the function: its value is JSON, or else text."""
    ((name, value),) = _pairs("--way", [text]).items()
    try:
        return {name: json.loads(value)}
    except ValueError:
        return {name: value}


def _save(found: Rehearsal, path: Path) -> None:
    arrays = {f"{place}/{name}": array for place, one in enumerate(found.reports) for name, array in one.items()}
    np.savez(path, **{ABOUT: np.array(found.about)}, **arrays)  # pyright: ignore[reportArgumentType]


def _saved(path: Path) -> tuple[str, list[dict[str, np.ndarray]]]:
    """Return what another machine's reports are made of, and the reports."""
    arrays = dict(read_arrays(path))
    about = arrays.pop(ABOUT, None)
    places = {name: name.partition("/") for name in arrays}
    if about is None or not all(place.isdecimal() and tensor for place, _, tensor in places.values()):
        raise ValueError(f"`--against` must be a file that `guerdon looks try --save` wrote, got {path}")
    reports: dict[int, dict[str, np.ndarray]] = {}
    for name, (place, _, tensor) in places.items():
        reports.setdefault(int(place), {})[tensor] = arrays[name]
    return str(about), [reports[place] for place in sorted(reports)]


def _report(found: Rehearsal) -> dict[str, Any]:
    """Return a rehearsal for JSON; a number that is infinite is null."""
    plain: dict[str, Any] = {name: value for name, value in found._asdict().items() if name not in ("reports", "ways")}
    ways = [{"way": name, "errors": _finite(errors)} for name, errors in found.ways]
    widths = {name: _finite(dict(getattr(found, name))) for name in ("tolerance", "widest")}
    settled = widths | {"types": dict(found.types), "reasons": list(found.reasons)}
    return (
        plain
        | settled
        | {"ways": ways, "repeats": found.repeats, "is_strict": found.is_strict, "advice": list(advice(found))}
    )


def _finite(numbers: dict[str, float]) -> dict[str, float | None]:
    return {name: value if np.isfinite(value) else None for name, value in numbers.items()}


def _print(found: Rehearsal, against: Path | None, threads: int) -> None:
    console = Console(emoji=False, highlight=False)
    if not found.unable:
        console.print(f"{found.function}, {found.looks} looks of {found.request} rows", markup=False, soft_wrap=True)
        table = new_table("How exactly the first look repeats", "way", "largest error", "in tensor",
                          text=["way", "in tensor"])  # fmt: skip
        for way, errors in found.ways:
            worst = max(errors, key=errors.__getitem__)
            table.add_row(escape(way), f"{errors[worst]:.1e}" if errors[worst] else "0", escape(worst))
        console.print(table)
        widths = new_table("Tolerance, over all looks", "tensor", "type", "median", "widest", text=["tensor", "type"])
        for name in sorted(found.tolerance, key=found.tolerance.__getitem__, reverse=True)[:TENSORS_SHOWN]:
            numbers = (f"{width[name]:.1e}" for width in (found.tolerance, found.widest))
            widths.add_row(escape(name), found.types[name], *numbers)
        console.print(widths)
    for line in _sentences(found, against, threads):
        console.print(escape(line), soft_wrap=True)


def _sentences(found: Rehearsal, against: Path | None, threads: int) -> list[str]:
    if found.unable:
        return [f"The work cannot be looked at: {found.unable}.", *(f"→ {line}" for line in advice(found))]
    hidden = len(found.tolerance) - TENSORS_SHOWN
    whose = f"with {threads} threads in another process" if against is None else f"of {against}"
    rows = round(found.skippable * found.request)
    lines = [f"({hidden} more tensors have a smaller tolerance; --json lists them all.)"] * (hidden > 0)
    lines.append(f"{found.looks - found.failed} of {found.looks} honest reports {whose} pass their look.")
    lines += [f"The first that fails: {why}." for why in found.reasons[:3]]
    lines.append(
        f"So ε, the chance that honest work fails a look, is at most {found.epsilon:.2%} (with 95 % confidence). "
        "More looks tell it closer: 0 of 300 is 1 %."
    )
    lines.append(
        f"Of {found.request} named rows a member could skip {rows} unseen on this model ({found.skippable:.0%}; "
        f"allowed are {found.most:.0%})."
    )
    lines += [f"→ {line}" for line in advice(found)]
    if found.is_strict:
        end = "This work can be looked at."
    elif found.repeats:
        end = "This work can be looked at, but on this model a look does not see enough."
    else:
        end = "This work cannot be looked at as it is."
    return [*lines, f"{end} Code: {found.code[:16]}…"]
