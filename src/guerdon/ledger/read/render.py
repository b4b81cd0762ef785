"""A statement for programs (JSON, CSV) and for paper (HTML); no name can become markup or a formula."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from importlib.resources import files
from itertools import chain
from string import Template
from textwrap import fill, indent
from typing import TextIO

from sqlalchemy import Connection

from guerdon.arrays import check_choice
from guerdon.ledger.books.checks import UNPRINTABLE
from guerdon.ledger.books.money import format_amount, plain_amount
from guerdon.ledger.read.looked import HELD
from guerdon.ledger.read.statements import Line, Statement, stream_statement
from guerdon.rule import PAID_LABELS

PAGE, STYLE = (files("guerdon.ledger.read").joinpath(f"statement.{end}").read_text("utf-8") for end in ("html", "css"))
LOOKED_AT = (
    "What looks hold is <b>released</b> to the balance when the looks of its period have passed; what a failed look "
    "takes is <b>forfeited</b> to the reserve, and is not in what was earned. "
)
NOTHING = "Nothing has happened yet."
WIDTH = 78  # of a statement for a terminal
MONEY = ("reward", "cut", "change", "balance", "deposit", "held", "carried")
TOTALS = {
    "earned": "earned in all",
    "balance": "balance, to be paid out",
    "deposit": "deposit",
    "held": "held, not payable yet",
    "carried": "carried into later rounds",
    "released": "released by looks, in all",
    "forfeited": "forfeited in failed looks",
}


def statement_json(statement: Statement, lines: Iterable[Line]) -> Iterator[str]:
    """Yield a statement as JSON; amounts are exact decimal text."""
    shown: dict[str, object] = {name: getattr(statement, name) for name in ("agent", "number", "unit", "ledger")}
    shown |= {kind: plain_amount(amount) for kind, amount in _totals(statement).items()}
    shown["holds"] = [
        {"run": one.run, "held": plain_amount(one.amount), "rounds": one.rounds, "next": plain_amount(one.next),
         "why": one.words}
        for one in statement.held
    ]  # fmt: skip
    yield json.dumps(shown, indent=2, ensure_ascii=False).removesuffix("\n}") + ',\n  "lines": ['
    before = "\n"
    for line in lines:
        yield before + indent(json.dumps(_plain(line), indent=2, ensure_ascii=False), "    ")
        before = ",\n"
    yield "]\n}\n" if before == "\n" else "\n  ]\n}\n"


def statement_csv(_: Statement, lines: Iterable[Line]) -> Iterator[str]:
    """Yield a statement as CSV, one line per thing that happened."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=Line._fields, lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: _cell(value) for name, value in _plain(line).items()})
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def statement_html(statement: Statement, lines: Iterable[Line]) -> Iterator[str]:
    """Yield a statement as one printable page that loads nothing."""
    boxes = [(kind, amount) for kind, amount in _totals(statement).items() if kind in ("earned", "balance") or amount]
    items = (f"<li><b>{format_amount(amount)}</b><span>{TOTALS[kind]}</span></li>" for kind, amount in boxes)
    shown = {
        "name": f"{escape(statement.agent)} #{statement.number}", "unit": escape(statement.unit),
        "ledger": escape(statement.ledger), "day": f"{datetime.now(UTC):%d %B %Y}",
        "style": STYLE, "items": "".join(items),
        "footer": LOOKED_AT if _is_looked_at(statement) else "",
        "held": "".join(f"<p>{escape(one.words)}.</p>" for one in statement.held),
    }  # fmt: skip
    before, after = (Template(part) for part in PAGE.split("$rows"))
    yield before.substitute(shown)
    empty = True
    for line in lines:
        empty = False
        yield _row(line)
    yield after.substitute(shown, empty=f'<p class="empty">{NOTHING}</p>' if empty else "")


def statement_text(statement: Statement, lines: Iterator[Line]) -> Iterator[str]:
    """Yield a statement for a terminal: one line per thing that happened, and below it the reason."""
    yield f"Statement of {_printable(statement.agent)} #{statement.number}, in {statement.unit}\n"
    for words in [*(one.words for one in statement.held), *filter(None, [_by_looks(statement)])]:
        yield fill(_printable(words), WIDTH) + "\n"
    row = "{:<12}{:<26}{:>8}{:>16}{:>16}\n".format
    first = next(lines, None)
    yield row("when", "what", "asked", "reward", "balance") if first else f"{NOTHING}\n"
    for line in chain([first] if first else [], lines):
        reward = "" if line.reward is None else format_amount(line.reward)
        when, what = f"{line.at:%Y-%m-%d}", _printable(line.what)
        yield row(when, what, line.request or "", reward, format_amount(line.balance))
        yield fill(_printable(line.why), WIDTH, initial_indent=" " * 12, subsequent_indent=" " * 12) + "\n"


FORMS = {"text": statement_text, "json": statement_json, "csv": statement_csv, "html": statement_html}


def statement_pieces(connection: Connection, agent: str, form: str) -> Iterator[str]:
    """Return a statement as text in pieces, which are made as they are taken: of any size."""
    check_choice("form", form, tuple(FORMS))
    shown, lines = stream_statement(connection, agent)
    return in_blocks(FORMS[form](shown, lines))


def in_blocks(pieces: Iterable[str], size: int = 2**16) -> Iterator[str]:
    """Yield text in blocks of about `size` characters: what takes it has less to do."""
    block, length = list[str](), 0
    for piece in pieces:
        block.append(piece)
        length += len(piece)
        if length >= size:
            yield "".join(block)
            block, length = [], 0
    yield "".join(block)


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


def _printable(text: str) -> str:
    """Return text that cannot move a terminal's cursor."""
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


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
    mark = "" if line.status in (None, HELD, *PAID_LABELS) else f' class="{escape(str(line.status))}"'
    cells = [
        f"{line.at:%Y-%m-%d %H:%M}", escape(line.what), str(line.request or ""), reward, aligned(line.change),
        aligned(line.balance), escape(line.why),
    ]  # fmt: skip
    return f"<tr{mark}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"


def _plain(line: Line) -> Mapping[str, object]:
    amounts: dict[str, int | None] = {name: getattr(line, name) for name in MONEY}
    exact = {name: None if amount is None else plain_amount(amount) for name, amount in amounts.items()}
    return line._asdict() | {"at": line.at.isoformat()} | exact


def _is_looked_at(statement: Statement) -> bool:
    has = statement.has
    return bool(has.released or has.forfeited or any(one.periods for one in statement.held))


def _by_looks(statement: Statement) -> str:
    """Return what looks released and took in all, in words; empty text where they did neither."""
    has = statement.has
    told = [(getattr(has, kind), TOTALS[kind]) for kind in ("released", "forfeited")]
    return "; ".join(f"{format_amount(amount)} {what}" for amount, what in told if amount)


def _totals(statement: Statement) -> dict[str, int]:
    """Return what was earned, and what the accounts hold now."""
    return {kind: getattr(statement.has, kind) for kind in TOTALS}
