"""Two rules that stand for the ends of what is possible: one that knows the truth, and one that looks at nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from guerdon.agreement import TrueVariance, check_is_variance
from guerdon.arrays import namespace
from guerdon.costs import Cost
from guerdon.rule import Payments, Round, Rule, Status, Truth, as_request, check_round, statuses
from guerdon.states import NoState


@dataclass(frozen=True)
class GenieAided(Rule):
    """The paper's ideal (its equation 8): pay by the distance to the true gradient, which only a simulation knows.

    R_k = h(ν) + h'(ν) · ν²/σ² · (σ²/ν − ‖X_k − m‖²), from evidence gathered with the population gradient m as its
    prediction. Nobody's pay depends on anybody else's gradient, so a lone participant is paid like any other.
    """

    cost: Cost
    variance: Any  # KnownVariance, or in a simulation TrueVariance

    wants_prediction = wants_truth = True
    rule_name, version, formula = "genie", 1, "E − D"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_is_variance(self.variance, "KnownVariance(16.0)")

    def pay(self, state: NoState, round: Round) -> tuple[Payments, NoState]:
        """Return the payments of a round, and the state as it is."""
        state, mask = check_round(state, round)
        evidence = round.evidence
        xp = namespace(evidence.squared_deviation)
        nu = as_request(evidence, round.request)
        variance = self.variance.variance + 0 * evidence.squared_length
        status = statuses(evidence, mask, least_participants=1, variance=variance)
        paid = status == Status.PAID.value
        reward = self.cost(nu) + self.cost.slope(nu) * nu**2 / variance * (variance / nu - evidence.squared_length)
        shown = [xp.where(paid, x, xp.nan) for x in (evidence.squared_length, variance / nu, variance)]
        reward = xp.where(paid, reward, 0.0)
        return Payments(reward, reward, *shown, status=status), state

    def knowing(self, truth: Truth) -> Rule:
        """Return the rule with the true σ², where its variance is that."""
        return replace(self, variance=self.variance.knowing(truth))

    @classmethod
    def choices(cls) -> Mapping[str, Callable[..., Rule]]:
        """Return it with the true variance."""

        def genie(cost: Cost) -> Rule:
            return cls(cost, TrueVariance())

        return {"genie": genie}


@dataclass(frozen=True)
class FlatPay(Rule):
    """The control: pay h(ν) to everybody who sends anything usable. No agent has a reason to work."""

    cost: Cost

    rule_name, version, compares_agents, takes_back = "flat", 1, False, False

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

    def curve(self, size: Any, request: Any) -> Any:
        """Return h(ν), for any number of samples."""
        return self.cost(request) + 0 * size
