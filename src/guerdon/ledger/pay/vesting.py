"""Pay that is held for some rounds (`guerdon.terms.Vesting`): what of it a later loss can still claim, and what not.

In a run that holds pay for V rounds, what a member is paid goes into its held account of the run. In every round of
its own

    1. a loss is met from what is held (the oldest first), then as the run's terms say;
    2. what it was paid V rounds of its own ago, and is left of it, is released: no loss takes it any more;
    3. but in all no more is released than the work of these rounds cost.

So a name that leaves before it has worked V rounds takes nothing, and what is earned above the cost stays as a stake.
When the run is closed the rest is released: up to the cost to every member that stayed. Beyond it, as far as the run
pays no more than all its work cost, or the losses of others were met. Else a name that sends garbage, and leaves its
loss behind, would raise what the operator pays.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from guerdon.ledger.pay.losses import Flows, Standing, settle


class Vested(NamedTuple):
    """Of a run's members, in micro-units. The last V rounds of each are columns, the oldest first."""

    held: Any
    waiting: Any  # (members, V): what was held for each of these rounds when it was paid
    costs: Any  # (members, V): what the work of these rounds cost
    allowance: Any  # the cost of earlier rounds, less what was released
    carried: Any  # losses that were carried, less what was repaid by later rewards of this run
    last: Any  # number of the last round that it was paid for
    open: Any  # how many such rounds there were since the run was last closed for it


class Played(NamedTuple):
    """What a round was for each member: whether its work was paid, what it cost; and the round's number.

    `is_last`: whether the run ends with it. `moment`: when it was recorded, in whole seconds since 1970.
    """

    paid: Any
    cost: Any
    number: int
    is_last: bool = False
    moment: int = 0


def begin(members: int, rounds: int) -> Vested:
    """Return the state before the first round, in a run that holds pay for so many `rounds`."""
    nothing, columns = np.zeros(members, dtype=np.int64), np.zeros((members, rounds), dtype=np.int64)
    return Vested(nothing, columns, columns, nothing, nothing, nothing, nothing)


def joined(state: Vested, members: int) -> Vested:
    """Return the state with members that are new in the last places."""
    new = begin(members - len(state.held), state.waiting.shape[1])
    return Vested(*(np.concatenate(parts) for parts in zip(state, new, strict=True)))


def settle_round(losses: str, amount: Any, standing: Standing, state: Vested, played: Played) -> tuple[Flows, Vested]:
    """Return what moves for the rewards of a round, and the state after it."""
    flows = settle(losses, amount, standing._replace(held=state.held))
    after = advance(state, flows, played)
    due = np.maximum(np.minimum(after.held - after.waiting.sum(axis=1), after.allowance), 0)
    return flows._replace(released=due), take(after, due)


def advance(state: Vested, flows: Flows, played: Played) -> Vested:
    """Return the state after a round in which so much moved, before anything is released."""
    paid, cost, number = played.paid, played.cost, played.number
    entering = flows.to_held
    waiting, costs = (
        np.where(paid[:, None], np.concatenate([old[:, 1:], np.zeros_like(old[:, :1]) + new[:, None]], axis=1), old)
        for old, new in ((state.waiting, entering), (state.costs, np.full_like(entering, cost)))
    )
    # What is settled of earlier rounds, for a member that was not paid for this one: it waits with its newest pay.
    waiting[:, -1] += np.where(paid, 0, entering)
    return Vested(
        state.held + entering - flows.from_held, waiting, costs,
        state.allowance + np.where(paid, state.costs[:, 0], 0),
        state.carried + flows.from_carried - flows.to_carried,
        np.where(paid, number, state.last), state.open + paid,
    )  # fmt: skip


def take(state: Vested, amounts: Any) -> Vested:
    """Return the state after so much was released."""
    return state._replace(held=state.held - amounts, allowance=state.allowance - amounts)


def ended(state: Vested, places: Sequence[int]) -> Vested:
    """Return the state in which a run was closed for the members in these places."""
    return state._replace(open=np.where(np.isin(np.arange(len(state.open)), places), 0, state.open))


def closing(state: Vested, carried: Any, chosen: Any) -> Any:
    """Return what is released to the `chosen` members when their run is closed; `carried` (at most 0): what each owes.

    Their work is paid up to its cost. What they earned beyond it stays held as far as the whole run would pay more
    than all its work cost, because of losses that are still carried. Done again, it moves what was met since.

    >>> state = begin(3, 1)._replace(held=np.array([18, 18, 0]), carried=np.array([0, 0, 12]))
    >>> closing(state._replace(allowance=np.array([9, 9, 9])), np.array([0, 0, -12]), np.array([True, True, False]))
    array([13, 14,  0])
    """
    missing = state.allowance + state.costs.sum(axis=1)  # to the cost of all that it did
    base = np.where(chosen, np.clip(missing, 0, state.held), 0)
    beyond = [int(part) for part in np.where(chosen, state.held - base, 0)]  # Python's own: no overflow
    total, over = sum(beyond), int((state.held - missing).sum())
    unmet = int(np.minimum(np.maximum(state.carried, 0), -carried).sum())
    funded = max(total - max(min(over, unmet), 0), 0)
    sums = [0, *(part * funded // max(total, 1) for part in accumulate(beyond))]
    return base + np.diff(np.array(sums, dtype=np.int64))


def stayed(state: Vested, founding: Any, deposit: int, last: int) -> Any:
    """Tell which members a run that is closed after round `last` settles by itself.

    Those that were paid for one of its last V rounds, if they were there from its beginning or had to leave a deposit.
    Any others the operator must name: else it would pay to join late, and to stay only if one is ahead.
    """
    return (founding | (deposit > 0)) & (state.last > last - state.waiting.shape[1])


def next_release(state: Vested, place: int) -> tuple[int, int]:
    """Return after how many more rounds of its own the next part of one member's pay is released, and how much.

    That is if no loss takes it. No rounds: what is left waits for the end of the run.
    """
    held, waiting, costs = int(state.held[place]), state.waiting[place], state.costs[place]
    left, allowance = held - int(waiting.sum()), int(state.allowance[place])
    for rounds, (came, cost) in enumerate(zip(waiting.tolist(), costs.tolist(), strict=True), 1):
        left, allowance = left + came, allowance + cost
        if min(left, allowance) > 0:
            return rounds, min(left, allowance)
    return 0, 0
