"""Checking escrow run by run: nothing leaves it that is not in it, and a settlement leaves nothing of its rounds."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from guerdon.ledger.holdings import Flow, Holdings
from guerdon.ledger.record_check import Lookup, MismatchError

Parts = list[dict[str, Any]]  # the rows of `escrow` of one move


def check_escrow(lookup: Lookup, flows: Iterable[Flow]) -> None:
    """Go through all that went into escrow accounts and out of them, and raise at the first that does not fit."""
    parts, own = defaultdict[int, Parts](list), defaultdict[int, Holdings](Holdings)
    for row in _rows(lookup, "escrow"):
        parts[row["move"]].append(row)
    rounds = {(row["run"], row["number"]): row["record"] for row in _rows(lookup, "rounds")}
    for flow in flows:
        if flow.enters:
            own[flow.account].add(flow)
            continue
        taken = parts.pop(flow.record, [])
        for row in taken:
            settled = row["round"]
            if settled is None:
                continue
            recorded = rounds.get((row["run"], settled), flow.record)
            if recorded >= flow.record or own[flow.account].due(row["run"], settled) != row["amount"]:
                raise MismatchError(f"escrow: {_named(lookup, row)} does not settle its rounds to {settled}")
        _take(lookup, own[flow.account], flow, taken)
    for move in parts:
        raise MismatchError(f"escrow: record {move} takes nothing out of escrow, but has a row there")


def _take(lookup: Lookup, own: Holdings, flow: Flow, taken: Parts) -> None:
    """Take a move out of what is held, and raise where a run, or what was held by hand, does not have so much."""
    own.take(flow.amount, {row["run"]: row["amount"] for row in taken})
    held = own.held()
    for row in taken:
        if held.get(row["run"], -1) < 0:
            raise MismatchError(f"escrow: {_named(lookup, row)} takes more than is held there")
    if own.by_hand < 0 or sum(row["amount"] for row in taken) > flow.amount:
        raise MismatchError(f"escrow: the parts of record {flow.record} do not add up to what it takes from runs")


def _rows(lookup: Lookup, table: str) -> Iterable[dict[str, Any]]:
    return (row for rows in lookup.details.values() for row in rows.get(table, ()))


def _named(lookup: Lookup, row: dict[str, Any]) -> str:
    run = lookup.runs.get(row["run"])
    return f"record {row['move']} in run {run.name!r}" if run is not None else f"record {row['move']}"
