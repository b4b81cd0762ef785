"""The operator's commands of looks: what goes into the ledger, and what the ledger and its archive give out."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from guerdon.cli.look_files import (
    ArchiveOption,
    RunOption,
    archive_for,
    check_installed,
    rounds_in,
    say,
    watched_run,
    write_whole,
)
from guerdon.cli.options import DEFAULT, DbOption, JsonOption, MemoOption, open_ledger
from guerdon.cli.tables import json_row, money, print_json, print_table, progress_bar

if TYPE_CHECKING:
    from guerdon.ledger import Ledger
    from guerdon.ledger.pay.looking import SettledPeriod
    from guerdon.looks.opening import Committed
    from guerdon.run.archive import Archive

DAY, HOUR, MINUTE = 86_400, 3_600, 60  # seconds


def commit(
    record: Annotated[Path, typer.Argument(help="The member's record, as its `guerdon commit` wrote it (.json).")],
    db: DbOption = DEFAULT,
    growth: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of a stream: the proof that old rows are unchanged (.json)."),
    ] = None,
) -> None:
    """Record a member's commitment to its rows, and enrol the member if it is new.

    Before the run begins; later it counts from the next period on.
    """
    check_installed()
    from guerdon.looks.opening import Committed

    told = Committed.from_json(record.read_text(encoding="utf-8"))
    with open_ledger(db, write=True) as ledger:
        if growth is not None:
            _check_grown(ledger, told, growth)
        done = ledger.looks.commit(told)
        start = ledger.looks.changes(told.run)[told.member][-1].from_round
    when = f"from round {start} on" if start else "from the first round on"
    say(
        f"{told.member}: {told.size:,} rows, {told.distinct:,} differ, root {told.root.hex()[:16]}…; counts in run "
        f"{told.run!r} {when}.{' It was recorded already.' if done is None else ''}"
    )


def _check_grown(ledger: "Ledger", told: "Committed", growth: Path) -> None:
    """Raise unless a proof shows that a stream begins with the rows that its last record has."""
    from guerdon.looks.opening import check_growth

    known = ledger.looks.changes(told.run).get(told.member, [])
    if not known:
        raise ValueError(f"`--growth` must be of a stream that is recorded, got one of {told.member!r}, which has none")
    try:
        proof = [bytes.fromhex(one) for one in json.loads(growth.read_text(encoding="utf-8"))["proof"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"`--growth` must be a file that `guerdon commit --append` wrote: {error}") from error
    if known[-1].committed != told:
        check_growth(known[-1].committed, told, proof)


def ledger_name(db: DbOption = DEFAULT) -> None:
    """Print the ledger's name, for members that commit and auditors that make coins; make a ledger if there is none."""
    check_installed()
    from guerdon.ledger import Ledger

    with Ledger(db) as ledger:
        typer.echo(ledger.name)


def accept(
    coins: Annotated[Path, typer.Argument(help="What the auditor committed to, as `guerdon looks coins` wrote it.")],
    db: DbOption = DEFAULT,
) -> None:
    """Keep the auditor's coins of a run where the server finds them: before the run begins."""
    check_installed()
    from guerdon.looks.coins import read_commitments
    from guerdon.run.archive import Archive

    text = coins.read_text(encoding="utf-8")
    told = read_commitments(text)
    with open_ledger(db, write=True) as ledger:
        if told.ledger != ledger.name:
            raise ValueError(f"coins must be of this ledger, {ledger.name}, got those of {told.ledger}")
        Archive(ledger.files, told.run).put_coins(told, text)
    last = told.first + len(told.hashes) - 1
    say(f"Run {told.run!r}: coins of rounds {told.first} to {last} by the auditor {told.auditor[:16]}…")


def draw(
    nonces: Annotated[Path | None, typer.Argument(help="What the auditor opened (`guerdon looks open`).")] = None,
    db: DbOption = DEFAULT,
    run: RunOption = None,
    refused: Annotated[
        str, typer.Option(help="Rounds that the auditor does not open, such as 7: they are looked at too.")
    ] = "",
    archive: ArchiveOption = None,
) -> None:
    """Draw the coins of closed rounds, in their order: the auditor's part and your own.

    Your own part follows from the secret beside the ledger. When a period is over its looks are opened.
    """
    check_installed()
    from guerdon.looks import draw as drawing
    from guerdon.looks.coins import read_nonces

    told = None if nonces is None else read_nonces(nonces.read_text(encoding="utf-8"))
    without = set(rounds_in(refused, "--refused")) if refused else set[int]()
    opened = {} if told is None else told[2]
    if without & opened.keys():
        raise ValueError(f"`--refused` must be rounds that were not opened, got {min(without & opened.keys())}")
    with open_ledger(db, write=True) as ledger, progress_bar() as tell:
        name = watched_run(ledger, run if told is None else told[1])
        if told is not None and told[0] != ledger.name:
            raise ValueError(f"NONCES must be for ledger {ledger.name}, got those for {told[0]!r:.80}")
        before, done, secret = len(ledger.looks.open(name)), list[int](), _secret(archive_for(ledger, name, archive))
        while (following := _next_draw(ledger, name)) is not None and following in without | opened.keys():
            own = drawing.nonce(secret, "server", ledger.name, name, following)
            ledger.looks.draw(name, following, own, opened.get(following))
            done.append(following)
            tell(f"round {following}", len(done) / len(without | opened.keys()))
        left, new = _next_draw(ledger, name), len(ledger.looks.open(name)) - before
    many = f"{len(done)} rounds" if len(done) != 1 else "1 round"
    say(f"Drew the coins of {many}; {new} looks opened.")
    say("No closed round waits for coins." if left is None else f"Round {left} comes next.")


def _secret(archive: "Archive") -> bytes:
    if not (archive.folder / "coin.secret").exists():
        raise FileNotFoundError(
            f"`--archive` must be the folder in which the server keeps coin.secret, got {archive.folder}: there is none"
        )
    return archive.secret()


def _next_draw(ledger: "Ledger", run: str) -> int | None:
    from guerdon.looks import periods

    own = ledger.looks.watching(run)
    return None if own is None else periods.next_draw(own.state)


def list_open(db: DbOption = DEFAULT, run: RunOption = None, as_json: JsonOption = False) -> None:
    """List the open looks: of whom, at which round, what each waits for, and until when."""
    check_installed()
    from guerdon.run.looking import awaited, records

    with open_ledger(db) as ledger:
        name, where = watched_run(ledger, run), ledger.name
        told, looks = records(ledger, name), ledger.looks.open(name)
    waits = [awaited(one.asked, told.own.hold, told.now) for one in looks]
    if as_json:
        rows = [
            {"look": one.number, "member": one.member, "round": one.round, "waits_for": wait.words,
             "until": None if wait.until is None else _moment(wait.until).isoformat()}
            for one, wait in zip(looks, waits, strict=True)
        ]  # fmt: skip
        print_json({"ledger": where, "run": name, "looks": rows})
        return
    cells = [
        [str(one.number), one.member, str(one.round), wait.words, _until(wait.until, told.now)]
        for one, wait in zip(looks, waits, strict=True)
    ]
    headings = ("look", "member", "round", "waits for", "until")
    empty = f"No look is open in run {name!r}."
    print_table(f"Open looks of run {name!r}", headings, cells, text=("member", "waits for", "until"), empty=empty)
    say(f"Ledger {where}.")


def tasks(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where to write the tasks.")],
    auditor: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Public keys of the auditor (`guerdon looks key`), and of the second one."),
    ],
    db: DbOption = DEFAULT,
    run: RunOption = None,
    sends: Annotated[
        Literal["gradients", "models"], typer.Option(help="What members send; of models the moves are compared.")
    ] = "gradients",
    archive: ArchiveOption = None,
) -> None:
    """Write the task of each open look to a file, for its member and for its auditor.

    A task holds the model that was broadcast, the member's report and which rows the round named; no row. A look that
    failed, or was not answered in time, gets the task of an appeal, for the second auditor.
    """
    check_installed()
    from guerdon.looks.auditors import read_auditor
    from guerdon.run.looking import due, records, task_of

    keys = [read_auditor(file.read_text(encoding="utf-8")) for file in auditor]
    with open_ledger(db) as ledger:
        name = watched_run(ledger, run)
        told, kept = records(ledger, name), archive_for(ledger, name, archive)
        looks = due(told, ledger.looks.open(name))
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    for look, appeal in looks:
        task = task_of(told, look, kept, keys, sends=sends, appeal=appeal)
        file = out / f"look-{look.number}{'-appeal' * appeal}.npz"
        write_whole(file, task.to_bytes())
        whose = "the second auditor, if it appeals" if appeal else "the auditor"
        say(f"{file}: round {look.round} of {look.member}. Send it to {look.member} and to {whose}.")
    if not looks:
        say(f"No look of run {name!r} needs a task.")


def receive(
    answers: Annotated[list[Path], typer.Argument(help="Sealed answers of members.")], db: DbOption = DEFAULT
) -> None:
    """Record the hashes of sealed answers: from then on nobody can say that a member did not answer.

    An answer to the task of an appeal is the appeal. Send each answer on to its auditor: you cannot read it.
    """
    check_installed()
    from guerdon.looks.exchange import Answer
    from guerdon.run.looking import check_answer, records

    read = [Answer.from_bytes(file.read_bytes()) for file in answers]
    with open_ledger(db, write=True) as ledger:
        for file, one in zip(answers, read, strict=True):
            name = watched_run(ledger, one.of.run)
            told = records(ledger, name)
            known = told.answers.get((one.look, one.appeal)) == one.hash
            if not known:
                check_answer(told, ledger.looks.open(name), one)
                ledger.looks.answer(name, one.look, one.hash, appeal=one.appeal)
            what = "appeal against look" if one.appeal else "answer to look"
            done = "there already" if known else "recorded"
            whose = f"the {'second ' * one.appeal}auditor"
            say(f"{file}: {what} {one.look}, of {one.of.member}, is {done}. Send it to {whose}.")


def verdict(
    verdicts: Annotated[list[Path], typer.Argument(help="Verdicts that an auditor signed (`guerdon look`).")],
    db: DbOption = DEFAULT,
    appeal: Annotated[bool, typer.Option("--appeal", help="They are the second auditor's, on appeals.")] = False,
) -> None:
    """Record signed verdicts. One on other rows, another seed, model or function than the ledger names is refused."""
    check_installed()
    from guerdon.looks.verdict import signed_from
    from guerdon.run.looking import check_verdict, records

    texts = [file.read_text(encoding="utf-8") for file in verdicts]
    with open_ledger(db, write=True) as ledger:
        for file, text in zip(verdicts, texts, strict=True):
            one = signed_from(text).verdict
            name = watched_run(ledger, one.run)
            check_verdict(records(ledger, name), text, appeal=appeal)
            done = ledger.looks.verdict(text, appeal=appeal)
            say(
                f"{file}: look {one.look}, round {one.round} of {one.member}: {one.outcome}. It is "
                f"{'there already' if done is None else 'recorded'}."
            )


def settle(
    db: DbOption = DEFAULT,
    run: RunOption = None,
    memo: MemoOption = "",
    archive: ArchiveOption = None,
    as_json: JsonOption = False,
) -> None:
    """Release or forfeit what is held of periods whose looks are all decided by now, and drop reports not needed.

    Run it once a day: deadlines pass without anybody doing something.
    """
    check_installed()
    with open_ledger(db, write=True) as ledger:
        name = watched_run(ledger, run)
        done, left = ledger.looks.settle(name, memo), len(ledger.looks.open(name))
        dropped = _dropped(ledger, name, archive)
        unit = ledger.unit
    if as_json:
        rows = [json_row(one._asdict(), money=("released", "forfeited")) for one in done]
        print_json({"run": name, "unit": unit, "settled": rows, "open": left, "dropped": dropped})
        return
    headings = ("member", "rounds", "looks", "released", "forfeited")
    cells = [[one.member, f"{one.first}–{one.last}", _looks(one), money(one.released), money(one.forfeited)]
             for one in done]  # fmt: skip
    empty = f"Nothing to settle in run {name!r} now."
    print_table(f"Settled in run {name!r}, in {unit}", headings, cells, text=headings[:3], empty=empty)
    say(f"{left} looks are open. Reports of {len(dropped)} rounds were dropped.")


def _dropped(ledger: "Ledger", run: str, folder: Path | None) -> list[int]:
    """Drop the rounds that no look can be at any more, and return them; nothing where there is no archive here."""
    from guerdon.run.looking import records, unneeded

    if folder is None and "://" in ledger.where and not ledger.where.startswith("sqlite:///"):
        return []
    archive = archive_for(ledger, run, folder)
    found = unneeded(records(ledger, run), archive.rounds())
    archive.drop(found)
    return found


def _looks(one: "SettledPeriod") -> str:
    return ", ".join(f"round {number} {outcome}" for number, outcome in sorted(one.looks.items()))


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _until(until: int | None, now: int) -> str:
    """Return a deadline in words, with what is left of it."""
    if until is None:
        return ""
    left = until - now
    sizes = (DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")
    size, word = next((one for one in sizes if left >= 2 * one[0]), sizes[-1])
    return f"{_moment(until):%Y-%m-%d %H:%M} UTC, " + (f"in {left // size} {word}" if left >= 0 else "over")
