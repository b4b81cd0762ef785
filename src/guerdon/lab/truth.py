"""How a rule of the laboratory learns what only a laboratory knows: the truth at a model, and more beside evidence.

A rule that wants it has `informed(facts)`, which returns the rule with what is known of the round. `TrueVariance`
stands for the variance that only a simulation knows, and `GenieAided` is the paper's ideal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from guerdon import registry
from guerdon.agreement import KnownVariance, OutputAgreement, Spread, VarianceRule, check_is_variance
from guerdon.arrays import Array, namespace
from guerdon.costs import Cost
from guerdon.rule import Need, Payments, Round, Rule, Status, as_request, check_round, statuses
from guerdon.states import NoState
from guerdon.statistical.information import InformationPay
from guerdon.words import About, told_by


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


class Facts(NamedTuple):
    """What may be known of a round beside the evidence; a rule says in its `needs` what it looks at."""

    reports: Array  # as they came, (agents, numbers)
    prediction: Array  # the public one of the gradient
    announced: Array  # how many samples each agent says it used
    model: Array  # at which the gradients were asked for
    loss: Callable[[Array], Array]  # of a model, on the server's validation set
    truth: Truth | None = None
    used: Array | None = None  # on how many of its own rows each report is the work; 0: it is no such work


@runtime_checkable
class Informed(Protocol):
    """A rule that is told of a round before it pays."""

    def informed(self, facts: Facts) -> Rule:
        """Return the rule with what is known of this round."""
        ...


def informed(rule: Rule, facts: Facts) -> Rule:
    """Return a rule with what is known of a round: as it is, where it asks for nothing."""
    if isinstance(getattr(rule, "variance", None), TrueVariance) and facts.truth is not None:
        filled: Any = replace(cast("Any", rule), variance=KnownVariance(facts.truth.variance))
        return filled
    return rule.informed(facts) if isinstance(rule, Informed) else rule


def shrinkage_of(rule: Rule, state: Any, request: Any) -> Any:
    """Return the factor ã that information pay will score a round with; 1 under other rules. Nobody else may see it."""
    return rule.signal.shrinkage(state, request) if isinstance(rule, InformationPay) else 1.0


def needs_truth(rule: Rule) -> bool:
    """Tell whether only a simulation can pay by a rule."""
    return Need.TRUTH in rule.needs or isinstance(getattr(rule, "variance", None), TrueVariance)


@dataclass(frozen=True)
class TrueVariance(VarianceRule):
    """Stands for `KnownVariance(σ²)` with the problem's own σ² at the model of each round: in a simulation only."""

    kind, least_participants = "known", 2

    def variances(self, spread: Spread) -> tuple[Array, Array]:
        """Raise: only the simulator knows σ²."""
        del spread
        raise TypeError(
            "`TrueVariance` must be used in `simulate`, which knows the problem; elsewhere use KnownVariance"
        )

    def settings(self) -> dict[str, Any]:
        """Raise: it cannot be written down."""
        raise ValueError("`TrueVariance` cannot be recorded: give the number, KnownVariance(4.0)")


class _AboutGenie(About):
    """Pay by the distance to the true gradient."""

    formula = "E − D"


@told_by(_AboutGenie())
@dataclass(frozen=True)
class GenieAided(Rule):
    """The paper's ideal (its equation 8): pay by the distance to the true gradient, which only a simulation knows.

    R_k = h(ν) + h'(ν) · ν²/σ² · (σ²/ν − ‖X_k − m‖²), from evidence gathered with the population gradient m as its
    prediction. Nobody's pay depends on anybody else's gradient, so a lone participant is paid like any other.
    """

    cost: Cost
    variance: Any  # KnownVariance, or in a simulation TrueVariance

    name, version = "genie", 1
    needs = frozenset({Need.COSTS, Need.OTHERS, Need.TRUTH})

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


def known(cost: Cost, variance: float | None = None) -> Rule:
    """Return output agreement with known variance: the problem's own, unless a number is given."""
    return OutputAgreement(cost, TrueVariance() if variance is None else KnownVariance(variance))


def genie(cost: Cost) -> Rule:
    """Return the paper's ideal."""
    return GenieAided(cost, TrueVariance())


def choices() -> Mapping[str, Callable[..., Rule]]:
    """Return what makes a rule from a cost, by the names that people choose by in a laboratory."""
    return {**registry.choices(), "known": known, "genie": genie}


def choose(text: str, cost: Cost) -> Rule:
    """Return the rule that `text` names, in a laboratory: known, genie, and all that money can be paid by.

    >>> from guerdon import AffineCost
    >>> choose("known", AffineCost(1, 1)).variance
    TrueVariance()
    """
    return registry.choose(text, cost, choices())
