"""What moves for a reward: how much reaches the agent, and what becomes of a negative one (`Terms.losses`).

    carry    a negative reward waits and is netted against the agent's later rewards and payouts
    deposit  a negative reward is charged: to the balance, then to the deposit; what neither covers is cut
    floor    limited liability: a negative reward is cut at zero

A cut is recorded with the payment. It raises the expected pay above what the rule makes it.

In a run that holds pay (`guerdon.ledger.pay.holding`) a loss is first met from what the run holds of the agent. What is
in the balance stays there: a deposit is charged next, and what that does not cover is carried, not cut.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from guerdon.ledger.books.money import MOST_PLACES
from guerdon.ledger.books.tables import BANK, PAYABLE, TREASURY

NO_LINES = np.empty((0, 3), dtype=np.int64)


class Standing(NamedTuple):
    """What each agent's accounts hold before the round, in micro-units; `carried` is at most 0.

    `held` is what the run holds of it, and a loss can claim; None where the run holds no pay.
    """

    agent: Any
    deposit: Any
    carried: Any
    held: Any = None


# Which of them each way to cover losses needs, so that nothing else is read.
LOOKED_AT = {"carry": ("carried",), "deposit": ("agent", "deposit", "carried"), "floor": ()}


class Flows(NamedTuple):
    """What moves for each agent, all at least 0: from the treasury to the agent, and from the agent to the treasury.

    `cut` moves nothing. `released` moves from what the run holds of the agent to its balance.
    """

    to_agent: Any
    to_held: Any
    to_carried: Any
    from_agent: Any
    from_deposit: Any
    from_carried: Any
    cut: Any
    from_held: Any
    released: Any


def settle(losses: str, amount: Any, standing: Standing) -> Flows:
    """Return what moves for rewards of `amount`; in a run that holds pay each gain is held.

    >>> no = np.array([0])
    >>> settle("deposit", np.array([-5]), Standing(np.array([3]), np.array([1]), no))._asdict()["cut"]
    array([1])
    """
    gain, loss, nothing = np.maximum(amount, 0), np.maximum(-amount, 0), np.zeros_like(amount)
    repaid = from_agent = from_deposit = from_carried = from_held = cut = nothing
    holds, charges = standing.held is not None, losses == "deposit"
    if holds:
        from_held = np.minimum(loss, standing.held)
        loss = loss - from_held
    if charges:
        from_agent = nothing if holds else np.minimum(loss, standing.agent)
        from_deposit = np.minimum(loss - from_agent, standing.deposit)
        loss = loss - from_agent - from_deposit
    if losses == "carry" or (charges and holds):
        repaid, from_carried = np.minimum(gain, -standing.carried), loss
    else:
        cut = loss
    to_held, to_agent = (gain - repaid, nothing) if holds else (nothing, gain - repaid)
    return Flows(to_agent, to_held, repaid, from_agent, from_deposit, from_carried, cut, from_held, nothing)


def lines(flows: Flows, accounts: Mapping[str, Any]) -> Any:
    """Return the entries of a round as an array (lines, 3): source, target, amount; amounts of 0 are left out.

    `accounts`: the numbers of the agents' accounts by kind; those of the kind "held" are the run's.
    """
    pieces = [NO_LINES]
    for name, amount in flows._asdict().items():
        direction, _, kind = name.partition("_")
        if kind in accounts:
            own, treasury = accounts[kind], np.full(len(amount), TREASURY)
            pieces.append(moved(*((treasury, own) if direction == "to" else (own, treasury)), amount))
    return np.concatenate([*pieces, released_lines(flows.released, accounts)])


def released_lines(amounts: Any, accounts: Mapping[str, Any]) -> Any:
    """Return the entries that release what a run holds of each agent to its balance."""
    return moved(accounts["held"], accounts["agent"], amounts) if "held" in accounts else NO_LINES


def moved(sources: Any, targets: Any, amounts: Any) -> Any:
    """Return the entries that move amounts between accounts; amounts of 0 are left out."""
    where = amounts.nonzero()[0]
    return np.stack([sources[where], targets[where], amounts[where]], axis=1) if where.size else NO_LINES


def freeze(accounts: Any, balances: Any, carried_accounts: Any, carried: Any, minimum: int, places: int) -> Any:
    """Return the entries of a payout: losses netted first, then whole coins of what is left, if at least `minimum`."""
    left = balances + carried
    paid = left - left % 10 ** (MOST_PLACES - places)
    chosen = (left >= minimum) & (paid > 0)
    owing = chosen & (carried < 0)
    netted = np.stack([accounts[owing], carried_accounts[owing], -carried[owing]], axis=1)
    frozen = np.stack([accounts[chosen], np.full(chosen.sum(), PAYABLE), paid[chosen]], axis=1)
    return np.concatenate([netted, frozen]).astype(np.int64)


def thaw(accounts: Any, amounts: Any, paid: Any, outcome: str) -> Any:
    """Return the entries that settle shares of a payout: all to the bank, or each back to the account it came from.

    `paid`: the shares that had left through the bank already, and come back from there.
    """
    if outcome == "paid":
        return np.array([[PAYABLE, BANK, amounts.sum()]], dtype=np.int64)
    return np.stack([np.where(paid, BANK, PAYABLE), accounts, amounts], axis=1)
