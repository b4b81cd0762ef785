"""One self-contained page of what was reproduced, with figures and verdicts; it loads nothing."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import guerdon
from guerdon.lab.experiments.claims import Claim, Experiment, used_survey
from guerdon.lab.figures import as_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE, PAGE, SECTION = (
    files("guerdon.lab.experiments").joinpath(name).read_text(encoding="utf-8")
    for name in ("report.css", "report.html", "report_section.html")
)


def write_report(experiments: Sequence[Experiment], repetitions: int, seed: int, path: Path) -> None:
    """Write the report of some experiments as one HTML file."""
    claims = [claim for experiment in experiments for claim in experiment.claims]
    held = sum(claim.holds for claim in claims)
    seconds = sum(experiment.seconds for experiment in experiments)
    body = "\n".join(_section(experiment) for experiment in experiments)
    filled = PAGE.format(
        style=STYLE, held=held, claims=len(claims), repetitions=repetitions, seconds=seconds, seed=seed, body=body,
        version=escape(guerdon.__version__), survey=escape(used_survey(experiments)),
    )  # fmt: skip
    path.write_text(filled, encoding="utf-8")


def _section(experiment: Experiment) -> str:
    rows = "\n".join(_row(claim) for claim in experiment.claims)
    notes = "\n".join(f"<p>{escape(note)}</p>" for note in experiment.notes)
    words = {name: escape(getattr(experiment, name)) for name in ("name", "title", "caption")}
    return SECTION.format(**words, drawing=inline(experiment.svg, experiment.name), rows=rows, notes=notes).rstrip()


def _row(claim: Claim) -> str:
    verdict = '<td class="holds">✓ holds</td>' if claim.holds else '<td class="fails">✗ fails</td>'
    return (
        f"<tr><td>{escape(claim.claim)}</td><td>{escape(claim.expected)}</td>"
        f'<td class="number">{claim.measured:.4g}</td><td class="number">{claim.standard_error:.2g}</td>{verdict}</tr>'
    )


def inline_svg(drawing: "Figure", name: str) -> str:
    """Return a drawing as an SVG element with ids that no drawing of another name has."""
    return inline(as_svg(drawing), name)


def inline(svg: str, name: str) -> str:
    """Return the element of an SVG file, with ids that no drawing of another name has."""
    svg = svg[svg.index("<svg") :]
    for attribute in ('id="', 'xlink:href="#', "url(#"):
        svg = svg.replace(attribute, f"{attribute}{name}-")
    return svg
