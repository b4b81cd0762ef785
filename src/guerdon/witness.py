"""Witnessed pay: the server has some data of its own, so it has a reference and a level that nobody can move.

Each round the server computes the gradient m_w of W samples of its own, and σ̂² from how its minibatches differ:

    R_k = h(ν) + h'(ν) · ν²/V · (E − D_k)       D_k = ‖X_k − m_w‖²,  E = σ̂² · (1/ν + 1/W)

V is σ² as the σ̂² of *earlier* rounds have it (`guerdon.scale`). So E[E − D_k] = σ²·(1/ν − 1/S_k), whatever is
known of V before the round: the theorem of `guerdon.agreement` holds, and nobody's pay depends on other members.
If everybody uses half, everybody loses, and a majority cannot outvote the truth. With σ̂² of the round itself in the
denominator honest members were paid −26.6 of 17 on a survey with 1 % of positives. As in the paper, members choose how
many samples they use, not what they send. A member whose data differ from the witness's pays for it.

What a member loses is nobody's gain, and a report that is far out harms its sender alone, so distances are not cut. In
the evidence of a round `squared_length` is D_k and `pair_distance` is E.
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from guerdon.agreement import far_or_near
from guerdon.arrays import Array, at_least_one, check_positive_integer, is_array, namespace, over_layers
from guerdon.costs import Cost
from guerdon.evidence import Evidence, gather
from guerdon.reports import squared_lengths_around
from guerdon.rule import Need, Payments, Round, Rule, as_request, check_round, check_whole, statuses
from guerdon.scale import TINY, Estimate, ScaleState
from guerdon.settling import Measured, ScaledState, first_state, pay_on_scale
from guerdon.words import About, told_by

__all__ = [
    "WitnessSample",
    "WitnessedPay",
    "stack_minibatches",
    "witness_sample",
    "witness_samples",
]


class WitnessSample(NamedTuple):
    """What so many samples of the server's own say in a round: their mean gradient, and the variance σ² of one."""

    gradient: Any
    variance: Array
    samples: int


def witness_sample(minibatches: Any, size: int) -> WitnessSample:
    """Return what independent minibatches of `size` samples each say: an array (minibatches, …), or one per layer.

    >>> import numpy as np
    >>> witness = witness_sample(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0]]), size=8)
    >>> witness.gradient.tolist(), float(witness.variance), witness.samples
    ([2.0, 1.0], 32.0, 24)
    """
    check_positive_integer("size", size)
    count = (minibatches if is_array(minibatches) else minibatches[0]).shape[0]
    if count < 2:
        raise ValueError(f"`minibatches` must be at least two, so that their spread shows σ², got {count}")
    mean = over_layers(lambda part: namespace(part).mean(part, axis=0), minibatches)
    square = over_layers(lambda part, middle: namespace(part).sum((part - middle) ** 2), minibatches, mean)
    total: Any = square if is_array(square) else sum(square)
    return WitnessSample(mean, size * total / (count - 1), count * size)


def stack_minibatches(minibatches: Sequence[Any]) -> Any:
    """Return gradients of minibatches, arrays or lists of layers, as `witness_sample` takes them."""
    if is_array(minibatches[0]):
        return namespace(minibatches[0]).stack(list(minibatches))
    return [namespace(parts[0]).stack(list(parts)) for parts in zip(*minibatches, strict=True)]


def evidence_around_witness(reports: Any, sent: Array, witness: WitnessSample, request: Any) -> Evidence:
    """Return the evidence of a round around the witness's gradient, with E in the place of the pair distance."""
    evidence = gather(reports, sent, witness.gradient)
    xp, nu = namespace(evidence.squared_length), as_request(evidence, request)
    # One by one, not around the members' mean: an enormous report must cost the others no digits.
    length = xp.where(evidence.counted, squared_lengths_around(reports, evidence.counted, witness.gradient), 0.0)
    expected = xp.asarray(witness.variance, dtype=evidence.squared_length.dtype) * (1 / nu + 1 / witness.samples)
    return evidence._replace(squared_length=length, pair_distance=xp.where(evidence.counted, expected, 0.0))


def witness_samples(rule: Rule) -> int:
    """Return how many samples of the server's own a rule needs in every round; 0: none."""
    return rule.samples if Need.WITNESS in rule.needs else 0  # pyright: ignore[reportAttributeAccessIssue]


class _AboutWitnessed(About):
    """Pay by distances to the server's own gradient."""

    formula = "E − D"

    def words(self, rule: Any) -> str:
        return f"witnessed pay, {rule.samples} samples of the server's own"

    def why(self, rule: Any, distance: float, expected: float) -> str:
        del rule
        return far_or_near(distance, expected).replace("the others", "the server's own gradient")


@told_by(_AboutWitnessed())
@dataclass(frozen=True)
class WitnessedPay(Rule):
    """Pay each agent by its distance to the gradient of `samples` samples of the server's own.

    >>> import numpy as np
    >>> from guerdon import AffineCost, round_of
    >>> from guerdon.settling import with_scale
    >>> rule, everybody = WitnessedPay(AffineCost(1, 1), samples=64), np.array([True, True])
    >>> witness = WitnessSample(np.array([0.0, 0.0]), np.array(16.0), samples=64)
    >>> evidence = evidence_around_witness(np.array([[1.0, 1.0], [2.0, 2.0]]), everybody, witness, request=8)
    >>> rule.pay(with_scale(rule.init(2), 16.0), round_of(evidence, everybody, request=8))[0].released.round(6)
    array([ 10., -14.])
    """

    cost: Cost
    samples: int = 256

    name, version = "witnessed", 1
    needs = frozenset({Need.COSTS, Need.WITNESS, Need.ONE_STEP})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "samples")

    def init(self, num_agents: int) -> ScaledState:
        return first_state(num_agents)

    def pay(self, state: ScaledState, round: Round) -> tuple[Payments, ScaledState]:
        state, mask = check_round(state, round, ScaledState)
        evidence = round.evidence
        xp, nu = namespace(evidence.squared_length), as_request(evidence, round.request)
        expected = xp.max(evidence.pair_distance)
        level = expected / (1 / nu + 1 / self.samples)
        noise, batches = self._noise(state.scale, level, nu), at_least_one(self.samples / nu)
        level_estimate = Estimate(level, noise, batches, level > 0, 1 / TINY + 0 * level)  # nobody can move it
        status = statuses(evidence, mask, least_participants=1, variance=1 + 0 * evidence.squared_length)
        measured = Measured(
            evidence.squared_length,
            expected + 0 * evidence.squared_length,
            status,
            level_estimate,
            0 * level,
            xp.inf + level,
        )
        return pay_on_scale(self.cost, state, measured, nu, round.is_last)

    def _noise(self, past: ScaleState, level: Array, nu: Array) -> Array:
        """Return the relative variance of σ̂² in a round: from how its logarithm bends, which no steady trend does.

        No more than in one dimension, where σ̂² from b minibatches has b − 1 degrees of freedom.
        """
        xp = namespace(level)
        batches = self.samples / nu
        most = 2 / at_least_one(batches - 1)
        enough = (past.rounds >= 2) & (level > 0)
        last, before = (xp.where(enough, past.history[place], 1.0) for place in (0, 1))
        bend = xp.log(xp.where(enough, level, 1.0)) - 2 * xp.log(last) + xp.log(before)
        noise = bend**2 / 6  # of three independent logarithms
        return xp.where(enough & (noise < most), noise, most)
