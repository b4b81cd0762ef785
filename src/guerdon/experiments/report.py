"""One self-contained page of what was reproduced, with figures and verdicts; it loads nothing."""

import io
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

import guerdon
from guerdon.experiments.claims import Claim, Experiment
from guerdon.figures import save_figure

STYLE = files("guerdon.experiments").joinpath("report.css").read_text(encoding="utf-8")


def write_report(experiments: Sequence[Experiment], repetitions: int, seed: int, path: Path) -> None:
    """Write the report of some experiments as one HTML file."""
    claims = [claim for experiment in experiments for claim in experiment.claims]
    held = sum(claim.holds for claim in claims)
    seconds = sum(experiment.seconds for experiment in experiments)
    body = "\n".join(_section(experiment) for experiment in experiments)
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Guerdon: the paper's experiments, reproduced</title><style>{STYLE}</style></head>
<body><main>
<h1>The paper's experiments, reproduced</h1>
<p class="lead">A server asks agents for gradients of ν samples and cannot see how many they use. It pays each
agent by how close its gradient is to the mean of the others. Does it pay to do the requested work, and is the pay no
more than its cost?</p>
<ul class="summary">
<li><b>{held} of {len(claims)}</b><span>claims hold</span></li>
<li><b>{repetitions}</b><span>repetitions each</span></li>
<li><b>{seconds:.1f} s</b><span>computing time</span></li>
<li><b>{seed}</b><span>seed</span></li>
</ul>
{body}
<footer>Made by Guerdon {escape(guerdon.__version__)}. Experiments of Akbay and Tepedelenlioğlu, <cite>Distributed
Stochastic Gradient Descent with Cost-Sensitive and Strategic Agents</cite>: K = 10 agents, cost h(s) = s + 1; linear
regression in 100 dimensions, logistic regression on the heart-disease survey. The numbers behind each figure are beside
this page as Parquet and CSV, all claims in claims.json.</footer>
</main></body></html>
"""
    path.write_text(page, encoding="utf-8")


def _section(experiment: Experiment) -> str:
    rows = "\n".join(_row(claim) for claim in experiment.claims)
    notes = "\n".join(f"<p>{escape(note)}</p>" for note in experiment.notes)
    return f"""<section id="{escape(experiment.name)}">
<h2>{escape(experiment.title)}</h2>
<figure><div class="drawing" role="img" aria-label="{escape(experiment.title)}">{_inline_svg(experiment)}</div>
<figcaption>{escape(experiment.caption)}</figcaption></figure>
<div class="scroll"><table>
<thead><tr><th>claim</th><th>expected</th><th>measured</th><th>s.e.</th><th>verdict</th></tr></thead>
<tbody>{rows}</tbody></table></div>
{notes}
</section>"""


def _row(claim: Claim) -> str:
    verdict = '<td class="holds">✓ holds</td>' if claim.holds else '<td class="fails">✗ fails</td>'
    return (
        f"<tr><td>{escape(claim.claim)}</td><td>{escape(claim.expected)}</td>"
        f'<td class="number">{claim.measured:.4g}</td><td class="number">{claim.standard_error:.2g}</td>{verdict}</tr>'
    )


def _inline_svg(experiment: Experiment) -> str:
    """Return the drawing as an SVG element with ids that no other drawing has."""
    buffer = io.StringIO()
    save_figure(experiment.drawing, buffer)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    for attribute in ('id="', 'xlink:href="#', "url(#"):
        svg = svg.replace(attribute, f"{attribute}{experiment.name}-")
    return svg
