"""Where a run is written down: its agents, how far it is, and what each was last paid."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from guerdon.asking import Ask
from guerdon.ledger import Ledger
from guerdon.ledger.books.checks import check_name
from guerdon.ledger.books.errors import RefusedError, UnavailableError
from guerdon.ledger.books.money import MICRO, format_amount, to_micro
from guerdon.looks.naming import NamedRound
from guerdon.rule import Payments, Rule, Status
from guerdon.run.messages import Pay, Request, Work
from guerdon.run.notices import warning_of_terms
from guerdon.run.reports import Arrays, Report
from guerdon.run.rounds import PaidRound, Seats, no_factors
from guerdon.run.work import NamedWork, with_code
from guerdon.terms import Looks, Terms
from guerdon.witness import WitnessSample
from guerdon.words import about

if TYPE_CHECKING:
    from guerdon.ledger.read.statements import Payslip

Found = TypeVar("Found")

ROUNDING = 1e-9  # amounts are rounded to millionths: a budget for ten rounds is one for ten rounds
WAITS = (1, 2, 5, 10, 30, 60)  # seconds between attempts: the work is done, the pay must not be lost


def pays(status: Any) -> bool:
    """Tell whether work with this status is paid."""
    return Status(int(status)).is_paid


class RunBook(Protocol):
    """What a run is written into: its name, its last round, its agents in order, and the unit of their pay."""

    run: str
    done: int
    roster: list[str]
    unit: str
    code: str = ""  # the hash of the application's function, where looks hold the pay
    name: str = ""  # of the ledger, which signatures are for

    def open(self, *, resume: bool) -> tuple[Any, dict[str, Any]] | None:
        """Return the rule's state and the arrays saved with the last round; None if there is none yet."""
        ...

    def pay_of(self, account: str) -> Pay | None:
        """Return what an account was paid for the last round; None if nothing."""
        ...

    def record(self, paid: PaidRound, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> PaidRound:
        """Write a round down; return it with the payments as they are written, which is what to report."""
        ...

    def keys(self) -> dict[str, bytes]:
        """Return the public keys that are enrolled, by account."""
        ...

    def seats(self, reports: Sequence[Report]) -> Seats:
        """Return a round's reports in the order of the run's agents."""
        return Seats.of(self.roster, reports, self.factors)

    def factors(self, accounts: Sequence[str]) -> Any:
        """Return what the rule's cost is multiplied by for each of these agents."""
        return no_factors(accounts)

    def covered(self, factors: Any, request: int) -> float:
        """Return how many rounds may follow in which agents with these factors are asked for so many samples each."""
        del factors, request
        return math.inf

    def own_requests(self, accounts: Sequence[str]) -> dict[str, int]:
        """Return what agents are asked for in the next round whatever the rule says; mostly nobody."""
        del accounts
        return {}

    def fresh(self, number: int, model: Arrays) -> NamedRound | None:
        """Return what the ask of a round carries where looks hold the pay: mostly nothing."""
        del number, model

    def committed(self) -> list[str]:
        """Return the accounts that have committed to rows, where looks hold the pay: mostly nobody."""
        return []

    def work(self, account: str, named: NamedRound, request: Request) -> Work:
        """Return the work that a round names for an agent, where looks hold the pay."""
        del account, named, request
        raise RefusedError(f"run {self.run!r} names no rows: its pay is not held until looks")

    def watch(self, ask: Ask, rows: Any, paid: PaidRound, model: Arrays, witness: WitnessSample | None) -> None:
        """Look at a round's reports, and at the model that was broadcast, before they are dropped."""

    def short_of(self, worst: float) -> Callable[[str], str]:
        """Return what tells of an account why it is not asked where it can lose `worst` in a round; mostly nothing."""
        del worst
        return lambda _: ""

    def summary(self) -> list[str]:
        """Return what is to be said of a run when it begins, a line each."""
        return []

    def lines(self, paid: PaidRound) -> list[str]:
        """Return what is to be said of a round that is written down: a headline, then a line for each agent."""
        headline = f"Round {paid.request.round} pays {paid.total:.6f} {self.unit} to {paid.participants} members"
        return [headline, *paid.lines()]

    def close(self) -> None:
        """Do what is left to do when the rounds that were planned are over. Done again, it changes nothing."""


class Book(RunBook):
    """The run in the ledger, on its terms."""

    def __init__(self, ledger: Ledger, run: str, rule: Rule, terms: Terms, log: logging.Logger | None = None) -> None:
        check_name("a run's name", run)
        self.ledger, self.run, self.rule = ledger, run, rule
        self.terms = with_code(terms).under(rule)
        self._holds_as_begun = terms.hold is None  # nothing was said: a run that exists keeps what it has
        self._factors: Mapping[str, float] = terms.cost_factors
        self.log = logging.getLogger("guerdon") if log is None else log
        self.done, self.unit, self.name = 0, ledger.unit, ledger.name
        self.roster: list[str] = []
        self._payslips: dict[str, Payslip] = {}
        self._work: NamedWork | None = None  # where looks hold the pay

    def open(self, *, resume: bool) -> tuple[Any, dict[str, Any]] | None:
        """Return the rule's state and the arrays saved with the last paid round; None if none is paid yet."""
        self.roster = self.ledger.roster(self.run)
        if self.roster:
            if self._holds_as_begun:
                self.terms = replace(self.terms, hold=self.ledger.terms(self.run).hold)
            self.ledger.start_run(self.run, self.roster, self.rule, self._terms_for(self.roster))
            self._factors = {**self._factors, **self.ledger.cost_factors(self.run)}
        self._warn()
        if isinstance(self.terms.hold, Looks):
            self._work, self.code = NamedWork(self.ledger, self.run, self.terms.hold), self.terms.hold.code
            self._work.open()
        found = self.ledger.resume(self.run)
        if found is None:
            return None
        if not resume:
            raise RefusedError(
                f"run {self.run!r} has {found.round} paid rounds; begin with `Paid.start`, which continues after them, "
                "or give another `run`"
            )
        if "model" not in found.arrays:
            raise RefusedError(f"round {found.round} of run {self.run!r} was recorded without a model to continue from")
        self.done = found.round
        self._read_payslips()
        return found.state, found.arrays

    def pay_of(self, account: str) -> Pay | None:
        """Return what an account was paid for the last round, or None if it has no part in the run yet."""
        slip = self._payslips.get(account)
        if slip is None:
            return None
        return Pay(slip.round, slip.request, slip.status, slip.reward, slip.balance, self.unit, slip.why)

    def factors(self, accounts: Sequence[str]) -> Any:
        """Return how many times the rule's cost each of these agents is paid: its cost factor, times the price."""
        return np.array([float(self._factors.get(account, 1.0)) for account in accounts]) * self.terms.price

    def fresh(self, number: int, model: Arrays) -> NamedRound | None:
        """Return what the ask of a round carries where looks hold the pay."""
        return None if self._work is None else self._work.fresh(number, model)

    def committed(self) -> list[str]:
        """Return the accounts that have committed to rows, where looks hold the pay."""
        return [] if self._work is None else self._work.members()

    def work(self, account: str, named: NamedRound, request: Request) -> Work:
        """Return the work that a round names for an agent."""
        if self._work is None:
            return super().work(account, named, request)
        return self._work.of(account, named, request.round, request.request)

    def watch(self, ask: Ask, rows: Any, paid: PaidRound, model: Arrays, witness: WitnessSample | None) -> None:
        """Keep the round's reports where looks may be at them."""
        del ask, rows, witness
        if self._work is not None:
            reports = {one.account: one.arrays for one in paid.seats.reports if one is not None and one.usable}
            self._work.keep(paid.request.round, model, reports)

    def record(self, paid: PaidRound, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> PaidRound:
        """Write a round into the ledger, with all that is needed to go on after it; return it as it is recorded."""
        recorded = self._patiently(lambda: self._write(paid, metrics, checkpoint))
        self.roster, self.done = paid.seats.accounts, paid.request.round
        if self._work is not None and paid.named is not None:
            counted = [name for name, status in zip(self.roster, recorded.status, strict=True) if pays(status)]
            self._work.recorded(paid.request.round, paid.named, counted, paid.request.recorded)
        self._read_payslips()
        return paid.with_payments(recorded)

    def covered(self, factors: Any, request: int) -> float:
        """Return how many rounds at the cost of agents with these factors are covered by what is left of the budget."""
        budget = self.terms.budget
        if budget is None:
            return math.inf
        spent = self._patiently(lambda: self.ledger.earnings(self.run)) if self.roster else []
        # A rule that holds pay back may release it later: as much as the work costs.
        bound = [max(found.paid, found.cost) if about(self.rule).holds else found.paid for found in spent]
        left, price = budget - sum(bound), float(np.sum(factors)) * float(self.rule.cost(request))
        if left < price * (1 - ROUNDING):
            self.log.warning("Of the budget of %g, %g is left, and the next round costs %g", budget, left, price)
        return left / price * (1 + ROUNDING)

    def short_of(self, worst: float) -> Callable[[str], str]:
        """Return what tells of an account which deposit it lacks: to join late, or for what it can lose in a round.

        `worst`: what a member with a cost factor of 1 can lose in the next round, beyond its own pay.
        """
        if self._work is not None:
            return self._work.lacks(self.done + 1)
        if self.terms.losses != "deposit":
            return lambda _: ""
        asked = int(to_micro(self.terms.deposit)) if self.roster else 0
        has = self._patiently(lambda: self.ledger.collateral(self.run))

        def lacks(account: str) -> str:
            deposit, held = has.get(account, (0, 0))
            if account not in self.roster and deposit < asked:
                return f"it joins run {self.run!r} late, without the deposit of {format_amount(asked)} {self.unit}"
            must = math.ceil(worst * float(self._factors.get(account, 1.0)) * MICRO)
            if deposit + held >= must:
                return ""
            return (
                f"it can lose {format_amount(must)} {self.unit} in the next round of run {self.run!r}, and its deposit "
                f"({format_amount(deposit)}) and what the run holds of it ({format_amount(held)}) do not cover that"
            )

        return lacks

    def keys(self) -> dict[str, bytes]:
        """Return the public keys that are enrolled, by account."""
        return self._patiently(self.ledger.keys)

    def summary(self) -> list[str]:
        """Return where the run is recorded, and whose work costs how much."""
        told = ", ".join(f"{name} × {factor:g}" for name, factor in self.terms.cost_factors.items())
        return [f"Paid rounds of run {self.run!r}, recorded in {self.ledger.where}", *[f"Cost: {told}"] * bool(told)]

    def lines(self, paid: PaidRound) -> list[str]:
        """Return what is to be said of a recorded round; under looks also until when its pay is held."""
        until = next((slip.held for slip in self._payslips.values() if slip.round == paid.request.round), "")
        if not until:
            return super().lines(paid)
        people, total = paid.participants, f"{paid.total:.6f} {self.unit}"
        headline = f"Round {paid.request.round} earns {people} members {total}, held {until}"
        return [headline, *paid.lines({Status.PAID.label: f"held {until}"})]

    def close(self) -> None:
        """Release the rest of what the run holds."""
        if not self.roster:
            return
        done = self._patiently(lambda: self.ledger.close_run(self.run))
        if done.released or done.held:
            released, rest = format_amount(done.released), format_amount(done.held)
            self.log.info("Run %r is closed: %s %s released, %s stays held", self.run, released, self.unit, rest)

    def _write(self, paid: PaidRound, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> Payments:
        """Record a round, and return its payments in whole micro-units; doing so twice changes nothing."""
        seats, request = paid.seats, paid.request
        terms = self._terms_for(seats.accounts)
        if not self.roster:
            self.ledger.start_run(self.run, seats.accounts, self.rule, terms)
        found = self.ledger.record_round(
            self.run,
            request.round,
            paid.done.round,
            payments=paid.payments,
            agents=seats.accounts,
            cost_factors=terms.cost_factors or None,
            gradients=[None if report is None else report.gradient for report in seats.reports],
            signatures=[None if report is None else report.signature for report in seats.reports],
            notes=seats.notes(),
            metrics=metrics,
            checkpoint=checkpoint,
            work=paid.named,
        )
        return cast("Payments", found.payments)  # a round has them

    def _terms_for(self, accounts: Sequence[str]) -> Terms:
        """Return the terms with the cost factors of these accounts only."""
        factors = self.terms.cost_factors
        return replace(self.terms, cost_factors={name: factors[name] for name in accounts if name in factors})

    def _warn(self) -> None:
        """Warn of terms that are not safe, and of cost factors that nobody has: a name may be misspelt."""
        warning = warning_of_terms(self.terms, self.rule)
        if warning:
            self.log.warning("%s", warning)
        told = self.terms.cost_factors
        known = {found.agent for found in self.ledger.balances()} if told else ()
        for name in sorted(set(told) - set(known)):
            have = ", ".join(sorted(known)[:10]) or "none yet"
            self.log.warning(
                "`cost_factors` names %r, which has no account in the ledger (yet); there is %s", name, have
            )

    def _read_payslips(self) -> None:
        self._payslips = {slip.agent: slip for slip in self._patiently(lambda: self.ledger.payslips(self.run))}

    def _patiently(self, call: Callable[[], Found]) -> Found:
        """Return what a call to the ledger returns, trying again for a while if the database is away."""
        for wait in WAITS:
            try:
                return call()
            except UnavailableError as error:
                self.log.warning("The ledger cannot be reached, next attempt in %d s: %s", wait, error)
                time.sleep(wait)
        return call()
