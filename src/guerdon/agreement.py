"""Output agreement: pay each agent by how close its gradient lies to the others'.

By default agents are compared in pairs. With g_ki the squared distance of two reports, cut at c,

    R_k = h(ν) + h'(ν) · ν²/V · (E_k − D_k)       D_k: mean of g_ki over the others i
                                                 E_k: mean of g_ij over the pairs without k

V is the variance σ² of a single-sample gradient as *earlier* rounds have it (`guerdon.scale`). It is the same for
all, and so is c = 2·V/(ν·rarest). Then, for any distribution of the gradients (docs/explanation/agreement.md has the
proof):

- the extras R_k − h(ν) of a round add up to 0, whatever is sent;
- members that are alike earn h(ν) in the mean;
- as long as no distance is cut, S = ν is the best response if σ²/V is within 1/ν of 1, and no other S gains more than
  h'(ν)·ν·(√(σ²/V) − 1)²;
- nobody loses more than 2·h'(ν)·ν/rarest in a round.

In the paper's equation 6 agents are compared with the mean of the others: D_k = ‖X_k − m₋ₖ‖², E_k = W/ν · n/(n−1):

    rule                     V (sets the slope)                            W (sets the level)
    KnownVariance            σ²                                            σ²
    EstimatedVariance        σ̂²₋ₖ, from the others in this round           σ̂²₋ₖ

With known variance S = ν is everybody's best response and honest pay equals honest cost (the paper's Theorem 1). The
estimated rule underpays, because E[1/σ̂²] > 1/σ².
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from guerdon.arrays import (
    Array,
    at_least_one,
    check_choice,
    check_number,
    is_array,
    namespace,
)
from guerdon.costs import Cost
from guerdon.evidence import Evidence
from guerdon.rule import RESOLUTION, Need, Notice, Payments, Round, Rule, Status, as_request, check_round, statuses
from guerdon.scale import estimate, scale
from guerdon.settling import Measured, ScaledState, first_state, pay_on_scale
from guerdon.states import NoState
from guerdon.words import About, told_by

__all__ = [
    "EarlierRounds",
    "EstimatedVariance",
    "FlatPay",
    "KnownVariance",
    "OutputAgreement",
    "VarianceRule",
]

Crowd: TypeAlias = Literal["present", "enrolled"]


class Spread(NamedTuple):
    """How far apart this round's gradients lie: for all participants, and per agent among the others."""

    request: Array
    count: Array  # participants
    squares: Array  # Σ_i ‖X_i − m̄‖²
    freedom_of_others: Array  # participants other than k, less one
    squares_of_others: Array  # Σ_{i≠k} ‖X_i − m_{−k}‖²


class VarianceRule(Protocol):
    """Where output agreement takes σ² from."""

    kind: ClassVar[str]
    least_participants: ClassVar[int]  # below which the rule cannot pay

    def variances(self, spread: Spread) -> tuple[Array, Array]:
        """Return (V, W) of a round, per agent: the variance that sets the slope of the pay, and that of its level."""
        ...

    def settings(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {"kind": self.kind}


@dataclass(frozen=True)
class KnownVariance(VarianceRule):
    """σ² is known to the server: the paper's rule.

    - `variance`: σ² of one sample's gradient, above 0, in the squared unit of a gradient. An array with an entry for
      each round does for many rounds at once.
    """

    variance: Any

    kind, least_participants = "known", 2

    def __post_init__(self) -> None:
        check_number("variance", self.variance, minimum=0, inclusive=False)

    def variances(self, spread: Spread) -> tuple[Array, Array]:
        """Return σ² for both."""
        variance = self.variance + 0 * spread.squares_of_others
        return variance, variance

    def settings(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {"kind": self.kind, "variance": float(self.variance)}


@dataclass(frozen=True)
class EstimatedVariance(VarianceRule):
    """σ² is estimated from the others' gradients of this round (the paper's equation 10). Underpays honest agents."""

    kind, least_participants = "estimated", 3

    def variances(self, spread: Spread) -> tuple[Array, Array]:
        """Return σ̂²₋ₖ for both."""
        estimate = variance_of_others(spread)
        return estimate, estimate


@dataclass(frozen=True)
class EarlierRounds:
    """σ² is estimated from all reports of earlier rounds: the default.

    - `rarest`: the smallest share of samples that may carry all of the variance, above 0 and at most 1 (0.01: one in a
      hundred, as positive cases of a rare disease do). Distances of pairs are cut at 1/rarest times that of honest
      work. If a smaller share carries the variance, a report of one sample is mostly quiet, and its fine is cut where
      it is loud: then less work pays. A smaller `rarest` lets a member lose more in a round.
    """

    rarest: float = 0.01

    kind: ClassVar[str] = "earlier-rounds"
    least_participants: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_share("rarest", self.rarest)

    def settings(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {"kind": self.kind, "rarest": self.rarest}


class _AboutAgreement(About):
    """Pay by distances to the others."""

    formula = "E − D"

    def words(self, rule: Any) -> str:
        return "output agreement" if rule.by_pairs else f"output agreement, {rule.variance.kind} variance"

    def why(self, rule: Any, distance: float, expected: float) -> str:
        if not rule.by_pairs:
            return far_or_near(distance, expected)
        near, between = f"{distance:.4g}", f"{expected:.4g}"
        if near == between:
            return f"{near} from the others, as far as these lie from each other"
        return f"{near} from the others, {'less' if distance < expected else 'more'} than the {between} between them"

    def choices(self, kind: Any) -> Mapping[str, Callable[..., Rule]]:
        def agreement(cost: Cost, rarest: float = EarlierRounds.rarest) -> Rule:
            return kind(cost, EarlierRounds(rarest))

        def known(cost: Cost, variance: float | None = None) -> Rule:
            if variance is None:
                raise ValueError("it needs the variance of a single sample's gradient: known:4.0")
            return kind(cost, KnownVariance(variance))

        def estimated(cost: Cost) -> Rule:
            return kind(cost, EstimatedVariance())

        return {"agreement": agreement, "known": known, "estimated": estimated}

    def worst_loss(self, rule: Any, request: Any) -> float:
        """Return 2·h'(ν)·ν/rarest: no member loses more than that below h(ν) in a round, whatever anybody sends."""
        return 2 * rule.reach * float(rule.cost.slope(request)) * request if rule.by_pairs else math.inf

    def transfers(self, rule: Any) -> bool:
        return rule.by_pairs

    def settings(self, rule: Any) -> dict[str, Any]:
        return {"variance": rule.variance.settings(), "crowd": rule.crowd}

    def from_settings(self, kind: Any, cost: Cost, settings: Mapping[str, Any]) -> Rule:
        match settings["variance"]:
            case {"kind": "known", "variance": variance}:
                return kind(cost, KnownVariance(variance), settings["crowd"])
            case {"kind": "estimated"}:
                return kind(cost, EstimatedVariance(), settings["crowd"])
            case {"kind": "earlier-rounds", "rarest": rarest}:
                return kind(cost, EarlierRounds(rarest), settings["crowd"])
            case other:
                raise ValueError(f"unknown variance {other!r}")


@told_by(_AboutAgreement())
@dataclass(frozen=True)
class OutputAgreement(Rule):
    """Pay each agent by how close its gradient lies to the others'.

    R_k = h(ν) + h'(ν)·ν²/V·(E_k − D_k): by pairs, or by the paper's equation 6, as this module's header has it.

    - `cost`: h and its slope, in units of money.
    - `variance`: where σ² comes from, `EarlierRounds()`, `KnownVariance(σ²)` or `EstimatedVariance()`.
    - `crowd`: for the last two, the number in the constant n/(n−1): the participants of the round ("present", balanced
      under dropouts), or all agents ("enrolled", the paper's K/(K−1), which underpays when somebody is absent).

    >>> import numpy as np
    >>> from guerdon import AffineCost, gather, round_of
    >>> rule = OutputAgreement(AffineCost(1, 1), KnownVariance(16.0))
    >>> everybody = np.array([True, True, True])
    >>> evidence = gather(np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]]), everybody)
    >>> payments, state = rule.pay(rule.init(3), round_of(evidence, everybody, request=8))
    >>> payments.released
    array([  3.,   3., -15.])
    """

    cost: Cost
    variance: VarianceRule | EarlierRounds = field(default_factory=EarlierRounds)
    crowd: Crowd = "present"

    name, version = "output-agreement", 1
    needs = frozenset({Need.COSTS, Need.OTHERS, Need.ONE_STEP})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_variance(self.variance, "EarlierRounds(), the default, or KnownVariance(16.0)")
        check_choice("crowd", self.crowd, ("present", "enrolled"))
        if self.by_pairs and self.crowd != "present":
            raise ValueError('`crowd` must be "present" where agents are compared in pairs, got "enrolled"')

    @property
    def by_pairs(self) -> bool:
        """Whether distances of pairs are compared, on a scale from earlier rounds: then extras add up to 0."""
        return isinstance(self.variance, EarlierRounds)

    @property
    def reach(self) -> float:
        """How far apart two reports may count, in units of the distance 2V/ν of honest work; 0: there is no limit."""
        return 1 / self.variance.rarest if isinstance(self.variance, EarlierRounds) else 0.0

    def init(self, num_agents: int) -> Any:
        """Return the state before the first round."""
        return first_state(num_agents) if self.by_pairs else super().init(num_agents)

    def notice(self, state: Any, request: Any) -> Notice:
        """Return how far apart two reports may count, and V; nothing where agents are not compared in pairs."""
        del request
        return Notice(reach=self.reach, scale=scale(state.scale)) if self.by_pairs else Notice()

    def pay(self, state: Any, round: Round) -> tuple[Payments, Any]:
        """Return the payments of a round, in units of money, and the next state.

        - `state`: what `init`, or `pay` of the round before, returned.
        - `round`: the evidence and the request ν, in samples.
        """
        state, mask = check_round(state, round, ScaledState if self.by_pairs else tuple)
        evidence, request = round.evidence, round.request
        if isinstance(self.variance, EarlierRounds):
            return self._pay_by_pairs(self.variance, state, round, mask)
        spread = spread_of(evidence, request)
        slope_variance, level_variance = self.variance.variances(spread)
        status = statuses(evidence, mask, self.variance.least_participants, slope_variance)
        paid = status == Status.PAID.value

        xp = namespace(evidence.squared_deviation)
        nu = spread.request
        distance = (spread.count / at_least_one(spread.count - 1)) ** 2 * evidence.squared_deviation
        crowd = spread.count if self.crowd == "present" else mask.shape[-1] + 0 * spread.count
        expected = level_variance / nu * crowd / at_least_one(crowd - 1)
        scale = xp.where(paid, slope_variance, 1.0)  # never a division by 0, not even where it is masked away
        reward = self.cost(nu) + self.cost.slope(nu) * nu**2 / scale * (expected - distance)

        shown = [xp.where(paid, x, xp.nan) for x in (distance, expected, slope_variance)]
        reward = xp.where(paid, reward, 0.0)
        return Payments(reward, reward, *shown, status=status), state

    def _pay_by_pairs(
        self, variance: EarlierRounds, state: ScaledState, round: Round, mask: Array
    ) -> tuple[Payments, ScaledState]:
        """Return the payments of a round by the mean distances to the others, and the next state."""
        evidence = round.evidence
        xp, nu = namespace(evidence.squared_deviation), as_request(evidence, round.request)
        distance, counted = evidence.pair_distance, xp.astype(evidence.counted, evidence.squared_deviation.dtype)
        level = estimate(distance, evidence.counted, nu, variance.rarest)
        expected = (xp.sum(counted * distance) - 2 * distance) / at_least_one(level.agents - 2)
        expected = xp.where(level.agents > 2, expected, distance)  # two are as far from each other: both get their cost
        least = nu / (2 * self.reach) * xp.max(distance)
        status = statuses(evidence, mask, variance.least_participants, 1 + 0 * distance)
        most = xp.asarray(2 * self.reach * nu * self.cost.slope(nu), dtype=nu.dtype)
        measured = Measured(distance, expected, status, level, least, most)
        return pay_on_scale(self.cost, state, measured, nu, round.is_last)


class _AboutFlat(About):
    """Pay the cost to everybody."""

    def worst_loss(self, rule: Any, request: Any) -> float:
        """Return 0: nobody is paid less than h(ν)."""
        del rule, request
        return 0.0


@told_by(_AboutFlat())
@dataclass(frozen=True)
class FlatPay(Rule):
    """The control: R_k = h(ν) for every agent that sends anything usable. No agent has a reason to work.

    - `cost`: h, in units of money.
    """

    cost: Cost

    name, version, needs = "flat", 1, frozenset({Need.COSTS})

    def pay(self, state: NoState, round: Round) -> tuple[Payments, NoState]:
        """Return h(ν) for every participant, and the state as it is."""
        state, mask = check_round(state, round)
        evidence = round.evidence
        xp = namespace(evidence.squared_deviation)
        nu = as_request(evidence, round.request)
        status = statuses(evidence, mask, least_participants=1, variance=1 + 0 * evidence.squared_deviation)
        nothing = xp.nan + 0 * evidence.squared_deviation
        reward = xp.where(status == Status.PAID.value, self.cost(nu), 0.0 * evidence.squared_deviation)
        return Payments(reward, reward, nothing, nothing, nothing, status), state


def spread_of(evidence: Evidence, request: Any) -> Spread:
    """Return how far apart the gradients of a round lie, for all and without each agent.

    With m₋ₖ the mean of the others, Σ_{i≠k} ‖X_i − m₋ₖ‖² = Σ_i ‖X_i − m̄‖² − n/(n−1)·‖X_k − m̄‖²: one pass does.

    - `evidence`: the deviations ‖X_k − m̄‖², and which agents are counted.
    - `request`: ν, in samples.
    """
    xp = namespace(evidence.squared_deviation)
    counted = xp.astype(evidence.counted, evidence.squared_deviation.dtype)
    count, squares = (xp.sum(x, axis=-1, keepdims=True) for x in (counted, evidence.squared_deviation))
    of_others = squares - count / at_least_one(count - 1) * evidence.squared_deviation
    of_others = xp.where(of_others > RESOLUTION * squares, of_others, RESOLUTION * squares)
    return Spread(as_request(evidence, request), count, squares, count - counted - 1, of_others)


def variance_of_others(spread: Spread) -> Array:
    """Return σ̂²₋ₖ = ν/(|P∖k| − 1) · Σ_{i∈P∖k} ‖X_i − m₋ₖ‖² per agent (the paper's equation 10), P the participants."""
    return spread.request * spread.squares_of_others / at_least_one(spread.freedom_of_others)


def check_share(name: str, value: float) -> None:
    """Raise unless a value is above 0 and at most 1."""
    check_number(name, value, minimum=0, inclusive=False)
    if value > 1:
        raise ValueError(f"`{name}` must be a share of at most 1, got {value!r}")


def check_is_variance(variance: object, kinds: str) -> None:
    """Raise unless `variance` says where σ² comes from: a number does not."""
    if isinstance(variance, type) or not hasattr(variance, "kind"):
        plain = isinstance(variance, (int, float)) or is_array(variance)
        instead = f": give KnownVariance({variance!r})" if plain else ""
        raise TypeError(f"`variance` must say where σ² comes from, such as {kinds}, got {variance!r}{instead}")


def far_or_near(distance: float, expected: float) -> str:
    """Return how a distance compares with that of honest work, in words."""
    side = "closer to the others than" if distance <= expected else "further from the others than"
    return f"at distance {distance:.4g}, {side} the {expected:.4g} of honest work"
