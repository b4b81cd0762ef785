"""`guerdon ledger payout COMMAND`: balances frozen into a batch, exported for the bank, and settled line by line."""

import io
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from guerdon.cli.options import DEFAULT, DbOption, JsonOption, KeyOption, MemoOption, OutOption, open_ledger
from guerdon.cli.receipts import RECEIPTS, ReceiptsOption, SignOption, payout_signer
from guerdon.cli.tables import json_row, money, print_json, print_table, write_text
from guerdon.ledger.books.money import parse_amount

if TYPE_CHECKING:
    from guerdon.ledger.pay.payouts import Payout

app = typer.Typer(no_args_is_help=True, help="Freeze balances into a batch, pay it, and record that once.")

NumberArgument = Annotated[int, typer.Argument(help="Number of the payout batch.")]
AgentsOption = Annotated[
    list[str] | None,
    typer.Option("--agent", help="Only this agent's line; repeat it for several. Default: all open ones."),
]
BankForm = Literal["csv", "pain.001"]


@app.command(epilog="Example: [bold]guerdon ledger payout create --minimum 10[/]")
def create(
    db: DbOption = DEFAULT,
    minimum: Annotated[str, typer.Option(help="Leave smaller balances for the next time.")] = "0.000001",
    places: Annotated[
        int | None, typer.Option(help="Decimals of the smallest coin (default: those of the unit, 2 for most).")
    ] = None,
    memo: MemoOption = "",
    key: KeyOption = None,
    sign_with: SignOption = None,
    receipts: ReceiptsOption = RECEIPTS,
) -> None:
    """Freeze all balances into a new batch. Each balance is then in this batch and in no other.

    Lines pay whole coins; what is less stays in the balance. Losses that are carried are netted first.
    """
    least = parse_amount(minimum)
    with open_ledger(db, write=True) as ledger:
        sign = payout_signer(ledger, sign_with, receipts)
        number = sign(ledger.payout(least, memo, places=places, key=key))
        batch, unit = ledger.find_payout(number), ledger.unit
    _print_lines(batch, unit)
    next_step = (
        f"For the bank: guerdon ledger payout export {number}; when it is paid: guerdon ledger payout paid {number}"
    )
    Console(soft_wrap=True).print(f"Total {money(batch.total)}. {next_step}", highlight=False)


@app.command(epilog="Example: [bold]guerdon ledger payout show 1[/]")
def show(number: NumberArgument, db: DbOption = DEFAULT, as_json: JsonOption = False) -> None:
    """Show a batch line by line: bank account, amount, what became of it, and the bank's reference."""
    with open_ledger(db) as ledger:
        batch, unit = ledger.find_payout(number), ledger.unit
    if as_json:
        print_json({"unit": unit} | _json(batch))
    else:
        _print_lines(batch, unit)


@app.command("list", epilog="Example: [bold]guerdon ledger payout list --json[/]")
def list_all(db: DbOption = DEFAULT, as_json: JsonOption = False) -> None:
    """List the payout batches and what happened to them."""
    with open_ledger(db) as ledger:
        batches, unit = ledger.payouts(), ledger.unit
    if as_json:
        print_json({"unit": unit, "payouts": [_json(batch) for batch in batches]})
        return
    cells = [
        [str(batch.number), f"{batch.created_at:%Y-%m-%d}", str(batch.agents), money(batch.total),
         batch.state, batch.reference, batch.memo]
        for batch in batches
    ]  # fmt: skip
    headings = ("payout", "created", "agents", "total", "state", "reference", "memo")
    print_table(
        f"Payouts, in {unit}", headings, cells, text=("state", "reference", "memo"), empty="Nothing was paid out yet."
    )


@app.command(
    epilog='Example: [bold]guerdon ledger payout export 1 --format pain.001 --name "Heart Study" --iban DE89…[/]'
)
def export(
    number: NumberArgument,
    db: DbOption = DEFAULT,
    form: Annotated[BankForm, typer.Option("--format", help="A table, or SEPA transfers in EUR (ISO 20022).")] = "csv",
    name: Annotated[str, typer.Option(help="For pain.001: whose account pays.")] = "",
    iban: Annotated[str, typer.Option(help="For pain.001: the IBAN of the account that pays.")] = "",
    on: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="For pain.001: the day to pay (default: today).")
    ] = None,
    out: OutOption = None,
) -> None:
    """Write the open lines of a batch for the bank: name, account, amount, reference."""
    buffer = io.StringIO()
    with open_ledger(db) as ledger:
        ledger.export_payout(number, form, buffer, name=name, iban=iban, on=None if on is None else on.date())
    write_text([buffer.getvalue()], out)


@app.command(epilog='Example: [bold]guerdon ledger payout paid 1 --memo "SEPA 2026-11-15"[/]')
def paid(
    number: NumberArgument,
    db: DbOption = DEFAULT,
    agent: AgentsOption = None,
    memo: MemoOption = "",
    sign_with: SignOption = None,
    receipts: ReceiptsOption = RECEIPTS,
) -> None:
    """Mark lines as paid: the money has left through the bank. Give the bank's reference as `--memo`."""
    _settle(db, number, "paid", agent, memo, sign_with, receipts)


@app.command(epilog="Example: [bold]guerdon ledger payout cancel 1 --agent north[/]")
def cancel(
    number: NumberArgument,
    db: DbOption = DEFAULT,
    agent: AgentsOption = None,
    memo: MemoOption = "",
    sign_with: SignOption = None,
    receipts: ReceiptsOption = RECEIPTS,
) -> None:
    """Return lines that were not paid to the balances they came from."""
    _settle(db, number, "cancelled", agent, memo, sign_with, receipts)


@app.command(epilog='Example: [bold]guerdon ledger payout bounced 1 --agent north --memo "AC04 closed account"[/]')
def bounced(
    number: NumberArgument,
    db: DbOption = DEFAULT,
    agent: AgentsOption = None,
    memo: MemoOption = "",
    sign_with: SignOption = None,
    receipts: ReceiptsOption = RECEIPTS,
) -> None:
    """Return transfers that the bank could not make, paid or not, to the balances they came from."""
    _settle(db, number, "bounced", agent, memo, sign_with, receipts)


@app.command("receipts", epilog="Example: [bold]guerdon ledger payout receipts 1 --sign-with operator.pem[/]")
def write_receipts(
    number: NumberArgument,
    sign_with: Annotated[Path, typer.Option(metavar="FILE", envvar="GUERDON_KEY", help="The key to sign with.")],
    db: DbOption = DEFAULT,
    receipts: ReceiptsOption = RECEIPTS,
) -> None:
    """Sign again, and write the receipts of a batch as it is now."""
    with open_ledger(db, write=True) as ledger:
        payout_signer(ledger, sign_with, receipts)(number)


def _settle(
    db: str, number: int, outcome: str, agents: list[str] | None, memo: str, sign_with: Path | None, receipts: Path
) -> None:
    with open_ledger(db, write=True) as ledger:
        sign = payout_signer(ledger, sign_with, receipts)
        recorded = ledger.settle_payout(number, outcome, memo, agents=agents)
        sign(number)
    whose = f", the line of {', '.join(agents)}," if agents else ""
    typer.echo(f"payout {number}{whose} is {outcome}, record {recorded.record}")


def _print_lines(batch: "Payout", unit: str) -> None:
    cells = [
        [
            str(line.number),
            line.agent,
            line.account,
            money(line.amount),
            f"{line.outcome} {_day(line.settled_at)}".strip(),
            line.reference,
        ]
        for line in batch.items
    ]
    text = ("agent", "state", "reference")
    headings = ("no.", "agent", "account", "amount", "state", "reference")
    print_table(f"Payout {batch.number}, in {unit}", headings, cells, text=text, empty="")


def _json(batch: "Payout") -> dict[str, Any]:
    items = [json_row(line._asdict(), money=("amount",)) for line in batch.items]
    return json_row(batch._replace(items=[])._asdict(), money=("total",)) | {"items": items}


def _day(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d}"
