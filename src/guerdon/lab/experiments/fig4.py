"""Figure 4: what different requests cost the server in all, up to convergence.

What is expected: a round pays an agent the same on average whatever happened before (`expected_pay`), so a run pays n
times that and E[T] in all, where T is the first round after which its own error is at the target (Wald's equation). The
error x = ‖δ‖² is a Markov chain: the mean of n gradients of ν samples is one of N = nν, and with a_i, ε_i, e_i of
the closed form of linear regression and L = √x

    x' = (L − (2η/N)·Σ a_i e_i)² + (2η/N)²·Σ e_i²·χ²_{d−1}
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import polars as pl

from guerdon.lab.agents import Fixed
from guerdon.lab.experiments.claims import (
    SIGNIFICANT,
    Claim,
    Experiment,
    Mean,
    Tell,
    count_steps,
    equals,
    exceeds,
    mean_over_repetitions,
    pay_of_one,
)
from guerdon.lab.experiments.paper import AGENTS, DIM, LARGEST, RULES, SIZES, START, expected_pay, seed_of
from guerdon.lab.figures import GREY, SEQUENCE, draw_mean, legend_below, panels
from guerdon.lab.problems.linear_regression import linear_regression, optimal_step
from guerdon.lab.simulation import Stop, Summary, simulate
from guerdon.requests import FixedRequest

ROUNDS = 128
TARGET = 1.0
TARGETS = (30.0, 10.0, 3.0, TARGET)  # the paper does not say when a training has converged
DRAWN = 20_000  # runs of the error alone that the expectation rests on
STEPS: dict[str, Callable[[int], float]] = {
    "its own step": partial(optimal_step, DIM, AGENTS),
    "the step of ν = 1": lambda _: optimal_step(DIM, AGENTS, 1),
}


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
        key = seed_of(seed, nu)
        found[nu] = simulate(problem, agents, RULES, policy, ROUNDS, repetitions, key, stop=stop, keep="summary")
    return Experiment(
        "fig4",
        "Figure 4: what the request costs in all",
        "Linear regression from squared error 100 to 1, all agents cooperating, each request with the step that suits "
        "it (mean and 95 % band). Left: error; a run that has reached the target stays where it is. Middle and right: "
        "reward paid so far to all agents under the known and the estimated variance; dots: expected in all. Small "
        "requests take many rounds, large ones cost much per round: 4 and 8 are cheapest.",
        partial(_draw, found),
        _table(found),
        (*_claims(found), *_choices()),
        notes=(_one_step(),),
    )


@cache
def expected_rounds(nu: int, target: float = TARGET, steps: str = "its own step") -> Mean:
    """Return the mean number of rounds until a run's error is at the target, from runs of the error alone."""
    random, samples, active = np.random.default_rng(nu), AGENTS * nu, np.arange(DRAWN)
    factor = 2 * STEPS[steps](nu) / samples
    error, rounds = np.full(DRAWN, START), np.zeros(DRAWN)
    while len(active):
        length, across = np.sqrt(error), random.normal(size=len(active))
        squares, rest = random.chisquare(samples, len(active)), random.chisquare(samples - 1, len(active))
        products = np.sqrt(squares) * across  # Σ a_i², Σ a_i ε_i and Σ ε_i²: Bartlett's decomposition
        residuals = length**2 * squares - 2 * length * products + across**2 + rest
        along = length - factor * (length * squares - products)
        error = along**2 + factor**2 * residuals * random.chisquare(DIM - 1, len(active))
        rounds[active] += 1
        active, error = active[error > target], error[error > target]
    return mean_over_repetitions(rounds)


def expected_total(nu: int, rule: str = "known", target: float = TARGET, steps: str = "its own step") -> Mean:
    """Return what a run pays all agents in expectation."""
    rounds, price = expected_rounds(nu, target, steps), AGENTS * float(expected_pay(rule, nu, nu))
    return Mean(rounds.value * price, rounds.error * price)


def _claims(found: dict[int, Summary]) -> list[Claim]:
    claims = [exceeds("fig4", "ν = 16 needs fewer rounds than 8", found[8].rounds_played - found[16].rounds_played)]
    for rule in RULES:
        totals = {nu: summary.total_reward(rule) for nu, summary in found.items()}
        means = {nu: float(total.mean()) for nu, total in totals.items()}
        second = sorted(means, key=lambda nu: -means[nu])[1]
        cheapest = min(means, key=lambda nu: means[nu])
        claim = f"{rule} variance: ν = 1 pays most in all (its lead over {second})"
        claims.append(exceeds("fig4", claim, totals[1] - totals[second]))
        claim = f"{rule} variance: the cheapest request"
        claims.append(Claim("fig4", claim, "4 or 8", cheapest, 0.0, cheapest in (4, 8)))
        for nu, summary in found.items():
            claims.append(_total(rule, nu, totals[nu]))
            pay = float(expected_pay(rule, nu, nu))
            claim = f"{rule} variance: reward of one agent per round at ν = {nu}"
            sample = pay_of_one(summary.total_rewards[rule][:, 0], summary.rounds_played, pay)
            claims.append(equals("fig4", claim, sample, pay))
    finished = float(np.mean([float((h.last_metrics["error"] <= TARGET).mean()) for h in found.values()]))
    claims.append(Claim("fig4", "share of runs that reach the target", "1", finished, 0.0, finished == 1.0))
    return claims


def _total(rule: str, nu: int, totals: Any) -> Claim:
    """Claim that the total is what is expected, which has a standard error of its own."""
    (value, error), expected = mean_over_repetitions(totals), expected_total(nu, rule)
    close = abs(value - expected.value) <= SIGNIFICANT * float(np.hypot(error, expected.error))
    words = f"{expected.value:.0f} within 3 s.e."
    return Claim("fig4", f"{rule} variance: total reward at ν = {nu}", words, value, error, close)


def _choices() -> list[Claim]:
    """Claim that 4 or 8 is cheapest, in expectation, wherever the training is said to have converged."""
    claims: list[Claim] = []
    for target in TARGETS:
        totals = {nu: expected_total(nu, target=target).value for nu in SIZES}
        cheapest, dearest = (choose(totals, key=lambda nu: totals[nu]) for choose in (min, max))
        claim = f"the cheapest request where training ends at error {target:g}, {dearest} being the dearest (expected)"
        claims.append(Claim("fig4", claim, "4 or 8", cheapest, 0.0, cheapest in (4, 8)))
    return claims


def _one_step() -> str:
    """Say what becomes of it where every request has the same step."""
    steps = "the step of ν = 1"
    totals = ", ".join(f"{expected_total(nu, steps=steps).value:.0f} (ν = {nu})" for nu in SIZES)
    return (
        f"It depends on the step. With {steps}, {STEPS[steps](1):.3f}, for every request a larger one has nothing to "
        f"gain from its precision, and a run is expected to pay {totals}."
    )


def _draw(found: dict[int, Summary]) -> Any:
    titles = ["squared error (logarithmic)", "paid so far, σ² known", "paid so far, σ² estimated"]
    figure, (left, *right) = panels(titles, 3.2, columns=3)
    for (nu, summary), color in zip(found.items(), SEQUENCE, strict=True):
        mean, error = summary.metrics["error"]
        draw_mean(left, np.arange(ROUNDS + 1), mean, error, color, f"ν = {nu}")
        for panel, rule in zip(right, RULES, strict=True):
            mean, error = summary.paid[rule]
            draw_mean(panel, np.arange(1, ROUNDS + 1), mean, error, color, f"ν = {nu}")
            place = ROUNDS, expected_total(nu, rule).value
            panel.plot(*place, "o", color=color, markeredgecolor="black", zorder=3, clip_on=False)
    left.plot([], [], "o", color="white", markeredgecolor="black", label="expected total")
    left.axhline(TARGET, color=GREY, linewidth=0.8, linestyle=":")
    left.set_yscale("log")
    left.yaxis.set_major_formatter("{x:g}")
    legend_below(figure, left)
    for panel in (left, *right):
        panel.set(xlabel="round", xlim=(0, ROUNDS))
        panel.set_xticks(range(0, ROUNDS + 1, 32))
    for panel in right:
        panel.set_ylim(0, 1.1 * expected_total(1).value)
    return figure


def _table(found: dict[int, Summary]) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for nu, summary in found.items():
        played = mean_over_repetitions(summary.rounds_played)
        for rule in RULES:
            paid = mean_over_repetitions(summary.total_reward(rule))
            rows.append(
                {"request": nu, "rule": rule, "mean_total_reward": paid.value, "standard_error": paid.error,
                 "expected_total_reward": expected_total(nu, rule).value, "mean_rounds": played.value,
                 "rounds_standard_error": played.error, "expected_rounds": expected_rounds(nu).value}
            )  # fmt: skip
    return pl.DataFrame(rows)
