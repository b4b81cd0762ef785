"""Output agreement: pay each agent by how close its gradient lies to the mean of the others'.

The paper's equation 6, and what we add to it, pays participant k

    R_k = h(ν) + h'(ν) · ν²/V_k · (E_k − D_k)

where ν is the request, h the cost, D_k = ‖X_k − mean of the others‖² its distance, E_k = W_k/ν · n/(n−1) the distance
expected of honest work, and V_k, W_k two values for the variance σ² of a single-sample gradient:

    rule                     V_k (sets the slope)                          W_k (sets the level)
    KnownVariance            σ²                                            σ²
    EstimatedVariance        σ̂²₋ₖ, from the others in this round           σ̂²₋ₖ
    BalancedVariance         from all in this round, the same for all      σ̂²₋ₖ

With known variance S_k = ν is everybody's best response and honest pay equals honest cost (the paper's Theorem 1). The
estimated rule underpays, because E[1/σ̂²] > 1/σ². The balanced rule does not, for any distribution of the gradients: at
cooperation E_k − D_k has mean 0, and it keeps it when divided by a number that is the same for everybody (the E_k − D_k
add up to 0 over the participants, and nobody is special). Only a round in which all gradients are identical has no
scale, and pays nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from guerdon.arrays import Array, at_least_one, check_choice, check_number, namespace
from guerdon.costs import Cost
from guerdon.evidence import Evidence
from guerdon.rules.mechanism import (
    RESOLUTION,
    Mechanism,
    Payments,
    Status,
    Truth,
    as_request,
    check_round,
    statuses,
)
from guerdon.states import NoState

Crowd: TypeAlias = Literal["present", "enrolled"]


class Spread(NamedTuple):
    """How far apart this round's gradients lie: for all participants, and per agent among the others."""

    request: Array
    count: Array  # participants
    squares: Array  # Σ_i ‖X_i − m̄‖²
    freedom_of_others: Array  # participants other than k, less one
    squares_of_others: Array  # Σ_{i≠k} ‖X_i − m_{−k}‖²


class VarianceRule(Protocol):
    """Where an output-agreement mechanism takes σ² from."""

    kind: ClassVar[str]
    least_participants: ClassVar[int]  # below which the rule cannot pay
    needs_truth: ClassVar[bool] = False

    def variances(self, spread: Spread) -> tuple[Array, Array]:
        """Return (V, W): the variance that sets the slope of the pay, and the one that sets its level."""
        ...

    def knowing(self, truth: Truth) -> "VarianceRule":
        """Return the rule with the true σ² filled in, where it needs that."""
        del truth
        return self

    def settings(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {"kind": self.kind}


@dataclass(frozen=True)
class KnownVariance(VarianceRule):
    """σ² is known to the server: the paper's rule. The value may be an array, and may differ from round to round."""

    variance: Any

    kind, least_participants = "known", 2

    def __post_init__(self) -> None:
        check_number("variance", self.variance, minimum=0, inclusive=False)

    def variances(self, spread: Spread) -> tuple[Array, Array]:
        """Return σ² for both."""
        known = self.variance + 0 * spread.squares_of_others
        return known, known

    def settings(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {"kind": self.kind, "variance": float(self.variance)}


@dataclass(frozen=True)
class TrueVariance(VarianceRule):
    """Stands for `KnownVariance(σ²)` with the problem's own σ² at the model of each round: in a simulation only."""

    kind, least_participants, needs_truth = "known", 2, True

    def variances(self, spread: Spread) -> tuple[Array, Array]:
        """Raise: only the simulator knows σ²."""
        del spread
        raise TypeError(
            "`TrueVariance` must be used in `simulate`, which knows the problem; elsewhere use KnownVariance"
        )

    def knowing(self, truth: Truth) -> VarianceRule:
        """Return that σ² is known."""
        return KnownVariance(truth.variance)


@dataclass(frozen=True)
class EstimatedVariance(VarianceRule):
    """σ² is estimated from the others' gradients of this round (the paper's equation 10). Underpays honest agents."""

    kind, least_participants = "estimated", 3

    def variances(self, spread: Spread) -> tuple[Array, Array]:
        """Return σ̂²₋ₖ for both."""
        estimate = variance_of_others(spread)
        return estimate, estimate


@dataclass(frozen=True)
class BalancedVariance(VarianceRule):
    """The level of the pay uses σ² as the others have it in this round; its slope the estimate from all participants.

    R_k = h(ν) + h'(ν) · ν · n/(n−2) · (1 − n · dev_k/Σ dev). Then n·h(ν) is paid in all, whatever is sent, and an
    outlier can only make the others' pay higher, by ν·h'(ν)·n/(n−1) at the most.
    """

    kind, least_participants = "balanced", 3

    def variances(self, spread: Spread) -> tuple[Array, Array]:
        """Return (pooled σ̂², σ̂²₋ₖ)."""
        pooled = spread.request * spread.squares / at_least_one(spread.count - 1)
        return pooled + 0 * spread.squares_of_others, variance_of_others(spread)

    def settings(self) -> dict[str, Any]:
        """Return it as JSON can hold it; version 0.1 could let the past decay."""
        return {"kind": self.kind, "decay": None}


@dataclass(frozen=True)
class OutputAgreement(Mechanism):
    """Pay each agent by how close its gradient lies to the mean of the others'.

    `crowd` says which number stands in the constant n/(n−1): the participants of the round ("present", balanced
    under dropouts) or all agents ("enrolled", the paper's K/(K−1), which underpays when somebody is absent).

    >>> import numpy as np
    >>> from guerdon import AffineCost, gather
    >>> rule = OutputAgreement(AffineCost(1, 1), KnownVariance(16.0))
    >>> everybody = np.array([True, True, True])
    >>> evidence = gather(np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]]), everybody)
    >>> payments, state = rule.pay(rule.init(3), evidence, everybody, request=8)
    >>> payments.reward
    array([  3.,   3., -15.])
    """

    cost: Cost
    variance: VarianceRule = field(default_factory=BalancedVariance)
    crowd: Crowd = "present"

    rule_name, formula = "output-agreement", "E − D"
    pays_short_moves = True

    def __post_init__(self) -> None:
        check_choice("crowd", self.crowd, ("present", "enrolled"))

    def pay(self, state: NoState, evidence: Evidence, participating: Array, request: Any) -> tuple[Payments, NoState]:
        """Return the payments of a round, and the state as it is."""
        state, mask = check_round(state, evidence, participating, request)
        spread = spread_of(evidence, request)
        slope_variance, level_variance = self.variance.variances(spread)
        status = statuses(evidence, mask, self.variance.least_participants, slope_variance)
        paid = status == Status.PAID.value

        xp = namespace(evidence.deviation)
        nu = spread.request
        distance = (spread.count / at_least_one(spread.count - 1)) ** 2 * evidence.deviation
        crowd = spread.count if self.crowd == "present" else mask.shape[-1] + 0 * spread.count
        expected = level_variance / nu * crowd / at_least_one(crowd - 1)
        scale = xp.where(paid, slope_variance, 1.0)  # never a division by 0, not even where it is masked away
        reward = self.cost(nu) + self.cost.slope(nu) * nu**2 / scale * (expected - distance)

        shown = [xp.where(paid, x, xp.nan) for x in (distance, expected, slope_variance)]
        return Payments(xp.where(paid, reward, 0.0), *shown, status=status), state

    @property
    def needs_truth(self) -> bool:
        """Whether only a simulation can pay by it."""
        return self.variance.needs_truth

    def knowing(self, truth: Truth) -> Mechanism:
        """Return the rule with the true σ², where its variance is that."""
        return replace(self, variance=self.variance.knowing(truth))

    @classmethod
    def choices(cls) -> Mapping[str, Callable[..., Mechanism]]:
        """Return the rule by the names of its variances; `known` without a number is for simulations."""

        def known(cost: Cost, variance: float | None = None) -> Mechanism:
            return cls(cost, TrueVariance() if variance is None else KnownVariance(variance))

        def estimated(cost: Cost) -> Mechanism:
            return cls(cost, EstimatedVariance())

        def balanced(cost: Cost) -> Mechanism:
            return cls(cost)

        return {"balanced": balanced, "known": known, "estimated": estimated}

    def settings(self) -> dict[str, Any]:
        """Return all but the cost."""
        return {"variance": self.variance.settings(), "crowd": self.crowd}

    @classmethod
    def from_settings(cls, cost: Cost, settings: Mapping[str, Any]) -> Mechanism:
        """Return the rule that `settings` described."""
        match settings["variance"]:
            case {"kind": "known", "variance": variance}:
                return cls(cost, KnownVariance(variance), settings["crowd"])
            case {"kind": "estimated"}:
                return cls(cost, EstimatedVariance(), settings["crowd"])
            case {"kind": "balanced", "decay": None}:
                return cls(cost, BalancedVariance(), settings["crowd"])
            case other:
                raise ValueError(f"unknown variance {other!r}")

    def words(self) -> str:
        """Return what the rule is, in words."""
        return f"output agreement, {self.variance.kind} variance"

    def why(self, distance: float, expected: float) -> str:
        """Return in words how far the report lay from the others."""
        return far_or_near(distance, expected)


def spread_of(evidence: Evidence, request: Any) -> Spread:
    """Return the spread of the round, by THEORY's one-pass identity: Σ_{i≠k} ‖X_i − m_{−k}‖² = SS − n/(n−1)·dev_k."""
    xp = namespace(evidence.deviation)
    counted = xp.astype(evidence.counted, evidence.deviation.dtype)
    count, squares = (xp.sum(x, axis=-1, keepdims=True) for x in (counted, evidence.deviation))
    of_others = squares - count / at_least_one(count - 1) * evidence.deviation
    of_others = xp.where(of_others > RESOLUTION * squares, of_others, RESOLUTION * squares)
    return Spread(as_request(evidence, request), count, squares, count - counted - 1, of_others)


def variance_of_others(spread: Spread) -> Array:
    """Return σ̂²₋ₖ = ν/(|P∖k| − 1) · Σ_{i∈P∖k} ‖X_i − m_{−k}‖² (the paper's equation 10)."""
    return spread.request * spread.squares_of_others / at_least_one(spread.freedom_of_others)


def far_or_near(distance: float, expected: float) -> str:
    """Return how a distance compares with that of honest work, in words."""
    side = "closer to the others than" if distance <= expected else "further from the others than"
    return f"at distance {distance:.4g}, {side} the {expected:.4g} of honest work"
