"""Search for the most profitable attack: the cross-entropy method over a family of reports; it needs no gradient."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

CANDIDATES, KEPT, GENERATIONS = 16, 4, 7
# share of the work, and weights of gradient, echo, prediction and forecast; memory, curvature, noise; how much of what
# old rows say is sent, how far all is stretched to honest length, and noise shared in secret (below 0: one agent alone)
NAMES = (
    "share", "gradient", "echo", "prediction", "forecast", "memory", "curvature", "noise",
    "cached", "stretch", "secret",
)  # fmt: skip
LOW = np.array([0.0, 0.0, -0.5, -0.5, -0.5, 0.5, 0.0, 0.0, 0.0, 0.0, -0.2])
HIGH = np.array([1.25, 2.0, 1.0, 1.5, 1.5, 0.99, 2.0, 1.2, 1.5, 1.0, 0.2])  # curvature relative to the true one
NARROWEST = 0.02  # of the box, so that the search does not freeze early


def search(profits: Callable[[Any, int], Sequence[float]], seed: int) -> Any:
    """Return the numbers of the most profitable attack: the centre of the last generation's best.

    profits(candidates, seed) measures attacks. Each generation draws candidates from a normal distribution, keeps the
    best, and fits the distribution to them. No candidate's own measurement is the result: it may have been lucky.
    """
    rng = np.random.default_rng(seed)
    centre, spread = (LOW + HIGH) / 2, (HIGH - LOW) / 2
    for generation in range(GENERATIONS):
        drawn = np.clip(rng.normal(centre, spread, (CANDIDATES, len(LOW))), LOW, HIGH)
        elite = drawn[np.argsort(profits(drawn, seed + generation))[-KEPT:]]
        centre = elite.mean(axis=0)
        spread = np.maximum(elite.std(axis=0), NARROWEST * (HIGH - LOW))
    return centre
