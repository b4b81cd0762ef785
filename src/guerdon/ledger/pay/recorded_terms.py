"""The terms of a run as the ledger writes and reads them: with the run, and again whenever they change."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, select

from guerdon.canonical import canonical
from guerdon.ledger.books import tables
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.money import MICRO, format_amount, to_micro
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay.cost_factors import check_same_factors
from guerdon.ledger.read import queries
from guerdon.rule import Rule
from guerdon.terms import Terms, terms_from

FIXED = "hold", "losses", "deposit"  # of a run that has begun: what members are owed and owe hangs on them
FACTORS = "cost_factors"


def written(terms: Terms) -> str:
    """Return terms as text; the cost factors are written by themselves.

    >>> written(Terms(budget=50))
    '{"budget":50,"deadline":null,"deposit":0.0,"hold":null,"losses":"carry",...}'
    """
    return canonical({name: value for name, value in terms.to_dict().items() if name != FACTORS})


@lru_cache(maxsize=256)
def read(text: str) -> Terms:
    """Return the terms that were written down; they have no cost factors."""
    return terms_from(json.loads(text))


def terms_of(connection: Connection, run: int) -> Terms:
    """Return the terms of a run as they are now, without its cost factors."""
    own = tables.terms.c
    query = select(own.text).where(own.run == run).order_by(own.record.desc()).limit(1)
    return read(connection.execute(query).scalar_one())


def micro_deposit(terms: Terms) -> int:
    """Return what a member that joins late must have deposited, in micro-units."""
    return int(to_micro(terms.deposit))


def changed_terms(
    connection: Connection, run: AnyRow, rule: Rule, told: Terms, agents: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the row of the terms that a run goes on with; none if they are what it has. Raise where they may not be.

    Where `hold` is not said, and nobody's cost factor is, these stay as they are.
    """
    kept = terms_of(connection, run.id)
    new = replace(told, hold=kept.hold if told.hold is None else told.hold, cost_factors={}).under(rule)
    for name in FIXED:
        if getattr(new, name) != getattr(kept, name):
            raise RefusedError(
                f"run {run.name!r} was started with another `{name}`: {_shown(kept, name)}, now {_shown(new, name)}; "
                "begin another run to change it"
            )
    check_same_factors(connection, run, agents, told.cost_factors or None)
    return [] if new == kept else [{"run": run.id, "text": written(new)}]


def check_deposits(connection: Connection, run: AnyRow, terms: Terms, people: queries.Roster, already: int) -> None:
    """Raise unless every member that joins a run has deposited what the run asks for."""
    asked = micro_deposit(terms)
    if not asked:
        return
    (deposits,) = queries.per_member(connection, run.id, [], "balance", ["deposit"])
    for name, deposit in list(zip(people.names, deposits, strict=True))[already:]:
        if deposit < asked:
            raise RefusedError(
                f"agent {name!r} cannot join run {run.name!r} with a deposit of {format_amount(deposit)}: it must be "
                f"{format_amount(asked)} or more; enrol it, and record what it pays in by `guerdon ledger move deposit`"
            )


def _shown(terms: Terms, name: str) -> str:
    value = getattr(terms, name)
    return format_amount(round(value * MICRO)) if name == "deposit" else repr(value)
