"""Figures in one visual language: colours that colour-blind readers can tell apart, no clutter, honest axes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from guerdon.game import MinibatchGame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette.
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"

STYLE: dict[Any, Any] = {
    "figure.figsize": (7.2, 4.2),
    "figure.dpi": 150,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "legend.frameon": False,
    "svg.hashsalt": "guerdon",
}


def utility_figure(game: MinibatchGame, others: int, cost_text: str) -> "Figure":
    """Draw one agent's expected reward, cost and utility over his batch size, all others at `others`."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    utility = game.utilities(0, [others] * game.num_agents)[1:]
    sizes = range(1, game.max_batch + 1)
    cost = [game.cost(size) for size in sizes]
    best = game.best_response(0, [others] * game.num_agents)
    with mpl.rc_context(STYLE):
        figure = Figure(layout="constrained")
        axes = figure.subplots()
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.plot(sizes, utility + cost, color=BLUE, label="expected reward")
        axes.plot(sizes, cost, color=ORANGE, linestyle="--", label="cost h(s)")
        axes.plot(sizes, utility, color=GREEN, linewidth=2.2, label="utility = reward − cost")
        axes.axvline(game.request, color=GREY, linewidth=0.8, linestyle=":")
        _mark_best(axes, best, float(utility[best - 1]) if best else 0.0)
        # Tiny batches are punished without measure; cut there, so that the choice itself can be seen.
        low, high = _window(utility, utility + cost, others)
        axes.set_ylim(low, high)
        axes.set_xlim(0, game.max_batch)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(f"batch size s that the agent secretly uses (requested: {game.request})")
        axes.set_ylabel("per round, in units of cost")
        axes.set_title(
            f"What pays: {game.num_agents} agents, h(s) = {cost_text}, {game.rule} variance, the others at {others}"
        )
        axes.legend(loc="lower right")
    return figure


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure; the same data give the same file, byte for byte."""
    import matplotlib as mpl

    stamp = {"Date": None} if path.suffix == ".svg" else None
    with mpl.rc_context(STYLE):
        figure.savefig(path, metadata=stamp)


def _mark_best(axes: Any, best: int, utility: float) -> None:
    label = f"best response: {best}" if best else "best response: decline"
    axes.plot([best], [utility], "o", color=RED, zorder=5, clip_on=False)
    axes.annotate(label, (best, utility), xytext=(8, 8), textcoords="offset points", color=RED, fontweight="bold")


def _window(utility: Any, reward: Any, others: int) -> tuple[float, float]:
    """Return y-limits around the part of the curves where the agent would look for his best choice."""
    top = float(max(reward.max(), utility.max()))
    bottom = float(min(utility[max(others // 3, 1) - 1 :].min(), -0.25 * top))
    margin = 0.08 * (top - bottom)
    return bottom - margin, top + margin
