"""The command line of commitments: `guerdon commit`. A member runs it where its rows are."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from guerdon.cli.options import JsonOption
from guerdon.cli.tables import print_json
from guerdon.looks.commitment import Commitment
from guerdon.looks.opening import Committed
from guerdon.looks.rows import KINDS, Table, read_rows
from guerdon.looks.secret import make_secret, read_secret

if TYPE_CHECKING:
    from rich.progress import Progress

GROWTH, VERSION = "guerdon-growth", 1


class _Heard:
    """Rows that tell which share of them was read."""

    def __init__(self, rows: Table, tell: Callable[[float], object]) -> None:
        self._rows, self._tell = rows, tell

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._rows[index]

    def encode_rows(self, start: int, stop: int) -> list[bytes]:
        self._tell(stop / max(len(self._rows), 1))
        return self._rows.encode_rows(start, stop)


def commit(
    rows: Annotated[Path, typer.Argument(help="Your rows, a table: .parquet, .csv or .npz.")],
    ledger: Annotated[str, typer.Option(help="Name of the ledger, as the operator tells it.")],
    run: Annotated[str, typer.Option(help="Name of the run.")],
    member: Annotated[str, typer.Option(help="Your name in the ledger.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Where to keep the commitment (default: ROWS.commitment.npz)."),
    ] = None,
    secret: Annotated[
        Path | None,
        typer.Option(
            "--secret",
            metavar="FILE",
            envvar="GUERDON_SECRET",
            help="Your secret, made if it is not there (default: guerdon.secret beside the rows).",
        ),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="NAME=KIND", help=f"Type of a .csv column: {', '.join(KINDS)}; repeatable."),
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="More rows will come: `--append` adds them.")] = False,
    append: Annotated[
        bool, typer.Option("--append", help="The file has more rows than the stream that was committed: add them.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Commit to your rows before a run: make the record that the operator keeps, which shows no row.

    Writes two files. The commitment (.npz) stays with you: it answers looks. The record (.json, beside it) goes to the
    operator: your name, a root of 32 bytes, how many rows there are and how many differ. A secret is made once, and
    kept for all your runs: nobody can test a guess of a row without it, and you cannot open a row without it.
    """
    kept = _kept(rows, out)
    place = secret or rows.with_name("guerdon.secret")
    old = _old(kept, append=append, names=(ledger, run, member))
    with _progress() as (bar, task):
        bar.update(task, description=f"reading {rows.name}")
        table = read_rows(rows, _types(types or []), lambda share: bar.update(task, completed=share))
        made = not place.exists()
        known = make_secret(place) if made else read_secret(place)
        bar.reset(task, description=f"committing to {len(table):,} rows")
        heard = _Heard(table, lambda share: bar.update(task, completed=share))
        names: Any = {"ledger": ledger, "run": run, "member": member}
        found = Commitment.of(heard, **names, secret=known, stream=stream or append)
    record = found.committed()
    growth = None if old is None else _growth(found, old, rows)
    found.save(kept)
    _write(record, growth, kept)
    if as_json:
        files = {"commitment": str(kept), "record": str(kept.with_suffix(".json")), "secret": str(place)}
        print_json(json.loads(record.to_json()) | {"secret_is_new": made, "files": files})
    else:
        _print(record, table, old, kept, place, made=made)


def _kept(rows: Path, out: Path | None) -> Path:
    """Return where the commitment is kept."""
    kept = rows.with_suffix(".commitment.npz") if out is None else out
    if kept.suffix != ".npz" or kept.resolve() == rows.resolve():
        raise ValueError(f"`--out` must end in .npz and be another file than the rows, got {kept}")
    return kept


def _types(given: list[str]) -> dict[str, str]:
    """Return the types of columns by name."""
    pairs = [text.rpartition("=") for text in given]
    for text, (name, _, kind) in zip(given, pairs, strict=True):
        if not name or kind not in KINDS:
            raise ValueError(f"`--type` must be a column and {' or '.join(KINDS)}, such as postcode=text, got {text!r}")
    return {name: kind for name, _, kind in pairs}


def _old(kept: Path, *, append: bool, names: tuple[str, str, str]) -> Committed | None:
    """Return the record of the stream that rows are added to; raise where a commitment would be lost."""
    public = kept.with_suffix(".json")
    there = [file for file in (kept, public) if file.exists()]
    if not append:
        if there:
            raise ValueError(
                f"`--out` must be a new file, got {there[0]}, which may still have to answer looks: give another name, "
                "or --append to a stream"
            )
        return None
    if not public.exists():
        raise FileNotFoundError(f"`--append` needs the stream's record {public}: commit with --stream first")
    old = Committed.from_json(public.read_text(encoding="utf-8"))
    if not old.stream or tuple(old[:3]) != names:
        what = "a stream" if old.stream else "no stream"
        raise ValueError(
            f"`--append` must add to a stream of the same ledger, run and member, got {what} of "
            f"{old.member!r} in run {old.run!r} of ledger {old.ledger!r} in {public}"
        )
    return old


def _growth(found: Commitment, old: Committed, rows: Path) -> str:
    """Return the proof that a stream only grew; raise where its old rows are not as they were."""
    if len(found) < old.size or found.committed(old.size) != old:
        raise ValueError(
            f"`{rows}` must begin with the {old.size} rows that were committed, with the same secret: they were "
            "changed, or new cells gave a .csv column another type (fix the old one by --type)"
        )
    proof = [part.hex() for part in found.growth(old.size)]
    sizes = {"old": old.size, "new": len(found)}
    return json.dumps({"format": GROWTH, "version": VERSION, **sizes, "proof": proof})


def _write(record: Committed, growth: str | None, kept: Path) -> None:
    kept.with_suffix(".json").write_text(record.to_json() + "\n", encoding="utf-8")
    if growth is not None:
        kept.with_suffix(".growth.json").write_text(growth + "\n", encoding="utf-8")


def _print(record: Committed, table: Table, old: Committed | None, kept: Path, secret: Path, *, made: bool) -> None:
    console = Console(emoji=False, highlight=False, soft_wrap=True)
    for line in _sentences(record, table, old, kept, secret, made=made):
        console.print(escape(line))


def _sentences(
    record: Committed, table: Table, old: Committed | None, kept: Path, secret: Path, *, made: bool
) -> list[str]:
    added = "" if old is None else f", {record.size - old.size:,} of them new"
    columns = ", ".join(f"{name} ({_kind(column)})" for name, column in table.columns.items())
    repeats = record.size - record.distinct
    lines = [
        f"{record.member} committed to {record.size:,} rows{added}, for run {record.run!r} of ledger "
        f"{record.ledger!r}.",
        f"Columns: {columns}.",
        f"{record.distinct:,} rows differ." + (f" {repeats:,} repeat another; the record says so." if repeats else ""),
        f"Root: {record.root.hex()}",
        "",
        f"Send to the operator: {kept.with_suffix('.json')}. It shows no row.",
    ]
    if old is not None:
        lines.append(f"Send too: {kept.with_suffix('.growth.json')}. It proves that the old rows are unchanged.")
    lines.append(f"Keep, and show nobody: {kept} and the rows as they are now. They answer looks.")
    new = "is new: back it up" if made else "was there already"
    lines.append(f"Keep, and show nobody: {secret}, your secret. It {new}. Without it you cannot open a row.")
    return lines


def _kind(column: Any) -> str:
    """Return what a column holds, in a word: members of one federation must have the same."""
    dtype = getattr(column, "dtype", None)
    return "text" if dtype is None else f"{dtype.name}{list(column.shape[1:]) if column.ndim > 1 else ''}"


@contextmanager
def _progress() -> "Generator[tuple[Progress, Any]]":
    """Yield a bar on a terminal's standard error, with the time left."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = BarColumn(20), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False)
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar, bar.add_task("starting", total=1.0)
