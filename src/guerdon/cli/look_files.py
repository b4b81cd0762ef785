"""What the commands of looks share: files that are written once, a member's rows, rounds in a text, and archives."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from guerdon.cli.options import LEDGER, need
from guerdon.looks.rows import KINDS, read_rows
from guerdon.looks.secret import read_secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guerdon.ledger import Ledger
    from guerdon.looks.exchange import Task
    from guerdon.looks.opening import Opening
    from guerdon.run.archive import Archive

MOST_ROUNDS = 1_000_000  # in one text: a typing error must not fill the memory

RunOption = Annotated[
    str | None, typer.Option("--run", help="Name of the run; may be left out if there is only one under looks.")
]
AuditorKeyOption = Annotated[
    Path, typer.Option("--key", metavar="FILE", envvar="GUERDON_AUDITOR_KEY", help="The auditor's private key (PEM).")
]
ArchiveOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where the server keeps reports (default: beside the ledger, NAME.db.files)."),
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="NAME=KIND", help=f"Type of a .csv column: {', '.join(KINDS)}; repeatable."),
]
CommitmentOption = Annotated[
    Path | None,
    typer.Option("--commitment", metavar="FILE", help="The member's commitment (default: ROWS.commitment.npz)."),
]
SecretOption = Annotated[
    Path | None,
    typer.Option(
        "--secret", metavar="FILE", envvar="GUERDON_SECRET",
        help="The member's secret (default: guerdon.secret beside the rows).",
    ),
]  # fmt: skip


def check_installed() -> None:
    """Raise unless what looks need is installed."""
    need("guerdon looks", "ledger", *LEDGER)


def say(*lines: str) -> None:
    """Print lines as they are, of any length."""
    console = Console(emoji=False, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(escape(line))


def write_whole(path: Path, data: bytes | str) -> None:
    """Write a file, all or nothing; where the same is there already nothing changes."""
    content = data.encode() if isinstance(data, str) else data
    if path.exists() and path.read_bytes() == content:
        return
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def rounds_in(text: str, option: str = "--rounds") -> list[int]:
    """Return the numbers of rounds in a text.

    >>> rounds_in("1-3,7")
    [1, 2, 3, 7]
    """
    found = set[int]()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", part)
        first, last = (0, -1) if match is None else (int(match[1]), int(match[2] or match[1]))
        if last < first or last - first >= MOST_ROUNDS:
            raise ValueError(f"`{option}` must be rounds such as 1-50 or 3,7, got {text!r:.80}")
        found |= set(range(first, last + 1))
    return sorted(found)


def watched_run(ledger: "Ledger", name: str | None) -> str:
    """Return the run under looks of that name, or the only one where none is named; raise where there is none."""
    from guerdon.terms import Looks

    known = [run.name for run in ledger.runs() if isinstance(ledger.terms(run.name).hold, Looks)]
    if name is None and len(known) == 1:
        return known[0]
    if name is None or name not in known:
        listed = ", ".join(map(repr, known)) or "none"
        raise ValueError(f"`--run` must name a run of the ledger that holds pay for looks ({listed}), got {name!r}")
    return name


def archive_for(ledger: "Ledger", run: str, folder: Path | None) -> "Archive":
    """Return where the server keeps the reports of a run."""
    from guerdon.run.archive import Archive

    return Archive(ledger.files if folder is None else folder, run)


def read_task(path: Path) -> "Task":
    """Return the task in a file."""
    from guerdon.looks.exchange import Task

    return Task.from_bytes(path.read_bytes())


def opening_for(
    task: "Task", rows: Path, commitment: Path | None, secret: Path | None, types: "Sequence[str]" = ()
) -> "Opening":
    """Return what a task asks a member to open, or raise where the files are not those that it committed with."""
    from guerdon.looks.commitment import Commitment

    kept = rows.with_suffix(".commitment.npz") if commitment is None else commitment
    known = read_secret(rows.with_name("guerdon.secret") if secret is None else secret)
    pairs = [text.rpartition("=") for text in types]
    mine = Commitment.load(kept, read_rows(rows, {name: kind for name, _, kind in pairs}), known)
    asked = task.subject.committed
    found = mine.committed(asked.size if asked.stream else None)
    if found != asked:
        raise ValueError(
            f"`--commitment` must be the one that counts in round {task.subject.round}: {asked.member!r} in run "
            f"{asked.run!r}, root {asked.root.hex()[:16]}…, got {found.member!r} in run {found.run!r}, root "
            f"{found.root.hex()[:16]}…"
        )
    return mine.open(task.subject.rows, asked.size if asked.stream else None)
