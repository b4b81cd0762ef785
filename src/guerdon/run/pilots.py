"""A pilot as a book: no rule pays anything; what rules would have paid is written into a file after each round."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from guerdon.asking import Ask
from guerdon.pilot import PilotRecord, Trial, assess
from guerdon.run.book import RunBook
from guerdon.run.messages import Pay
from guerdon.run.reports import Arrays
from guerdon.run.rounds import PaidRound
from guerdon.witness import WitnessSample


class PilotBook(RunBook):
    """The record of a pilot in a file: who takes part, how far it is, how each rule of a trial scored its rounds."""

    def __init__(self, trial: Trial, record: PilotRecord, out: Path) -> None:
        if out.exists():
            raise ValueError(f"`out` must be a file that does not exist yet, got {out!s}; move it, or name another")
        self.trial, self.record_so_far, self.out = trial, record, out
        self.run, self.done, self.unit = out.stem, 0, ""
        self.roster: list[str] = []
        self._asked: dict[str, int] = {}  # of the round, by account
        self._begun = False

    def open(self, *, resume: bool) -> None:
        """Write the file: one that cannot be written must not cost a round."""
        del resume
        self.record_so_far.save(self.out)

    def pay_of(self, account: str) -> Pay | None:
        """Return nothing: nobody is paid."""
        del account

    def keys(self) -> dict[str, bytes]:
        """Return nothing: nodes need no keys."""
        return {}

    def own_requests(self, accounts: Sequence[str]) -> dict[str, int]:
        """Return what each agent is asked for: all of the request, or half of it, by chance."""
        names = sorted(accounts)
        asked = self.trial.design.requests(self.record_so_far.rounds, len(names))
        self._asked = dict(zip(names, map(int, asked), strict=True))
        return self._asked

    def watch(self, ask: Ask, rows: Any, paid: PaidRound, model: Arrays, witness: WitnessSample | None) -> None:
        """Score a round by every rule, and write that down."""
        del model
        if not self._begun:
            self.trial.begin(ask.origin)
            self._begun = True
        seats = paid.seats
        asked = np.array([self._asked.get(account, 0) for account in seats.accounts])
        sent = np.array([report is not None and report.usable for report in seats.reports], dtype=bool)
        scores = self.trial.score(ask, rows, asked, sent, witness)
        self.record_so_far = self.record_so_far.with_round(seats.accounts, asked, sent, scores)
        self.record_so_far.save(self.out)

    def record(self, paid: PaidRound, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> PaidRound:
        """Go on to the next round."""
        del metrics, checkpoint
        self.roster, self.done = paid.seats.accounts, paid.request.round
        return paid

    def summary(self) -> list[str]:
        """Return what is tried, and where it is recorded."""
        return [f"Pilot on flat pay, recorded in {self.out}", f"Rules: {', '.join(self.trial.tried)}"]

    def lines(self, paid: PaidRound) -> list[str]:
        """Return how many took part in a round."""
        half, count = sum(number < self.record_so_far.request for number in self._asked.values()), paid.participants
        return [f"Round {paid.request.round} of the pilot: {count} members, {half} of them asked for half"]

    def conclusion(self) -> list[str]:
        """Return what the pilot says, a line each; nothing where no round was played."""
        if not self.record_so_far.rounds:
            return []
        report = assess(self.record_so_far)
        said = [f"Pilot: {rule.rule} {rule.words}" for rule in report.rules]
        use = f"Pilot: use {report.recommended or 'none'}. {report.why} `guerdon pilot {self.out}` says more"
        return [*said, use]
