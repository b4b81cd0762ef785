"""How the cost of a round grows with the number of agents, the dimension and the batch size."""

from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.measure import Promise, best_time
from benchmarks.workload import RULE
from guerdon.lab.agents import Cooperative
from guerdon.lab.figures import BLUE, GREY, legend_below, panels, save_figure
from guerdon.lab.problems.linear_regression import linear_regression, optimal_step
from guerdon.lab.simulation import simulate
from guerdon.requests import FixedRequest

ROUNDS = 10
CURVES = {
    "agents": ([(n, 100, 8) for n in (10, 100, 1_000, 10_000)], 0),
    "dimension": ([(10, d, 8) for d in (100, 1_000, 10_000)], 1),
    "batch size": ([(10, 100, s) for s in (1, 16, 256, 1_024)], 2),
}


def seconds_per_round(agents: int, dim: int, size: int) -> float:
    """Return the time of one round of one repetition, compilation excluded."""
    problem = linear_regression(dim, max_batch=1_024)
    requests = FixedRequest(size, optimal_step(dim, agents, size))
    # Enough repetitions that fixed overheads do not count, few enough that nothing is slow.
    repetitions = max(1, 2_000 // agents)
    time = best_time(lambda: simulate(problem, [Cooperative()] * agents, RULE, requests, ROUNDS, repetitions), runs=3)
    return time / (ROUNDS * repetitions)


def run(out: Path = Path("results")) -> tuple[Table, list[Promise]]:
    """Return the table of measurements (and draw it); only the shape of the curves is promised."""
    table = Table(title="time per round of one repetition, one setting varied", title_justify="left")
    for heading in ("varied", "agents", "dim", "batch size", "time", "growth of the time ÷ growth of the setting"):
        table.add_column(heading, justify="left" if heading == "varied" else "right")
    figure, axes = panels([f"varying the {name}" for name in CURVES], height=2.6, columns=3)
    for panel, (name, (settings, which)) in zip(axes, CURVES.items(), strict=True):
        times = [seconds_per_round(*setting) for setting in settings]
        sizes = [setting[which] for setting in settings]
        for setting, time in zip(settings, times, strict=True):
            growth = (time / times[0]) / (setting[which] / sizes[0])
            table.add_row(name, *(f"{x:,}" for x in setting), f"{time * 1e6:,.0f} µs", f"{growth:.2f}")
        panel.plot(sizes, np.array(times) * 1e3, "o-", color=BLUE, label="measured")
        panel.plot(sizes, np.array(sizes) * times[0] / sizes[0] * 1e3, "--", color=GREY, label="in proportion")
        panel.set(xscale="log", yscale="log", xlabel=f"{name} (logarithmic)", ylabel="ms per round (log.)")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter("{x:,g}")
    legend_below(figure, axes[0])
    out.mkdir(exist_ok=True)
    save_figure(figure, out / "scaling.svg")
    return table, []
