"""What the certificate of agreement says of its cells: findings, claims that can fail, and what does not hold."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from guerdon.costs import Cost, ExpressionCost
from guerdon.lab.experiments.agreement_data import SURVEYS, Cell, Played
from guerdon.lab.experiments.agreement_pay import RULES, Paid, pay
from guerdon.lab.experiments.claims import Claim, Mean, mean_over_repetitions

SMALL = 0.05  # of the cost: as much may leak to a member that knows V, and no size may have more
SHARP = 0.02  # of the cost: a standard error of honest pay
LEAK = 0.025  # of the cost: what may be had where V follows a σ² that falls
MOST_COARSE, MOST_WIDE = 20, 4  # usual cells that were played too little for these
MOST_GAINING = 4  # hard cells in which some size gains
SURE = 4.5  # standard errors: with 80 cells, five sizes and three thirds a false alarm has a chance below 1 %
COSTS = {"affine": ExpressionCost("1 + s"), "convex": ExpressionCost("1 + s**1.5")}
ROUNDS, WARM, FIRST = 60, 24, 10  # in the middle and late in a training, the first rounds are its past: not counted


class Gain(NamedTuple):
    """What a constant size gains in a third of a training beyond honest work, as a share of the cost."""

    value: float
    error: float
    size: int
    third: int  # 0: the rounds before those that count

    @property
    def mean(self) -> Mean:
        return Mean(self.value, self.error)

    @property
    def words(self) -> str:
        return f"size {self.size} in third {self.third}"

    @property
    def told(self) -> str:
        return f"size {self.size} {self.value:+.2f} ({self.error:.2f})"

    @property
    def least(self) -> float:
        """What it gains beyond chance."""
        return self.value - SURE * self.error

    @property
    def most(self) -> float:
        """What it gains at the most: large where too little was played."""
        return self.value + SURE * self.error


class Finding(NamedTuple):
    """What a rule does in a cell, in shares of the cost: honest pay, its spread, and what other sizes gain."""

    cell: Cell
    rule: str
    honest: Mean
    spread: float
    surest: Gain  # that of all sizes and thirds with the largest lower bound
    widest: Gain  # and with the largest upper bound
    start: Gain | None  # the surest in the rounds that are left out in the middle and late in a training
    informed: tuple[float, float]  # of a member that knows σ² and V, in the first rounds and after


def judge(cell: Cell, played: Played) -> Iterator[Finding]:
    """Return what each rule does in a cell."""
    for rule in RULES:
        yield _finding(cell, rule, pay(rule, cell, played), COSTS[cell.cost], played)


def _finding(cell: Cell, rule: str, paid: Paid, cost: Cost, played: Played) -> Finding:
    nu, fair, slope = cell.request, float(cost(cell.request)), float(cost.slope(cell.request))
    past = 0 if cell.stage == "early" else WARM
    honest = slope * paid.honest[:, past:]
    parts = {i + 1: part for i, part in enumerate(np.array_split(np.arange(past, ROUNDS), 3))}

    def gain(size: int, third: int, part: Any) -> Gain:
        more = (fair - float(cost(size)) + slope * paid.beyond[size][:, part].mean(axis=1)) / fair
        return Gain(*mean_over_repetitions(more), size, third)

    tried = [gain(size, third, part) for size in paid.beyond for third, part in parts.items()]
    start = [gain(size, 0, np.arange(past)) for size in paid.beyond if past]
    informed = _informed(cost, nu, paid.scale, played.variance)
    return Finding(
        cell, rule, mean_over_repetitions(1 + honest.mean(axis=1) / fair),
        float(honest[:, -2 * FIRST :].std()) / fair,
        max(tried, key=lambda one: (one.least, one.value)), max(tried, key=lambda one: one.most),
        max(start, key=lambda one: (one.least, one.value), default=None),
        (informed[0] if not past else np.nan, informed[1]),
    )  # fmt: skip


def _informed(cost: Cost, nu: int, scale: Any | None, variance: Any) -> tuple[float, float]:
    """Return what a member gains that knows σ² and V, and uses the best size up to 4ν: a share of the cost.

    In an open round it does not know V, and is taken to gain nothing.
    """
    if scale is None:
        return np.nan, np.nan
    with np.errstate(invalid="ignore"):
        ratio = variance / scale[: len(variance)]
    sizes = np.arange(1, 4 * nu + 1)
    costs = np.array([float(cost(int(size))) for size in sizes])
    fair, slope = float(cost(nu)), float(cost.slope(nu))
    best: Any = np.max(fair - costs + ratio[..., None] * slope * nu * (1 - nu / sizes), axis=-1)
    gained: Any = np.nan_to_num(best) / fair
    return float(gained[:, :FIRST].mean()), float(gained[:, FIRST:].mean())


def of_rule(findings: Sequence[Finding], rule: str) -> list[Finding]:
    """Return what was found of one rule."""
    return [one for one in findings if one.rule == rule]


def _claim(words: str, expected: str, measured: Mean, holds: bool) -> Claim:
    return Claim("agreement", words, expected, *measured, holds)


def claims(findings: Sequence[Finding]) -> Iterator[Claim]:
    """Return all claims; a claim that nothing gains also says how small a gain would have been seen."""
    for rule in ("agreement", "witness"):
        mine = [one for one in of_rule(findings, rule) if rule == "agreement" or one.cell.data != "rows again"]
        yield from _claims_of_level(rule, mine)
        yield from _claims_of_gains(rule, mine)
    ours, balanced = of_rule(findings, "agreement"), of_rule(findings, "balanced")
    yield from _claims_where_little_is_known([one for one in ours if is_hard(one.cell)])
    top = max(balanced, key=lambda one: one.surest.least)
    yield _claim(
        f"balanced variance is no equilibrium: size {top.surest.size} gains in {top.cell.words}",
        f"above 0, by {SURE:g} s.e.", top.surest.mean, top.surest.least > 0,
    )  # fmt: skip
    under = min(of_rule(findings, "estimated"), key=lambda one: (one.honest.value - 1) / one.honest.error)
    yield _claim(
        f"the estimated rule underpays honest members, most surely in {under.cell.words}",
        f"below 1, by {SURE:g} s.e.", under.honest, under.honest.value < 1 - SURE * under.honest.error,
    )  # fmt: skip
    yield from _claims_of_the_informed(ours)
    yield from _claims_of_spread(ours, balanced)


def _claims_of_level(rule: str, mine: Sequence[Finding]) -> Iterator[Claim]:
    """Claim what honest work is paid, and that enough was played to say so."""
    worst = max(mine, key=lambda one: abs(one.honest.value - 1) / one.honest.error)
    yield _claim(
        f"{rule}: one honest member earns its cost in each of {len(mine)} cells; furthest off: {worst.cell.words}",
        f"1 within {SURE:g} s.e.", worst.honest,
        all(abs(one.honest.value - 1) <= SURE * one.honest.error for one in mine),
    )  # fmt: skip
    usual = [one for one in mine if not is_hard(one.cell)]
    coarse = [one for one in usual if one.honest.error > SHARP]
    yield _claim(
        f"{rule}: that is measured within {SHARP:.0%} (one s.e.) in all but {len(coarse)} of {len(usual)} usual cells; "
        "their median s.e.",
        f"in all but {MOST_COARSE}", Mean(float(np.median([one.honest.error for one in usual])), 0.0),
        len(coarse) <= MOST_COARSE,
    )  # fmt: skip


def _claims_of_gains(rule: str, mine: Sequence[Finding]) -> Iterator[Claim]:
    """Claim that no size gains more than V leaks in usual cells, and that it would have been seen if one did."""
    usual = [one for one in mine if not is_hard(one.cell)]
    top = max(usual, key=lambda one: one.surest.least)
    sure = [one for one in usual if one.surest.least > 0]
    yield _claim(
        f"{rule}: some constant size gains beyond {SURE:g} s.e. in {len(sure)} of {len(usual)} usual cells, and there "
        f"at most {LEAK:.1%} of the cost; most surely: {top.surest.words} of {top.cell.words}",
        f"at most {LEAK:g} (wished: 0)", top.surest.mean, all(one.surest.value <= LEAK for one in sure),
    )  # fmt: skip
    wide = [one for one in usual if one.widest.most > SMALL]
    top = max(usual, key=lambda one: one.widest.most)
    yield _claim(
        f"{rule}: {SURE:g} s.e. above what it gains, no size has more than {SMALL:.0%} of the cost in all but "
        f"{len(wide)} of these; most: {top.widest.words} of {top.cell.words}",
        f"value + {SURE:g} s.e. at most {SMALL:g} in all but {MOST_WIDE}", top.widest.mean, len(wide) <= MOST_WIDE,
    )  # fmt: skip
    begun = [(one.start, one.cell) for one in usual if one.start is not None]
    if rule == "agreement" and begun:
        start, cell = max(begun, key=lambda one: one[0].least)
        yield _claim(
            f"{rule}: nor in the first {WARM} rounds of a run that starts where others are in the middle or late, in "
            f"{len(begun)} usual cells; best: size {start.size} in {cell.words}",
            f"at most 0, by {SURE:g} s.e.", start.mean, start.least <= 0,
        )  # fmt: skip


def _claims_where_little_is_known(hard: Sequence[Finding]) -> Iterator[Claim]:
    """Claim in how many hard cells a size gains, and how much: it is not nothing."""
    if not hard:
        return
    top = max(hard, key=lambda one: one.surest.least)
    gaining = [one for one in hard if one.surest.least > 0]
    yield _claim(
        f"agreement, {len(hard)} cells whose rounds say little of σ²: some size gains in {len(gaining)}; most surely: "
        f"{top.surest.words} of {top.cell.words}",
        f"in at most {MOST_GAINING} (wished: in none)", top.surest.mean, len(gaining) <= MOST_GAINING,
    )  # fmt: skip
    wide = max(hard, key=lambda one: one.widest.most)
    yield _claim(
        f"agreement, the same cells: most that a size may gain: {wide.widest.words} of {wide.cell.words}",
        f"value + {SURE:g} s.e. at most 1: the whole cost", wide.widest.mean, wide.widest.most <= 1,
    )  # fmt: skip


def _claims_of_the_informed(ours: Sequence[Finding]) -> Iterator[Claim]:
    for late, most, words in ((0, 0.05, f"in the first {FIRST} rounds"), (1, 0.025, f"after round {FIRST}")):
        usual = [one for one in ours if one.cell.cost == "affine" and _is_usual(one.cell)]
        usual = [one for one in usual if np.isfinite(one.informed[late])]
        worst = max(usual, key=lambda one: one.informed[late])
        yield _claim(
            f"a member that knows σ² and V gains at most {most:.1%} {words} in {len(usual)} usual cells; most: "
            f"{worst.cell.words}",
            f"at most {most:g}", Mean(worst.informed[late], 0.0), worst.informed[late] <= most,
        )  # fmt: skip


def _claims_of_spread(ours: Sequence[Finding], balanced: Sequence[Finding]) -> Iterator[Claim]:
    ratios = _spread_ratios(ours, balanced)
    for data, most, wished in (("survey, equal", 1.15, 1.15), ("survey", 1.25, 1.25), ("survey, 1 %", 3.5, 1.7)):
        if data in ratios:
            middle, missed = float(np.median(ratios[data])), "" if most == wished else f" (wished: {wished:g}, not met)"
            yield _claim(
                f"{data}: spread of honest pay, times that of balanced variance (median of cells)",
                f"at most {most:g}{missed}", Mean(middle, 0.0), middle <= most,
            )  # fmt: skip


def _spread_ratios(ours: Sequence[Finding], balanced: Sequence[Finding]) -> dict[str, list[float]]:
    """Return for each kind of data the spread of honest pay in its cells, times that of balanced variance."""
    others, found = {one.cell: one.spread for one in balanced}, dict[str, list[float]]()
    for one in ours:
        found.setdefault(one.cell.data, []).append(one.spread / others[one.cell])
    return found


def is_hard(cell: Cell) -> bool:
    """Tell whether a round says too little of σ²: less than one rare sample, or few members with few dimensions."""
    rare = {"survey": 0.086, "survey, 1 %": 0.01}.get(cell.data, 1.0) * cell.members * cell.request
    return rare < 1 or (cell.data not in SURVEYS and cell.dim < 3 and cell.members < 10)


def _is_usual(cell: Cell) -> bool:
    """Tell whether σ² is one number for all that `World.variance` knows, and rounds say enough of it."""
    return not is_hard(cell) and cell.data not in ("rows again", "noise differs")


def notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return what does not hold, where, and by how much."""
    ours = of_rule(findings, "agreement")
    hard = [one for one in ours if is_hard(one.cell)]
    gaining = [f"{one.surest.told} in {one.cell.words}" for one in hard if one.surest.least > 0]
    beside = [one for one in of_rule(findings, "witness") if is_hard(one.cell) or one.cell.data == "rows again"]
    watched = [f"{one.surest.told} in {one.cell.words}" for one in beside if one.surest.least > 0]
    begun = [f"{one.start.told} in {one.cell.words}" for one in ours if one.start and one.start.least > 0]
    coarse = [f"{one.honest.error:.1%} in {one.cell.words}" for one in ours if one.honest.error > SHARP]
    wide = [f"{one.widest.told} in {one.cell.words}" for one in ours if one.widest.most > SMALL]
    knowing = [one.informed for one in hard if one.cell.data not in ("rows again", "noise differs")]
    convex = [one.informed for one in ours if _is_usual(one.cell) and one.cell.cost == "convex"]
    again = [one for one in of_rule(findings, "witness") if one.cell.data == "rows again"]
    seen = max(again, key=lambda one: abs(one.honest.value - 1) / one.honest.error)
    rare = _spread_ratios(ours, of_rule(findings, "balanced"))["survey, 1 %"]
    return (
        f"In the middle and late in a training the first {WARM} of {ROUNDS} rounds are its past and do not count: V "
        "has followed since. What a size gains in those rounds, if the run starts there: "
        f"{'; '.join(begun) or 'nothing beyond chance'}.",
        f"In {len(hard)} cells rounds say little of σ²: one or two dimensions with fewer than ten members, or less "
        f"than one positive in all reports of a round. There sizes gain: {'; '.join(gaining) or 'nothing sure'}.",
        f"In these a member that knows σ² and V gains up to {np.nanmax(knowing, axis=0)[0]:.0%} of its cost in the "
        f"first ten rounds, and up to {np.nanmax(knowing, axis=0)[1]:.0%} after them.",
        f"More than {SMALL:.0%} of the cost is not excluded: {'; '.join(wide) or 'nowhere'}.",
        f"One standard error of honest pay is above {SHARP:.0%} of the cost in {len(coarse)} of {len(ours)} cells: "
        f"{'; '.join(coarse) or 'none'}.",
        "With the convex cost a member has 1.4 times as much at stake. If it knows σ² and V it gains up to "
        f"{np.nanmax(convex, axis=0)[0]:.1%} "
        f"in the first ten rounds, {np.nanmax(convex, axis=0)[1]:.1%} after them.",
        "The witness is for samples that the model has not seen. Where members use their rows again, the model fits "
        f"these and not the server's: honest pay is up to {seen.honest.value:.2f} of the cost ({seen.cell.words}). "
        f"Sizes gain under the witness there and where rounds say little: {'; '.join(watched) or 'nowhere'}.",
        f"With 1 % of positives the spread of honest pay is {min(rare):.1f} to {max(rare):.1f} times that of balanced "
        "variance, whose fines are bounded: that bound is its fault.",
    )
