"""What happens to a reward: how much reaches the agent, and what happens to a negative one.

    carry    a negative reward waits and is netted against the agent's later rewards and payouts
    deposit  a negative reward is charged: to the balance, then to the deposit; what neither covers is cut
    floor    limited liability: a negative reward is cut at zero

A cut is recorded with the payment. It raises the expected pay above what the rule makes it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from guerdon.ledger.money import MOST_PLACES
from guerdon.ledger.tables import BANK, PAYABLE, TREASURY


class Standing(NamedTuple):
    """What each agent's accounts hold before the round, in micro-units; `carried` is at most 0."""

    agent: Any
    deposit: Any
    carried: Any


# Which of them a liability needs, so that nothing else is read.
LOOKED_AT = {"carry": ("carried",), "deposit": ("agent", "deposit"), "floor": ()}


class Flows(NamedTuple):
    """What moves for each agent, all at least 0: from the treasury to the agent, and from the agent to the treasury."""

    to_agent: Any
    to_escrow: Any
    to_carried: Any
    from_agent: Any
    from_deposit: Any
    from_carried: Any
    cut: Any


def settle(liability: str, amount: Any, held: Any, standing: Standing) -> Flows:
    """Return what moves for rewards of `amount`; up to `held` of each gain goes to escrow.

    >>> no = np.array([0])
    >>> settle("deposit", np.array([-5]), no, Standing(np.array([3]), np.array([1]), no))._asdict()["cut"]
    array([1])
    """
    gain, loss, nothing = np.maximum(amount, 0), np.maximum(-amount, 0), np.zeros_like(amount)
    repaid = from_agent = from_deposit = from_carried = cut = nothing
    if liability == "carry":
        repaid, from_carried = np.minimum(gain, -standing.carried), loss
    elif liability == "deposit":
        from_agent = np.minimum(loss, standing.agent)
        from_deposit = np.minimum(loss - from_agent, standing.deposit)
        cut = loss - from_agent - from_deposit
    else:
        cut = loss
    escrow = np.minimum(gain - repaid, held)
    return Flows(gain - repaid - escrow, escrow, repaid, from_agent, from_deposit, from_carried, cut)


def lines(flows: Flows, accounts: Mapping[str, Any]) -> Any:
    """Return the entries of a round as an array (lines, 3): source, target, amount; amounts of 0 are left out.

    `accounts`: the numbers of the agents' own accounts, by kind.
    """
    pieces: list[Any] = [np.empty((0, 3), dtype=np.int64)]
    for name, amount in flows._asdict().items():
        direction, _, kind = name.partition("_")
        where = amount.nonzero()[0]
        if where.size and kind:
            own, treasury = accounts[kind][where], np.full(where.size, TREASURY)
            ends = (treasury, own) if direction == "to" else (own, treasury)
            pieces.append(np.stack([*ends, amount[where]], axis=1))
    return np.concatenate(pieces)


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
