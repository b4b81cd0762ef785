"""Witnessed pay: the server has some data of its own, so it knows σ² and has a reference that nobody can move.

Each round the server computes the gradient m_w of W samples of its own, and σ² from how its minibatches differ:

    R_k = h(ν) + h'(ν) · ν²/σ² · (σ²/ν + σ²/W − ‖X_k − m_w‖²)

This is the paper's rule with known variance, and a witness in the place of the others: S = ν is everybody's best
response and honest pay equals honest cost (Theorem 1), whatever the others do. If everybody uses half, everybody loses,
and a majority cannot outvote the truth. As in the paper, agents choose how many samples they use, not what they send: a
report that is made without samples may lie closer to m than honest work does. An agent whose data differ from the
witness's pays for it.

Evidence is gathered around m_w and divided by σ², so that a recorded round can be paid again from it alone: length_k is
‖X_k − m_w‖²/σ².
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from guerdon.arrays import Array, check_positive_integer, is_array, namespace, over_layers
from guerdon.costs import Cost
from guerdon.evidence import Evidence, gather
from guerdon.rules.agreement import far_or_near
from guerdon.rules.mechanism import Mechanism, Payments, Status, as_request, check_round, check_whole, statuses
from guerdon.states import NoState


class WitnessSample(NamedTuple):
    """What so many samples of the server's own say in a round: their mean gradient, and the variance σ² of one."""

    gradient: Any
    variance: Array
    samples: int


def witness_sample(minibatches: Any, size: int) -> WitnessSample:
    """Return what independent minibatches of `size` samples each say: an array (minibatches, …), or one per layer.

    >>> import numpy as np
    >>> found = witness_sample(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0]]), size=8)
    >>> found.gradient.tolist(), float(found.variance), found.samples
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


def evidence_around_witness(reports: Any, sent: Array, witness: WitnessSample) -> Evidence:
    """Return the evidence of a round around the witness's gradient, in units of σ²."""
    found = gather(reports, sent, witness.gradient)
    xp = namespace(found.length)
    scale = 1 / xp.asarray(witness.variance, dtype=found.length.dtype)
    return Evidence(found.deviation * scale, found.length * scale, found.alignment * scale, found.counted)


@dataclass(frozen=True)
class WitnessedPay(Mechanism):
    """Pay each agent by its distance to the gradient of `samples` samples of the server's own.

    >>> import numpy as np
    >>> from guerdon import AffineCost, gather
    >>> rule, everybody = WitnessedPay(AffineCost(1, 1), samples=64), np.array([True, True])
    >>> witness = WitnessSample(np.array([0.0, 0.0]), np.array(16.0), samples=64)
    >>> evidence = evidence_around_witness(np.array([[1.0, 1.0], [2.0, 2.0]]), everybody, witness)
    >>> rule.pay(rule.init(2), evidence, everybody, request=8)[0].reward
    array([ 10., -14.])
    """

    cost: Cost
    samples: int = 256

    compares_agents, pays_short_moves = False, True
    rule_name, formula = "witnessed", "E − D"

    def __post_init__(self) -> None:
        check_whole(self, "samples")

    def pay(self, state: NoState, evidence: Evidence, participating: Array, request: Any) -> tuple[Payments, NoState]:
        state, mask = check_round(state, evidence, participating, request)
        xp, nu = namespace(evidence.length), as_request(evidence, request)
        one = 1 + 0 * evidence.length
        status = statuses(evidence, mask, least_participants=1, variance=one)
        paid = status == Status.PAID.value
        expected = (1 / nu + 1 / self.samples) * one
        reward = self.cost(nu) + self.cost.slope(nu) * nu**2 * (expected - evidence.length)
        shown = [xp.where(paid, x, xp.nan) for x in (evidence.length, expected, one)]
        return Payments(xp.where(paid, reward, 0.0), *shown, status=status), state

    def curve(self, size: Any, request: Any) -> Any:
        """Return h(ν) + h'(ν)·ν²·(1/ν − 1/s): what the paper's rule pays where the reference is exact."""
        return self.cost(request) + self.cost.slope(request) * request**2 * (1 / request - 1 / size)

    def words(self) -> str:
        return f"witnessed pay, {self.samples} samples of the server's own"

    def why(self, distance: float, expected: float) -> str:
        return far_or_near(distance, expected).replace("the others", "the server's own gradient")
