"""What several commands share: options, the run that is meant, and a check for what is not installed."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from guerdon.cli.programs import keep_programs
from guerdon.costs import Cost
from guerdon.registry import choices, choose
from guerdon.rule import Rule

if TYPE_CHECKING:
    from guerdon.ledger import Ledger
    from guerdon.ledger.read.queries import RunSummary

DEFAULT = "guerdon.db"
LEDGER = ("sqlalchemy", "alembic", "cryptography")
SIMULATOR = ("jax", "polars", "matplotlib")

DbOption = Annotated[
    str,
    typer.Option(
        "--db",
        metavar="PATH|URL",
        envvar="GUERDON_DB",
        help="Where the ledger is: a file, or postgresql://user@host/name (a password is better kept in PGPASSWORD or "
        "a .pgpass file).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
MemoOption = Annotated[str, typer.Option(help="A remark to record, such as a bank reference.")]
KeyOption = Annotated[
    str | None, typer.Option(help="A word of your own: asked for twice with the same one, it is done once.")
]
OutOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file, not to the screen.")]
PlotOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it too: .svg, .png or .pdf.")]
CostOption = Annotated[
    str,
    typer.Option(metavar="EXPRESSION", help="Cost of a batch of s samples: numbers, s, + - * / ** and parentheses."),
]
AgentsOption = Annotated[int, typer.Option(help="Number of agents.")]
RequestOption = Annotated[int, typer.Option(help="Batch size that the server asks for.")]
SeedOption = Annotated[int, typer.Option(help="Seed of all randomness: the same one gives the same numbers.")]

ProxyOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESSES",
        help="The proxies that have the certificate, such as 10.0.0.5: only they may ask, and their X-Forwarded-For "
        "is believed.",
    ),
]
TlsCertOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate (PEM), to serve https.")]
TlsKeyOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key (PEM).")]

RuleOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help=f"The payment rule: {', '.join(choices())}; known:4.0 gives the variance of a single-sample gradient.",
    ),
]


def need(what: str, extra: str, *packages: str) -> None:
    """Raise, with the command that installs it, if a package that something needs is missing."""
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"`{what}` needs {package}; in a checkout: pip install '.[{extra}]'")


def need_posix(what: str) -> None:
    """Raise on systems where a folder cannot be locked, nor put on the disk, as `guerdon serve` needs it."""
    if os.name != "posix":
        raise OSError(f"`{what}` must run on Linux or macOS, got {sys.platform}: use one of these, or WSL on Windows")


def need_simulator(what: str) -> None:
    """Raise if the simulator is not installed; what it compiles is kept for the next command."""
    need(what, "sim", *SIMULATOR)
    keep_programs()


def chosen_rule(text: str, cost: Cost) -> Rule:
    """Return the payment rule that `--rule` names, for paying outside of a simulation."""
    _, colon, number = text.partition(":")
    try:
        _ = float(number) if colon else None
    except ValueError:
        wrong = f"{number!r} is no number" if number else "give the number, or no colon"
        raise ValueError(
            f"`--rule` must be a name, or a name and a number such as known:4.0, got {text!r}: {wrong}"
        ) from None
    return choose(text, cost)


def find_run(runs: "list[RunSummary]", name: str | None, what: str) -> "RunSummary":
    """Return the run of that name, or the only one where none is named."""
    known = {run.name: run for run in runs}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name is None or name not in known:
        listed = ", ".join(repr(run) for run in known) or "none"
        raise ValueError(f"`{what}` must name a run of the ledger ({listed}), got {name!r}")
    return known[name]


def open_ledger(db: str, *, write: bool = False, create: bool = False, unit: str | None = None) -> "Ledger":
    """Open a ledger that exists; commands that only read open it read-only, and none creates one by accident."""
    need("guerdon ledger", "ledger", *LEDGER)
    from guerdon.ledger import Ledger

    if write and not create:
        Ledger(db, read_only=True).close()  # raises if there is none
    return Ledger(db, read_only=not write, unit=unit)
