"""What a minibatch costs an agent: h(s) for s samples, and its slope h'(s).

Assumption 2 of the paper: h(0) = 0, and h is strictly increasing and convex for s > 0. A jump at 0, the fixed cost of
taking part at all, is allowed. `check_cost` tests a cost against this assumption.

h is in units of money for one round, h' in units for one sample more. Both work on Python numbers and on arrays of
NumPy, JAX and PyTorch. A negative batch size has no cost: it raises for a Python number and gives NaN inside an array.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from guerdon.arrays import Array, as_float, check_number, check_positive_integer, is_array, namespace
from guerdon.expressions import derivative, parse

# Differences of h smaller than this, relative to h, are rounding and not a violated assumption.
ROUNDING = 8 * float(np.finfo(np.float64).eps)

NOT_FINITE = "`cost` must be a finite number for every s, but h({s}) = {h:g} and h'({s}) = {slope:g}"
NEGATIVE = "`cost` must not be negative, but h({s}) = {h:g}: it fails at s = {s}"
NOT_INCREASING = "`cost` must increase strictly from h(0) = 0, but {before} and h({s}) = {h:g}: it does not at s = {s}"
NOT_CONVEX = "`cost` must be convex for s > 0, but {before}, h({s}) = {h:g}, {after}: it is not at s = {s}"
OTHER_SLOPE = "`cost.slope` must be the slope of a convex h, but h({s}) = {h:g} and h'({s}) = {slope:g} at s = {s}"


@runtime_checkable
class Cost(Protocol):
    """What it costs to compute a gradient on `batch_size` samples, and how fast that grows."""

    def __call__(self, batch_size: Array, /) -> Array:
        """Return h(s) of s = `batch_size` samples, a number or an array: units of money; 0 at 0."""

    def slope(self, batch_size: Array, /) -> Array:
        """Return h'(s) of s = `batch_size` samples: units of money a sample; 0 at 0, where an agent declines."""


@dataclass(frozen=True)
class AffineCost:
    """h(s) = fixed + per_sample · s for s > 0: the cost of the paper's experiments is AffineCost(1, 1).

    - `fixed`: what it costs to take part at all, in units of money; at least 0.
    - `per_sample`: what one sample more costs, in units of money; above 0.

    >>> cost = AffineCost(fixed=1, per_sample=1)
    >>> cost(8), cost(0), cost.slope(8)
    (9.0, 0.0, 1.0)
    """

    fixed: float
    per_sample: float

    def __post_init__(self) -> None:
        check_number("fixed", self.fixed, minimum=0)
        check_number("per_sample", self.per_sample, minimum=0, inclusive=False)

    def __call__(self, batch_size: Array) -> Array:
        return _where_working(lambda s: self.fixed + self.per_sample * s, batch_size)

    def slope(self, batch_size: Array) -> Array:
        return _where_working(lambda s: self.per_sample + 0 * s, batch_size)

    @property
    def formula(self) -> str:
        return f"{_number(self.fixed)} + {_number(self.per_sample)}*s"


@dataclass(frozen=True)
class PowerCost:
    """h(s) = fixed + scale · s^exponent for s > 0.

    - `scale`: what the first sample costs beyond `fixed`, in units of money; above 0.
    - `exponent`: how fast the cost grows; at least 1, or h would not be convex.
    - `fixed`: what it costs to take part at all, in units of money; at least 0.

    >>> cost = PowerCost(scale=0.5, exponent=2, fixed=1)
    >>> cost(4), cost.slope(4)
    (9.0, 4.0)
    """

    scale: float
    exponent: float
    fixed: float = 0.0

    def __post_init__(self) -> None:
        check_number("scale", self.scale, minimum=0, inclusive=False)
        check_number("exponent", self.exponent, minimum=1)
        check_number("fixed", self.fixed, minimum=0)

    def __call__(self, batch_size: Array) -> Array:
        return _where_working(lambda s: self.fixed + self.scale * s**self.exponent, batch_size)

    def slope(self, batch_size: Array) -> Array:
        # In the order in which the recorded `formula` is differentiated: equal to the last bit.
        return _where_working(lambda s: self.exponent * s ** (self.exponent - 1) * self.scale, batch_size)

    @property
    def formula(self) -> str:
        return f"{_number(self.fixed)} + {_number(self.scale)}*s**{_number(self.exponent)}"


@dataclass(frozen=True)
class FunctionCost:
    """h(s) = function(s) for s > 0.

    - `function`: s ↦ h(s) in units of money, for numbers and arrays.
    - `slope_function`: s ↦ h'(s). A function of arithmetic operators alone does without: its slope is computed
      exactly. A function that calls others (an exponential, for example) needs it.

    >>> cost = FunctionCost(lambda s: 1 + s + 0.25 * s**2)
    >>> cost(2), cost.slope(2)
    (4.0, 2.0)
    """

    function: Callable[[Any], Any]
    slope_function: Callable[[Any], Any] | None = None

    def __call__(self, batch_size: Array) -> Array:
        return _where_working(self.function, batch_size)

    def slope(self, batch_size: Array) -> Array:
        return _where_working(self.slope_function or self._derivative, batch_size)

    def _derivative(self, batch_size: Array) -> Array:
        try:
            return derivative(self.function, batch_size)
        except (TypeError, AttributeError, ValueError) as error:
            raise TypeError(
                "`function` must use arithmetic operators only to be differentiated; "
                "give `slope_function` for a function that calls others"
            ) from error


@dataclass(frozen=True)
class ExpressionCost:
    """h(s) as text, as on the command line. The text is parsed, never executed.

    - `text`: an expression of numbers, s, + - * / ** and parentheses, in units of money.

    >>> cost = ExpressionCost("1 + s")
    >>> cost(8), cost.slope(8)
    (9.0, 1.0)
    """

    text: str
    _function: Callable[[Any], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_function", parse(self.text))

    def __call__(self, batch_size: Array) -> Array:
        return _where_working(self._function, batch_size)

    def slope(self, batch_size: Array) -> Array:
        return _where_working(lambda s: derivative(self._function, s), batch_size)

    @property
    def formula(self) -> str:
        return self.text


def formula_of(cost: Cost) -> str:
    """Return a cost as an expression in s, which `ExpressionCost` reads; raise if it cannot be written down.

    >>> formula_of(AffineCost(fixed=1, per_sample=0.5))
    '1 + 0.5*s'
    """
    if not hasattr(cost, "formula"):
        raise ValueError(
            f"`cost` must be one that can be written down (AffineCost, PowerCost, ExpressionCost), got "
            f'{type(cost).__name__}; ExpressionCost("1 + s") takes any formula'
        )
    return cost.formula  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def check_is_cost(cost: object) -> None:
    """Raise unless `cost` has h and its slope.

    >>> check_is_cost("1 + s")
    Traceback (most recent call last):
    TypeError: `cost` must be a cost, such as AffineCost(1, 1), got '1 + s': give ExpressionCost('1 + s')
    """
    if isinstance(cost, type) or not (callable(cost) and hasattr(cost, "slope")):
        instead = f"ExpressionCost({cost!r})" if isinstance(cost, str) else 'ExpressionCost("1 + s") for any formula'
        raise TypeError(f"`cost` must be a cost, such as AffineCost(1, 1), got {cost!r}: give {instead}")


def check_cost(cost: Cost, max_batch: int) -> None:
    """Raise a ValueError that names the first s at which `cost` breaks Assumption 2 of the paper.

    - `cost`: h and its slope.
    - `max_batch`: the largest s that is tested, in samples.

    >>> check_cost(AffineCost(1, 1), max_batch=32)
    >>> check_cost(ExpressionCost("s ** 0.5"), max_batch=32)
    Traceback (most recent call last):
    ValueError: `cost` must be convex for s > 0, but h(1) = 1, h(2) = 1.41421, h(3) = 1.73205: it is not at s = 2
    """
    check_positive_integer("max_batch", max_batch)
    h, slope = _tabulate(cost, max_batch)
    with np.errstate(invalid="ignore"):  # inf − inf is already reported as not finite
        faults = [
            (_first(~(np.isfinite(h) & np.isfinite(slope))), NOT_FINITE),
            (_first(h[1:] < 0) + 1, NEGATIVE),
            (_first(np.diff(h) <= 0) + 1, NOT_INCREASING),
            (_first(np.diff(h[1:], n=2) < -ROUNDING * np.abs(h[2:-1])) + 2, NOT_CONVEX),
        ]
    s, complaint = min(faults, key=lambda fault: fault[0])
    if s > max_batch:
        s, complaint = _first(~_slopes_fit(h, slope)) + 1, OTHER_SLOPE
    if s <= max_batch:
        before, after = (f"h({i}) = {h[min(i, max_batch)]:g}" for i in (s - 1, s + 1))
        raise ValueError(complaint.format(s=s, h=h[s], slope=slope[s], before=before, after=after))


def _where_working(function: Callable[[Any], Any], batch_size: Array) -> Array:
    """Return function(s) where s > 0, and 0 at s = 0, where the agent declines."""
    if isinstance(batch_size, (int, float)):
        check_number("batch_size", batch_size, minimum=0)
        return float(function(float(batch_size))) if batch_size > 0 else 0.0
    if not is_array(batch_size):
        raise TypeError(f"`batch_size` must be a number or an array of numbers, got {batch_size!r}")
    xp = namespace(batch_size)
    s = as_float(xp, batch_size)
    # The function is never evaluated at 0: a cost such as s / (1 - 1/s) is not defined there.
    return xp.where(s > 0, function(xp.where(s > 0, s, 1.0)), xp.where(s == 0, 0 * s, math.nan))


def _tabulate(cost: Cost, max_batch: int) -> tuple[Any, Any]:
    """Return h and h' at 0…max_batch in float64; undefined arithmetic gives NaN, without a warning."""
    sizes = np.arange(max_batch + 1, dtype=np.float64)
    with np.errstate(all="ignore"):
        try:
            h, slope = np.asarray(cost(sizes)), np.asarray(cost.slope(sizes))
        except ArithmeticError as error:
            raise ValueError(f"`cost` cannot be computed: {error}") from error
    if h.shape != sizes.shape or slope.shape != sizes.shape or h.dtype.kind != "f" or slope.dtype.kind != "f":
        raise ValueError(f"`cost` must give one real number per batch size, got {h.shape} {h.dtype}")
    return h, slope


def _slopes_fit(h: Any, slope: Any) -> Any:
    """Return, for s ≥ 1, whether h' is between the differences of h around s, as convexity requires."""
    rise = np.diff(h[1:])
    slack = 1e-6 * np.abs(rise) + ROUNDING * np.abs(h[2:])
    fits = slope[1:] > 0
    fits[:-1] &= slope[1:-1] <= rise + slack
    fits[1:] &= slope[2:] >= rise - slack
    return fits


def _first(broken: Any) -> int:
    """Return the index of the first True, or a number larger than any index."""
    return int(np.argmax(broken)) if np.any(broken) else 2**62


def _number(value: float) -> str:
    """Return a number as text that gives exactly the same number back."""
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
