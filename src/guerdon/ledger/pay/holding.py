"""What a run holds of its members' pay, why, and until when: by the `hold` of its terms.

Held pay lies in an account: each member has one in every run that holds pay, and one for what was held by hand. So what
is held, and why, is the balance of these accounts. When it is released follows from a state that every record of the
run leads on. It is kept beside the ledger's balances, so that nobody has to go through all rounds again; `verify` does.
"""

import json
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, insert, select

from guerdon.canonical import canonical
from guerdon.ledger.books import tables
from guerdon.ledger.books.errors import UnavailableError
from guerdon.ledger.books.money import format_amount
from guerdon.ledger.pay import vesting
from guerdon.ledger.pay.losses import Flows, Standing, settle
from guerdon.ledger.pay.recorded_terms import terms_of
from guerdon.ledger.pay.vesting import Played, Vested
from guerdon.terms import Hold, Terms, Vesting

ALTERED = (
    "until when the pay of run number {} is held was not kept as it was written, so nothing was recorded: a trigger or "
    "a rule of the database interferes; `guerdon ledger verify` says whether its tables were altered"
)


class Held(NamedTuple):
    """What is held of an agent in one account, in micro-units; and when the next part of it is released, if none is
    taken: after so many more `rounds` of its own. No rounds: only something else than rounds releases it.
    """

    run: str | None  # None: it was held by hand
    amount: int
    rounds: int
    next: int

    @property
    def words(self) -> str:
        """Why it is held, and until when, in words."""
        if self.run is None:
            return f"{format_amount(self.amount)} held by hand, until somebody releases it"
        held = f"{format_amount(self.amount)} held in run {self.run}"
        if not self.rounds:
            return f"{held}: it waits for the end of the run"
        more = "one more round" if self.rounds == 1 else f"{self.rounds} more rounds"
        return f"{held}; {format_amount(self.next)} of it is released after {more} of its own, unless a loss takes it"


def begin(hold: Hold | None, members: int) -> Vested | None:
    """Return the state of a run before its first round; None: it holds nothing."""
    return vesting.begin(members, hold.rounds) if isinstance(hold, Vesting) else None


def joined(state: Vested | None, members: int) -> Vested | None:
    """Return the state with members that are new in the last places."""
    return None if state is None else vesting.joined(state, members)


def settle_round(
    terms: Terms, amount: Any, standing: Standing, state: Vested | None, played: Played
) -> tuple[Flows, Vested | None]:
    """Return what moves for the rewards of a round, and the state after it."""
    if state is None:
        return settle(terms.losses, amount, standing), None
    return vesting.settle_round(terms.losses, amount, standing, state, played)


def load(connection: Connection, run: int, terms: Terms) -> Vested | None:
    """Return the state of a run after its last record; None: it holds nothing."""
    if not isinstance(terms.hold, Vesting):
        return None
    table, played = tables.holdings, tables.rounds.c
    text = connection.execute(select(table.c.text).where(table.c.run == run)).scalar_one_or_none()
    if text is not None:
        return from_text(text, terms.hold.rounds)
    if connection.execute(select(played.record).where(played.run == run).limit(1)).first():
        raise UnavailableError(f"until when the pay of run number {run} is held is gone; run `guerdon ledger verify`")
    return vesting.begin(0, terms.hold.rounds)


def save(connection: Connection, run: int, state: Vested | None) -> None:
    """Keep the state of a run in place of the one before; raise where the database keeps another."""
    if state is None:
        return
    table, text = tables.holdings, to_text(state)
    connection.execute(table.delete().where(table.c.run == run))
    connection.execute(insert(table), {"run": run, "text": text})
    if connection.execute(select(table.c.text).where(table.c.run == run)).scalars().all() != [text]:
        raise UnavailableError(ALTERED.format(run))


def to_text(state: Vested) -> str:
    """Return a state as it is kept: whole numbers by name."""
    return canonical({name: part.tolist() for name, part in state._asdict().items()})


def from_text(text: str, rounds: int) -> Vested:
    """Return the state that was kept."""
    found: dict[str, Any] = {name: np.array(part, dtype=np.int64) for name, part in json.loads(text).items()}
    wide = {name: found[name].reshape(-1, rounds) for name in ("waiting", "costs")}  # also of nobody
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
        state = load(connection, run, terms_of(connection, run))
        place = select(member.position).where(member.run == run, member.agent == agent)
        due = (0, 0) if state is None else vesting.next_release(state, connection.execute(place).scalar_one())
        found.append(Held(runs[run].name, amount, *due))
    return found
