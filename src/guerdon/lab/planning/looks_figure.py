"""The picture of a plan of looks: what each cheat loses, and what other terms would show and hold."""

from typing import TYPE_CHECKING, Any

from guerdon.costs import Cost
from guerdon.lab.figures import BLUE, GREY, ORANGE, RED, SEQUENCE, TEXT, legend, panels
from guerdon.looks.plan import Plan, trade

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS, PERIODS = (1, 2, 4), (25, 50, 100)  # half and twice the defaults


def looks_figure(
    found: Plan, cost: Cost, request: int, rounds: int, title: str, *, epsilon: float = 0.0, delta: float = 0.0
) -> "Figure":
    """Draw what each cheat loses under both ways to forfeit, and rows shown against money held.

    `found`: of `guerdon.looks.plan.plan` with the same arguments, in the unit of the cost. `title`: stands above.

    >>> from guerdon.costs import AffineCost
    >>> from guerdon.looks.plan import plan
    >>> cost = AffineCost(1, 1)
    >>> len(looks_figure(plan(cost, 16, 200), cost, 16, 200, "200 rounds of 16 rows").axes)
    2
    """
    plans = trade(
        cost, request, rounds, found.terms, margins=[found.terms.margin], looks=LOOKS, periods=PERIODS,
        epsilon=epsilon, delta=delta,
    )  # fmt: skip
    figure, (left, right) = panels(["What each cheat loses", "What the terms ask of a member"], 3.4, columns=2)
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    _draw_losses(left, found)
    _draw_trade(right, found, plans)
    return figure


def _draw_losses(axes: Any, found: Plan) -> None:
    cheats = list(zip(found.behaviours[2::2], found.behaviours[3::2], strict=True))
    places = range(len(cheats))
    for side, (color, words) in enumerate(((BLUE, "a failed look forfeits its share"), (ORANGE, "… forfeits all"))):
        losses = [-pair[side].against_honest for pair in cheats]
        bars = axes.barh([place + 0.38 * side for place in places], losses, height=0.36, color=color, label=words)
        axes.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=TEXT - 1, color=GREY)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_yticks([place + 0.19 for place in places], [pair[0].name for pair in cheats])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="loss against honest work, in the run")
    axes.margins(x=0.18)
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(handles, labels, loc="outside lower left", ncols=2, frameon=False, fontsize=TEXT)


def _draw_trade(axes: Any, found: Plan, plans: tuple[Plan, ...]) -> None:
    for many, color in zip(LOOKS, SEQUENCE[::2], strict=True):
        line = [one for one in plans if one.terms.looks == many]
        label = "1 look" if many == 1 else f"{many} looks"
        axes.plot([one.held for one in line], [one.rows_shown for one in line], ".-", color=color, label=label)
    for one in plans[-len(PERIODS) :]:
        place = {"xytext": (4, 5), "textcoords": "offset points", "color": GREY, "fontsize": TEXT}
        axes.annotate(f"period of {one.terms.period}", (one.held, one.rows_shown), **place)
    axes.plot([found.held], [found.rows_shown], "o", color=RED, markersize=7, zorder=5, label="these terms")
    axes.set(xlabel="most money held at a time", ylabel="rows that the auditor sees, expected")
    axes.set_ylim(0, 1.15 * max(one.rows_shown for one in (*plans, found)))
    axes.set_xlim(0, 1.4 * max(one.held for one in (*plans, found)))
    legend(axes, "upper right")
