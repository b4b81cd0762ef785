"""Figure 5: logistic regression on the heart-disease survey, for different requests."""

import os
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from guerdon.agents import Cooperative
from guerdon.experiments.claims import SIGNIFICANT, Claim, Experiment, Tell, count_steps, exceeds, mean_over_repetitions
from guerdon.experiments.paper import AGENTS, BALANCED, COST, ESTIMATED, LARGEST, SIZES
from guerdon.figures import GREEN, GREY, RED, SEQUENCE, draw_mean, draw_points, legend, legend_below, panels
from guerdon.problems.heart import VARIABLE, HeartData, load_survey, prepare
from guerdon.requests import FixedRequest
from guerdon.simulation import Stop, Summary, simulate

ROUNDS = 1024
STEP = 0.1
TARGET = 0.755
RULES = {"estimated": ESTIMATED, "balanced": BALANCED}  # on real data the variance is not known
EARLY = 10  # rounds after which accuracies are compared


def ahead() -> None:
    """Read the survey."""
    survey(os.environ.get(VARIABLE))


@lru_cache(1)
def survey(named: str | None) -> HeartData:
    """Return the survey in the file that GUERDON_HEART_DATA names, ready to learn from."""
    del named  # it is what the survey is remembered by
    return prepare(load_survey())


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Train on the survey until 75.5 % of the validation set are right, asking for 1, 2, 4, 8 and 16 samples."""
    step = count_steps(tell, 1 + len(SIZES))
    step("reading the survey")
    data = survey(os.environ.get(VARIABLE))
    problem = data.regression(LARGEST)
    agents, stop = [Cooperative()] * AGENTS, Stop("accuracy", at_least=TARGET)
    found: dict[int, Summary] = {}
    for nu in SIZES:
        step(f"ν = {nu}")
        policy = FixedRequest(nu, STEP)
        found[nu] = simulate(problem, agents, RULES, policy, ROUNDS, repetitions, seed, stop=stop, keep="summary")
    return Experiment(
        "fig5",
        f"Figure 5: the heart-disease survey ({data.label})",
        f"Logistic regression on the {data.label} until {TARGET:.1%} of the validation set are classified "
        "correctly (mean and 95 % band). Left: accuracy rises faster with a larger request. Middle: reward paid "
        "so far under the balanced rule; ν = 2 is cheapest in all. Right: what an honest agent is paid per round,"
        " relative to its cost: the estimated rule underpays it at every ν, the balanced rule does not.",
        partial(_draw, found, data),
        _table(found, data),
        tuple(_claims(found, data)),
        survey=data.label,
    )


def pay_per_round(summary: Summary, rule: str) -> Any:
    """Return the mean reward per agent and round played, for each repetition."""
    return summary.total_reward(rule) / (summary.rounds_played * AGENTS)


def _claims(found: dict[int, Summary], data: HeartData) -> list[Claim]:
    claims: list[Claim] = []
    for small, large in pairwise(SIZES):
        claims.append(_lead(small, large, found))
    totals = {nu: summary.total_reward("balanced") for nu, summary in found.items()}
    cheapest = min(totals, key=lambda nu: float(totals[nu].mean()))
    rival = min((nu for nu in SIZES if nu != 2), key=lambda nu: float(totals[nu].mean()))
    claims.append(Claim("fig5", "the request with the lowest total reward", "2", cheapest, 0.0, cheapest == 2))
    claims.append(exceeds("fig5", f"ν = 2 is cheaper than {rival}, the next cheapest", totals[rival] - totals[2]))
    best = max(float(summary.last_metrics["accuracy"].max()) for summary in found.values())
    claims.append(Claim("fig5", f"best accuracy ({data.label})", f"at least {TARGET}", best, 0.0, best >= TARGET))
    for nu, summary in found.items():
        claims += _honest_pay(nu, summary)
    return claims


def _lead(small: int, large: int, found: dict[int, Summary]) -> Claim:
    """Claim that the larger request is more accurate early on; the error is that of two independent means."""
    low, high = (found[nu].metrics["accuracy"] for nu in (small, large))
    lead, error = float(high.mean[EARLY] - low.mean[EARLY]), float(np.hypot(low.error[EARLY], high.error[EARLY]))
    words = f"after {EARLY} rounds ν = {large} is more accurate than {small}"
    return Claim("fig5", words, "more than 0, by 3 s.e.", lead, error, lead > SIGNIFICANT * error)


def _honest_pay(nu: int, summary: Summary) -> list[Claim]:
    cost = float(COST(nu))
    shortfall = cost - pay_per_round(summary, "estimated")
    value, error = mean_over_repetitions(pay_per_round(summary, "balanced"))
    holds = abs(value - cost) <= max(3 * error, 1e-4 * cost) and abs(value / cost - 1) <= 0.005
    claim, expected = f"balanced variance pays the cost at ν = {nu}", f"{cost:g} within 3 s.e. and 0.5 %"
    return [
        exceeds("fig5", f"estimated variance underpays at ν = {nu} (shortfall per round)", shortfall),
        Claim("fig5", claim, expected, value, error, holds),
    ]


def _draw(found: dict[int, Summary], data: HeartData) -> Any:
    titles = ["accuracy", "reward paid so far, all agents", "honest agent: pay ÷ cost"]
    figure, (left, middle, right) = panels(titles, height=3.0, columns=3)
    figure.suptitle(data.label, fontsize=8, x=0.01, ha="left")
    shown = max(int(np.percentile(summary.rounds_played, 90)) for summary in found.values())
    for (nu, summary), color in zip(found.items(), SEQUENCE, strict=True):
        mean, error = summary.metrics["accuracy"]
        draw_mean(left, np.arange(shown + 1), mean[: shown + 1], error[: shown + 1], color, f"ν = {nu}")
        mean, error = summary.paid["balanced"]
        draw_mean(middle, np.arange(1, shown + 1), mean[:shown], error[:shown], color, f"ν = {nu}")
    left.axhline(TARGET, color=GREY, linewidth=0.8, linestyle=":")
    left.set_ylim(0.6, 0.77)
    _draw_pay(right, found)
    for panel in (left, middle):
        panel.set(xlabel="round", xlim=(0, shown))
    legend_below(figure, left)
    return figure


def _draw_pay(axes: Any, found: dict[int, Summary]) -> None:
    for rule, color, marker in (("estimated", RED, "s"), ("balanced", GREEN, "o")):
        means = [mean_over_repetitions(pay_per_round(summary, rule) / COST(nu)) for nu, summary in found.items()]
        draw_points(axes, range(len(SIZES)), means, fmt=marker, color=color, label=rule)
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.set_xticks(range(len(SIZES)), [str(nu) for nu in SIZES])
    axes.set(xlabel="request ν (logarithmic)", ylim=(0.8, 1.05))
    legend(axes, "lower right")


def _table(found: dict[int, Summary], data: HeartData) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for nu, summary in found.items():
        played = mean_over_repetitions(summary.rounds_played)
        for rule in RULES:
            total = mean_over_repetitions(summary.total_reward(rule))
            pay = mean_over_repetitions(pay_per_round(summary, rule))
            rows.append(
                {"data": data.label, "request": nu, "rule": rule, "cost": float(COST(nu)), "mean_pay": pay.value,
                 "pay_standard_error": pay.error, "mean_total_reward": total.value, "total_standard_error": total.error,
                 "mean_rounds": played.value, "rounds_standard_error": played.error}
            )  # fmt: skip
    return pl.DataFrame(rows)
