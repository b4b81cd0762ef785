"""A pilot's report as one page; it loads nothing."""

from html import escape
from importlib.resources import files
from pathlib import Path

import guerdon
from guerdon.lab.experiments.report import STYLE, inline_svg
from guerdon.lab.figures import pilot_figure
from guerdon.pilot import PilotReport
from guerdon.pilot.wording import EXPLAINED, closing, honest_rows, measured, title

PAGE = files("guerdon.lab.experiments").joinpath("pilot.html").read_text(encoding="utf-8")


def write_page(report: PilotReport, path: Path) -> None:
    """Write what a pilot says as one HTML file."""
    rules = [rule.rule for rule in report.rules]
    *notes, verdict = closing(report)
    told = "\n".join(f"<p>{escape(note)}</p>" for note in notes)
    filled = PAGE.format(
        style=STYLE, title=escape(title(report)), verdict=escape(verdict), notes=told, explained=escape(EXPLAINED),
        drawing=inline_svg(pilot_figure(report), "pilot"), rules=_table("per round", rules, measured(report)),
        agents=_table("agent", rules, honest_rows(report)), level=1 - report.alpha, version=escape(guerdon.__version__),
    )  # fmt: skip
    path.write_text(filled, encoding="utf-8")


def _table(first: str, rules: list[str], rows: list[tuple[str, list[str]]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in (first, *rules))
    body = "\n".join(
        f"<tr><td>{escape(name)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for name, cells in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
