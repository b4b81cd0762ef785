"""The planner's figure, and the table behind it."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from guerdon.lab.experiments.claims import Claim, mean_over_repetitions
from guerdon.lab.experiments.paper import START
from guerdon.lab.experiments.planner_policies import ADAPTIVE, RULE, STEP, PolicySpending, best, select
from guerdon.lab.figures import BLUE, GREEN, GREY, NORMAL_95, ORANGE, RED, draw_points, legend, panels
from guerdon.lab.planning.optimum import Optimum
from guerdon.lab.problems.heart import HeartData
from guerdon.lab.simulation import History

Spent = Mapping[str, list[PolicySpending]]


def draw(spent: Spent, optima: Mapping[float, Optimum], path: History, claims: Sequence[Claim]) -> Any:
    """Draw what every policy pays on linear regression, the requests, the survey, and all ratios to hindsight."""
    titles = ["linear: total ÷ optimum", "linear: what is asked", "heart: total reward", "adaptive ÷ best in hindsight"]
    figure, axes = panels(titles, height=6.6, columns=2, height_ratios=(1, 1.3))
    last = min(optima)
    _draw_linear(axes[0], spent["linear"], optima)
    _draw_path(axes[1], path, last, optima[last])
    _draw_heart(axes[2], spent["heart"])
    _draw_ratios(axes[3], [claim for claim in claims if "hindsight" in claim.claim])
    return figure


def _draw_linear(axes: Any, spent: list[PolicySpending], optima: Mapping[float, Optimum]) -> None:
    sizes = [s.request for s in select(spent, RULE, next(iter(optima)))]
    for place, (target, color) in enumerate(zip(optima, (BLUE, GREEN, ORANGE, RED), strict=True)):
        optimum, ruled = optima[target].total, select(spent, RULE, target)
        values = [mean_over_repetitions(s.totals).value / optimum if s.reached == 1.0 else np.nan for s in ruled]
        style = {"linewidth": 1.2, "marker": "o", "markersize": 3, "label": f"x ≤ {target:g}"}
        axes.plot(range(len(sizes)), values, color=color, **style)
        (adaptive,) = select(spent, ADAPTIVE, target)
        mean, error = mean_over_repetitions(adaptive.totals / optimum)
        beside = [len(sizes) + 0.15 * (place - 1.5)]
        draw_points(axes, beside, [(mean, error)], fmt="D", color=color, markersize=4)
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.set_xticks(range(len(sizes) + 1), [*map(str, sizes), "\nadaptive"])
    axes.set(xlabel="request ν", ylim=(0.9, 2.4))
    legend(axes, "upper center")


def _draw_path(axes: Any, path: History, target: float, optimum: Optimum) -> None:
    errors, asked = path.metrics["error"][:, :-1].ravel(), path.request.ravel()
    edges = np.geomspace(target, START, 16)
    middle, bands = list[float](), list[Any]()
    for low, high in pairwise(edges):
        inside = asked[(errors > low) & (errors <= high) & (asked > 0)]
        if len(inside):
            middle.append(float(np.sqrt(low * high)))
            bands.append(np.percentile(inside, [10, 50, 90]))
    low, median, high = np.array(bands).T
    axes.fill_between(middle, low, high, color=BLUE, alpha=0.22, linewidth=0)
    axes.plot(middle, median, color=BLUE, label="adaptive")
    axes.plot(optimum.errors[:-1], optimum.requests, color=GREY, linestyle="--", marker=".", label="optimum")
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.invert_xaxis()
    axes.set_yticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    axes.set(xlabel="squared error (logarithmic)\ntraining goes to the right", ylabel="request ν (logarithmic)")
    legend(axes, "upper left")


def _draw_heart(axes: Any, spent: list[PolicySpending]) -> None:
    target = spent[0].target
    arrived = [s for s in spent if s.reached == 1.0]
    sizes = sorted({s.request for s in spent if s.request})
    groups = [[s for s in select(arrived, STEP, target) if s.request == nu] for nu in sizes]
    cheapest = [best(group, (STEP,), target) for group in groups if group]
    ruled = select(arrived, RULE, target)
    for chosen, color, words in ((cheapest, ORANGE, "best fixed step in hindsight"), (ruled, GREEN, "the rule's step")):
        places, means = [sizes.index(s.request) for s in chosen], [mean_over_repetitions(s.totals) for s in chosen]
        draw_points(axes, places, means, color=color, marker="o", markersize=4, label=words)
    (adaptive,) = select(spent, ADAPTIVE, target)
    mean, error = mean_over_repetitions(adaptive.totals)
    axes.axhspan(mean - NORMAL_95 * error, mean + NORMAL_95 * error, color=BLUE, alpha=0.22, linewidth=0)
    axes.axhline(mean, color=BLUE, label="adaptive")
    axes.set_xticks(range(len(sizes)), [str(nu) for nu in sizes])
    axes.set(xlabel="request ν", ylim=(0, None), xlim=(-0.3, len(sizes) - 0.7))
    legend(axes, "lower left")


def _draw_ratios(axes: Any, rows: Sequence[Claim]) -> None:
    for place, claim in enumerate(rows):
        bound, bar = float(claim.expected.split()[-1]), [NORMAL_95 * claim.standard_error]
        color = GREEN if claim.holds else RED
        axes.errorbar([claim.measured], [-place], xerr=bar, fmt="o", color=color, capsize=3, markersize=4)
        axes.plot([bound, bound], [-place - 0.35, -place + 0.35], color=GREY, linewidth=1.5)
    axes.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_yticks([-place for place in range(len(rows))], [c.claim.split(": adaptive")[0] for c in rows])
    axes.set_xlabel("ratio (grey bar: at most)")


def table(spent: Spent, optima: Mapping[float, Optimum], data: HeartData) -> pl.DataFrame:
    """Return what every policy paid up to every target."""
    rows: list[dict[str, Any]] = []
    for name, found in spent.items():
        for s in found:
            total, rounds = mean_over_repetitions(s.totals), mean_over_repetitions(s.rounds)
            rows.append(
                {"problem": name, "data": data.label if name in ("heart", "network") else "", "policy": s.policy,
                 "request": s.request or None, "step": None if np.isnan(s.step) else s.step, "target": s.target,
                 "mean_total_reward": total.value, "standard_error": total.error, "mean_rounds": rounds.value,
                 "rounds_standard_error": rounds.error, "reached": s.reached, "repetitions": len(s.totals),
                 "optimum": optima[s.target].total if name == "linear" else None}
            )  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)
