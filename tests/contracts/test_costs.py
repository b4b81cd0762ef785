"""What every cost promises, on every array library."""

import math
from typing import Any

import jax
import numpy as np
import pytest

from guerdon import AffineCost, Cost, ExpressionCost, FunctionCost, PowerCost, check_cost
from guerdon.costs import formula_of
from tests.support.libraries import Library, jax_once

COSTS = [
    AffineCost(1, 1),
    AffineCost(0, 0.25),
    PowerCost(0.5, 2, 1),
    PowerCost(2, 1),
    FunctionCost(lambda s: 1 + s + s**2 / 8),
    FunctionCost(lambda s: 2.0**s, lambda s: math.log(2) * 2.0**s),
    ExpressionCost("1 + s"),
    ExpressionCost("(s + 1)**1.5 - 1/(1 + s) + 2**(s/8)"),
    ExpressionCost("-(-s) + +3 + s**(s/100)"),
]
every_cost = pytest.mark.parametrize("cost", COSTS, ids=lambda cost: repr(cost)[:40])
SIZES = np.array([0, 1, 2, 3, 8, 16])


@every_cost
def test_is_a_cost(cost: Cost) -> None:
    assert isinstance(cost, Cost)
    check_cost(cost, max_batch=64)


@every_cost
def test_declining_is_free(cost: Cost) -> None:
    assert (cost(0), cost.slope(0)) == (0.0, 0.0)


@every_cost
def test_slope_is_the_derivative(cost: Cost) -> None:
    step = 1e-5
    for size in (1.0, 2.0, 7.5, 30.0):
        assert cost.slope(size) == pytest.approx((cost(size + step) - cost(size - step)) / (2 * step), rel=1e-7)


@every_cost
@jax_once
def test_array_libraries_agree_with_python_numbers(cost: Cost, library: Library) -> None:
    with library.precision():
        for function in (cost, cost.slope):
            result = np.asarray(function(library.array(SIZES)))
            assert str(result.dtype) == library.dtype
            expected = [function(float(size)) for size in SIZES]
            np.testing.assert_allclose(result, expected, rtol=library.tolerance)


@every_cost
@jax_once
def test_integers_are_taken_for_what_they_are(cost: Cost, library: Library) -> None:
    with library.precision():
        result = np.asarray(cost(library.module.asarray(SIZES)))
    assert result.dtype.kind == "f"
    np.testing.assert_allclose(result, [cost(int(size)) for size in SIZES], rtol=3e-6)


@every_cost
def test_jax_transformations(cost: Cost) -> None:
    sizes: Any = jax.numpy.asarray(SIZES, dtype="float32")
    whole, mapped, slope = jax.jit(lambda s: (cost(s), jax.vmap(cost)(s), jax.vmap(jax.grad(cost))(s)))(sizes)
    np.testing.assert_allclose(whole, cost(sizes), rtol=1e-6)
    np.testing.assert_allclose(mapped, whole, rtol=1e-6)
    np.testing.assert_allclose(slope, cost.slope(sizes), rtol=1e-5)


@every_cost
def test_a_negative_batch_size_has_no_cost(cost: Cost) -> None:
    with pytest.raises(ValueError, match="`batch_size` must be a finite number of at least 0, got -1"):
        cost(-1)
    assert np.isnan(cost(np.array([-1.0, 1.0]))).tolist() == [True, False]


@pytest.mark.parametrize("cost", [AffineCost(0.3, 0.7), PowerCost(0.3, 1.7, 0.1), PowerCost(2, 3), PowerCost(0.1, 1)])
def test_a_recorded_cost_is_the_same_to_the_last_bit(cost: Cost) -> None:
    """The ledger pays by the formula, and refuses a round whose driver computed another number."""
    recorded, sizes = ExpressionCost(formula_of(cost)), np.arange(0.0, 300.0, 0.7)
    np.testing.assert_array_equal(recorded(sizes), cost(sizes))
    np.testing.assert_array_equal(recorded.slope(sizes), cost.slope(sizes))
