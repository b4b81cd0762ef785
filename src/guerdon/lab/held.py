"""Pay that is held until a look, of many members and repetitions at once.

`guerdon.looks.draw.kept` and `guerdon.looks.outcomes.settled` do the same for one member, in whole micro-units and with
the coin that everybody can check. The tests hold both to equal results. Here pay is in units of the cost, and a coin
is a number from 0 to 1. The last axis of all arrays is the members', as for rules. The first is the looks', if any.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from guerdon.arrays import Array, check_positive_integer, namespace
from guerdon.costs import Cost
from guerdon.lab.truth import Facts
from guerdon.rule import Need, Payments, Round, Rule, check_round, paid_work, statuses
from guerdon.states import NoState
from guerdon.terms import Looks


class Held(NamedTuple):
    """What is held, and the rounds that would be looked at if the period ended now.

    `weight` is F, (…, members). `rounds` holds the number of each candidate, 0 for none, and `failing` is 1 where its
    report is not the named work; both are (looks, …, members).
    """

    weight: Array
    rounds: Array
    failing: Array


def nothing_held(like: Array, looks: int) -> Held:
    """Return the state at the start of a period, for as many members and repetitions as `like` has numbers.

    >>> import numpy as np
    >>> nothing_held(np.zeros((1000, 4)), looks=2).rounds.shape
    (2, 1000, 4)
    """
    check_positive_integer("looks", looks)
    xp = namespace(like)
    none = 0.0 * like
    return Held(none, xp.stack([none] * looks), xp.stack([none] * looks))


def kept(state: Held, weight: Array, worked: Array, number: Array | int, coins: Array) -> Held:
    """Return the state after a closed round: it replaces each candidate with chance f/F.

    `weight`: what is held for the round, f. `worked`: whether the report is the named work. `number`: of the round.
    `coins`: from 0 to 1, (looks, …, members), or 1 in the place of the members where all share them.

    >>> import numpy as np
    >>> state = nothing_held(np.zeros(2), looks=1)
    >>> state = kept(state, np.array([17.0, 17.0]), np.array([True, False]), 1, coins=np.array([[0.9]]))
    >>> state.weight, state.failing  # the first round is always a candidate
    (array([17., 17.]), array([[0., 1.]]))
    >>> kept(state, np.array([17.0, 0.0]), np.array([True, True]), 2, coins=np.array([[0.4]])).rounds
    array([[2., 1.]])
    """
    xp = namespace(state.weight)
    total = state.weight + weight
    replaced = coins * total < weight
    return Held(
        total,
        xp.where(replaced, xp.astype(0 * total, total.dtype) + number, state.rounds),
        xp.where(replaced, xp.where(worked, 0 * total, 1 + 0 * total), state.failing),
    )


def forfeited(state: Held, terms: Looks) -> Array:
    """Return what the looks take of what is held if the period ends now, (…, members).

    Every look finds what it looks at. With forfeit="share" each failed look costs its part F/M, else one costs all.

    >>> import numpy as np
    >>> state = Held(np.array([100.0]), np.array([[3.0], [7.0]]), np.array([[0.0], [1.0]]))
    >>> [float(forfeited(state, Looks(forfeit=which))[0]) for which in ("share", "all")]
    [50.0, 100.0]
    """
    xp = namespace(state.weight)
    failed = xp.sum(state.failing, axis=0) / terms.looks
    return state.weight * (failed if terms.forfeit == "share" else xp.where(failed > 0, 1 + 0 * failed, failed))


def spot_checks(gain: float, fair: float) -> float:
    """Return how many looks in a period a rule is worth under which the best answer gains so much a round.

    `fair`: what a round of honest work costs, h(ν). Under flat pay of which a share L of the periods has a look, a
    cheat keeps (1 − L) of what it saves. So its best answer is never to work, and gains (1 − L)·h(ν). From L = 1 on
    nothing gains; a gain above h(ν), more than flat pay without any look leaves, is worth 0 too.

    >>> spot_checks(gain=4.25, fair=17.0)
    0.75
    """
    return min(1.0, max(0.0, 1 - gain / fair))


@dataclass(frozen=True)
class NamedWork(Rule):
    """Pay 1 for a report that is the work on all rows that were asked for, else 0: what a look would find.

    For experiments, which hold pay afterwards: `forfeited` needs this, and nothing else of a training.
    """

    cost: Cost
    facts: Facts | None = None

    name, needs = "named-work", frozenset({Need.COSTS, Need.TRUTH})

    def informed(self, facts: Facts) -> Rule:
        """Return the rule with the facts of a round."""
        return replace(self, facts=facts)

    def pay(self, state: NoState, round: Round) -> tuple[Payments, NoState]:
        """Return the payments of a round."""
        if self.facts is None or self.facts.used is None:
            raise ValueError("'named-work' must be told of the round by `informed` before it pays: use `simulate`")
        state, mask = check_round(state, round)
        xp, like = namespace(self.facts.used), 0.0 * round.evidence.squared_deviation
        status = statuses(round.evidence, mask, 1, 1 + like)
        worked = xp.where(paid_work(status) & (self.facts.used == round.request), 1 + like, like)
        return Payments(worked, worked, *([xp.nan + like] * 3), status=status), state
