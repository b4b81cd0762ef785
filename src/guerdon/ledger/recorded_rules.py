"""Rules as the ledger writes and reads them, also one that version 0.1 had: a variance that remembers.

`BalancedVariance(decay)` took σ² for the slope of the pay from earlier rounds. While σ² falls, as it does early in a
training, that made the pay too flat. Runs that were paid by it can be verified and read, but no longer continued.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from guerdon import rules
from guerdon.arrays import Array
from guerdon.costs import Cost, ExpressionCost
from guerdon.evidence import Evidence
from guerdon.ledger.errors import RefusedError
from guerdon.rules import Mechanism, OutputAgreement, Payments, VarianceRule
from guerdon.rules.agreement import Spread, far_or_near, spread_of, variance_of_others
from guerdon.rules.mechanism import RESOLUTION
from guerdon.states import NoState


def described(mechanism: Mechanism) -> tuple[str, str]:
    """Return a rule and its cost as text, or raise."""
    try:
        return rules.describe(mechanism)
    except ValueError as error:
        raise RefusedError(str(error)) from error


@lru_cache(maxsize=256)
def restored(rule: str, cost: str) -> Mechanism:
    """Return the payment rule that was written down, or raise."""
    try:
        settings: dict[str, Any] = json.loads(rule)
        decay: Any = dict[str, Any](settings.get("variance") or {}).get("decay")
        if decay is not None:
            return FadingAgreement(ExpressionCost(cost), float(decay), settings["crowd"])
        return rules.restore(rule, cost)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RefusedError(str(error)) from error


class PastSquares(NamedTuple):
    """What earlier rounds said of σ², per agent without that agent's own gradients: sums to be divided."""

    squares: Array
    freedom: Array


@dataclass(frozen=True)
class _GivenSlope(VarianceRule):
    slope: Array

    kind, least_participants = "balanced", 3

    def variances(self, spread: Spread) -> tuple[Array, Array]:
        return self.slope, variance_of_others(spread)


@dataclass(frozen=True)
class FadingAgreement(Mechanism):
    """Output agreement whose slope uses σ² as earlier rounds had it, each weighing `decay` times the one after it."""

    cost: Cost
    decay: float
    crowd: Any

    remembers = True
    rule_name, formula = "fading-agreement", "E − D"

    def init(self, num_agents: int) -> PastSquares:
        return PastSquares(np.zeros(num_agents), np.zeros(num_agents))

    def pay(
        self, state: PastSquares, evidence: Evidence, participating: Array, request: Any
    ) -> tuple[Payments, PastSquares]:
        spread = spread_of(evidence, request)
        known, pooled = state.squares > 0, spread.request * spread.squares / max(float(spread.count[0]) - 1, 1.0)
        past = state.squares / np.where(known, state.freedom, 1.0)
        given = _GivenSlope(np.where(known, past, pooled))
        agreement = OutputAgreement(self.cost, given, self.crowd)
        payments, _ = agreement.pay(NoState(), evidence, participating, request)
        # Squares at the limit of what can be resolved are rounding: nothing to remember.
        informative = (spread.freedom_of_others > 0) & (spread.squares_of_others > RESOLUTION * spread.squares)
        squares = self.decay * state.squares + spread.request * spread.squares_of_others
        freedom = self.decay * state.freedom + spread.freedom_of_others
        after = (squares, state.squares), (freedom, state.freedom)
        return payments, PastSquares(*(np.where(informative, new, old) for new, old in after))

    def words(self) -> str:
        return f"output agreement, balanced variance, decay {self.decay:g}"

    def why(self, distance: float, expected: float) -> str:
        return far_or_near(distance, expected)
