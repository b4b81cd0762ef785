"""Means, differences and spreads with intervals: rounds are drawn at random, agents stay the same."""

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from guerdon._quantiles import student_quantile

STRETCHES = 10  # of rounds, whose means are taken for independent
SWEEPS = 1000
CONVERGED = 1e-12
LEAST_STRETCHES = 4  # for a mean to have an interval
LEAST_ROUNDS = 10  # in which both groups took part, for a difference to have one


class Interval(NamedTuple):
    """A number, its interval and its standard error; infinite where too little is known."""

    value: float
    low: float
    high: float
    error: float

    def __add__(self, shift: float) -> "Interval":  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return it shifted."""
        return Interval(self.value + shift, self.low + shift, self.high + shift, self.error)

    def times(self, factor: float) -> "Interval":
        """Return it multiplied."""
        low, high = sorted((factor * self.low, factor * self.high))
        return Interval(factor * self.value, low, high, abs(factor) * self.error)

    def as_json(self) -> dict[str, float | None]:
        """Return it as JSON can hold it: None for what is not finite."""
        return {name: value if math.isfinite(value) else None for name, value in self._asdict().items()}


def around(value: float, error: float, freedom: int, alpha: float) -> Interval:
    """Return the interval of Student's t at level 1 − alpha."""
    if freedom < 1 or not math.isfinite(error):
        return Interval(value, -math.inf, math.inf, math.inf)
    reach = student_quantile(1 - alpha / 2, freedom) * error
    return Interval(value, value - reach, value + reach, error)


def mean_over_rounds(values: Any, alpha: float) -> Interval:
    """Return the mean of a series over rounds (NaN: left out), with an interval.

    Neighbouring rounds may depend on each other: a rule and the records of agents remember. So the standard error is
    that of the means of up to ten stretches of rounds.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Interval(math.nan, -math.inf, math.inf, math.inf)
    means = np.array([part.mean() for part in np.array_split(finite, min(STRETCHES, len(finite)))])
    error = float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) >= LEAST_STRETCHES else math.inf
    return around(float(finite.mean()), error, len(means) - 1, alpha)


def effect_of(treated: Any, values: Any, alpha: float) -> Interval:
    """Return what a treatment adds to a value (rounds, agents), with an interval; NaN is left out.

    Least squares with a level for each agent and each round (y = a_k + r_t + τ·z + e), so that neither agents that
    differ nor rounds that differ count. The standard error is clustered by round: agents of one round are compared with
    each other, so their errors depend on each other. Rounds are drawn anew, so what the rule remembers does not bias
    it. Student's t, with one degree of freedom less than there are rounds in which both groups took part.
    """
    finite = np.isfinite(values)
    contrast = _without_levels(np.where(finite, treated, 0.0), finite)
    left = _without_levels(np.where(finite, values, 0.0), finite)
    weight = float((contrast**2).sum())
    rounds = int(((contrast**2).sum(axis=1) > CONVERGED).sum())
    if rounds < LEAST_ROUNDS or weight < CONVERGED:
        return Interval(math.nan, -math.inf, math.inf, math.inf)
    effect = float((contrast * left).sum()) / weight
    scores = (contrast * (left - effect * contrast)).sum(axis=1)
    error = math.sqrt(rounds / (rounds - 1) * float((scores**2).sum())) / weight
    return around(effect, error, rounds - 1, alpha)


def noise_and_spread(values: Any) -> tuple[float, float]:
    """Return two standard deviations of a value (rounds, agents): over rounds, and over agents with noise taken out.

    That over rounds is of the long run: √n times the standard error of an agent's mean over n rounds.
    """
    columns = [column[np.isfinite(column)] for column in values.T]
    means = [(mean_over_rounds(column, 0.5), len(column)) for column in columns if len(column) >= LEAST_STRETCHES]
    if not means:
        return math.nan, math.nan
    noise = float(np.mean([count * mean.error**2 for mean, count in means]))
    between = float(np.var([mean.value for mean, _ in means], ddof=1)) if len(means) > 1 else 0.0
    return math.sqrt(noise), math.sqrt(max(0.0, between - float(np.mean([mean.error**2 for mean, _ in means]))))


def rounds_to_tell(error: float, rounds: int, difference: float, alpha: float) -> int | None:
    """Return about how many rounds show a difference with probability 0.8, where `rounds` had this error."""
    if not math.isfinite(error) or difference <= 0:
        return None
    reach = NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(0.8)
    return math.ceil(rounds * (reach * error / difference) ** 2)


def _without_levels(values: Any, finite: Any) -> Any:
    """Return values less the levels of rounds and agents, by least squares; 0 where a value is not finite."""
    rest = np.where(finite, values, 0.0)
    counts = [np.maximum(finite.sum(axis=axis, keepdims=True), 1) for axis in (0, 1)]
    scale = float(np.abs(rest).max(initial=0.0)) or 1.0
    for _ in range(SWEEPS):
        before = rest
        for axis in (0, 1):
            rest = np.where(finite, rest - rest.sum(axis=axis, keepdims=True) / counts[axis], 0.0)
        if float(np.abs(rest - before).max(initial=0.0)) < CONVERGED * scale:
            break
    return rest
