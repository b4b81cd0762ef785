"""What of the pay of a run can still be claimed by a later loss, and what is the agent's for good.

In a run with `vesting` V what an agent earns is unvested at first: it waits in escrow. In every round of its own

    1. a loss is met from what is unvested (the oldest first), then as the run's liability says;
    2. what it earned V rounds of its own ago, and is left of it, vests: it moves to the balance, and no loss takes it;
    3. but in all no more vests than the work of these rounds cost.

So a name that leaves before it has worked V rounds takes nothing, and what is earned above the cost stays as a stake.
When the run is closed the rest vests: up to the cost to every agent that stayed. Beyond it, as far as the run pays no
more than all its work cost, or the losses of others were met. Else a name that sends garbage, and leaves its loss
behind, would raise what the operator pays.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from guerdon.ledger.liability import Flows, Standing, settle
from guerdon.ledger.money import format_amount

ROUNDS = 20  # of an agent, until its pay vests, unless the operator says otherwise
MOST_ROUNDS = 1000


class Vesting(NamedTuple):
    """Of a run's agents, in micro-units. The last V rounds of each are columns, the oldest first."""

    unvested: Any
    waiting: Any  # (agents, V): what became unvested in each of these rounds
    costs: Any  # (agents, V): what the work of these rounds cost
    allowance: Any  # the cost of earlier rounds, less what has vested
    carried: Any  # losses that were carried, less what was repaid by later rewards of this run
    last: Any  # number of the last round that it was paid for
    open: Any  # how many such rounds there were since the run was last closed for it


class Waiting(NamedTuple):
    """What is unvested of one agent in one run, and the next part that vests if there are no losses: when, how much."""

    run: str
    amount: int
    rounds: int  # more of its own; 0: what is left waits for the end of the run
    next: int

    @property
    def words(self) -> str:
        """When the next part vests, in words."""
        if not self.rounds:
            return f"{format_amount(self.amount)} unvested in run {self.run}: it waits for the end of the run"
        more = "one more round" if self.rounds == 1 else f"{self.rounds} more rounds"
        part = f"{format_amount(self.next)} of it vests after {more} of its own, unless a loss takes it"
        return f"{format_amount(self.amount)} unvested in run {self.run}; {part}"


def begin(num_agents: int, rounds: int) -> Vesting:
    """Return the state before the first round, in a run where pay vests after so many `rounds`."""
    nothing, columns = np.zeros(num_agents, dtype=np.int64), np.zeros((num_agents, rounds), dtype=np.int64)
    return Vesting(nothing, columns, columns, nothing, nothing, nothing, nothing)


def joined(vesting: Vesting, num_agents: int) -> Vesting:
    """Return the state with agents that are new in the last places."""
    new = begin(num_agents - len(vesting.unvested), vesting.waiting.shape[1])
    return Vesting(*(np.concatenate(parts) for parts in zip(vesting, new, strict=True)))


def settle_round(
    liability: str, amount: Any, held: Any, standing: Standing, vesting: Vesting | None, played: tuple[Any, Any, int]
) -> tuple[Flows, Vesting | None]:
    """Return what moves for the rewards of a round, and what is unvested after it (None: in this run nothing vests).

    `played`: who was paid for the round, what its work cost (each), and its number.
    """
    if vesting is None:
        return settle(liability, amount, held, standing), None
    flows = settle(liability, amount, held, standing._replace(unvested=vesting.unvested))
    after = advance(vesting, flows, held, played)
    due = np.maximum(np.minimum(after.unvested - after.waiting.sum(axis=1), after.allowance), 0)
    return flows._replace(vested=due), take(after, due)


def advance(vesting: Vesting, flows: Flows, held: Any, played: tuple[Any, Any, int]) -> Vesting:
    """Return the state after a round in which so much moved, before anything vests."""
    paid, cost, number = played
    entering = flows.to_escrow - np.minimum(flows.to_escrow, held)  # the rest waits for the audit
    waiting, costs = (
        np.where(paid[:, None], np.concatenate([old[:, 1:], np.zeros_like(old[:, :1]) + new[:, None]], axis=1), old)
        for old, new in ((vesting.waiting, entering), (vesting.costs, np.full_like(entering, cost)))
    )
    # What is settled of earlier rounds, for an agent that was not paid for this one: it waits with its newest pay.
    waiting[:, -1] += np.where(paid, 0, entering)
    return Vesting(
        vesting.unvested + entering - flows.from_escrow, waiting, costs,
        vesting.allowance + np.where(paid, vesting.costs[:, 0], 0),
        vesting.carried + flows.from_carried - flows.to_carried,
        np.where(paid, number, vesting.last), vesting.open + paid,
    )  # fmt: skip


def take(vesting: Vesting, amounts: Any) -> Vesting:
    """Return the state after so much has vested."""
    return vesting._replace(unvested=vesting.unvested - amounts, allowance=vesting.allowance - amounts)


def ended(vesting: Vesting, places: Sequence[int]) -> Vesting:
    """Return the state in which a run was closed for the agents in these places."""
    return vesting._replace(open=np.where(np.isin(np.arange(len(vesting.open)), places), 0, vesting.open))


def closing(vesting: Vesting, carried: Any, chosen: Any) -> Any:
    """Return what vests of the `chosen` agents when their run is closed; `carried` (at most 0) is what each owes now.

    Their work is paid up to its cost. What they earned beyond it stays unvested as far as the whole run would pay more
    than all its work cost, because of losses that are still carried. Done again, it moves what was met since.

    >>> vesting = begin(3, 1)._replace(unvested=np.array([18, 18, 0]), carried=np.array([0, 0, 12]))
    >>> closing(vesting._replace(allowance=np.array([9, 9, 9])), np.array([0, 0, -12]), np.array([True, True, False]))
    array([13, 14,  0])
    """
    missing = vesting.allowance + vesting.costs.sum(axis=1)  # to the cost of all that it did
    base = np.where(chosen, np.clip(missing, 0, vesting.unvested), 0)
    beyond = [int(part) for part in np.where(chosen, vesting.unvested - base, 0)]  # Python's own: no overflow
    total, over = sum(beyond), int((vesting.unvested - missing).sum())
    unmet = int(np.minimum(np.maximum(vesting.carried, 0), -carried).sum())
    funded = max(total - max(min(over, unmet), 0), 0)
    sums = [0, *(part * funded // max(total, 1) for part in accumulate(beyond))]
    return base + np.diff(np.array(sums, dtype=np.int64))


def stayed(vesting: Vesting, founding: Any, deposit: int, last: int) -> Any:
    """Tell which agents a run that is closed after round `last` settles by itself.

    Those that were paid for one of its last V rounds, if they were there from its beginning or had to leave a deposit.
    Any others the operator must name: else it would pay to join late, and to stay only if one is ahead.
    """
    return (founding | (deposit > 0)) & (vesting.last > last - vesting.waiting.shape[1])


def next_part(vesting: Vesting, run: str, place: int) -> Waiting:
    """Return what is unvested of one agent, and what of it vests next if no loss takes it."""
    unvested, waiting, costs = (int(vesting.unvested[place]), vesting.waiting[place], vesting.costs[place])
    left, allowance = unvested - int(waiting.sum()), int(vesting.allowance[place])
    for rounds, (came, cost) in enumerate(zip(waiting.tolist(), costs.tolist(), strict=True), 1):
        left, allowance = left + came, allowance + cost
        if min(left, allowance) > 0:
            return Waiting(run, unvested, rounds, min(left, allowance))
    return Waiting(run, unvested, 0, 0)
