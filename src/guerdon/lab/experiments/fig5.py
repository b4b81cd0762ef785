"""Figure 5: logistic regression on the heart-disease survey, for different requests.

The paper gives neither the step, nor how the survey was prepared and divided, nor when a training ends. The curves are
of one random split, with the step 0.1 for every request, as the paper's may have been. What they show is then played
over several splits, each with another choice of the healthy people that stand beside the ill ones, and with two other
steps. Totals differ by a factor of ten between splits, because the target lies close to the best accuracy that is
possible: so requests are compared within a split, and the ratios averaged (as logarithms).
"""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from guerdon.lab.agents import Cooperative
from guerdon.lab.experiments.claims import (
    Claim,
    Experiment,
    Mean,
    Tell,
    count_steps,
    exceeds,
    mean_over_repetitions,
    pay_of_one,
)
from guerdon.lab.experiments.paper import AGENTS, COST, DEFAULT, ESTIMATED, LARGEST, SIZES, seed_of
from guerdon.lab.figures import (
    GREEN,
    GREY,
    NORMAL_95,
    ORANGE,
    RED,
    SEQUENCE,
    draw_mean,
    draw_points,
    legend,
    legend_below,
    panels,
)
from guerdon.lab.problems.heart import VARIABLE, HeartData, load_survey, prepare
from guerdon.lab.simulation import Stop, Summary, simulate
from guerdon.requests import FixedRequest

ROUNDS = 1024
STEP, STEPS = 0.1, (0.03, 0.1, 0.3)
CHEAPEST = {0.03: 1, 0.1: 2, 0.3: 4}  # the request that pays least, by the step
SPLITS = 12
ONE = 0  # the split of the curves
TARGET = 0.755
RULES = {"estimated": ESTIMATED, "default": DEFAULT}  # on real data the variance is not known
EARLY = 10  # rounds after which accuracies are compared


class Choice(NamedTuple):
    """What the server chose."""

    step: float
    request: int


Found: TypeAlias = Mapping[Choice, list[Summary]]  # one summary for each split


def ahead() -> None:
    """Read the survey."""
    splits(os.environ.get(VARIABLE))


@lru_cache(1)
def splits(named: str | None) -> tuple[HeartData, ...]:
    """Return the survey in the file that GUERDON_HEART_DATA names, ready to learn from, divided in several ways."""
    del named  # it is what the survey is remembered by
    survey = load_survey()
    return tuple(prepare(survey, split) for split in range(SPLITS))


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Train on the survey until 75.5 % of the validation set are right, asking for 1, 2, 4, 8 and 16 samples."""
    step = count_steps(tell, 1 + len(STEPS) * len(SIZES))
    step("reading the survey")
    parts = splits(os.environ.get(VARIABLE))
    found: dict[Choice, list[Summary]] = {}
    for length in STEPS:
        for nu in SIZES:
            step(f"ν = {nu}, step {length:g}")
            found[Choice(length, nu)] = list(_play(parts, Choice(length, nu), repetitions, seed))
    label = parts[0].label
    return Experiment(
        "fig5",
        f"Figure 5: the heart-disease survey ({label})",
        _caption(found, label),
        partial(_draw, found, label),
        _table(found, label),
        tuple(_claims(found)),
        notes=tuple(_lead_in_money(found, rule) for rule in RULES),
        survey=label,
    )


def _play(parts: tuple[HeartData, ...], choice: Choice, repetitions: int, seed: int) -> Iterator[Summary]:
    """Yield what a choice comes to on each split: all repetitions on the split that is drawn, some on the others."""
    agents, stop = [Cooperative()] * AGENTS, Stop("accuracy", at_least=TARGET)
    policy, usual = FixedRequest(choice.request, choice.step), choice.step == STEP
    few = max(2, repetitions // (8 if usual else 50))
    for split, data in enumerate(parts):
        key, number = seed_of(seed, choice.request, split), repetitions if usual and split == ONE else few
        arguments = data.regression(LARGEST), agents, RULES, policy, ROUNDS, number, key
        yield simulate(*arguments, stop=stop, keep="summary", chunk=few)  # one shape, so one compilation


def totals(found: Found, step: float, nu: int, rule: str) -> Any:
    """Return what a training pays all agents, its mean for each split."""
    return np.array([float(part.total_reward(rule).mean()) for part in found[Choice(step, nu)]])


def ratios(found: Found, step: float, nu: int, rule: str) -> Any:
    """Return the logarithm of what a training pays, relative to ν = 2 at step 0.1 on the same split."""
    return np.log(totals(found, step, nu, rule) / totals(found, STEP, 2, rule))


def one_agent(found: Found, nu: int, rule: str) -> Any:
    """Return a sample of one agent's pay per round, from the runs of all splits."""
    parts = found[Choice(STEP, nu)]
    paid = np.concatenate([part.total_rewards[rule][:, 0] for part in parts])
    return pay_of_one(paid, np.concatenate([part.rounds_played for part in parts]), float(COST(nu)))


def _caption(found: Found, label: str) -> str:
    low, high = (edge(totals(found, STEP, 2, "estimated")) for edge in (np.min, np.max))
    return (
        f"Logistic regression on the {label} from the zero model until {TARGET:.1%} of the validation set are "
        "classified correctly, all agents cooperating, as many healthy people as ill ones (bands and bars: 95 %). Top: "
        "one random split 80/20, step 0.1 for every request; accuracy, and reward paid so far under the estimated "
        f"variance. Bottom left: total reward under the estimated variance over {SPLITS} splits and three steps, "
        "relative to ν = 2 at step 0.1 on the same split (geometric mean); which request is cheapest depends on the "
        f"step. The total at ν = 2 and step 0.1 itself is between {low:,.0f} and {high:,.0f}, depending on the split. "
        "Bottom right: what one honest agent is paid per round, relative to its cost, over all splits."
    )


def _lead_in_money(found: Found, rule: str) -> str:
    """Say how sure it is that ν = 2 is the cheapest request at step 0.1."""
    rival, sample = _rival(found, rule)
    mean, error = mean_over_repetitions(sample)
    return (
        f"At step 0.1 under the {rule} rule ν = {rival} pays {np.expm1(mean):.1%} more than ν = 2 (standard error over "
        f"splits {error:.1%}); ν = 2 is cheaper on {int(np.sum(sample > 0))} of {SPLITS} splits."
    )


def _rival(found: Found, rule: str) -> tuple[int, Any]:
    """Return the cheapest request beside ν = 2 at step 0.1, and its total relative to that of ν = 2."""
    rival = min((nu for nu in SIZES if nu != 2), key=lambda nu: float(ratios(found, STEP, nu, rule).mean()))
    return rival, ratios(found, STEP, rival, rule)


def _claims(found: Found) -> list[Claim]:
    claims = [_lead(small, large, found) for small, large in pairwise(SIZES)]
    claims += [_cheapest(found, step, rule, cheapest) for step, cheapest in CHEAPEST.items() for rule in RULES]
    rival, sample = _rival(found, "default")
    claim = f"step 0.1, default rule: ν = {rival} pays more than 2, split by split (log of the ratio)"
    claims.append(exceeds("fig5", claim, sample))
    parts = [part for nu in SIZES for part in found[Choice(STEP, nu)]]
    reached = float(np.mean(np.concatenate([part.last_metrics["accuracy"] >= TARGET for part in parts])))
    claim = f"step 0.1: share of runs that reach the target within {ROUNDS} rounds"
    claims.append(Claim("fig5", claim, "at least 0.99", reached, 0.0, reached >= 0.99))
    for nu in SIZES:
        claims += _honest_pay(found, nu)
    return claims


def _lead(small: int, large: int, found: Found) -> Claim:
    """Claim that the larger request is more accurate early on."""
    low, high = (
        np.array([part.metrics["accuracy"].mean[EARLY] for part in found[Choice(STEP, nu)]]) for nu in (small, large)
    )
    return exceeds("fig5", f"after {EARLY} rounds ν = {large} is more accurate than {small}", high - low)


def _cheapest(found: Found, step: float, rule: str, expected: int) -> Claim:
    """Claim which request pays least at a step, on average over splits."""
    means = {nu: float(ratios(found, step, nu, rule).mean()) for nu in SIZES}
    cheapest = min(means, key=lambda nu: means[nu])
    claim = f"step {step:g}, {rule} rule: the request with the lowest total reward"
    return Claim("fig5", claim, str(expected), cheapest, 0.0, cheapest == expected)


def _honest_pay(found: Found, nu: int) -> list[Claim]:
    cost = float(COST(nu))
    value, error = mean_over_repetitions(one_agent(found, nu, "default"))
    bound = NormalDist().inv_cdf(1 - 0.01 / (2 * len(SIZES)))  # one of the five requests fails by chance in 1 % of runs
    holds = abs(value - cost) <= bound * error and error <= 0.02 * cost
    claim, expected = f"default rule: reward of one agent per round at ν = {nu}", f"{cost:g} within {bound:.2f} s.e."
    return [
        exceeds("fig5", f"estimated variance: one agent's shortfall per round at ν = {nu}",
                cost - one_agent(found, nu, "estimated")),
        Claim("fig5", claim, expected, value, error, holds),
    ]  # fmt: skip


def _draw(found: Found, label: str) -> Any:
    titles = ["accuracy, one split, step 0.1", "reward paid so far, one split, step 0.1",
              "total ÷ that of ν = 2, step 0.1", "one honest agent: pay ÷ cost"]  # fmt: skip
    figure, (left, right, steps, pay) = panels(titles, height=5.6, columns=2)
    figure.suptitle(label, fontsize=8, x=0.01, ha="left")
    drawn = {nu: found[Choice(STEP, nu)][ONE] for nu in SIZES}
    shown = max(int(np.percentile(part.rounds_played, 90)) for part in drawn.values())
    for (nu, part), color in zip(drawn.items(), SEQUENCE, strict=True):
        mean, error = part.metrics["accuracy"]
        draw_mean(left, np.arange(shown + 1), mean[: shown + 1], error[: shown + 1], color, f"ν = {nu}")
        mean, error = part.paid["estimated"]
        draw_mean(right, np.arange(1, shown + 1), mean[:shown], error[:shown], color, f"ν = {nu}")
    left.axhline(TARGET, color=GREY, linewidth=0.8, linestyle=":")
    left.set_ylim(0.68, 0.76)
    right.set_ylim(0, None)
    for panel in (left, right):
        panel.set(xlabel="round", xlim=(0, shown))
    _draw_steps(steps, found)
    _draw_pay(pay, found)
    legend_below(figure, left)
    return figure


def _draw_steps(axes: Any, found: Found) -> None:
    for step, color in zip(STEPS, (ORANGE, GREEN, RED), strict=True):
        means = [mean_over_repetitions(ratios(found, step, nu, "estimated")) for nu in SIZES]
        low, middle, high = (np.exp([mean + far * NORMAL_95 * error for mean, error in means]) for far in (-1, 0, 1))
        style = {"marker": "o", "markersize": 4, "capsize": 3, "color": color, "label": f"step {step:g}"}
        axes.errorbar(range(len(SIZES)), middle, [middle - low, high - middle], **style)
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.set_yscale("log", base=2)
    axes.set_yticks([0.5, 1, 2, 4, 8, 16], ["0.5", "1", "2", "4", "8", "16"])
    axes.set(ylim=(0.5, 32), ylabel="ratio (logarithmic)")
    _name_requests(axes)
    legend(axes, "upper left")


def _draw_pay(axes: Any, found: Found) -> None:
    for rule, color, marker, beside in (("estimated", RED, "s", -0.06), ("default", GREEN, "o", 0.06)):
        means = [_relative(found, nu, rule) for nu in SIZES]
        places = [place + beside for place in range(len(SIZES))]
        draw_points(axes, places, means, fmt=marker, color=color, label=rule, markersize=4)
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.set_ylim(0.75, 1.1)
    _name_requests(axes)
    legend(axes, "lower right")


def _relative(found: Found, nu: int, rule: str) -> Mean:
    return mean_over_repetitions(one_agent(found, nu, rule) / float(COST(nu)))


def _name_requests(axes: Any) -> None:
    axes.set_xticks(range(len(SIZES)), [str(nu) for nu in SIZES])
    axes.set_xlabel("request ν (logarithmic)")


def _table(found: Found, label: str) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for (step, nu), parts in found.items():
        for split, part in enumerate(parts):
            played = mean_over_repetitions(part.rounds_played)
            reached = mean_over_repetitions(part.last_metrics["accuracy"] >= TARGET)
            for rule in RULES:
                total = mean_over_repetitions(part.total_reward(rule))
                rows.append(
                    {"data": label, "step": step, "request": nu, "split": split, "rule": rule, "cost": float(COST(nu)),
                     "repetitions": part.repetitions, "mean_total_reward": total.value,
                     "total_standard_error": total.error, "mean_rounds": played.value,
                     "rounds_standard_error": played.error, "reached": reached.value}
                )  # fmt: skip
    return pl.DataFrame(rows)
