"""Steady pay: a quiet price, released as far as an agent's reports tell something.

A price and a test are two jobs. Output agreement is a quiet price for work, but a forged report earns as much as work.
Information pay sees forged reports, but as a price it is so noisy that a member cannot live on it, and that a newcomer
can hit and run. This rule uses each for what it is good at:

    earned    R_t = the price of output agreement, balanced variance among the trusted, no report counted as further out
                    than three times the usual; in all no more than the cost, Σ h(ν)
    told      ρ̂   = mean of ⟨v_k, w_k⟩/s_t  ÷  median of the same of the others
                                                            v_k = X_k − p, w_k the mean of the others' v

ρ̂ is how much of the surprise m − p an agent's reports have told, relative to what the others' told among themselves. It
is their median, so that a minority cannot set what the rest is measured by. s_t, the signal of the last rounds, makes
rounds count equally, and twenty rounds together count for no more than honest work and 1.5 standard deviations: a
partner that helps for a few rounds, before it throws its name away, does not tell enough for a whole period. Two that
agreed too well with each other in earlier rounds are not compared with each other (`doubtful_pairs` in `credit`), so
that noise which a crew shares in secret tells little. Honest work has ρ = 1, whatever its size; the prediction, and
anything else that is public, has about 0; work in every other round, 0.5. Then

    released  = min(Σ R, Σ h) · min(ρ, 1)^2.5               with ρ = ρ̂ at the end of each period of rounds,
                                                            and ρ̂ − 3·(1 − t/0.85T) standard errors in round t of T;
                                                            nothing while ρ̂ is less than 3 standard errors,
                                                            nor in the first 20 rounds of an agent

In a round no more than twice the cost is released, and the rest in the next ones; what is left at the end of a period
is paid there. So pay in a round is between 0 and 2h with a mean of about h, and its standard deviation is at most h.

No payment is negative and none is taken back, so a name that can be thrown away is worth nothing: what is not yet
released is the stake. Less work loses by the price, forged reports by the test, and both together by the exponent: work
with S samples, shrunk until it looks like ν, has ρ = √(S/ν) and releases h·(S/ν)^1.25. A report
that knows more than honest work is paid no more than that. Cutting at 1 takes a little from honest agents, by chance;
what that is on average is added as the period goes on. So honest pay is about the cost: within 3 % on the survey. But
a cut at 1 also halves what a little less work loses: 5 % less costs less than it saves.

What is public but not in the prediction is not told from work. Where the loss is curved alike in all directions, an
agent that extrapolates from the broadcasts alone gets the cost, unless the server does so too (`Extrapolation`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from guerdon.agreement import EstimatedVariance, OutputAgreement, far_or_near
from guerdon.arrays import Array, at_least_one, check_positive_integer, namespace, to_numpy
from guerdon.costs import Cost
from guerdon.evidence import Evidence
from guerdon.gram import median_of_others
from guerdon.rule import Need, Notice, Payments, Round, Rule, Status, as_request, check_round, check_whole, round_of
from guerdon.states import NoState
from guerdon.statistical.information import InformationPay
from guerdon.statistical.information_share import (
    LEAST_TOLD,
    ShareState,
    begun_anew,
    first_share,
    knowledge,
    remember,
    shares,
)
from guerdon.statistical.signal import information_scores
from guerdon.statistical.trust import PROBATION, Trust
from guerdon.words import About, about, told_by

# Safety margin: early in a period use ρ̂ − 3 standard errors; release nothing while ρ̂ < 3 standard errors.
SURE = 3.0
STEEP = 2.5  # exponent
# Cut: a report counts as no further from the mean than three times the others' median squared distance.
FURTHEST = 3.0
FEWEST = 10  # rounds of an agent in a period before anything is released
CUT = 0.4  # a cut at the mean lowers the mean of a normal number by 1/√(2π) standard deviations
NOISIEST = 0.15  # the largest standard error for which the loss by a cut is added back
VAGUE = 0.5  # a ρ̂ with a larger standard error says nothing
PREDICTABLE = (
    "gradients here are so predictable that work cannot be told from no work: nothing is released. Ask for more "
    "samples, or take a longer dither"
)
FAINT = (
    "a round tells so little here that honest work is paid less than its cost. Ask for more samples, take a longer "
    "dither, or let more agents take part"
)
LATE = 50  # rounds of an agent before the operator is told so
# Share of a period after which ρ = ρ̂. The rest of the period pays what a limit of twice the cost a round delayed.
SETTLED = 0.85
MOST = 2.0  # times the cost: the most that a round releases before the end of a period


class SteadyState(NamedTuple):
    """Per agent: what it told, and sums over the rounds of its current period."""

    share: ShareState
    tenure: Array  # rounds that its report was counted in, ever
    due: Array  # Σ h
    earned: Array  # Σ R
    spread: Array  # Σ (R − h)²
    released: Array


class _AboutSteady(About):
    """Pay that is released later: nothing is ever taken back."""

    formula = "E − D"
    holds = True
    fewest_rounds = FEWEST

    def words(self, rule: Any) -> str:
        return f"steady pay, settled every {rule.period} rounds"

    def why(self, rule: Any, distance: float, expected: float) -> str:
        del rule
        return far_or_near(distance, expected)

    def reasons(self) -> Mapping[Status, str]:
        return about(InformationPay).reasons()

    def worst_loss(self, rule: Any, request: Any) -> float:
        """Return h(ν): in a round a member is paid nothing at the worst."""
        return float(rule.cost(request))

    def held(self, rule: Any, state: Any) -> Array:
        return rule.held(state)

    def advice(self, rule: Any, state: Any, request: Any) -> str:
        """Return a warning where reports do not tell work from no work, or tell too little; else nothing."""
        del rule, request
        share = state.share
        rounds, products, error = (to_numpy(x) for x in (share.rounds, share.products, shares(share).error))
        waited, late = rounds >= 2 * FEWEST, rounds >= LATE
        if waited.any() and not (error[waited] < VAGUE).any():
            return PREDICTABLE
        return FAINT if late.any() and np.median(products[late] / rounds[late]) < LEAST_TOLD else ""

    def largest_distance(self, payments: Payments, squared_length: Array) -> Array:
        return about(InformationPay).largest_distance(payments, squared_length)


@told_by(_AboutSteady())
@dataclass(frozen=True)
class SteadyPay(Rule):
    """Pay by agreement with the others, as far as reports tell something; what is not released stays held.

    Of a period's rounds it releases min(Σ R, Σ h) · min(ρ, 1)^2.5, as this module's header has it. All pay of a name's
    first 20 rounds is held: that stops an attacker who knows the gradient from old samples from collecting and leaving
    under a new name.

    - `cost`: h and its slope, in units of money.
    - `period`: rounds of an agent, after which what it was held is settled and a new period begins.
    - `doubt`: agents that the evidence doubts at these odds to one are not used to score others.
    - `limit`: reports longer than so many times the median length are shortened.
    - `probation`: rounds of its own, before which a newcomer is not used to score others, and is paid nothing.
    """

    cost: Cost
    period: int = 200
    doubt: float = 10.0
    limit: float = 3.0
    probation: int = PROBATION

    name, version = "steady", 1
    needs = frozenset({Need.COSTS, Need.OTHERS, Need.PREDICTION})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "period")
        _ = self._test  # which checks the rest

    @property
    def _test(self) -> InformationPay:
        return InformationPay(self.cost, doubt=self.doubt, limit=self.limit, probation=self.probation)

    @property
    def trust(self) -> Trust:
        """What decides which agents the others are compared with."""
        return self._test.trust

    def init(self, num_agents: int) -> SteadyState:
        check_positive_integer("num_agents", num_agents)
        nothing = np.zeros(num_agents)
        return SteadyState(first_share(num_agents), nothing, nothing, nothing, nothing, nothing)

    def notice(self, state: SteadyState, request: Any) -> Notice:
        del request
        return Notice(knowledge=knowledge(state.share))

    def pay(self, state: SteadyState, round: Round) -> tuple[Payments, SteadyState]:
        state, mask = check_round(state, round, SteadyState)
        evidence, trusted = round.evidence, round.trusted
        xp, nu = namespace(evidence.squared_length), as_request(evidence, round.request)
        price = self._price(evidence, trusted, mask, round.request)
        worked = price.status == Status.PAID.value
        state = self._remember(state, evidence, trusted, worked, xp.where(worked, price.released, 0.0), nu)
        ends = worked & (state.share.rounds >= self.period)
        whole = ends | round.is_last
        past_probation = state.tenure > self.probation
        amount = xp.where(whole, self.final(state), xp.where(past_probation, self.sure(state), 0.0))
        most = xp.where(whole, xp.inf, MOST * self.cost(nu))
        reward = xp.clip(xp.where(worked, amount - state.released, 0.0), 0.0, most)
        state = state._replace(released=state.released + reward)
        settled = ends | (worked & (amount > 0) & round.is_last)  # what is not yet beyond doubt stays held
        return price._replace(released=reward), _renewed(state, settled)

    def _price(self, evidence: Evidence, trusted: Array, mask: Array, request: Any) -> Payments:
        """Return what balanced agreement pays, where no report counts as further out than `FURTHEST` times the median.

        Without this cut one name that sends garbage makes the others' smaller batches look like honest work. Distances
        are measured by those of the trusted agents: a name that sends the prediction would make the others' look long.
        """
        xp, nu = namespace(evidence.squared_deviation), as_request(evidence, request)
        median, _ = median_of_others(evidence.squared_deviation, evidence.counted)
        most = xp.where(median > 0, FURTHEST * median, evidence.squared_deviation)
        squares = xp.sum(
            xp.where(trusted, xp.where(evidence.squared_deviation < most, evidence.squared_deviation, most), 0.0)
        )
        plain, _ = OutputAgreement(self.cost, EstimatedVariance()).pay(NoState(), round_of(evidence, mask, request))
        paid, number = plain.status == Status.PAID.value, xp.sum(xp.astype(trusted, nu.dtype))
        variance = nu * squares / at_least_one(number - 1)
        share = number * evidence.squared_deviation / xp.where(squares > 0, squares, 1.0)
        extra = self.cost.slope(nu) * nu * number / at_least_one(number - 2) * (1 - share)
        expected = plain.squared_distance + extra * variance / (self.cost.slope(nu) * nu**2)
        earned = xp.where(paid, self.cost(nu) + extra, 0.0)
        return plain._replace(
            earned=earned,
            released=earned,
            expected=xp.where(paid, expected, xp.nan),
            variance=xp.where(paid, variance + 0 * plain.squared_distance, xp.nan),
        )

    def sure(self, state: SteadyState) -> Array:
        """Return what can be released by now, of the current period; nothing where no part is beyond doubt."""
        return self._amount(state, namespace(state.due).clip(state.share.rounds / (SETTLED * self.period), 0.0, 1.0))

    def final(self, state: SteadyState) -> Array:
        """Return what is released in all if the period ends now."""
        return self._amount(state, namespace(state.due).ones_like(state.due))

    def _amount(self, state: SteadyState, over: Array) -> Array:
        """Return what is released in all by the time that so much of the period is `over`."""
        xp, rounds = namespace(state.due), state.share.rounds
        share, error, in_full = shares(state.share)
        error = xp.where(error < xp.inf, error, 1.0)
        due = xp.where(state.due > 0, state.due, 1.0)
        more = state.earned - state.due
        square = state.spread - more**2 / at_least_one(rounds)
        lost = CUT * _by_chance(more / due, xp.sqrt(_at_least(square, 0.0)) / due)
        lost = lost + CUT * STEEP * _by_chance(in_full - 1, error)
        clear = (rounds >= FEWEST) & (share > SURE * error)
        amount = _capped(state) * _part(share - SURE * (1 - over) * error) * (1 + over * lost)
        return xp.where(clear, amount, 0.0)

    def held(self, state: SteadyState) -> Array:
        """Return what each agent would get, beyond what it got, if its period ended now."""
        return _at_least(self.final(state) - state.released, 0.0)

    def _remember(
        self, state: SteadyState, evidence: Evidence, trusted: Array, worked: Array, price: Array, nu: Array
    ) -> SteadyState:
        """Return the state with this round added for the agents that were priced."""
        xp = namespace(price)
        fair = xp.where(worked, self.cost(nu), 0.0)
        return SteadyState(
            remember(state.share, information_scores(evidence, trusted), trusted, worked, nu),
            state.tenure + xp.astype(evidence.counted, price.dtype),
            state.due + fair, state.earned + price, state.spread + (price - fair) ** 2, state.released,
        )  # fmt: skip


def _at_least(values: Array, least: float) -> Array:
    return namespace(values).where(values > least, values, least)


def _capped(state: SteadyState) -> Array:
    """Return what was earned, no less than nothing and no more than the cost."""
    earned = _at_least(state.earned, 0.0)
    return namespace(earned).where(earned < state.due, earned, state.due)


def _part(share: Array) -> Array:
    return namespace(share).clip(share, 0.0, 1.0) ** STEEP


def _by_chance(beyond: Array, error: Array) -> Array:
    """Return the standard error for which a cut is made up: 0 where the cut took more than chance explains."""
    xp = namespace(error)
    return xp.where(beyond > 2 * error, 0.0, xp.where(error < NOISIEST, error, NOISIEST))


def _renewed(state: SteadyState, ends: Array) -> SteadyState:
    """Return the state with the sums of the period begun anew where it ended."""
    xp = namespace(state.due)
    sums = {name: xp.where(ends, 0.0, getattr(state, name)) for name in ("due", "earned", "spread", "released")}
    return state._replace(share=begun_anew(state.share, ends), **sums)
