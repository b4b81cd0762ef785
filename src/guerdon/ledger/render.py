"""A statement for programs (JSON, CSV) and for paper (HTML); no name can become markup or a formula."""

import csv
import io
import json
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from guerdon.ledger.money import format_amount, plain_amount
from guerdon.ledger.statements import Line, Statement

STYLE = files("guerdon.ledger").joinpath("statement.css").read_text(encoding="utf-8")
MONEY = ("reward", "cut", "change", "balance", "deposit", "escrow", "carried")


def statement_json(statement: Statement) -> str:
    """Return a statement as JSON; amounts are exact decimal text."""
    lines = [_plain(line) for line in statement.lines]
    shown = {"agent": statement.agent, "unit": statement.unit, "ledger": statement.ledger}
    totals = {"earned": plain_amount(statement.earned), **(_standing(statement))}
    return json.dumps(shown | totals | {"lines": lines}, indent=2, ensure_ascii=False)


def statement_csv(statement: Statement) -> str:
    """Return a statement as CSV, one line per thing that happened."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=Line._fields, lineterminator="\n")
    writer.writeheader()
    for line in statement.lines:
        writer.writerow({name: as_cell(value) for name, value in _plain(line).items()})
    return buffer.getvalue()


def statement_html(statement: Statement) -> str:
    """Return a statement as one printable page that loads nothing."""
    name = escape(statement.agent)
    now = datetime.now(UTC)
    standing = [(kind, amount) for kind, amount in _last(statement).items() if kind == "balance" or amount]
    boxes = [("earned", statement.earned), *standing]
    items = "".join(f"<li><b>{format_amount(amount)}</b><span>{_WORDS[kind]}</span></li>" for kind, amount in boxes)
    rows = "\n".join(_row(line) for line in statement.lines)
    empty = "" if statement.lines else '<p class="empty">Nothing has happened yet.</p>'
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Statement of {name}</title><style>{STYLE}</style></head>
<body><main>
<header><p>Statement, {now:%d %B %Y}, all amounts in {escape(statement.unit)}</p><h1>{name}</h1></header>
<ul class="summary">{items}</ul>
<div class="scroll"><table>
<thead><tr><th>when (UTC)</th><th>what</th><th>asked</th><th>reward</th><th>change</th><th>balance</th><th>why</th></tr>
</thead>
<tbody>{rows}</tbody></table></div>{empty}
<footer>Ledger {escape(statement.ledger)}. <b>Asked</b> is the number of samples requested in the round. A reward is
the cost of the work asked for, plus or less an amount that depends on how close the gradient lay to the others' mean.
<b>Change</b> is what it did to the balance, which differs from the reward where something was carried, held, charged to
the deposit or waived. Each payment is sealed by a hash in the ledger's chain; <code>guerdon ledger verify</code>
recomputes them all.</footer>
</main></body></html>
"""


def as_cell(value: object) -> object:
    """Return a value for CSV: text that a spreadsheet would take for a formula is marked as text."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(value):
        return f"'{value}"
    return value


_WORDS = {
    "earned": "earned in all",
    "balance": "balance, to be paid out",
    "deposit": "deposit",
    "escrow": "held in escrow",
    "carried": "carried into later rounds",
}


def _row(line: Line) -> str:
    reward = "" if line.reward is None else format_amount(line.reward)
    mark = "" if line.status in (None, "paid") else f' class="{escape(str(line.status))}"'
    cells = [
        f"{line.at:%Y-%m-%d %H:%M}", escape(line.what), str(line.request or ""), reward, format_amount(line.change),
        format_amount(line.balance), escape(line.why),
    ]  # fmt: skip
    return f"<tr{mark}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _plain(line: Line) -> dict[str, object]:
    shown: dict[str, object] = dict(line._asdict())
    shown["at"] = line.at.isoformat()
    amounts: dict[str, int | None] = {name: getattr(line, name) for name in MONEY}
    return shown | {name: None if amount is None else plain_amount(amount) for name, amount in amounts.items()}


def _standing(statement: Statement) -> dict[str, str]:
    return {kind: plain_amount(amount) for kind, amount in _last(statement).items()}


def _last(statement: Statement) -> dict[str, int]:
    kinds = ("balance", "deposit", "escrow", "carried")
    return {kind: getattr(statement.lines[-1], kind) if statement.lines else 0 for kind in kinds}


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()
