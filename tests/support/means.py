"""Tests of means: how many standard errors a sample mean lies from what it should be."""

from typing import Any, NamedTuple

import numpy as np


class Mean(NamedTuple):
    """A sample mean with its standard error."""

    value: float
    error: float

    def z(self, expected: float) -> float:
        """Return the distance from `expected` in standard errors."""
        return (self.value - expected) / self.error


def mean(sample: Any) -> Mean:
    """Return the mean of independent draws along the first axis."""
    draws = np.asarray(sample, dtype=np.float64)
    return Mean(float(draws.mean()), float(draws.std(ddof=1) / np.sqrt(len(draws))))
