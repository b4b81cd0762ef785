"""What terms of verified work come to, in closed form: money held, rows shown, what honest work and each cheat earn.

Flat pay f = (1 + m)·h for every round of cost h; a period of T rounds; M looks. Let ε be the chance that honest work
fails a look, and δ the chance that a cheat passes one (quiet rows, and an auditor that is silent). One candidate is
each round with chance 1/T, independently of the other looks, but two looks may have the same round, and then share its
verdict. A member that cheats in c of T rounds is released, of its T·f,

    share:  c/T·δ + (1 − c/T)·(1 − ε)
    all:    E[δ^B·(1 − ε)^G],  B and G the distinct rounds among the candidates that it cheated in, or worked

**Honest work is best**, whatever else a member does, at any time, and however it leaves, if

    share:  (1 + m)·((1 − ε) − δ) ≥ 1
    all:    (1 + m)·((1 − ε)^d − δ^d) ≥ 1  for d = 1 and d = M

The condition at d = M is not enough where δ > ε: early in a period both looks have the same candidate, and
who leaves then needs one look's luck, not M. So "all" never needs a smaller margin than "share".

**Kind to the honest first.** By ε honest work loses ε of its pay under "share" with any number of looks, and about M·ε
under "all". What "all" buys is that cheats in some rounds lose more: one round of 50 costs a cheat the margin of that
round under "share", and about another round's pay for each further look under "all". Under both no cheat gains.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from guerdon.arrays import check_number, check_positive_integer
from guerdon.costs import Cost, check_is_cost
from guerdon.terms import FORFEITS, Looks

Forfeit = Literal["share", "all"]

RARELY = 0.05  # chance that a run fails any honest member, up to which `choose` forfeits all: one run of twenty
LEFT = 0.5  # share of the margin that `choose` leaves to honest members after ε and δ


class Expected(NamedTuple):
    """What one way to behave comes to over a run, in units of money, under one `forfeit`.

    `cheated`: rounds in which the report is not the named work. `spent`: what the rest cost. `released`: of what is
    held. `profit`: released less spent; declining all rounds has 0. `against_honest`: profit less that of honest work.
    `failed`: the chance that at least one look of the run fails.
    """

    name: str
    forfeit: Forfeit
    cheated: int
    spent: float
    released: float
    profit: float
    against_honest: float
    failed: float


class Plan(NamedTuple):
    """What terms come to for one member of a run. Money in units, rows in numbers.

    `held`: the most that is held at a time. `margins`: what all rounds pay beyond their cost. `rows_shown`: expected
    rows that an auditor sees, `rows_at_most`, and `share_shown` of the rows that the member uses. `behaviours`: first
    honest work, then cheats, each under both ways to forfeit. `least_margins`: for which honest work is best.
    """

    terms: Looks
    cost: float
    pay: float
    looks: int
    held: float
    margins: float
    rows_shown: float
    rows_at_most: int
    share_shown: float
    behaviours: tuple[Expected, ...]
    least_margins: dict[Forfeit, float]


class Choice(NamedTuple):
    """Terms, and why they are chosen."""

    terms: Looks
    reasons: tuple[str, ...]


def plan(
    cost: Cost, request: int, rounds: int, terms: Looks | None = None, *, epsilon: float = 0.0, delta: float = 0.0
) -> Plan:
    """Return what terms come to for a member that is asked for `request` samples in each of `rounds` rounds.

    `epsilon`: the chance that honest work fails a look (`failure_bound` from what `guerdon looks try` measured).
    `delta`: the chance that a cheat passes.

    >>> from guerdon.costs import AffineCost
    >>> heart = plan(AffineCost(1, 1), request=16, rounds=200)
    >>> round(heart.held, 2), heart.looks, heart.rows_at_most, round(heart.margins, 2)
    (892.5, 8, 128, 170.0)
    >>> [(one.name, round(one.against_honest, 1)) for one in heart.behaviours if one.forfeit == "all"][:3]
    [('honest', 0.0), ('never works', -170.0), ('every second round', -977.5)]
    """
    terms = terms or Looks()
    check_is_cost(cost)
    check_positive_integer("request", request)
    check_positive_integer("rounds", rounds)
    _check_chances(epsilon, delta)
    h, lengths = float(cost(request)), _lengths(rounds, terms.period)
    pay = (1 + terms.margin) * h
    one_less = h - float(cost(request - 1)) if request > 1 else h
    shown = sum(_distinct(length, terms.looks) for length in lengths)
    behaviours = [
        _expected(name, forfeit, counts, saved, terms, (h, pay), lengths, (epsilon, delta))
        for name, counts, saved in _cheats(lengths, h, one_less)
        for forfeit in FORFEITS
    ]
    honest = {one.forfeit: one.profit for one in behaviours[:2]}
    return Plan(
        terms,
        h,
        pay,
        terms.looks * len(lengths),
        max(lengths) * pay,
        rounds * (pay - h),
        shown * request,
        sum(min(terms.looks, length) for length in lengths) * request,
        shown / rounds,
        tuple(one._replace(against_honest=one.profit - honest[one.forfeit]) for one in behaviours),
        {forfeit: least_margin(forfeit, terms.looks, epsilon, delta) for forfeit in FORFEITS},
    )


def trade(
    cost: Cost,
    request: int,
    rounds: int,
    terms: Looks | None = None,
    *,
    margins: Sequence[float] = (0.02, 0.05, 0.1),
    looks: Sequence[int] = (1, 2, 4),
    periods: Sequence[int] = (25, 50, 100),
    epsilon: float = 0.0,
    delta: float = 0.0,
) -> tuple[Plan, ...]:
    """Return a plan for each choice of margin, looks and period: margin against rows shown and money held.

    >>> from guerdon.costs import AffineCost
    >>> plans = trade(AffineCost(1, 1), 16, 200, margins=[0.05], looks=[1, 2], periods=[50])
    >>> [(one.terms.looks, one.rows_at_most) for one in plans]
    [(1, 64), (2, 128)]
    """
    chosen = [
        replace(terms or Looks(), margin=margin, looks=many, period=period)
        for margin in margins
        for many in looks
        for period in periods
    ]
    return tuple(plan(cost, request, rounds, one, epsilon=epsilon, delta=delta) for one in chosen)


def least_margin(forfeit: Forfeit, looks: int, epsilon: float, delta: float) -> float:
    """Return the smallest margin with which honest work is best; infinite where no margin is enough.

    >>> least_margin("share", 2, epsilon=0.01, delta=0), least_margin("all", 2, epsilon=0.01, delta=0)
    (0.0101..., 0.0203...)
    """
    _check_chances(epsilon, delta)
    worst = min((1 - epsilon) ** d - delta**d for d in ({1, looks} if forfeit == "all" else {1}))
    return 1 / worst - 1 if worst > 0 else math.inf


def failure_bound(failed: int, looked: int, confidence: float = 0.95) -> float:
    """Return the largest ε that so many failures of honest work in so many looks leave plausible (Clopper, Pearson).

    >>> round(failure_bound(0, 10_000), 6)
    0.0003
    """
    if not 0 <= failed <= looked or looked < 1:
        raise ValueError(f"`failed` must be from 0 to the number of looks, got {failed} of {looked}")
    check_number("confidence", confidence, minimum=0, inclusive=False)
    if confidence >= 1:
        raise ValueError(f"`confidence` must be below 1, got {confidence!r}")
    low, high = failed / looked, 1.0
    for _ in range(60):  # halves the interval each time, to the last bit
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(failed, looked, middle) > 1 - confidence else (low, middle)
    return high


def choose(epsilon: float, *, delta: float = 0.0, members: int = 10, rounds: int = 200, period: int = 50) -> Choice:
    """Return terms for a measured ε: kind to the honest first.

    - Two looks: with one there is no difference to make between "share" and "all", and with more each round of the run
      shows more rows, and more honest work fails by ε, for no other loss of who never works.
    - The margin is 5 %, or as much more as leaves half of it to honest members after ε and δ.
    - All is forfeited if the chance that any honest member of the run fails any look is at most 5 %, and half of the
      margin is left to honest members then too. Else a failed look forfeits its share: an honest member that is failed
      falsely loses half as much, and no cheat gains.

    >>> [choose(epsilon).terms.forfeit for epsilon in (0, 1e-4, 1e-3, 1e-2)]
    ['all', 'all', 'share', 'share']
    """
    _check_chances(epsilon, delta)
    wrong = epsilon + delta
    if wrong >= 1 - LEFT:
        raise ValueError(f"`epsilon` and `delta` must leave looks some meaning, got {epsilon:g} and {delta:g}")
    terms = Looks(period=period, margin=max(0.05, math.ceil(1000 * wrong / (1 - LEFT - wrong)) / 1000))
    looks = members * len(_lengths(rounds, period)) * terms.looks
    anybody = -math.expm1(looks * math.log1p(-epsilon))
    kept = (1 + terms.margin) * min((1 - epsilon) ** d - delta**d for d in (1, terms.looks)) - 1
    reasons = [f"in {looks} looks the chance that an honest member is failed at all is {anybody:.1%}"]
    if anybody <= RARELY and kept >= LEFT * terms.margin:
        return Choice(replace(terms, forfeit="all"), (*reasons, "so rare that a failed look may forfeit all"))
    reasons.append("so a failed look forfeits its share only: a false failure costs half as much, and no cheat gains")
    if anybody > 0.5:
        reasons.append("make the work repeat better before money moves, or appeals will decide who is paid")
    return Choice(terms, tuple(reasons))


def _cheats(lengths: Sequence[int], h: float, one_less: float) -> list[tuple[str, list[int], float]]:
    """Return ways to behave: a name, the rounds cheated in each period, and what each such round saves."""
    return [
        ("honest", [0 for _ in lengths], h),
        ("never works", [*lengths], h),
        ("every second round", [length // 2 for length in lengths], h),
        ("every tenth round", [length // 10 for length in lengths], h),
        ("one round a period", [1 for _ in lengths], h),
        ("the last five of a period", [min(5, length) for length in lengths], h),
        ("one sample less, always", [*lengths], one_less),
    ]


def _expected(
    name: str,
    forfeit: Forfeit,
    counts: Sequence[int],
    saved: float,
    terms: Looks,
    prices: tuple[float, float],
    lengths: Sequence[int],
    chances: tuple[float, float],
) -> Expected:
    h, pay = prices
    pairs = list(zip(lengths, counts, strict=True))
    passing = [passes(length, cheated, terms.looks, *chances) for length, cheated in pairs]
    alone = [passes(length, cheated, 1, *chances) for length, cheated in pairs]
    kept = alone if forfeit == "share" else passing
    released = sum(length * pay * share for length, share in zip(lengths, kept, strict=True))
    spent = sum(lengths) * h - sum(counts) * saved
    return Expected(name, forfeit, sum(counts), spent, released, released - spent, 0.0, 1 - math.prod(passing))


def passes(length: int, cheated: int, looks: int, epsilon: float, delta: float) -> float:
    """Return the chance that all looks at a period of `length` rounds are passed, `cheated` of which were not worked.

    E[δ^B·(1 − ε)^G] over the candidates: looks are added one by one; each has a round that an earlier one has already,
    a new one that was cheated in, or a new one that was worked.
    """
    chances = {(0, 0): 1.0}  # of so many distinct rounds: cheated in, worked
    for _ in range(looks):
        after = dict[tuple[int, int], float]()
        for (bad, good), chance in chances.items():
            steps = {(bad, good): bad + good, (bad + 1, good): cheated - bad, (bad, good + 1): length - cheated - good}
            for state, ways in steps.items():
                after[state] = after.get(state, 0.0) + chance * ways / length
        chances = after
    return sum(chance * delta**bad * (1 - epsilon) ** good for (bad, good), chance in chances.items())


def _distinct(length: int, looks: int) -> float:
    """Return how many distinct rounds so many looks have, on average."""
    return length * (1 - (1 - 1 / length) ** looks)


def _lengths(rounds: int, period: int) -> list[int]:
    """Return the lengths of the periods of a run; the last may be shorter."""
    whole, rest = divmod(rounds, period)
    return [period] * whole + [rest] * (rest > 0)


def _at_most(failed: int, looked: int, chance: float) -> float:
    """Return the chance of at most so many failures: a sum of the binomial distribution, in logarithms."""
    if chance >= 1:
        return float(failed == looked)
    logarithms = [
        math.lgamma(looked + 1) - math.lgamma(k + 1) - math.lgamma(looked - k + 1)
        + (k * math.log(chance) if k else 0.0) + (looked - k) * math.log1p(-chance)
        for k in range(failed + 1)
    ]  # fmt: skip
    return math.fsum(map(math.exp, logarithms))


def _check_chances(epsilon: float, delta: float) -> None:
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        check_number(name, value, minimum=0)
        if value >= 1:
            raise ValueError(f"`{name}` must be a chance below 1, got {value!r}")
