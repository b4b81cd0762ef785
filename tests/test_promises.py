"""What `make bench` fails on: a promise that is broken, or that nothing was measured of."""

import math

import pytest
from benchmarks.measure import Promise


@pytest.mark.parametrize(
    ("now", "promised", "least", "kept"),
    [(2.9, 3, False, True), (3.1, 3, False, False), (31, 30, True, True), (29, 30, True, False)],
)
def test_a_promise_is_kept_or_broken(now: float, promised: float, least: bool, kept: bool) -> None:
    assert Promise("a ratio", now, promised, least=least).kept is kept
    assert not Promise("a ratio", math.nan, promised, least=least).kept
