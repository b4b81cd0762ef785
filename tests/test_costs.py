"""Costs that break an assumption are named with the first s at which they do."""

import math
from typing import Any

import numpy as np
import pytest

from guerdon import AffineCost, ExpressionCost, FunctionCost, PowerCost, check_cost


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9 - s", "must increase strictly.*at s = 2$"),
        ("s * 0", "must increase strictly.*at s = 1$"),
        ("5 + 0*s", "must increase strictly.*at s = 2$"),
        ("s - 3", "must not be negative.*at s = 1$"),
        ("s**0.5", "must be convex.*at s = 2$"),
        ("s + 20 / (1 + (s - 10)**2)", "must be convex.*at s = 10$"),
        ("s ** 3 - 30 * s ** 2 + 301 * s", r"must be convex.*at s = 2$"),
        ("1 / (s - 4)**2 + s", "must be a finite number.*h\\(4\\) = inf"),
        ("(s - 5) ** 0.5 + 100 * s", "must be a finite number.*h\\(1\\) = nan"),
        ("s ** 400", "must be a finite number.*h\\(6\\) = inf"),
        ("1e9 + s**0.5", "must be convex"),
        ("1/0", "cannot be computed"),
        ("9**9**9**9", "cannot be computed"),
        ("(0 - 8) ** 0.5 + s", "must give one real number per batch size"),
    ],
)
def test_the_first_failing_size_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_cost(ExpressionCost(text), max_batch=32)


def test_a_wrong_slope_is_found() -> None:
    with pytest.raises(ValueError, match=r"`cost.slope` must be the slope.*at s = 1$"):
        check_cost(FunctionCost(lambda s: 1 + s, lambda s: 2 + 0 * s), max_batch=8)
    with pytest.raises(ValueError, match=r"`cost.slope` must be the slope.*at s = 1$"):
        check_cost(FunctionCost(lambda s: 1e6 + s, lambda s: 1.9 + 0 * s), max_batch=8)
    with pytest.raises(ValueError, match=r"`cost.slope` must be the slope.*at s = 2$"):
        check_cost(FunctionCost(lambda s: s**2, lambda s: s), max_batch=8)


def test_a_fault_beyond_the_largest_batch_does_not_matter() -> None:
    bends_at_ten = FunctionCost(lambda s: s - 0.01 * (s > 10) * (s - 10) ** 2, lambda s: 1 + 0 * s)
    check_cost(bends_at_ten, max_batch=10)
    with pytest.raises(ValueError, match="must be convex"):
        check_cost(bends_at_ten, max_batch=12)


def test_one_sample_is_enough_to_check() -> None:
    check_cost(AffineCost(1, 1), max_batch=1)
    check_cost(AffineCost(1, 1), max_batch=2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AffineCost(-1, 1), "`fixed` must be a finite number of at least 0, got -1"),
        (lambda: AffineCost(1, 0), "`per_sample` must be a finite number above 0, got 0"),
        (lambda: AffineCost(math.nan, 1), "`fixed` must be a finite number of at least 0, got nan"),
        (lambda: PowerCost(0, 2), "`scale` must be a finite number above 0, got 0"),
        (lambda: PowerCost(1, 0.5), "`exponent` must be a finite number of at least 1, got 0.5"),
        (lambda: PowerCost(1, 2, -1), "`fixed` must be a finite number of at least 0, got -1"),
    ],
)
def test_parameters_are_checked(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_a_function_beyond_arithmetic_asks_for_its_slope() -> None:
    cost = FunctionCost(lambda s: np.exp(s))
    assert cost(1) == pytest.approx(math.e)
    with pytest.raises(TypeError, match="give `slope_function`"):
        cost.slope(1)


def test_a_function_that_hides_its_arithmetic_is_not_given_a_slope_of_zero() -> None:
    with pytest.raises(TypeError, match="give `slope_function`"):
        FunctionCost(lambda s: np.where(True, s * 2, 0)).slope(3)


@pytest.mark.parametrize("size", [None, "8", [1, 2]])
def test_a_cost_is_of_numbers(size: Any) -> None:
    with pytest.raises(TypeError, match="`batch_size` must be a number or an array of numbers"):
        AffineCost(1, 1)(size)


def test_powers_of_a_whole_number_do_not_run_away() -> None:
    with pytest.raises(OverflowError):
        ExpressionCost("s**s**s**s")(3)
    with pytest.raises(ValueError, match="`fixed` must be a finite number"):
        AffineCost(10**400, 1)


def test_numpy_numbers_may_stand_in_a_function() -> None:
    cost = FunctionCost(lambda s: np.float64(2.0) * s + np.float64(1.0))
    assert (cost(3), cost.slope(3)) == (7.0, 2.0)


def test_expressions_compare_by_text() -> None:
    assert ExpressionCost("1 + s") == ExpressionCost("1 + s")
    assert repr(ExpressionCost("1 + s")) == "ExpressionCost(text='1 + s')"
    assert hash(ExpressionCost("1 + s")) == hash(ExpressionCost("1 + s"))
