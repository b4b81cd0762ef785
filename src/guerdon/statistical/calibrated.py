"""Calibrated agreement: output agreement among agents whose data are not equally noisy.

Where agents have data of their own, some gradients are noisier than others. Output agreement then pays agents with
quiet data too much, and agents with noisy data too little, however honestly they work. This rule learns how noisy each
agent is. It pays h(ν) flat in an agent's first rounds, its *calibration*. After that it compares an agent with its own
level, which stays as it is:

    R_k = h(ν) + h'(ν) · ν²/V_k · (E_k − D_k)      D_k = ‖X_k − mean of the others‖², as in output agreement
                                                  E_k = D_k as expected of noise r_k among the present r_i
                                                  V_k so that the slope in its own batch size is h'(ν) at S = ν

r_k = σ_k²/σ² is an agent's noise relative to the others'. With q = ‖X_k − m̄‖²/(the median of the others'), whose mean
is about ((n − 2)·r_k + 1)/(n − 1), every round of the calibration estimates it, up to a common factor. No round counts
for more than q = 4, so that one loud agent does not move the others' levels. What is used is drawn towards 1 (partial
pooling): r_k = 1 + w·(r̂_k − 1), w = τ²/(τ² + its variance), and no further than 2τ. τ is how much the *others* differ,
by the median distance to their median, noise taken out. So where all are alike, an agent that does less than the others
from the first day does not look like one with noisier data; where they differ much, it does. Reports cannot tell these
two apart: a calibration must be looked after by other means. For the same reason a single honest agent that stands out
is not believed. An agent that does less after its calibration loses, as under output agreement.

Where all are alike, this is output agreement with balanced variance, and pays n·h(ν) in all.

**Requests of their own.** With `vary` = δ the server asks each agent for ν(1 + δ) samples in one of two rounds and for
ν(1 − δ) in the other, and pays for what that agent was asked for. So it sees what work does to noise here, in every
round and without a model: noise ∝ S^−γ, and γ = 1 for independent samples. Each agent is paid by γ as the *others* show
it (the median of theirs), which sets E_k and the slope for its own request: what an agent does with its own requests
changes nothing for itself. Where γ is below `LEAST_EFFECT` more work does not bring reports closer together, as with
models that nodes train in local steps. Then this rule cannot pay for work: it pays the cost flat, and says so.
In the record ν is the request of the round, and E_k the distance that h(ν) is paid at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from guerdon.agreement import far_or_near
from guerdon.arrays import Array, at_least_one, check_number, check_positive_integer, namespace
from guerdon.costs import Cost
from guerdon.evidence import Evidence
from guerdon.gram import median_of, median_of_others
from guerdon.rule import Need, Notice, Payments, Round, Rule, Status, as_request, check_round, check_whole, statuses
from guerdon.words import About, told_by

UNSETTLED = 0.1  # share of a calibration, at its start, that does not count: offsets are not yet known
LEAST_LEVEL = 0.2  # the lowest level r of an agent, relative to the others
LOUDEST = 4.0  # a round counts for no more than so many times the others' median deviation
FROM_MEDIAN = 1.4826  # the standard deviation of normal values is so many times their median distance
FEWEST = 3  # agents needed for a level; others needed for the spread of their levels
LEAST_EFFECT = 0.25  # the least γ for which distances can be paid; 1 for independent samples
MOST_EFFECT = 3.0
MOST_VARIED = 0.5
MEMORY = 0.99  # weight of a round in γ, relative to the agent's next
ENOUGH = 5.0  # decayed rounds with a larger request, and with a smaller one, that an estimate of γ needs
NO_EFFECT = "more samples do not bring reports closer together here, so distances cannot be paid: pay is flat"


class CalibrationState(NamedTuple):
    """Per agent: the rounds it took part in, and of those of its calibration that count the number, Σr̂ and Σr̂².

    Then, with agents along the last axis, of rounds that asked it for less (first) and for more than ν: decayed number,
    Σr̂, and Σ ln(request/ν).
    """

    rounds: Array
    count: Array
    total: Array
    squares: Array
    asked: Array
    noise: Array
    work: Array


class _AboutCalibrated(About):
    """Pay by distances, relative to each agent's own level."""

    formula = "E − D"

    def words(self, rule: Any) -> str:
        varied = f", requests vary by {rule.vary:.0%}" if rule.vary else ""
        return f"calibrated agreement, flat pay for {rule.calibration} rounds{varied}"

    def why(self, rule: Any, distance: float, expected: float) -> str:
        del rule
        return far_or_near(distance, expected)

    def reasons(self) -> Mapping[Status, str]:
        return {Status.TOO_FEW: "fewer than two others took part, which does not tell how much gradients vary"}

    def advice(self, rule: Any, state: Any, request: Any) -> str:
        """Return a warning where more samples hardly lower the noise of some agent's reports; else nothing."""
        del request
        effect = rule.effects(state)
        return NO_EFFECT if bool(namespace(effect).any(effect < LEAST_EFFECT)) else ""


@told_by(_AboutCalibrated())
@dataclass(frozen=True)
class CalibratedAgreement(Rule):
    """Pay h(ν) flat for `calibration` rounds, then by the distance to the others, relative to the agent's own level.

    It pays R_k = h(ν) + h'(ν)·ν²/V_k·(E_k − D_k), as this module's header has it.

    - `cost`: h and its slope, in units of money.
    - `calibration`: rounds of an agent that are paid flat, while its level is measured.
    - `vary`: share of the request by which agents are asked for more or less, from round to round; `Ask.notice.own` has
      the numbers. 0: all are asked for ν.

    >>> import numpy as np
    >>> from guerdon import AffineCost, gather, round_of
    >>> rule, everybody = CalibratedAgreement(AffineCost(1, 1), calibration=1), np.array([True, True, True])
    >>> evidence = gather(np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]]), everybody)
    >>> first, state = rule.pay(rule.init(3), round_of(evidence, everybody, request=8))
    >>> first.released
    array([9., 9., 9.])
    >>> rule.pay(state, round_of(evidence, everybody, request=8))[0].released
    array([15., 15., -3.])
    """

    cost: Cost
    calibration: int = 100
    vary: float = 0.0

    name, version = "calibrated", 1
    needs = frozenset({Need.COSTS, Need.OTHERS, Need.ONE_STEP})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "calibration")
        check_number("vary", self.vary, minimum=0)
        if self.vary > MOST_VARIED:
            raise ValueError(f"`vary` must be at most {MOST_VARIED:g}, got {self.vary!r}")

    def init(self, num_agents: int) -> CalibrationState:
        check_positive_integer("num_agents", num_agents)
        one, two = np.zeros(num_agents), np.zeros((2, num_agents))
        return CalibrationState(one, one, one, one, two, two, two)

    def notice(self, state: CalibrationState, request: Any) -> Notice:
        return Notice(own=self.own_requests(state, request))

    def own_requests(self, state: CalibrationState, request: Any) -> Array | None:
        """Return how many samples each agent is asked for: `request` in its first round, then less and more in turn.

        Of every two rounds one asks for more. The agent's number decides which, so that agents do not go in step. The
        request must leave room for both: `vary` times the request is at least half a sample.
        """
        if not self.vary:
            return None
        xp = namespace(state.rounds)
        turn, number = xp.astype(state.rounds, xp.int32) - 1, xp.arange(state.rounds.shape[0], dtype=xp.int32) + 1
        more = (turn + _parity(number & (turn // 2 + 1))) % 2 == 1
        nu = xp.asarray(request, dtype=state.rounds.dtype)
        few, many = (xp.floor(nu * share + 0.5) for share in (1 - self.vary, 1 + self.vary))
        varied = xp.where(more, many, xp.where(few > 1, few, 1.0))
        return xp.astype(xp.where(turn < 0, nu, varied), xp.int32)

    def pay(self, state: CalibrationState, round: Round) -> tuple[Payments, CalibrationState]:
        state, mask = check_round(state, round, CalibrationState)
        evidence, request = round.evidence, round.request
        xp, nu = namespace(evidence.squared_deviation), as_request(evidence, request)
        counted = xp.astype(evidence.counted, evidence.squared_deviation.dtype)
        number, squares = xp.sum(counted), xp.sum(evidence.squared_deviation)
        status = statuses(evidence, mask, FEWEST, squares + 0 * evidence.squared_deviation)
        calibrating = state.rounds < self.calibration
        flat = calibrating & evidence.counted
        status = xp.where(flat, Status.PAID.value, status)

        requests = self.own_requests(state, request)
        asked = nu + 0 * evidence.squared_deviation if requests is None else xp.astype(requests, nu.dtype)
        effect = self.effects(state)
        flat = flat | ((status == Status.PAID.value) & ~(effect >= LEAST_EFFECT))
        paid = (status == Status.PAID.value) & ~flat
        effect = xp.where(paid, effect, 1.0)
        level = _relative(self.levels(state) * (asked / nu) ** -effect, evidence.counted)
        share = ((number - 2) * level + 1) / at_least_one(number - 1)  # of the mean deviation, expected of this agent
        scale = (number / at_least_one(number - 1)) ** 2
        distance, expected = scale * evidence.squared_deviation, scale * share * squares / at_least_one(number)
        variance = nu * squares * level * (number - 1 - share) / at_least_one(number - 1) ** 2
        variance = variance * effect * self.cost.slope(nu) * nu / (self.cost.slope(asked) * asked)
        per_distance = self.cost.slope(nu) * nu**2 / xp.where(paid, variance, 1.0)
        extra = self.cost(asked) - self.cost(nu)
        expected = xp.where(paid, expected + extra / per_distance, expected)
        reward = xp.where(
            paid, self.cost(nu) + per_distance * (expected - distance), xp.where(flat, self.cost(asked), 0.0)
        )
        shown = [xp.where(paid, x, xp.nan) for x in (distance, expected, variance)]
        return Payments(reward, reward, *shown, status=status), self._remember(
            state, evidence, number, squares, xp.log(asked / nu)
        )

    def levels(self, state: CalibrationState) -> Array:
        """Return every agent's noise relative to the others', as its calibration has it so far."""
        xp = namespace(state.count)
        calibrated = state.count > 1
        count = at_least_one(state.count)
        raw = xp.where(calibrated, state.total / count, 0.0)
        within = xp.where(calibrated, state.squares - count * raw**2, 0.0)
        freedom = xp.sum(xp.where(calibrated, state.count - 1, 0.0))
        middle = median_of(raw, calibrated)
        unit = xp.where(middle > 0, middle, 1.0)
        mean = xp.where(calibrated, raw / unit, 1.0)
        error = xp.sum(within) / at_least_one(freedom) / count / unit**2  # variance of each mean
        spread = _spread_of_others(mean, error, calibrated)
        level = 1 + spread / xp.where(spread + error > 0, spread + error, 1.0) * (mean - 1)
        furthest = 2 * xp.sqrt(spread)
        level = xp.clip(level, 1 - furthest, 1 + furthest)
        return xp.where(calibrated, xp.where(level > LEAST_LEVEL, level, LEAST_LEVEL), 1.0)

    def effects(self, state: CalibrationState) -> Array:
        """Return γ for every agent: how fast noise falls with work, as the others show it; NaN until they do.

        1 where requests do not vary.
        """
        xp = namespace(state.asked)
        measured = (state.asked > ENOUGH) & (state.noise > 0)
        both = measured[0] & measured[1]
        number = xp.where(state.asked > 0, state.asked, 1.0)
        noise, work = xp.where(both, state.noise / number, 1.0), xp.where(both, state.work / number, 1.0)
        apart = work[1] - work[0]
        exponent = xp.log(noise[0] / noise[1]) / xp.where(both, apart, 1.0)
        effect, _ = median_of_others(exponent, both)
        others = xp.sum(xp.astype(both, xp.int32)) - xp.astype(both, xp.int32)
        unknown = xp.nan if self.vary else 1.0
        return xp.where(others >= FEWEST - 1, xp.where(effect < MOST_EFFECT, effect, MOST_EFFECT), unknown)

    def _remember(
        self, state: CalibrationState, evidence: Evidence, number: Array, squares: Array, work: Array
    ) -> CalibrationState:
        """Return the state with this round added, in which each agent was asked for e^work times the request."""
        xp = namespace(evidence.squared_deviation)
        usable = evidence.counted & (number >= FEWEST) & (squares > 0)
        settled = usable & (state.rounds >= np.floor(UNSETTLED * self.calibration))
        counts = settled & (state.rounds < self.calibration)
        median, _ = median_of_others(evidence.squared_deviation, evidence.counted)
        ratio = evidence.squared_deviation / xp.where(median > 0, median, 1.0)
        level = ((number - 1) * xp.where(ratio < LOUDEST, ratio, LOUDEST) - 1) / at_least_one(number - 2)
        level = xp.where(usable, level, 0.0)
        one = xp.astype(counts, level.dtype)
        varied = settled & (work != 0)
        turn = xp.astype(xp.stack([varied & (work < 0), varied & (work > 0)]), level.dtype)
        kept = xp.where(varied, MEMORY, 1.0)
        return CalibrationState(
            state.rounds + xp.astype(usable, level.dtype),
            state.count + one,
            state.total + one * level,
            state.squares + one * level**2,
            kept * state.asked + turn,
            kept * state.noise + turn * level,
            kept * state.work + turn * work,
        )


def _spread_of_others(mean: Array, error: Array, calibrated: Array) -> Array:
    """Return, per agent, the variance of the others' levels, noise taken out; 0 where fewer than three are known."""
    xp = namespace(mean)
    others = calibrated[None, :] & ~xp.eye(mean.shape[0], dtype=xp.bool)
    weight = xp.astype(others, mean.dtype)
    count = xp.sum(weight, axis=1)
    middle, _ = median_of_others(mean, calibrated)
    apart = xp.sort(xp.where(others, xp.abs(mean[None, :] - middle[:, None]), xp.inf), axis=1)
    place = (xp.sum(xp.astype(others, xp.int32), axis=1) - 1) // 2
    half = xp.sum(xp.where(xp.arange(mean.shape[0])[None, :] == place[:, None], apart, 0.0), axis=1)
    square = (FROM_MEDIAN * half) ** 2
    noise = xp.sum(weight * error[None, :], axis=1) / at_least_one(count)
    return xp.where((count >= FEWEST) & (square > noise), square - noise, 0.0)


def _parity(number: Array) -> Array:
    """Return whether the number of ones among the (at most 16) bits is odd."""
    for places in (8, 4, 2, 1):
        number = number ^ (number >> places)
    return number & 1


def _relative(level: Array, counted: Array) -> Array:
    """Return levels relative to the mean of those who take part."""
    xp = namespace(level)
    weight = xp.astype(counted, level.dtype)
    mean = xp.sum(weight * level) / at_least_one(xp.sum(weight))
    return level / xp.where(mean > 0, mean, 1.0)
