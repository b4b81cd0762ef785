"""Quantiles of Student's t, of χ² per degree of freedom and of F, by expansions around the normal distribution."""

import math
from statistics import NormalDist


def student_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t, by Cornish and Fisher's expansion around the normal: 4 digits from 10 on."""
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def f_quantile(probability: float, freedom: float, of_scale: float = math.inf) -> float:
    """Return the quantile of F with `freedom` and `of_scale` degrees of freedom; χ²/freedom where the scale is known.

    Wilson and Hilferty: the cube root of χ²/f is nearly normal, with mean 1 − 2/(9f) and variance 2/(9f). So the cube
    root y of F solves (1 − b)·y − (1 − a) = z·√(b·y² + a), with a and b the two values of 2/(9f). Off by less than 1 %
    between 2.5 % and 97.5 % from 10 degrees of freedom on; below, the lower end is rougher.

    >>> round(f_quantile(0.5, 40), 3)
    0.983
    """
    z = NormalDist().inv_cdf(probability)
    a, b = 2 / (9 * freedom), 2 / (9 * of_scale)
    if b == 0:
        return max(1 - a + z * math.sqrt(a), 0.0) ** 3
    square, product, rest = (1 - b) ** 2 - z**2 * b, (1 - a) * (1 - b), (1 - a) ** 2 - z**2 * a
    root = math.sqrt(max(product**2 - square * rest, 0.0))
    return max((product + math.copysign(root, z)) / square, 0.0) ** 3
