"""Receipts that payouts write: one of the whole ledger for the operator, one for each agent."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from guerdon.ledger import Ledger

RECEIPTS = Path("receipts")
SignOption = Annotated[
    Path | None,
    typer.Option(
        "--sign-with",
        metavar="FILE",
        envvar="GUERDON_KEY",
        help="Sign the ledger with this Ed25519 key (PEM), and write receipts: yours, and one for each agent.",
    ),
]
ReceiptsOption = Annotated[
    Path,
    typer.Option(
        "--receipts",
        metavar="FOLDER",
        envvar="GUERDON_RECEIPTS",
        help="Where receipts are kept. The newest must fit the ledger, or nothing is done.",
    ),
]


def payout_signer(ledger: "Ledger", key: Path | None, folder: Path) -> Callable[[int], int]:
    """Return a function that signs the ledger for a payout, writes the receipts and returns the payout's number.

    Without a key it signs nothing. Raises where the newest receipt in the folder does not fit the ledger.
    """
    from guerdon.ledger import Receipt, RefusedError
    from guerdon.ledger.proof.signing import load_key

    loaded = None if key is None else load_key(key)
    kept = [Receipt.from_json(file.read_text(encoding="utf-8")) for file in folder.glob("payout-*.json")]
    newest = max(kept, key=lambda receipt: receipt.record, default=None)
    problem = None if newest is None else ledger.contradiction(newest)
    if problem is not None:
        raise RefusedError(f"nothing was done: the newest receipt in {folder} does not fit the ledger. {problem}")

    def sign(number: int) -> int:
        if loaded is not None:
            _write(ledger, number, loaded, folder)
        return number

    return sign


def _write(ledger: "Ledger", number: int, key: Any, folder: Path) -> None:
    own, *others = ledger.sign_payout(number, key)
    name = f"payout-{number}-record-{own.record}"
    folder.mkdir(exist_ok=True)
    for receipt in (own, *others):
        whose = f"-agent-{receipt.share.number}" if receipt.share else ""
        (folder / f"{name}{whose}.json").write_text(receipt.to_json(), encoding="utf-8")
    typer.echo(
        f"Signed up to record {own.record + 1}. Keep {folder / name}.json where nobody can write to the ledger, and "
        f"send each of {len(others)} agents its own receipt.",
        err=True,
    )
