"""The command line of the audit: `guerdon audit`. The ledger itself is imported inside the command."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from guerdon.cli.options import DEFAULT, DbOption, JsonOption, need, open_ledger
from guerdon.cli.tables import print_json, print_table
from guerdon.statistical.bets import TESTS, limit
from guerdon.statistical.groups import SuspiciousGroup, suspicious_group
from guerdon.statistical.pairs import SuspiciousPair, suspicious_pairs

if TYPE_CHECKING:
    from guerdon.ledger import Ledger
    from guerdon.ledger.read.auditing import RunAudit

FORMATS = (".svg", ".png", ".pdf")
SAYS: dict[str, str] = dict(zip(TESTS, ("tell less than", "are shorter than", "are longer than"), strict=True))
WITHHELD = (
    "Nobody is accused: agents differ among themselves even without those that could be accused, so their data are not "
    "alike. --alike does not hold here."
)
HEADINGS = ("agent", "verdict", "against", "for", "told more")  # no wider than 80 columns


def audit(
    run: Annotated[str | None, typer.Argument(help="Name of the run; may be left out if there is only one.")] = None,
    db: DbOption = DEFAULT,
    alpha: Annotated[
        float, typer.Option(help="Rate of false verdicts: the largest share of honest agents that ever gets one.")
    ] = 0.001,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Draw the evidence too: .svg, .png or .pdf.")
    ] = None,
    alike: Annotated[
        bool, typer.Option("--alike", help="All agents draw fresh samples of the same kind: accuse those that differ.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Test whether each agent's reports differ from the others', and whether they tell anything.

    A difference may come from an agent's data. Only with --alike is it an accusation. Exit status 1 if an agent or a
    pair of agents is accused, 2 if the audit cannot run. It only reads: no money moves on statistics.
    """
    limit(alpha)
    if out is not None:
        if out.suffix not in FORMATS:
            raise ValueError(f"`--out` must end in {', '.join(FORMATS)}, got {out}")
        need("--out", "sim", "matplotlib")
    with open_ledger(db) as ledger:
        name = _find(ledger, run)
        found = ledger.audit(name, alpha, alike=alike)
        pairs, group = _together(ledger, name, alpha, alike=alike)
    if out is not None and found.trail.rounds:
        _draw(found, out)
    if as_json:
        print_json(_report(found, pairs, group))
    else:
        _print(found, pairs, group)
    if (pairs and alike) or any(finding.verdict == "accused" for finding in found.findings):
        raise typer.Exit(1)


def _find(ledger: "Ledger", name: str | None) -> str:
    """Return the name of the run to audit, or raise with a list of the runs."""
    known = [run.name for run in ledger.runs()]
    if not known:
        raise ValueError(f"there is nothing to audit: no run has begun in {ledger.where}")
    if name is None and len(known) == 1:
        return known[0]
    if name is None or name not in known:
        shown = ", ".join(map(repr, known[:10])) + (" …" if len(known) > 10 else "")
        raise ValueError(f"RUN must name a run of the ledger ({shown}), got {'none' if name is None else repr(name)}")
    return name


def _together(
    ledger: "Ledger", run: str, alpha: float, *, alike: bool
) -> tuple[list[SuspiciousPair] | None, SuspiciousGroup | None]:
    """Return the suspicious pairs and the group in a run's last checkpoint; None where pairs were not watched.

    Members with similar data are a group, too: none is named unless all are alike.
    """
    resumed = ledger.resume(run)
    wealth = None if resumed is None else resumed.arrays.get("lens", {}).get("pairs.wealth")
    if wealth is None:
        return None, None
    return suspicious_pairs(wealth, alpha), suspicious_group(wealth, alpha) if alike else None


def _draw(found: "RunAudit", out: Path) -> None:
    from guerdon.lab.figures import audit_figure, save_figure

    differs = [finding.differs_in for finding in found.findings]
    title = f"How the agents of run {found.run} differ"
    save_figure(audit_figure(found.rounds, found.trail.against, found.agents, differs, found.alpha, title), out)


def _report(
    found: "RunAudit",
    pairs: list[SuspiciousPair] | None,
    group: SuspiciousGroup | None,
) -> dict[str, Any]:  # for JSON: evidence in powers of ten
    def power(evidence: float) -> float:
        return evidence / math.log(10)

    agents = [
        {"agent": name, "number": number, "verdict": finding.verdict, "log10_evidence_against": power(finding.against),
         "highest_log10_evidence_against": power(finding.highest), "differs_in": found.round_of(finding.differs_in),
         "because": None if finding.differs_in is None else finding.because,
         "log10_evidence_for": power(finding.informed), "cleared_to": found.round_of(finding.cleared_to),
         "told_more": None if math.isnan(finding.advantage) else finding.advantage,
         "compared_rounds": finding.compared}
        for name, number, finding in zip(found.agents, found.numbers, found.findings, strict=False)
    ]  # fmt: skip
    listed = None if pairs is None else [
        {"agents": [found.agents[pair.first], found.agents[pair.second]], "log10_evidence": power(pair.evidence)}
        for pair in pairs
    ]  # fmt: skip
    shared = None if group is None else {
        "agents": [found.agents[member] for member in group.members],
        "strength": group.strength, "expected": group.expected,
    }  # fmt: skip
    return {
        "run": found.run, "alpha": found.alpha, "alike": found.alike, "rounds": found.trail.rounds,
        "agents": agents, "can_clear": found.can_clear, "pairs": listed, "group": shared,
    }  # fmt: skip


def _print(
    found: "RunAudit",
    pairs: list[SuspiciousPair] | None,
    group: SuspiciousGroup | None,
) -> None:
    title = f"Audit of run {found.run}: {found.trail.rounds} rounds, α = {found.alpha:g}"
    empty = f"Run {found.run} has no round yet: there is nothing to audit."
    print_table(title, HEADINGS, _cells(found), text=HEADINGS[:2], empty=empty)
    if not found.trail.rounds:
        return
    console = Console(emoji=False, soft_wrap=True, highlight=False)
    for line in [*_sentences(found, pairs), *_shared(found, group)]:
        console.print(escape(line))


def _cells(found: "RunAudit") -> list[list[str]]:
    from guerdon.ledger.read.auditing import odds

    def verdict(finding: Any) -> str:
        if finding.verdict in ("accused", "differs"):
            return f"{finding.verdict} {'in' if found.alike else 'since'} round {found.round_of(finding.differs_in)}"
        if finding.verdict == "cleared":
            return f"cleared to round {found.round_of(finding.cleared_to)}"
        return finding.verdict

    return [
        [
            f"{name} #{number}", verdict(finding),
            odds(finding.against if finding.differs_in is None else finding.highest),
            odds(finding.informed) if found.can_clear else "–",
            "–" if math.isnan(finding.advantage) else f"{finding.advantage:+.2f}",
        ]
        for name, number, finding in zip(found.agents, found.numbers, found.findings, strict=False)
    ]  # fmt: skip


def _sentences(found: "RunAudit", pairs: list[SuspiciousPair] | None) -> list[str]:
    from guerdon.ledger.read.auditing import odds

    each = f"{1 / found.alpha:,.0f}"
    accused, differs = "is accused", "differs from the others in a stable way; that may be its data"
    lines = [
        f"{name} {accused if finding.verdict == 'accused' else differs}: "
        f"its reports {SAYS[finding.because]} the others'."
        for name, finding in zip(found.agents, found.findings, strict=False)
        if finding.differs_in is not None
    ]
    if found.is_withheld:
        lines.append(WITHHELD)
    lines += [
        f"At most one in {each} honest agents is ever accused, on average, however often you look, if they differ only "
        "by chance."
        if found.alike
        else "Nobody is accused: agents may have different data. If all draw fresh samples of the same kind, give "
        "--alike.",
        "Told more: how much more than the others on average, in the noise of one report. Honest work has 0, no "
        "information -1 or less.",
    ]
    if found.can_clear:
        lines.append(f"For: evidence that the reports add to what is public; at {each} to 1 the agent is cleared.")
    else:
        lines.append("Nobody can be cleared: this run's evidence was not gathered around a public prediction.")
    if pairs is None:
        lines.append("Pairs were not watched in this run.")
    elif not pairs:
        lines.append("No pair of agents stands out by agreeing more than independent samples can.")
    else:
        lines += [
            f"{found.agents[pair.first]} and {found.agents[pair.second]} agree more than independent samples of the "
            f"same kind can: {odds(pair.evidence)}{'' if found.alike else '; that may be their data'}."
            for pair in pairs
        ]
    return lines


def _shared(found: "RunAudit", group: SuspiciousGroup | None) -> list[str]:
    """Return in words what a group shares. It accuses nobody: one of them may be there by chance."""
    if group is None:
        return []
    other = "; or the others have" if 3 * len(group.members) > len(found.agents) else ""
    *most, last = (found.agents[member] for member in group.members)
    return [
        f"{', '.join(most)} and {last} share something that the others do not have: strength {group.strength:.1f}, "
        f"where chance exceeds {group.expected:.1f} in one look of {1 / found.alpha:,.0f}. That may be "
        f"noise that they agreed on{other}. Nobody is accused of it."
    ]
