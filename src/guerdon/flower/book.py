"""A run's page in the ledger: who belongs to it, how far it is, what a round pays, and what each was told."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from flwr.app import MetricRecord

from guerdon.evidence import Evidence
from guerdon.flower.messages import Pay, Request
from guerdon.flower.replies import Report
from guerdon.information import InformationPay
from guerdon.ledger import Ledger
from guerdon.ledger.errors import RefusedError, UnavailableError
from guerdon.ledger.money import LARGEST, MICRO
from guerdon.mechanisms import Mechanism, Payments, Status, padded
from guerdon.verdicts import held_back

if TYPE_CHECKING:
    from guerdon.ledger.statements import Payslip

NOT_ASKED = "was not asked this round"
WAITS = (1, 2, 5, 10, 30, 60)  # seconds between attempts: the work is done, the pay must not be lost

Found = TypeVar("Found")

log = logging.getLogger("flwr.guerdon")


class Settled(NamedTuple):
    """What a round pays, in the order of the run's agents: not recorded yet."""

    request: Request
    accounts: list[str]
    payments: Payments
    evidence: Evidence
    state: Any  # of the mechanism, after the round
    gradients: list[bytes | None]
    signatures: list[bytes | None]
    notes: list[str]
    held: Any  # what of each reward goes to escrow
    where: list[int | None]  # the report of each agent

    @property
    def total(self) -> float:
        """What all get together."""
        return float(np.sum(self.payments.reward))

    @property
    def is_payable(self) -> bool:
        """Whether every reward is one that the ledger can hold."""
        return bool((self.payments.reward * MICRO <= LARGEST).all())

    @property
    def participants(self) -> int:
        """How many sent something that counts."""
        return int(np.sum(self.evidence.counted))

    def metrics(self, own: MetricRecord | None, more: Mapping[str, float]) -> MetricRecord:
        """Return a strategy's metrics with the round's pay, and `more`, added."""
        paid = MetricRecord({} if own is None else dict(own))
        paid["guerdon-request"] = self.request.request
        paid["guerdon-participants"] = self.participants
        paid["guerdon-paid"] = self.total
        paid["guerdon-pay"] = [float(reward) for reward in self.payments.reward]
        paid.update(more)
        return paid

    def lines(self) -> list[str]:
        """Return a line for each agent: what he gets, or why he gets nothing."""
        statuses = [Status(int(status)) for status in self.payments.status]
        rows = zip(self.accounts, self.payments.reward, statuses, self.notes, strict=True)
        return [
            f"{name}: {reward:.6f} ({status.label}{f', {note}' if note else ''})" for name, reward, status, note in rows
        ]


class _Round(NamedTuple):
    """Who is in a round, in the order of the run's agents."""

    accounts: list[str]
    where: list[int | None]  # the report of each
    sent: Any  # whether there was one
    state: Any  # of the mechanism, before the round


@dataclass
class Book:
    """The run in the ledger. `done` is the last round that is paid."""

    ledger: Ledger
    run: str
    mechanism: Mechanism
    liability: str
    escrow: bool = False  # whether the fixed part of the cost is held back

    def __post_init__(self) -> None:
        self.done, self.unit = 0, self.ledger.unit
        self._roster: list[str] = []
        self._state: Any = None
        self._payslips: dict[str, Payslip] = {}

    def open(self, *, resume: bool) -> dict[str, Any] | None:
        """Take up what is recorded, and return the arrays saved with the last paid round; None if none is paid yet."""
        self._roster = self.ledger.roster(self.run)
        if self._roster:
            # Found as it was begun, or refused.
            self.ledger.start_run(self.run, self._roster, self.mechanism, liability=self.liability)
        found = self.ledger.resume(self.run)
        if found is None:
            return None
        if not resume:
            raise RefusedError(
                f"run {self.run!r} has {found.round} paid rounds; begin with `Rewarded.start`, which continues after "
                "them, or give another `run`"
            )
        if "model" not in found.arrays:
            raise RefusedError(f"round {found.round} of run {self.run!r} was recorded without a model to continue from")
        self.done = found.round
        self._state = found.state
        self._read_payslips()
        return found.arrays

    def pay_of(self, account: str) -> Pay | None:
        """Return what an account was paid for the last round, or None if it has no part in the run yet."""
        slip = self._payslips.get(account)
        if slip is None:
            return None
        return Pay(slip.round, slip.request, slip.status, slip.reward, slip.balance, self.unit, slip.why)

    def trusted(self, reports: Sequence[Report]) -> Any:
        """Tell with whose reports the others are compared, by what earlier rounds said: most rules trust everybody."""
        if not isinstance(self.mechanism, InformationPay):
            return np.ones(len(reports), dtype=bool)
        round_ = self._round(reports)
        usable = np.array([index is not None and reports[index].usable for index in round_.where], dtype=bool)
        found = self.mechanism.reference(round_.state, usable)
        trusted = {name for name, kept in zip(round_.accounts, found.tolist(), strict=True) if kept}
        return np.array([report.member.account in trusted for report in reports], dtype=bool)

    def places(self, reports: Sequence[Report]) -> list[int | None]:
        """Return where the run's agents have the sender of each report; None: nowhere yet."""
        known = {name: place for place, name in enumerate(self._roster)}
        return [known.get(report.member.account) for report in reports]

    def settle(self, request: Request, reports: Sequence[Report], evidence: Evidence) -> Settled:
        """Return what a round pays, given a report and evidence for each node that was asked."""
        accounts, where, sent, state = self._round(reports)
        spread = Evidence(*(_scattered(part, where) for part in evidence))
        payments, state = self.mechanism.pay(state, spread, sent, request.request)
        found = [None if index is None else reports[index] for index in where]
        return Settled(
            request, accounts, payments, spread, state,
            gradients=[None if report is None else report.gradient for report in found],
            signatures=[None if report is None else report.signature for report in found],
            notes=[NOT_ASKED if report is None else report.note for report in found],
            held=self._held(payments, request.request),
            where=where,
        )  # fmt: skip

    def _round(self, reports: Sequence[Report]) -> "_Round":
        """Return a round in the order of the run's agents, newcomers last."""
        asked = {report.member.account: index for index, report in enumerate(reports)}
        accounts = [*self._roster, *sorted(set(asked) - set(self._roster))]
        where = [asked.get(name) for name in accounts]
        sent = np.array([index is not None and reports[index].sent for index in where], dtype=bool)
        return _Round(accounts, where, sent, padded(self.mechanism.init(len(accounts)), self._state))

    def _held(self, payments: Payments, request: int) -> Any:
        """Return what goes to escrow: of each reward the fixed part of the cost, h(ν) − ν·h'(ν), as far as it goes."""
        if not self.escrow:
            return np.zeros(len(payments.reward))
        cost: Any = getattr(self.mechanism, "cost")  # noqa: B009 - every rule has one, the protocol does not say so
        return held_back(payments.reward, cost, request)

    def record(self, settled: Settled, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> None:
        """Write a round into the ledger, with all that is needed to go on after it."""
        _patiently(lambda: self._write(settled, metrics, checkpoint))
        self._roster, self._state, self.done = settled.accounts, settled.state, settled.request.round
        self._read_payslips()

    def _write(self, settled: Settled, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> None:
        """Record a round; doing so twice changes nothing."""
        if not self._roster:
            self.ledger.start_run(self.run, settled.accounts, self.mechanism, liability=self.liability)
        self.ledger.record_round(
            self.run,
            settled.request.round,
            settled.request.request,
            settled.payments,
            settled.evidence,
            agents=settled.accounts,
            gradients=settled.gradients,
            signatures=settled.signatures,
            notes=settled.notes,
            held=settled.held,
            metrics=metrics,
            checkpoint=checkpoint,
        )

    def _read_payslips(self) -> None:
        self._payslips = {slip.agent: slip for slip in _patiently(lambda: self.ledger.payslips(self.run))}

    def keys(self) -> dict[str, bytes]:
        """Return the public keys that are enrolled, by account."""
        return _patiently(self.ledger.keys)


def _patiently(call: Callable[[], Found]) -> Found:
    """Return what a call to the ledger returns, trying again for a while if the database is away."""
    for wait in WAITS:
        try:
            return call()
        except UnavailableError as error:
            log.warning("The ledger cannot be reached, next attempt in %d s: %s", wait, error)
            time.sleep(wait)
    return call()


def _scattered(values: Any, where: Sequence[int | None]) -> Any:
    """Return the values of reports as values of accounts: zero where there is no report."""
    return np.array([0 if index is None else values[index] for index in where], dtype=values.dtype)
