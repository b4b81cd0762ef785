"""The audit of a recorded run: its evidence read again, round by round, and what it says of each agent."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from guerdon.ledger.books import tables
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay.recorded_rules import restored
from guerdon.ledger.proof.replay import read_payments
from guerdon.ledger.read import queries
from guerdon.rule import Need
from guerdon.statistical.audit import AuditFinding, PlayedRound, VerdictTrail, differ_among_themselves, follow, judge


class RunAudit(NamedTuple):
    """What was found of a run's agents, in their order."""

    run: str
    alpha: float
    alike: bool  # whether the operator says that all agents' data are alike
    agents: list[str]
    rounds: Any  # their numbers
    findings: list[AuditFinding]  # none where there are no rounds; their rounds are indices into `rounds`
    trail: VerdictTrail
    can_clear: bool  # whether any of its evidence was gathered around a public prediction
    numbers: list[int]  # of the agents

    @property
    def is_withheld(self) -> bool:
        """Whether nobody is accused because agents differ among themselves too, although they are said to be alike."""
        return self.alike and differ_among_themselves(self.trail, self.alpha)

    def round_of(self, index: int | None) -> int | None:
        """Return the number of a round by its index."""
        return None if index is None else int(self.rounds[index])


def audit_run(connection: Connection, run: str, alpha: float = 0.001, *, alike: bool = False) -> RunAudit:
    """Return what the evidence of a run's rounds says of its agents, at a rate `alpha` of false verdicts.

    An agent is accused only where all agents draw fresh samples of the same kind (`alike`); else it differs.
    """
    found = queries.need_run(connection, run)
    table = tables.rounds
    rows = connection.execute(select(table).where(table.c.run == found.id).order_by(table.c.number)).all()
    trail = follow(_played(connection, rows), alpha)
    people = queries.roster(connection, found.id)
    return RunAudit(
        run, alpha, alike, people.names, np.array([row.number for row in rows], dtype=np.int64),
        judge(trail, alpha, alike=alike), trail,
        any(Need.PREDICTION in restored(row.rule, row.cost).needs for row in rows), people.agents,
    )  # fmt: skip


def odds(evidence: float) -> str:
    """Return the logarithm of a bet's wealth as people read it: 1,200 to 1."""
    size = abs(evidence)
    form = ".2g" if size < math.log(10) else ",.0f"
    wealth = f"{math.exp(size):{form}}" if size < math.log(1e6) else f"10^{size / math.log(10):.0f}"
    return f"1 to {wealth}" if evidence < 0 else f"{wealth} to 1"


def _played(connection: Connection, rows: Sequence[AnyRow]) -> Iterator[PlayedRound]:
    for row in rows:
        block = read_payments(connection, row.record, row.record)
        seen = block.round(row.request)
        yield PlayedRound(restored(row.rule, row.cost), seen.evidence, seen.sent, seen.request, seen.trusted)
