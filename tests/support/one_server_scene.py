"""Thirty rounds with everything that a server must cope with: copies, near-copies, garbage, NaN, dropouts and joins.

The simulator, Flower's strategy and the plain server play it, and must come to the same (tests/flower); the numbers
that they come to are recorded (tests/data/numbers).
"""

import numpy as np

from guerdon import AffineCost, EstimatedVariance, FixedRequest, FlatPay, InformationPay, KnownVariance, OutputAgreement
from guerdon.rule import Rule

COST, NU, STEP = AffineCost(1, 1), 8, 0.05
ROUNDS, AGENTS, DIM = 30, 9, 12
REQUESTS = FixedRequest(NU, STEP)
JOINS = np.array([0] * 7 + [6, 11])  # the round in which each joins
COPY, ALIKE, GARBAGE, SHORT, LONG, ABSENT = 1, 2, 3, 4, 5, 6  # agents who do otherwise

# Rules that look at no prediction and remember nothing of how a report was made.
PLAIN: dict[str, Rule] = {
    "agreement": OutputAgreement(COST),
    "estimated": OutputAgreement(COST, EstimatedVariance()),
    "known": OutputAgreement(COST, KnownVariance(12.0)),
    "flat": FlatPay(COST),
}
RULE = InformationPay(COST)
TRUSTING = InformationPay(COST, doubt=float("inf"), limit=100.0)


def scene(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what everybody sends (rounds, agents, dim), and who sends anything."""
    rng = np.random.default_rng(seed)
    signal = np.cumsum(rng.normal(size=(ROUNDS, 1, DIM)), axis=0) * 0.3 + 1.0
    sent = signal + rng.normal(size=(ROUNDS, AGENTS, DIM))
    present = np.arange(ROUNDS)[:, None] >= JOINS
    present[:, ABSENT] &= rng.random(ROUNDS) < 0.6
    present[20:, 0] = False  # one leaves
    copied = rng.random(ROUNDS) < 0.3
    sent[copied, COPY] = sent[copied, 0]
    sent[:, ALIKE] = sent[:, 8] + 0.3 * rng.normal(size=(ROUNDS, DIM))
    sizes = np.array([1.0, 10.0, 1e3, 1e6, 1e9, 1e14])[np.arange(ROUNDS) % 6, None]
    sent[:, GARBAGE] = np.where((np.arange(ROUNDS) % 3 == 0)[:, None], sizes * sent[:, GARBAGE], sent[:, GARBAGE])
    sent[:, SHORT] *= 0.2
    sent[:, LONG] *= np.where(np.arange(ROUNDS) % 2 == 0, 5.0, 1.0)[:, None]
    sent[4, 7 - 1] = np.nan
    return sent, present


def calm_scene(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the same joins and absences, where all but two do the work; the noise of a report is the request's."""
    rng = np.random.default_rng(seed)
    signal = np.cumsum(rng.normal(size=(ROUNDS, 1, DIM)), axis=0)
    noise = rng.normal(size=(ROUNDS, AGENTS, DIM))
    noise[:, SHORT] *= 2**0.5  # half the work
    _, present = scene(seed)
    sent = signal + noise
    sent[:, COPY] = np.where((np.arange(ROUNDS) % 2 == 0)[:, None], sent[:, COPY], 0.0)  # in every other round
    sent[4, ABSENT] = np.nan
    return sent, present
