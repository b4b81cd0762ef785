"""Figure 4: what different requests cost the server in all, up to convergence."""

from typing import Any

import numpy as np
import polars as pl

from guerdon.agents import Cooperative
from guerdon.experiments.claims import Claim, Experiment, Tell, count_steps, curve, exceeds, mean_over_repetitions
from guerdon.experiments.paper import AGENTS, COST, DIM, LARGEST, RULES, SIZES, START
from guerdon.figures import GREY, SEQUENCE, draw_mean, legend, panels
from guerdon.problems.linear_regression import expected_errors, linear_regression, optimal_step
from guerdon.requests import FixedRequest
from guerdon.simulation import History, Stop, simulate

ROUNDS = 128
TARGET = 1.0


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Train until the squared error is 1, asking for 1, 2, 4, 8 and 16 samples with the step that suits each."""
    problem = linear_regression(DIM, START, max_batch=LARGEST)
    agents, stop = [Cooperative()] * AGENTS, Stop("error", at_most=TARGET)
    histories: dict[int, History] = {}
    step = count_steps(tell, len(SIZES))
    for nu in SIZES:
        step(f"ν = {nu}")
        policy = FixedRequest(nu, optimal_step(DIM, AGENTS, nu))
        histories[nu] = simulate(problem, agents, RULES, policy, ROUNDS, repetitions, seed, stop=stop)
    return Experiment(
        "fig4",
        "Figure 4: what the request costs in all",
        "Linear regression until the squared error is 1, all agents cooperating (mean and 95 % band). Left: error."
        " Right: reward paid so far to all agents (known variance); dots: closed form, rounds to the target × 10 "
        "· h(ν). Small requests take many rounds, large ones cost much per round: 4 and 8 are cheapest.",
        _draw(histories),
        _table(histories),
        tuple(_claims(histories)),
    )


def closed_form(nu: int) -> tuple[int, float]:
    """Return the rounds until the expected error is at the target, and what they cost."""
    errors = expected_errors(DIM, AGENTS, nu, optimal_step(DIM, AGENTS, nu), START, 200)
    rounds = next(t for t, error in enumerate(errors) if error <= TARGET)
    return rounds, rounds * AGENTS * float(COST(nu))


def _claims(histories: dict[int, History]) -> list[Claim]:
    totals = {nu: history.total_reward("known") for nu, history in histories.items()}
    means = {nu: float(total.mean()) for nu, total in totals.items()}
    second = sorted(means, key=lambda nu: -means[nu])[1]
    cheapest = min(means, key=lambda nu: means[nu])
    claims = [
        exceeds("fig4", f"ν = 1 pays most in all (its lead over {second})", totals[1] - totals[second]),
        Claim("fig4", "the cheapest request", "4 or 8", cheapest, 0.0, cheapest in (4, 8)),
        exceeds("fig4", "ν = 16 needs fewer rounds than 8", histories[8].rounds_played - histories[16].rounds_played),
    ]
    for nu in SIZES:
        value, error = mean_over_repetitions(totals[nu])
        expected = closed_form(nu)[1]
        close = abs(value / expected - 1) < 0.1
        claims.append(Claim("fig4", f"total reward at ν = {nu}", f"{expected:g} within 10 %", value, error, close))
    finished = float(np.mean([float((h.metrics["error"][:, -1] <= TARGET).mean()) for h in histories.values()]))
    claims.append(Claim("fig4", "share of runs that reach the target", "1", finished, 0.0, finished == 1.0))
    return claims


def _draw(histories: dict[int, History]) -> Any:
    figure, (left, right) = panels(["squared error", "reward paid so far, all agents"])
    for (nu, history), color in zip(histories.items(), SEQUENCE, strict=True):
        mean, error = curve(history.metrics["error"])
        draw_mean(left, np.arange(ROUNDS + 1), mean, error, color, f"ν = {nu}")
        mean, error = curve(np.cumsum(history.rewards["known"].sum(axis=2, dtype=np.float64), axis=1))
        draw_mean(right, np.arange(1, ROUNDS + 1), mean, error, color, f"ν = {nu}")
        right.plot(*closed_form(nu), "o", color=color, markeredgecolor="white", markersize=6)
    left.axhline(TARGET, color=GREY, linewidth=0.8, linestyle=":")
    left.set_yscale("log")
    legend(left, "upper right")
    legend(right, "lower right")
    for panel in (left, right):
        panel.set(xlabel="round", xlim=(0, 90))
    return figure


def _table(histories: dict[int, History]) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for nu, history in histories.items():
        rounds, total = closed_form(nu)
        played = mean_over_repetitions(history.rounds_played)
        for rule in RULES:
            paid = mean_over_repetitions(history.total_reward(rule))
            rows.append(
                {"request": nu, "rule": rule, "mean_total_reward": paid.value, "standard_error": paid.error,
                 "expected_total_reward": total, "mean_rounds": played.value, "rounds_standard_error": played.error,
                 "expected_rounds": rounds}
            )  # fmt: skip
    return pl.DataFrame(rows)
