"""Payment rules: the evidence of a round in, `Payments` out.

A mechanism is a frozen dataclass with two pure methods: `init(num_agents)` gives the state before the first round, and
`pay(state, evidence, participating, request)` gives the payments of a round and the next state. The server may change
the request from round to round. The last axis of all arrays is the agents'; a rule that remembers nothing takes many
rounds at once, with the rounds along axes before it.

Output agreement (the paper's equation 6, and what we add to it) pays participant k

    R_k = h(ν) + h'(ν) · ν²/V_k · (E_k − D_k)

where ν is the request, h the cost, D_k = ‖X_k − mean of the others‖² his distance, E_k = W_k/ν · n/(n−1) the distance
expected of honest work, and V_k, W_k two values for the variance σ² of a single-sample gradient:

    rule                     V_k (sets the slope)                          W_k (sets the level)
    KnownVariance            σ²                                            σ²
    EstimatedVariance        σ̂²₋ₖ, from the others in this round           σ̂²₋ₖ
    BalancedVariance         from all in this round, the same for all      σ̂²₋ₖ
    BalancedVariance(decay)  σ̃²₋ₖ, from the others in earlier rounds       σ̂²₋ₖ

With known variance S_k = ν is everybody's best response and honest pay equals honest cost (the paper's Theorem 1). The
estimated rule underpays, because E[1/σ̂²] > 1/σ². The balanced rule does not, for any distribution of the gradients: at
cooperation E_k − D_k has mean 0, and it keeps it when divided by a number that is the same for everybody (the E_k − D_k
add up to 0 over the participants, and nobody is special) or that does not depend on this round. Only a round in which
all gradients are identical has no scale, and pays nothing.
"""

import math
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from guerdon.arrays import (
    Array,
    as_mask,
    check_choice,
    check_number,
    check_positive_integer,
    is_array,
    is_traced,
    namespace,
)
from guerdon.costs import Cost
from guerdon.evidence import Evidence

# The others' sum of squares is a difference, and cannot be resolved below this part of everybody's: less is rounding.
# It matters for an agent a thousand times further out than the rest, or the only one who differs, and keeps his (very
# negative) reward finite.
RESOLUTION = 1e-6

Crowd: TypeAlias = Literal["present", "enrolled"]
State = TypeVar("State", bound=tuple[Any, ...])


class Status(IntEnum):
    """Why an agent was paid what he was paid. Everything but PAID comes with a reward of 0."""

    PAID = 0  # by the rule
    DECLINED = 1  # he sent nothing
    ALONE = 2  # nobody else took part: there is nothing to compare him with
    TOO_FEW = 3  # two took part, and the variance cannot be estimated from one other agent
    NO_VARIANCE = 4  # all gradients were identical, so distances have no scale
    INVALID = 5  # what he sent held NaN, infinity or a number too large to square, or was malformed: treated as absent

    @property
    def label(self) -> str:
        """The name as people read it: 'too-few'."""
        return self.name.lower().replace("_", "-")


class Payments(NamedTuple):
    """Per agent: the reward, and what it was computed from.

    `distance` is D_k, `expected_distance` E_k and `variance` V_k in the formula above, NaN where the rule was not
    applied; `status` holds values of `Status`.
    """

    reward: Array
    distance: Array
    expected_distance: Array
    variance: Array
    status: Array


class History(NamedTuple):
    """What earlier rounds said of σ², per agent without that agent's own gradients: sums to be divided."""

    squares: Array
    freedom: Array


class Spread(NamedTuple):
    """How far apart this round's gradients lie: for all participants, and per agent among the others."""

    request: Array
    count: Array  # participants
    squares: Array  # Σ_i ‖X_i − m̄‖²
    freedom_of_others: Array  # participants other than k, less one
    squares_of_others: Array  # Σ_{i≠k} ‖X_i − m_{−k}‖²


class Truth(Protocol):
    """What only a simulation knows, at the model that was broadcast."""

    @property
    def gradient(self) -> Array:
        """The true gradient m."""
        ...

    @property
    def variance(self) -> Array:
        """σ², the variance of a single sample's gradient."""
        ...


class Mechanism(Protocol):
    """A payment rule. A rule states its cost, and defines `init` and `pay`; all else here has a default.

    The defaults are those of a rule that looks at reports as they come and trusts everybody.
    """

    cost: Cost
    wants_prediction: ClassVar[bool] = False  # evidence is gathered around a public prediction
    wants_truth: ClassVar[bool] = False  # evidence is gathered around the true gradient: in a simulation only
    compares_pairs: ClassVar[bool] = False  # copies are left out, and reports longer than `limit` allows shortened
    remembers: ClassVar[bool] = False  # the state matters for later rounds
    limit: float = math.inf  # times the median length of the others

    def init(self, num_agents: int) -> Any:
        """Return the state before the first round."""
        ...

    def pay(self, state: Any, evidence: Evidence, participating: Array, request: Any) -> tuple[Payments, Any]:
        """Return the payments of a round in which everybody was asked for `request` samples, and the next state."""
        ...

    def reference(self, state: Any, counted: Array) -> Array:
        """Tell which of the counted agents the others are compared with, and the model is made from."""
        del state
        return counted

    def suspicion(self, state: Any) -> Array | None:
        """Return the logarithm of the evidence against each agent; None for a rule that keeps none."""
        del state
        return None

    def knowing(self, truth: Truth) -> "Mechanism":
        """Return the rule with what it needs of the truth filled in, in a simulation."""
        del truth
        return self


class VarianceRule(Protocol):
    """Where an output-agreement mechanism takes σ² from."""

    least_participants: ClassVar[int]  # below which the rule cannot pay

    def variances(self, history: History, spread: Spread) -> tuple[Array, Array]:
        """Return (V, W): the variance that sets the slope of the pay, and the one that sets its level."""
        ...

    def remember(self, history: History, spread: Spread) -> History:
        """Return the history with this round added."""
        ...

    def knowing(self, truth: Truth) -> "VarianceRule":
        """Return the rule with the true σ² filled in, where it needs that."""
        del truth
        return self


@dataclass(frozen=True)
class KnownVariance(VarianceRule):
    """σ² is known to the server: the paper's rule. The value may be an array, and may differ from round to round."""

    variance: Any

    least_participants = 2

    def __post_init__(self) -> None:
        check_number("variance", self.variance, minimum=0, inclusive=False)

    def variances(self, history: History, spread: Spread) -> tuple[Array, Array]:
        """Return σ² for both."""
        del history
        known = self.variance + 0 * spread.squares_of_others
        return known, known

    def remember(self, history: History, spread: Spread) -> History:
        """Return the history as it is: nothing needs to be learned."""
        del spread
        return history


@dataclass(frozen=True)
class EstimatedVariance(VarianceRule):
    """σ² is estimated from the others' gradients of this round (the paper's equation 10). Underpays honest agents."""

    least_participants = 3

    def variances(self, history: History, spread: Spread) -> tuple[Array, Array]:
        """Return σ̂²₋ₖ for both."""
        del history
        estimate = _variance_of_others(spread)
        return estimate, estimate

    def remember(self, history: History, spread: Spread) -> History:
        """Return the history as it is: every round stands alone."""
        del spread
        return history


@dataclass(frozen=True)
class BalancedVariance(VarianceRule):
    """The level of the pay uses σ² as the others have it in this round; its slope uses a value that k hardly moves.

    By default that value is this round's estimate from all participants, the same for everybody:
    R_k = h(ν) + h'(ν) · ν · n/(n−2) · (1 − n · dev_k/Σ dev). Then n·h(ν) is paid in all, whatever is sent, and an
    outlier can only make the others' pay higher, by ν·h'(ν)·n/(n−1) at the most.

    With a `decay` it is σ² as earlier rounds had it, without k, each round weighing `decay` times the one after it
    (THEORY §4; the first round has no history, and does as above). While σ² falls, as it does early in a training, the
    past is too large a value, the pay too flat, and the best response less than ν: prefer the default.
    """

    decay: float | None = None

    least_participants = 3

    def __post_init__(self) -> None:
        if self.decay is None:
            return
        check_number("decay", self.decay, minimum=0)
        if not is_traced(self.decay) and self.decay > 1:
            raise ValueError(f"`decay` must be at most 1, got {self.decay!r}")

    def variances(self, history: History, spread: Spread) -> tuple[Array, Array]:
        """Return (V, σ̂²₋ₖ); V is this round's pooled estimate where there is no history."""
        xp = namespace(spread.squares)
        pooled = spread.request * spread.squares / at_least_one(spread.count - 1)
        known = history.squares > 0
        past = history.squares / xp.where(known, history.freedom, 1.0)
        return xp.where(known, past, pooled), _variance_of_others(spread)

    def remember(self, history: History, spread: Spread) -> History:
        """Return the decayed history plus this round; a round that says nothing of σ² makes nothing older."""
        if self.decay is None:
            return history
        xp = namespace(spread.squares)
        # Squares at the limit of what can be resolved are rounding, and k's own doing: nothing to remember.
        resolved = spread.squares_of_others > RESOLUTION * spread.squares
        informative = (spread.freedom_of_others > 0) & resolved
        squares = self.decay * history.squares + spread.request * spread.squares_of_others
        freedom = self.decay * history.freedom + spread.freedom_of_others
        return History(xp.where(informative, squares, history.squares), xp.where(informative, freedom, history.freedom))


@dataclass(frozen=True)
class OutputAgreement(Mechanism):
    """Pay each agent by how close his gradient lies to the mean of the others'.

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

    def __post_init__(self) -> None:
        check_choice("crowd", self.crowd, ("present", "enrolled"))

    def init(self, num_agents: int) -> History:
        """Return the state before the first round: an empty history."""
        return _no_history(num_agents)

    def pay(self, state: History, evidence: Evidence, participating: Array, request: Any) -> tuple[Payments, History]:
        """Return the payments of a round, and the state with this round remembered."""
        state, mask = check_round(state, evidence, participating, request)
        spread = _spread(evidence, request)
        slope_variance, level_variance = self.variance.variances(state, spread)
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
        return Payments(xp.where(paid, reward, 0.0), *shown, status=status), self.variance.remember(state, spread)

    def knowing(self, truth: Truth) -> Mechanism:
        """Return the rule with the true σ², where its variance is that."""
        return replace(self, variance=self.variance.knowing(truth))


@dataclass(frozen=True)
class GenieAided(Mechanism):
    """The paper's ideal (its equation 8): pay by the distance to the true gradient, which only a simulation knows.

    R_k = h(ν) + h'(ν) · ν²/σ² · (σ²/ν − ‖X_k − m‖²), from evidence gathered with the population gradient m as its
    prediction. Nobody's pay depends on anybody else's gradient, so a lone participant is paid like any other.
    """

    cost: Cost
    variance: Any  # KnownVariance, or in a simulation TrueVariance

    wants_prediction = wants_truth = True

    def init(self, num_agents: int) -> History:
        """Return the state before the first round: an empty history."""
        return _no_history(num_agents)

    def pay(self, state: History, evidence: Evidence, participating: Array, request: Any) -> tuple[Payments, History]:
        """Return the payments of a round, and the state as it is."""
        state, mask = check_round(state, evidence, participating, request)
        xp = namespace(evidence.deviation)
        nu = as_request(evidence, request)
        variance = self.variance.variance + 0 * evidence.length
        status = statuses(evidence, mask, least_participants=1, variance=variance)
        paid = status == Status.PAID.value
        reward = self.cost(nu) + self.cost.slope(nu) * nu**2 / variance * (variance / nu - evidence.length)
        shown = [xp.where(paid, x, xp.nan) for x in (evidence.length, variance / nu, variance)]
        return Payments(xp.where(paid, reward, 0.0), *shown, status=status), state

    def knowing(self, truth: Truth) -> Mechanism:
        """Return the rule with the true σ², where its variance is that."""
        return replace(self, variance=self.variance.knowing(truth))


@dataclass(frozen=True)
class FlatPay(Mechanism):
    """The control: pay h(ν) to everybody who sends anything usable. No agent has a reason to work."""

    cost: Cost

    def init(self, num_agents: int) -> History:
        """Return the state before the first round: an empty history."""
        return _no_history(num_agents)

    def pay(self, state: History, evidence: Evidence, participating: Array, request: Any) -> tuple[Payments, History]:
        """Return h(ν) for every participant, and the state as it is."""
        state, mask = check_round(state, evidence, participating, request)
        xp = namespace(evidence.deviation)
        nu = as_request(evidence, request)
        status = statuses(evidence, mask, least_participants=1, variance=1 + 0 * evidence.deviation)
        nothing = xp.nan + 0 * evidence.deviation
        reward = xp.where(status == Status.PAID.value, self.cost(nu), 0.0 * evidence.deviation)
        return Payments(reward, nothing, nothing, nothing, status), state


def padded(empty: Any, state: Any) -> Any:
    """Return a mechanism's state for the agents of `empty`, of whom the first ones have the given state.

    Newcomers, who come last, start from nothing; so does everybody where there is no state, or that of another rule.
    """
    if type(state) is not type(empty):
        return empty
    parts = zip(empty, state, strict=True)
    return type(empty)(*(np.concatenate([old, new[..., old.shape[-1] :]], axis=-1) for new, old in parts))


def _no_history(num_agents: int) -> History:
    check_positive_integer("num_agents", num_agents)
    return History(np.zeros(num_agents), np.zeros(num_agents))


def check_round(state: State, evidence: Evidence, participating: Array, request: Any) -> tuple[State, Array]:
    """Return the state and the mask as arrays of the evidence's library, or raise."""
    if not is_array(evidence.deviation):
        raise TypeError(f"`evidence` must come from `gather`, got {type(evidence.deviation).__name__} for a deviation")
    xp = namespace(evidence.deviation)
    num_agents = evidence.deviation.shape[-1]
    if evidence.deviation.ndim == 1:
        check_positive_integer("request", request)
    mask = as_mask(xp, participating, evidence.deviation.shape)
    if state[0].shape != (num_agents,):
        raise ValueError(
            f"`state` must be of the {num_agents} agents of this round, got one of {state[0].shape[0]}; "
            "enrol everybody in `init` and tell who is absent through `participating`"
        )
    if not is_traced(mask, evidence.counted) and bool(xp.any(evidence.counted & ~mask)):
        raise ValueError("`participating` must be the mask that `evidence` was gathered with, got another")
    return type(state)(*(xp.asarray(part, dtype=evidence.deviation.dtype) for part in state)), mask


def as_request(evidence: Evidence, request: Any) -> Array:
    """Return a request as an array of the evidence's library and type."""
    return namespace(evidence.deviation).asarray(request, dtype=evidence.deviation.dtype)


def _spread(evidence: Evidence, request: Any) -> Spread:
    """Return the spread of the round, by THEORY's one-pass identity: Σ_{i≠k} ‖X_i − m_{−k}‖² = SS − n/(n−1)·dev_k."""
    xp = namespace(evidence.deviation)
    counted = xp.astype(evidence.counted, evidence.deviation.dtype)
    count, squares = (xp.sum(x, axis=-1, keepdims=True) for x in (counted, evidence.deviation))
    of_others = squares - count / at_least_one(count - 1) * evidence.deviation
    of_others = xp.where(of_others > RESOLUTION * squares, of_others, RESOLUTION * squares)
    return Spread(as_request(evidence, request), count, squares, count - counted - 1, of_others)


def _variance_of_others(spread: Spread) -> Array:
    """Return σ̂²₋ₖ = ν/(|P∖k| − 1) · Σ_{i∈P∖k} ‖X_i − m_{−k}‖² (the paper's equation 10)."""
    return spread.request * spread.squares_of_others / at_least_one(spread.freedom_of_others)


def statuses(evidence: Evidence, participating: Array, least_participants: int, variance: Array) -> Array:
    """Return the status of every agent; the first reason not to pay is the one given."""
    xp = namespace(evidence.deviation)
    count = xp.sum(xp.astype(evidence.counted, xp.int32), axis=-1, keepdims=True)
    status = xp.where(variance > 0, Status.PAID.value, Status.NO_VARIANCE.value)
    status = xp.where(count < least_participants, Status.TOO_FEW.value, status)
    status = xp.where((count < 2) & (least_participants > 1), Status.ALONE.value, status)
    status = xp.where(evidence.counted, status, Status.INVALID.value)
    return xp.where(participating, status, Status.DECLINED.value)


def at_least_one(count: Array) -> Array:
    """Return a count to divide by: where it is below 1 the quotient is masked away, but must exist."""
    return namespace(count).where(count > 1, count, 1.0)
