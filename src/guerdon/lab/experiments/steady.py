"""Steady pay: what honest members have after 200 rounds, and what everything else earns.

Ten agents train on the survey, at two requests. One agent, or a crew, does something else than work; the others work.
Paid are steady pay and, beside it, balanced agreement, which is its price. All agents are of one kind, so that one
compiled simulation serves all behaviours of a request.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from guerdon.agreement import OutputAgreement
from guerdon.arrays import Array
from guerdon.lab._trees import register
from guerdon.lab.agents import Agent, View
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
from guerdon.lab.experiments.least_noise import least_deviation
from guerdon.lab.experiments.paper import AGENTS, COST
from guerdon.lab.figures import BLUE, GREEN, GREY, NORMAL_95, legend_below, panels
from guerdon.lab.problems import Problem
from guerdon.lab.problems.heart import HeartData, load_survey, prepare
from guerdon.lab.simulation import History, simulate
from guerdon.requests import FixedRequest
from guerdon.statistical.dithers import Dither
from guerdon.statistical.information import InformationPay
from guerdon.statistical.predictions import RunningMean
from guerdon.statistical.steady import SteadyPay

NAME = "steady"
REQUESTS, ROUNDS, STEP, LENGTH = (16, 8), 200, 0.8, 3.0
VALIDATION = 2000  # rows that accuracy is measured on
OLD_ROWS = 320  # that a surrogate was made from
BLOCK = 4  # broadcasts that cancel
HITS = (1, 5, 20)  # rounds after which a name leaves
SEED = 77  # of the noise that a crew shares
MOST_NAMES = 50  # of an agent


@register
@dataclass(frozen=True)
class Deviating(Agent):
    """Works with probability `q` until round `stop`, on a share of the request, and sends p + shrink·(X − p).

    Else it sends prediction·p + echo·(the last mean), `forecast` times how far the model moved, and noise of `noise`
    times the honest variance. `secret` is the share of that variance which it shares with its crew, on top of what it
    sends. With `every` above 1 it works in one round of so many. In the last `mirror` rounds of a dithered block it
    does not work, and sends `reflect` times the opposite of what it found in the block. A `surrogate` never works: it
    sends what `rows` say of the gradient, stretched towards honest length. A helper takes a new name every `cycle`
    rounds; when a name is `waits` rounds old, it sends the prediction and `helps` times the noise that its crew shares.
    """

    rows: Any
    labels: Any
    q: float = 1.0
    share: float = 1.0
    shrink: float = 1.0
    stop: int = ROUNDS
    prediction: float = 1.0
    echo: float = 0.0
    noise: float = 0.0
    secret: float = 0.0
    surrogate: float = 0.0
    stretch: float = 0.0
    forecast: float = 0.0
    every: int = 1
    mirror: float = 0.0
    reflect: float = 1.0
    helps: float = 0.0
    waits: int = 0
    cycle: int = ROUNDS
    phase: int = 0

    @property
    def names(self) -> list[int]:
        """The rounds in which it joins, or comes back under a new name."""
        return [0, *(r for r in range(1, ROUNDS) if (r + self.phase) % self.cycle == 0)]

    @property
    def fabricates(self) -> bool:
        return True

    @property
    def leader(self) -> int:
        return -1

    def init(self) -> Any:
        return jnp.zeros(self.rows.shape[1])

    def choose(self, view: View, key: Array) -> Array:
        works = jax.random.bernoulli(key, self.q) & (view.round < self.stop) & (jnp.asarray(self.surrogate) == 0)
        works &= (view.round % self.every == 0) & ~self._mirrors(view) & ~self._helping(view)
        return jnp.where(works, jnp.asarray(jnp.round(self.share * view.request), jnp.int32), 0)

    def report(self, view: View, gradient: Array, key: Array) -> Array:
        worked = jnp.any(gradient != 0)
        scale = jnp.sqrt(view.variance / view.request / gradient.shape[0])
        own = jax.random.normal(key, gradient.shape, gradient.dtype)
        common = jax.random.normal(jax.random.fold_in(jax.random.key(SEED), view.round), gradient.shape, gradient.dtype)
        public = self.prediction * view.prediction + self.echo * view.aggregate
        public += self.forecast * (view.model - view.origin)
        made = jnp.where(self._mirrors(view), view.prediction - self.reflect * view.memory, public)
        made += jnp.sqrt(self.noise) * scale * own
        sent = jnp.where(worked, view.prediction + self.shrink * (gradient - view.prediction), made)
        sent = sent + jnp.sqrt(self.secret) * scale * common
        sent = jnp.where(self._helping(view), view.prediction + self.helps * scale * common, sent)
        return jnp.where(jnp.asarray(self.surrogate) > 0, self._remembered(view), sent)

    def keep(self, view: View, gradient: Array) -> Array:
        found = jnp.where(self._mirrors(view), 0.0, gradient - view.prediction)
        return found + jnp.where(view.round % BLOCK == 0, 0.0, view.memory)

    def _helping(self, view: View) -> Array:
        return (jnp.asarray(self.helps) > 0) & ((view.round + self.phase) % self.cycle >= self.waits)

    def _mirrors(self, view: View) -> Array:
        return (jnp.asarray(self.mirror) > 0) & (view.round % BLOCK >= BLOCK - self.mirror)

    def _remembered(self, view: View) -> Array:
        told = jax.nn.sigmoid(self.rows @ view.model) - self.labels
        apart = self.rows.T @ told / self.labels.shape[0] - view.prediction
        square = jnp.maximum(jnp.sum(apart**2), 1e-12)
        honest = jnp.sqrt(1 + view.variance / view.request / square)
        return view.prediction + apart * (1 + self.stretch * (honest - 1))


class Behaviour(NamedTuple):
    """What a crew of so many does, how others help it, and what that must come to."""

    changes: dict[str, float]
    crew: int = 1
    # honest, less (loses), forged (gets nothing), surrogate (the cost at most), crew (fixed cost), slack (a quarter)
    kind: str = "less"
    helpers: tuple[dict[str, float], ...] = ()

    @property
    def seats(self) -> int:
        """How many agents do not simply work."""
        return self.crew + len(self.helpers)


IDLE = {"q": 0.0, "secret": 1.0}  # the prediction, and noise that helpers know
SHORT = {"q": 0.0, "helps": 3.0, "cycle": 4}  # a helper whose names are as good as new
TURNS: tuple[dict[str, float], ...] = tuple(
    {"q": 0.0, "noise": 1.0, "helps": 3.0, "waits": 20, "cycle": 28, "phase": phase} for phase in (0, 9, 18)
)
WORKING: tuple[dict[str, float], ...] = tuple(
    {"helps": 3.0, "waits": 60, "cycle": 80, "phase": phase} for phase in (0, 27, 54)
)


BEHAVIOURS: dict[str, Behaviour] = {
    "honest work": Behaviour({}, kind="honest"),
    "half the work": Behaviour({"share": 0.5}),
    "half, shrunk": Behaviour({"share": 0.5, "shrink": 0.71}),
    "a quarter, shrunk": Behaviour({"share": 0.25, "shrink": 0.5}),
    "work with q = 0.5": Behaviour({"q": 0.5}),
    "work with q = 0.9": Behaviour({"q": 0.9}),
    "half with q = 0.56": Behaviour({"q": 0.56, "share": 0.5}),
    "work for 40 rounds": Behaviour({"stop": 40}),
    "four do half each": Behaviour({"share": 0.5}, 4),
    "prediction": Behaviour({"q": 0.0}, kind="forged"),
    "prediction and noise": Behaviour({"q": 0.0, "noise": 1.0}, kind="forged"),
    "zeros": Behaviour({"q": 0.0, "prediction": 0.0}, kind="forged"),
    "last mean": Behaviour({"q": 0.0, "prediction": 0.0, "echo": 1.0}, kind="forged"),
    "last mean and noise": Behaviour({"q": 0.0, "prediction": 0.0, "echo": 1.0, "noise": 1.0}, kind="forged"),
    "garbage, 3 times too long": Behaviour({"q": 0.0, "prediction": 0.0, "noise": 9.0}, kind="forged"),
    "surrogate": Behaviour({"surrogate": 1.0}, kind="surrogate"),
    "surrogate, stretched": Behaviour({"surrogate": 1.0, "stretch": 1.0}, kind="surrogate"),
    "extrapolation": Behaviour({"q": 0.0, "forecast": 0.2}, kind="surrogate"),
    "mirror": Behaviour({"mirror": 1.0, "reflect": 0.58}, kind="crew"),
    "mirror, as it is": Behaviour({"mirror": 1.0}),
    "mirror in half the rounds": Behaviour({"mirror": 2.0, "reflect": 0.71}),
    "bulk": Behaviour({"every": 3, "share": 2.5, "shrink": 3.0}, kind="surrogate"),
    "two share 5 % noise": Behaviour({"secret": 0.05}, 2, "crew"),
    "three share 5 % noise": Behaviour({"secret": 0.05}, 3, "crew"),
    "five share 5 % noise": Behaviour({"secret": 0.05}, 5, "crew"),
    "four idle share 10 % noise": Behaviour({"q": 0.0, "noise": 0.9, "secret": 0.1}, 4, "crew"),
    "14 of 16 in 18 rounds of 20": Behaviour({"share": 0.875, "shrink": 1.02, "q": 0.9}, kind="slack"),
    "four do 10 of 16, share 4 % noise": Behaviour({"share": 0.625, "shrink": 0.79, "secret": 0.04}, 4, "slack"),
    "idle, a helper of many names": Behaviour(IDLE, kind="crew", helpers=(SHORT,)),
    "idle, three helpers of many names": Behaviour(IDLE, kind="crew", helpers=(SHORT,) * 3),
    "idle, three helpers that wait": Behaviour(IDLE, kind="crew", helpers=TURNS),
    "idle, three helpers that work": Behaviour(IDLE, kind="crew", helpers=WORKING),
}


class Outcome(NamedTuple):
    """A behaviour at a request: pay less cost (repetitions, rounds, agents) under both rules, and the accuracy."""

    request: int
    name: str
    behaviour: Behaviour
    steady: Any
    balanced: Any
    accuracy: Any

    @property
    def own(self) -> Any:
        """What each of the crew gains a round, per repetition."""
        return self.gain(self.steady)

    def gain(self, kept: Any) -> Any:
        """Return what each of the crew keeps a round, per repetition; what helpers keep is the crew's."""
        return kept[:, :, : self.behaviour.seats].sum(axis=2).mean(axis=1) / self.behaviour.crew


def play(data: HeartData, request: int, name: str, repetitions: int, seed: int) -> Outcome:
    """Let a crew do something, and the others work."""
    behaviour = BEHAVIOURS[name]
    honest = Deviating(jnp.asarray(data.train_features[:OLD_ROWS]), jnp.asarray(data.train_labels[:OLD_ROWS]))
    crew = replace(honest, **behaviour.changes)
    helpers = [replace(honest, **changes) for changes in behaviour.helpers]
    agents = [crew] * behaviour.crew + helpers + [honest] * (AGENTS - behaviour.seats)
    largest = max(request, round(request * crew.share))
    history = simulated(problem_of(data, largest), agents, request, repetitions, seed)
    steady, balanced = (history.utilities[rule] for rule in ("steady", "balanced"))
    accuracy = np.asarray(history.metrics["accuracy"])[:, -50:].mean(axis=1)
    return Outcome(request, name, behaviour, steady, balanced, accuracy)


def problem_of(data: HeartData, largest: int) -> Problem:
    """Return the survey, for batches up to the largest."""
    return data.regression(largest, VALIDATION)


def simulated(problem: Problem, agents: list[Deviating], request: int, repetitions: int, seed: int) -> History:
    """Train with these agents; names are padded, so that one compiled simulation serves all."""
    rules: dict[str, Any] = {
        "steady": SteadyPay(COST, period=ROUNDS),
        "balanced": OutputAgreement(COST, BalancedVariance()),
    }
    requests, dither = FixedRequest(request, STEP), Dither(LENGTH, block=BLOCK)
    names = [(agent.names + [0] * ROUNDS)[:MOST_NAMES] for agent in agents]
    return simulate(
        problem, agents, rules, requests, ROUNDS, repetitions, seed, prediction=RunningMean(), dither=dither,
        joins=names,
    )  # fmt: skip


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Play every behaviour at both requests."""
    data, outcomes = prepare(load_survey()), list[Outcome]()
    step = count_steps(tell, len(REQUESTS) * (len(BEHAVIOURS) + 1))
    notes: list[str] = []
    for request in REQUESTS:
        for name in BEHAVIOURS:
            step(f"ν = {request}, {name}")
            outcomes.append(play(data, request, name, repetitions, seed))
        step(f"ν = {request}, how noisy pay must be")
        honest = outcomes[-len(BEHAVIOURS)]
        notes.append(_noise(data, honest, repetitions, seed))
    return Experiment(
        NAME,
        f"Steady pay ({data.label})",
        f"What one agent, or each of a crew, gains a round over {ROUNDS} rounds (pay less cost, with 95 % intervals), "
        "for ν = 16 and 8 and h(s) = 1 + s. Balanced agreement pays for forged reports; steady pay is released only as "
        "far as reports tell something. A surrogate, which knows the gradient from old samples, gets the cost at most.",
        partial(_draw, outcomes),
        _table(outcomes),
        tuple(claim for found in outcomes for claim in _claims(found)),
        notes=tuple(notes),
        survey=data.label,
    )


def _claims(found: Outcome) -> list[Claim]:
    words, cost = f"ν = {found.request}: {found.name}", COST(found.request)
    value, error = mean_over_repetitions(found.own)
    fixed = cost - found.request
    most = {"forged": 0.001 * cost, "surrogate": 1.05 * cost, "crew": fixed, "slack": 0.25 * cost}
    if found.behaviour.kind == "honest":
        return _honest_claims(found)
    if found.behaviour.kind == "less":
        return [exceeds(NAME, f"{words} loses", -found.own), _hit(found)]
    limit = most[found.behaviour.kind]
    holds = value <= limit + SIGNIFICANT * error
    return [Claim(NAME, f"{words} gains", f"at most {limit:.3g}, within 3 s.e.", value, error, holds), _hit(found)]


def _honest_claims(found: Outcome) -> list[Claim]:
    words, cost = f"ν = {found.request}: honest", COST(found.request)
    value, error = mean_over_repetitions(found.steady.mean(axis=(1, 2)))
    total = found.steady.sum(axis=1) + ROUNDS * cost
    few = float((total < 0.5 * ROUNDS * cost).mean())
    released = found.steady + cost > 1e-9
    first = np.where(released.any(axis=1), released.argmax(axis=1) + 1, np.inf)
    never, median = float(np.isinf(first).mean()), float(np.median(first))
    spread = float(found.steady.std() / cost)
    return [
        Claim(NAME, f"{words} pay less cost", "0 within 5 % and 3 s.e.", value, error,
              abs(value) <= 0.05 * cost + SIGNIFICANT * error),
        Claim(NAME, f"{words} pay in a round, standard deviation ÷ cost", "at most 1", spread, 0.0, spread <= 1),
        Claim(NAME, f"{words} members that end below half of their cost", "at most 0.01", few, 0.0, few <= 0.01),
        Claim(NAME, f"{words} agents: first release, median round", "at most 40", median, 0.0, median <= 40),
        Claim(NAME, f"{words} agents without any release", "at most 0.01", never, 0.0, never <= 0.01),
        _hit(found),
    ]  # fmt: skip


def _hit(found: Outcome) -> Claim:
    """Claim that a name that leaves after a few rounds has not gained, at the best number of rounds."""
    gains = [mean_over_repetitions(found.steady[:, :k, 0].mean(axis=1)) for k in HITS]
    best = max(gains, key=lambda mean: mean.value - SIGNIFICANT * mean.error)
    claim = f"ν = {found.request}: {found.name}, leaving after {HITS[gains.index(best)]} rounds"
    return Claim(NAME, claim, "at most 0, within 3 s.e.", *best, best.value <= SIGNIFICANT * best.error + 1e-6)


def _noise(data: HeartData, honest: Outcome, repetitions: int, seed: int) -> str:
    """Return in words how noisy pay is under each rule, and how noisy it must be."""
    problem, request, cost = problem_of(data, honest.request), honest.request, COST(honest.request)
    forged, sizes = least_deviation(problem, request, COST, LENGTH, STEP, seed)
    total = (honest.steady.sum(axis=1)).std() / np.sqrt(ROUNDS)
    rules = {"information": InformationPay(COST)}
    history = simulate(
        problem, [Deviating(jnp.zeros((1, data.train_features.shape[1])), jnp.zeros(1))] * AGENTS, rules,
        FixedRequest(request, STEP), ROUNDS, max(2, repetitions // 4), seed, prediction=RunningMean(),
        dither=Dither(LENGTH, block=BLOCK),
    )  # fmt: skip
    information = history.rewards["information"][:, 50:].std()
    return (
        f"ν = {request}, cost {cost:g}, standard deviation of honest pay in a round: balanced agreement (what steady "
        f"pay earns) {honest.balanced.std():.1f}; information pay {information:.0f}; steady pay over a period, as one "
        f"of a round {total:.1f}. No rule can do with less than {forged:.1f} (to deter not working) and {sizes:.1f} "
        "(for the batch size)."
    )


def _draw(outcomes: list[Outcome]) -> Any:
    figure, axes = panels([f"ν = {request}" for request in REQUESTS], height=8.0)
    names = list(BEHAVIOURS)
    for panel, request in zip(axes, REQUESTS, strict=True):
        rows = [found for found in outcomes if found.request == request]
        for shift, (rule, color, mark) in zip(
            (-0.15, 0.15), (("steady", GREEN, "o"), ("balanced", BLUE, "s")), strict=True
        ):
            means = [_gain(found, rule) for found in rows]
            panel.errorbar(
                [mean.value for mean in means], np.arange(len(rows)) + shift,
                xerr=[NORMAL_95 * mean.error for mean in means], color=color, marker=mark, markersize=3, linestyle="",
                elinewidth=1, label=f"{rule} pay" if rule == "steady" else "balanced agreement",
            )  # fmt: skip
        panel.axvline(0, color=GREY, linewidth=0.8)
        panel.set_yticks(range(len(names)), names, fontsize=7)
        panel.invert_yaxis()
        panel.set_xlabel("profit per round (pay less cost)")
    legend_below(figure, axes[-1])
    return figure


def _gain(found: Outcome, rule: str) -> Mean:
    return mean_over_repetitions(found.gain(getattr(found, rule)))


def _table(outcomes: list[Outcome]) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for found in outcomes:
        others = found.steady[:, :, found.behaviour.seats :].mean(axis=(1, 2))
        own, balanced, rest = _gain(found, "steady"), _gain(found, "balanced"), mean_over_repetitions(others)
        leaves = {f"leaves_after_{k}": float(found.steady[:, :k, 0].mean()) for k in HITS}
        rows.append(
            {"request": found.request, "behaviour": found.name, "profit": own.value, "standard_error": own.error,
             "under_balanced": balanced.value, "others": rest.value,
             "accuracy": mean_over_repetitions(found.accuracy).value, **leaves}
        )  # fmt: skip
    return pl.DataFrame(rows)
