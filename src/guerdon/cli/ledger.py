"""The command line of the ledger: `guerdon ledger COMMAND`. The ledger itself is imported inside each command."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress

from guerdon.cli import payouts
from guerdon.cli.options import (
    DEFAULT,
    LEDGER,
    DbOption,
    JsonOption,
    KeyOption,
    MemoOption,
    OutOption,
    find_run,
    need,
    open_ledger,
)
from guerdon.cli.tables import (
    earnings_report,
    json_row,
    money,
    print_earnings,
    print_json,
    print_table,
    print_verification,
    write_text,
)
from guerdon.ledger.books.money import parse_amount
from guerdon.terms import Looks

app = typer.Typer(no_args_is_help=True, help="Who was paid what and why: read, check, pay out, sign, export.")
app.add_typer(payouts.app, name="payout")

AgentArgument = Annotated[str, typer.Argument(help="The agent's name, or a beginning that no other name has.")]
AmountArgument = Annotated[str, typer.Argument(help="How much, such as 12.50; at most 6 decimals.")]
StatementForm = Literal["text", "json", "csv", "html"]
ExportForm = Literal["beancount", "hledger", "csv", "parquet"]
ExportTable = Literal["journal", "payments"]
CANNOT_TELL = 3  # exit status of `verify`: a rule is not installed here
LOOKED = ("released", "forfeited")  # by looks; shown where there were any
AMOUNTS = ("earned", "balance", "deposit", "held", "carried")
MoveKind = Literal["deposit", "withdraw", "hold", "release", "forfeit", "repay", "waive"]


@app.callback()
def _check_installed() -> None:
    need("guerdon ledger", "ledger", *LEDGER)


@app.command(epilog="Example: [bold]guerdon ledger balances --db guerdon.db[/]")
def balances(db: DbOption = DEFAULT, as_json: JsonOption = False) -> None:
    """Show what every agent earned and has, what losses it carries, and its mean pay against its mean cost."""
    with open_ledger(db) as ledger:
        rows, common, unit, against = ledger.balances(), ledger.common_balances(), ledger.unit, ledger.earnings()
    if as_json:
        agents = [json_row(row._asdict() | {"owed": row.owed}, money=(*AMOUNTS, *LOOKED, "owed")) for row in rows]
        report = {"unit": unit, "agents": agents, "common": json_row(common, money=tuple(common))}
        print_json(report | {"pay_against_cost": earnings_report(against)})
        return
    kinds = (*AMOUNTS, *LOOKED) if any(row.released or row.forfeited for row in rows) else AMOUNTS
    cells = [[str(row.number), row.agent, *(money(getattr(row, kind)) for kind in kinds)] for row in rows]
    headings = ("no.", "agent", *kinds)
    print_table(f"Balances in {unit}", headings, cells, text=("agent",), empty="Nobody is enrolled yet.")
    earned = money(-common["treasury"] - common["reserve"])
    line = f"Earned in all {earned}, waiting in payouts {money(common['payable'])}, "
    line += f"through the bank {money(common['bank'])}."
    if common["reserve"]:
        line += f" Failed looks forfeited {money(common['reserve'])}: it lies in the reserve."
    Console().print(line, highlight=False)
    print_earnings(against, unit)


@app.command(epilog="Example: [bold]guerdon ledger statement north --format html --out north.html[/]")
def statement(
    agent: AgentArgument,
    db: DbOption = DEFAULT,
    form: Annotated[StatementForm, typer.Option("--format", help="How to print it.")] = "text",
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what an agent was asked for, what it earned in each round and why, and where the money is."""
    from guerdon.ledger.read.render import statement_pieces

    with open_ledger(db) as ledger, ledger.reading() as connection:
        write_text(statement_pieces(connection, agent, "json" if as_json else form), out)


@app.command(epilog="Example: [bold]guerdon ledger runs[/]")
def runs(db: DbOption = DEFAULT, as_json: JsonOption = False) -> None:
    """List the runs: how many rounds, agents, and how much was paid."""
    with open_ledger(db) as ledger:
        rows, unit = ledger.runs(), ledger.unit
    if as_json:
        print_json({"unit": unit, "runs": [json_row(row._asdict(), money=("paid",)) for row in rows]})
        return
    cells = [
        [row.name, str(row.agents), str(row.rounds), money(row.paid), row.costs, row.losses,
         f"{row.last_activity:%Y-%m-%d}"]
        for row in rows
    ]  # fmt: skip
    headings = ("run", "agents", "rounds", f"paid ({unit})", "cost of s samples", "losses", "last activity")
    print_table("Runs", headings, cells, text=("run", "losses", headings[4]), empty="No run has begun yet.")


@app.command(epilog="Example: [bold]guerdon ledger rounds heart --json[/]")
def rounds(
    run: Annotated[str | None, typer.Argument(help="Name of the run; may be left out if there is only one.")] = None,
    db: DbOption = DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List the rounds of a run: what was asked, who took part, what was paid."""
    with open_ledger(db) as ledger:
        run = find_run(ledger.runs(), run, "RUN").name if run is None else run
        rows, unit = ledger.rounds(run), ledger.unit
    if as_json:
        shown = [json_row(row._asdict(), money=("paid",)) for row in rows]
        print_json({"run": run, "unit": unit, "rounds": shown})
        return
    cells = [
        [str(row.round), f"{row.recorded_at:%m-%d %H:%M}", str(row.request), money(row.paid),
         ", ".join(f"{count} {status}" for status, count in sorted(row.statuses.items(), key=lambda x: -x[1])),
         ", ".join(f"{name} {'-' if value is None else format(value, '.4g')}" for name, value in row.metrics.items())]
        for row in rows
    ]  # fmt: skip
    headings = ("round", "when (UTC)", "asked", f"paid ({unit})", "agents", "metrics")
    print_table(f"Run {run}", headings, cells, text=("agents", "metrics"), empty="No round is recorded yet.")


@app.command(epilog="Example: [bold]guerdon ledger verify --receipt head.json[/]")
def verify(
    db: DbOption = DEFAULT,
    receipt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A receipt: shows whether what it covers was changed."),
    ] = None,
    signed_by: Annotated[
        str | None, typer.Option(metavar="HEX", help="The public key that the receipt must be signed with.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute the chain, every sum, every balance and every reward; exit status 1 names the first bad row.

    Exit status 3: nothing is wrong, but the version of a rule that paid is not installed here; it says what to install.

    Somebody with write access can rewrite the whole database consistently. Only a receipt shows that, for the records
    up to it: sign often, keep receipts where they cannot write, and use the newest. Agents can use their own.
    """
    from guerdon.ledger import Receipt

    kept = None if receipt is None else Receipt.from_json(receipt.read_text(encoding="utf-8"))
    if signed_by is not None and (kept is None or kept.public_key.hex() != signed_by.lower()):
        raise ValueError("`--signed-by` must be the key of the `--receipt`, but is not")
    bar = Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with open_ledger(db) as ledger, bar:
        task = bar.add_task("checking", total=1.0)
        found = ledger.verify(kept, lambda done: bar.update(task, completed=done))
    if as_json:
        covered = found.coverage and found.coverage._asdict() | {"warning": found.coverage.warning}
        print_json(json_row(found._asdict()) | {"holds": found.holds, "coverage": covered})
    else:
        print_verification(found)
    if not found.holds:
        raise typer.Exit(CANNOT_TELL if found.problem is None else 1)


@app.command(epilog="Example: [bold]guerdon ledger key operator.pem && guerdon ledger sign --key operator.pem[/]")
def sign(
    key: Annotated[
        Path,
        typer.Option(
            metavar="FILE", envvar="GUERDON_KEY", help="Ed25519 private key (PEM); `guerdon ledger key` makes one."
        ),
    ],
    db: DbOption = DEFAULT,
    out: OutOption = None,
) -> None:
    """Sign the head of the chain, and print the receipt: keep it where nobody can write to the ledger."""
    from guerdon.ledger.proof.signing import load_key

    loaded = load_key(key)
    with open_ledger(db, write=True) as ledger:
        receipt = ledger.sign(loaded)
    write_text([receipt.to_json()], out)


@app.command(epilog="Example: [bold]guerdon ledger key operator.pem[/]")
def key(file: Annotated[Path, typer.Argument(help="Where to put the private key; it must not exist yet.")]) -> None:
    """Make an Ed25519 key to sign the ledger with, and print its public half."""
    from guerdon.ledger.proof.signing import create_key

    typer.echo(create_key(file).hex())


@app.command(epilog='Example: [bold]guerdon ledger move deposit north 100 --memo "transfer 4711"[/]')
def move(
    kind: Annotated[MoveKind, typer.Argument(help="What to do.")],
    agent: Annotated[str, typer.Argument(help="The agent's whole name.")],
    amount: AmountArgument,
    db: DbOption = DEFAULT,
    memo: MemoOption = "",
    key: KeyOption = None,
) -> None:
    """Record a deposit or its withdrawal; hold money by hand, release or forfeit it; repay or waive a carried loss.

    What a run holds is released by the run's terms, and by no hand.
    """
    micro = parse_amount(amount)
    with open_ledger(db, write=True) as ledger:
        recorded = ledger.move(kind, agent, micro, memo, key=key)
    already = "" if recorded.new else " already"
    typer.echo(f"{kind} of {money(micro)} for {agent} recorded{already} as record {recorded.record}")


@app.command(epilog="Example: [bold]guerdon ledger stakes heart --level 0.02[/]")
def stakes(
    run: Annotated[str | None, typer.Argument(help="Name of the run; may be left out if there is only one.")] = None,
    db: DbOption = DEFAULT,
    level: Annotated[float, typer.Option(help="What a new name may earn a round, as a part of the cost.")] = 0.05,
    rounds: Annotated[int, typer.Option(help="How many rounds a new name plays at most.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Say how long to hold pay, or which deposit to ask, so that a new name gains nothing by leaving its losses behind.

    It is computed from the spread of the run's own payments. A stake stops hit and run; it does not stop a rule that
    pays well for reports without work: see `guerdon reproduce exploits`.
    """
    with open_ledger(db) as ledger:
        run = find_run(ledger.runs(), run, "RUN").name if run is None else run
        if isinstance(ledger.terms(run).hold, Looks):
            _say_covered(run, as_json=as_json)
            return
        found, unit = ledger.stakes(run, level, rounds), ledger.unit
    rows = {
        "now": found.now,
        "default": found.usual,
        "enough: held pay": found.holding,
        "enough: deposit": found.deposit,
    }
    if as_json:
        measured = {name: getattr(found, name) for name in ("run", "payments", "cost", "spread", "rounds", "level")}
        told = {name: row and json_row(row._asdict() | {"terms": row.terms.to_dict()}, money=("earns",))
                for name, row in rows.items()}  # fmt: skip
        print_json(json_row(measured, money=("cost",)) | told | {"unit": unit, "is_enough": found.enough})
        return
    cells = [
        [name, *((row.words, money(row.earns), row.how) if row else ("none within these rounds", "", ""))]
        for name, row in rows.items()
    ]
    headings = ("", "at stake", f"a new name earns ({unit})", "if it leaves")
    title = f"Run {run}: what a name that does no work earns a round, at most (95 %)"
    print_table(title, headings, cells, text=("", "at stake", "if it leaves"), empty="")
    about = f"{found.payments:,} payments, standard deviation {found.spread:.2g} times the cost of {money(found.cost)}"
    enough = "is enough" if found.enough else "is NOT enough"
    line = f"{about}. What is at stake now {enough} at the level of {level:g} of the cost ({rounds} rounds at most)."
    Console().print(line, highlight=False)


def _say_covered(run: str, *, as_json: bool) -> None:
    """Say that looks cover a run, where deposits would not."""
    from guerdon.ledger.read.looked import DEPOSITS

    why = DEPOSITS.format(run=run)
    if as_json:
        print_json({"run": run, "covered_by": "looks", "why": why})
    else:
        Console(soft_wrap=True).print(f"{why[0].upper()}{why[1:]}.", highlight=False, markup=False)


@app.command(epilog="Example: [bold]guerdon ledger close heart[/]")
def close(
    run: Annotated[str | None, typer.Argument(help="Name of the run; may be left out if there is only one.")] = None,
    db: DbOption = DEFAULT,
    agent: Annotated[
        list[str] | None,
        typer.Option(help="Only for this agent, wherever it left (may be given several times); its deposit is free."),
    ] = None,
    memo: MemoOption = "",
) -> None:
    """Release the rest of what a run holds: up to the cost, and beyond it as far as the losses it comes from were met.

    Without `--agent` for all that stayed to the end: paid for one of the last rounds that are held, and there from the
    beginning or with a deposit.
    """
    with open_ledger(db, write=True) as ledger:
        run = find_run(ledger.runs(), run, "RUN").name if run is None else run
        done = ledger.close_run(run, memo, agents=agent)
    rest = f"; {money(done.held)} stays held" if done.held else ""
    what = "nothing is released" if done.record is None else f"{money(done.released)} released, as record {done.record}"
    still = f"; {done.open} of its rounds still wait for their extras" if done.open else ""
    typer.echo(f"run {run}: {what}{rest}{still}")


@app.command(epilog="Example: [bold]guerdon ledger enrol north --public-key north.pub[/]")
def enrol(
    agent: Annotated[
        str | None, typer.Argument(help="The new agent's name; by default the fingerprint of its public key.")
    ] = None,
    db: DbOption = DEFAULT,
    public_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its public key: PEM, or OpenSSH as a SuperNode's.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="What a new ledger counts in, such as EUR (default: CREDIT).")
    ] = None,
) -> None:
    """Open accounts for an agent before its first run. Its node can then be paid, and the agent can pay a deposit."""
    from guerdon.ledger.books.checks import AGENT, normal_name
    from guerdon.ledger.proof.submissions import fingerprint, read_public_key
    from guerdon.ledger.read.queries import find_agent

    der = None if public_key is None else read_public_key(public_key)
    if agent is None and der is None:
        raise ValueError("an agent must have a name or a public key: give NAME, `--public-key FILE`, or both")
    name = normal_name(AGENT, agent if agent is not None else fingerprint(der or b""))  # before a ledger is made
    with open_ledger(db, write=True, create=True, unit=unit) as ledger:
        recorded = ledger.enrol({name: der})
        with ledger.reading() as connection:
            number = find_agent(connection, name).id
    typer.echo(f"{name} #{number} is enrolled" if recorded.new else f"{name} #{number} was enrolled already")


@app.command(epilog='Example: [bold]guerdon ledger payee north DE89370400440532013000 --holder "North Hospital"[/]')
def payee(
    agent: Annotated[str, typer.Argument(help="The agent's whole name.")],
    account: Annotated[str, typer.Argument(help="The number of its bank account: an IBAN, or another.")],
    db: DbOption = DEFAULT,
    holder: Annotated[str | None, typer.Option(help="Whose account it is (default: the agent's name).")] = None,
) -> None:
    """Say to which bank account an agent is paid from now on."""
    with open_ledger(db, write=True) as ledger:
        recorded = ledger.set_payee(agent, account, holder)
    typer.echo(
        f"{agent} is paid to {account} from now on" if recorded.new else f"{agent} was paid to {account} already"
    )


@app.command(epilog="Example: [bold]guerdon ledger export --format beancount --out guerdon.beancount[/]")
def export(
    form: Annotated[ExportForm, typer.Option("--format", help="Plain-text accounting, or a table.")],
    db: DbOption = DEFAULT,
    table: Annotated[
        ExportTable, typer.Option(help="For csv and parquet: all moves of money, or payments with their evidence.")
    ] = "journal",
    out: OutOption = None,
) -> None:
    """Export the ledger for accounting programs and for analysis."""
    with open_ledger(db) as ledger:
        if form == "parquet":
            if out is None:
                raise ValueError("`--format parquet` needs `--out FILE`")
            ledger.export("parquet", out, table)
        elif out is None:
            ledger.export(form, sys.stdout, table)
        else:
            with out.open("w", encoding="utf-8", newline="") as file:
                ledger.export(form, file, table)


@app.command(epilog="Example: [bold]guerdon ledger upgrade --db guerdon.db[/]")
def upgrade(db: DbOption = DEFAULT) -> None:
    """Bring the tables of an older ledger to this version; make a backup first."""
    from guerdon.ledger.upgrading import upgrade_ledger

    before, after = upgrade_ledger(db)
    typer.echo(f"version {before} upgraded to {after}" if before != after else f"version {after} already")
