"""Rules in plain words: what a rule is, why a payment is what it is, and what operators must know of a rule.

None of this decides pay. Each rule's own words stand beside it, and are bound to it by `told_by`:

    @told_by(AboutMine())
    @dataclass(frozen=True)
    class Mine(Rule): ...
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from guerdon.arrays import Array, namespace
from guerdon.costs import Cost
from guerdon.rule import Payments, Rule, Status, notice_of

__all__ = [
    "About",
    "about",
    "explain",
    "price",
    "told_by",
]

FEWEST = 3  # reports needed to see which of them lies further out
INFINITY = "infinity"
LIKELY_CUT = 2  # a mean beyond so many times the distance of honest work may contain a distance that was cut
NOT_COMPARED = "only two took part, or all reports were the same: they cannot be compared, and are paid their cost"
FOLLOWS = "the extra of this round follows when distances have a scale"
NO_SCALE = "no extra follows: this was the last round, and there is no scale for distances"

Kind = TypeVar("Kind", bound=type[Rule])
_ABOUT: dict[type, "About"] = {}


class About:
    """What people, books and laboratories ask about a rule; every answer has a default.

    `formula`: what is in the brackets of R = h(ν) + h'(ν)·ν²/V·(…), in letters; empty where there is no such formula.
    `holds`: whether the rule releases later what a round earned. `fewest_rounds`: rounds of an agent, before which it
    is not paid at all.
    """

    formula: str = ""
    holds: bool = False
    fewest_rounds: int = 1

    def words(self, rule: Any) -> str:
        """Return what the rule is, in words."""
        return f"{rule.name} pay"

    def why(self, rule: Any, distance: float, expected: float) -> str | None:
        """Return in words why a paid agent got more or less than the cost; None: there is nothing to say."""
        del rule, distance, expected
        return None

    def bracket(self, distance: float, expected: float) -> tuple[float, float]:
        """Return the two numbers of `formula`."""
        return expected, distance

    def reasons(self) -> Mapping[Status, str]:
        """Return why an agent gets nothing for a round, by status, where the rule has words of its own for it."""
        return {}

    def choices(self, kind: Any) -> Mapping[str, Callable[..., Rule]]:
        """Return the names by which people choose the rule, and what makes it from a cost (and a number)."""
        return {kind.name: kind}

    def worst_loss(self, rule: Any, request: Any) -> float:
        """Return the most that a member can lose in one round, below h(ν); infinity: there is no bound."""
        del rule, request
        return math.inf

    def transfers(self, rule: Any) -> bool:
        """Return whether others gain in the same round what one member loses: then no loss may be cut."""
        del rule
        return False

    def held(self, rule: Any, state: Any) -> Array | None:
        """Return what each agent would be released if the run ended now; None for a rule that holds nothing."""
        del rule, state
        return None

    def advice(self, rule: Any, state: Any, request: Any) -> str:
        """Return a warning to the operator of how the rule does here, at this request; "": there is none."""
        del rule, state, request
        return ""

    def largest_distance(self, payments: Payments, squared_length: Array) -> Array:
        """Return, per payment, how large the parts of D and E are together: rounding is relative to this."""
        del squared_length
        xp = namespace(payments.squared_distance)
        return xp.abs(payments.expected) + xp.abs(payments.squared_distance)

    def settings(self, rule: Any) -> dict[str, Any]:
        """Return all of a rule but its cost, as JSON can hold it; infinity is text."""
        values = {field.name: getattr(rule, field.name) for field in fields(rule) if field.name != "cost"}
        return {name: INFINITY if value == math.inf else value for name, value in values.items()}

    def from_settings(self, kind: Any, cost: Cost, settings: Mapping[str, Any]) -> Rule:
        """Return the rule that `settings` described."""
        names = [field.name for field in fields(kind) if field.name != "cost"]
        if set(settings) != set(names):
            raise ValueError(f"its settings must be {', '.join(names)}, got {', '.join(settings)}")
        return kind(cost, **{name: math.inf if value == INFINITY else value for name, value in settings.items()})


def told_by(words: About) -> Callable[[Kind], Kind]:
    """Bind the words about a kind of rule to its class: a decorator.

    - `words`: an instance of a class of your own that inherits from `About`.

    >>> from guerdon import AffineCost, OutputAgreement
    >>> about(OutputAgreement(AffineCost(1, 1))).formula
    'E − D'
    """

    def bind(kind: Kind) -> Kind:
        _ABOUT[kind] = words
        return kind

    return bind


def about(rule: Rule | type[Rule]) -> About:
    """Return the words about a rule, or a kind of rules: its own, else those of the class that it inherits from."""
    kind = rule if isinstance(rule, type) else type(rule)
    return next((_ABOUT[one] for one in kind.__mro__ if one in _ABOUT), DEFAULT)


DEFAULT = About()


def can_take_back(rule: Rule) -> bool:
    """Tell whether a member can lose more in a round than what it is paid for honest work."""
    return about(rule).worst_loss(rule, 1) > float(rule.cost(1))


def explain(
    rule: Rule,
    payments: Payments,
    request: int,
    factors: Sequence[float] | None = None,
    *,
    is_last: bool = False,
) -> list[str]:
    """Return a sentence for each agent that says why it was paid what it was paid.

    - `rule`: that paid.
    - `payments`: of the round.
    - `request`: ν, in samples.
    - `factors`: one cost factor per agent. None: 1 for all.
    - `is_last`: whether the run ended with this round, so that nothing follows it.

    >>> import numpy as np
    >>> from guerdon import AffineCost, FlatPay, gather, round_of
    >>> rule, sent = FlatPay(AffineCost(1, 1)), np.array([True, False])
    >>> payments, _ = rule.pay(rule.init(2), round_of(gather(np.ones((2, 3)), sent), sent, request=8))
    >>> explain(rule, payments, request=8)
    ['9 for the 8 samples asked for, whatever was sent', 'nothing: it did not take part']
    """
    cost_factors = [1.0] * len(payments.released) if factors is None else factors
    rows = zip(cost_factors, zip(*payments, strict=True), strict=True)
    later = NO_SCALE if is_last else FOLLOWS
    return [_explain(rule, request, later, factor, *map(float, row)) for factor, row in rows]


def _explain(
    rule: Rule,
    request: int,
    later: str,
    factor: float,
    earned: float,
    reward: float,
    distance: float,
    expected: float,
    variance: float,
    status: float,
) -> str:
    code = Status(int(status))
    if code is Status.WAITING:
        return f"{_cost_and_earlier(rule, request, factor, reward)}; {later}"
    if code.is_paid and distance != distance and _reach(rule, request):
        return f"{_cost_and_earlier(rule, request, factor, reward)}; {NOT_COMPARED}"
    if not code.is_paid:
        return _explain_unpaid(rule, code, reward)
    if about(rule).holds:
        reason = _explain_paid(rule, request, factor, earned, distance, expected)
        return f"{reward:.4g} released; earned in this round: {earned:.4g} ({reason})"
    late = settled(rule, request, factor, reward, distance, expected, variance)
    reason = _explain_paid(rule, request, factor, reward - late, distance, expected)
    reason += cut_words(rule, request, distance, expected, variance)
    return f"{reason}; {_more(late)}, the extra of earlier rounds" if late else reason


def _explain_unpaid(rule: Rule, status: Status, reward: float) -> str:
    why = (_REASONS | dict(about(rule).reasons()))[status]
    if reward == 0:
        return f"nothing: {why}"
    return f"{reward:.4g}, the extra of earlier rounds: {why}" + " in this one" * (status is Status.DECLINED)


def _cost_and_earlier(rule: Rule, request: int, factor: float, reward: float) -> str:
    fair, asked = _asked(rule, request, factor)
    return asked if _same(reward, fair, factor) else f"{asked}, {_more(reward - fair)} of earlier rounds"


def cut_words(rule: Rule, request: int, distance: float, expected: float, variance: float) -> str:
    """Return at what distances were cut, where a mean of them may hold one that was; mostly nothing.

    >>> from guerdon import AffineCost, OutputAgreement
    >>> cut_words(OutputAgreement(AffineCost(1, 1)), 8, distance=500.0, expected=2.0, variance=20.0)
    ' (no distance counts for more than 500)'
    """
    honest_distance = 2 * variance / int(request)
    if not max(distance, expected) > LIKELY_CUT * honest_distance:
        return ""
    reach = _reach(rule, request)
    return f" (no distance counts for more than {reach * honest_distance:.4g})" if reach else ""


def _reach(rule: Rule, request: int) -> float:
    """Return how far apart two reports may count, which a rule says before every round; 0: there is no limit."""
    return notice_of(rule, rule.init(1), request).reach


def price(rule: Rule, request: int, distance: float, expected: float, variance: float) -> float:
    """Return h(ν) + h'(ν)·ν²/V·(E − D): what a round earns where that is not what it pays."""
    nu = int(request)
    return float(rule.cost(nu) + rule.cost.slope(nu) * nu**2 / variance * (expected - distance))


def settled(
    rule: Rule, request: int, factor: float, reward: float, distance: float, expected: float, variance: float
) -> float:
    """Return what a paid reward holds of earlier rounds: what goes beyond the price of its own; 0 where it is rounding.

    >>> from guerdon import AffineCost, OutputAgreement
    >>> settled(OutputAgreement(AffineCost(1, 1)), 8, 1.0, 12.5, distance=3.0, expected=4.0, variance=32.0)
    1.5
    """
    varied = notice_of(rule, rule.init(1), request).own is not None  # then a price is not that of the request
    if not about(rule).formula or varied or variance != variance:
        return 0.0
    late = reward - factor * price(rule, request, distance, expected, variance)
    parts = abs(price(rule, request, -abs(distance), abs(expected), variance))
    return late if abs(late) > 2e-6 + 1e-6 * factor * parts else 0.0


def _explain_paid(rule: Rule, request: int, factor: float, reward: float, distance: float, expected: float) -> str:
    fair, asked = _asked(rule, request, factor)
    if distance != distance:  # NaN: the rule does not look at distances
        same = _same(reward, fair, factor)
        return f"{asked}, whatever was sent" if same else f"{asked}, {_more(reward - fair)}"
    why = about(rule).why(rule, distance, expected)
    return f"{asked}, {_more(reward - fair)}" + ("" if why is None else f": {why}")


def _asked(rule: Rule, request: int, factor: float) -> tuple[float, str]:
    """Return the cost of what was asked of an agent, and the words for it."""
    cost = float(rule.cost(int(request)))
    times = "" if factor == 1 else f" ({factor:g} times the usual {cost:.4g})"
    return factor * cost, f"{factor * cost:.4g} for the {request} samples asked for{times}"


def _same(reward: float, fair: float, factor: float) -> bool:
    return math.isclose(reward, fair, rel_tol=1e-9, abs_tol=1e-6 * (factor != 1))  # a ledger rounds what it keeps


def _more(extra: float) -> str:
    return f"plus {extra:.4g}" if extra >= 0 else f"less {-extra:.4g}"


_REASONS = {
    Status.DECLINED: "it did not take part",
    Status.ALONE: "nobody else took part, so there is nothing to compare it with",
    Status.TOO_FEW: "only two took part, and one other gradient does not tell how much gradients vary",
    Status.NO_VARIANCE: "all gradients were identical, so distances have no scale",
    Status.INVALID: "what it sent cannot be used (NaN, infinity, too large, malformed or a copy); it counts as absent",
}
