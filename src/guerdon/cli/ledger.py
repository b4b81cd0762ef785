"""The command line of the ledger: `guerdon ledger COMMAND`. The ledger itself is imported inside each command."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress

from guerdon.cli.options import DEFAULT, DbOption, JsonOption, OutOption, find_run, need
from guerdon.cli.receipts import RECEIPTS, ReceiptsOption, SignOption, payout_signer
from guerdon.cli.tables import (
    earnings_report,
    json_row,
    money,
    print_earnings,
    print_json,
    print_table,
    print_verification,
)
from guerdon.ledger.money import parse_amount, plain_amount

if TYPE_CHECKING:
    from guerdon.ledger import Ledger

app = typer.Typer(no_args_is_help=True, help="Who was paid what and why: read, check, pay out, sign, export.")
payout_app = typer.Typer(no_args_is_help=True, help="Freeze balances into a batch, pay it, and record that once.")
app.add_typer(payout_app, name="payout")

NEEDED = ("sqlalchemy", "alembic", "cryptography")
MemoOption = Annotated[str, typer.Option(help="A remark to record, such as a bank reference.")]
AgentArgument = Annotated[str, typer.Argument(help="The agent's name, or a beginning that no other name has.")]
AmountArgument = Annotated[str, typer.Argument(help="How much, such as 12.50; at most 6 decimals.")]
PayoutArgument = Annotated[int, typer.Argument(help="Number of the payout batch.")]
StatementForm = Literal["text", "json", "csv", "html"]
ExportForm = Literal["beancount", "hledger", "csv", "parquet"]
ExportTable = Literal["journal", "payments"]
HELD = ("earned", "balance", "deposit", "escrow", "carried")
MoveKind = Literal["deposit", "withdraw", "hold", "release", "forfeit", "repay", "waive"]


@app.callback()
def _check_installed() -> None:
    need("guerdon ledger", "ledger", *NEEDED)


@app.command(epilog="Example: [bold]guerdon ledger balances --db guerdon.db[/]")
def balances(db: DbOption = DEFAULT, as_json: JsonOption = False) -> None:
    """Show what every agent earned and has, what losses it carries, and its mean pay against its mean cost."""
    with open_ledger(db) as ledger:
        rows, common, unit, against = ledger.balances(), ledger.common_balances(), ledger.unit, ledger.earnings()
    if as_json:
        agents = [json_row(row._asdict() | {"owed": row.owed}, money=(*HELD, "owed")) for row in rows]
        report = {"unit": unit, "agents": agents, "common": json_row(common, money=tuple(common))}
        print_json(report | {"pay_against_cost": earnings_report(against)})
        return
    cells = [[str(row.number), row.agent, *(money(getattr(row, kind)) for kind in HELD)] for row in rows]
    headings = ("no.", "agent", *HELD)
    print_table(f"Balances in {unit}", headings, cells, text=("agent",), empty="Nobody is enrolled yet.")
    earned, waiting, left = money(-common["treasury"]), money(common["payable"]), money(common["bank"])
    line = f"Earned in all {earned}, waiting in payouts {waiting}, through the bank {left}."
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
    form = "json" if as_json else form
    with open_ledger(db) as ledger:
        shown = ledger.statement(agent)
    from guerdon.ledger import render

    if form == "text":
        if out is not None:
            raise ValueError("`--out` needs --format json, csv or html")
        cells = [
            [f"{line.at:%Y-%m-%d}", line.what, str(line.request or ""), money(line.reward), money(line.balance),
             line.why]
            for line in shown.lines
        ]  # fmt: skip
        headings = ("when", "what", "asked", "reward", "balance", "why")
        title = f"Statement of {shown.agent} #{shown.number}, in {shown.unit}"
        print_table(title, headings, cells, text=("when", "what", "why"), empty="Nothing has happened yet.")
        return
    renderers = {"json": render.statement_json, "csv": render.statement_csv, "html": render.statement_html}
    _write(renderers[form](shown), out)


@app.command(epilog="Example: [bold]guerdon ledger runs[/]")
def runs(db: DbOption = DEFAULT, as_json: JsonOption = False) -> None:
    """List the runs: how many rounds, agents, and how much was paid."""
    with open_ledger(db) as ledger:
        rows, unit = ledger.runs(), ledger.unit
    if as_json:
        print_json({"unit": unit, "runs": [json_row(row._asdict(), money=("paid",)) for row in rows]})
        return
    cells = [
        [row.name, str(row.agents), str(row.rounds), money(row.paid), row.cost, row.liability,
         f"{row.last_activity:%Y-%m-%d}"]
        for row in rows
    ]  # fmt: skip
    headings = ("run", "agents", "rounds", f"paid ({unit})", "cost of s samples", "liability", "last activity")
    print_table("Runs", headings, cells, text=("run", "liability", headings[4]), empty="No run has begun yet.")


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
        raise typer.Exit(1)


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
    from guerdon.ledger.signing import load_key

    loaded = load_key(key)
    with open_ledger(db, write=True) as ledger:
        receipt = ledger.sign(loaded)
    _write(receipt.to_json(), out)


@app.command(epilog="Example: [bold]guerdon ledger key operator.pem[/]")
def key(file: Annotated[Path, typer.Argument(help="Where to put the private key; it must not exist yet.")]) -> None:
    """Make an Ed25519 key to sign the ledger with, and print its public half."""
    from guerdon.ledger.signing import create_key

    typer.echo(create_key(file).hex())


@app.command(epilog='Example: [bold]guerdon ledger move deposit north 100 --memo "transfer 4711"[/]')
def move(
    kind: Annotated[MoveKind, typer.Argument(help="What to do.")],
    agent: Annotated[str, typer.Argument(help="The agent's whole name.")],
    amount: AmountArgument,
    db: DbOption = DEFAULT,
    run: Annotated[
        str | None,
        typer.Option(
            help="For release and forfeit: the run that holds it. By default first what was held by hand, then the "
            "runs in the order in which they began."
        ),
    ] = None,
    memo: MemoOption = "",
) -> None:
    """Record a deposit or its withdrawal; hold, release or forfeit money in escrow; repay or waive a carried loss."""
    micro = parse_amount(amount)
    with open_ledger(db, write=True) as ledger:
        recorded = ledger.move(kind, agent, micro, memo, run=run)
    typer.echo(f"{kind} of {money(micro)} for {agent} recorded as record {recorded.record}")


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
    from guerdon.ledger.checks import AGENT, normal_name
    from guerdon.ledger.queries import find_agent
    from guerdon.ledger.submissions import fingerprint, read_public_key

    der = None if public_key is None else read_public_key(public_key)
    if agent is None and der is None:
        raise ValueError("an agent must have a name or a public key: give NAME, `--public-key FILE`, or both")
    name = normal_name(AGENT, agent if agent is not None else fingerprint(der or b""))  # before a ledger is made
    with open_ledger(db, write=True, create=True, unit=unit) as ledger:
        recorded = ledger.enrol({name: der})
        with ledger.reading() as connection:
            number = find_agent(connection, name).id
    typer.echo(f"{name} #{number} is enrolled" if recorded.new else f"{name} #{number} was enrolled already")


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


@payout_app.command("create", epilog="Example: [bold]guerdon ledger payout create --minimum 10[/]")
def payout_create(
    db: DbOption = DEFAULT,
    minimum: Annotated[str, typer.Option(help="Leave smaller balances for the next time.")] = "0.000001",
    memo: MemoOption = "",
    sign_with: SignOption = None,
    receipts: ReceiptsOption = RECEIPTS,
) -> None:
    """Freeze all balances into a new batch. Each balance is then in this batch and in no other."""
    least = parse_amount(minimum)
    with open_ledger(db, write=True) as ledger:
        sign = payout_signer(ledger, sign_with, receipts)
        number = sign(ledger.payout(least, memo))
        (batch,) = (batch for batch in ledger.payouts() if batch.number == number)
        unit = ledger.unit
    cells = [[name, money(amount)] for name, amount in batch.items]
    print_table(f"Payout {number}, in {unit}", ("agent", "amount"), cells, text=("agent",), empty="")
    next_step = f"When it is paid: guerdon ledger payout paid {number}"
    Console().print(f"Total {money(batch.total)}. {next_step}", highlight=False)


@payout_app.command("list", epilog="Example: [bold]guerdon ledger payout list --json[/]")
def payout_list(db: DbOption = DEFAULT, as_json: JsonOption = False) -> None:
    """List the payout batches and what happened to them."""
    with open_ledger(db) as ledger:
        batches, unit = ledger.payouts(), ledger.unit
    if as_json:
        shown = [
            json_row(batch._asdict(), money=("total",))
            | {"items": [{"agent": name, "amount": plain_amount(amount)} for name, amount in batch.items]}
            for batch in batches
        ]
        print_json({"unit": unit, "payouts": shown})
        return
    cells = [
        [str(batch.number), f"{batch.created_at:%Y-%m-%d %H:%M}", str(len(batch.items)), money(batch.total),
         batch.outcome if batch.settled_at is None else f"{batch.outcome} {batch.settled_at:%Y-%m-%d}", batch.memo]
        for batch in batches
    ]  # fmt: skip
    headings = ("payout", "created (UTC)", "agents", f"total ({unit})", "state", "memo")
    print_table("Payouts", headings, cells, text=("state", "memo"), empty="Nothing was paid out yet.")


@payout_app.command("paid", epilog='Example: [bold]guerdon ledger payout paid 1 --memo "SEPA 2026-11-15"[/]')
def payout_paid(
    number: PayoutArgument,
    db: DbOption = DEFAULT,
    memo: MemoOption = "",
    sign_with: SignOption = None,
    receipts: ReceiptsOption = RECEIPTS,
) -> None:
    """Mark a batch as paid: the money has left through the bank. A batch can be settled only once."""
    _settle(db, number, "paid", memo, sign_with, receipts)


@payout_app.command("cancel", epilog="Example: [bold]guerdon ledger payout cancel 1[/]")
def payout_cancel(
    number: PayoutArgument,
    db: DbOption = DEFAULT,
    memo: MemoOption = "",
    sign_with: SignOption = None,
    receipts: ReceiptsOption = RECEIPTS,
) -> None:
    """Return a batch that was not paid to the balances it came from."""
    _settle(db, number, "cancelled", memo, sign_with, receipts)


@payout_app.command("receipts", epilog="Example: [bold]guerdon ledger payout receipts 1 --sign-with operator.pem[/]")
def payout_receipts(
    number: PayoutArgument,
    sign_with: Annotated[Path, typer.Option(metavar="FILE", envvar="GUERDON_KEY", help="The key to sign with.")],
    db: DbOption = DEFAULT,
    receipts: ReceiptsOption = RECEIPTS,
) -> None:
    """Sign again, and write the receipts of a batch as it is now."""
    with open_ledger(db, write=True) as ledger:
        payout_signer(ledger, sign_with, receipts)(number)


def _settle(db: str, number: int, outcome: str, memo: str, sign_with: Path | None, receipts: Path) -> None:
    with open_ledger(db, write=True) as ledger:
        sign = payout_signer(ledger, sign_with, receipts)
        recorded = ledger.settle_payout(number, outcome, memo)
        sign(number)
    typer.echo(f"payout {number} is {outcome}, record {recorded.record}")


def open_ledger(db: str, *, write: bool = False, create: bool = False, unit: str | None = None) -> "Ledger":
    """Open a ledger that exists; commands that only read open it read-only, and none creates one by accident."""
    need("guerdon ledger", "ledger", *NEEDED)
    from guerdon.ledger import Ledger

    if write and not create:
        Ledger(db, read_only=True).close()  # raises if there is none
    return Ledger(db, read_only=not write, unit=unit)


def _write(content: str, out: Path | None) -> None:
    if out is None:
        typer.echo(content, nl=not content.endswith("\n"))
    else:
        out.write_text(content, encoding="utf-8", newline="")
