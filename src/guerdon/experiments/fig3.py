"""Figure 3: what one agent earns for batch sizes other than the requested 8.

What is expected: in many dimensions the noises of two gradients are orthogonal, and the squared length of one is
(σ²/S)·χ²_S/S, since it has the factor Σ e_i² of its S residuals (THEORY §5). With n agents, the others at ν, L_k the
agent's squared length, L the sum of the others' and f = (n − 1)ν,

    known        h(ν) + h'(ν)·ν·(1 − ν/S)
    estimated    h(ν) + h'(ν)·ν·(1 − (n − 1)·E[L_k/L])              E[L_k/L] = ν²/(S(f − 2))
    balanced     h(ν) + h'(ν)·ν·n/(n − 1)·(1 − n·E[L_k/(L_k + L)])

The last mean is E[L_k/L]·∫₀¹ (1 + t/S²)^(−S/2 − 1) dy with t = ν²(y^(−2/(f − 2)) − 1), for 1/x = ∫ e^(−sx) ds.
"""

from functools import partial
from typing import Any

import numpy as np
import polars as pl

from guerdon.agents import Fixed
from guerdon.experiments.claims import (
    Claim,
    Experiment,
    Tell,
    count_steps,
    equals,
    exceeds,
    mean_over_repetitions,
)
from guerdon.experiments.paper import AGENTS, COST, DIM, LARGEST, NEVER, REQUEST, RULES, START
from guerdon.figures import BLUE, GREEN, GREY, ORANGE, RED, SEQUENCE, TEXT, draw_mean, draw_points, legend, panels
from guerdon.problems.linear_regression import linear_regression, optimal_step
from guerdon.requests import FixedRequest
from guerdon.simulation import Summary, simulate

ROUNDS = 60
CHOICES = (2, 4, 8, 16)
FINE = 4000  # points of an integral


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Let agent 0 use 2, 4, 8 and 16 samples while the others cooperate; pay by all three rules at once."""
    problem = linear_regression(DIM, START, max_batch=LARGEST)
    requests = FixedRequest(REQUEST, optimal_step(DIM, AGENTS, REQUEST))
    others = [Fixed(REQUEST)] * (AGENTS - 1)
    found: dict[int, Summary] = {}
    step = count_steps(tell, len(CHOICES))
    for size in CHOICES:
        step(f"S = {size}")
        agents = [Fixed(size), *others]
        found[size] = simulate(problem, agents, RULES, requests, ROUNDS, repetitions, seed, stop=NEVER, keep="summary")
    # What agent 0 earns per round, one mean over rounds per repetition: these are independent.
    rewards = {rule: {size: s.total_rewards[rule][:, 0] / ROUNDS for size, s in found.items()} for rule in RULES}
    return Experiment(
        "fig3",
        "Figure 3: only the requested batch size pays",
        "Reward of one agent per round for the batch size it secretly uses, the other nine at the requested 8 "
        "(mean over 60 rounds and all repetitions, 95 % intervals; grey: expected, exactly under known variance and "
        "in many dimensions under the others). Under each rule reward less cost is highest at 8. Known and balanced "
        "pay exactly the cost there; the estimated rule pays less. With few samples an agent loses less under the "
        "balanced rule than under known variance: that rule divides by the spread of all gradients, and where this "
        "agent's is long it is most of that spread. Last: pay per round as training goes on.",
        partial(_draw, found, rewards),
        _table(rewards),
        tuple(_claims(rewards)),
    )


def _claims(rewards: dict[str, dict[int, Any]]) -> list[Claim]:
    claims = [
        equals("fig3", f"{rule} variance: reward for S = {size}", sample, float(expected_reward(rule, size)))
        for rule, paid in rewards.items()
        for size, sample in paid.items()
    ]
    for rule, paid in rewards.items():
        utility = {size: reward - COST(size) for size, reward in paid.items()}
        rival = max((size for size in CHOICES if size != REQUEST), key=lambda size: float(utility[size].mean()))
        claim = f"{rule} variance: 8 is the best response (its lead over {rival}, the next best)"
        claims.append(exceeds("fig3", claim, utility[REQUEST] - utility[rival]))
    return claims


def expected_reward(rule: str, size: Any) -> Any:
    """Return what an agent with `size` samples, whole or not, is paid in expectation, the others at the request."""
    stake, sizes = COST.slope(REQUEST) * REQUEST, np.asarray(size, dtype=np.float64)
    freedom = (AGENTS - 1) * REQUEST
    ratio = REQUEST**2 / (sizes * (freedom - 2))
    if rule == "known":
        surplus = 1 - REQUEST / sizes
    elif rule == "estimated":
        surplus = 1 - (AGENTS - 1) * ratio
    else:
        y = (np.arange(FINE) + 0.5) / FINE
        t = REQUEST**2 * (y ** (-2 / (freedom - 2)) - 1)
        s = sizes[..., None]
        share = ratio * ((1 + t / s**2) ** (-s / 2 - 1)).mean(axis=-1)
        surplus = AGENTS / (AGENTS - 1) * (1 - AGENTS * share)
    return COST(REQUEST) + stake * surplus


def _draw(found: dict[int, Summary], rewards: dict[str, dict[int, Any]]) -> Any:
    titles = [f"{rule} variance" for rule in RULES] + ["pay as training goes on (known variance)"]
    figure, axes = panels(titles, height=5.4, columns=2)
    sizes = np.geomspace(1.6, LARGEST, 200)
    for panel, rule, color in zip(axes, RULES, (BLUE, RED, GREEN), strict=False):
        panel.plot(sizes, expected_reward(rule, sizes), color=GREY, linewidth=1, linestyle="--", label="expected")
        panel.plot(sizes, COST(sizes), color=ORANGE, label="cost h(s)")
        points = [mean_over_repetitions(rewards[rule][size]) for size in CHOICES]
        draw_points(panel, CHOICES, points, fmt="o", color=color, label="mean reward")
        panel.axvline(REQUEST, color=GREY, linewidth=0.8, linestyle=":")
        panel.set_xscale("log", base=2)
        panel.set_xticks(CHOICES, [str(size) for size in CHOICES])
        panel.set(xlim=(1.6, 20), ylim=(-20, 20), xlabel="batch size S (logarithmic)", ylabel="reward per round")
        legend(panel, "upper left")
    for size, color in zip(CHOICES, SEQUENCE[1:], strict=True):
        mean, error = found[size].rewards["known"]
        draw_mean(axes[3], np.arange(1, ROUNDS + 1), mean[:, 0], error[:, 0], color, f"S = {size}")
        beside = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": TEXT}
        axes[3].annotate(f"S = {size}", (ROUNDS, float(expected_reward("known", size))), **beside)
    axes[3].set(xlabel="round", ylabel="reward per round", xlim=(0, 1.2 * ROUNDS), ylim=(-40, 20))
    axes[3].set_xticks(range(0, ROUNDS + 1, 10))
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
