"""An empirical equilibrium check: simulate unilateral deviations, and decide for each if the payment rule deters it.

Agent 0 deviates, in what it uses or in what it sends; the others cooperate. Deviating and cooperating are simulated
with the same random numbers. The gain is the difference of agent 0's mean utility per round, over independent
repetitions. The confidence intervals hold together (familywise) by Bonferroni's inequality: with m deviations each has
level 1 − (1 − confidence)/m, from Student's t.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from guerdon._quantiles import student_quantile
from guerdon.arrays import check_number, check_positive_integer
from guerdon.costs import Cost
from guerdon.lab import agents
from guerdon.lab.agents import Agent, Cooperative, Portion, Reporting
from guerdon.lab.problems import Problem
from guerdon.lab.simulation import simulate
from guerdon.requests import FixedRequest
from guerdon.rule import Rule
from guerdon.statistical.dithers import Dither
from guerdon.statistical.predictions import Prediction

Verdict = Literal["deters", "does not deter", "undecided"]


class DeviationFinding(NamedTuple):
    """What a deviation gains per round, with its confidence interval, and the verdict."""

    deviation: str
    gain: float
    standard_error: float
    low: float
    high: float
    verdict: Verdict
    repetitions_needed: int  # to decide, at the same confidence; if it is decided, at most the number that was used


@dataclass(frozen=True)
class Certificate:
    """The finding on every deviation, and the settings of the check."""

    findings: tuple[DeviationFinding, ...]
    honest_utility: float
    honest_error: float
    confidence: float
    tolerance: float
    repetitions: int
    rounds: int

    @property
    def holds(self) -> bool:
        return all(finding.verdict == "deters" for finding in self.findings)


def certify(
    problem: Problem,
    rule: Rule,
    request: int,
    step: float,
    deviations: Mapping[str, Agent] | None = None,
    *,
    num_agents: int = 10,
    rounds: int = 30,
    repetitions: int = 250,
    seed: int = 0,
    confidence: float = 0.95,
    tolerance: float | None = None,
    cost: Cost | None = None,
    others: Agent | None = None,
    prediction: Prediction | None = None,
    dither: Dither | None = None,
    progress: bool = False,
    announce: Callable[[str], None] | None = None,
) -> Certificate:
    """Simulate each deviation of one agent against cooperation, and return what it gains and a verdict on each.

    A deviation is deterred if with the stated confidence it gains at most `tolerance` a round. The default is 2 % of
    the cost of the work asked for; at an equilibrium declining gains exactly nothing, so there must be some tolerance.
    A deviation that gains more is not deterred. Otherwise it is undecided, with the repetitions that would decide. The
    `others` cooperate unless you give another agent. `announce` gets the name of each deviation before its simulation.
    """
    check_positive_integer("request", request)
    check_number("confidence", confidence, minimum=0, inclusive=False)
    if repetitions < 2 or confidence >= 1:
        raise ValueError(f"`repetitions` must be at least 2 and `confidence` below 1, got {repetitions}, {confidence}")
    cost = cost or rule.cost
    slack = 0.02 * float(cost(request)) if tolerance is None else tolerance
    tried = dict(standard_deviations(request, problem.max_batch) if deviations is None else deviations)

    def utilities(name: str, agent: Agent) -> Any:
        """Return agent 0's mean utility per round in each repetition."""
        if announce is not None:
            announce(name)
        crowd = [agent, *[others or Cooperative()] * (num_agents - 1)]
        summary = simulate(
            problem, crowd, rule, FixedRequest(request, step), rounds, repetitions, seed,
            costs=cost, prediction=prediction, dither=dither, keep="summary", progress=progress,
            dimension_free=False,  # all deviations on the same random numbers, also those that look at vectors
        )  # fmt: skip
        return summary.total_utilities["reward"][:, 0] / rounds

    honest = utilities("do as asked", Reporting(Portion(1.0)))
    quantile = student_quantile(1 - (1 - confidence) / (2 * max(len(tried), 1)), len(honest) - 1)
    findings = tuple(_judge(name, utilities(name, agent) - honest, quantile, slack) for name, agent in tried.items())
    error = float(honest.std(ddof=1)) / math.sqrt(len(honest))
    return Certificate(findings, float(honest.mean()), error, confidence, slack, len(honest), rounds)


def standard_deviations(request: int, max_batch: int) -> dict[str, Agent]:
    """Return the deviations worth trying: declining, other sizes up to `max_batch`, and other things to send."""
    sizes = sorted({1, request // 2, request - 1, request + 1, 2 * request} - {0, request})
    shares = {f"use {size}": size / request for size in sizes if size <= max_batch}
    return {
        "decline": Reporting(Portion(0.0)),
        **{name: Reporting(Portion(share)) for name, share in shares.items()},
        "send zeros": agents.zero(),
        "echo the last aggregate": agents.echo(),
        "echo plus honest noise": agents.noisy_echo(),
        "work, send half": agents.shrink(0.5),
        "work, send double": agents.scale(2.0),
        "work, flip the sign": agents.sign_flip(),
        "send garbage": agents.garbage(10.0),
    }


def _judge(name: str, gains: Any, quantile: float, tolerance: float) -> DeviationFinding:
    count = len(gains)
    gain, spread = float(gains.mean()), float(gains.std(ddof=1))
    error = spread / math.sqrt(count)
    low, high = gain - quantile * error, gain + quantile * error
    verdict: Verdict = "deters" if high <= tolerance else "does not deter" if low > tolerance else "undecided"
    distance = abs(gain - tolerance)
    needed = math.ceil((quantile * spread / distance) ** 2) if distance > 0 else 10**12
    return DeviationFinding(name, gain, error, low, high, verdict, needed)
