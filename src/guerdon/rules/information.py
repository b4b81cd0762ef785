"""Information pay: a reward for what a report adds to what everybody knows already (THEORY §9).

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

**Trust.** A false report also changes what the others are paid, because they are compared with it. So every agent's
score is tested against the others' round by round (`guerdon.bets`). An agent under suspicion is still scored, but is no
longer used to score others. Nor is a newcomer, until it has had `probation` rounds of its own, or nearly half as many
as the agent with the most. Who joined after the first rounds of a run must also be *cleared*: of late its reports agree
with those that score others, by three standard errors. Else a name that is thrown away before it is doubted could raise
a partner's pay, or lower everybody's. All look at earlier rounds only, so honest pay stays exact.

A round in which the reports differ by less than a millionth of their squared length has no scale, and pays nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, at_least_one, check_number, check_positive_integer, is_array, namespace
from guerdon.bets import (
    BETS,
    LEAST,
    PEERS,
    TESTS,
    against_agents,
    agent_scores,
    bet,
    least_doubted,
    most_of,
    trusted_agents,
)
from guerdon.costs import Cost
from guerdon.evidence import Evidence
from guerdon.rules.mechanism import (
    RESOLUTION,
    Mechanism,
    Payments,
    Status,
    as_request,
    check_round,
    check_whole,
    statuses,
)

CAREFUL = 0.8  # times the estimate of a: too large a one pays for reports that shrink
SOUND = 1 / 3  # of the noise scale, that the request must be for the score to be a price
GRACE = 5  # rounds that an agent may have fewer than half of another's, and not be a newcomer
RECENT = 0.9  # weight of a round in whether a newcomer is cleared, relative to the next
CLEAR = 3.0  # standard errors that a newcomer's reports must agree by
PROBATION = 20  # rounds of its own, before which an agent is not used to score others
WAIT = 10  # rounds, before which the rule says nothing of itself
NOT_SOUND = (
    "the noise scale is more than three times the request, so that information pay is no sound price here: it is "
    "mostly noise, and an agent that knows the gradient from old samples, or shares noise in secret, earns more than "
    "honest work. Pay by SteadyPay, ask for more samples, or take a longer dither. Where that does not help, gradients "
    "here are predictable: stop paying for them"
)


class InformationState(NamedTuple):
    """What earlier rounds said, per agent without its own reports, and the bets against it."""

    signal: Array  # decayed sum of g²/σ²: unlike g² itself, it changes little while a training converges
    weight: Array  # and of rounds
    wealth: Array  # (bets, tests, agents): logarithm of what each bet against an agent has become
    tenure: Array  # rounds that its report was counted in
    founder: Array  # 1 where it was there before anybody could be a newcomer
    agreed: Array  # decayed sum of the cosine of its report with the others' mean
    agreed_squares: Array


class InformationScores(NamedTuple):
    """A round in the terms of the rule: per agent, and among the others."""

    agreement: Array  # ⟨v_k, w_k⟩
    length: Array  # ‖v_k‖²
    signal_of_others: Array  # g², as the others have it
    length_of_others: Array  # their mean ‖v‖²
    others: Array  # how many they are

    @property
    def cosine(self) -> Array:
        """cos(v_k, w_k); 0 where one of them is nothing."""
        xp, others = namespace(self.length), at_least_one(self.others)
        square = self.length * ((others - 1) * self.signal_of_others + self.length_of_others) / others
        return xp.where(square > 0, self.agreement / xp.sqrt(xp.where(square > 0, square, 1.0)), 0.0)


@dataclass(frozen=True)
class InformationPay(Mechanism):
    """Pay each agent for what its report adds to the public prediction that the evidence was gathered around.

    `decay` is the weight of a round in the estimate of a, relative to the round after it. With `pooled` there is one
    estimate for all, a little smaller than it could be: pay is quieter, and a newcomer begins with what the run knows
    (then let `decay` be 0.9). Else each agent has its own, without its own reports. `least` is the
    smallest a that is used: the smaller, the noisier the pay of rounds with little to learn, and the less a report that
    shrinks towards the prediction can gain there. Where the evidence against an agent exceeds `doubt` to one, others
    are no longer compared with it; infinity trusts every agent. Nor are they with a newcomer before it has had
    `probation` rounds and its reports were cleared; 0 trusts newcomers. Reports longer than `limit` times the median
    length of the others' (around the prediction) are to be shortened to that before evidence is gathered, see
    `guerdon.evidence.shortening`.

    >>> import numpy as np
    >>> from guerdon import AffineCost, gather
    >>> rule = InformationPay(AffineCost(1, 1))
    >>> everybody = np.array([True, True, True])
    >>> reports = np.array([[2.0, 0.0], [3.0, 1.0], [0.0, 0.0]])
    >>> evidence = gather(reports, everybody, prediction=np.array([0.0, 0.0]))
    >>> payments, state = rule.pay(rule.init(3), evidence, everybody, request=8)
    >>> payments.reward.round(2)
    array([ 54.,  27., -54.])
    """

    cost: Cost
    decay: float = 0.7
    least: float = 0.005
    doubt: float = 10.0
    limit: float = 3.0
    pooled: bool = False
    probation: int = PROBATION

    wants_prediction = compares_pairs = remembers = keeps_bets = True
    rule_name, version, formula = "information", 1, "I − J"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("decay", self.decay), ("least", self.least)):
            check_number(name, value, minimum=0, inclusive=name == "decay")
            if value > 1:
                raise ValueError(f"`{name}` must be at most 1, got {value!r}")
        for name, value in (("doubt", self.doubt), ("limit", self.limit)):
            if value != float("inf"):
                check_number(name, value, minimum=1)
        if self.probation:
            check_whole(self, "probation")

    def init(self, num_agents: int) -> InformationState:
        """Return the state before the first round: nothing is known, everybody is trusted."""
        check_positive_integer("num_agents", num_agents)
        empty = InformationState(*(np.zeros(num_agents) for _ in InformationState._fields))
        return empty._replace(wealth=np.zeros((len(BETS), len(TESTS), num_agents)))

    def reference(self, state: InformationState, counted: Array) -> Array:
        """Tell which agents this round's participants are compared with: gather the evidence with this.

        `counted` are those that `guerdon.evidence.multiply` counted, copies left out. Where fewer than three of them
        are trusted, or no more than half, all are: a few that agree must not drive out the rest. Newcomers are left out
        where three others are there, and those that are not cleared where most others are.
        """
        xp = namespace(counted)
        enough = xp.clip(_half_of_longest(state, counted), 0.0, float(self.probation))
        known = counted & (xp.asarray(state.tenure) >= enough)
        many = xp.sum(xp.astype(known, xp.int32)) >= LEAST
        known = xp.where(many, known, counted)
        known = most_of(_cleared(state, counted) | (enough <= 0), known)
        return trusted_agents(state.wealth, known, self.doubt)

    def suspicion(self, state: InformationState) -> Array:
        """Return the logarithm of the evidence against each agent."""
        return against_agents(state.wealth)

    def shrinkage(self, state: InformationState, request: Any) -> Array:
        """Return ã as earlier rounds have it, per agent; 1 before the first."""
        xp = namespace(state.signal)
        ratio, known = self._ratio(state)
        return xp.where(known, self._shrunk(ratio, request), 1.0)

    def warning(self, state: InformationState, request: Any) -> str:
        """Return that the rule is not sound here, where that is so: the noise scale is far above the request."""
        xp = namespace(state.signal)
        signal, weight = float(xp.sum(state.signal)), float(xp.max(state.weight))
        rounds = (1 - self.decay**WAIT) / (1 - self.decay) if self.decay < 1 else float(WAIT)
        if weight < rounds:
            return ""
        told = float(request) * signal / float(xp.sum(state.weight))  # ν/B
        return NOT_SOUND if told < SOUND else ""

    def settings(self) -> dict[str, Any]:
        """Return all but the cost; 3 and 3.0 are the same text."""
        found = super().settings()
        numbers = {name: x if isinstance(x, str) else float(x) for name, x in found.items()}
        return numbers | {"pooled": bool(found["pooled"]), "probation": int(found["probation"])}

    def words(self) -> str:
        """Return what the rule is, in words."""
        return f"information pay, decay {self.decay:g}"

    def why(self, distance: float, expected: float) -> str:
        """Return in words how much the report told."""
        more = expected - distance
        side = "more" if more >= 0 else "less"
        return f"its report told {abs(more):.4g} {side} about the gradient than the others' did"

    def bracket(self, distance: float, expected: float) -> tuple[float, float]:
        """Return the agent's score I and the others' J, both divided by a²."""
        return -distance, -expected

    def reasons(self) -> Mapping[Status, str]:
        """Return why an agent gets nothing, where that has to do with what is told."""
        return {
            Status.TOO_FEW: "fewer than two others sent something to compare its report with",
            Status.NO_VARIANCE: "all reports were identical, so what they told has no scale",
        }

    def largest_distance(self, payments: Payments, length: Array) -> Array:
        """Return how large the parts of D and E are together.

        D = ‖v‖² − (2/a)⟨v, w⟩, and E is the same for the others: both may be negative, or small where their parts are
        not. No part of D is larger than `|D| + ‖v‖²`.
        """
        xp = namespace(length)
        return super().largest_distance(payments, length) + 2 * (length + xp.max(length, axis=-1, keepdims=True))

    def pay(
        self, state: InformationState, evidence: Evidence, participating: Array, request: Any
    ) -> tuple[Payments, InformationState]:
        """Return the payments of a round, and the state with this round remembered.

        The evidence must have been gathered around the prediction, with `reference(state, counted)`.
        """
        state, mask = check_round(state, evidence, participating, request, InformationState)
        xp = namespace(evidence.length)
        nu = as_request(evidence, request)
        trusted = self.reference(state, evidence.counted)
        scores = information_scores(evidence, trusted)
        variance, shrinkage = self._terms(state, scores, nu)
        status = statuses(evidence, mask, LEAST, variance)
        status = xp.where((status == Status.PAID.value) & (scores.others < 2), Status.TOO_FEW.value, status)
        paid = status == Status.PAID.value

        distance = scores.length - 2 / shrinkage * scores.agreement
        expected = scores.length_of_others - 2 / shrinkage * scores.signal_of_others
        scale = xp.where(paid, variance, 1.0)
        reward = self.cost(nu) + self.cost.slope(nu) * nu**2 / scale * (expected - distance)
        shown = [xp.where(paid, x, xp.nan) for x in (distance, expected, variance)]
        after = self._remember(state, scores, evidence.counted, trusted, shrinkage, nu)
        return Payments(xp.where(paid, reward, 0.0), *shown, status=status), after

    def _terms(self, state: InformationState, scores: InformationScores, nu: Array) -> tuple[Array, Array]:
        """Return σ² as all have it in this round, and a as earlier rounds had it without k.

        All are the trusted and k itself, so that where k is honest no agent among them is special. In the first round a
        too is from all.
        """
        xp = namespace(scores.length)
        others = scores.others
        signal = ((others - 1) * scores.signal_of_others + 2 * scores.agreement) / (others + 1)
        length = (others * scores.length_of_others + scores.length) / (others + 1)
        variance = nu * _resolved(length - signal, length)
        now = signal / xp.where(variance > 0, variance, 1.0)
        ratio, known = self._ratio(state)
        return variance, self._shrunk(xp.where(known, ratio, now), nu)

    def _ratio(self, state: InformationState) -> tuple[Array, Array]:
        """Return g²/σ² as earlier rounds have it, and whether there were any."""
        xp, past, weight = namespace(state.signal), state.signal, state.weight
        if self.pooled:
            past, weight = xp.sum(past) + 0 * past, xp.sum(weight) + 0 * weight
        known = weight > 0
        return xp.where(known, past / xp.where(known, weight, 1.0), 0.0), known

    def _shrunk(self, ratio: Array, nu: Any) -> Array:
        """Return a at a ratio g²/σ²."""
        xp = namespace(ratio)
        told = nu * xp.where(ratio > 0, ratio, 0.0)
        careful = CAREFUL if self.pooled else 1.0
        return xp.clip(careful * told / (told + 1), self.least, 1.0)

    def _remember(
        self,
        state: InformationState,
        scores: InformationScores,
        counted: Array,
        trusted: Array,
        shrinkage: Array,
        nu: Array,
    ) -> InformationState:
        """Return the state with this round added; a round of fewer than two others says nothing."""
        xp = namespace(scores.length)
        noise = _resolved(scores.length_of_others - scores.signal_of_others, scores.length_of_others)
        informative = (scores.others > 1) & (noise > 0)
        ratio = scores.signal_of_others / (nu * xp.where(informative, noise, 1.0))
        signal = xp.where(informative, self.decay * state.signal + ratio, state.signal)
        weight = xp.where(informative, self.decay * state.weight + 1, state.weight)
        # One shrinkage for all, so that nobody's score differs from another's but by what was sent.
        people = xp.astype(counted, scores.length.dtype)
        common = xp.sum(people * shrinkage) / at_least_one(xp.sum(people))
        score = 2 * common * scores.agreement - common**2 * scores.length
        # Even a rule that trusts every agent ranks none among those that the bets doubt.
        peers = least_doubted(state.wealth, trusted, min(self.doubt, PEERS))
        wealth = bet(state.wealth, agent_scores(score, scores.length, counted, peers))
        founder = xp.where(counted & (_half_of_longest(state, counted) <= 0), 1.0, state.founder)
        seen = xp.astype(counted & informative, scores.length.dtype)
        agreed, kept = seen * scores.cosine, 1 - (1 - RECENT) * seen
        return InformationState(
            signal, weight, wealth, state.tenure + people, founder,
            kept * state.agreed + agreed, kept**2 * state.agreed_squares + agreed**2,
        )  # fmt: skip


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


class PredictionError(NamedTuple):
    """What a round's reports say of ‖m − p‖² and σ², without bias, and whether there were two to say anything."""

    signal: Array
    variance: Array
    enough: Array


def prediction_error(evidence: Evidence, reference: Array, request: Any) -> PredictionError:
    """Return how far the gradient is from its prediction, from evidence gathered around it with `reference`."""
    xp = namespace(evidence.length)
    own = xp.astype(reference & evidence.counted, evidence.length.dtype)
    count = xp.sum(own)
    enough = count > 1
    signal = xp.sum(own * (evidence.alignment - evidence.length)) / xp.where(enough, count * (count - 1), 1.0)
    length = xp.sum(own * evidence.length) / xp.where(enough, count, 1.0)
    nu = as_request(evidence, request)
    return PredictionError(xp.where(enough, signal, 0.0), xp.where(enough, nu * (length - signal), 0.0), enough)


def information_scores(evidence: Evidence, trusted: Array) -> InformationScores:
    """Return the round's scores, from lengths and alignments with the trusted participants alone."""
    xp = namespace(evidence.length)
    own = xp.astype(trusted, evidence.length.dtype)
    count = xp.sum(own)
    others = count - own
    cross = evidence.alignment - own * evidence.length  # ⟨v_k, sum of the other trusted v⟩
    pairs = at_least_one(others * (others - 1))
    signal = (xp.sum(own * cross) - 2 * own * cross) / pairs
    length = (xp.sum(own * evidence.length) - own * evidence.length) / at_least_one(others)
    return InformationScores(cross / at_least_one(others), evidence.length, signal, length, others)


def _half_of_longest(state: InformationState, counted: Array) -> Array:
    """Return nearly half the rounds of the agent with the most: who has had fewer is a newcomer."""
    xp = namespace(counted)
    return xp.max(xp.where(counted, xp.asarray(state.tenure), 0.0)) / 2 - GRACE


def _cleared(state: InformationState, counted: Array) -> Array:
    """Tell who may score others at all: founders, and newcomers whose reports tell of the surprise, beyond doubt."""
    xp = namespace(counted)
    founder, agreed, squares = (xp.asarray(x) for x in (state.founder, state.agreed, state.agreed_squares))
    return (founder > 0) | (agreed > CLEAR * xp.sqrt(squares))


def _resolved(noise: Array, length: Array) -> Array:
    """Return noise that is a difference of lengths; 0 where it is too small a part of them to be told from rounding."""
    return namespace(noise).where(noise > RESOLUTION * length, noise, 0.0)
