"""The quantiles against SciPy's, to the accuracy that their docstrings state."""

import math
from typing import Any

import pytest

from guerdon._quantiles import f_quantile, student_quantile


@pytest.fixture(scope="module")
def stats() -> Any:
    """SciPy's distributions: slow to import, so only where they are used."""
    return pytest.importorskip("scipy.stats", reason="SciPy comes with JAX")


@pytest.mark.parametrize("freedom", [10, 30, 1000])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.995])
def test_student(stats: Any, probability: float, freedom: int) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-3)


@pytest.mark.parametrize(("freedom", "error"), [(10, 0.01), (40, 0.005), (1e4, 1e-4)])
@pytest.mark.parametrize("probability", [0.025, 0.25, 0.5, 0.75, 0.975])
@pytest.mark.parametrize("others", [3, 8, math.inf])
def test_f(stats: Any, probability: float, freedom: float, error: float, others: float) -> None:
    scale = others * freedom
    exact = stats.f.ppf(probability, freedom, scale if scale < math.inf else 1e9)
    assert f_quantile(probability, freedom, scale) == pytest.approx(exact, rel=error)
