"""The arena's two figures: what pays under which rule, and what the money of each rule buys."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from guerdon.arena.game import RuleResult
from guerdon.arena.settings import ArenaSetting
from guerdon.arena.strategies import STRATEGIES
from guerdon.figures import BLUE, GREEN, GREY, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = [name for name in STRATEGIES if name != "honest"]
SMALL = 7  # points
LEADER = {"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2, "relpos": (0, 0.5)}
WINDOW = (-0.5, 3.0)  # of the money that is drawn; what lies beyond stands at the edge, with its number


def heat_map(setting: ArenaSetting, results: Mapping[str, RuleResult]) -> "Figure":
    """Draw what each strategy gains over honest work under each rule, in units of the cost of an honest round."""
    title = f"Gain over honest work, relative to its cost ({setting.words}, {setting.agents} agents)"
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
    title = f"What self-interested agents are paid, and how good the model gets ({setting.words})"
    figure, (axes,) = panels([title], height=max(3.6, 1.0 + 0.19 * len(results)))
    low, high = WINDOW
    axes.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
    order = sorted(results.values(), key=lambda found: (-found.settled.accuracy, found.settled.paid))
    places = np.linspace(0.98, 0.0, len(order)) if len(order) > 1 else [0.5]
    for found, place in zip(order, places, strict=True):
        money, color = found.settled.paid / (setting.fair * setting.agents), GREEN if found.entrant.ours else BLUE
        point = min(max(money, low), high), found.settled.accuracy
        axes.plot(*point, "o" if found.entrant.ours else "s", color=color, markersize=5, clip_on=False)
        beyond = "" if low <= money <= high else f" ({money:,.0f})"
        axes.annotate(
            f"{_label(found)}{beyond}", point, xytext=(1.06, place), textcoords="axes fraction", fontsize=SMALL,
            va="center", color=color, annotation_clip=False,
            arrowprops=LEADER,
        )  # fmt: skip
    axes.set(xlim=(low - 0.05, high + 0.05), ylim=(-0.03, 1.03))
    axes.set(xlabel="money paid a round, relative to the cost of honest work by all", ylabel="accuracy at the end")
    return figure


def _label(found: RuleResult) -> str:
    return f"{found.entrant.name} *" if found.entrant.ours else found.entrant.name
