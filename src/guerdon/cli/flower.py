"""The command line of the Flower part: `guerdon flower COMMAND`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from guerdon.cli.options import DEFAULT, DbOption, find_run, need, open_ledger

app = typer.Typer(no_args_is_help=True, help="Paid rounds on Flower: continue a run that was interrupted.")


@app.callback()
def flower() -> None:
    """Paid rounds on Flower."""


@app.command(
    epilog="Example: [bold]guerdon flower resume examples/paid-torch local --db guerdon.db --run paid-torch[/]",
)
def resume(
    flower_app: Annotated[Path, typer.Argument(metavar="APP", help="Folder of the Flower app.")],
    superlink: Annotated[str | None, typer.Argument(help="Flower's name for the SuperLink's connection.")] = None,
    db: DbOption = DEFAULT,
    run: Annotated[
        str | None, typer.Option(help="The run's name in the ledger; may be left out if there is only one.")
    ] = None,
    run_config: Annotated[
        list[str] | None,
        typer.Option(
            "--run-config", "-c", metavar="KEY=VALUE", help="A setting of the app, as for `flwr run`; repeatable."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print where the run stands.")] = False,
) -> None:
    """Continue a run after its last paid round: nobody is paid twice, and no paid round is lost.

    Starts the app with `flwr run`, with the settings that it was last started with, and `guerdon-db` and `guerdon-run`
    set to this ledger and this run. An app that passes both to `Paid` also continues if you start it yourself.
    """
    need("guerdon flower", "flower", "flwr", "sqlalchemy")
    from guerdon.flower.recovery import read_settings

    if not (flower_app / "pyproject.toml").is_file():
        raise ValueError(f"`APP` must be the folder of a Flower app, with a pyproject.toml in it, got {flower_app}")
    where = _plain_address(db)
    with open_ledger(db) as ledger:
        chosen = find_run(ledger.runs(), run, "--run")
        name, last = chosen.name, chosen.last_round or 0
        found = ledger.resume(name)
    known = {} if found is None else read_settings(found.arrays)
    told = [f"{key}={_quoted(value) if isinstance(value, str) else json.dumps(value)}" for key, value in known.items()]
    typer.echo(f"Run {name!r} continues with round {last + 1}." if last else f"Run {name!r} has no paid round yet.")
    if told:
        typer.echo(f"It was started with {', '.join(sorted(told))}; --run-config changes that.")
    if dry_run:
        return
    told += [*(run_config or ()), f"guerdon-db={_quoted(where)}", f"guerdon-run={_quoted(name)}"]
    beside = Path(sys.executable).with_name("flwr")
    program = str(beside) if beside.exists() else shutil.which("flwr") or "flwr"
    command = [program, "run", str(flower_app), *([] if superlink is None else [superlink]), "--stream"]
    command += [part for setting in told for part in ("--run-config", setting)]
    raise typer.Exit(subprocess.run(command, check=False).returncode)  # noqa: S603


def _plain_address(db: str) -> str:
    """Return a ledger's address for a ServerApp, or raise if it has a password: Flower keeps a run's settings."""
    from guerdon.ledger.books.database import parse_url

    url = parse_url(db)
    if url.get_backend_name() == "sqlite":
        return str(Path(str(url.database)).resolve())
    if url.password or any("pass" in name.lower() for name in url.query):
        raise ValueError("`--db` must not hold a password, which Flower would keep: use PGPASSWORD or a .pgpass file")
    return db


def _quoted(text: str) -> str:
    """Return text as Flower reads it in a setting, or raise: Flower cannot read quotation marks inside others."""
    if '"' in text or not text.isprintable():
        raise ValueError(f"Flower cannot read {text!r} as a setting: start the app yourself, it continues its run")
    return f'"{text}"'
