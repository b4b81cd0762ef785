"""Forecasting a training before it is paid for: rounds and total reward of each fixed request and of the adaptive rule.

The forecast trains a stand-in (`guerdon.lab.planning.pilots`) many times with the real policies. Where the stand-in was
fitted to a pilot, every repetition uses another set of the numbers that the pilot leaves possible.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from guerdon.adaptive import NoiseScaleRequest
from guerdon.agreement import FlatPay
from guerdon.arrays import check_positive_integer
from guerdon.costs import Cost, check_cost
from guerdon.lab.agents import Cooperative
from guerdon.lab.planning.pilots import Fit
from guerdon.lab.problems.quadratic import Numbers, noisy_quadratic
from guerdon.lab.simulation import Stop, simulate
from guerdon.rule import Rule

if TYPE_CHECKING:
    from guerdon.requests import Requests

SIZES = (1, 2, 4, 8, 16, 32)
ARRIVES = 0.95  # share of trainings that must reach the goal; a pilot may leave the goal uncertain
COVERED = 0.9  # share of totals in the interval
MOST_ROUNDS = 2048
WORTH = 0.02  # a fixed request must be this much cheaper to be preferred to the adaptive rule, which needs no forecast


class PolicyForecast(NamedTuple):
    """What a policy is expected to need: the median, and an interval that contains 90 % of trainings."""

    policy: str
    request: int | None  # None: adaptive
    rounds: tuple[float, float, float]
    total: tuple[float, float, float]
    reached: float  # share of trainings that reached the goal within 2048 rounds


class Plan(NamedTuple):
    """The forecast of every policy, the one to choose, and the stand-in behind it."""

    forecasts: tuple[PolicyForecast, ...]
    recommended: str
    numbers: Numbers
    totals: dict[str, Any]  # of every repetition


def forecast(
    cost: Cost,
    num_agents: int,
    fit: Fit,
    *,
    sizes: tuple[int, ...] = SIZES,
    max_batch: int = 64,
    rule: Rule | None = None,
    repetitions: int = 200,
    seed: int = 0,
    announce: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Return rounds and total reward of each fixed request and of the adaptive rule, all with the rule's step.

    `rule` is the payment rule (default: flat pay, which is what honest work is paid on average by every rule).
    """
    check_positive_integer("num_agents", num_agents)
    if num_agents < 2 or repetitions < 20:
        raise ValueError(f"`num_agents` must be at least 2 and `repetitions` 20, got {num_agents} and {repetitions}")
    check_cost(cost, max_batch)
    problem = noisy_quadratic(fit.numbers, fit.dim, max_batch)
    policies: dict[str, Requests] = {"adaptive": NoiseScaleRequest(cost, max_batch)}
    policies |= {f"ν = {nu}": NoiseScaleRequest(cost, nu, min_batch=nu) for nu in sizes if nu <= max_batch}
    agents, payer, stop = [Cooperative()] * num_agents, rule or FlatPay(cost), Stop("left", at_most=0.0)
    forecasts, totals = list[PolicyForecast](), dict[str, Any]()
    for name, policy in policies.items():
        announce(name)
        summary = simulate(problem, agents, payer, policy, MOST_ROUNDS, repetitions, seed, stop=stop, keep="summary")
        totals[name] = summary.total_reward()
        reached = float((summary.last_metrics["left"] <= 0).mean())
        fixed = None if name == "adaptive" else policy.largest(1)
        forecasts.append(PolicyForecast(name, fixed, _summary(summary.rounds_played), _summary(totals[name]), reached))
    return Plan(tuple(forecasts), _recommend(forecasts), fit.numbers, totals)


def _summary(sample: Any) -> tuple[float, float, float]:
    low, high = np.quantile(sample, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return float(np.median(sample)), float(low), float(high)


def _recommend(forecasts: list[PolicyForecast]) -> str:
    """Return the cheapest policy that nearly always arrives; the adaptive one if it is nearly as cheap."""
    arriving = [o for o in forecasts if o.reached >= ARRIVES]
    if not arriving:
        raise ValueError(f"no request reaches the target within {MOST_ROUNDS} rounds; choose an easier target")
    cheapest = min(arriving, key=lambda o: o.total[0])
    adaptive = forecasts[0]
    near = adaptive.reached >= ARRIVES and adaptive.total[0] <= (1 + WORTH) * cheapest.total[0]
    return adaptive.policy if near else cheapest.policy
