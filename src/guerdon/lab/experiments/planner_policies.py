"""What each way to choose requests pays until a target: the adaptive rule, and fixed choices made in hindsight.

Fixed choices are many, and most of them bad. So each is first tried a few times, and given up once it has spent a
multiple of what the adaptive rule pays. The cheapest are then played in full, with other random draws: what was chosen
because it was lucky is not reported so. Everybody is paid h(ν) flat, which is what honest work earns on average under
every balanced rule.
"""

# NumPy's functions of arrays lose track of what the arrays hold.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from guerdon.adaptive import NoiseScaleRequest
from guerdon.agreement import FlatPay
from guerdon.lab.agents import Cooperative
from guerdon.lab.experiments.claims import mean_over_repetitions
from guerdon.lab.experiments.paper import AGENTS, COST, seed_of
from guerdon.lab.problems import Problem
from guerdon.lab.simulation import History, Stop, simulate
from guerdon.requests import FixedRequest, Requests

ADAPTIVE, RULE, STEP = "adaptive", "fixed ν, step by rule", "fixed ν and step"
TRIED = 10  # repetitions in which every fixed choice is tried; all run in chunks of so many, so that one program does
FINALISTS = 3  # of the choices of a kind, for each target, are played in full
AFFORDABLE = 2.0  # times what the adaptive rule pays: where a choice that is tried is given up
SPENT = 4.0  # the same for finalists; one that arrives is far from it, and one that never does need not go on
ARRIVES = 0.9  # share of its trials in which a finalist must arrive


class PlannerSetting(NamedTuple):
    """What is learned, how far, and the fixed choices that the rule is compared with."""

    name: str
    problem: Problem
    metric: str
    targets: tuple[float, ...]
    sizes: tuple[int, ...]
    steps: tuple[float, ...]
    rounds: int
    repetitions: int
    seed: int
    ruled: bool = False  # whether fixed requests with the rule's own step play too

    @property
    def falling(self) -> bool:
        """Whether the metric is to fall: an error, rather than an accuracy."""
        return self.metric == "error"

    @property
    def stop(self) -> Stop:
        """When a run ends: at the last target."""
        last = self.targets[-1]
        return Stop(self.metric, at_most=last) if self.falling else Stop(self.metric, at_least=last)


class Policy(NamedTuple):
    """A way to choose requests."""

    kind: str
    request: int  # 0: adaptive
    step: float  # NaN: by the rule
    requests: Requests


class PolicySpending(NamedTuple):
    """What one policy paid up to one target, and in how many rounds, in each repetition."""

    policy: str
    request: int  # 0: adaptive
    step: float  # NaN: by the rule
    target: float
    totals: Any
    rounds: Any
    reached: float  # the share of repetitions that got there; the others' totals go up to where they were cut off


def policies(setting: PlannerSetting) -> list[Policy]:
    """Return every policy, the adaptive one first."""
    listed = [Policy(ADAPTIVE, 0, math.nan, NoiseScaleRequest(COST, setting.problem.max_batch))]
    for nu in setting.sizes:
        if setting.ruled:
            listed.append(Policy(RULE, nu, math.nan, NoiseScaleRequest(COST, nu, min_batch=nu)))
        listed += [Policy(STEP, nu, step, FixedRequest(nu, step)) for step in setting.steps]
    return listed


def sweep(setting: PlannerSetting, step: Callable[[str], None] = lambda _: None) -> list[PolicySpending]:
    """Return what every policy paid up to every target: in full for the adaptive one and the finalists."""
    first, *fixed = policies(setting)
    step(f"{setting.name}: {first.kind}")
    adaptive = play(setting, first)
    spent: dict[Policy, list[PolicySpending]] = {}
    for policy in fixed:
        step(f"{setting.name}: {_named(policy)}")
        spent[policy] = play(setting, policy, _rounds(setting, policy, adaptive[-1], AFFORDABLE), TRIED)
    step(f"{setting.name}: the cheapest in full")
    for policy in finalists(setting, spent):
        spent[policy] = play(setting, policy, _rounds(setting, policy, adaptive[-1], SPENT))
    return adaptive + [one for found in spent.values() for one in found]


def finalists(setting: PlannerSetting, tried: dict[Policy, list[PolicySpending]]) -> list[Policy]:
    """Return the policies that were among the cheapest of their kind for some target when they were tried."""
    chosen: dict[Policy, None] = {}
    for kind in (RULE, STEP):
        for place in range(len(setting.targets)):
            arrived = [policy for policy in tried if policy.kind == kind and tried[policy][place].reached >= ARRIVES]
            arrived.sort(key=lambda policy: float(np.mean(tried[policy][place].totals)))
            chosen |= dict.fromkeys(arrived[:FINALISTS])
    return list(chosen)


def play(
    setting: PlannerSetting, policy: Policy, rounds: int | None = None, repetitions: int | None = None
) -> list[PolicySpending]:
    """Return what one policy paid up to each target, from one run up to the last of them."""
    history = train(setting, policy.requests, rounds or setting.rounds, repetitions or setting.repetitions)
    spent = (_up_to(setting, history, target) for target in setting.targets)
    return [PolicySpending(*policy[:3], target, *found) for target, found in zip(setting.targets, spent, strict=True)]


def train(setting: PlannerSetting, requests: Requests, rounds: int, repetitions: int) -> History:
    """Return a training up to the last target; with another number of repetitions the random draws are others too."""
    agents, key = [Cooperative()] * AGENTS, seed_of(setting.seed, repetitions)
    arguments = setting.problem, agents, FlatPay(COST), requests, rounds, repetitions, key
    return simulate(*arguments, stop=setting.stop, chunk=TRIED)


def select(spent: list[PolicySpending], policy: str, target: float) -> list[PolicySpending]:
    """Return what one kind of policy paid up to a target."""
    return [s for s in spent if s.policy == policy and s.target == target]


def best(spent: list[PolicySpending], policies: tuple[str, ...], target: float) -> PolicySpending:
    """Return the cheapest in hindsight of those that reached the target in every repetition.

    Those that were played in full come before those that were only tried.
    """
    candidates = [s for policy in policies for s in select(spent, policy, target) if s.reached == 1.0]
    most = max(len(s.totals) for s in candidates)
    return min((s for s in candidates if len(s.totals) == most), key=lambda s: float(np.mean(s.totals)))


def _rounds(setting: PlannerSetting, policy: Policy, adaptive: PolicySpending, times: float) -> int:
    """Return in how many rounds a policy spends so many times what the adaptive one pays."""
    money = times * mean_over_repetitions(adaptive.totals).value
    return min(setting.rounds, math.ceil(money / (AGENTS * float(COST(policy.request)))))


def _named(policy: Policy) -> str:
    length = "" if math.isnan(policy.step) else f", {policy.step:.2g}"
    return f"{policy.kind}, ν = {policy.request}{length}"


def _up_to(setting: PlannerSetting, history: History, target: float) -> tuple[Any, Any, float]:
    """Return the reward paid and the rounds played until each run was at the target, and the share that got there."""
    values = history.metrics[setting.metric][:, 1:]
    there = (values <= target) if setting.falling else (values >= target)
    rounds = np.where(there.any(axis=1), 1 + np.argmax(there, axis=1), history.rounds_played)
    paid = np.cumsum(history.rewards["reward"].sum(axis=2, dtype=np.float64), axis=1)
    return paid[np.arange(len(rounds)), np.maximum(rounds, 1) - 1], rounds, float(np.mean(there.any(axis=1)))
