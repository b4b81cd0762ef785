"""Figure 4: what different requests cost the server in all, up to convergence.

What is expected: a round pays n·h(ν) whatever happened before, so a run pays n·h(ν)·E[T] in all, where T is the first
round after which its own error is at the target. The error x = ‖δ‖² is a Markov chain: the mean of n gradients of ν
samples is one of N = nν, and with a_i, ε_i, e_i of THEORY §5 and L = √x

    x' = (L − (2η/N)·Σ a_i e_i)² + (2η/N)²·Σ e_i²·χ²_{d−1}
"""

from functools import cache, partial
from typing import Any

import numpy as np
import polars as pl

from guerdon.agents import Fixed
from guerdon.experiments.claims import (
    SIGNIFICANT,
    Claim,
    Experiment,
    Mean,
    Tell,
    count_steps,
    exceeds,
    mean_over_repetitions,
)
from guerdon.experiments.paper import AGENTS, COST, DIM, LARGEST, RULES, SIZES, START
from guerdon.figures import GREY, SEQUENCE, draw_mean, legend_below, panels
from guerdon.problems.linear_regression import linear_regression, optimal_step
from guerdon.requests import FixedRequest
from guerdon.simulation import Stop, Summary, simulate

ROUNDS = 128
TARGET = 1.0
DRAWN = 20_000  # runs of the error alone that the expectation rests on


def ahead() -> None:
    """Work out what is expected."""
    for nu in SIZES:
        expected_rounds(nu)


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Train until the squared error is 1, asking for 1, 2, 4, 8 and 16 samples with the step that suits each."""
    problem = linear_regression(DIM, START, max_batch=LARGEST)
    stop = Stop("error", at_most=TARGET)
    found: dict[int, Summary] = {}
    step = count_steps(tell, len(SIZES))
    for nu in SIZES:
        step(f"ν = {nu}")
        agents, policy = [Fixed(nu)] * AGENTS, FixedRequest(nu, optimal_step(DIM, AGENTS, nu))
        found[nu] = simulate(problem, agents, RULES, policy, ROUNDS, repetitions, seed, stop=stop, keep="summary")
    return Experiment(
        "fig4",
        "Figure 4: what the request costs in all",
        "Linear regression until the squared error is 1, all agents cooperating (mean and 95 % band)."
        " Left: error; a run that has reached the target stays where it is. Right: reward paid so far to all agents "
        "(known variance); dots: expected, the mean number of rounds until a run reaches the target × 10 · h(ν). Small "
        "requests take many rounds, large ones cost much per round: 4 and 8 are cheapest.",
        partial(_draw, found),
        _table(found),
        tuple(_claims(found)),
    )


@cache
def expected_rounds(nu: int) -> Mean:
    """Return the mean number of rounds until a run's error is at the target, from runs of the error alone."""
    random, samples, active = np.random.default_rng(nu), AGENTS * nu, np.arange(DRAWN)
    factor = 2 * optimal_step(DIM, AGENTS, nu) / samples
    error, rounds = np.full(DRAWN, START), np.zeros(DRAWN)
    while len(active):
        length, across = np.sqrt(error), random.normal(size=len(active))
        squares, rest = random.chisquare(samples, len(active)), random.chisquare(samples - 1, len(active))
        products = np.sqrt(squares) * across  # Σ a_i², Σ a_i ε_i and Σ ε_i²: Bartlett's decomposition
        residuals = length**2 * squares - 2 * length * products + across**2 + rest
        along = length - factor * (length * squares - products)
        error = along**2 + factor**2 * residuals * random.chisquare(DIM - 1, len(active))
        rounds[active] += 1
        active, error = active[error > TARGET], error[error > TARGET]
    return mean_over_repetitions(rounds)


def expected_total(nu: int) -> Mean:
    """Return what a run pays all agents in expectation."""
    rounds, price = expected_rounds(nu), AGENTS * float(COST(nu))
    return Mean(rounds.value * price, rounds.error * price)


def _claims(found: dict[int, Summary]) -> list[Claim]:
    totals = {nu: summary.total_reward("known") for nu, summary in found.items()}
    means = {nu: float(total.mean()) for nu, total in totals.items()}
    second = sorted(means, key=lambda nu: -means[nu])[1]
    cheapest = min(means, key=lambda nu: means[nu])
    claims = [
        exceeds("fig4", f"ν = 1 pays most in all (its lead over {second})", totals[1] - totals[second]),
        Claim("fig4", "the cheapest request", "4 or 8", cheapest, 0.0, cheapest in (4, 8)),
        exceeds("fig4", "ν = 16 needs fewer rounds than 8", found[8].rounds_played - found[16].rounds_played),
    ]
    for nu in SIZES:
        value, error = mean_over_repetitions(totals[nu])
        expected = expected_total(nu)
        close = abs(value - expected.value) <= SIGNIFICANT * float(np.hypot(error, expected.error))
        words = f"{expected.value:.0f} within 3 s.e."
        claims.append(Claim("fig4", f"total reward at ν = {nu}", words, value, error, close))
    finished = float(np.mean([float((h.last_metrics["error"] <= TARGET).mean()) for h in found.values()]))
    claims.append(Claim("fig4", "share of runs that reach the target", "1", finished, 0.0, finished == 1.0))
    return claims


def _draw(found: dict[int, Summary]) -> Any:
    figure, (left, right) = panels(["squared error (logarithmic)", "reward paid so far, all agents"], 3.2, columns=2)
    for (nu, summary), color in zip(found.items(), SEQUENCE, strict=True):
        mean, error = summary.metrics["error"]
        draw_mean(left, np.arange(ROUNDS + 1), mean, error, color, f"ν = {nu}")
        mean, error = summary.paid["known"]
        draw_mean(right, np.arange(1, ROUNDS + 1), mean, error, color, f"ν = {nu}")
        right.plot(ROUNDS, expected_total(nu).value, "o", color=color, markeredgecolor="black", zorder=3, clip_on=False)
    left.plot([], [], "o", color="white", markeredgecolor="black", label="expected total")
    left.axhline(TARGET, color=GREY, linewidth=0.8, linestyle=":")
    left.set_yscale("log")
    left.yaxis.set_major_formatter("{x:g}")
    legend_below(figure, left)
    for panel in (left, right):
        panel.set(xlabel="round", xlim=(0, ROUNDS))
    return figure


def _table(found: dict[int, Summary]) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for nu, summary in found.items():
        played = mean_over_repetitions(summary.rounds_played)
        for rule in RULES:
            paid = mean_over_repetitions(summary.total_reward(rule))
            rows.append(
                {"request": nu, "rule": rule, "mean_total_reward": paid.value, "standard_error": paid.error,
                 "expected_total_reward": expected_total(nu).value, "mean_rounds": played.value,
                 "rounds_standard_error": played.error, "expected_rounds": expected_rounds(nu).value}
            )  # fmt: skip
    return pl.DataFrame(rows)
