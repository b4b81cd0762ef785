"""Figure 2: what strategic batch sizes do to convergence when the server's step expects 8 samples."""

from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from guerdon.lab.agents import Fixed
from guerdon.lab.experiments.claims import Claim, Experiment, Tell, count_steps, curve, exceeds
from guerdon.lab.experiments.paper import AGENTS, DIM, LARGEST, NEVER, REQUEST, RULES, SIZES, START, seed_of
from guerdon.lab.figures import GREY, POWERS, SEQUENCE, draw_mean, legend, panels
from guerdon.lab.problems.linear_regression import expected_errors, linear_regression, optimal_step
from guerdon.lab.simulation import simulate
from guerdon.requests import FixedRequest

ROUNDS = 40
STEP = optimal_step(DIM, AGENTS, REQUEST)


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Train with all agents at 1, 2, 4, 8 and 16 samples, and the step for 8."""
    problem = linear_regression(DIM, START, max_batch=LARGEST)
    errors: dict[int, Any] = {}
    step = count_steps(tell, len(SIZES))
    for size in SIZES:
        step(f"S = {size}")
        agents, requests = [Fixed(size)] * AGENTS, FixedRequest(REQUEST, STEP)
        # What is paid does not matter here.
        history = simulate(problem, agents, RULES, requests, ROUNDS, repetitions, seed_of(seed, size), stop=NEVER)
        errors[size] = history.metrics["error"]
    theory = {size: np.array(expected_errors(DIM, AGENTS, size, STEP, START, ROUNDS)) for size in SIZES}
    return Experiment(
        "fig2",
        "Figure 2: what strategic batch sizes do to training",
        "Squared error of linear regression when all ten agents secretly use S samples while the server's step is"
        " set for 8 (mean and 95 % band; dashed: exact expectation). At S = 1 and 2 training diverges, at 4 it is"
        " slow, and 16 gains little. Rare paths dominate the means at 1 and 2, so the median is drawn "
        "there.",
        partial(_draw, errors, theory),
        _table(errors, theory),
        tuple(_claims(errors, theory)),
    )


def _claims(errors: dict[int, Any], theory: dict[int, Any]) -> list[Claim]:
    reached = {size: int(np.argmax(errors[size].mean(axis=0) <= 10.0)) for size in (4, 8, 16)}
    saved, before = reached[8] - reached[16], reached[4] - reached[8]
    claim = "16 gains little: rounds to error 10 that it saves over 8"
    return [
        *(_diverges(errors[size], size) for size in (1, 2)),
        exceeds("fig2", "S = 4 has more error than 8 after 10 rounds", errors[4][:, 10] - errors[8][:, 10]),
        Claim("fig2", claim, f"less than half of the {before} that 8 saves over 4", saved, 0.0, saved < before / 2),
        _agrees(errors, theory),
    ]


def _diverges(errors: Any, size: int) -> Claim:
    """Claim that the median grows: even the lower end of its 99.9 % interval (order statistics) has grown."""
    ratio, quantile = np.sort(errors[:, -1] / errors[:, 0]), NormalDist().inv_cdf(0.9995)
    low = ratio[max(0, int(len(ratio) / 2 - quantile * np.sqrt(len(ratio)) / 2) - 1)]
    claim = f"S = {size} diverges: growth of the median error over {ROUNDS} rounds"
    expected = "more than 1, at the lower end of a 99.9 % interval too"
    middle = np.median(ratio)
    return Claim("fig2", claim, expected, float(middle), float((middle - low) / quantile), bool(low > 1))


def _agrees(errors: dict[int, Any], theory: dict[int, Any]) -> Claim:
    """Claim that the mean curves follow the exact recursion: the largest of all z-scores, familywise at 1 %."""
    scores: list[float] = []
    for size in (4, 8, 16):
        mean, error = curve(errors[size][:, 1:])
        scores.extend(np.abs(mean - theory[size][1:]) / error)
    bound = NormalDist().inv_cdf(1 - 0.01 / (2 * len(scores)))
    worst = float(max(scores))
    return Claim("fig2", "mean curves for S = 4, 8, 16 follow the exact recursion (largest |z|)",
                 f"below {bound:.2f} (familywise 1 %)", worst, 1.0, worst < bound)  # fmt: skip


def _draw(errors: dict[int, Any], theory: dict[int, Any]) -> Any:
    figure, (axes,) = panels(["Squared error ‖θ − θ*‖² by the batch size S that all agents use"], height=4.0)
    rounds = np.arange(ROUNDS + 1)
    for size, color in zip(SIZES, SEQUENCE, strict=True):
        if size >= 4:
            mean, error = curve(errors[size])
            draw_mean(axes, rounds, mean, error, color, f"S = {size}")
            named = "expected (S ≥ 4)" if size == SIZES[-1] else None
            axes.plot(rounds, theory[size], color=GREY, linestyle="--", linewidth=0.9, label=named)
        else:
            axes.plot(rounds, np.median(errors[size], axis=0), color=color, label=f"S = {size} (median)")
    axes.set(yscale="log", ylim=(0.2, 1e8), xlim=(0, ROUNDS), xlabel="round", ylabel="squared error (logarithmic)")
    axes.tick_params(axis="y", labelsize=POWERS)
    legend(axes, "center right")
    return figure


def _table(errors: dict[int, Any], theory: dict[int, Any]) -> pl.DataFrame:
    frames: list[pl.DataFrame] = []
    for size in SIZES:
        mean, error = curve(errors[size])
        median = np.median(errors[size], axis=0).astype(np.float64)
        columns: dict[str, Any] = {
            "batch_size": [size] * (ROUNDS + 1), "round": np.arange(ROUNDS + 1), "mean_error": mean,
            "standard_error": error, "median_error": median, "expected_error": theory[size],
        }  # fmt: skip
        frames.append(pl.DataFrame(columns))
    return pl.concat(frames)
