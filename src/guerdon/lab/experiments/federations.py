"""Real federations: what honest agents with different data are paid, and what less work earns among them.

The survey is divided among ten agents in five ways, from alike to by age. Calibrated agreement and balanced variance
are paid without a dither, information pay with one; the default rule is not played. One agent turns to something else
after the calibration; in "from the first day" it never did anything else. Last, agents train in several local steps, as
under FedAvg.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import polars as pl

from guerdon.agreement import FlatPay, OutputAgreement
from guerdon.arrays import Array
from guerdon.lab._trees import register
from guerdon.lab.agents import Agent, Cooperative, Portion, Reporting, View
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.experiments.claims import (
    SIGNIFICANT,
    Claim,
    Experiment,
    Mean,
    Tell,
    count_steps,
    exceeds,
    mean_over_repetitions,
)
from guerdon.lab.experiments.paper import AGENTS, COST
from guerdon.lab.figures import BLUE, GREEN, GREY, NORMAL_95, RED, legend_below, panels
from guerdon.lab.problems import Problem, splits
from guerdon.lab.problems.federation import federation, local_training
from guerdon.lab.problems.heart import HeartData, load_survey, prepare
from guerdon.lab.simulation import History, run_pilot, simulate
from guerdon.pilot import PilotReport, assess
from guerdon.pilot.assessment import SHIRKING
from guerdon.requests import FixedRequest
from guerdon.rule import Rule
from guerdon.statistical.calibrated import CalibratedAgreement
from guerdon.statistical.dithers import Dither
from guerdon.statistical.information import InformationPay
from guerdon.statistical.predictions import Extrapolation
from guerdon.statistical.steady import SteadyPay

REQUEST, CALIBRATION, ROUNDS = 16, 100, 300
STEP = 0.2  # twice that per pair of dithered rounds
PILOT = 200  # rounds
FEDAVG, MINIBATCH = "FedAvg, local steps", 2
VALIDATION = 2000  # rows that accuracy is measured on
TENTH = 0.1 * COST(REQUEST)
AGREEMENT: dict[str, Rule] = {
    "calibrated": CalibratedAgreement(COST, CALIBRATION),
    "balanced": OutputAgreement(COST, BalancedVariance()),
}
INFORMATION: dict[str, Rule] = {"information": InformationPay(COST)}
DRAWN = ("half the work", "half, from the first day", "zeros")  # other forged reports earn what zeros earn
TICKS = (-30, -10, -5, 0, 5, 10, 30)
MARKS = {"calibrated": (GREEN, "o"), "balanced": (BLUE, "s"), "information": (RED, "D")}


@register
@dataclass(frozen=True)
class Turning(Agent):
    """Does as asked until a round, and from then on as `base` does."""

    round: int
    base: Reporting

    @property
    def fabricates(self) -> bool:
        return self.base.fabricates

    def choose(self, view: View, key: Array) -> Array:
        return jnp.where(view.round < self.round, view.request, self.base.choose(view, key))

    def report(self, view: View, gradient: Array, key: Array) -> Array:
        return jnp.where(view.round < self.round, gradient, self.base.report(view, gradient, key))


class Behaviour(NamedTuple):
    """What one agent does, and how many samples that takes."""

    agent: Turning
    samples: float


def _after(round: int, share: float, **report: float) -> Behaviour:
    options: dict[str, Any] = {"gradient": 1.0, **report}
    forges = any(options.get(name) for name in ("echo", "prediction")) or not options["gradient"]
    return Behaviour(Turning(round, Reporting(Portion(share), fabricates=forges, **options)), share * REQUEST)


BEHAVIOURS: dict[str, Behaviour] = {
    "honest": _after(CALIBRATION, 1.0),
    "half the work": _after(CALIBRATION, 0.5),
    "half, from the first day": _after(0, 0.5),
    "zeros": _after(CALIBRATION, 0.0, gradient=0.0),
    "last mean gradient": _after(CALIBRATION, 0.0, gradient=0.0, echo=1.0),
    "prediction": _after(CALIBRATION, 0.0, gradient=0.0, prediction=1.0),
}


class Outcome(NamedTuple):
    """A federation with one agent's behaviour: profits (repetitions, agents) by rule, after the calibration."""

    federation: str
    behaviour: str
    profits: dict[str, Any]
    accuracy: Any  # the lower one of both trainings


def federations(data: HeartData, seed: int = 0) -> dict[str, Problem]:
    """Return the survey, divided among ten agents in five ways; and with local steps, all alike."""
    whole, labels = data.regression(REQUEST, VALIDATION), data.train_labels
    few = data.regression(MINIBATCH, VALIDATION)
    divided = {
        "pools of 100 rows": splits.pools(len(labels), AGENTS, 100, seed),
        "Dirichlet(0.5) labels": splits.by_dirichlet(labels, AGENTS, 0.5, seed),
        "by age": splits.by_value(ages(data), AGENTS, seed),
        "two shards each": splits.shards(labels, AGENTS, 2, seed),
    }
    found: dict[str, Problem] = {"alike": whole}
    found |= {name: federation(whole, rows) for name, rows in divided.items()}
    return found | {FEDAVG: local_training(few, STEP / (REQUEST // MINIBATCH), REQUEST)}


def ages(data: HeartData) -> Any:
    """Return the age category of every training row, as a number."""
    columns = {name: index for index, name in enumerate(data.columns)}
    named = {name.partition("=")[2]: index for name, index in columns.items() if name.startswith("AgeCategory=")}
    order = {name: place for place, name in enumerate(sorted({*named, "65-69"}))}
    found = np.full(len(data.train_labels), order["65-69"])
    for name, column in named.items():
        found[data.train_features[:, column] > 0] = order[name]
    return found


def play(name: str, problem: Problem, behaviour: str, repetitions: int, seed: int) -> Outcome:
    """Let the first agent do something, and the others work."""
    agents = [BEHAVIOURS[behaviour].agent, *[BEHAVIOURS["honest"].agent] * (AGENTS - 1)]
    rate = STEP / (REQUEST // MINIBATCH) if name == FEDAVG else STEP
    parts = [
        simulate(
            problem, agents, rules, FixedRequest(REQUEST, rate if dither is None else 2 * rate), ROUNDS, repetitions,
            seed, prediction=Extrapolation(), dither=dither, alike=False,
        )
        for rules, dither in ((AGREEMENT, None), (INFORMATION, Dither(3.0, COST, largest=3.0)))
    ]  # fmt: skip
    spent = np.array([COST(BEHAVIOURS[behaviour].samples), *[COST(REQUEST)] * (AGENTS - 1)])
    rewards = {rule: history.rewards[rule] for history in parts for rule in history.rewards}
    profits = {rule: reward[:, CALIBRATION:].mean(axis=1) - spent for rule, reward in rewards.items()}
    return Outcome(name, behaviour, profits, min(map(late_accuracy, parts), key=np.mean))


def late_accuracy(history: History) -> Any:
    """Return the accuracy over the last fifty rounds, per repetition."""
    return np.asarray(history.metrics["accuracy"])[:, -50:].mean(axis=1)


def unpaid_accuracy(problem: Problem, rate: float, repetitions: int, seed: int) -> Any:
    """Return the same of a training in which everybody is paid flat."""
    honest = [BEHAVIOURS["honest"].agent] * AGENTS
    requests = FixedRequest(REQUEST, rate)
    return late_accuracy(simulate(problem, honest, FlatPay(COST), requests, ROUNDS, repetitions, seed, alike=True))


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Play every behaviour in every federation."""
    data = prepare(load_survey())
    problems, outcomes = federations(data), list[Outcome]()
    step = count_steps(tell, len(problems) * (len(BEHAVIOURS) + 1))
    for name, problem in problems.items():
        for behaviour in BEHAVIOURS:
            step(f"{name}, {behaviour}")
            outcomes.append(play(name, problem, behaviour, repetitions, seed))
    claims = _claims(outcomes)
    for name, problem in problems.items():
        step(f"{name}, a pilot")
        claims += pilot_claims(name, try_rules(problem, seed))
        if name != FEDAVG:
            honest = next(found for found in outcomes if found.federation == name)
            claims.append(_same_accuracy(honest, unpaid_accuracy(problem, STEP, repetitions, seed)))
    return Experiment(
        "federations",
        f"Agents that differ ({data.label})",
        "Above: what each of ten honest agents earns a round above its cost of 17, by how the survey is divided among "
        "them (points: agents; band: a tenth of the cost). Below: what one agent earns that does something else, with "
        "95 % intervals. Both axes are linear up to 10 and logarithmic beyond. "
        "Calibrated agreement pays agents with different data their cost; half the work after the calibration loses, "
        "but reports made without any work do not. Information pay makes those lose, and is far noisier.",
        partial(_draw, outcomes),
        _table(outcomes),
        tuple(claims),
        notes=(
            "Half the work from the first day and noisier data look the same in every report: where agents differ, no "
            "rule that pays each its own cost can tell them apart without other evidence.",
        ),
        survey=data.label,
    )


def try_rules(problem: Problem, seed: int) -> PilotReport:
    """Return what a pilot says of steady pay and of balanced agreement."""
    rules: dict[str, Rule] = {"steady": SteadyPay(COST), "balanced": OutputAgreement(COST, BalancedVariance())}
    honest = [Cooperative()] * AGENTS
    return assess(run_pilot(problem, honest, rules, REQUEST, 2 * STEP, PILOT, seed, dither=Dither(3.0)))


def pilot_claims(name: str, report: PilotReport) -> list[Claim]:
    """Claim what is true of every federation: a pilot does not recommend a rule that fails there."""
    steady, balanced = report.rules
    ghost = max(balanced.ghosts.values(), key=lambda earned: earned.value)
    words, use = f"{name}: a pilot", report.recommended or "none"
    found = [
        Claim("federations", f"{words} sees that no work pays under balanced agreement", "above 0", ghost.value,
              ghost.error, balanced.ghosts_earn and use != "balanced"),
        Claim("federations", f"{words} does not find that steady pay pays shirkers; it recommends: {use}",
              "half work gains nothing", steady.gain.value, steady.gain.error, steady.verdict != SHIRKING),
    ]  # fmt: skip
    if name == FEDAVG:
        gain, shirking = balanced.gain, balanced.verdict == SHIRKING
        sees = f"{words} sees that balanced agreement pays shirkers"
        found.append(Claim("federations", sees, "half work gains", gain.value, gain.error, shirking))
    return found


def _claims(outcomes: list[Outcome]) -> list[Claim]:
    claims: list[Claim] = []
    for found in outcomes:
        words = f"{found.federation}: {found.behaviour}"
        own = {rule: profit[:, 0] for rule, profit in found.profits.items()}
        if found.federation == FEDAVG:
            if found.behaviour == "half the work":
                claims.append(exceeds("federations", f"{words} gains under output agreement", own["balanced"]))
                claims.append(exceeds("federations", f"{words} loses under information pay", -own["information"]))
        elif found.behaviour == "honest":
            claims.append(_within_a_tenth(found))
        elif found.behaviour == "half the work":
            claims.append(exceeds("federations", f"{words} after the calibration loses", -own["calibrated"]))
        elif found.behaviour != "half, from the first day":
            claims.append(exceeds("federations", f"{words} loses under information pay", -own["information"]))
    return claims


def _within_a_tenth(found: Outcome) -> Claim:
    worst = _worst(found.profits["calibrated"])
    claim = f"{found.federation}: every honest agent earns its cost under calibrated agreement (the furthest off)"
    holds = abs(worst.value) <= TENTH + SIGNIFICANT * worst.error
    return Claim("federations", claim, f"within {TENTH:g} of 0", worst.value, worst.error, holds)


def _same_accuracy(found: Outcome, unpaid: Any) -> Claim:
    paid, without = mean_over_repetitions(found.accuracy), mean_over_repetitions(unpaid)
    error = float(np.hypot(paid.error, without.error))
    claim = f"{found.federation}: accuracy less that of the same training without pay"
    lost = paid.value - without.value
    holds = lost > -0.003 - SIGNIFICANT * error
    return Claim("federations", claim, "at least −0.003, within 3 s.e.", lost, error, holds)


def _worst(profits: Any) -> Mean:
    """Return the mean profit of the agent that is furthest from 0."""
    means = [mean_over_repetitions(profits[:, agent]) for agent in range(profits.shape[1])]
    return max(means, key=lambda mean: abs(mean.value))


def _draw(outcomes: list[Outcome]) -> Any:
    titles = ["honest agents, each a point", "one agent that does otherwise"]
    figure, axes = panels(titles, height=7.2, height_ratios=(1, 2))
    names = list(dict.fromkeys(found.federation for found in outcomes))
    rows = [found for found in outcomes if found.behaviour in DRAWN]
    axes[0].axvspan(-TENTH, TENTH, color=GREY, alpha=0.25, linewidth=0)
    for shift, (rule, (color, mark)) in zip((-0.25, 0.0, 0.25), MARKS.items(), strict=True):
        style: Any = {"color": color, "marker": mark, "markersize": 3, "linestyle": ""}
        for found in outcomes:
            if found.behaviour == "honest":
                place = np.full(AGENTS, names.index(found.federation) + shift)
                axes[0].plot(found.profits[rule].mean(axis=0), place, alpha=0.7, **style)
        means = [mean_over_repetitions(found.profits[rule][:, 0]) for found in rows]
        places = np.arange(len(rows)) + shift
        values, errors = [mean.value for mean in means], [NORMAL_95 * mean.error for mean in means]
        axes[1].errorbar(values, places, xerr=errors, elinewidth=1, label=rule, **style)
    labels = [names, [f"{found.federation}: {found.behaviour}" for found in rows]]
    for panel, texts in zip(axes, labels, strict=True):
        panel.axvline(0, color=GREY, linewidth=0.8)
        panel.set_yticks(range(len(texts)), texts, fontsize=7)
        panel.invert_yaxis()
        panel.set_xlabel("profit per round (pay less cost)")
        panel.set_xscale("symlog", linthresh=10)
        panel.set_xticks(TICKS, [f"{tick:+d}".replace("-", "−") if tick else "0" for tick in TICKS])
    legend_below(figure, axes[1])
    return figure


def _table(outcomes: list[Outcome]) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for found in outcomes:
        for rule, profits in found.profits.items():
            own, per_agent = mean_over_repetitions(profits[:, 0]), profits.mean(axis=0)
            rows.append(
                {"federation": found.federation, "behaviour": found.behaviour, "rule": rule,
                 "profit": own.value, "standard_error": own.error, "lowest": float(per_agent.min()),
                 "highest": float(per_agent.max()), "accuracy": mean_over_repetitions(found.accuracy).value}
            )  # fmt: skip
    return pl.DataFrame(rows)
