"""Information pay: a reward for what a report adds to what everybody knows already.

Agreement with the others is cheap to fake where their mean is predictable. So the server states a public prediction p
of the gradient, and pays for the improvement on it only. With v_k = X_k − p, w_k the mean of the other trusted
participants' v, g² = ‖m − p‖² and a = g²/(g² + σ²/ν), the shrunk report a·v_k improves on p by the score

    I_k = 2a⟨v_k, w_k⟩ − a²‖v_k‖²                          R_k = h(ν) + h'(ν) · ν²/(a²σ²) · (I_k − Ī₋ₖ)

where Ī₋ₖ is the same score as the others have it among themselves. At cooperation I_k and Ī₋ₖ have the same mean
whatever a is, so it may be an estimate: it is from earlier rounds, without k. For σ² any value will do that does not
depend on this round, or that is the same function of everybody's report: it is this round's estimate from all. So
honest pay is h(ν) exactly. Where a is right, the slope in its batch size is h'(ν) at S = ν; shrinking, scaling and
noise lose. A report made from public knowledge alone scores at most 0 if p is the best public prediction, and earns at
most h(ν) − ν·h'(ν)·(1 + ν/B), B = σ²/g²: less than nothing once B < `noise_scale_bound`, and never more than the fixed
part of the cost.

In the terms of `Payments`: distance D_k = ‖v_k‖² − (2/a)⟨v_k, w_k⟩, which is −I_k/a² and may be negative; E_k is the
same among the others; and R_k = h(ν) + h'(ν)·ν²/V_k·(E_k − D_k) as in every other rule.

Pay depends on the agents that a report is compared with, so not every agent is used for that: see
`guerdon.statistical.trust`.

A round in which the reports differ by less than a millionth of their squared length has no scale, and pays nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from guerdon.arrays import Array, check_number, check_positive_integer, is_array, namespace
from guerdon.costs import Cost
from guerdon.rule import Need, Payments, Round, Rule, Status, as_request, check_round, check_whole, statuses
from guerdon.statistical.bets import LEAST
from guerdon.statistical.signal import Signal, SignalState, information_scores
from guerdon.statistical.trust import PROBATION, Trust
from guerdon.words import About, told_by

SOUND = 1 / 3  # of the noise scale, that the request must be for the score to be a price
WAIT = 10  # rounds, before which the rule says nothing of itself
NOT_SOUND = (
    "the noise scale is more than three times the request, so that information pay is no sound price here: it is "
    "mostly noise, and an agent that knows the gradient from old samples, or shares noise in secret, earns more than "
    "honest work. Pay by SteadyPay, ask for more samples, or take a longer dither. Where that does not help, gradients "
    "here are predictable: stop paying for them"
)


class _AboutInformation(About):
    """Pay for what reports tell."""

    formula = "I − J"

    def words(self, rule: Any) -> str:
        return f"information pay, decay {rule.decay:g}"

    def why(self, rule: Any, distance: float, expected: float) -> str:
        del rule
        more = expected - distance
        side = "more" if more >= 0 else "less"
        return f"its report told {abs(more):.4g} {side} about the gradient than the others' did"

    def bracket(self, distance: float, expected: float) -> tuple[float, float]:
        """Return the agent's score I and the others' J, both divided by a²."""
        return -distance, -expected

    def reasons(self) -> Mapping[Status, str]:
        return {
            Status.TOO_FEW: "fewer than two others sent something to compare its report with",
            Status.NO_VARIANCE: "all reports were identical, so what they told has no scale",
        }

    def advice(self, rule: Any, state: Any, request: Any) -> str:
        """Return a warning where the noise scale is too far above the request for the rule; else nothing."""
        xp = namespace(state.signal)
        signal, weight = float(xp.sum(state.signal)), float(xp.max(state.weight))
        rounds = (1 - rule.decay**WAIT) / (1 - rule.decay) if rule.decay < 1 else float(WAIT)
        if weight < rounds:
            return ""
        ratio = float(request) * signal / float(xp.sum(state.weight))  # ν/B
        return NOT_SOUND if ratio < SOUND else ""

    def settings(self, rule: Any) -> dict[str, Any]:
        """Return all but the cost; 3 and 3.0 are the same text."""
        values = super().settings(rule)
        numbers = {name: x if isinstance(x, str) else float(x) for name, x in values.items()}
        return numbers | {"pooled": bool(values["pooled"]), "probation": int(values["probation"])}

    def largest_distance(self, payments: Payments, squared_length: Array) -> Array:
        """Return how large the parts of D and E are together.

        D = ‖v‖² − (2/a)⟨v, w⟩, and E is the same for the others: both may be negative, or small where their parts are
        not. No part of D is larger than `|D| + ‖v‖²`.
        """
        xp = namespace(squared_length)
        return super().largest_distance(payments, squared_length) + 2 * (
            squared_length + xp.max(squared_length, axis=-1, keepdims=True)
        )


@told_by(_AboutInformation())
@dataclass(frozen=True)
class InformationPay(Rule):
    """Pay each agent for what its report adds to the public prediction that the evidence was gathered around.

    R_k = h(ν) + h'(ν)·ν²/(a²σ²)·(I_k − Ī₋ₖ), as this module's header has it.

    - `cost`: h and its slope, in units of money.
    - `decay`: weight of a round in the estimate of a, relative to the round after it.
    - `least`: the smallest a that is used. The smaller, the noisier the pay of rounds with little to learn, and the
      less a report that shrinks towards the prediction can gain there.
    - `doubt`: others are not compared with an agent that the evidence doubts at these odds to one; infinity trusts
      every agent.
    - `limit`: reports longer than so many times the median length of the others' (around the prediction) are shortened
      to that before evidence is gathered (`guerdon.gram.shortening`).
    - `pooled`: one estimate of a for all, a little smaller than it could be: pay is quieter, and a newcomer begins with
      what the run knows (then let `decay` be 0.9). Otherwise each agent has its own, without its own reports.
    - `probation`: rounds of its own, and a clearing, before others are compared with a newcomer; 0 trusts newcomers.

    >>> import numpy as np
    >>> from guerdon import AffineCost, gather, round_of
    >>> rule = InformationPay(AffineCost(1, 1))
    >>> everybody = np.array([True, True, True])
    >>> reports = np.array([[2.0, 0.0], [3.0, 1.0], [0.0, 0.0]])
    >>> evidence = gather(reports, everybody, prediction=np.array([0.0, 0.0]))
    >>> payments, state = rule.pay(rule.init(3), round_of(evidence, everybody, request=8))
    >>> payments.released.round(2)
    array([ 54.,  27., -54.])
    """

    cost: Cost
    decay: float = 0.7
    least: float = 0.005
    doubt: float = 10.0
    limit: float = 3.0
    pooled: bool = False
    probation: int = PROBATION

    name, version = "information", 1
    needs = frozenset({Need.COSTS, Need.OTHERS, Need.PREDICTION})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit != float("inf"):
            check_number("limit", self.limit, minimum=1)
        if self.probation:
            check_whole(self, "probation")
        _ = self.trust  # which checks the rest

    @property
    def signal(self) -> Signal:
        """What remembers how much a round tells."""
        return Signal(self.decay, self.least, self.pooled)

    @property
    def trust(self) -> Trust:
        """What decides which agents the others are compared with."""
        return Trust(self.doubt, self.probation, self.signal)

    def init(self, num_agents: int) -> SignalState:
        """Return the state before the first round: nothing is known."""
        check_positive_integer("num_agents", num_agents)
        return self.signal.init(num_agents)

    def pay(self, state: SignalState, round: Round) -> tuple[Payments, SignalState]:
        """Return the payments of a round, and the state with this round remembered.

        The evidence must have been gathered around the prediction, with the `trusted` agents of the round.
        """
        state, mask = check_round(state, round, SignalState)
        evidence = round.evidence
        xp, nu = namespace(evidence.squared_length), as_request(evidence, round.request)
        scores = information_scores(evidence, round.trusted)
        variance, shrinkage = self.signal.variance_and_shrinkage(state, scores, nu)
        status = statuses(evidence, mask, LEAST, variance)
        status = xp.where((status == Status.PAID.value) & (scores.others < 2), Status.TOO_FEW.value, status)
        paid = status == Status.PAID.value

        distance = scores.squared_length - 2 / shrinkage * scores.agreement
        expected = scores.squared_length_of_others - 2 / shrinkage * scores.signal_of_others
        scale = xp.where(paid, variance, 1.0)
        reward = self.cost(nu) + self.cost.slope(nu) * nu**2 / scale * (expected - distance)
        shown = [xp.where(paid, x, xp.nan) for x in (distance, expected, variance)]
        reward = xp.where(paid, reward, 0.0)
        payments = Payments(reward, reward, *shown, status=status)
        return payments, self.signal.learn(state, scores, nu)


def noise_scale_bound(cost: Cost, request: Any) -> Any:
    """Return the noise scale B = σ²/‖m − p‖² below which public knowledge alone earns less than nothing.

    h(ν) < ν·h'(ν)·(1 + ν/B) at B < ν²h'(ν)/(h(ν) − νh'(ν)), which is c1·ν²/c0 for h = c0 + c1·s; infinite where the
    cost has no fixed part.

    >>> from guerdon import AffineCost
    >>> noise_scale_bound(AffineCost(1, 1), 16)
    256.0
    """
    xp = namespace(request)
    slope = cost.slope(request) * request
    fixed = xp.asarray(cost(request) - slope)
    positive = fixed > 1e-12 * slope
    bound = xp.where(positive, request * slope / xp.where(positive, fixed, 1.0), xp.inf)
    return bound if is_array(request) else float(bound)
