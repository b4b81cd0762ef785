"""A rule that pays costs first and settles the rest later: for what must hold of every such rule."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from guerdon import Cost, KnownVariance, OutputAgreement
from guerdon.arrays import Array, namespace
from guerdon.rule import Need, Payments, Round, Rule, Status
from guerdon.states import NoState
from guerdon.words import About, told_by


class LateState(NamedTuple):
    """How many rounds there were, and what each agent is still owed beyond its cost."""

    rounds: Array
    owed: Array


class AboutLate(About):
    """Pays by distances to the others."""

    formula = "E − D"


@told_by(AboutLate())
@dataclass(frozen=True)
class LateExtra(Rule):
    """Output agreement of which the first `wait` rounds pay the cost alone; the round after them pays what was left.

    It pays this to everybody, also to an agent that declines in that round or sends garbage.
    """

    cost: Cost
    wait: int = 2
    variance: float = 10.0

    name = "late-extra"
    needs = frozenset({Need.COSTS, Need.OTHERS})

    def init(self, num_agents: int) -> LateState:
        return LateState(np.zeros(num_agents), np.zeros(num_agents))

    def pay(self, state: LateState, round: Round) -> tuple[Payments, Any]:
        rule, xp = OutputAgreement(self.cost, KnownVariance(self.variance)), namespace(round.evidence.squared_deviation)
        plain, _ = rule.pay(NoState(), round)
        played = xp.max(state.rounds)
        waiting = (plain.status == Status.PAID.value) & (played < self.wait)
        status = xp.where(waiting, Status.WAITING.value, plain.status)
        cost = float(self.cost(round.request))
        due = xp.where(played == self.wait, state.owed, 0.0)
        reward = xp.where(waiting, cost, plain.released) + due
        owed = state.owed - due + xp.where(waiting, plain.released - cost, 0.0)
        shown = (xp.where(waiting, xp.nan, part) for part in plain[2:5])
        return Payments(reward, reward, *shown, status=status), LateState(state.rounds * 0 + played + 1, owed)
