"""What a bank needs to pay a batch: account numbers that are checked, and the batch as pain.001 (SEPA) or CSV."""

import re
import unicodedata
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree as ET

from sqlalchemy import Connection, select

from guerdon.arrays import check_choice
from guerdon.ledger.books import tables
from guerdon.ledger.books.checks import UNPRINTABLE, clean
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.money import MICRO
from guerdon.ledger.pay.payouts import Payout, PayoutLine, find_payout
from guerdon.ledger.read.render import write_table

FORMS = ("csv", "pain.001")
SCHEMA = "urn:iso:std:iso:20022:tech:xsd:pain.001.001.09"
LONGEST_ACCOUNT, LONGEST_NAME, CENT = 64, 70, MICRO // 100
IBAN = re.compile(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}")
NOT_SEPA = re.compile(r"[^A-Za-z0-9/\-?:().,'+ ]")
LATIN = str.maketrans({"&": "+", "ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l",
                       "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "TH", "ı": "i"})  # fmt: skip


def check_account(account: str) -> str:
    """Return an account number as it is kept, without spaces where it is an IBAN; raise if it cannot be one.

    >>> check_account("de89 3704 0044 0532 0130 00")
    'DE89370400440532013000'
    """
    plain = re.sub(r"\s", "", account).upper()
    if IBAN.fullmatch(plain):
        if not is_iban(plain):
            raise ValueError(
                f"`account` must be an IBAN whose check digits fit, got {account!r}; look for a typing error"
            )
        return plain
    if not 1 <= len(account) <= LONGEST_ACCOUNT or UNPRINTABLE.search(account) or clean(account) != account:
        raise ValueError(
            f"`account` must be an IBAN, or 1 to {LONGEST_ACCOUNT} other printable characters, got {account!r}"
        )
    return account


def is_iban(account: str) -> bool:
    """Return whether a text is an IBAN: letters counted from 10, the first four characters last, 1 modulo 97.

    >>> is_iban("DE89370400440532013000"), is_iban("DE89370400440532013001")
    (True, False)
    """
    moved = account[4:] + account[:4]
    return bool(IBAN.fullmatch(account)) and int("".join(str(int(letter, 36)) for letter in moved)) % 97 == 1


def export_payout(
    connection: Connection, number: int, form: str, out: Any, *, name: str = "", iban: str = "", on: date | None = None
) -> int:
    """Write the open lines of a payout for the bank to an open text file, and return how many there are.

    `form`: "csv", or "pain.001" for SEPA transfers in EUR from the account `iban` of `name`, to be made `on` a day
    (today, unless told otherwise).
    """
    check_choice("form", form, FORMS)
    batch, head = find_payout(connection, number), connection.execute(select(tables.ledger)).one()
    lines = [line for line in batch.items if line.outcome == "open"]
    nowhere = ", ".join(repr(line.agent) for line in lines if not line.account)
    if not lines:
        raise RefusedError(f"payout {number} has no open line; nothing is left to be paid")
    if nowhere:
        raise RefusedError(
            f"payout {number} has no bank account for {nowhere}; cancel these lines, say where to pay them with "
            "`guerdon ledger payee`, and create another payout"
        )
    if form == "csv":
        write_table(out, tuple(_row(head, batch, lines[0])), (_row(head, batch, line) for line in lines))
    else:
        _check_sepa(head.unit, lines, iban, name)
        out.write(_pain(head, batch, lines, name, check_account(iban), on or datetime.now(UTC).date()))
    return len(lines)


def _row(head: Any, batch: Payout, line: PayoutLine) -> dict[str, str]:
    amount = f"{Decimal(line.amount) / MICRO:f}"
    named = {"name": line.holder or line.agent, "account": line.account, "amount": amount, "unit": head.unit}
    return named | {"reference": _reference(head.name, batch.number, line.number), "agent": line.agent}


def _reference(ledger: str, payout: int, agent: int) -> str:
    """Return what tells a transfer from every other, in at most 35 characters: the bank gives it back on returns."""
    return f"{ledger[:8]}-{payout}-{agent}"


def _check_sepa(unit: str, lines: list[PayoutLine], iban: str, name: str) -> None:
    if unit != "EUR":
        raise RefusedError(f"pain.001 is for EUR, and this ledger counts in {unit}; use the form csv")
    if not name or not is_iban(check_account(iban or "-")):
        raise ValueError(f"`name` and `iban` must be those of the account that pays, got {name!r} and {iban!r}")
    for line in lines:
        if not is_iban(line.account):
            raise RefusedError(f"pain.001 needs an IBAN for {line.agent!r}, got {line.account!r}; use the form csv")
        if line.amount % CENT:
            raise RefusedError(f"pain.001 needs whole cents for {line.agent!r}; create the payout with places=2")


def _pain(head: Any, batch: Payout, lines: list[PayoutLine], name: str, iban: str, on: date) -> str:
    """Return the batch as an ISO 20022 customer credit transfer, version 9. The same batch has the same identity."""
    root = ET.Element("Document", xmlns=SCHEMA)
    transfer, identity = ET.SubElement(root, "CstmrCdtTrfInitn"), f"{head.name[:8]}-{batch.number}"
    sums = {"NbOfTxs": str(len(lines)), "CtrlSum": _cents(sum(line.amount for line in lines))}
    made = f"{batch.created_at:%Y-%m-%dT%H:%M:%SZ}"
    group = {"MsgId": identity, "CreDtTm": made, **sums, "InitgPty": {"Nm": _sepa(name)}}
    payment = {
        "PmtInfId": identity, "PmtMtd": "TRF", **sums, "PmtTpInf": {"SvcLvl": {"Cd": "SEPA"}},
        "ReqdExctnDt": {"Dt": f"{on:%Y-%m-%d}"}, "Dbtr": {"Nm": _sepa(name)}, "DbtrAcct": {"Id": {"IBAN": iban}},
        "DbtrAgt": {"FinInstnId": {"Othr": {"Id": "NOTPROVIDED"}}}, "ChrgBr": "SLEV",
    }  # fmt: skip
    _fill(transfer, {"GrpHdr": group, "PmtInf": payment})
    for line in lines:
        one = ET.SubElement(transfer[-1], "CdtTrfTxInf")
        _fill(one, {"PmtId": {"EndToEndId": _reference(head.name, batch.number, line.number)}, "Amt": {}})
        ET.SubElement(one[-1], "InstdAmt", Ccy="EUR").text = _cents(line.amount)
        owner = {"Cdtr": {"Nm": _sepa(line.holder or line.agent)}, "CdtrAcct": {"Id": {"IBAN": line.account}}}
        _fill(one, owner | {"RmtInf": {"Ustrd": _sepa(f"Payout {batch.number}, {line.agent}", 140)}})
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _fill(parent: ET.Element, content: Any) -> None:
    """Add to an element: text, or more elements by name."""
    if isinstance(content, str):
        parent.text = content
        return
    for name, value in content.items():
        _fill(ET.SubElement(parent, name), value)


def _cents(micro: int) -> str:
    return f"{Decimal(micro) / MICRO:.2f}"


def _sepa(text: str, longest: int = LONGEST_NAME) -> str:
    """Return text in the letters that every bank in SEPA takes.

    >>> _sepa("Hôpital Zoë & Søn 北")
    'Hopital Zoe + Son .'
    """
    plain = unicodedata.normalize("NFKD", text.translate(LATIN))
    letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return NOT_SEPA.sub(".", letters)[:longest].strip() or "-"
