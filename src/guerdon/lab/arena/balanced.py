"""Balanced variance: output agreement that divides by the spread of the round itself. It is not payable.

    R_k = h(ν) + h'(ν) · ν · n/(n−2) · (1 − n · dev_k/Σ dev)

Honest pay equals honest cost exactly, n·h(ν) is paid in all, and an outlier raises the others' pay by ν·h'(ν)·n/(n−1)
at the most. But the spread that it divides by contains the agent's own report. Where few samples carry most of the
variance, one sample is mostly quiet, and when it is loud its fine is bounded. On the paper's survey as it is (8.6 %
positives, ν = 8, cost 9) a member that uses one sample gains 7.6 of 9 with four members, 1.8 with ten. So it is kept
for comparisons alone. `OutputAgreement(cost)` takes the scale from earlier rounds instead.
"""

from dataclasses import dataclass
from typing import Any

from guerdon.agreement import Spread, VarianceRule, variance_of_others
from guerdon.arrays import Array, at_least_one


@dataclass(frozen=True)
class BalancedVariance(VarianceRule):
    """The level of the pay uses σ² as the others have it in this round; its slope the estimate from all participants.

    >>> from guerdon import AffineCost, OutputAgreement
    >>> rule = OutputAgreement(AffineCost(1, 1), BalancedVariance())
    >>> rule.by_pairs
    False
    """

    kind, least_participants = "balanced", 3

    def variances(self, spread: Spread) -> tuple[Array, Array]:
        """Return (pooled σ̂², σ̂²₋ₖ)."""
        pooled = spread.request * spread.squares / at_least_one(spread.count - 1)
        return pooled + 0 * spread.squares_of_others, variance_of_others(spread)

    def settings(self) -> dict[str, Any]:
        """Raise: nobody may be paid by it."""
        raise ValueError(
            "balanced variance cannot be recorded: under it fewer samples can pay more than the work asked for; "
            "take OutputAgreement(cost), whose scale comes from earlier rounds"
        )
