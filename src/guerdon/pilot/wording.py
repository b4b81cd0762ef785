"""A pilot's report in words and numbers for people: what the command line, the HTML page and the dashboard show."""

import math

from guerdon.pilot.assessment import AUDIT, HORIZON, RUIN, TOLERANCE, PilotReport, RuleReport
from guerdon.pilot.estimates import Interval

EXPLAINED = (
    f"Half work gains: what half the work earns more than all of it, costs counted; below 0 is good. Deposit: what a "
    f"member may be behind after {HORIZON} rounds with probability {RUIN:g}; none where a rule never charges. Flagged: "
    f"by an audit at α = {AUDIT:g}. A ghost does no work. An honest agent's pay is marked where it is off by more than "
    f"{TOLERANCE:.0%} of the cost."
)
GHOST_WORDS = {"prediction": "a ghost that sends the prediction", "nothing": "a ghost that sends nothing new"}


def title(report: PilotReport) -> str:
    """Return what was tried, in a line."""
    return (
        f"{report.num_agents} agents, {report.rounds} rounds, asked for {report.request} or {report.half} samples, "
        f"h(s) = {report.cost}; they send {report.sends}"
    )


def measured(report: PilotReport) -> list[tuple[str, list[str]]]:
    """Return what was measured, by name, with a text for each rule."""
    columns = [_measures(report, rule) for rule in report.rules]
    return [(rows[0][0], [text for _, text in rows]) for rows in zip(*columns, strict=True)]


def _measures(report: PilotReport, rule: RuleReport) -> list[tuple[str, str]]:
    return [
        ("verdict", rule.words),
        ("half work gains", between(rule.gain)),
        (f"pay for {report.request} samples (cost {report.full_cost:.4g})", between(rule.full_pay)),
        (f"pay for {report.half} samples (cost {report.half_cost:.4g})", between(rule.half_pay)),
        ("pay for one more sample", between(rule.slope)),
        ("honest pay differs over rounds by", number(rule.noise)),
        ("honest pay differs over agents by", number(rule.spread)),
        ("deposit", number(rule.deposit)),
        *((GHOST_WORDS.get(name, name), between(earned)) for name, earned in rule.ghosts.items()),
        ("honest agents flagged", "–" if rule.flagged is None else f"{rule.flagged:.0%}"),
    ]


def honest_rows(report: PilotReport) -> list[tuple[str, list[str]]]:
    """Return for each agent what each rule would pay it for full work, those that are off marked."""
    columns = [rule.agents for rule in report.rules]
    marked = [[between(agent.pay) + (" ◀ off" if agent.off else "") for agent in column] for column in columns]
    names = [agent.agent for agent in columns[0]] if columns else []
    return [(name, [column[seat] for column in marked]) for seat, name in enumerate(names)]


def closing(report: PilotReport) -> list[str]:
    """Return what is said below the numbers: notes, the noise scale, and which rule to use."""
    notes = [f"{rule.rule}: {note}" for rule in report.rules for note in rule.notes]
    has_signal = math.isfinite(report.noise_scale)
    scale = (
        f"The noise scale σ²/‖m‖² is {report.noise_scale:.3g}." if has_signal else "No signal is seen above the noise."
    )
    witness = [] if report.witness is None else [_witness(report.witness)]
    use = f"Use {report.recommended}." if report.recommended else "Use none of these rules here."
    return [*notes, scale, *witness, f"{use} {report.why}"]


def _witness(lost: Interval) -> str:
    if lost.low > 0:
        return (
            f"The server's own data differ from the agents': under a rule with a witness that takes {between(lost)} a "
            "round off everybody's pay."
        )
    return "The server's own data are not seen to differ from the agents' in the mean."


def between(interval: Interval) -> str:
    """Return a number with its interval."""
    if not math.isfinite(interval.value):
        return "not known"
    if not math.isfinite(interval.error):
        return f"{number(interval.value)} (no interval yet)"
    return f"{number(interval.value)} ({number(interval.low)} … {number(interval.high)})"


def number(value: float) -> str:
    """Return a number with a sign a reader can see and three digits or so."""
    if not math.isfinite(value):
        return "not known"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}".replace("-", "−")
