"""Is agreement an equilibrium, and does it pay honest members their cost, on data that nobody prepared for it?

About eighty cells: kinds of data, numbers of members, requests, costs, dimensions and stages of a training. In each of
them one member uses other sizes than it was asked for, all through a training, and five rules pay: the paper's with the
variance known and estimated, balanced variance, agreement (the default), and the witness.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import polars as pl

from guerdon.costs import AffineCost, Cost, ExpressionCost
from guerdon.evidence import Evidence, mean_pair_distance
from guerdon.evidence.pairs import cut_distances
from guerdon.lab.arena.balanced import BalancedVariance
from guerdon.lab.experiments.agreement_data import SURVEYS, Played, play, survey_label, world_of
from guerdon.lab.experiments.claims import Claim, Experiment, Mean, Tell, count_steps, mean_over_repetitions
from guerdon.lab.figures import BLUE, GREEN, GREY, ORANGE, RED, TEXT, panels
from guerdon.rules import EstimatedVariance, KnownVariance, OutputAgreement, WitnessedPay

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SURE = 4.5  # standard errors: with 80 cells, five sizes and three thirds a false alarm has a chance below 1 %
DATA = (*SURVEYS, "normal", "χ²", "t₅", "rows again", "noise differs")
MEMBERS, REQUESTS, STAGES, DIMS = (3, 4, 5, 10, 30), (2, 8, 16), ("early", "middle", "late"), (100, 1, 2)
COSTS = {"affine": ExpressionCost("1 + s"), "convex": ExpressionCost("1 + s**1.5")}
ROUNDS, WARM, FIRST = 60, 24, 10  # in the middle and late in a training, the first rounds are its past: not counted
BATCHES = 4  # minibatches that the server draws itself, for the witness
ROWS = 256  # trainings that are paid at once: one shape for all cells
UNIT = AffineCost(0, 1)  # under which an extra is that of a slope of 1
RULES = ("known", "estimated", "balanced", "agreement", "witness")
COLORS = {"known": GREY, "estimated": RED, "balanced": ORANGE, "agreement": GREEN, "witness": BLUE}


class Cell(NamedTuple):
    """What is played."""

    data: str
    members: int
    request: int
    cost: str
    stage: str
    dim: int

    @property
    def words(self) -> str:
        dim = "" if self.data in SURVEYS else f", d = {self.dim}"
        return f"{self.data}{dim}, K = {self.members}, ν = {self.request}, {self.cost}, {self.stage}"


def cells() -> list[Cell]:
    """Return the cells: all data with all numbers of members, twice; the rest goes round, so that all of it meets."""
    found: list[Cell] = []
    for index, (turn, data, members) in enumerate((t, d, k) for t in range(2) for d in DATA for k in MEMBERS):
        request = REQUESTS[(index + turn) % 3]
        cost = tuple(COSTS)[(index // 3 + turn) % 2]
        found.append(Cell(data, members, request, cost, STAGES[(index // 2) % 3], DIMS[(index + index // 5) % 3]))
    return found


def sizes_of(request: int) -> tuple[int, ...]:
    """Return the sizes that are tried beside the request: one, half, three quarters, more, double."""
    tried = {1, request // 2, round(0.75 * request), round(1.25 * request), 2 * request}
    return (*sorted(tried - {0, request}), request)


class Paid(NamedTuple):
    """What one member gets beyond h(ν), in units of h'(ν), by size: (repetitions, rounds); V where there is one."""

    extras: dict[int, Any]
    scale: Any | None = None


class Finding(NamedTuple):
    """What a rule does in a cell, in shares of the cost: honest pay, its spread, and the best other size."""

    cell: Cell
    rule: str
    honest: Mean
    spread: float
    gain: Mean  # of the best constant size in its best third, beyond honest work
    size: int
    third: int
    informed: tuple[float, float]  # of a member that knows σ² and V, in the first rounds and after


def run(repetitions: int, seed: int, tell: Tell) -> Experiment:
    """Play all cells, and say what each rule does in them."""
    listed = cells()
    step = count_steps(tell, len(listed))
    findings: list[Finding] = []
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(_played, cell, repetitions, seed + 1000 * index) for index, cell in enumerate(listed)]
        for cell, job in zip(listed, jobs, strict=True):
            step(cell.words)
            findings += _judged(cell, job.result())
    return Experiment(
        "agreement", "Agreement with a proof, on many data",
        f"What one honest member earns and what the best other size gains, in {len(listed)} cells under five rules. "
        "Each dot is a cell. Left: honest pay, as a share of the cost. Right: the largest gain of a member that uses "
        "another size all the time, in any third of a training, against its own honest work. A cross is a gain of more "
        f"than {SURE:g} standard errors, and a fault of the rule; above the dots is how many there are.",
        lambda: _figure(findings), _table(findings), tuple(_claims(findings)),
        notes=_notes(findings), survey=survey_label(),
    )  # fmt: skip


def _shape(cell: Cell, repetitions: int) -> tuple[int, int]:
    """Return how many repetitions and rounds: more where pay is noisier, as with rare samples or one dimension."""
    if cell.data in SURVEYS:
        factor = {"survey": 0.25, "survey, 1 %": 0.6, "survey, equal": 0.2}[cell.data]
    else:
        factor = 0.15 if cell.data == "rows again" and cell.dim > 2 else 0.4 if cell.dim > 2 else 1.2
    return max(8, round(repetitions * factor * (0.5 if cell.members > 10 else 1.0))), ROUNDS


def _played(cell: Cell, repetitions: int, seed: int) -> Played:
    world = world_of(cell.data, cell.dim, cell.stage, cell.members, cell.request)
    sizes = sizes_of(cell.request)
    return play(world, cell.members, cell.request, sizes, _shape(cell, repetitions), BATCHES, seed)


def _judged(cell: Cell, played: Played) -> Iterator[Finding]:
    cost = COSTS[cell.cost]
    for rule in RULES:
        paid = pay(rule, cell, played)
        yield _finding(cell, rule, paid, cost, played)


def pay(rule: str, cell: Cell, played: Played) -> Paid:
    """Return what a rule pays the first member for every size."""
    if rule == "agreement":
        return _by_pairs(cell, played)
    if rule == "witness":
        return _by_witness(cell, played)
    variance: Any = {
        "known": KnownVariance(1.0), "estimated": EstimatedVariance(), "balanced": BalancedVariance(),
    }[rule]  # fmt: skip
    unit = played.variance[..., None, None] if rule == "known" else 1.0
    mechanism, nu = OutputAgreement(UNIT, variance), cell.request
    found: dict[int, Any] = {}
    for size, own in played.own.items():
        apart = _with(played.others, own) / unit
        everybody = np.ones(apart.shape[:-1], dtype=bool)
        deviation = apart.mean(axis=-1) - apart.mean(axis=(-2, -1))[..., None] / 2
        nothing = 0 * deviation
        evidence = Evidence(deviation, mean_pair_distance(deviation, everybody), nothing, nothing, everybody)
        payments, _ = mechanism.pay(mechanism.init(cell.members), evidence, everybody, nu)
        found[size] = payments.reward[..., 0] - nu
    return Paid(found)


def _with(others: Any, own: Any) -> Any:
    """Return the distances of all pairs where the first member sent something else."""
    apart = np.array(others, dtype=np.float64)
    apart[..., 0, 1:] = own
    apart[..., 1:, 0] = own
    return apart


@cache
def _pairs_compiled(members: int) -> Any:
    """Return a compiled function of distances (repetitions, rounds, members, members) and ν: extras and scales."""
    rule, everybody = OutputAgreement(UNIT), np.ones(members, dtype=bool)

    def one_run(apart: Any, nu: Any) -> Any:
        def one_round(state: Any, near: Any) -> Any:
            cut = 2 * rule.reach * rule.scale(state) / nu
            mean = cut_distances(near, everybody, cut, rule.reach).pair_distance
            evidence = Evidence(mean, mean, mean, mean, jax.numpy.asarray(everybody))
            payments, state = rule.pay(state, evidence, everybody, nu)
            return state, (payments.reward, payments.variance[0])

        first = jax.tree.map(jax.numpy.asarray, rule.init(members))
        return jax.lax.scan(one_round, first, apart)[1]

    return jax.jit(jax.vmap(one_run, in_axes=(0, None)))


def _by_pairs(cell: Cell, played: Played) -> Paid:
    found: dict[int, Any] = {}
    scale, nu = None, np.asarray(cell.request)
    with jax.enable_x64(True):
        for size, own in played.own.items():
            rewards, scales = _in_rows(_pairs_compiled(cell.members), nu, _with(played.others, own))
            found[size] = rewards[..., 0] - cell.request
            scale = scales if size == cell.request else scale
    return Paid(found, scale)


def _in_rows(function: Any, nu: Any, *arrays: Any) -> list[Any]:
    """Return what a compiled function gives for many trainings, `ROWS` at a time; the last are padded."""
    count, parts = len(arrays[0]), list[Any]()
    for start in range(0, count, ROWS):
        some = [np.asarray(array[start : start + ROWS], dtype=np.float64) for array in arrays]
        padded = [np.concatenate([one, np.repeat(one[:1], ROWS - len(one), axis=0)]) for one in some]
        parts.append([np.asarray(part)[: len(some[0])] for part in function(*padded, nu)])
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


@cache
def _witness_compiled(samples: int) -> Any:
    rule, alone = WitnessedPay(UNIT, samples), np.ones(1, dtype=bool)

    def one_run(distance: Any, expected: Any, nu: Any) -> Any:
        def one_round(state: Any, told: Any) -> Any:
            far, level = (jax.numpy.reshape(part, (1,)) for part in told)
            evidence = Evidence(far, level, far, far, jax.numpy.asarray(alone))
            payments, state = rule.pay(state, evidence, alone, nu)
            return state, (payments.reward[0], payments.variance[0])

        first = jax.tree.map(jax.numpy.asarray, rule.init(1))
        return jax.lax.scan(one_round, first, (distance, expected))[1]

    return jax.jit(jax.vmap(one_run, in_axes=(0, 0, None)))


def _by_witness(cell: Cell, played: Played) -> Paid:
    nu, samples = cell.request, BATCHES * cell.request
    expected = played.witness_variance * (1 / nu + 1 / samples)
    found: dict[int, Any] = {}
    scale: Any = None
    with jax.enable_x64(True):
        for size, own in played.own_witness.items():
            rewards, scales = _in_rows(_witness_compiled(samples), np.asarray(nu), own, expected)
            found[size] = rewards - nu
            scale = scales if size == nu else scale
    return Paid(found, scale)


def _finding(cell: Cell, rule: str, paid: Paid, cost: Cost, played: Played) -> Finding:
    nu, fair, slope = cell.request, float(cost(cell.request)), float(cost.slope(cell.request))
    past = 0 if cell.stage == "early" else WARM
    honest = slope * paid.extras[nu][:, past:]
    thirds = np.array_split(np.arange(past, ROUNDS), 3)
    tried = [
        (mean_over_repetitions(_gain(cost, nu, size, paid)[:, third].mean(axis=1)), size, i)
        for size in paid.extras if size != nu
        for i, third in enumerate(thirds)
    ]  # fmt: skip
    best, size, third = max(tried, key=lambda one: (one[0].value - SURE * one[0].error, one[0].value))
    level = mean_over_repetitions(1 + honest.mean(axis=1) / fair)
    gain = Mean(best.value / fair, best.error / fair)
    spread = float(honest[:, -2 * FIRST :].std()) / fair
    informed = _informed(cost, nu, paid.scale, played.variance)
    early = informed[0] if cell.stage == "early" else np.nan
    return Finding(cell, rule, level, spread, gain, size, third + 1, (early, informed[1]))


def _gain(cost: Cost, nu: int, size: int, paid: Paid) -> Any:
    """Return what a size earns beyond honest work, beside the same others: (repetitions, rounds)."""
    return float(cost(nu)) - float(cost(size)) + float(cost.slope(nu)) * (paid.extras[size] - paid.extras[nu])


def _informed(cost: Cost, nu: int, scale: Any | None, variance: Any) -> tuple[float, float]:
    """Return what a member gains that knows σ² and V, and uses the best size up to 4ν: a share of the cost.

    In an open round it does not know V, and is taken to gain nothing.
    """
    if scale is None:
        return np.nan, np.nan
    with np.errstate(invalid="ignore"):
        ratio = variance / scale
    sizes = np.arange(1, 4 * nu + 1)
    costs = np.array([float(cost(int(size))) for size in sizes])
    fair, slope = float(cost(nu)), float(cost.slope(nu))
    best = np.max(fair - costs + ratio[..., None] * slope * nu * (1 - nu / sizes), axis=-1)
    best = np.nan_to_num(best) / fair
    return float(np.mean(best[:, :FIRST])), float(np.mean(best[:, FIRST:]))


def _of(findings: Sequence[Finding], rule: str) -> list[Finding]:
    return [one for one in findings if one.rule == rule]


def _claims(findings: Sequence[Finding]) -> Iterator[Claim]:
    ours = _of(findings, "agreement")
    for rule in ("agreement", "witness"):
        mine = [one for one in _of(findings, rule) if rule == "agreement" or one.cell.data != "rows again"]
        worst = max(mine, key=lambda one: abs(one.honest.value - 1) / one.honest.error)
        fits = all(abs(one.honest.value - 1) <= SURE * one.honest.error for one in mine)
        yield Claim(
            "agreement",
            f"{rule}: one honest member earns its cost in every cell; furthest off: {worst.cell.words}",
            f"1 within {SURE:g} s.e.",
            worst.honest.value,
            worst.honest.error,
            fits,
        )
        top = max(mine, key=lambda one: one.gain.value - SURE * one.gain.error)
        fits = all(one.gain.value <= SURE * one.gain.error for one in mine)
        yield Claim(
            "agreement",
            f"{rule}: no constant size gains in any third; best: {top.size} in third {top.third} of {top.cell.words}",
            f"at most 0, by {SURE:g} s.e.",
            top.gain.value,
            top.gain.error,
            fits,
        )
    balanced = _of(findings, "balanced")
    top = max(balanced, key=lambda one: one.gain.value - SURE * one.gain.error)
    yield Claim(
        "agreement",
        f"balanced variance is no equilibrium: size {top.size} gains in {top.cell.words}",
        f"above 0, by {SURE:g} s.e.",
        top.gain.value,
        top.gain.error,
        top.gain.value > SURE * top.gain.error,
    )
    under = min(_of(findings, "estimated"), key=lambda one: (one.honest.value - 1) / one.honest.error)
    yield Claim("agreement", f"the estimated rule underpays honest members, most surely in {under.cell.words}",
                f"below 1, by {SURE:g} s.e.", under.honest.value, under.honest.error,
                under.honest.value < 1 - SURE * under.honest.error)  # fmt: skip
    for late, most, words in ((0, 0.05, f"in the first {FIRST} rounds"), (1, 0.025, f"after round {FIRST}")):
        usual = [one for one in ours if one.cell.cost == "affine" and _is_usual(one.cell)]
        usual = [one for one in usual if np.isfinite(one.informed[late])]
        worst = max(usual, key=lambda one: one.informed[late])
        yield Claim(
            "agreement",
            f"a member that knows σ² and V gains at most {most:.1%} {words}; most: {worst.cell.words}",
            f"at most {most:g}",
            worst.informed[late],
            0.0,
            worst.informed[late] <= most,
        )
    others = {one.cell: one.spread for one in balanced}
    for data, most in (("survey, equal", 1.15), ("survey", 1.25)):
        ratios = {one.cell: one.spread / others[one.cell] for one in ours if one.cell.data == data}
        middle = float(np.median(list(ratios.values())))
        yield Claim(
            "agreement",
            f"{data}: spread of honest pay, times that of balanced variance (median of cells)",
            f"at most {most:g}",
            middle,
            0.0,
            middle <= most,
        )


def _is_hard(cell: Cell) -> bool:
    """Tell whether a round says too little of σ²: less than one rare sample, or few members with few dimensions."""
    rare = {"survey": 0.086, "survey, 1 %": 0.01}.get(cell.data, 1.0) * cell.members * cell.request
    return rare < 1 or (cell.data not in SURVEYS and cell.dim < 3 and cell.members < 10)


def _is_usual(cell: Cell) -> bool:
    """Tell whether σ² is one number for all that `World.variance` knows, and rounds say enough of it."""
    return not _is_hard(cell) and cell.data not in ("rows again", "noise differs")


def _notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    ours = _of(findings, "agreement")
    hard = [one for one in ours if _is_hard(one.cell) and one.cell.data not in ("rows again", "noise differs")]
    convex = [one.informed for one in ours if _is_usual(one.cell) and one.cell.cost == "convex"]
    again = [one for one in _of(findings, "witness") if one.cell.data == "rows again"]
    seen = max(again, key=lambda one: abs(one.honest.value - 1) / one.honest.error)
    worst = [float(np.nanmax([one.informed[late] for one in hard])) for late in (0, 1)]
    others = {one.cell: one.spread for one in _of(findings, "balanced")}
    rare = [one.spread / others[one.cell] for one in _of(findings, "agreement") if one.cell.data == "survey, 1 %"]
    return (
        f"Not met: in {len(hard)} cells a round says little of σ²: one or two dimensions with fewer than ten members, "
        "or less than one positive in all reports of a round. There a member that knows σ² and V gains up to "
        f"{worst[0]:.0%} of "
        f"its cost in the first ten rounds, and up to {worst[1]:.0%} after them.",
        "With the convex cost a member has 1.4 times as much at stake. It gains up to "
        f"{np.nanmax(convex, axis=0)[0]:.1%} "
        f"in the first ten rounds, {np.nanmax(convex, axis=0)[1]:.1%} after them.",
        "The witness is for samples that the model has not seen. Where members use their rows again, the model fits "
        f"these and not the server's: honest pay is up to {seen.honest.value:.2f} of the cost ({seen.cell.words}).",
        f"With 1 % of positives the spread of honest pay is {min(rare):.1f} to {max(rare):.1f} times that of balanced "
        "variance, whose fines are bounded: that bound is its fault.",
    )


def _table(findings: Sequence[Finding]) -> pl.DataFrame:
    rows = [
        {**one.cell._asdict(), "rule": one.rule, "honest": one.honest.value, "honest_error": one.honest.error,
         "spread": one.spread, "gain": one.gain.value, "gain_error": one.gain.error, "size": one.size,
         "third": one.third, "informed_early": one.informed[0], "informed_late": one.informed[1]}
        for one in findings
    ]  # fmt: skip
    return pl.DataFrame(rows)


def _figure(findings: Sequence[Finding]) -> "Figure":
    titles = ("Is honest work paid its cost?", "Does another size pay? × beyond chance")
    figure, (left, right) = panels(titles, 3.4, columns=2)
    rng = np.random.default_rng(0)
    for place, rule in enumerate(RULES):
        mine = _of(findings, rule)
        at = place + 0.16 * rng.standard_normal(len(mine)).clip(-2, 2)
        left.plot(at, [np.clip(one.honest.value, -1, 2) for one in mine], "o", color=COLORS[rule], alpha=0.6, ms=4)
        sure = np.array([one.gain.value > SURE * one.gain.error for one in mine])
        gains = np.array([np.clip(one.gain.value, -1.5, 1.5) for one in mine])
        right.plot(at[~sure], gains[~sure], "o", color=COLORS[rule], alpha=0.5, ms=4)
        right.plot(at[sure], gains[sure], "x", color=COLORS[rule], ms=5, mew=1.6)
        right.annotate(f"{sure.sum()} of {len(mine)}", (place, 1.62), ha="center", fontsize=TEXT)
    words = "honest pay ÷ cost (from −1 to 2)", "largest gain of another size ÷ cost"
    for axes, level, named in zip((left, right), (1, 0), words, strict=True):
        axes.axhline(level, color="black", lw=0.8)
        axes.set_xticks(range(len(RULES)), RULES, rotation=20)
        axes.set_ylabel(named)
    right.set_ylim(-1.6, 1.8)
    return figure
