"""The auditor's commands: its keys, its part of the coins, and the look itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from guerdon.cli.look_files import (
    AuditorKeyOption,
    CommitmentOption,
    SecretOption,
    TypesOption,
    check_installed,
    opening_for,
    read_task,
    rounds_in,
    say,
    write_whole,
)
from guerdon.cli.options import JsonOption
from guerdon.cli.rehearsal import GIB, way_of
from guerdon.cli.tables import print_json

if TYPE_CHECKING:
    from guerdon.looks.exchange import Answer, Task
    from guerdon.looks.look import Auditing
    from guerdon.looks.verdict import SignedVerdict

LedgerNameOption = Annotated[str, typer.Option("--ledger", help="Name of the ledger, as the operator tells it.")]
RunNameOption = Annotated[str, typer.Option("--run", help="Name of the run.")]


def key(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to keep the private key (PEM).")],
    as_json: JsonOption = False,
) -> None:
    """Make an auditor's key, and print the public key that the terms of a run name.

    Writes two files. The private key (.pem) stays with the auditor. The public keys (.json, beside it) go to the
    operator. Done again, it makes no other key, and prints the same. Take a new key for each run.
    """
    check_installed()
    from guerdon.ledger.proof.signing import create_key, load_key
    from guerdon.looks.auditors import auditor_of

    if out.suffix != ".pem":
        raise ValueError(f"`--out` must end in .pem, got {out}")
    made = not out.exists()
    if made:
        create_key(out)
    told, public = auditor_of(load_key(out)), out.with_suffix(".json")
    write_whole(public, told.to_json())
    if as_json:
        print_json({"auditor": told.signing, "sealing": told.sealing, "key_is_new": made, "public": str(public)})
        return
    say(
        f"Public key, for the terms and for members: {told.signing}",
        f"Send to the operator: {public}.",
        f"Keep, and show nobody: {out}. It {'is new: back it up' if made else 'was there already'}.",
    )


def coins(
    key: AuditorKeyOption,
    ledger: LedgerNameOption,
    run: RunNameOption,
    rounds: Annotated[int, typer.Option(help="How many rounds the run may have.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the commitments (JSON).")],
    first: Annotated[int, typer.Option(help="The first of these rounds.")] = 1,
) -> None:
    """Commit to the auditor's part of a run's coins, before the run begins: one hash for each round."""
    check_installed()
    from guerdon.ledger.proof.signing import load_key
    from guerdon.looks.coins import commit_coins

    loaded = load_key(key)
    told = commit_coins(loaded, ledger, run, rounds, first)
    write_whole(out, told.to_json(loaded))
    say(
        f"Commitments for rounds {first} to {first + rounds - 1} of run {run!r}: send {out} to the operator before the "
        "run begins. When rounds are closed, open them by `guerdon looks open`."
    )


def open_coins(
    key: AuditorKeyOption,
    ledger: LedgerNameOption,
    run: RunNameOption,
    rounds: Annotated[str, typer.Option(help="The rounds to open, such as 1-50 or 3,7.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the nonces (JSON).")],
) -> None:
    """Open the auditor's part of the coins of rounds that are closed; never that of a round that is still open.

    Who knows both parts of a coin before the reports are fixed could choose reports by it.
    """
    check_installed()
    from guerdon.ledger.proof.signing import load_key
    from guerdon.looks.coins import auditor_secret, nonces_to_json, open_coin

    secret, numbers = auditor_secret(load_key(key)), rounds_in(rounds)
    write_whole(out, nonces_to_json(ledger, run, {one: open_coin(secret, ledger, run, one) for one in numbers}))
    say(f"Opened {len(numbers)} rounds of run {run!r}: send {out} to the operator.")


def look(
    task: Annotated[Path, typer.Argument(help="The task, from the operator (.npz).")],
    key: AuditorKeyOption,
    answer: Annotated[Path | None, typer.Argument(help="The member's sealed answer; left out with --at-site.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Where the verdict goes (default: TASK.verdict.json)."),
    ] = None,
    path: Annotated[Path, typer.Option(help="Folder that the function's module is in.")] = Path(),
    ways: Annotated[
        list[str] | None,
        typer.Option("--way", metavar="NAME=VALUE", help="An option in which honest members may differ; repeatable."),
    ] = None,
    control: Annotated[
        Path | None,
        typer.Option(metavar="ROWS", help="Rows of your own, of the same kind: for work that a member's rows break."),
    ] = None,
    at_site: Annotated[
        bool, typer.Option("--at-site", help="You are at the member's site: take its rows, and no answer.")
    ] = False,
    rows: Annotated[Path | None, typer.Option(help="With --at-site: the member's rows.")] = None,
    commitment: CommitmentOption = None,
    secret: SecretOption = None,
    types: TypesOption = None,
    minutes: Annotated[int, typer.Option(help="Give up after so many minutes.")] = 30,
    memory: Annotated[int, typer.Option(help="Gigabytes that the work may take; with a GPU far more is reserved.")] = 8,
    as_json: JsonOption = False,
) -> None:
    """Look at one round of one member: compute its work again, compare, and sign a verdict.

    The rows must be those that the member committed to and that the round named. The function runs in a process of its
    own, without network, and its code must be that of the terms. A verdict that is there already stays.
    """
    check_installed()
    from guerdon.ledger.proof.signing import load_key
    from guerdon.looks.look import judge, judge_opened

    asked, loaded = read_task(task), load_key(key)
    kept = task.with_suffix(".verdict.json") if out is None else out
    signed = _kept(kept, asked, loaded.public_key().public_bytes_raw().hex())
    if signed is None:
        auditing = _auditing(asked, path, ways or [], control, types or [], minutes, memory)
        with Console(stderr=True).status(f"looking at round {asked.subject.round} of {asked.subject.of.member}"):
            if at_site:
                opened = opening_for(asked, _needed(rows, answer), commitment, secret, types or [])
                signed = judge_opened(asked, opened, loaded, auditing)
            else:
                signed = judge(asked, _read(answer, rows), loaded, auditing)
        write_whole(kept, signed.to_json())
    _print(signed, kept, as_json=as_json)


def _needed(rows: Path | None, answer: Path | None) -> Path:
    if rows is None or answer is not None:
        raise ValueError("`--at-site` needs the member's --rows, and no answer: the rows are before you")
    return rows


def _read(answer: Path | None, rows: Path | None) -> "Answer":
    from guerdon.looks.exchange import Answer

    if answer is None or rows is not None:
        raise ValueError("ANSWER must be the member's sealed answer; or take its rows by --at-site --rows FILE")
    return Answer.from_bytes(answer.read_bytes())


def _auditing(
    task: "Task", path: Path, ways: list[str], control: Path | None, types: list[str], minutes: int, memory: int
) -> "Auditing":
    from guerdon.looks.isolation import Limits
    from guerdon.looks.look import Auditing
    from guerdon.looks.rows import read_rows, stacked

    own: dict[str, Any] | None = None
    if control is not None:
        pairs = [text.rpartition("=") for text in types]
        table, count = read_rows(control, {name: kind for name, _, kind in pairs}), len(task.subject.rows)
        if len(table) < count:
            raise ValueError(f"`--control` must have at least the {count} rows of the round, got {len(table)}")
        own = stacked(table[place] for place in range(count))
    limits = Limits(wall=60 * minutes, cpu=60 * minutes, memory=memory * GIB)
    return Auditing([path], [way_of(text) for text in ways], own, limits)


def _kept(path: Path, task: "Task", public: str) -> "SignedVerdict | None":
    """Return the verdict that is there already, or raise where it is another's."""
    from guerdon.looks.verdict import SignedVerdict, read, signed_from

    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8")
    told = read(text, public)
    if told.task != task.hash or told.replaces != task.replaces:
        raise ValueError(f"`--out` must be a new file, got {path}, which has the verdict on look {told.look}")
    signed: SignedVerdict = signed_from(text)
    return signed


def _print(signed: "SignedVerdict", kept: Path, *, as_json: bool) -> None:
    told = signed.verdict
    if as_json:
        print_json(told.to_dict() | {"file": str(kept)})
        return
    say(f"Look {told.look}, round {told.round} of {told.member}: {told.outcome}.")
    say(*(f"- {one}" for one in told.reasons))
    errors = {name: error for name, error in told.errors.items() if error is not None and name in told.tolerance}
    if errors:
        name = max(errors, key=lambda name: errors[name] / told.tolerance[name])
        say(f"Nearest to its tolerance: tensor {name!r}, error {errors[name]:.1e} of {told.tolerance[name]:.1e}.")
    say(f"Send to the operator, and to {told.member}: {kept}.")
