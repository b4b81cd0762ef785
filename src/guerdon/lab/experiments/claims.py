"""What an experiment must show: each claim with what was expected, what was measured, and whether it holds."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from guerdon.lab.figures import as_svg

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

SIGNIFICANT = 3.0  # standard errors
Tell: TypeAlias = Callable[[str, float], None]  # what is being done, and which share of the whole is behind it


@dataclass(frozen=True)
class Claim:
    """One sentence that is true or not."""

    figure: str
    claim: str
    expected: str
    measured: float
    standard_error: float
    holds: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as `claims.json` has it; what cannot be a JSON number is null."""
        values = asdict(self)
        for name in ("measured", "standard_error"):
            values[name] = float(values[name]) if np.isfinite(values[name]) else None
        values["holds"] = bool(self.holds)
        return values


@dataclass(frozen=True)
class Experiment:
    """A figure of the paper, reproduced: the drawing, the numbers behind it, and what they show."""

    name: str
    title: str
    caption: str
    draw: Callable[[], "Figure"]  # while the next experiment computes
    data: "pl.DataFrame"
    claims: tuple[Claim, ...]
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())
    survey: str = ""  # the label of the survey that it used, if any

    @cached_property
    def drawing(self) -> "Figure":
        """The figure, drawn when it is first asked for."""
        return self.draw()

    @cached_property
    def svg(self) -> str:
        """The figure as SVG."""
        return as_svg(self.drawing)


def count_steps(tell: Tell, total: int) -> Callable[[str], None]:
    """Return a function to call before each of `total` steps, with what the step does."""
    numbers = count()
    return lambda words: tell(words, next(numbers) / total)


def used_survey(experiments: Iterable[Experiment]) -> str:
    """Return, after a comma, which survey was used: a synthetic one may have stood in for the real one."""
    labels = dict.fromkeys(experiment.survey for experiment in experiments if experiment.survey)
    return "".join(f", with the {label}" for label in labels)


class Mean(NamedTuple):
    """A mean over repetitions with its standard error."""

    value: float
    error: float


def mean_over_repetitions(sample: Any) -> Mean:
    """Return the mean and standard error of independent repetitions (first axis)."""
    draws = np.asarray(sample, dtype=np.float64)
    return Mean(float(np.mean(draws)), float(np.std(draws, ddof=1) / np.sqrt(len(draws))))


def pay_of_one(paid: Any, rounds: Any, cost: float) -> Any:
    """Return a sample, one number per repetition, whose mean is `cost` if that is what one agent is paid per round.

    `paid` is what the agent got in each repetition, in `rounds` rounds. The ratio of the two would be biased where pay
    has to do with when a run stops; what is paid beyond the cost until then is not (Wald's equation). It is one agent's
    pay and not the mean over agents: a rule may hand out n·h(ν) in every round by its very formula, so that such a mean
    shows nothing.
    """
    played = np.asarray(rounds, dtype=np.float64)
    return cost + (np.asarray(paid, dtype=np.float64) - cost * played) / np.mean(played)


def curve(sample: Any) -> tuple[Any, Any]:
    """Return mean and standard error over repetitions of each column of (repetitions, points)."""
    draws = np.asarray(sample, dtype=np.float64)
    return np.mean(draws, axis=0), np.std(draws, axis=0, ddof=1) / np.sqrt(len(draws))


def equals(figure: str, claim: str, sample: Any, expected: float) -> Claim:
    """Claim that a mean is `expected`, within 3 standard errors (and rounding of single precision)."""
    value, error = mean_over_repetitions(sample)
    holds = abs(value - expected) <= max(SIGNIFICANT * error, 1e-5 * abs(expected))
    return Claim(figure, claim, f"{expected:g} within 3 s.e.", value, error, holds)


def exceeds(figure: str, claim: str, sample: Any, bound: float = 0.0) -> Claim:
    """Claim that a mean is greater than `bound`, by more than 3 standard errors."""
    value, error = mean_over_repetitions(sample)
    return Claim(figure, claim, f"more than {bound:g}, by 3 s.e.", value, error, value - bound > SIGNIFICANT * error)
