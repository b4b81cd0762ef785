"""The member's commands: answer a look, and check all draws."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from guerdon.cli.look_files import (
    CommitmentOption,
    RunOption,
    SecretOption,
    TypesOption,
    check_installed,
    opening_for,
    read_task,
    say,
    watched_run,
    write_whole,
)
from guerdon.cli.options import DEFAULT, DbOption, JsonOption, open_ledger
from guerdon.cli.tables import print_json, progress_bar

if TYPE_CHECKING:
    from guerdon.looks.exchange import Task
    from guerdon.run.looking import Checked, Reason

SHOWN = 12  # rows that are listed: more fill the screen, and the number tells enough


def answer(
    task: Annotated[Path, typer.Argument(help="The task, from the operator (.npz).")],
    rows: Annotated[Path, typer.Option(help="Your rows, as they were committed.")],
    auditor: Annotated[
        str,
        typer.Option(
            metavar="HEX", envvar="GUERDON_AUDITOR",
            help="The public key of the auditor as your contract has it: rows are sealed to nobody else.",
        ),
    ],
    commitment: CommitmentOption = None,
    secret: SecretOption = None,
    types: TypesOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write the answer (default: TASK.answer).")
    ] = None,
) -> None:  # fmt: skip
    """Answer a look: open the named rows to the auditor, sealed, so that nobody else can read them.

    An appeal is answered in the same way, with the second auditor's key. An answer that is there already stays: the
    first one that the operator records counts.
    """
    check_installed()
    from guerdon.looks.exchange import Answer, answer_to

    asked = read_task(task)
    if asked.auditor.signing != auditor.strip().lower():
        raise ValueError(
            f"`--auditor` must be who the task is for, {asked.auditor.signing[:16]}…, got {auditor[:16]!r}…: send "
            "nothing, and ask the operator whose key it is"
        )
    kept = task.with_suffix(".answer") if out is None else out
    if kept.exists():
        found = Answer.from_bytes(kept.read_bytes())
        if (found.look, found.of, found.appeal) != (asked.subject.look, asked.subject.of, asked.appeal):
            raise ValueError(f"`--out` must be a new file, got {kept}, which answers look {found.look}")
        say(f"{kept} is there already, and answers this look: send it to the operator.")
        return
    opening = opening_for(asked, rows, commitment, secret, types or [])
    write_whole(kept, answer_to(asked, opening).to_bytes())
    say(_opened(asked), f"Send to the operator: {kept}. Nobody but the auditor can read it.")


def _opened(task: "Task") -> str:
    places = list(dict.fromkeys(task.subject.rows))
    listed = ", ".join(map(str, places[:SHOWN])) + (" …" if len(places) > SHOWN else "")
    which = "appeal" if task.appeal else "look"
    return (
        f"{which.capitalize()} {task.subject.look}, round {task.subject.round}: opens {len(places)} rows to the "
        f"auditor {task.auditor.signing[:16]}…: {listed}."
    )


def check(
    db: DbOption = DEFAULT,
    run: RunOption = None,
    member: Annotated[str | None, typer.Option(help="Only this member; its whole name.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check all draws of a run: compute coins, chosen rounds and named rows again, and say why each is looked at.

    For members with a copy of the ledger. It also verifies the whole ledger, and that every verdict is on the rows,
    seed, model and function that the ledger names. Exit status 1 if something does not follow.
    """
    check_installed()
    from guerdon.run.looking import check_draws, records

    with open_ledger(db) as ledger, progress_bar() as tell:
        name = watched_run(ledger, run)
        tell("verifying the ledger", 0.0)
        proof = ledger.verify()
        tell("computing draws again", 0.5)
        told = records(ledger, name)
        found, wrong = check_draws(told)
    if proof.problem is not None:
        wrong.insert(0, str(proof.problem))
    if member is not None and member not in told.own.people.names:
        raise ValueError(f"`--member` must be a member of run {name!r}, got {member!r}: {told.own.people.names}")
    shown = [one for one in found if member in (None, one.member)]
    if as_json:
        report: dict[str, Any] = {"run": name, "rounds_drawn": len(told.coins), "holds": not wrong, "problems": wrong}
        print_json(report | {"periods": [_report(one) for one in shown]})
    else:
        say(f"Run {name!r}: the coins of {len(told.coins)} rounds.", *(line for one in shown for line in _lines(one)))
        say(*(f"✗ {one}" for one in wrong) if wrong else ["✓ All draws, named rows and verdicts follow."])
    if wrong:
        raise typer.Exit(1)


def _report(one: "Checked") -> dict[str, Any]:
    looks = [
        {"round": number, "rows": list(one.rows[number]), "why": [why._asdict() for why in reasons]}
        for number, reasons in one.reasons.items()
    ]
    return {"member": one.member, "first": one.first, "last": one.last, "looks": looks}


def _lines(one: "Checked") -> list[str]:
    lines = [f"{one.member}, rounds {one.first} to {one.last}:"]
    for number, reasons in one.reasons.items():
        why = "; ".join(map(_why, reasons))
        lines.append(f"  round {number}, {len(set(one.rows[number]))} rows: {why}")
    return lines


def _why(reason: "Reason") -> str:
    which = f"look {reason.look + 1}"
    if reason.coin is None:
        return f"{which}, because a part of its coin was not opened"
    return f"{which}, its coin {reason.coin:.3f} was below its share {reason.chance:.3f} of what was held"
