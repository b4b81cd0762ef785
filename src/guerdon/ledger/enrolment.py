"""Enrolling agents: opens accounts, adds keys, and makes agents members of runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from guerdon.ledger import journal, queries, tables
from guerdon.ledger.checks import check_roster
from guerdon.ledger.errors import RefusedError


def enrol(connection: Connection, agents: Mapping[str, bytes | None]) -> int | None:
    """Open accounts for agents that have none, and add new keys; return the record, or None if nothing was new."""
    known = {name: row.id for name, row in queries.known_agents(connection, list(agents)).items()}
    new = [name for name in agents if name not in known]
    first, account = next_number(connection, tables.agents.c.id), next_number(connection, tables.accounts.c.id)
    people = [{"id": first + i, "name": name} for i, name in enumerate(new)]
    owned = [(person["id"], kind) for person in people for kind in tables.PERSONAL]
    opened = [{"id": account + i, "kind": kind, "owner": who, "balance": 0} for i, (who, kind) in enumerate(owned)]
    ids = known | {str(person["name"]): first + i for i, person in enumerate(people)}
    kept = queries.public_keys(connection, list(known.values()))
    keys = _new_keys({ids[name]: key for name, key in agents.items()}, kept)
    _check_owners(queries.keys(connection), agents)
    if not new and not keys:
        return None
    rows: dict[str, Any] = {"agents": people, "keys": keys, "accounts": opened}
    return journal.append(connection, "enrol", rows)


def join(connection: Connection, run: int, roster: Sequence[str], already: int) -> queries.Roster:
    """Add new agents to a run, and return its roster."""
    check_roster(roster)
    newcomers = roster[already:]
    enrol(connection, dict.fromkeys(newcomers))
    journal.append(connection, "join", {"members": members(connection, run, newcomers, start=already)})
    return queries.roster(connection, run)  # not cached: it is not committed yet


def members(connection: Connection, run: int, names: Sequence[str], start: int) -> list[dict[str, Any]]:
    """Return the rows that make enrolled agents members of a run."""
    known = queries.known_agents(connection, list(names))
    return [{"run": run, "position": start + i, "agent": known[name].id} for i, name in enumerate(names)]


def next_number(connection: Connection, column: Any) -> int:
    """Return the number after the largest in a column."""
    return (connection.execute(select(func.max(column))).scalar() or 0) + 1


def _check_owners(known: Mapping[str, bytes], told: Mapping[str, bytes | None]) -> None:
    """Raise if a key would belong to two agents: a signature must show which agent made it."""
    owners = {key: name for name, key in known.items()}
    for name, key in told.items():
        if key is not None and owners.setdefault(key, name) != name:
            raise RefusedError(f"the public key of {name!r} belongs to {owners[key]!r} already")


def _new_keys(told: Mapping[int, bytes | None], known: Mapping[int, bytes]) -> list[dict[str, Any]]:
    """Return the keys to add; an agent that has one keeps it."""
    for agent, key in told.items():
        if key is not None and known.get(agent, key) != key:
            raise RefusedError("an agent is enrolled with another public key; keys are never replaced")
    return [
        {"agent": agent, "public_key": key} for agent, key in told.items() if key is not None and agent not in known
    ]
