"""The figure of verified work: real agents under four rules, and strategies under looks alone."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from guerdon.lab.figures import BLUE, GREEN, GREY, NORMAL_95, ORANGE, RED, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from guerdon.lab.experiments.looks import Tried
    from guerdon.lab.experiments.looks_attacks import Earned

# Of each rule: its name in the figure, colour, and place above or below the middle of a row.
RULES = {
    "flat": ("flat pay", GREY, 0.27),
    "agreement": ("agreement", ORANGE, 0.09),
    "steady": ("steady pay", BLUE, -0.09),
    "two looks, all": ("flat pay, two looks", GREEN, -0.27),
}
MARKS = {"survey": "o", "network": "s", "four hospitals": "D"}
WITHOUT = {
    "one look, no margin": ("one look", BLUE, 0.14),
    "two looks, all, no margin": ("two looks, all forfeited", GREEN, -0.14),
}
LEAST, MOST = -1.5, 2.25  # of the cost, between which gains are drawn; what is beyond lies at the edge


def draw(tried: Sequence["Tried"], earned: Sequence["Earned"], fair: float) -> "Figure":
    """Draw what cheats gain over honest work, as a share of the cost `fair` of a round."""
    attacks = list(dict.fromkeys(one.attack for one in earned))
    strategies = list(dict.fromkeys(one.strategy for one in tried))
    titles = ("Real agents: gain over honest work (margin 5 %)", "Strategies under looks alone, without a margin")
    ratios = (len(attacks) + 1, len(strategies) + 1)
    figure, (above, below) = panels(titles, 8.6, height_ratios=ratios)
    for one in earned:
        if one.rule in RULES:
            _, color, shift = RULES[one.rule]
            place = len(attacks) - 1 - attacks.index(one.attack) + shift
            _point(above, one.gain, fair, place, color=color, marker=MARKS[one.problem], markersize=3.2)
    for one in tried:
        if one.terms in WITHOUT:
            _, color, shift = WITHOUT[one.terms]
            place = len(strategies) - 1 - strategies.index(one.strategy) + shift
            _point(below, one.gain, fair, place, color=color, marker="o", markersize=3.2)
    _axes(above, attacks, (LEAST, MOST))
    _axes(below, strategies, (-1.1, 0.22))
    _legend(above, RULES.values(), "lower right")
    _legend(below, WITHOUT.values(), "center left")
    shapes = ", ".join(f"{sign} {name}" for name, sign in zip(MARKS, "●■◆", strict=True))
    above.set_xlabel(f"share of the cost of a round ({shapes})")
    below.set_xlabel("share of the cost of a round")
    return figure


def _point(axes: Any, gain: Any, fair: float, place: float, **style: Any) -> None:
    value, error = gain.value / fair, NORMAL_95 * gain.error / fair
    shown = float(np.clip(value, LEAST, MOST))
    bar = error if shown == value else None
    axes.errorbar(shown, place, xerr=bar, elinewidth=0.9, linestyle="", clip_on=False, **style)


def _axes(axes: Any, names: Sequence[str], limits: tuple[float, float]) -> None:
    axes.axvspan(0, limits[1], color=RED, alpha=0.08, linewidth=0)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set(xlim=limits, ylim=(-0.6, len(names) + 0.2))  # room for the words
    axes.set_yticks(range(len(names)), names[::-1], fontsize=7)
    axes.tick_params(axis="y", length=0)
    for words, color, side in (("cheating loses ", GREY, "right"), (" cheating pays", RED, "left")):
        axes.text(0, len(names) + 0.15, words, color=color, fontsize=7, ha=side, va="top")


def _legend(axes: Any, entries: Iterable[tuple[str, str, float]], where: str) -> None:
    for name, color, _ in entries:
        axes.plot([], [], linestyle="", color=color, marker="o", markersize=4, label=name)
    axes.legend(loc=where, frameon=False, fontsize=7)
