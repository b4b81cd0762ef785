"""Pilots with known truth: pay is made up of levels of agents and rounds, what half work changes, and noise."""

import numpy as np

from guerdon.pilot import PilotDesign, PilotRecord, RoundScores

REQUEST, COST = 16, "1 + s"  # full work costs 17, half work 9


def made_up(
    effect: float,
    noise: float,
    *,
    rounds: int = 60,
    agents: int = 10,
    seed: int = 0,
    levels: float = 0.0,
    ghost: float = -5.0,
    evidence: float = 0.0,
) -> PilotRecord:
    """Return a pilot of a rule that pays 17, and `effect` more for half work; agents differ by `levels`."""
    rng, design = np.random.default_rng(seed), PilotDesign(REQUEST, seed=seed)
    record, own = PilotRecord(REQUEST, COST, "gradients"), levels * rng.normal(size=agents)
    names = [f"a{k}" for k in range(agents)]
    for number in range(rounds):
        asked = design.requests(number, agents)
        common = noise * rng.normal()  # of all agents of the round
        pay = 17 + own + common + effect * (asked < REQUEST) + noise * rng.normal(size=agents)
        sent = rng.random(agents) > 0.1
        scores = RoundScores(
            {"rule": np.where(sent, pay, np.nan)},
            {"rule": {"nothing": ghost + noise * rng.normal()}},
            {"rule": np.linspace(0, evidence, agents)},
            80.0,
            4.0,
        )
        record = record.with_round(names, asked, sent, scores)
    return record
