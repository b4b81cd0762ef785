"""Figure 3: what one agent earns for batch sizes other than the requested 8.

The paper draws 2, 4, 8 and 16 samples; 1 is drawn too, the least that an agent can use. What is expected,
`guerdon.lab.experiments.paper.expected_pay` says.
"""

from functools import partial
from typing import Any

import numpy as np
import polars as pl

from guerdon.lab.agents import Fixed
from guerdon.lab.experiments.claims import (
    Claim,
    Experiment,
    Tell,
    count_steps,
    equals,
    exceeds,
    mean_over_repetitions,
)
from guerdon.lab.experiments.paper import (
    AGENTS,
    COST,
    DIM,
    LARGEST,
    NEVER,
    REQUEST,
    RULES,
    SIZES,
    START,
    expected_pay,
    seed_of,
)
from guerdon.lab.figures import BLUE, GREY, ORANGE, RED, SEQUENCE, TEXT, draw_mean, draw_points, legend, panels
from guerdon.lab.problems.linear_regression import linear_regression, optimal_step
from guerdon.lab.simulation import Summary, simulate
from guerdon.requests import FixedRequest

ROUNDS = 60


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Let agent 0 use 1, 2, 4, 8 and 16 samples while the others cooperate; pay by both rules at once."""
    problem = linear_regression(DIM, START, max_batch=LARGEST)
    requests = FixedRequest(REQUEST, optimal_step(DIM, AGENTS, REQUEST))
    others = [Fixed(REQUEST)] * (AGENTS - 1)
    found: dict[int, Summary] = {}
    step = count_steps(tell, len(SIZES))
    for size in SIZES:
        step(f"S = {size}")
        agents, key = [Fixed(size), *others], seed_of(seed, size)
        found[size] = simulate(problem, agents, RULES, requests, ROUNDS, repetitions, key, stop=NEVER, keep="summary")
    # What agent 0 earns per round, one mean over rounds per repetition: these are independent.
    rewards = {rule: {size: s.total_rewards[rule][:, 0] / ROUNDS for size, s in found.items()} for rule in RULES}
    return Experiment(
        "fig3",
        "Figure 3: only the requested batch size pays",
        "Linear regression: reward of one agent per round for the batch size S that it secretly uses, the other nine "
        "at the requested 8 (95 % intervals; every S has its own random draws). Top: mean over 60 rounds, "
        "beside the cost; dashed: expected, exactly under the known variance (the paper's theorem) and in many "
        "dimensions under the estimated one (the paper's experiment). Bottom: the same as training goes on, without S "
        "= 1, which is too noisy to draw. Under both rules reward less cost is highest at 8. There the known variance "
        f"pays the cost of 9, the estimated one {expected_pay('estimated', REQUEST):.2f}.",
        partial(_draw, found, rewards),
        _table(rewards),
        tuple(_claims(rewards)),
    )


def _claims(rewards: dict[str, dict[int, Any]]) -> list[Claim]:
    claims = [
        equals("fig3", f"{rule} variance: reward for S = {size}", sample, float(expected_pay(rule, size)))
        for rule, paid in rewards.items()
        for size, sample in paid.items()
    ]
    for rule, paid in rewards.items():
        utility = {size: reward - COST(size) for size, reward in paid.items()}
        rival = max((size for size in SIZES if size != REQUEST), key=lambda size: float(utility[size].mean()))
        claim = f"{rule} variance: 8 is the best response (its lead over {rival}, the next best)"
        claims.append(exceeds("fig3", claim, utility[REQUEST] - utility[rival]))
    claim = "estimated variance: an honest agent is paid less than its cost (by)"
    claims.append(exceeds("fig3", claim, COST(REQUEST) - rewards["estimated"][REQUEST]))
    return claims


def _draw(found: dict[int, Summary], rewards: dict[str, dict[int, Any]]) -> Any:
    titles = [f"{rule} variance" for rule in RULES] + [f"{rule} variance, as training goes on" for rule in RULES]
    figure, axes = panels(titles, height=5.6, columns=2)
    sizes = np.geomspace(1, LARGEST, 200)
    for panel, rule, color in zip(axes, RULES, (BLUE, RED), strict=False):
        panel.plot(sizes, expected_pay(rule, sizes), color=GREY, linewidth=1, linestyle="--", label="expected")
        panel.plot(sizes, COST(sizes), color=ORANGE, label="cost h(s)")
        points = [mean_over_repetitions(rewards[rule][size]) for size in SIZES]
        draw_points(panel, SIZES, points, fmt="o", color=color, label="mean reward", markersize=4)
        panel.axvline(REQUEST, color=GREY, linewidth=0.8, linestyle=":")
        panel.set_xscale("log", base=2)
        panel.set_xticks(SIZES, [str(size) for size in SIZES])
        panel.set(xlim=(0.9, 18), ylim=(-56, 40), xlabel="batch size S (logarithmic)", ylabel="reward per round")
        legend(panel, "upper left")
    for panel, rule in zip(axes[2:], RULES, strict=True):
        _draw_rounds(panel, found, rule)
    return figure


def _draw_rounds(panel: Any, found: dict[int, Summary], rule: str) -> None:
    """Draw what the agent earns in every round with 2, 4, 8 and 16 samples."""
    for size, color in zip(SIZES[1:], SEQUENCE[1:], strict=True):
        mean, error = found[size].rewards[rule]
        draw_mean(panel, np.arange(1, ROUNDS + 1), mean[:, 0], error[:, 0], color, f"S = {size}")
        beside = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": TEXT}
        panel.annotate(f"S = {size}", (ROUNDS, float(expected_pay(rule, size))), **beside)
    panel.set(xlabel="round", ylabel="reward per round", xlim=(0, 1.25 * ROUNDS), ylim=(-30, 20))
    panel.set_xticks(range(0, ROUNDS + 1, 10))


def _table(rewards: dict[str, dict[int, Any]]) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for rule, paid in rewards.items():
        for size, sample in paid.items():
            mean, error = mean_over_repetitions(sample)
            rows.append(
                {"rule": rule, "batch_size": size, "cost": COST(size), "mean_reward": mean, "standard_error": error,
                 "mean_utility": mean - COST(size)}
            )  # fmt: skip
    return pl.DataFrame(rows)
