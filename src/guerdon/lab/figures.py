"""Figures in one visual language: colours that colour-blind readers can tell apart, few lines, honest axes.

All are drawn as wide as a printed page, with no letter smaller than 7 points, and without pixels: fit for print.
"""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guerdon.lab.game import MinibatchGame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
# For an ordered family of curves (batch sizes 1, 2, 4, 8, 16): dark to light, each step visible in grey too.
SEQUENCE = ("#440154", "#3B528B", "#21918C", "#5EC962", "#D9B500")
NORMAL_95 = 1.96
PAGE, TEXT = 7.0, 8  # the width of every figure in inches, and what is written in it in points
POWERS = 10  # points of 10ᵏ, whose exponent is smaller

STYLE: dict[Any, Any] = {
    "figure.dpi": 200,
    "font.size": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "legend.frameon": False,
    "svg.hashsalt": "guerdon",
    "pdf.fonttype": 42,  # TrueType: publishers refuse the default
}


def utility_figure(game: MinibatchGame, others: int, cost_text: str) -> "Figure":
    """Draw one agent's expected reward, cost and utility over its batch size, with all others at `others`."""
    import matplotlib as mpl
    from matplotlib.ticker import MaxNLocator

    utility = game.utilities(0, [others] * game.num_agents)[1:]
    sizes = range(1, game.max_batch + 1)
    cost = [game.cost(size) for size in sizes]
    best = game.best_response(0, [others] * game.num_agents)
    title = f"What pays: {game.num_agents} agents, h(s) = {cost_text}, {game.rule} variance, the others at {others}"
    figure, (axes,) = panels([title], height=4.0)
    with mpl.rc_context(STYLE):
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.plot(sizes, utility + cost, ".-", color=BLUE, markersize=4, label="expected reward")
        axes.plot(sizes, cost, color=ORANGE, linestyle="--", label="cost h(s)")
        axes.plot(sizes, utility, ".-", color=GREEN, linewidth=2.2, label="utility = reward − cost")
        axes.axvline(game.request, color=GREY, linewidth=0.8, linestyle=":")
        place = (best, float(utility[best - 1]) if best else 0.0)
        axes.plot(*place, "o", color=RED, zorder=5, clip_on=False)
        note = {"xytext": (8, 8), "textcoords": "offset points", "color": RED, "fontweight": "bold"}
        axes.annotate(f"best response: {best or 'decline'}", place, **note)
        # The loss at tiny batches has no limit: cut it, so that the choice itself can be seen.
        axes.set(ylim=_window(utility, utility + cost, others), xlim=(0, game.max_batch))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        secretly = f"batch size s that the agent secretly uses (requested: {game.request})"
        axes.set(xlabel=secretly, ylabel="per round, in units of cost")
        axes.legend(loc="best")
    return figure


def save_figure(figure: "Figure", target: Path | io.StringIO) -> None:
    """Write a figure to a file of any kind, or as SVG to a buffer; the same data give the same bytes.

    It is laid out when it is first written, and stays so: that is half of the work, and alike for all kinds.
    """
    import matplotlib as mpl

    kind = target.suffix[1:].lower() if isinstance(target, Path) else "svg"
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with mpl.rc_context(STYLE):
        if (layout := figure.get_layout_engine()) is not None:
            layout.execute(figure)
            figure.set_layout_engine(None)
        figure.savefig(target, format=kind, metadata=undated.get(kind))


def as_svg(figure: "Figure") -> str:
    """Return a figure as the text of an SVG file."""
    buffer = io.StringIO()
    save_figure(figure, buffer)
    return buffer.getvalue()


def panels(titles: Sequence[str], height: float, columns: int = 1, **grid: Any) -> tuple["Figure", list[Any]]:
    """Return a figure, as wide as a page and `height` inches high, with one panel per title, in the house style."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE, height), layout="constrained")
        axes: list[Any] = list(figure.subplots(-(-len(titles) // columns), columns, squeeze=False, **grid).flat)
        for panel in axes[len(titles) :]:
            panel.remove()
        for panel, title in zip(axes, titles, strict=False):
            panel.set_title(title)
    return figure, axes[: len(titles)]


def draw_mean(axes: Any, x: Any, mean: Any, error: Any, color: str, label: str) -> None:
    """Draw a mean with its 95 % confidence band."""
    axes.fill_between(x, mean - NORMAL_95 * error, mean + NORMAL_95 * error, color=color, alpha=0.22, linewidth=0)
    axes.plot(x, mean, color=color, label=label, linewidth=1.6)


def draw_points(axes: Any, x: Any, means: Sequence[tuple[float, float]], **style: Any) -> None:
    """Draw means, each given with its standard error, with their 95 % confidence intervals."""
    values, errors = zip(*means, strict=True)
    axes.errorbar(x, values, [NORMAL_95 * error for error in errors], capsize=3, **style)


def legend(axes: Any, place: str, columns: int = 1) -> None:
    """Add the legend, without a frame."""
    axes.legend(loc=place, ncols=columns, frameon=False, fontsize=TEXT)


def legend_below(figure: "Figure", axes: Any) -> None:
    """Add one legend for a family of curves that several panels share, below them all."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=TEXT)


def plan_figure(report: dict[str, Any], title: str) -> "Figure":
    """Draw the trade-off that a forecast's report shows: total reward against rounds, with 90 % intervals."""
    figure, (axes,) = panels([title], height=4.4)
    for row in report["policies"]:
        chosen, fixed = row["policy"] == report["recommended"], row["request"] is not None
        color = RED if chosen else GREY if fixed else BLUE
        rounds, total = row["rounds"], row["total_reward"]
        bars = [[[x["median"] - x["low"]], [x["high"] - x["median"]]] for x in (total, rounds)]
        place = rounds["median"], total["median"]
        axes.errorbar(*place, *bars, fmt="o" if fixed else "D", color=color, capsize=3, linewidth=1)
        label = f"{row['policy']} (recommended)" if chosen else row["policy"]
        # Fixed requests are named above their bars and the adaptive rule below, so that neighbours do not collide.
        end, away, side = (total["high"], 5, "bottom") if fixed else (total["low"], -5, "top")
        axes.annotate(
            label, (place[0], end), xytext=(0, away), textcoords="offset points", color=color, ha="center", va=side
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.margins(x=0.12)
    axes.set(ylim=(0, None), xlabel="rounds until the target (logarithmic)", ylabel="total reward, all agents")
    return figure


def audit_figure(
    rounds: Any, evidence: Any, names: Sequence[str], differs: Sequence[int | None], alpha: float, title: str
) -> "Figure":
    """Draw the evidence against each agent over the rounds, as odds, and the line beyond which it differs.

    `evidence` (rounds, agents) is a logarithm; `differs` holds for each agent the index of a round, or None.
    """
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = panels([_no_math(title)], height=4.4)
    powers, threshold = np.asarray(evidence) / np.log(10), -np.log10(alpha)
    like_others = [index for index, since in enumerate(differs) if since is None]
    for index in like_others:
        label = "like the others" if index == like_others[0] else None
        axes.plot(rounds, powers[:, index], color=BLUE, linewidth=1.0, alpha=0.55, label=label)
    unusual = [(index, since) for index, since in enumerate(differs) if since is not None]
    for index, since in unusual:
        axes.plot(rounds, powers[:, index], color=RED, linewidth=1.8)
        axes.plot([rounds[since]], [powers[since, index]], "o", color=RED, zorder=5)
    _name_ends(axes, rounds, powers, [(index, f"{names[index]}, round {rounds[since]}") for index, since in unusual])
    axes.axhline(threshold, color=GREY, linewidth=1.2, linestyle="--", label=f"differs: {1 / alpha:,.0f} to 1")
    lowest = float(powers[:, like_others].min(initial=0.0))
    axes.set_ylim(min(-1.5, 1.1 * lowest), 1.3 * max(threshold, float(powers.max())))  # room for the legend
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(_as_odds)
    axes.tick_params(axis="y", labelsize=POWERS)
    axes.set(xlabel="round", ylabel="evidence of a difference, as odds")
    legend(axes, "upper left")
    return figure


def pilot_figure(report: Any) -> "Figure":
    """Draw what each rule would have paid for half the work and for all of it, beside what the work costs."""
    titles = [_no_math(rule.rule) for rule in report.rules] or [""]
    figure, axes = panels(titles, height=2.6 * -(-len(titles) // 2), columns=2)
    work, costs = [report.half, report.request], [report.half_cost, report.full_cost]
    for panel, rule in zip(axes, report.rules, strict=False):  # without any round there is no rule to draw
        pay = [rule.half_pay, rule.full_pay]
        reach = [[x.value - x.low if x.error < math.inf else 0.0 for x in pay]] * 2  # intervals are symmetric
        panel.plot(work, costs, color=ORANGE, linestyle="--", label="cost h(s)")
        panel.errorbar(work, [x.value for x in pay], reach, color=BLUE, marker="o", capsize=4, label="pay")
        panel.set_xlim(0, 1.25 * report.request)
        panel.set_xticks(work)
        panel.set_xlabel("samples used")
        panel.set_ylabel("per round")
        legend(panel, "best")
    return figure


def _as_odds(power: float, _: int) -> str:
    """Return a power of ten as odds: $10^3$ to 1."""
    return f"$10^{{{power:.0f}}}$ to 1" if power > 0 else "even" if power == 0 else f"1 to $10^{{{-power:.0f}}}$"


def _name_ends(axes: Any, rounds: Any, heights: Any, labels: Sequence[tuple[int, str]]) -> None:
    """Write names at the right ends of curves, moved apart where the curves are close."""
    room = 0.055 * max(float(heights.max()), 1.0)
    below = -float("inf")
    for index, label in sorted(labels, key=lambda one: float(heights[-1, one[0]])):
        below = max(float(heights[-1, index]), below + room)
        place = (rounds[-1], below)
        axes.annotate(_no_math(label), place, xytext=(6, 0), textcoords="offset points", color=RED, va="center")


def _no_math(text: str) -> str:
    """Return text that matplotlib prints as it is: names may contain dollar signs, and long ones are cut."""
    return (text if len(text) <= 60 else text[:59] + "…").replace("$", r"\$")


def _window(utility: Any, reward: Any, others: int) -> tuple[float, float]:
    """Return y-limits around the part of the curves where the agent would look for its best choice."""
    top = float(max(reward.max(), utility.max()))
    bottom = float(min(utility[max(others // 3, 1) - 1 :].min(), -0.25 * top))
    margin = 0.08 * (top - bottom)
    return bottom - margin, top + margin
