"""The one driver of paid rounds: for Flower, FLARE, `guerdon serve`, pilots, and a loop of your own.

    run = open_run(Server(FlatPay(cost), FixedRequest(16, 0.1)), ledger, "heart-2026", model, Terms(budget=5_000))
    while run.ask(members):                      # run.sent is what to broadcast, run.request what is asked for
        run.settle([run.report(name, work(name, run.sent, run.request)) for name in members])

A round has three steps. `ask` opens it, `pay` compares the reports and says what each is paid, `record` writes that
into the ledger with the model that follows: all or nothing. `settle` does the last two where Guerdon makes the model;
a framework that has a strategy of its own makes the model in between.

All that a run knows is in the ledger: opened again, it goes on after the last paid round.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from guerdon.arrays import check_positive_integer
from guerdon.ledger import Ledger, RefusedError
from guerdon.looks.naming import NamedRound
from guerdon.reports import AgentRows
from guerdon.rule import notice_of
from guerdon.run.book import Book, RunBook
from guerdon.run.fit import checked
from guerdon.run.layers import Layers
from guerdon.run.messages import MODELS, Request, Work
from guerdon.run.notices import SHOWN, Notices
from guerdon.run.reports import Arrays, Report, Template, Witness, hash_of
from guerdon.run.rounds import PaidRound, Seats
from guerdon.server import Server
from guerdon.states import flatten_state, restore_parts
from guerdon.statistical.dithers import secret_normals
from guerdon.terms import Terms
from guerdon.witness import WitnessSample, stack_minibatches, witness_sample, witness_samples
from guerdon.words import about

OnRound = Callable[[dict[str, float]], object]  # told the numbers of each round

PARTS = ("requests", "lens", "broadcast")  # of the server's state, in a checkpoint; the ledger replays the rule's


def open_run(
    server: Server,
    ledger: Ledger,
    run: str,
    model: Arrays,
    terms: Terms | None = None,
    *,
    rounds: int | None = None,
    witness: Witness | None = None,
    on_round: OnRound | None = None,
    log: logging.Logger | None = None,
) -> "PaidRun":
    """Return a run in a ledger, begun with a model or taken up after its last paid round.

    - `server`: asks, compares and pays; `Server.sends` says whether agents send gradients or models.
    - `run`: its name in the ledger. `model`: NumPy arrays by name.
    - `terms`: when pay is released, who covers losses, a budget, … (default: `Terms()`).
    - `rounds`: how many there are to be in all; None: until `server.requests` or the budget ends it.
    - `witness`: for a rule that pays by the server's own data: gradients of several minibatches at a model.
    - `on_round`: called with the numbers of each round after it is recorded.
    """
    terms = Terms() if terms is None else terms
    server = checked(server, terms, witness is not None)
    book = Book(ledger, run, server.rule, terms, log)
    made = PaidRun(server, book, rounds=rounds, witness=witness, on_round=on_round, log=log)
    made.begin(model, "model")
    return made


class PaidRun:
    """A run: its model, the open round, what the server knows, and the book that it is written into.

    `book` is the run in the ledger, or a pilot's record. The other arguments are those of `open_run`. `samples` is how
    many samples the witness's gradients are of, where no rule of the server says it.
    """

    def __init__(
        self,
        server: Server,
        book: RunBook,
        *,
        rounds: int | None = None,
        witness: Witness | None = None,
        samples: int = 0,
        on_round: OnRound | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        if rounds is not None:
            check_positive_integer("rounds", rounds)
        self.server, self.book, self.rounds, self.on_round = server, book, rounds, on_round
        self.log = logging.getLogger("guerdon") if log is None else log
        self.model: Arrays = {}
        self.sent: Arrays = {}  # what is broadcast in the open round
        self.request: Request | None = None  # of the open round
        self.template: Template = Template({}, {})
        self.saved: dict[str, Any] = {}  # the groups of arrays that the last checkpoint had
        self._first: Arrays = {}
        self._witness, self._samples = witness, samples or witness_samples(server.rule)
        self._seen: WitnessSample | None = None  # what the server's own data say of the model that was sent
        self._layers = Layers([], wide=False)
        self._notices = Notices(server, self.log)
        self._state: Any = None  # a `ServerState`
        self._after: Any = None  # the state that the last settlement leads to
        self._ask: Any = None  # an `Ask`, with the model as it is sent
        self._own: dict[str, int] = {}  # what agents are asked for, where it is a number of their own
        self._asked: set[str] = set()  # who was told what the open round asks for
        self._told: set[str] = set()  # accounts that the log has said are left out
        self.named: NamedRound | None = None  # what the open round's ask carries, where looks hold the pay
        self._fresh = True  # nobody was asked yet

    @property
    def name(self) -> str:
        """The run's name."""
        return self.book.run

    @property
    def done(self) -> int:
        """The last round that is paid."""
        return self.book.done

    @property
    def is_over(self) -> bool:
        """Whether all its rounds are paid."""
        return self.rounds is not None and self.done >= self.rounds

    @property
    def shifts(self) -> bool:
        """Whether agents send models that they trained from beside the model: then these are moved back."""
        return self.server.broadcast.learns and self.server.sends == MODELS

    @property
    def layers(self) -> Layers:
        """The arrays of the model that are compared."""
        return self._layers

    def begin(self, model: Arrays, what: str = "initial_arrays", *, resume: bool = True) -> None:
        """Begin with a model, or take up the run after its last paid round; `what` names the model in errors.

        What another policy, prediction or dither has saved is of no use: that part begins anew.
        """
        self.template, self._first = Template.of(model, what), model
        self.model, self.sent, self.request, self.saved, self._fresh = model, model, None, {}, True
        layers = Layers(sorted(self.template.compared), wide=False)
        self._notices.on_model(layers.of(model))
        state = self.server.init(layers.of(model), num_agents=1)
        self._layers = layers._replace(wide=bool(self.server.needs_mean(state)))
        self._state = self.server.init(self._layers.of(model), num_agents=1)
        found = self.book.open(resume=resume)
        if found is not None:
            rule, self.saved = found
            self.model = self.template.ordered(self.saved.get("model", {}), self.name)
            state = self.server.enlarge(self._state, len(self.book.roster))
            state = state._replace(round=np.asarray(self.done), rule=rule)
            parts = {part: restore_parts(getattr(state, part), self.saved.get(part, {})) for part in PARTS}
            self._state, self._fresh = state._replace(**parts), not self.saved.get("requests")
        if self.is_over:  # it may have been killed before it was closed
            self.book.close()

    def resume(self) -> None:
        """Go on after the last round that is in the book; no round is open."""
        self.begin(self._first)

    def normals(self) -> list[np.ndarray] | None:
        """Return fresh secret numbers for a dither; None where there is none. The same ones open the same round."""
        learns = self.server.broadcast.learns and not self.is_over
        return secret_normals(self._layers.of(self.model)) if learns else None

    def ask(
        self,
        members: Sequence[str],
        normals: list[np.ndarray] | None = None,
        *,
        named: NamedRound | None = None,
        is_last: bool = False,
    ) -> Request | None:
        """Open the next round, and return what all are asked for; None: the run has ended.

        `members`: the accounts that are asked, but for those that lack a deposit (`short_of`); the log names these.
        `normals`, `named`: of the same round, where it was opened before; else they are made anew. `is_last`: whether
        no other round is planned.
        """
        number, self.request, self.sent, self.named = self.done + 1, None, self.model, None
        if self.is_over:
            return None
        self._asked = set(self._covered(members))
        self._ask, self._state = self.server.ask(self._state, self._layers.of(self.model), normals)
        sent = self._layers.put(self.model, self._ask.model) if self.server.broadcast.learns else self.model
        factors = self.book.factors(members) if members else np.ones(1)
        samples = self._samples_to_ask(sent, factors)
        covered = self.book.covered(factors, samples) if samples > 0 else 0
        if covered < 1:
            self.log.info("Nothing more is asked for: run %r ends before round %d", self.name, number)
            self.book.close()
            return None
        self._ask = self._ask._replace(is_last=is_last or number == self.rounds or covered < 2)
        self._own = self._own_requests() | self.book.own_requests(members)
        self.named = named or self.book.fresh(number, sent)
        work = None if self.named is None else Work.shared(self.named, self.book.code)
        told = self.name, number, samples, self.server.sends
        self.sent, self.request = sent, Request(*told, ledger=self.book.name, work=work)
        self.log.info("Round %d asks %d members for %d samples each", number, len(members), samples)
        return self.request

    def short_of(self) -> Callable[[str], str]:
        """Return what tells of an account why it is not asked: mostly nothing.

        Where a loss is another's gain, and deposits cover losses, what a member can lose in a round must be there.
        """
        own, rule = about(self.server.rule), self.server.rule
        samples = max([int(self.server.request(self._state)), 1, *self._own.values()])
        return self.book.short_of(own.worst_loss(rule, samples) if own.transfers(rule) else 0.0)

    def request_of(self, account: str) -> Request:
        """Return what one agent is asked for in the open round, or raise: it lacks a deposit."""
        request = self._open()
        if account not in self._asked:
            why = self.short_of()(account)
            if why:
                raise RefusedError(f"agent {account!r} is not asked: {why}")
            self._asked.add(account)
        request = request.asking(self._own[account]) if account in self._own else request
        return request if self.named is None else request._replace(work=self.book.work(account, self.named, request))

    def report(self, account: str, arrays: Arrays | None, reply: Any = None) -> Report:
        """Return what an agent sent in the open round as a report; None: nothing. What cannot be used is refused.

        `reply`: what the arrays came in, where a framework's strategy wants it back.
        """
        if arrays is None:
            return Report(account)
        report = Report(account, sent=True)
        try:
            report.arrays = self.template.view(arrays)
            report.reply, report.gradient = arrays if reply is None else reply, hash_of(report.arrays)
        except (ValueError, TypeError) as error:
            report.refuse(str(error))
        return report

    def pay(
        self, reports: Sequence[Report], *, mean: bool = False, agree: Callable[[], object] | None = None
    ) -> PaidRound:
        """Return what the open round pays; a report that cannot be used, or keeps others from being paid, is refused.

        A report of an agent that was not asked, and lacks a deposit that it needs, has no part in it. `mean`: also the
        mean of the reports, where no strategy of the framework makes the model. `agree` refuses reports that cannot be
        used together, once those are refused that cannot be used at all.
        """
        request = self._open()
        there = self._asked | set(self._covered([one.account for one in reports if one.account not in self._asked]))
        seats = self.book.seats([report for report in reports if report.account in there])
        after, paid = self._settled(request, seats, mean=mean)
        usable = sum(report.usable for report in reports)
        if agree is not None:
            agree()
        if sum(report.usable for report in reports) < usable:
            after, paid = self._settled(request, seats, mean=mean)
        self.book.watch(self._ask, self._layers.rows(seats), paid, self.sent, self._seen)
        self._after = after
        return paid

    def record(
        self,
        paid: PaidRound,
        model: Arrays,
        metrics: Mapping[str, float] | None = None,
        saved: Mapping[str, Any] | None = None,
    ) -> PaidRound:
        """Write a round into the book with the model that follows it, and go on from there; return it as it is written.

        `saved`: groups of arrays that a framework wants back when the run is taken up (see `PaidRun.saved`). Where this
        fails, `resume` goes on from what the book has.
        """
        self._state = self._after
        groups = {"model": dict(model), **(saved or {})}
        groups |= {part: flatten_state(getattr(self._state, part)) for part in PARTS}
        paid = self.book.record(paid, metrics or {}, {name: group for name, group in groups.items() if group})
        self.model, self.request = model, None
        if self.on_round is not None:
            self.on_round(paid.numbers())
        self._log(paid)
        if self.is_over:
            self.book.close()
        return paid

    def settle(self, reports: Sequence[Report], metrics: Mapping[str, float] | None = None) -> PaidRound:
        """Pay for the reports to the open round, move the model, and record it all at once."""
        paid = self.pay(reports, mean=True)
        return self.record(paid, self._next_model(paid), metrics)

    def kept(self, paid: PaidRound) -> list[tuple[Report, Arrays]]:
        """Return the reports that the model is made from, and their arrays: too long ones shortened, the dither off."""
        return self._layers.kept(paid, self._ask, shifts=self.shifts)

    def along(self, paid: PaidRound) -> dict[str, np.ndarray] | None:
        """Return what a step is taken along under a dither: nothing in the first half of a pair; None: without one."""
        if not self.server.broadcast.learns:
            return None
        return self._layers.named(paid.done.mean) if paid.done.step else {}

    def _covered(self, accounts: Sequence[str]) -> list[str]:
        """Return those who have the deposit that they need; of the others the log tells once."""
        lacks = self.short_of()
        short = {account: why for account in accounts if (why := lacks(account))}
        for account in short.keys() - self._told:
            self.log.warning("%s is left out: %s", account, short[account])
        self._told = short.keys() | (self._told - set(accounts))
        return [account for account in accounts if account not in short]

    def _samples_to_ask(self, sent: Arrays, factors: Any) -> int:
        """Return how many samples to ask agents with these cost factors for, which are sent this model; 0: no more."""
        if self._fresh:
            self._state = self._state._replace(requests=self.server.requests.init(self._ask.origin, len(factors)))
        self._fresh, self._state = False, self.server.for_agents(self._state, float(np.sum(factors)))
        samples = int(self.server.request(self._state))
        # Agents see the model in its own precision, so that is where reports are compared from.
        model = self._layers.of(sent) if self.server.broadcast.learns else self._ask.model
        notice = notice_of(self.server.rule, self._state.rule, samples)
        start = None if self._ask.start is None else model
        self._ask = self._ask._replace(request=samples, model=model, start=start, notice=notice)
        self._seen = self._look(sent) if samples > 0 else None
        self._notices.on_request(samples)
        return samples

    def _own_requests(self) -> dict[str, int]:
        """Return what the rule asks each agent of the run for; nothing where all are asked for the same."""
        own = self._ask.notice.own
        return {} if own is None else dict(zip(self.book.roster, map(int, own), strict=False))

    def _settled(self, request: Request, seats: Seats, *, mean: bool) -> tuple[Any, PaidRound]:
        """Return the state after a round, and what it pays; reports that are not counted are refused."""
        before = self.server.enlarge(self._state, len(seats.accounts))
        notice = notice_of(self.server.rule, before.rule, self._ask.request)  # also of those who came since
        ask = self._ask._replace(notice=notice, enrolled=before.enrolled, witness=self._seen)
        rows = AgentRows(self._layers.rows(seats))
        done, after = self.server.settle(before, ask, rows, seats.sent, mean=mean, factors=seats.factors)
        paid = PaidRound(request, seats, done, self.named)
        if not paid.is_payable:
            paid.refuse_furthest()
            return self._settled(request, seats, mean=mean)
        paid.note_on_reports(dict(enumerate(self._own_requests().values())))
        return after, paid

    def _next_model(self, paid: PaidRound) -> Arrays:
        """Return the model after a round that was settled with its mean: one step, or the mean of the models."""
        step, origin = float(paid.done.step), self._layers.of(self.model)
        moved = [old - step * part for old, part in zip(origin, paid.done.mean, strict=True)]
        if not all(np.isfinite(part).all() for part in moved):
            self.log.error("The new model would hold NaN or infinity; the one before it stays")
            return self.model
        return self._layers.put(self.model, moved)

    def _look(self, sent: Arrays) -> WitnessSample | None:
        """Return what the server's own data say of the model that was sent."""
        if self._witness is None:
            return None
        minibatches = [self._layers.of(found) for found in self._witness(sent)]
        if len(minibatches) < 2 or self._samples % len(minibatches):
            raise ValueError(
                "`witness` must return the gradients of at least two minibatches of equal size, "
                f"{self._samples} samples in all, got {len(minibatches)}"
            )
        return witness_sample(stack_minibatches(minibatches), self._samples // len(minibatches))

    def _open(self) -> Request:
        if self.request is None:
            raise RuntimeError(f"run {self.name!r}: no round is open; `ask` opens one")
        return self.request

    def _log(self, paid: PaidRound) -> None:
        headline, *rest = self.book.lines(paid)
        self.log.info("%s", headline)
        for line in rest[:SHOWN]:
            self.log.info("\t> %s", line)
        if paid.warning:
            self.log.warning("Round %d: %s", paid.request.round, paid.warning)
        self._notices.on_round(paid, self._state)
