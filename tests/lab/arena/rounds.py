"""One round of reports, with all that a rule of the arena may need to know."""

from typing import Any

import numpy as np

from guerdon import AffineCost, gather
from guerdon.lab.truth import Facts, informed
from guerdon.rule import Payments, round_of

COST = AffineCost(1, 1)


def half_square(model: Any) -> Any:
    return (model**2).sum() / 2


def facts(reports: Any, announced: Any = None, prediction: Any = None, model: Any = None) -> Facts:
    """Return the facts of a round; by default everybody announces 8, and the loss is ½‖θ‖² at (1, 1, …)."""
    reports = np.asarray(reports, dtype=np.float64)
    agents, dim = reports.shape
    told = np.full(agents, 8.0) if announced is None else np.asarray(announced, dtype=np.float64)
    centre = np.zeros(dim) if prediction is None else np.asarray(prediction)
    return Facts(reports, centre, told, np.ones(dim) if model is None else np.asarray(model), half_square)


def pay(rule: Any, told: Facts, state: Any = None, request: int = 8, sent: Any = None) -> tuple[Payments, Any]:
    """Return what a rule pays for a round, and its next state."""
    agents = len(told.announced)
    here = np.ones(agents, dtype=bool) if sent is None else np.asarray(sent)
    evidence = gather(told.reports, here)
    state = rule.init(agents) if state is None else state
    return informed(rule, told).pay(state, round_of(evidence, here, request))


def rewards(rule: Any, told: Facts, **given: Any) -> Any:
    return np.asarray(pay(rule, told, **given)[0].released)


def reports(seed: int = 0, agents: int = 5, dim: int = 6) -> Any:
    """Return gradients around (1, 1, …)."""
    return 1 + 0.5 * np.random.default_rng(seed).normal(size=(agents, dim))
