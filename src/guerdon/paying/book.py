"""A run's page in the ledger: who belongs to it, how far it is, and what each agent was last paid."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np

from guerdon.arrays import check_number
from guerdon.ledger import Ledger
from guerdon.ledger.cost_factors import check_factors
from guerdon.ledger.errors import RefusedError, UnavailableError
from guerdon.ledger.money import LARGEST, MICRO, format_amount, to_micro
from guerdon.ledger.unvested import check_losses, check_terms
from guerdon.ledger.vesting import ROUNDS
from guerdon.paying.messages import Pay, Request
from guerdon.paying.reports import Report
from guerdon.rule import Payments, Rule, Status
from guerdon.server import Settlement
from guerdon.statistical.audit import held_back
from guerdon.words import about, can_take_back

if TYPE_CHECKING:
    from guerdon.ledger.statements import Payslip

NOT_ASKED = "was not asked this round"
TOO_FEW = (Status.ALONE, Status.TOO_FEW)  # nobody to compare with
ROUNDING = 1e-9  # amounts are rounded to millionths: a budget for ten rounds is one for ten rounds
WAITS = (1, 2, 5, 10, 30, 60)  # seconds between attempts: the work is done, the pay must not be lost

Found = TypeVar("Found")
OnRound = Callable[[dict[str, float]], object]  # told the numbers of each round


def no_factors(accounts: Sequence[str]) -> Any:
    """Return that the rule's cost is everybody's."""
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

    def lines(self) -> list[str]:
        """Return a line for each agent: what it gets, or why it gets nothing."""
        statuses = [Status(int(status)) for status in self.payments.status]
        rows = zip(self.seats.accounts, self.payments.released, statuses, self.seats.notes(), strict=True)
        return [
            f"{name}: {reward:.6f} ({status.label}{f', {note}' if note else ''})" for name, reward, status, note in rows
        ]


class PayTerms(NamedTuple):
    """How losses are met, after how many rounds of a node pay vests, and the deposit (micro-units) to join later.

    None: as the run has it already, or as is safe.
    """

    liability: str
    vesting: int | None
    deposit: int | None

    def of_new_run(self, rule: Rule) -> "PayTerms":
        """Return what a run is begun with: pay vests where a reward can be negative, unless it is told otherwise."""
        usual = ROUNDS if can_take_back(rule) else 0
        return self._replace(vesting=usual if self.vesting is None else self.vesting)

    def warning(self, rule: Rule) -> str:
        """Return what an operator must know before money is paid on these terms; mostly nothing."""
        terms = self.of_new_run(rule)
        if not can_take_back(rule) or (self.liability != "floor" and terms.vesting):
            return ""
        cut = "cuts losses at zero: it pays more than the rule makes it, and " if self.liability == "floor" else ""
        at_once = "" if terms.vesting else f"vesting=0 pays at once: {HIT_AND_RUN}"
        return f"liability={self.liability!r} {cut}{at_once or HIT_AND_RUN}"


def pay_terms(rule: Rule, liability: str, vesting: int | None, deposit: float | None) -> PayTerms:
    """Return what an operator says of a run (the deposit in units), or raise where it makes no sense."""
    told = PayTerms(liability, vesting, None if deposit is None else int(to_micro(deposit)))
    check_losses(rule, liability, check_terms(*told.of_new_run(rule)))
    return told


HIT_AND_RUN = (
    "a new name can take what chance gives it and leave its losses behind; `guerdon ledger stakes` says how much, and "
    "what stops it"
)


class RunBook(Protocol):
    """What a run is written into. `done` is its last round, `roster` its agents, `unit` that of the pay."""

    done: int
    roster: list[str]
    unit: str

    def open(self, *, resume: bool) -> tuple[Any, dict[str, Any]] | None:
        """Return the rule's state and the arrays saved with the last round; None if there is none yet."""
        ...

    def pay_of(self, account: str) -> Pay | None:
        """Return what an account was paid for the last round; None if nothing."""
        ...

    def seats(self, reports: Sequence[Report]) -> Seats:
        """Return a round's reports in the order of the run's agents."""
        ...

    def record(self, paid: PaidRound, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> PaidRound:
        """Write a round down; return it with the payments as they are written, which is what to report."""
        ...

    def keys(self) -> dict[str, bytes]:
        """Return the public keys that are enrolled, by account."""
        ...

    def factors(self, accounts: Sequence[str]) -> Any:
        """Return what the rule's cost is multiplied by for each of these agents."""
        return no_factors(accounts)

    def covered(self, factors: Any, request: int) -> float:
        """Return how many rounds may follow in which agents with these factors are asked for so many samples each."""
        ...

    def short_of(self) -> Callable[[str], str]:
        """Return what tells of an account why it may not take part (yet); mostly nothing."""
        return lambda _: ""


class Book(RunBook):
    """The run in the ledger. `done` is the last round that is paid, `roster` its agents."""

    def __init__(
        self,
        ledger: Ledger,
        run: str,
        rule: Rule,
        stakes: PayTerms,
        escrow: bool,
        budget: float | None,
        cost_factors: Mapping[str, float] | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        if cost_factors is not None:
            check_factors(cost_factors)
        if budget is not None:
            check_number("budget", budget, minimum=0)
        self.ledger, self.run, self.rule, self.stakes = ledger, run, rule, stakes
        self.escrow = escrow  # whether the fixed part of the cost is held back
        self.budget = budget  # for all rounds of the run
        self.cost_factors = cost_factors  # as the operator gives them; None: as the run has them
        self._factors: Mapping[str, float] = cost_factors or {}
        self.log = logging.getLogger("guerdon") if log is None else log
        self.done, self.unit = 0, ledger.unit
        self.roster: list[str] = []
        self._payslips: dict[str, Payslip] = {}

    def open(self, *, resume: bool) -> tuple[Any, dict[str, Any]] | None:
        """Return the rule's state and the arrays saved with the last paid round; None if none is paid yet."""
        self.roster = self.ledger.roster(self.run)
        if self.roster:
            # Found as it was begun, or refused.
            stakes, told = self.stakes._asdict(), self._told(self.roster)
            self.ledger.start_run(self.run, self.roster, self.rule, **stakes, cost_factors=told)
            self._factors = {**self._factors, **self.ledger.cost_factors(self.run)}
        self._warn_of_strangers()
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
        self._read_payslips()
        return found.state, found.arrays

    def pay_of(self, account: str) -> Pay | None:
        """Return what an account was paid for the last round, or None if it has no part in the run yet."""
        slip = self._payslips.get(account)
        if slip is None:
            return None
        return Pay(slip.round, slip.request, slip.status, slip.reward, slip.balance, self.unit, slip.why)

    def seats(self, reports: Sequence[Report]) -> Seats:
        """Return a round's reports in the order of the run's agents."""
        return Seats.of(self.roster, reports, self.factors)

    def factors(self, accounts: Sequence[str]) -> Any:
        """Return what the rule's cost is multiplied by for each of these agents."""
        return np.array([float(self._factors.get(account, 1.0)) for account in accounts])

    def record(self, paid: PaidRound, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> PaidRound:
        """Write a round into the ledger, with all that is needed to go on after it; return it as it is recorded."""
        recorded = self._patiently(lambda: self._write(paid, metrics, checkpoint))
        self.roster, self.done = paid.seats.accounts, paid.request.round
        self._read_payslips()
        return paid.with_payments(recorded)

    def _write(self, paid: PaidRound, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> Payments:
        """Record a round, and return its payments in whole micro-units; doing so twice changes nothing."""
        seats, request = paid.seats, paid.request
        if not self.roster:
            stakes, told = self.stakes.of_new_run(self.rule), self._told(seats.accounts)
            self.ledger.start_run(self.run, seats.accounts, self.rule, **stakes._asdict(), cost_factors=told)
        found = self.ledger.record_round(
            self.run,
            request.round,
            paid.done.round,
            payments=paid.payments,
            agents=seats.accounts,
            cost_factors=self._told(seats.accounts),
            gradients=[None if report is None else report.gradient for report in seats.reports],
            signatures=[None if report is None else report.signature for report in seats.reports],
            notes=seats.notes(),
            held=self._held(paid) if self.escrow else None,
            metrics=metrics,
            checkpoint=checkpoint,
        )
        return cast("Payments", found.payments)  # a round has them

    def _held(self, paid: PaidRound) -> Any:
        """Return what of each reward waits for the audit: the fixed part of the agent's own cost."""
        factors = paid.seats.factors
        return held_back(paid.payments.released / factors, self.rule.cost, paid.request.request) * factors

    def _told(self, accounts: Sequence[str]) -> dict[str, float] | None:
        """Return the cost factors of these agents as the operator gave them; None: it gave none."""
        told = self.cost_factors
        return None if told is None else {name: told[name] for name in accounts if name in told}

    def _warn_of_strangers(self) -> None:
        """Warn of factors that nobody has: a name may be misspelt."""
        known = {found.agent for found in self.ledger.balances()} if self.cost_factors else ()
        for name in sorted(set(self.cost_factors or ()) - set(known)):
            have = ", ".join(sorted(known)[:10]) or "none yet"
            self.log.warning(
                "`cost_factors` names %r, which has no account in the ledger (yet); there is %s", name, have
            )

    def short_of(self) -> Callable[[str], str]:
        """Return what tells of an account that is new in the run which deposit it lacks; mostly nothing."""
        asked = self._patiently(lambda: self.ledger.terms(self.run)).deposit if self.roster else 0
        if not asked:
            return lambda _: ""
        has = {found.agent: found.deposit for found in self._patiently(self.ledger.balances)}
        why = f"it joins run {self.run!r} late, without the deposit of {format_amount(asked)} {self.unit}"

        def lacks(account: str) -> str:
            return why if account not in self.roster and has.get(account, 0) < asked else ""

        return lacks

    def close(self) -> None:
        """Let the rest of the pay vest: the rounds that were planned are over. Done again, it changes nothing."""
        if not self.roster:
            return
        done = self._patiently(lambda: self.ledger.close_run(self.run))
        if done.vested or done.unvested:
            vested, rest = format_amount(done.vested), format_amount(done.unvested)
            self.log.info("Run %r is closed: %s %s vested, %s stays unvested", self.run, vested, self.unit, rest)

    def _read_payslips(self) -> None:
        self._payslips = {slip.agent: slip for slip in self._patiently(lambda: self.ledger.payslips(self.run))}

    def keys(self) -> dict[str, bytes]:
        """Return the public keys that are enrolled, by account."""
        return self._patiently(self.ledger.keys)

    def covered(self, factors: Any, request: int) -> float:
        """Return how many rounds at the cost of agents with these factors are covered by what is left of the budget."""
        if self.budget is None:
            return math.inf
        spent = self._patiently(lambda: self.ledger.earnings(self.run)) if self.roster else []
        # A rule that holds pay back may release it later: as much as the work costs.
        bound = [max(found.paid, found.cost) if about(self.rule).holds else found.paid for found in spent]
        left, price = self.budget - sum(bound), float(np.sum(factors)) * float(self.rule.cost(request))
        if left < price * (1 - ROUNDING):
            self.log.warning("Of the budget of %g, %g is left, and the next round costs %g", self.budget, left, price)
        return left / price * (1 + ROUNDING)

    def _patiently(self, call: Callable[[], Found]) -> Found:
        """Return what a call to the ledger returns, trying again for a while if the database is away."""
        for wait in WAITS:
            try:
                return call()
            except UnavailableError as error:
                self.log.warning("The ledger cannot be reached, next attempt in %d s: %s", wait, error)
                time.sleep(wait)
        return call()
