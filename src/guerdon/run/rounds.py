"""A round of a run: its agents in their order, and what it came to before it is recorded."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from guerdon.ledger.books.money import LARGEST, MICRO
from guerdon.looks.naming import NamedRound
from guerdon.rule import Payments, Status
from guerdon.run.messages import Request
from guerdon.run.reports import TOO_LARGE, Report
from guerdon.server import Settlement

NOT_ASKED = "was not asked this round"
TOO_FAR = "it lies so far from all others that nobody else could be paid"
TOO_FEW = (Status.ALONE, Status.TOO_FEW)  # nobody to compare with


def no_factors(accounts: Sequence[str]) -> Any:
    """Return a cost factor of 1 for every account."""
    return np.ones(len(accounts))


class Seats(NamedTuple):
    """The agents of a run in their order, newcomers last, each with its report; None: it was not asked."""

    accounts: list[str]
    reports: list[Report | None]
    factors: Any  # what the rule's cost is multiplied by for each

    @classmethod
    def of(
        cls, roster: Sequence[str], reports: Sequence[Report], factors: Callable[[Sequence[str]], Any] = no_factors
    ) -> Self:
        """Return the seats of a run's agents so far, and of newcomers."""
        asked = {report.account: report for report in reports}
        accounts = [*roster, *sorted(set(asked) - set(roster))]
        return cls(accounts, [asked.get(name) for name in accounts], factors(accounts))

    @property
    def sent(self) -> Any:
        """Who sent something, usable or not."""
        return np.array([report is not None and report.sent for report in self.reports], dtype=bool)

    def notes(self) -> list[str]:
        """Return what is to be said of each."""
        return [NOT_ASKED if report is None else report.note for report in self.reports]


class PaidRound(NamedTuple):
    """A round that is settled, and not recorded yet."""

    request: Request
    seats: Seats
    done: Settlement
    named: NamedRound | None = None  # where looks hold the pay

    @property
    def payments(self) -> Payments:
        """What each agent is paid."""
        return self.done.payments

    def with_payments(self, payments: Payments) -> "PaidRound":
        """Return the round with the payments as they are recorded."""
        return self._replace(done=self.done._replace(payments=payments))

    @property
    def total(self) -> float:
        """What all get together."""
        return float(np.sum(self.payments.released))

    @property
    def is_payable(self) -> bool:
        """Whether every reward is one that the ledger can hold."""
        return bool((self.payments.released * MICRO <= LARGEST).all())

    @property
    def participants(self) -> int:
        """How many sent something that counts."""
        return int(np.sum(self.done.evidence.counted))

    @property
    def warning(self) -> str:
        """What the operator must know where nobody can be paid; empty otherwise."""
        if not self.participants:
            return "no agent sent anything that can be used"
        if not np.isin(self.payments.status, TOO_FEW).any():
            return ""
        count = self.participants
        return f"nobody is paid, because only {count} of the replies can be used; at least three agents must take part"

    def lines(self, words: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        """Return a line for each agent: what it gets, or why it gets nothing.

        `words`: what is said in the place of some statuses.
        """
        labels = [Status(int(status)).label for status in self.payments.status]
        statuses = [words.get(label, label) for label in labels]
        rows = zip(self.seats.accounts, self.payments.released, statuses, self.seats.notes(), strict=True)
        return [f"{name}: {reward:.6f} ({status}{f', {note}' if note else ''})" for name, reward, status, note in rows]

    def numbers(self) -> dict[str, float]:
        """Return the round as flat numbers, for a log of experiments; what is not known, or infinite, is left out.

        `differs` counts the agents that others are not compared with, `copies` those that sent another's report.
        """
        found = self.done.reading
        rewards = zip(self.seats.accounts, self.payments.released, strict=True)
        told: dict[str, Any] = {
            "round": self.request.round,
            "request": self.request.request,
            "participants": self.participants,
            "paid": self.total,
            "differs": np.sum(found.evidence.counted & ~np.asarray(found.trusted, dtype=bool)),
            "copies": np.sum(found.copies),
            "variance": self.done.error.variance,
            "noise_scale": self.done.noise_scale,
            **{f"reward/{name}": reward for name, reward in rewards},
        }
        return {f"guerdon/{name}": float(value) for name, value in told.items() if np.isfinite(value)}

    def refuse_furthest(self) -> None:
        """Refuse the report that is furthest from all others: because of it nobody else could be paid."""
        evidence = self.done.evidence
        furthest = self.seats.reports[int(np.argmax(np.where(evidence.counted, evidence.squared_deviation, -1.0)))]
        if furthest is not None:  # an agent that counts has one
            furthest.refuse(TOO_FAR)

    def note_on_reports(self, own: dict[int, int]) -> None:
        """Note on the reports what was done with them, and refuse those that are not counted.

        `own`: how many samples the agent of a seat was asked for, where it is a number of its own.
        """
        found = self.done.reading
        for seat, (report, note) in enumerate(zip(self.seats.reports, self.done.notes, strict=True)):
            if report is None or not report.usable:
                continue
            if found.evidence.counted[seat]:
                asked = f"asked for {own[seat]} samples" if seat in own else ""
                report.note = "; ".join(filter(None, [asked, note]))
            else:
                report.refuse(note if found.copies[seat] else TOO_LARGE)
