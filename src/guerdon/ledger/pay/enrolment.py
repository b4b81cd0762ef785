"""Enrolling agents: opens accounts, adds keys, and makes agents members of runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from guerdon.ledger.books import journal, tables
from guerdon.ledger.books.checks import check_roster, skeleton
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.pay.cost_factors import factor_rows
from guerdon.ledger.read import queries


def enrol(connection: Connection, agents: Mapping[str, bytes | None]) -> int | None:
    """Open accounts for agents that have none, and add new keys; return the record, or None if nothing was new."""
    agents = dict(zip(queries.as_enrolled(connection, list(agents)), agents.values(), strict=True))
    known = queries.known_agents(connection, list(agents))
    _check_alike(connection, [name for name in agents if name not in known])
    first, account = next_number(connection, tables.agents.c.id), next_number(connection, tables.accounts.c.id)
    new = {name: first + i for i, name in enumerate(name for name in agents if name not in known)}
    owned = [(number, kind) for number in new.values() for kind in tables.PERSONAL]
    ids, keys = known | new, _new_keys(queries.keys(connection), agents)
    rows = {
        "agents": [{"id": number, "name": name} for name, number in new.items()],
        "keys": [{"agent": ids[name], "public_key": key} for name, key in keys.items()],
        "accounts": [
            {"id": account + i, "kind": kind, "owner": who, "run": None, "balance": 0}
            for i, (who, kind) in enumerate(owned)
        ],
    }
    return journal.append(connection, "enrol", rows) if new or keys else None


def _check_alike(connection: Connection, new: Sequence[str]) -> None:
    """Raise where a new name looks like another."""
    taken = {skeleton(row.name): row.name for row in connection.execute(select(tables.agents))} if new else {}
    for name in new:
        if taken.setdefault(skeleton(name), name) != name:
            other = taken[skeleton(name)]
            raise RefusedError(f"{name!a} looks like {other!a}: nobody could tell who is paid; choose another name")


def join(
    connection: Connection,
    run: int,
    roster: Sequence[str],
    already: int,
    factors: Mapping[str, float] | None,
    *,
    holds: bool,
) -> queries.Roster:
    """Add new agents to a run (which `holds` pay) with their cost factors, and return its roster."""
    check_roster(roster)
    newcomers = roster[already:]
    enrol(connection, dict.fromkeys(newcomers))
    rows = {"members": members(connection, run, newcomers, start=already)}
    rows["cost_factors"] = factor_rows(connection, run, roster, already, factors)
    rows["accounts"] = held_accounts(connection, run, rows["members"]) if holds else []
    journal.append(connection, "join", rows)
    return queries.roster(connection, run)  # not cached: it is not committed yet


def members(connection: Connection, run: int, names: Sequence[str], start: int) -> list[dict[str, Any]]:
    """Return the rows that make enrolled agents members of a run."""
    known = queries.known_agents(connection, list(names))
    return [{"run": run, "position": start + i, "agent": known[name]} for i, name in enumerate(names)]


def held_accounts(connection: Connection, run: int, members: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the accounts in which a run holds the pay of members."""
    first = next_number(connection, tables.accounts.c.id)
    shared = {"kind": "held", "run": run, "balance": 0}
    return [{"id": first + i, "owner": one["agent"], **shared} for i, one in enumerate(members)]


def next_number(connection: Connection, column: Any) -> int:
    """Return the number after the largest in a column."""
    return (connection.execute(select(func.max(column))).scalar() or 0) + 1


def _new_keys(known: Mapping[str, bytes], told: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """Return the keys to add by name; no agent gets another, and no key belongs to two agents."""
    owners = {key: name for name, key in known.items()}
    given = {name: key for name, key in told.items() if key is not None}
    for name, key in given.items():
        if known.get(name, key) != key:
            raise RefusedError("an agent is enrolled with another public key; keys are never replaced")
        if owners.setdefault(key, name) != name:
            raise RefusedError(f"the public key of {name!r} belongs to {owners[key]!r} already")
    return {name: key for name, key in given.items() if name not in known}
