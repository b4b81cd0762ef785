"""A run round by round, drawn with a bounded number of points; what was averaged says so."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from guerdon.dashboard.queries import RoundNote, RunData, RunMember
from guerdon.dashboard.statistics import pay_spread, took_part
from guerdon.lab.figures import NORMAL_95
from guerdon.ledger.books.money import MICRO
from guerdon.rule import Status, paid_work

MOST_POINTS = 400
MOST_ROWS = 40  # agents in the matrix
MOST_COLUMNS = 120  # rounds in it


@dataclass(frozen=True)
class RoundSeries:
    """A run's rounds; each point is the mean of `rounds_per_point` rounds, the cumulative ones are exact."""

    unit: str
    rounds_per_point: int
    round: list[int]  # the last one of each point
    request: list[float]
    paid: list[float]
    work: list[float]
    cumulative_paid: list[float]
    cumulative_work: list[float]
    took_part: list[float]
    metrics: dict[str, list[float | None]]


@dataclass(frozen=True)
class Participation:
    """The status of agents (rows) in rounds (columns): an index into `labels`, or -1 before the agent joined."""

    labels: list[str]
    first: int
    last: int
    newest: int
    rounds: list[int]
    agents: list[RunMember]
    statuses: list[list[int]]
    hidden: int  # agents that are not shown, having missed fewer rounds
    notes: list[RoundNote]


@dataclass(frozen=True)
class AgentSeries:
    """An agent's pay and the cost of its requested work in a run, added up, with the band of honest work."""

    unit: str
    rounds_per_point: int
    round: list[int]
    paid: list[float]
    work: list[float]
    low: list[float | None]
    high: list[float | None]


def round_series(data: RunData, most: int = MOST_POINTS) -> RoundSeries:
    """Return what was requested, paid and measured: at most `most` points, each of as many rounds."""
    count = len(data.record)
    size = max(1, math.ceil(count / most))
    starts = np.arange(0, count, size)
    sums = per_round(data)
    lengths = np.diff(np.append(starts, count))
    ends = np.append(starts[1:], count) - 1 if count else starts

    def mean(values: Any) -> list[float]:
        return (np.add.reduceat(values, starts) / lengths).tolist() if count else []

    paid, work = np.cumsum(sums["paid"]), np.cumsum(sums["work"])
    names = dict.fromkeys(name for metrics in data.metrics for name in metrics)
    return RoundSeries(
        data.unit, size, data.number[ends].tolist(), mean(data.request.astype(float)), mean(sums["paid"]),
        mean(sums["work"]), paid[ends].tolist(), work[ends].tolist(), mean(sums["took_part"]),
        {name: _metric(data, name, starts, size) for name in names},
    )  # fmt: skip


def per_round(data: RunData) -> dict[str, Any]:
    """Return, per round, what was paid, what the work of the participants costs, and how many there were."""
    count, worked = len(data.record), took_part(data)
    present = np.bincount(data.round[worked], minlength=count).astype(float)
    paid = np.bincount(data.round, weights=data.paid / MICRO, minlength=count)
    work = np.bincount(data.round[worked], weights=data.costs(worked), minlength=count)
    return {"paid": paid, "work": work, "took_part": present}


def _metric(data: RunData, name: str, starts: Any, size: int) -> list[float | None]:
    """Return the mean of a metric at each point, None where it was not measured."""
    values = np.array([np.nan if (x := metrics.get(name)) is None else x for metrics in data.metrics], dtype=float)
    means: list[float | None] = []
    for start in starts.tolist():
        finite = values[start : start + size][np.isfinite(values[start : start + size])]
        means.append(float(np.mean(finite)) if len(finite) else None)
    return means


def participation(data: RunData, last: int | None = None) -> Participation:
    """Return who took part in the rounds up to `last` (default: the newest); of many agents, those that missed most.

    The remarks are not among the columns of a run: `notes` is empty.
    """
    count = len(data.record)
    stop = count if last is None else int(np.searchsorted(data.number, last, side="right"))
    start = max(0, stop - MOST_COLUMNS)
    grid = np.full((len(data.agents), stop - start), -1, dtype=np.int64)
    inside = (data.round >= start) & (data.round < stop)
    grid[data.position[inside], data.round[inside] - start] = data.status[inside]
    rows = np.arange(len(data.agents))
    if len(rows) > MOST_ROWS:
        missed = np.bincount(data.position[~paid_work(data.status)], minlength=len(rows))
        rows = np.sort(np.argsort(-missed, kind="stable")[:MOST_ROWS])
    shown = [data.agents[row] for row in rows]
    numbers = data.number[start:stop].tolist()
    first, end = (numbers[0], numbers[-1]) if numbers else (0, 0)
    newest = int(data.number[-1]) if count else 0
    labels, hidden = [code.label for code in Status], len(data.agents) - len(shown)
    return Participation(labels, first, end, newest, numbers, shown, grid[rows].tolist(), hidden, [])


def with_fates(shown: Participation, fate: Callable[[int, int], str]) -> Participation:
    """Return the same for a run under looks, where a paid round is held, released or forfeited by now.

    `fate`: which of these, of an agent's number and a round.
    """
    labels, paid = list(shown.labels), shown.labels.index(Status.PAID.label)
    statuses = [list(line) for line in shown.statuses]
    for line, member in zip(statuses, shown.agents, strict=True):
        for column, number in enumerate(shown.rounds):
            if line[column] == paid:
                name = fate(member.id, number)
                labels += [] if name in labels else [name]
                line[column] = labels.index(name)
    return replace(shown, labels=labels, statuses=statuses)


def agent_series(data: RunData, agent: int, most: int = MOST_POINTS) -> AgentSeries:
    """Return an agent's pay and the cost of its requested work, added up over the rounds that it took part in.

    A round in which it was away counts where it was paid something: the extra of earlier ones.
    The band is cost ± 1.96·s·√rounds, s the standard deviation of a round's pay − cost from the quartiles over all
    agents of the run: at any one moment an honest agent is inside with a probability of about 95 %.
    """
    place = [member.id for member in data.agents].index(agent)
    worked = took_part(data)
    mine = np.flatnonzero((data.position == place) & (worked | (data.paid != 0)))
    size = max(1, math.ceil(len(mine) / most))
    ends = np.arange(len(mine))[size - 1 :: size]
    if len(mine) and (not len(ends) or ends[-1] != len(mine) - 1):
        ends = np.append(ends, len(mine) - 1)
    paid, work = np.cumsum(data.paid[mine] / MICRO), np.cumsum(np.where(worked[mine], data.costs(mine), 0.0))
    half = NORMAL_95 * data.factors[place] * pay_spread(data) * np.sqrt(np.cumsum(worked[mine])[ends])

    def finite(values: Any) -> list[float | None]:
        return [None if math.isnan(value) else value for value in values.tolist()]

    return AgentSeries(
        data.unit, size, data.number[data.round[mine]][ends].tolist(), paid[ends].tolist(), work[ends].tolist(),
        finite(work[ends] - half), finite(work[ends] + half),
    )  # fmt: skip
