"""`PaidRun`: a run whose model Guerdon itself makes: for frameworks that bring no strategy of their own.

    run = PaidRun(Server(InformationPay(cost), FixedRequest(16, 0.1)), ledger, "heart-2026", model)
    while run.ask(members):                      # run.sent is what to broadcast, run.request what is asked for
        run.settle(collect(run.sent, run.request))

All that it knows is in the ledger: made again, it goes on after the last paid round.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from guerdon.arrays import check_choice, check_positive_integer
from guerdon.ledger import Ledger
from guerdon.ledger.checks import check_name
from guerdon.ledger.tables import LIABILITIES
from guerdon.paying.book import Book, OnRound, PaidRound, pay_terms
from guerdon.paying.messages import Request
from guerdon.paying.paid_server import PaidServer, check_server
from guerdon.paying.reports import Arrays, Report, Template, Witness
from guerdon.registry import as_recorded
from guerdon.rule import Need
from guerdon.server import Server


class PaidRun:
    """A run in a ledger, with its model. `rounds` is how many there are to be in all; None: until `requests` ends it.

    The model is by name, `Server.sends` says whether agents send gradients or models. `liability`, `vesting`,
    `deposit`, `escrow`, `budget`, `cost_factors`, `one_step` and `witness` (on arrays by name) are those of
    `guerdon.flower.Rewarded`.
    `on_round` is called with the numbers of each round after it is recorded.
    """

    def __init__(
        self,
        server: Server,
        ledger: Ledger,
        run: str,
        model: Arrays,
        *,
        rounds: int | None = None,
        liability: str = "carry",
        vesting: int | None = None,
        deposit: float | None = None,
        escrow: bool = False,
        budget: float | None = None,
        cost_factors: Mapping[str, float] | None = None,
        one_step: bool = False,
        witness: Witness | None = None,
        on_round: OnRound | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        check_name("a run's name", run)
        check_choice("liability", liability, LIABILITIES)
        stakes = pay_terms(server.rule, liability, vesting, deposit)
        if rounds is not None:
            check_positive_integer("rounds", rounds)
        server = replace(server, rule=as_recorded(server.rule))
        check_server(server, one_step=one_step)
        if (witness is None) == (Need.WITNESS in server.rule.needs):
            raise ValueError("`witness` must be given with `WitnessedPay`, and with no other rule")
        self.name, self.ledger, self.rounds, self.on_round = run, ledger, rounds, on_round
        self.template, self.model = Template.of(model, "model"), model
        self.request: Request | None = None  # of the open round
        self.sent: Arrays = model  # what is broadcast in it
        self._server = PaidServer(server, witness, log=log)
        self._book = Book(ledger, run, server.rule, stakes, escrow, budget, cost_factors, log)
        self.resume()

    @property
    def server(self) -> Server:
        """Asks, compares, pays and learns."""
        return self._server.server

    @property
    def book(self) -> Book:
        """The run in the ledger."""
        return self._book

    @property
    def done(self) -> int:
        """The last round that is paid."""
        return self._book.done

    @property
    def is_over(self) -> bool:
        """Whether all its rounds are paid."""
        return self.rounds is not None and self.done >= self.rounds

    def normals(self) -> list[np.ndarray] | None:
        """Return fresh secret numbers for a dither; None where there is none. The same ones open the same round."""
        return None if not self.server.broadcast.learns or self.is_over else self._server.draw(self.model)

    def ask(self, members: Sequence[str], normals: list[np.ndarray] | None = None) -> Request | None:
        """Open the next round, and return what all are asked for; None: the run has ended."""
        number, self.request = self.done + 1, None
        if self.is_over:
            return None
        sent = self._server.place(self.model, normals)
        factors = self._book.factors(members) if members else np.ones(1)
        samples = self._server.request(sent, factors)
        covered = self._book.covered(factors, samples) if samples > 0 else 0
        if covered < 1:
            self._book.close()
            return None
        self._server.is_last = number == self.rounds or covered < 2
        self.sent, self.request = sent, Request(self.name, number, samples, self.server.sends)
        return self.request

    def request_of(self, account: str) -> Request:
        """Return what one agent is asked for in the open round."""
        return self._server.request_of(account, self._open(), self._book.roster)

    def settle(self, reports: Sequence[Report], metrics: Mapping[str, float] | None = None) -> PaidRound:
        """Pay for the reports to the open round, move the model, and record it all at once.

        A report of an agent that joins without the deposit that the run asks for has no part in it.
        Where that fails, `resume` goes on from what the ledger has.
        """
        request, short_of = self._open(), self._book.short_of()
        admitted = [report for report in reports if not short_of(report.account)]
        paid = self._server.settle(request, self._book.seats(admitted), mean=True)
        self._server.refuse(paid)
        self._server.accept()
        moved = self._server.next_model(self.model, paid)
        groups: dict[str, Any] = {"model": dict(moved), **self._server.saved()}
        paid = self._book.record(paid, metrics or {}, {name: group for name, group in groups.items() if group})
        self.model, self.request = moved, None
        self._log(paid)
        if self.is_over:
            self._book.close()
        if self.on_round is not None:
            self.on_round(self._server.numbers(paid))
        return paid

    def resume(self) -> None:
        """Go on after the last round that is in the ledger; no round is open."""
        self.request = None
        self._server.begin(self.template, self.model)
        found = self._book.open(resume=True)
        if found is not None:
            rule, saved = found
            self.model = self.template.ordered(saved["model"], self.name)
            self._server.resume(self.done, len(self._book.roster), rule, saved)
        if self.is_over:  # it may have been killed before it was closed
            self._book.close()

    def _open(self) -> Request:
        if self.request is None:
            raise RuntimeError(f"run {self.name!r}: no round is open; `ask` opens one")
        return self.request

    def _log(self, paid: PaidRound) -> None:
        log, number = self._server.log, paid.request.round
        log.info("Round %d pays %.6f %s to %d agents", number, paid.total, self._book.unit, paid.participants)
        for line in paid.lines():
            log.debug("\t> %s", line)
        if paid.warning:
            log.warning("Round %d: %s", number, paid.warning)
        self._server.log_noise_scale(paid)
        self._server.log_warning(paid)
