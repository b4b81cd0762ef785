"""Recomputing rewards from recorded evidence: many rounds at once where the rule allows it, else in order."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, select

from guerdon.evidence import Evidence
from guerdon.ledger.books import chain, tables
from guerdon.ledger.books.money import MICRO, to_micro
from guerdon.ledger.pay.recorded_rules import restored
from guerdon.rule import Payments, Round, Rule, Status, padded, remembers, times
from guerdon.words import about

TOLERANCE = 1e-9  # relative: what another machine's last digit may change in a recomputed number


class PaymentBlock(NamedTuple):
    """Payments in the order of their records: the numbers as they are hashed, and what is not a number."""

    numbers: Any
    gradients: Sequence[bytes | None]
    signatures: Sequence[bytes | None]
    notes: Sequence[str]
    hashes: Sequence[bytes]

    def evidence(self, where: Any = slice(None)) -> Evidence:
        """Return the evidence of all payments, or of those at these indices."""
        chosen = self.numbers[where]
        counted = (chosen["status"] != Status.DECLINED.value) & (chosen["status"] != Status.INVALID.value)
        # Contiguous, as in the round that was played: NumPy's last bit may depend on how numbers lie in memory.
        numbers = (np.ascontiguousarray(chosen[name]) for name in Evidence._fields[:-1])
        return Evidence(*numbers, counted=counted)

    def participating(self, where: Any = slice(None)) -> Any:
        """Return who took part."""
        return self.numbers["status"][where] != Status.DECLINED.value

    def round(self, request: Any, where: Any = slice(None), *, is_last: Any = False) -> Round:
        """Return a round as its rule was told of it."""
        trusted = self.numbers["trusted"][where] == 1
        return Round(self.evidence(where), self.participating(where), request, trusted, is_last)

    def payments(self) -> Payments:
        """Return what was paid, and what it was computed from."""
        paid = self.numbers
        return Payments(
            paid["earned"] / MICRO, paid["released"] / MICRO, *(paid[name] for name in Payments._fields[2:])
        )


def read_payments(connection: Connection, first: int, last: int) -> PaymentBlock:
    """Return the payments of the records from `first` to `last`."""
    table = tables.payments
    query = select(table).where(table.c.record.between(first, last)).order_by(table.c.record, table.c.position)
    rows = connection.execute(query).all()
    if not rows:
        return PaymentBlock(np.zeros(0, dtype=chain.PAYMENT), (), (), (), ())
    columns: dict[str, Any] = dict(zip(table.c.keys(), zip(*rows, strict=True), strict=True))
    columns["status"] = [chain.STATUS_CODES[status] for status in columns["status"]]
    numbers = np.zeros(len(rows), dtype=chain.PAYMENT)
    for name in (chain.PAYMENT.names or ())[:-3]:
        numbers[name] = columns[name]
    return PaymentBlock(numbers, columns["gradient"], columns["signature"], columns["note"], columns["hash"])


def first_difference(rule: Rule, own: Payments, recorded: Any, request: Any, factors: Any) -> int | None:
    """Return the (flat) index of the first payment that differs from its recomputation, or None.

    What was recomputed is times the agents' cost `factors`.
    """
    largest = largest_term(rule, own, request, recorded["squared_length"]) + np.abs(own.earned) + np.abs(own.released)
    slack = 1 + TOLERANCE * MICRO * largest * factors
    computed = times(own, factors)
    same = recorded["status"] == own.status
    for name in ("earned", "released"):
        same &= np.abs(recorded[name] - to_micro(getattr(computed, name))) <= slack
    parts = TOLERANCE * np.nan_to_num(about(rule).largest_distance(own, recorded["squared_length"]))
    for name, slack in (("squared_distance", parts), ("expected", parts), ("variance", 0.0)):
        same &= np.isclose(recorded[name], getattr(own, name), rtol=TOLERANCE, atol=slack, equal_nan=True)
    return None if same.all() else int(np.argmin(same))


def largest_term(rule: Rule, payments: Payments, request: Any, length: Any) -> Any:
    """Return, per payment, the largest number that went into the reward: its rounding is relative to this."""
    nu = np.asarray(request, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        slope = rule.cost.slope(nu) * nu**2 / payments.variance
        return rule.cost(nu) + np.nan_to_num(slope * about(rule).largest_distance(payments, length))


def replay_state(connection: Connection, run: int) -> Any:
    """Return the state of a run's rule after its recorded rounds; None if it remembers nothing yet."""
    table, state = tables.rounds, None
    for row in connection.execute(select(table).where(table.c.run == run).order_by(table.c.number)).all():
        rule = restored(row.rule, row.cost)
        if remembers(rule):
            block = read_payments(connection, row.record, row.record)
            _, state = replay_round(rule, state, block.round(row.request, is_last=bool(row.is_last)))
    return state


def replay_round(rule: Rule, state: Any, played: Round) -> tuple[Payments, Any]:
    """Return a round's payments recomputed from its evidence, and the next state; newcomers start from nothing."""
    return rule.pay(padded(rule.init(len(played.sent)), state), played)
