"""A statement for programs (JSON, CSV) and for paper (HTML); no name can become markup or a formula."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from importlib.resources import files
from string import Template
from typing import TextIO

from guerdon.ledger.money import format_amount, plain_amount
from guerdon.ledger.statements import Line, Statement

PAGE, STYLE = (files("guerdon.ledger").joinpath(f"statement.{end}").read_text("utf-8") for end in ("html", "css"))
MONEY = ("reward", "cut", "change", "balance", "deposit", "escrow", "carried")
TOTALS = {
    "earned": "earned in all",
    "balance": "balance, to be paid out",
    "deposit": "deposit",
    "escrow": "held in escrow",
    "carried": "carried into later rounds",
}


def statement_json(statement: Statement) -> str:
    """Return a statement as JSON; amounts are exact decimal text."""
    shown: dict[str, object] = {name: getattr(statement, name) for name in ("agent", "number", "unit", "ledger")}
    shown |= {kind: plain_amount(amount) for kind, amount in _totals(statement).items()}
    shown["lines"] = [_plain(line) for line in statement.lines]
    return json.dumps(shown, indent=2, ensure_ascii=False)


def statement_csv(statement: Statement) -> str:
    """Return a statement as CSV, one line per thing that happened."""
    buffer = io.StringIO()
    write_table(buffer, Line._fields, map(_plain, statement.lines))
    return buffer.getvalue()


def statement_html(statement: Statement) -> str:
    """Return a statement as one printable page that loads nothing."""
    boxes = [(kind, amount) for kind, amount in _totals(statement).items() if kind in ("earned", "balance") or amount]
    return Template(PAGE).substitute(
        name=f"{escape(statement.agent)} #{statement.number}",
        unit=escape(statement.unit),
        ledger=escape(statement.ledger),
        day=f"{datetime.now(UTC):%d %B %Y}",
        style=STYLE,
        items="".join(f"<li><b>{format_amount(amount)}</b><span>{TOTALS[kind]}</span></li>" for kind, amount in boxes),
        rows="\n".join(_row(line) for line in statement.lines),
        empty="" if statement.lines else '<p class="empty">Nothing has happened yet.</p>',
    )


def aligned(micro: int) -> str:
    """Return an exact amount for a column: spaces as wide as digits stand for the decimals that it has not.

    >>> aligned(9_000_000) + "|", aligned(1_500_001) + "|"
    ('9.00\\u2007\\u2007\\u2007\\u2007|', '1.500001|')
    """
    text = format_amount(micro)
    return text + (6 - len(text.partition(".")[2])) * "\N{FIGURE SPACE}"


def write_table(out: TextIO, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as CSV."""
    writer = csv.DictWriter(out, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: object) -> object:
    """Return a value for CSV: text that a spreadsheet would take for a formula is marked as text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(value):
        return f"'{value}"
    return f"{value:f}" if isinstance(value, Decimal) else value


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


def _row(line: Line) -> str:
    reward = "" if line.reward is None else aligned(line.reward)
    mark = "" if line.status in (None, "paid") else f' class="{escape(str(line.status))}"'
    cells = [
        f"{line.at:%Y-%m-%d %H:%M}", escape(line.what), str(line.request or ""), reward, aligned(line.change),
        aligned(line.balance), escape(line.why),
    ]  # fmt: skip
    return f"<tr{mark}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _plain(line: Line) -> Mapping[str, object]:
    amounts: dict[str, int | None] = {name: getattr(line, name) for name in MONEY}
    exact = {name: None if amount is None else plain_amount(amount) for name, amount in amounts.items()}
    return line._asdict() | {"at": line.at.isoformat()} | exact


def _totals(statement: Statement) -> dict[str, int]:
    """Return what was earned, and what the accounts hold now."""
    last = statement.lines[-1]._asdict() if statement.lines else {}
    return {kind: last.get(kind, 0) for kind in TOTALS} | {"earned": statement.earned}
