"""What a run's numbers say, with how sure they are: pay against cost, and distances against honest work.

Pay against cost: of every agent, over the rounds in which he took part with a usable gradient, the mean of
reward − h(ν) with the interval mean ± t·s/√rounds (Student's t; rounds are taken as independent, since samples are
fresh). An agent stands out only if the interval at a level of 95 % for all agents together (Bonferroni) leaves out 0.

Distances: D is an agent's distance to the others' mean and E what the rule expected of honest work. For normal
gradients of honest agents D/E follows F with f and (n − 2)·f degrees of freedom where E is estimated from the n − 1
others in the same round, χ²_f/f where the variance is known; f is the effective number of dimensions (Satterthwaite).
f is chosen so that the middle half of all log(D/E) of the run is as wide as it should be: few cheats hardly move it.
"""

# What NumPy computes from columns of unknown type has no type either.
# pyright: reportUnknownArgumentType=false

import json
import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from guerdon.dashboard.queries import RunData
from guerdon.ledger.money import MICRO
from guerdon.ledger.rules import looks_at
from guerdon.mechanisms import Status
from guerdon.quantiles import f_quantile, student_quantile

CONFIDENCE = 0.95
BINS = 48
QUARTILES = 1.349  # the distance between the quartiles of a normal distribution, in standard deviations
LARGEST_FREEDOM = 1e7
FEWEST_DISTANCES = 20  # below, a band would be a guess


class PayRow(NamedTuple):
    """One agent's pay against the cost of the work asked for, per round; amounts in units."""

    agent: int
    name: str
    rounds: int  # in which he took part with a usable gradient
    paid: float
    work: float
    difference: float
    low: float | None
    high: float | None
    verdict: str  # fits, less, more, too early
    statuses: dict[str, int]
    median_distance: float | None  # of D/E
    low_distance: float | None
    high_distance: float | None


class Band(NamedTuple):
    """Between what D/E of honest work lies, 95 % of the time; None where there is nothing to judge by."""

    low: float
    high: float
    freedom: float
    participants: float
    inside: float  # share of the run's distances


class Histogram(NamedTuple):
    """How often D/E falls where; `below` and `above` are outside the drawn range."""

    edges: list[float]
    counts: list[int]
    below: int
    above: int


def took_part(data: RunData) -> Any:
    """Return, per payment, whether the agent sent a usable gradient, whether or not he could be paid for it."""
    return (data.status != Status.DECLINED.value) & (data.status != Status.INVALID.value)


def pay_against_cost(data: RunData) -> list[PayRow]:
    """Return every agent's pay against the cost of the work asked for, in the order of the roster."""
    level = 1 - (1 - CONFIDENCE) / (2 * max(len(data.agents), 1))
    ratios, worked = distance_ratios(data), took_part(data)
    order = np.argsort(data.position, kind="stable")
    bounds = np.searchsorted(data.position[order], np.arange(len(data.agents) + 1))
    mine = [order[start:stop] for start, stop in pairwise(bounds)]
    return [
        _pay_row(data, agent, where, where[worked[where]], ratios, level)
        for agent, where in zip(data.agents, mine, strict=True)
    ]


def _pay_row(data: RunData, agent: tuple[int, str], where: Any, worked: Any, ratios: Any, level: float) -> PayRow:
    """Return the row of an agent, whose payments are `where`, those for a usable gradient `worked`."""
    reward, work = data.reward[worked] / MICRO, data.work[data.round[worked]]
    count, gains = len(worked), reward - work
    difference = float(np.mean(gains)) if count else 0.0
    low, high, verdict = interval(gains, level)
    codes, counts = np.unique(data.status[where], return_counts=True)
    statuses = {Status(int(code)).label: int(number) for code, number in zip(codes, counts, strict=True)}
    own = ratios[where][~np.isnan(ratios[where])]
    spread = [float(value) for value in np.quantile(own, [0.5, 0.1, 0.9])] if len(own) else [None, None, None]
    mean = (float(np.mean(reward)), float(np.mean(work))) if count else (0.0, 0.0)
    return PayRow(*agent, count, *mean, difference, low, high, verdict, statuses, *spread)


def interval(gains: Any, level: float) -> tuple[float | None, float | None, str]:
    """Return the 95 % interval of a mean, and what follows at the stricter one-sided `level`."""
    count = len(gains)
    if count < 3:
        return None, None, "too early"
    mean, error = float(np.mean(gains)), float(np.std(gains, ddof=1)) / math.sqrt(count)
    half = student_quantile((1 + CONFIDENCE) / 2, count - 1) * error
    strict = student_quantile(level, count - 1) * error
    verdict = "less" if mean + strict < 0 else "more" if mean - strict > 0 else "fits"
    return mean - half, mean + half, verdict


def distance_ratios(data: RunData) -> Any:
    """Return D/E per payment, NaN where the rule looked at no distance.

    Under information pay D and E are no distances, but what a report failed to tell; both may be negative.
    """
    if looks_at(data.rule) != "distance":
        return np.full(len(data.distance), np.nan)
    return data.distance / data.expected


def honest_band(data: RunData) -> Band | None:
    """Return the band of D/E for honest work, or None where the rule looks at no distances or there are too few."""
    settings = json.loads(data.rule)
    ratios = distance_ratios(data)
    known = ~np.isnan(ratios)
    if settings.get("rule") != "output-agreement" or np.count_nonzero(known) < FEWEST_DISTANCES:
        return None
    present = np.bincount(data.round[took_part(data)], minlength=len(data.record))
    participants = float(np.median(present[np.unique(data.round[known])]))
    others = math.inf if settings["variance"]["kind"] == "known" else max(participants - 2, 1.0)
    freedom = effective_freedom(ratios[known], others)
    low, high = (f_quantile(p, freedom, others * freedom) for p in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    inside = float(np.mean((ratios[known] >= low) & (ratios[known] <= high)))
    return Band(low, high, freedom, participants, inside)


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


def histogram(data: RunData, band: Band | None) -> Histogram | None:
    """Return how D/E is distributed, over a range that holds the band and all but a few in a thousand."""
    ratios = distance_ratios(data)
    ratios = ratios[~np.isnan(ratios)]
    if not len(ratios):
        return None
    first, last = (float(end) for end in np.quantile(ratios, [0.001, 0.999]))
    if band is not None:
        first, last = min(first, 0.9 * band.low), max(last, 1.1 * band.high)
    last = last if last > first else first + 1.0
    counts, edges = np.histogram(ratios, bins=BINS, range=(first, last))
    below, above = int(np.sum(ratios < first)), int(np.sum(ratios > last))
    return Histogram([float(x) for x in edges], [int(x) for x in counts], below, above)


def pay_spread(data: RunData) -> float:
    """Return the standard deviation of reward − h(ν) of a round, from the quartiles over all agents, in units."""
    worked = took_part(data)
    gains = data.reward[worked] / MICRO - data.work[data.round[worked]]
    if len(gains) < FEWEST_DISTANCES:
        return math.nan
    lower, upper = np.quantile(gains, [0.25, 0.75])
    return float(upper - lower) / QUARTILES
