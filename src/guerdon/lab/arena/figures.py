"""The arena's two figures: what pays under which rule, and what the money of each rule buys."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from guerdon.lab.arena.contest import RuleResult
from guerdon.lab.arena.settings import ArenaSetting
from guerdon.lab.arena.strategies import STRATEGIES
from guerdon.lab.figures import BLUE, GREEN, GREY, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = [name for name in STRATEGIES if name != "honest"]
SMALL = 7  # points
LEADER = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
NEAR = (0.08, 0.03)  # money and accuracy by which points may differ that have a line in common
WINDOW = (-0.5, 3.0)  # of the money that is drawn; what lies beyond stands at the edge, with its number


def heat_map(setting: ArenaSetting, results: Mapping[str, RuleResult]) -> "Figure":
    """Draw what each strategy gains over honest work under each rule, in units of the cost of an honest round."""
    title = f"Gain over honest work, relative to its cost\n{setting.words}, {setting.agents} agents"
    figure, (axes,) = panels([title], height=1.4 + 0.235 * len(results))
    rows = [[found.gains[name].value for name in SHOWN] + [found.best.gain.value] for found in results.values()]
    values = np.array(rows) / setting.fair
    axes.imshow(np.clip(values, -1, 1), cmap="RdBu_r", vmin=-1.3, vmax=1.3, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        text = "<−9" if value < -9 else f"{value:.0f}" if abs(value) >= 9.5 else f"{value:.1f}".replace("-0.0", "0.0")
        color = "white" if abs(value) > 0.9 else "black"
        axes.text(column, row, text.replace("-", "−"), ha="center", va="center", fontsize=SMALL, color=color)
    axes.set_xticks(range(len(SHOWN) + 1), [*SHOWN, "best found"], rotation=35, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(results)), [_label(found) for found in results.values()])
    axes.axvline(len(SHOWN) - 0.5, color="white", linewidth=3)
    axes.grid(False)
    axes.tick_params(length=0)
    return figure


def money_map(setting: ArenaSetting, results: Mapping[str, RuleResult]) -> "Figure":
    """Draw money paid against accuracy reached by agents that look after themselves, one point per rule."""
    title = f"What self-interested agents are paid, and how good the model gets\n{setting.words}"
    figure, (axes,) = panels([title], height=max(3.6, 1.0 + 0.19 * len(results)))
    by_all = setting.fair * setting.agents
    axes.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
    for found in results.values():
        settled, color = found.settled, GREEN if found.entrant.ours else BLUE
        across = settled.paid.error / by_all if _inside(found, by_all) else None
        axes.errorbar(
            *_place(found, by_all), settled.accuracy.error, across, "o" if found.entrant.ours else "s", color=color,
            markersize=4, elinewidth=0.8, clip_on=False,
        )  # fmt: skip
    _name_points(axes, _neighbours(results, by_all), by_all)
    low, high = WINDOW
    reached = [found.settled.accuracy.value for found in results.values()]
    axes.set(xlim=(low - 0.05, high + 0.05), ylim=(min(reached) - 0.03, max(reached) + 0.03))
    axes.set(xlabel="money paid a round, relative to the cost of honest work by all", ylabel="accuracy at the end")
    return figure


def _place(found: RuleResult, by_all: float) -> tuple[float, float]:
    """Return where a rule is drawn: what lies beyond the window is drawn at its edge."""
    return float(np.clip(found.settled.paid.value / by_all, *WINDOW)), found.settled.accuracy.value


def _inside(found: RuleResult, by_all: float) -> bool:
    return WINDOW[0] <= found.settled.paid.value / by_all <= WINDOW[1]


def _neighbours(results: Mapping[str, RuleResult], by_all: float) -> list[list[RuleResult]]:
    """Return the rules from the best model to the worst, those together that are drawn at about the same place."""
    groups = list[list[RuleResult]]()
    for found in sorted(results.values(), key=lambda found: (-found.settled.accuracy.value, found.settled.paid.value)):
        apart = [np.subtract(_place(found, by_all), _place(group[0], by_all)) / NEAR for group in groups]
        home = next((group for group, far in zip(groups, apart, strict=True) if np.hypot(*far) <= 1), None)
        groups.append([found]) if home is None else home.append(found)
    middle = np.mean([_place(ends[0], by_all)[1] for ends in (groups[0], groups[-1])])

    def height_then_nearness(group: list[RuleResult]) -> tuple[float, float]:  # so that few lines to the names cross
        money, accuracy = _place(group[0], by_all)
        return -round(accuracy, 1), -money if accuracy > middle else money

    return sorted(groups, key=height_then_nearness)


def _name_points(axes: "Axes", groups: list[list[RuleResult]], by_all: float) -> None:
    """Write the names beside the axes, with a bracket around neighbours and one line to where they are."""
    lines = sum(map(len, groups)) + len(groups) - 1  # an empty line between groups
    height, row = 1 / max(lines, 1), 0
    for group in groups:
        places = [1 - height * (row + number + 0.5) for number in range(len(group))]
        row += len(group) + 1
        for found, place in zip(group, places, strict=True):
            beyond = "" if _inside(found, by_all) else f" ({found.settled.paid.value / by_all:,.0f})".replace("-", "−")
            color = GREEN if found.entrant.ours else BLUE
            axes.text(1.07, place, _label(found) + beyond, transform=axes.transAxes, fontsize=SMALL, va="center",
                      color=color)  # fmt: skip
        ends = [places[0] + 0.35 * height, places[-1] - 0.35 * height]
        axes.plot([1.055, 1.055], ends, transform=axes.transAxes, color=GREY, linewidth=0.8, clip_on=False)
        axes.annotate("", _place(group[0], by_all), xytext=(1.055, sum(ends) / 2), textcoords="axes fraction",
                      annotation_clip=False, arrowprops=LEADER)  # fmt: skip


def _label(found: RuleResult) -> str:
    return f"{found.entrant.name} *" if found.entrant.ours else found.entrant.name
