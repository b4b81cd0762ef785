"""What a run holds of its members' pay, why, and until when: by the `hold` of its terms.

Held pay lies in an account: each member has one in every run that holds pay, and one for what was held by hand. So what
is held, and why, is the balance of these accounts. When it is released follows from a state that every record of the
run leads on. It is kept beside the ledger's balances, so that nobody has to go through all rounds again; `verify` does.
"""

import json
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from sqlalchemy import Connection, insert, select

from guerdon.canonical import canonical
from guerdon.ledger.books import tables
from guerdon.ledger.books.errors import RefusedError, UnavailableError
from guerdon.ledger.books.money import format_amount
from guerdon.ledger.pay import vesting
from guerdon.ledger.pay.losses import Flows, Standing, settle
from guerdon.ledger.pay.recorded_terms import terms_of
from guerdon.ledger.pay.vesting import Played, Vested
from guerdon.looks import periods
from guerdon.looks.periods import Watched
from guerdon.terms import AtOnce, Hold, Looks, Terms, Vesting

Holding: TypeAlias = Vested | Watched

ALTERED = (
    "until when the pay of run number {} is held was not kept as it was written, so nothing was recorded: a trigger or "
    "a rule of the database interferes; `guerdon ledger verify` says whether its tables were altered"
)


class HeldPeriod(NamedTuple):
    """What looks hold of a member for one period: its first and last paid round, and the amount in micro-units.

    `ends`: the round whose looks decide about it; None where the period has ended. `looks`: how many of its looks are
    open.
    """

    first: int
    last: int
    amount: int
    ends: int | None
    looks: int

    @property
    def until(self) -> str:
        """Until when it is held, in words."""
        if self.ends is not None:
            return f"until the looks of round {self.ends}"
        if not self.looks:
            return "until the coins of its rounds are drawn, which say what is looked at"
        return "until one open look is decided" if self.looks == 1 else f"until {self.looks} open looks are decided"

    @property
    def rounds(self) -> str:
        """Its rounds, in words."""
        return f"round {self.first}" if self.first == self.last else f"rounds {self.first} to {self.last}"


class Held(NamedTuple):
    """What is held of an agent in one account, in micro-units; and when the next part of it is released, if none is
    taken: after so many more `rounds` of its own. No rounds: only something else than rounds releases it.

    `periods`: where looks decide about it, what is held for each period.
    """

    run: str | None  # None: it was held by hand
    amount: int
    rounds: int
    next: int
    periods: tuple[HeldPeriod, ...] = ()

    @property
    def words(self) -> str:
        """Why it is held, and until when, in words."""
        if self.run is None:
            return f"{format_amount(self.amount)} held by hand, until somebody releases it"
        held = f"{format_amount(self.amount)} held in run {self.run}"
        if len(self.periods) == 1:
            return f"{held} for {self.periods[0].rounds}, {self.periods[0].until}"
        if self.periods:
            parts = [f"{format_amount(one.amount)} for {one.rounds}, {one.until}" for one in self.periods]
            return f"{held}: {'; '.join(parts)}"
        if not self.rounds:
            return f"{held}: it waits for the end of the run"
        more = "one more round" if self.rounds == 1 else f"{self.rounds} more rounds"
        return f"{held}; {format_amount(self.next)} of it is released after {more} of its own, unless a loss takes it"


def begin(hold: Hold | None, members: int) -> Holding | None:
    """Return the state of a run before its first round; None: it holds nothing."""
    if isinstance(hold, Looks):
        return periods.begin(members)
    return vesting.begin(members, hold.rounds) if isinstance(hold, Vesting) else None


def joined(state: Holding | None, members: int) -> Holding | None:
    """Return the state with members that are new in the last places."""
    if isinstance(state, Watched):
        return periods.joined(state, members)
    return None if state is None else vesting.joined(state, members)


def settle_round(
    terms: Terms, amount: Any, standing: Standing, state: Holding | None, played: Played
) -> tuple[Flows, Holding | None]:
    """Return what moves for the rewards of a round, and the state after it."""
    if state is None:
        return settle(terms.losses, amount, standing), None
    if isinstance(state, Watched):
        return _hold_all(terms, amount, standing, state, played)
    return vesting.settle_round(terms.losses, amount, standing, state, played)


def _hold_all(
    terms: Terms, amount: Any, standing: Standing, state: Watched, played: Played
) -> tuple[Flows, Holding | None]:
    """Return what moves where looks hold all pay: none of it repays a loss before it is released."""
    if (amount < 0).any() or not isinstance(terms.hold, Looks):
        raise RefusedError("pay that looks hold must not be negative: pay flat, `FlatPay(cost)`")
    unowed = standing._replace(carried=np.zeros_like(amount), held=state.held)
    flows, (number, is_last, moment) = settle("carry", amount, unowed), played[2:]
    after = periods.after_round(state, terms.hold, number, amount.tolist(), moment, is_last=is_last)
    return flows, after


def load(connection: Connection, run: int, terms: Terms) -> Holding | None:
    """Return the state of a run after its last record; None: it holds nothing."""
    hold = terms.hold
    if hold is None or isinstance(hold, AtOnce):
        return None
    table, played = tables.holdings, tables.rounds.c
    text = connection.execute(select(table.c.text).where(table.c.run == run)).scalar_one_or_none()
    if text is not None:
        return from_text(text, hold)
    if connection.execute(select(played.record).where(played.run == run).limit(1)).first():
        raise UnavailableError(f"until when the pay of run number {run} is held is gone; run `guerdon ledger verify`")
    return begin(hold, 0)


def save(connection: Connection, run: int, state: Holding | None) -> None:
    """Keep the state of a run in place of the one before; raise where the database keeps another."""
    if state is None:
        return
    table, text = tables.holdings, to_text(state)
    connection.execute(table.delete().where(table.c.run == run))
    connection.execute(insert(table), {"run": run, "text": text})
    if connection.execute(select(table.c.text).where(table.c.run == run)).scalars().all() != [text]:
        raise UnavailableError(ALTERED.format(run))


def to_text(state: Holding) -> str:
    """Return a state as it is kept: whole numbers by name."""
    if isinstance(state, Watched):
        return canonical(periods.to_plain(state))
    return canonical({name: part.tolist() for name, part in state._asdict().items()})


def from_text(text: str, hold: Vesting | Looks) -> Holding:
    """Return the state that was kept."""
    if isinstance(hold, Looks):
        return periods.from_plain(json.loads(text))
    found: dict[str, Any] = {name: np.array(part, dtype=np.int64) for name, part in json.loads(text).items()}
    wide = {name: found[name].reshape(-1, hold.rounds) for name in ("waiting", "costs")}  # also of nobody
    return Vested(**found | wide)


def held_of(connection: Connection, agent: int) -> list[Held]:
    """Return what is held of an agent, account by account, and when the next part of it is released."""
    account, member, found = tables.accounts.c, tables.members.c, list[Held]()
    own = select(account.run, account.balance).where(account.owner == agent, account.kind == "held")
    runs = {row.id: row for row in connection.execute(select(tables.runs.c.id, tables.runs.c.name))}
    for run, amount in connection.execute(own.order_by(account.id)):
        if not amount:
            continue
        if run is None:
            found.append(Held(None, amount, 0, 0))
            continue
        terms = terms_of(connection, run)
        state = load(connection, run, terms)
        query = select(member.position).where(member.run == run, member.agent == agent)
        place = connection.execute(query).scalar_one()
        if isinstance(state, Watched):
            found.append(Held(runs[run].name, amount, 0, 0, held_periods(state, terms, place)))
            continue
        due = (0, 0) if state is None else vesting.next_release(state, place)
        found.append(Held(runs[run].name, amount, *due))
    return found


def held_periods(state: Watched, terms: Terms, place: int) -> tuple[HeldPeriod, ...]:
    """Return what looks hold of the member at a place, period by period, the oldest first."""
    hold, found = terms.hold, list[HeldPeriod]()
    if not isinstance(hold, Looks):
        return ()
    for one in state.members[place]:
        ends = None if one.ended else hold.end_of_period(one.last, one.first if state.first is None else state.first)
        found.append(HeldPeriod(one.first, one.last, one.weight, ends, len(one.looks)))
    return tuple(found)
