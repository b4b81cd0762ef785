"""What agents were paid for their work against what it costs: a mean per round, with an interval."""

from math import sqrt
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, cast, func, select

from guerdon._quantiles import student_quantile
from guerdon.ledger.books import tables
from guerdon.ledger.books.money import MICRO
from guerdon.ledger.pay.recorded_rules import restored_cost
from guerdon.ledger.read.queries import FACTOR, OF_PAYMENT, PAID, need_run
from guerdon.rule import Status

ABSENT = (Status.DECLINED.label, Status.INVALID.label)  # of all others, the work was done


class Earnings(NamedTuple):
    """An agent's rounds in which it sent something usable, paid or not; the sums are in units.

    What it got in other rounds is the extra of these: it is in `paid`, and counts for each of them alike. Under looks
    `paid` is what the rounds gave, also while it is held; `forfeited` is what failed looks took of it.
    """

    agent: str
    number: int
    rounds: int
    paid: float  # less losses; what of them was waived is none
    cost: float  # of the samples that were asked for, to this agent
    squares: float  # of each round's profit, about 0
    forfeited: float = 0.0

    @property
    def pay(self) -> float:
        """The mean pay of a round."""
        return self.paid / self.rounds

    @property
    def round_cost(self) -> float:
        """The mean cost of a round."""
        return self.cost / self.rounds

    @property
    def margin(self) -> float | None:
        """How far the mean of many more rounds may lie from `pay`, with 95 % confidence; None after one round."""
        if self.rounds < 2:
            return None
        profit = self.pay - self.round_cost
        variance = max(self.squares - self.rounds * profit**2, 0.0) / (self.rounds - 1)
        return student_quantile(0.975, self.rounds - 1) * sqrt(variance / self.rounds)

    @property
    def words(self) -> str:
        """Pay against cost in one line."""
        about = "" if self.margin is None else f" ± {self.margin:.2g} (95 %)"
        words = f"paid {self.pay:.4g}{about} a round for work that costs {self.round_cost:.4g}, in {self.rounds} rounds"
        return words + (f"; failed looks forfeited {self.forfeited:.4g}" if self.forfeited else "")


def earnings(connection: Connection, run: str | None = None) -> list[Earnings]:
    """Return, for each agent that took part in any round (of one run, or of all), pay against cost, by name.

    An agent that declined, or sent nothing usable, has no part in a round. A rule that asks agents for different
    numbers of samples asks each for as many as all on the mean, so the round's own request stands for its cost.
    """
    paid, played, agent = tables.payments.c, tables.rounds.c, tables.agents.c
    got = cast(PAID, tables.Real) / float(MICRO)
    columns = (agent.name, agent.id, played.cost, played.request, FACTOR)
    query = select(*columns, func.count(), func.sum(got), func.sum(got * got)).where(paid.status.not_in(ABSENT))
    joined = tables.payments.join(tables.rounds).join(tables.agents, paid.agent == agent.id)
    query = query.select_from(joined.outerjoin(tables.cost_factors, OF_PAYMENT))
    query = query if run is None else query.where(played.run == need_run(connection, run).id)
    found: dict[str, Earnings] = {}
    for name, number, cost, request, factor, rounds, *sums in connection.execute(query.group_by(*columns)):
        price = float(np.asarray(restored_cost(cost)(request))) * (factor / MICRO)
        total, squares = float(sums[0]), float(sums[1])
        about = squares - 2 * price * total + rounds * price**2
        known = found.get(name, Earnings(name, number, 0, 0.0, 0.0, 0.0))
        sums = (known.rounds + rounds, known.paid + total, known.cost + rounds * price, known.squares + about)
        found[name] = Earnings(name, number, *sums)
    for name, late in _paid_late(connection, run).items():
        if name in found:
            found[name] = _with_extra(found[name], late)
    lost = _forfeited(connection, run)
    return [found[name]._replace(forfeited=lost.get(found[name].number, 0.0)) for name in sorted(found)]


def _forfeited(connection: Connection, run: str | None) -> dict[int, float]:
    """Return what failed looks took of agents, by number, in units."""
    own = tables.settled.c
    query = select(own.agent, func.sum(own.forfeited)).group_by(own.agent)
    query = query if run is None else query.where(own.run == need_run(connection, run).id)
    return {agent: float(amount) / MICRO for agent, amount in connection.execute(query)}


def _paid_late(connection: Connection, run: str | None) -> dict[str, float]:
    """Return what agents were paid in rounds in which they did no work, in units: the extra of earlier ones."""
    paid, agent = tables.payments.c, tables.agents.c
    query = select(agent.name, func.sum(PAID)).select_from(tables.payments.join(tables.rounds))
    query = query.join(tables.agents, paid.agent == agent.id).where(paid.status.in_(ABSENT), paid.released != 0)
    query = query if run is None else query.where(tables.rounds.c.run == need_run(connection, run).id)
    return {name: float(amount) / MICRO for name, amount in connection.execute(query.group_by(agent.name))}


def _with_extra(row: Earnings, late: float) -> Earnings:
    """Return earnings with so much more, in equal parts for every round: the spread over rounds stays as it is."""
    each, profit = late / row.rounds, row.paid - row.cost
    return row._replace(paid=row.paid + late, squares=row.squares + 2 * each * profit + row.rounds * each**2)
