"""The arena's two figures: what pays under which rule, and what the money of each rule buys."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from guerdon.arena.game import RuleResult
from guerdon.arena.settings import ArenaSetting
from guerdon.arena.strategies import STRATEGIES
from guerdon.figures import BLUE, GREEN, GREY, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = [name for name in STRATEGIES if name != "honest"]
SMALL = 7  # points


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
    figure, (axes,) = panels([title], height=4.8)
    fair = setting.fair * setting.agents
    axes.axvline(1, color=GREY, linewidth=0.8, linestyle=":")
    placed = [(found.settled.paid / fair, found.settled.accuracy, found) for found in results.values()]
    for money, accuracy, found in placed:
        ours = found.entrant.ours
        axes.plot(money, accuracy, "o" if ours else "s", color=GREEN if ours else BLUE, markersize=5)
    axes.margins(0.15)
    figure.canvas.draw()
    _name_points(axes, placed)
    axes.set(xlabel="money paid a round, relative to the cost of honest work by all", ylabel="accuracy at the end")
    return figure


def _name_points(axes: Any, placed: list[tuple[float, float, RuleResult]]) -> None:
    """Write names beside points; those that would meet are listed below each other, joined to their points."""
    shown = [(axes.transData.transform((x, y)), (x, y), found) for x, y, found in placed]
    taken: list[tuple[float, float]] = []
    room = 9 * axes.figure.dpi / 72
    for (across, up), point, found in sorted(shown, key=lambda one: -one[0][1]):
        height = up
        while any(abs(across - x) < 9 * room and abs(height - y) < room for x, y in taken):
            height -= room / 2
        taken.append((across, height))
        axes.annotate(
            _label(found), point, xytext=(10, (height - up) * 72 / axes.figure.dpi), textcoords="offset points",
            fontsize=SMALL, va="center", color=GREEN if found.entrant.ours else "black",
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2},
        )  # fmt: skip


def _label(found: RuleResult) -> str:
    return f"{found.entrant.name} *" if found.entrant.ours else found.entrant.name
