"""Who helped in a run, from the evidence that the ledger keeps, beside what each agent was paid."""

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from guerdon.asking import NOT_TRUSTED
from guerdon.evidence import Evidence
from guerdon.ledger.books import tables
from guerdon.ledger.books.money import MICRO
from guerdon.ledger.read.queries import PAID, need_run
from guerdon.statistical.contributions import HelpValues, as_shares, values_from_evidence

NUMBERS = Evidence._fields[:-1]  # of each agent: all but who was counted


class Contribution(NamedTuple):
    """An agent of a run: rounds in which it sent something usable, its pay, and its parts of four totals."""

    agent: str
    rounds: int
    paid: float
    paid_share: float
    leave_one_out: float
    shapley: float
    cosine: float


def contributions(connection: Connection, run: str) -> list[Contribution]:
    """Return who helped in a run, by name: values of every round, added up, as parts of their totals."""
    paid, played, agent = tables.payments.c, tables.rounds.c, tables.agents.c
    numbers = (paid[name] for name in NUMBERS)
    columns = (paid.record, agent.name, paid.status, paid.note, PAID, *numbers)
    source = tables.payments.join(tables.rounds).join(tables.agents, paid.agent == agent.id)
    query = select(*columns).select_from(source).where(played.run == need_run(connection, run).id)
    rounds: dict[int, list[Any]] = defaultdict(list)
    for record, *row in connection.execute(query.order_by(paid.record, paid.position)):
        rounds[record].append(row)
    totals: dict[str, Any] = defaultdict(lambda: np.zeros(5))
    for rows in rounds.values():
        found, counted = _values(rows)
        for place, row in enumerate(rows):
            values = [part[place] for part in found]
            totals[row[0]] += np.array([counted[place], row[3] / MICRO, *values], dtype=np.float64)
    names = sorted(totals)
    table = np.array([totals[name] for name in names]).reshape(len(names), 5)
    parts = np.stack([as_shares(column) for column in table[:, 1:].T], axis=1) if names else np.zeros((0, 4))
    return [
        Contribution(name, int(row[0]), float(row[1]), *map(float, part))
        for name, row, part in zip(names, table, parts, strict=True)
    ]


def _values(rows: list[Any]) -> tuple[HelpValues, Any]:
    """Return the values of one round, and who was counted."""
    _, statuses, notes, _, *columns = zip(*rows, strict=True)
    numbers = [np.array(column, dtype=np.float64) for column in columns]
    counted = np.array([status not in ("declined", "invalid") for status in statuses])
    trusted = np.array([NOT_TRUSTED not in note for note in notes])
    return values_from_evidence(Evidence(*numbers, counted=counted), trusted), counted
