"""What the command line prints: tables that explain themselves, and JSON for programs."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from guerdon.cli.tables import new_table
from guerdon.rule import PAID_LABELS, Payments, Status
from guerdon.words import FEWEST

if TYPE_CHECKING:
    from guerdon.lab.certificate import Certificate
    from guerdon.lab.experiments.claims import Claim, Experiment
    from guerdon.lab.planning.forecasts import Plan
    from guerdon.lab.simulation import History, Summary

ROWS_SHOWN = 48


def print_equilibrium(report: dict[str, Any], plot: Path | None) -> None:
    """Print the table of batch sizes, the best response and the equilibria."""
    best, request = report["best_response"], report["request"]
    named = {"information": "information pay", "agreement": "agreement"}
    rule = named.get(report["rule"], f"{report['rule']} variance")
    agents = "1 agent" if report["agents"] == 1 else f"{report['agents']} agents"
    title = f"{agents}, request {request}, h(s) = {report['cost']}, {rule}"
    title += f"; the others use {report['others']}" if report["agents"] > 1 else ""
    table = new_table(title, "batch size", "expected reward", "cost", "utility", "", text=("",))
    rows = report["table"]
    hidden = len(rows) > ROWS_SHOWN
    for row in _worth_showing(rows, {best, request, report["others"]}) if hidden else rows:
        size = row["batch_size"]
        note = "◀ best response" if size == best else "request" if size == request else ""
        figures = (f"{row[key]:.3f}" for key in ("expected_reward", "cost", "utility"))
        table.add_row(str(size), *figures, note, style="bold green" if size == best else None)
    console = Console(emoji=False)
    console.print(table)
    if hidden:
        console.print(f"({len(rows)} batch sizes; --json lists them all)")
    console.print(f"Best response: {_name_size(best, request)}")
    listed = ", ".join(_name_size(size, request) for size in report["symmetric_equilibria"]) or "none"
    console.print(f"Equilibria in which everybody does the same: {listed}")
    if "safe_ratios" in report and report["agents"] > 2:
        low, high = report["safe_ratios"]
        console.print(
            f"Where σ²/V is {report['ratio']:g}, the best size gains {report['largest_gain']:.3f} beyond the request; "
            f"from {low:.3f} {'on' if high is None else f'to {high:.3f}'} nothing."
        )
    _say_if_flat(console, [report["rule"]], report["agents"])
    if not report["exact"]:
        console.print("These numbers are those of many dimensions; in few, this rule pays less.")
    if plot is not None:
        console.print(f"Figure: {plot}", soft_wrap=True, highlight=False, markup=False)


def _say_if_flat(console: Console, rules: Sequence[str], agents: int) -> None:
    """Print that agreement compares nobody, where too few take part."""
    if "agreement" in rules and agents < FEWEST:
        console.print(
            "[yellow]Two agents cannot be compared: agreement pays each of them h(ν) whatever it sends, and one agent "
            "nothing. Take at least three, or another rule.[/]"
        )


def payment_rows(names: list[str], payments: Payments, reasons: list[str]) -> list[dict[str, Any]]:
    """Return each agent's payment, for JSON."""
    return [
        {"agent": name, "reward": float(reward), "status": Status(int(status)).label,
         "distance": _number_or_none(distance), "expected_distance": _number_or_none(expected),
         "variance": _number_or_none(variance), "why": why}
        for name, reward, distance, expected, variance, status, why in zip(names, *payments[1:], reasons, strict=True)
    ]  # fmt: skip


def print_payments(rows: list[dict[str, Any]], title: str) -> None:
    """Print each agent's payment and its reason."""
    table = new_table(title, "agent", "reward", "status", "why", text=("agent", "status", "why"))
    for row in rows:
        table.add_row(escape(row["agent"]), f"{row['reward']:.4f}", row["status"], row["why"])
    console = Console(emoji=False)
    console.print(table)
    total = math.fsum(row["reward"] for row in rows)
    paid = sum(row["status"] in PAID_LABELS for row in rows)
    waiting = sum(row["status"] == Status.WAITING.label for row in rows)
    only = f", {waiting} of them their cost alone" if waiting else ""
    console.print(f"Total {total:.4f}, {paid} of {len(rows)} agents paid{only}")
    if waiting >= FEWEST:
        console.print("This is a first round. --scale V pays it by the variance V that earlier rounds had.")
    if paid and all(row["reward"] == 0 for row in rows):
        console.print("Nothing is released: this rule pays over many rounds, and a single one says too little.")


def certificate_report(certificate: "Certificate") -> dict[str, Any]:
    """Return a certificate, for JSON."""
    same = ("holds", "confidence", "tolerance", "repetitions", "rounds")
    return {name: getattr(certificate, name) for name in same} | {
        "method": "familywise by Bonferroni, Student's t, common random numbers",
        "honest_utility": {"mean": certificate.honest_utility, "standard_error": certificate.honest_error},
        "deviations": [finding._asdict() for finding in certificate.findings],
    }


def print_certificate(certificate: "Certificate", title: str, rule: str, agents: int) -> None:
    """Print what each deviation gains, and the verdict on it."""
    first, last = "deviation of one agent", "verdict"
    table = new_table(title, first, "gain per round", "interval", last, text=(first, last))
    styles = {"deters": "green", "does not deter": "bold red", "undecided": "yellow"}
    for finding in certificate.findings:
        verdict = f"[{styles[finding.verdict]}]{finding.verdict}[/]"
        if finding.verdict == "undecided":
            verdict += f" (about {finding.repetitions_needed:,} repetitions would decide)"
        interval = f"{finding.low:+.3f} … {finding.high:+.3f}"
        table.add_row(escape(finding.deviation), f"{finding.gain:+.3f}", interval, verdict)
    console = Console(emoji=False)
    console.print(table)
    honest = f"{certificate.honest_utility:+.3f} (s.e. {certificate.honest_error:.3f})"
    deterred = f"Deterred: gains at most {certificate.tolerance:.3g}."
    console.print(f"Honest work leaves {honest} per round after cost. {deterred}")
    size = f"{certificate.repetitions} repetitions of {certificate.rounds} rounds"
    together = f"all intervals hold together with {certificate.confidence:.0%} confidence (Bonferroni)."
    console.print(f"{size}; {together}")
    _say_if_flat(console, [rule], agents)


def print_claims(experiments: Sequence["Experiment"], out: Path) -> None:
    """Print one line per claim, what was measured first; then in full those that fail, and where the report is."""
    from guerdon.lab.experiments.claims import used_survey

    console = Console(emoji=False, highlight=False, soft_wrap=True)
    # A terminal gets what fits into its lines, a log all of it.
    fit: Any = {"soft_wrap": False, "no_wrap": True, "overflow": "ellipsis"} if console.is_terminal else {}
    for experiment in experiments:
        console.print(f"[bold]{escape(experiment.title)}[/] ({experiment.seconds:.1f} s)")
        for claim in experiment.claims:
            line = f"{_measured(claim)}  {_mark(claim)} {escape(claim.claim)}; expected: {escape(claim.expected)}"
            console.print(line, **fit)
    claims = [claim for experiment in experiments for claim in experiment.claims]
    for claim in (claim for claim in claims if not claim.holds):
        console.print(f"{_mark(claim)} {escape(claim.figure)} fails: {escape(claim.claim)}")
        console.print(f"  expected: {escape(claim.expected)}; measured: {_measured(claim).strip()}")
    held = sum(claim.holds for claim in claims)
    console.print(f"{held} of {len(claims)} claims hold{used_survey(experiments)} (±: standard error).")
    console.print(f"Report: {out / 'report.html'}", markup=False)


def _measured(claim: "Claim") -> str:
    error = f"± {claim.standard_error:.2g}" if claim.standard_error else ""
    return f"{claim.measured:>10.4g} {error:<9}"


def _mark(claim: "Claim") -> str:
    return "[green]✓[/]" if claim.holds else "[bold red]✗[/]"


def plan_report(plan: "Plan") -> dict[str, Any]:
    """Return a forecast, for JSON."""
    ends = ("median", "low", "high")
    rows = [
        {"policy": o.policy, "request": o.request, "reached": o.reached,
         "rounds": dict(zip(ends, o.rounds, strict=True)), "total_reward": dict(zip(ends, o.total, strict=True))}
        for o in plan.forecasts
    ]  # fmt: skip
    return {"recommended": plan.recommended, "interval": 0.9, "policies": rows}


def print_plan(plan: "Plan", title: str, figure: Path | None) -> None:
    """Print what each policy is expected to need, and which one to choose."""
    table = new_table(title, "request", "rounds", "90 %", "total reward", "90 %", "", text=("request", ""))
    for forecast in plan.forecasts:
        cells = [f"{forecast.rounds[0]:.1f}", "{:.0f} … {:.0f}".format(*forecast.rounds[1:])]
        cells += [f"{forecast.total[0]:,.0f}", "{:,.0f} … {:,.0f}".format(*forecast.total[1:])]
        chosen = forecast.policy == plan.recommended
        late = "" if forecast.reached > 0.95 else f"only {forecast.reached:.0%} arrive"
        note = "◀ recommended" if chosen else late
        table.add_row(forecast.policy, *cells, note, style="bold green" if chosen else None)
    console = Console(emoji=False)
    console.print(table)
    console.print(
        "Medians; 9 of 10 trainings fall into the intervals. Steps are found by the rule, also where ν is fixed."
    )
    if figure is not None:
        console.print(f"Figure: {figure}", soft_wrap=True, highlight=False, markup=False)


def simulation_rows(found: "History | Summary", names: Sequence[str]) -> list[dict[str, Any]]:
    """Return, per kind of agent and rule, the mean reward and profit per round with standard errors."""
    from guerdon.lab.experiments.claims import mean_over_repetitions

    rows: list[dict[str, Any]] = []
    played = found.rounds_played
    for name in dict.fromkeys(names):
        where = [k for k, other in enumerate(names) if other == name]
        for rule, reward in found.total_rewards.items():
            per_round = played * len(where)
            paid = mean_over_repetitions(reward[:, where].sum(axis=1) / per_round)
            gained = mean_over_repetitions((reward - found.total_costs)[:, where].sum(axis=1) / per_round)
            rows.append(
                {"agents": name, "count": len(where), "rule": rule,
                 "mean_reward": paid.value, "reward_standard_error": paid.error,
                 "mean_profit": gained.value, "profit_standard_error": gained.error}
            )  # fmt: skip
    return rows


def print_simulation(found: "History | Summary", rows: list[dict[str, Any]], title: str) -> None:
    """Print what each kind of agent earned, and where training ended."""
    from guerdon.lab.experiments.claims import mean_over_repetitions

    text = ("agents", "rule")
    table = new_table(title, "agents", "count", "rule", "reward per round", "profit per round", text=text)
    for row in rows:
        reward = f"{row['mean_reward']:.3f} ± {row['reward_standard_error']:.3f}"
        profit = f"{row['mean_profit']:+.3f} ± {row['profit_standard_error']:.3f}"
        table.add_row(row["agents"], str(row["count"]), row["rule"], reward, profit)
    console = Console(emoji=False)
    console.print(table)
    console.print(f"± one standard error over {found.repetitions} repetitions.")
    for name, values in found.last_metrics.items():
        sane = values[~found.diverged]
        if len(sane) > 1:
            console.print("Final {}: {:.4g} ± {:.2g}".format(name, *mean_over_repetitions(sane)))
    rules = [row["rule"] for row in rows]
    _say_if_flat(console, rules, sum(row["count"] for row in rows if row["rule"] == rules[0]))
    if found.diverged.any():
        console.print(f"[bold red]{int(found.diverged.sum())} of {found.repetitions} repetitions diverged.[/]")
    if found.interrupted:
        console.print("[yellow]Interrupted: these are the repetitions that were finished.[/]")


def _worth_showing(rows: list[dict[str, Any]], special: set[int]) -> list[dict[str, Any]]:
    """Return the rows near the special sizes, and a few in each power of two."""
    near = {size + step for size in special for step in range(-3, 4)}
    doubling = {round(2 ** (power / 2)) for power in range(2 * len(rows).bit_length())}
    kept = near | doubling | {0, len(rows) - 1}
    return [row for row in rows if row["batch_size"] in kept]


def _name_size(size: int, request: int) -> str:
    if size == 0:
        return "0 (decline)"
    return f"{size} (the request)" if size == request else str(size)


def _number_or_none(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)
