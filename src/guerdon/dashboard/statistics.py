"""What a run's numbers say, with how sure they are (docs/how-to/dashboard.md explains both).

Pay against cost: the mean of pay − h(ν) ± t·s/√rounds, over the rounds in which an agent sent a usable gradient. It
stands out only if the interval at a level of 95 % for all agents together (Bonferroni) leaves out 0.

Distances: all are shown as distances to the mean of the others, relative to what is expected of honest work. With D and
E of the paper's equation 6 that is D/E. Where agents are compared in pairs, D and E also contain how far the others lie
from their own mean,

    D/E = (n − 2)/(2(n − 1)) + n/(2(n − 1)) · F       F: the distance to the mean of the others, relative

because Σ_i ‖X_k − X_i‖² = (n − 1)·‖X_k − m₋ₖ‖² + Σ_i ‖X_i − m₋ₖ‖² over the others i. So F follows from D/E there. For
honest work F has f and (n − 2)·f degrees of freedom, χ²_f/f where the variance is known. f is chosen so that the middle
half of all log F of the run is as wide as it should be: a few cheats hardly move it. Where the variance is not known, E
rests on all the others, and one agent that is far away raises it for everybody. So the band is moved to the middle of
the run's distances there.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from guerdon._quantiles import f_quantile, student_quantile
from guerdon.dashboard.queries import RunData, RunMember
from guerdon.ledger.books.money import MICRO
from guerdon.rule import Status
from guerdon.words import about

CONFIDENCE = 0.95
BINS = 48
REACH = 3.0  # times as far as the band's end what lies further out is counted, but not drawn
QUARTILES = 1.349  # the distance between the quartiles of a normal distribution, in standard deviations
LARGEST_FREEDOM = 1e7
FEWEST_DISTANCES = 20  # below, a band would be a guess

PayVerdict = Literal["fits", "less", "more", "too early"]


@dataclass(frozen=True)
class AgentPay:
    """An agent's mean pay a round against the cost of the requested work, with its 95 % interval."""

    agent: int
    name: str
    rounds: int  # in which it sent a usable gradient
    paid: float
    work: float
    difference: float
    low: float | None
    high: float | None
    verdict: PayVerdict
    statuses: dict[str, int]
    median_distance: float | None  # relative to that of honest work
    low_distance: float | None
    high_distance: float | None


@dataclass(frozen=True)
class RunPay:
    """Pay against cost of every agent of a run, in the order of its roster."""

    unit: str
    agents: list[AgentPay]


@dataclass(frozen=True)
class DistanceBand:
    """Where the relative distance of honest work lies 95 % of the time, and the share of this run's that does."""

    low: float
    high: float
    freedom: float
    participants: float
    inside: float
    middle: float  # times the distance expected by the rule: what the band was moved by


@dataclass(frozen=True)
class DistanceHistogram:
    """How often the relative distance falls where; `below` and `above` are outside the range."""

    edges: list[float]
    counts: list[int]
    below: int
    above: int


@dataclass(frozen=True)
class Distances:
    """Distances relative to those expected of honest work; both null where the rule looks at none."""

    band: DistanceBand | None
    histogram: DistanceHistogram | None


def took_part(data: RunData) -> Any:
    """Return, per payment, whether the agent sent a usable gradient, paid or not."""
    return (data.status != Status.DECLINED.value) & (data.status != Status.INVALID.value)


def pay_against_cost(data: RunData) -> list[AgentPay]:
    """Return every agent's pay against the cost of the requested work, in the order of the roster."""
    level = 1 - (1 - CONFIDENCE) / (2 * max(len(data.agents), 1))
    ratios, worked = distance_ratios(data), took_part(data)
    order = np.argsort(data.position, kind="stable")
    bounds = np.searchsorted(data.position[order], np.arange(len(data.agents) + 1))
    mine = [order[start:stop] for start, stop in pairwise(bounds)]
    return [
        _agent_pay(data, agent, where, where[worked[where]], ratios, level)
        for agent, where in zip(data.agents, mine, strict=True)
    ]


def _agent_pay(data: RunData, agent: RunMember, where: Any, worked: Any, ratios: Any, level: float) -> AgentPay:
    """Return the pay of an agent; its payments are at `where`, those for a usable gradient at `worked`.

    What it was paid in rounds without work of its own is the extra of those in which it worked: it is spread over them.
    """
    late = (data.paid[where].sum() - data.paid[worked].sum()) / MICRO
    pay, work = data.paid[worked] / MICRO + late / max(len(worked), 1), data.costs(worked)
    gains = pay - work
    paid, asked, difference = (float(values.mean()) if len(values) else 0.0 for values in (pay, work, gains))
    low, high, verdict = interval(gains, level)
    codes, counts = np.unique(data.status[where], return_counts=True)
    statuses = {Status(int(code)).label: int(number) for code, number in zip(codes, counts, strict=True)}
    shown = ratios[where][~np.isnan(ratios[where])]
    spread = [float(value) for value in np.quantile(shown, [0.5, 0.1, 0.9])] if len(shown) else [None, None, None]
    return AgentPay(agent.id, agent.name, len(worked), paid, asked, difference, low, high, verdict, statuses, *spread)


def interval(gains: Any, level: float) -> tuple[float | None, float | None, PayVerdict]:
    """Return the 95 % interval of a mean, and what follows at the stricter one-sided `level`."""
    count = len(gains)
    if count < 3:
        return None, None, "too early"
    mean, error = float(gains.mean()), float(gains.std(ddof=1)) / math.sqrt(count)
    half = student_quantile((1 + CONFIDENCE) / 2, count - 1) * error
    strict = student_quantile(level, count - 1) * error
    verdict = "less" if mean + strict < 0 else "more" if mean - strict > 0 else "fits"
    return mean - half, mean + half, verdict


def distance_ratios(data: RunData) -> Any:
    """Return the distance to the mean of the others per payment, relative to honest work; NaN where there is none.

    Under information pay D and E are no distances: they say how much a report failed to tell. Both may be negative.
    """
    if about(data.rule).formula != "E − D":
        return np.full(len(data.ratio), np.nan)
    if not about(data.rule).transfers(data.rule):  # not compared in pairs
        return data.ratio
    count = np.maximum(participants(data)[data.round], 3)  # fewer are not paid by pairs
    shared = (count - 2) / (2 * (count - 1))
    return np.maximum(data.ratio - shared, 0.0) / (1 - shared)


def participants(data: RunData) -> Any:
    """Return how many agents sent a usable gradient, per round."""
    return np.bincount(data.round[took_part(data)], minlength=len(data.record))


def honest_band(data: RunData) -> DistanceBand | None:
    """Return the band of relative distances of honest work, or None where there are none or too few."""
    variance: dict[str, Any] = about(data.rule).settings(data.rule).get("variance", {})
    ratios = distance_ratios(data)
    compared = ~np.isnan(ratios)
    if not variance or np.count_nonzero(compared) < FEWEST_DISTANCES:
        return None
    count = float(np.median(participants(data)[np.unique(data.round[compared])]))
    others = math.inf if variance["kind"] == "known" else max(count - 2, 1.0)
    freedom = effective_freedom(ratios[compared], others)
    tail = (1 - CONFIDENCE) / 2
    low, median, high = (f_quantile(p, freedom, others * freedom) for p in (tail, 0.5, 1 - tail))
    middle = 1.0 if variance["kind"] == "known" else float(np.median(ratios[compared])) / median
    inside = float(((ratios[compared] >= middle * low) & (ratios[compared] <= middle * high)).mean())
    return DistanceBand(middle * low, middle * high, freedom, count, inside, middle)


def effective_freedom(ratios: Any, others: float) -> float:
    """Return the f for which the middle half of log F(f, others·f) is as wide as that of the ratios."""
    lower, upper = np.quantile(np.maximum(ratios, 1e-12), [0.25, 0.75])
    width = math.log(upper / lower)
    low, high = 1.0, LARGEST_FREEDOM
    for _ in range(60):
        middle = math.sqrt(low * high)
        ends = [max(f_quantile(p, middle, others * middle), 1e-12) for p in (0.25, 0.75)]
        low, high = (middle, high) if math.log(ends[1] / ends[0]) > width else (low, middle)
    return math.sqrt(low * high)


def histogram(data: RunData, band: DistanceBand | None) -> DistanceHistogram | None:
    """Return how relative distances are distributed, over a range that holds the band and what is not far from it."""
    ratios = distance_ratios(data)
    ratios = ratios[~np.isnan(ratios)]
    if not len(ratios):
        return None
    near = ratios if band is None else ratios[(ratios > band.low / REACH) & (ratios < band.high * REACH)]
    first, last = (float(end) for end in np.quantile(near, [0.001, 0.999]))
    if band is not None:
        first, last = min(first, 0.9 * band.low), max(last, 1.1 * band.high)
    last = last if last > first else first + 1.0
    counts, edges = np.histogram(ratios, bins=BINS, range=(first, last))
    below, above = int(np.sum(ratios < first)), int(np.sum(ratios > last))
    return DistanceHistogram([float(x) for x in edges], [int(x) for x in counts], below, above)


def pay_spread(data: RunData) -> float:
    """Return the standard deviation of pay − h(ν) of a round, from the quartiles over all agents, in units.

    It is that of an agent without a cost factor; with one, multiply by it. A round that still waits for its extra does
    not count.
    """
    worked = took_part(data) & (data.status != Status.WAITING.value)
    gains = (data.paid[worked] / MICRO - data.costs(worked)) / data.factors[data.position[worked]]
    if len(gains) < FEWEST_DISTANCES:
        return math.nan
    lower, upper = np.quantile(gains, [0.25, 0.75])
    return float(upper - lower) / QUARTILES
