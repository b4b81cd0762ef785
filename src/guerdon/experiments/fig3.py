"""Figure 3: what one agent earns for batch sizes other than the requested 8."""

from typing import Any

import numpy as np
import polars as pl

from guerdon.agents import Cooperative, Fixed
from guerdon.experiments.claims import (
    Claim,
    Experiment,
    Tell,
    count_steps,
    curve,
    equals,
    exceeds,
    mean_over_repetitions,
)
from guerdon.experiments.paper import AGENTS, COST, DIM, LARGEST, REQUEST, RULES, START
from guerdon.figures import BLUE, GREEN, GREY, ORANGE, RED, SEQUENCE, draw_mean, draw_points, legend, panels
from guerdon.game import MinibatchGame
from guerdon.problems.linear_regression import linear_regression, optimal_step
from guerdon.requests import FixedRequest
from guerdon.simulation import History, simulate

ROUNDS = 60
CHOICES = (2, 4, 8, 16)
EXPECTED = {2: -15.0, 4: 1.0, 8: 9.0, 16: 13.0}  # known variance, exact (THEORY §3)


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Let agent 0 use 2, 4, 8 and 16 samples while the others cooperate; pay by all three rules at once."""
    problem = linear_regression(DIM, START, max_batch=LARGEST)
    requests = FixedRequest(REQUEST, optimal_step(DIM, AGENTS, REQUEST))
    others = [Cooperative()] * (AGENTS - 1)
    histories: dict[int, History] = {}
    step = count_steps(tell, len(CHOICES))
    for size in CHOICES:
        step(f"S = {size}")
        histories[size] = simulate(problem, [Fixed(size), *others], RULES, requests, ROUNDS, repetitions, seed)
    # What agent 0 earns per round, one mean over rounds per repetition: these are independent.
    rewards = {rule: {size: h.rewards[rule][:, :, 0].mean(axis=1) for size, h in histories.items()} for rule in RULES}
    return Experiment(
        "fig3",
        "Figure 3: only the requested batch size pays",
        "Reward of one agent per round for the batch size it secretly uses, the other nine at the requested 8 "
        "(mean over 60 rounds and all repetitions, 95 % intervals; grey: closed form). Under each rule reward "
        "less cost is highest at 8. Known and balanced pay exactly the cost there; the estimated rule pays less. "
        "Right: pay per round as training goes on.",
        _draw(histories, rewards),
        _table(rewards),
        tuple(_claims(rewards)),
    )


def _claims(rewards: dict[str, dict[int, Any]]) -> list[Claim]:
    claims = [
        equals("fig3", f"known variance: reward for S = {size}", rewards["known"][size], expected)
        for size, expected in EXPECTED.items()
    ]
    for rule, paid in rewards.items():
        utility = {size: reward - COST(size) for size, reward in paid.items()}
        rival = max((size for size in CHOICES if size != REQUEST), key=lambda size: float(utility[size].mean()))
        claim = f"{rule} variance: 8 is the best response (its lead over {rival}, the next best)"
        claims.append(exceeds("fig3", claim, utility[REQUEST] - utility[rival]))
    claims += [
        equals("fig3", f"{rule} variance: reward equals cost at 8", rewards[rule][REQUEST], COST(REQUEST))
        for rule in ("known", "balanced")
    ]
    return claims


def _draw(histories: dict[int, History], rewards: dict[str, dict[int, Any]]) -> Any:
    titles = [f"{rule} variance" for rule in RULES] + ["pay as training goes on (known)"]
    figure, axes = panels(titles, width=13.0, height=3.8)
    sizes = np.arange(1, LARGEST + 1)
    for panel, rule, color in zip(axes, RULES, (BLUE, RED, GREEN), strict=False):
        game = MinibatchGame(AGENTS, REQUEST, COST, LARGEST, rule=rule)  # pyright: ignore[reportArgumentType]
        theory = game.utilities(0, [REQUEST] * AGENTS)[1:] + COST(sizes)
        exact = "closed form" if rule == "known" else "closed form (d → ∞)"
        panel.plot(sizes, theory, color=GREY, linewidth=1, linestyle="--", label=exact)
        panel.plot(sizes, COST(sizes), color=ORANGE, label="cost h(s)")
        points = [mean_over_repetitions(rewards[rule][size]) for size in CHOICES]
        draw_points(panel, CHOICES, points, fmt="o", color=color, label="mean reward")
        panel.axvline(REQUEST, color=GREY, linewidth=0.8, linestyle=":")
        panel.set_xscale("log", base=2)
        panel.set_xticks(CHOICES, [str(size) for size in CHOICES])
        panel.set(xlim=(1.6, 20), ylim=(-20, 20), xlabel="batch size S")
        legend(panel, "upper left")
    axes[0].set_ylabel("reward per round")
    for size, color in zip(CHOICES, SEQUENCE[1:], strict=True):
        mean, error = curve(histories[size].rewards["known"][:, :, 0])
        draw_mean(axes[3], np.arange(1, ROUNDS + 1), mean, error, color, f"S = {size}")
    axes[3].set(xlabel="round", ylim=(-30, 20))
    legend(axes[3], "lower right", columns=2)
    return figure


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
