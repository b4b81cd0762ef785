"""How much must be at stake, so that a new name gains nothing by leaving its losses behind: from a run's own payments.

A name that nobody knows joins, sends something that cost it nothing, and leaves when it likes. Let R_t be its rewards
and S = ΣR. If the rule pays nothing on average for no work, S is a martingale, and at any time τ at which it leaves

    what it takes = S_τ + (losses that it leaves behind) − (pay that is held then)
    E[takes]      = E[losses left behind] − E[held pay left behind]        (with a deposit nothing is: see below)

Noise alone is worth something, then: for pay with a standard deviation σ and no stake, 0.4·σ·√k in k rounds. What a
stake leaves of it is computed here: the name's rewards are drawn from the payments of the run, centred at nothing; the
run's terms are played on them by the ledger's own code; and the best way to leave counts:
after k rounds, as soon as it is ahead, or as soon as it has lost all that it can lose. A worker gains less by it than
one who does nothing, since its mean pay keeps it out of the red.

Divided by the rounds that it played this is what a stream of such names earns a round (a renewal process). Worlds are
drawn anew from the run's rounds, to know how far the number may be off: what is reported is an upper limit, at 95 %.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from guerdon.arrays import check_number, check_positive_integer
from guerdon.ledger.books import tables
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.money import MICRO, to_micro
from guerdon.ledger.pay import holding
from guerdon.ledger.pay.losses import Standing
from guerdon.ledger.pay.recorded_rules import costs_of
from guerdon.ledger.pay.recorded_terms import micro_deposit, terms_of
from guerdon.ledger.pay.vesting import Played
from guerdon.ledger.read import queries
from guerdon.ledger.read.looked import DEPOSITS, is_looked_at
from guerdon.rule import PAID_LABELS
from guerdon.terms import LONGEST, Terms, Vesting

WORLDS, NAMES = 20, 200  # drawn from the rounds of the run; names that play in each
LIMIT = 1.73  # standard errors above a mean of so many worlds: 95 %, one-sided (Student's t)
FEWEST = 100  # payments to judge by
SEED = 0


class Stake(NamedTuple):
    """What a new name that does nothing earns a round at most on some terms, in micro-units; and when it leaves."""

    terms: Terms
    earns: int
    how: str

    @property
    def words(self) -> str:
        """What is at stake, in words."""
        hold, deposit = self.terms.hold, self.terms.deposit
        held = f"pay held for {hold.rounds} rounds" if isinstance(hold, Vesting) else "pay at once"
        return f"{self.terms.losses}, {held}" + (f", deposit {deposit:,.0f}" if deposit else "")


class Stakes(NamedTuple):
    """What was measured in a run, what a new name could earn in it, and what would be enough at a level."""

    run: str
    payments: int
    cost: int  # of the last round, in micro-units
    spread: float  # standard deviation of pay, in costs
    rounds: int  # that a name plays at most
    level: float  # of the cost, that it may earn a round
    now: Stake
    usual: Stake  # pay is held as long as where nothing is said
    holding: Stake | None  # the shortest that is enough; None: none up to `LONGEST` or `rounds` is
    deposit: Stake | None  # the least that is enough where pay is held for one round

    @property
    def enough(self) -> bool:
        """Whether what is at stake now is enough."""
        return self.now.earns <= self.level * self.cost


def stakes(connection: Connection, run: str, level: float = 0.05, rounds: int = 100) -> Stakes:
    """Return what a new name can earn in a run by leaving its losses behind, and what hold or deposit ends it.

    `level`: how much of the cost of a round it may earn a round; `rounds`: how many it plays at most. Refused in a run
    under looks: there it is looks that a cheat pays for.
    """
    check_number("level", level, minimum=0, inclusive=False)
    check_positive_integer("rounds", rounds)
    found = queries.need_run(connection, run)
    if is_looked_at(connection, found.id):
        raise RefusedError(DEPOSITS.format(run=run))
    relative, cost = _payments(connection, found.id)
    rewards, terms = to_micro(cost / MICRO * _draw(relative, rounds)), terms_of(connection, found.id)
    most = level * cost

    def earned(terms: Terms) -> Stake:
        return hit_and_run(terms, rewards, cost)

    def secured(costs: int) -> Terms:
        return Terms(Vesting(1), "deposit", costs * cost / MICRO)

    longest = min(rounds, LONGEST)
    enough = least(1, longest, lambda held: earned(Terms(Vesting(held))).earns <= most)
    amount = least(1, 1000, lambda costs: earned(secured(costs)).earns <= most)
    spread = float(np.std(np.concatenate(relative)))
    return Stakes(
        run, sum(map(len, relative)), cost, spread, rounds, level, earned(terms), earned(Terms(Vesting())),
        None if enough is None else earned(Terms(Vesting(enough))),
        None if amount is None else earned(secured(amount)),
    )  # fmt: skip


def least(first: int, last: int, enough: Callable[[int], bool]) -> int | None:
    """Return the least integer that is `enough`, if the last one is; more is always enough too.

    >>> least(1, 100, lambda x: x * x > 50)
    8
    """
    if not enough(last):
        return None
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if enough(middle) else (middle + 1, last)
    return last


def hit_and_run(terms: Terms, rewards: Any, cost: int) -> Stake:
    """Return what names earn a round at most, given their rewards (worlds, names, rounds) in micro-units."""
    worlds, names, rounds = rewards.shape
    flat = rewards.reshape(worlds * names, rounds)
    (takes, broke), sums = take_home(terms, flat, cost), flat.cumsum(axis=1)
    leaving = {f"after {k} round{'s' * (k > 1)}": np.full(worlds * names, k) for k in _horizons(rounds)}
    leaving |= {
        "as soon as it is ahead": _first(takes > 0, rounds),
        "as soon as it has nothing to lose": _first(broke, rounds),
        "as soon as it is ahead or has nothing to lose": _first((takes > 0) | broke, rounds),
    }
    best, how = -np.inf, ""
    for name, played in leaving.items():
        gained = _less_noise(*(np.take_along_axis(x, played[:, None] - 1, axis=1)[:, 0] for x in (takes, sums)))
        gains, counts = (part.reshape(worlds, names).sum(axis=1) for part in (gained, played))
        ratio = gains / counts
        limit = ratio.mean() + LIMIT * ratio.std(ddof=1)
        best, how = (limit, name) if limit > best else (best, how)
    return Stake(terms, round(float(best)), how)


def _less_noise(takes: Any, sums: Any) -> Any:
    """Return what was taken, less the part that goes with S, whose mean is known to be 0 (a control variate)."""
    apart = sums - sums.mean()
    variance = float((apart * apart).mean())
    part = float((apart * takes).mean()) / variance if variance > 0 else 0.0
    return takes - part * sums


def take_home(terms: Terms, rewards: Any, cost: int) -> tuple[Any, Any]:
    """Return what names (rows) would have in hand if they left after each round (columns), and who has nothing to lose.

    In hand is what was paid out less what was taken of the deposit. Whatever can be paid out is, after every round. A
    name with a deposit asks to have the run closed for it, and gets what is held, too.
    """
    count, rounds = rewards.shape
    nothing, everyone = np.zeros(count, dtype=np.int64), np.ones(count, dtype=bool)
    state, asked = holding.begin(terms.hold, count), micro_deposit(terms)
    deposit, carried, out = nothing + asked, nothing, nothing
    takes, broke = np.zeros(rewards.shape, dtype=np.int64), np.zeros(rewards.shape, dtype=bool)
    for column in range(rounds):
        standing, played = Standing(nothing, deposit, carried), Played(everyone, cost, column + 1)
        flows, state = holding.settle_round(terms, rewards[:, column], standing, state, played)
        carried, deposit = carried + flows.to_carried - flows.from_carried, deposit - flows.from_deposit
        out = out + flows.to_agent + flows.released
        left = state.held if state is not None and asked else 0
        takes[:, column] = out + left - (asked - deposit)
        broke[:, column] = (deposit == 0) & ((carried < 0) | (flows.cut > 0))
    return takes, broke


def _first(when: Any, rounds: int) -> Any:
    """Return the first round in which something is so; else the last."""
    return np.where(when.any(axis=1), when.argmax(axis=1) + 1, rounds)


def _horizons(rounds: int) -> list[int]:
    return sorted({k for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, rounds) if k <= rounds})


def _draw(relative: list[Any], rounds: int) -> Any:
    """Return rewards of names in worlds, in costs: rounds of the run drawn for each world, payments for each name."""
    rng = np.random.default_rng(SEED)
    drawn = np.empty((WORLDS, NAMES, rounds))
    for world in range(WORLDS):
        chosen = np.concatenate([relative[place] for place in rng.integers(len(relative), size=len(relative))])
        drawn[world] = rng.choice(chosen - chosen.mean(), size=(NAMES, rounds))
    return drawn


def _payments(connection: Connection, run: int) -> tuple[list[Any], int]:
    """Return rewards round by round, each in its agent's own cost, and the common cost of the last, in micro-units."""
    paid, played, found = tables.payments.c, tables.rounds.c, list[Any]()
    cost = 0
    for row in connection.execute(select(tables.rounds).where(played.run == run).order_by(played.number)).all():
        own = tables.payments.join(tables.rounds).outerjoin(tables.cost_factors, queries.OF_PAYMENT)
        rewards = select(paid.released, queries.FACTOR).select_from(own)
        counts = paid.status.in_(PAID_LABELS) | (paid.released != 0)
        mine = rewards.where(paid.record == row.record, counts).order_by(paid.position)
        amounts, factors = np.array([tuple(one) for one in connection.execute(mine)], dtype=np.float64).reshape(-1, 2).T
        amounts, cost = amounts / (factors / MICRO), int(costs_of(row.cost, row.request, 1.0))
        found += [amounts / cost] if amounts.size and cost > 0 else []
    if sum(map(len, found)) < FEWEST or cost <= 0:
        count = sum(map(len, found))
        raise RefusedError(
            f"there are {count} payments to judge by, and it takes {FEWEST}: ask again after more rounds"
        )
    return found, cost
