"""Verified work in the arena: flat pay for what a member says it did, held until a look."""

# JAX's functions of unknown arrays have no types.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array, check_positive_integer, namespace
from guerdon.costs import Cost
from guerdon.lab.arena.shares import ToldRule, announced_by, begin, facts_of, plain_payments
from guerdon.lab.held import Held, forfeited, kept, nothing_held
from guerdon.lab.truth import Facts
from guerdon.rule import Need, Payments, Round
from guerdon.terms import Looks


class VerifiedState(NamedTuple):
    """What is held of each agent, and how many rounds are behind it."""

    held: Held
    rounds: Array


@dataclass(frozen=True)
class VerifiedWork(ToldRule):
    """Pay (1 + m)·h(S) for the first S of the named rows, hold it, and release it after M looks in a period.

    S is what an agent says that it used, at most the request. Each look is at one round, drawn by chance in proportion
    to its pay after the reports are in; it finds whatever is not the work on these rows. One failed look of M costs
    its share of what is held, or all of it.

    Source: ours. Whatever an agent does, cheating in a round is then worth what declining it is worth.
    """

    cost: Cost
    terms: Looks = Looks()  # noqa: RUF009 - frozen
    facts: Facts | None = None

    name, needs = "verified", frozenset({Need.COSTS, Need.ANNOUNCEMENTS, Need.AUDITOR})

    def init(self, num_agents: int) -> VerifiedState:
        check_positive_integer("num_agents", num_agents)
        nobody = np.zeros(num_agents)
        return VerifiedState(nothing_held(nobody, self.terms.looks), nobody)

    def pay(self, state: VerifiedState, round: Round) -> tuple[Payments, VerifiedState]:
        state, status, nu = begin(state, round)
        xp, facts = namespace(nu), facts_of(self)
        claimed = xp.minimum(announced_by(self, status), nu)
        earned = xp.where(claimed > 0, (1 + self.terms.margin) * self.cost(claimed), 0.0 * claimed)
        number = state.rounds + 1
        held = kept(
            state.held, earned, facts.used == claimed, number, xp.asarray(_coins(facts.reports, self.terms.looks))
        )
        ends = (number % self.terms.period == 0) | xp.asarray(round.is_last)
        released = xp.where(ends, held.weight - forfeited(held, self.terms), 0.0 * earned)
        after = VerifiedState(Held(*(xp.where(ends, 0.0 * part, part) for part in held)), number)
        payments = plain_payments(earned, status)
        return payments._replace(released=released), after


def verified(cost: Cost, looks: float = 2) -> VerifiedWork:
    """Return flat pay with so many looks in a period, as the terms of a run have them by default.

    >>> from guerdon import AffineCost
    >>> verified(AffineCost(1, 1), 1).terms.looks
    1
    """
    return VerifiedWork(cost, Looks(looks=int(looks) if looks == int(looks) else looks))  # pyright: ignore[reportArgumentType]


def _coins(reports: Array, looks: int) -> Array:
    """Return a number from 0 to 1 for each look, (looks, 1), which nobody knows before all reports are in."""
    total = jax.lax.bitcast_convert_type(jnp.sum(jnp.asarray(reports, jnp.float32)), jnp.uint32)
    return jax.random.uniform(jax.random.fold_in(jax.random.key(0), total), (looks, 1))
