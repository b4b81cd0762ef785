"""What a forecast starts from: a stand-in for the training (`NoisyQuadratic`), given or fitted to a pilot.

A pilot is a saved history: every round carries unbiased σ² and ‖m‖². Given the curvature L, a pilot's ‖m‖² follows from
its first value by the recursion ‖m'‖² = ‖m‖²(1 − ηL)² + (ηL)²σ²/(nν), in which it is linear. So a search finds L, and
least squares the first value. The goal is the value of that curve when the pilot reached its target. A parametric
bootstrap measures what the pilot leaves uncertain: pilots are drawn from the fitted stand-in and fitted again.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from guerdon.arrays import check_number, check_positive_integer
from guerdon.lab.problems.quadratic import Numbers
from guerdon.noise_scale import CURVATURE

if TYPE_CHECKING:
    import polars as pl

BOOTSTRAPS = 40
CURVATURES = CURVATURE * np.geomspace(1e-3, 1e3, 601)
LEAST_ROUNDS = 8  # of a pilot
MEASURED = ("request", "step", "variance", "signal")
COLUMNS = ("repetition", "round", "agent", "batch_size", "cost", "rule", "reward", *MEASURED, "sent")


@dataclass(frozen=True)
class Pilot:
    """A training that reached its target: what was asked and measured in each round, one repetition after another."""

    start: Any  # whether a repetition begins with this round
    request: Any
    step: Any
    crowd: Any
    variance: Any
    signal: Any
    reached: Any  # whether the target was reached in this round, for the first time


class Fit(NamedTuple):
    """The stand-in that a pilot suggests, and the effective dimension of its noise."""

    numbers: Numbers
    dim: int


def fit_numbers(variance: float, signal: float, target: float, dim: int = 100) -> Fit:
    """Return the stand-in with a constant σ², and ‖m‖² that must fall from `signal` to `target`."""
    for name, value in (("variance", variance), ("signal", signal), ("target", target)):
        check_number(name, value, minimum=0, inclusive=False)
    check_positive_integer("dim", dim)
    if target >= signal:
        raise ValueError(
            f"`target` must be below `signal` ({signal:g}), the value at the start of training, got {target:g}"
        )
    return Fit(Numbers(signal, CURVATURE, variance, 0.0, target), dim)


def parse_goal(pilot: Path | None, target: str, variance: float | None, signal: float | None, seed: int = 0) -> Fit:
    """Return the stand-in that the command line describes: a pilot and its target, or three numbers."""
    if pilot is None:
        if variance is None or signal is None or not target:
            raise ValueError("`plan` needs a pilot and `--target`, or all of `--variance`, `--signal` and `--target`")
        return fit_numbers(variance, signal, _number(target, "`--target` must be a number without a pilot"))
    if variance is not None or signal is not None:
        raise ValueError("`--variance` and `--signal` must be left out with a pilot, which gives both")
    match = re.fullmatch(r"\s*(\w+)\s*(<=|>=)\s*(\S+)\s*", target)
    if match is None:
        raise ValueError(f'`--target` must be a metric and a value, like "error <= 0.5", got {target!r}')
    metric, sense, value = match.groups()
    bound = {"<=": "at_most", ">=": "at_least"}[sense]
    number = _number(value, "`--target` must compare with a number")
    return fit_pilot(read_pilot(pilot, metric, **{bound: number}), seed)


def _number(text: str, complaint: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{complaint}, got {text!r}") from None


def read_pilot(path: Path, metric: str, *, at_most: float | None = None, at_least: float | None = None) -> Pilot:
    """Return the pilot in a Parquet file that `guerdon simulate --save` wrote, up to where it reached its target."""
    import polars as pl

    if not path.is_file():
        raise FileNotFoundError(f"`{path}` is not a file; `guerdon simulate CONFIG.toml --save {path.name}` writes one")
    try:
        frame = pl.read_parquet(path)
    except Exception as error:
        raise ValueError(f"`{path}` cannot be read as Parquet: {error}") from error
    return pilot_from_frame(frame, metric, at_most=at_most, at_least=at_least)


def pilot_from_frame(
    frame: "pl.DataFrame", metric: str, *, at_most: float | None = None, at_least: float | None = None
) -> Pilot:
    """Return the pilot in the frame of a history, up to where it reached its target."""
    import polars as pl

    if (at_most is None) == (at_least is None):
        raise ValueError("a target must be given either as at most or as at least a value")
    missing = [name for name in (*COLUMNS, metric) if name not in frame.columns]
    if missing:
        others = ", ".join(name for name in frame.columns if name not in COLUMNS)
        raise ValueError(f"the pilot must have a column {missing[0]!r}, got one with {others or 'no metric'}")
    goal = pl.col(metric) <= at_most if at_least is None else pl.col(metric) >= at_least
    rounds = (
        frame.filter(pl.col("rule") == pl.col("rule").first())
        .group_by("repetition", "round", maintain_order=True)
        .agg(pl.col(*MEASURED, metric).first(), crowd=pl.col("sent").sum())
        .with_columns(goal=goal)
        .with_columns(past=pl.col("goal").cast(pl.Int32).cum_sum().over("repetition") - pl.col("goal").cast(pl.Int32))
        .filter((pl.col("past") == 0) & (pl.col("crowd") > 1))
    )
    return _pilot(rounds, metric)


def fit_pilot(pilot: Pilot, seed: int = 0, bootstraps: int = BOOTSTRAPS) -> Fit:
    """Return the stand-in that fits a pilot, with as many sets of numbers as there are bootstraps."""
    fit = _fit(pilot)
    if fit is None:
        raise ValueError(
            "the pilot must show a gradient that shrinks, got only noise; ask for more samples in the pilot"
        )
    numbers, dim = fit
    rng = np.random.default_rng(seed)
    refits = (_fit(_draw_pilot(pilot, numbers, dim, rng), numbers.curvature) for _ in range(bootstraps))
    drawn = [numbers, *(refit[0] for refit in refits if refit is not None)]
    return Fit(Numbers(*(np.array(column) for column in zip(*drawn, strict=True))), dim)


def _pilot(rounds: Any, metric: str) -> Pilot:
    """Return the repetitions that reached the target, as arrays."""
    if rounds.height == 0:
        raise ValueError("the pilot must have rounds in which at least two agents took part, got none")
    successful = rounds.filter(rounds["goal"])["repetition"]
    used = rounds.filter(rounds["repetition"].is_in(successful.implode()))
    if used.height < LEAST_ROUNDS:
        values = f"{metric} from {rounds[metric].first():g} to {rounds[metric].last():g}"
        raise ValueError(
            f"the pilot must have reached its target, in at least {LEAST_ROUNDS} rounds, got {rounds.height}, {values}"
        )
    columns = {name: used[name].to_numpy().astype(np.float64) for name in (*MEASURED, "crowd")}
    repetition = used["repetition"].to_numpy()
    start = np.concatenate([[True], repetition[1:] != repetition[:-1]])
    return Pilot(start=start, reached=used["goal"].to_numpy(), **columns)


def _fit(pilot: Pilot, around: float | None = None) -> tuple[Numbers, int] | None:
    """Return the numbers that fit best, and the effective dimension of the noise; None where no curvature fits.

    With `around` only curvatures within a decade of it count: a drawn pilot that suggests another is a failed fit.
    """
    far = np.abs(np.log10(CURVATURES / (around or 1.0))) > (1.0 if around else 9.0)
    noise = pilot.variance / (pilot.crowd * pilot.request)
    share, rest = _recursion(pilot, noise)
    signal, best, first, misfit = np.maximum(pilot.signal, 0.0), 0, 0.0, 1.0
    for _ in range(3):  # the weights depend on the curve that they help to find
        weight = 1 / (2 * noise**2 + 4 * signal * noise)
        starts = np.sum(weight * share * (pilot.signal - rest), axis=1) / np.sum(weight * share**2, axis=1)
        curves = starts[:, None] * share + rest
        impossible = far | (starts <= 0) | (curves.min(axis=1) <= 0)
        losses = np.where(impossible, np.inf, np.sum(weight * (pilot.signal - curves) ** 2, axis=1))
        best = int(np.argmin(losses))
        if impossible[best]:
            return None
        signal, first, misfit = curves[best], float(starts[best]), float(losses[best])
    dim = 2 ** min(max(round(math.log2((len(noise) - 2) / misfit)), 1), 10)  # few shapes, so few compilations
    base, slope = _line(signal, pilot.variance)
    curvature = float(CURVATURES[best])
    after = signal * (1 - pilot.step * curvature) ** 2 + (pilot.step * curvature) ** 2 * noise
    goal = math.exp(np.log(np.maximum(after[pilot.reached], 1e-300)).mean())
    return Numbers(first, curvature, base, slope, min(goal, 0.999 * first)), dim


def _recursion(pilot: Pilot, noise: Any) -> tuple[Any, Any]:
    """Return, for every curvature, how ‖m‖² of each round depends on that of the first: share·first + rest."""
    share, rest = np.ones((2, len(CURVATURES), len(noise)))
    now, added = np.ones(len(CURVATURES)), np.zeros(len(CURVATURES))
    for t, begins in enumerate(pilot.start):
        if begins:
            now, added = np.ones(len(CURVATURES)), np.zeros(len(CURVATURES))
        share[:, t], rest[:, t] = now, added
        moved = np.minimum(pilot.step[t] * CURVATURES, 4.0)
        kept = (1 - moved) ** 2
        now, added = np.minimum(now * kept, 1e30), np.minimum(added * kept + moved**2 * noise[t], 1e30)
    return share, rest


def _line(signal: Any, variance: Any) -> tuple[float, float]:
    """Return σ² = base + slope·‖m‖² by least squares of relative errors, neither below 0."""
    base, slope = float(variance.mean()), 0.0
    for _ in range(5):  # weighed by the line itself: weighed by the measured values, low ones would count too much
        weight = 1 / (base + slope * signal) ** 2
        total, x, y = np.sum(weight), np.sum(weight * signal), np.sum(weight * variance)
        spread = np.sum(weight * signal**2) - x * x / total
        slope = (np.sum(weight * signal * variance) - x * y / total) / spread if spread > 0 else 0.0
        slope = float(np.clip(slope, 0.0, y / x if x > 0 else 0.0))
        base = float(max((y - slope * x) / total, 1e-6 * y / total))
    return base, slope


def _draw_pilot(pilot: Pilot, numbers: Numbers, dim: int, rng: np.random.Generator) -> Pilot:
    """Return another pilot with the same requests and steps, drawn from the stand-in."""
    variance, signal, reached = np.zeros((3, len(pilot.start)))
    model, done = np.zeros(dim), False
    for t, begins in enumerate(pilot.start):
        if begins:
            model, done = np.full(dim, np.sqrt(numbers.signal / dim)), False
        true = numbers.base + numbers.slope * (model @ model)
        noise, freedom = true / (pilot.crowd[t] * pilot.request[t]), (pilot.crowd[t] - 1) * dim
        variance[t] = true * rng.chisquare(freedom) / freedom
        mean = model + np.sqrt(noise / dim) * rng.normal(size=dim)
        signal[t] = mean @ mean - noise * variance[t] / true
        model = model - np.clip(pilot.step[t] * numbers.curvature, 0, 1.9) * mean
        last = t + 1 == len(pilot.start) or pilot.start[t + 1]
        reached[t] = not done and (model @ model <= numbers.goal or last)
        done = done or bool(reached[t])
    return Pilot(pilot.start, pilot.request, pilot.step, pilot.crowd, variance, signal, reached.astype(bool))
