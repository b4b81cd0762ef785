"""The command line of contributions: `guerdon contributions`. The ledger itself is imported inside the command."""

from typing import Annotated

import typer
from rich.console import Console

from guerdon.cli.options import DEFAULT, DbOption, JsonOption, find_run, open_ledger
from guerdon.cli.tables import print_json, print_table
from guerdon.statistical.contributions import LABEL

HEADINGS = ("agent", "rounds", "paid", "of all pay", "leave one out", "Shapley", "cosine")


def contributions(
    run: Annotated[str | None, typer.Argument(help="Name of the run; may be left out if there is only one.")] = None,
    db: DbOption = DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show who helped in a run: leave-one-out, Shapley and cosine shares, beside what each agent was paid.

    It says who helped, not who worked: a forged report that points where the others do helps as much as an honest one.
    Do not pay by it. It comes from what the ledger keeps of each round, to first order in the loss; with a validation
    set see `guerdon.statistical.contributions.values_from_validation`.
    """
    with open_ledger(db) as ledger:
        from guerdon.ledger.read.contributions import contributions as read

        name = find_run(ledger.runs(), run, "RUN").name
        with ledger.reading() as connection:
            found = read(connection, name)
        unit = ledger.unit
    if as_json:
        print_json({"run": name, "unit": unit, "label": LABEL, "agents": [one._asdict() for one in found]})
        return
    rows = [
        [one.agent, str(one.rounds), f"{one.paid:,.2f}", *(f"{part:.1%}" for part in one[3:])]
        for one in found
    ]  # fmt: skip
    print_table(f"{name}: {LABEL}", HEADINGS, rows, text=("agent",), empty="no round was recorded yet")
    Console(emoji=False).print(
        f"Shares of {unit} paid and of what each measure adds up to over all rounds. Less than nothing counts as 0."
    )
