"""What the common cost of a run is multiplied by for an agent: h(s) becomes c·h(s), and its pay c·R.

A factor is recorded with the record by which the agent becomes a member of the run, in whole millionths. It stays: an
agent without a row has 1. So it is part of the chain, and every later number (pay, cost, what is held) follows from it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.money import MICRO
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.read.queries import as_enrolled, known_agents, named_factors, need_run

LARGEST_FACTOR = 1_000_000


def check_factors(told: Mapping[str, float]) -> dict[str, int]:
    """Return factors in millionths, or raise.

    >>> check_factors({"north": 1.5, "south": 1})
    {'north': 1500000, 'south': 1000000}
    """
    if not isinstance(told, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f'`cost_factors` must be a factor for each agent, {{"north": 1.5}}, got {told!r}')
    found: dict[str, int] = {}
    for name, factor in told.items():
        number = isinstance(factor, (int, float)) and not isinstance(factor, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
        millionths = round(factor * MICRO) if number and 0 < factor <= LARGEST_FACTOR else 0
        if not millionths or millionths / MICRO != factor:
            raise ValueError(
                f"the cost factor of {name!r} must be a number above 0 and at most {LARGEST_FACTOR:,}, with at most 6 "
                f"decimals, got {factor!r}"
            )
        found[name] = millionths
    return found


def factor_rows(
    connection: Connection, run: int, roster: Sequence[str], already: int, told: Mapping[str, float] | None
) -> list[dict[str, Any]]:
    """Return the rows that give the agents of a run after the first `already` their factors; 1 needs none."""
    given = {} if told is None else _as_told(connection, told)
    others = sorted(set(given) - set(roster))
    if others:
        raise RefusedError(
            f"`cost_factors` must be of agents of the run ({', '.join(roster[:10])}), got one of {others[0]!r}"
        )
    numbers = known_agents(connection, [name for name in roster[already:] if given.get(name, MICRO) != MICRO])
    rows = [{"run": run, "agent": number, "factor": given[name]} for name, number in numbers.items()]
    return sorted(rows, key=lambda row: row["agent"])


def check_same_factors(
    connection: Connection, run: AnyRow, names: Sequence[str], told: Mapping[str, float] | None
) -> None:
    """Raise where a member of a run has another factor than is told now; who is not named is told 1.

    Where nothing is told, all keep what they have.
    """
    if told is None:
        return
    given, kept = _as_told(connection, told), named_factors(connection, run.id)
    for name in names:
        old, new = kept.get(name, 1.0), given.get(name, MICRO) / MICRO
        if old != new:
            raise RefusedError(
                f"run {run.name!r} was started with another cost factor of {name!r}: {old:g}, now {new:g}; it stays "
                "for the whole run, so begin another run to change it"
            )


def cost_factors(connection: Connection, run: str) -> dict[str, float]:
    """Return by how much the cost of a run is multiplied for each agent for which that is not 1."""
    return named_factors(connection, need_run(connection, run).id)


def _as_told(connection: Connection, told: Mapping[str, float]) -> dict[str, int]:
    given = check_factors(told)
    return dict(zip(as_enrolled(connection, list(given)) if given else [], given.values(), strict=True))
