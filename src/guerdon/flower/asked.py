"""`AskedRounds`: any Flower strategy, with every round's work requested, compared, settled and booked."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, Metadata, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from guerdon.flower import recovery
from guerdon.flower.fedsgd import find_steps
from guerdon.flower.messages import tell, with_model
from guerdon.flower.nodes import Member, MembersGrid
from guerdon.flower.payload import as_record, read_arrays, with_arrays
from guerdon.flower.replies import (
    Form,
    Rules,
    agree,
    check_some_worked,
    put_arrays,
    sort_evaluations,
    sort_replies,
    warn_of_other_samples,
)
from guerdon.flower.results import numbers, release_memory
from guerdon.flower.rounds import Rounds
from guerdon.ledger.errors import RefusedError
from guerdon.paying.book import OnRound, PaidRound, RunBook
from guerdon.paying.messages import Request
from guerdon.paying.paid_server import PaidServer
from guerdon.paying.reports import Report, Template, is_finite
from guerdon.words import about

log = logging.getLogger("flwr.guerdon")

SHOWN = 20  # nodes whose pay is logged one by one


class AskedRounds(Strategy):
    """Wraps a strategy: every node is asked for samples, and every round is settled by a server and booked.

    `Rewarded` pays what is settled, `guerdon.flower.Pilot` measures what rules would pay.
    """

    def __init__(self, strategy: Strategy, server: PaidServer, book: RunBook, run: str) -> None:
        self.strategy, self.server, self.run = strategy, server.server, run
        self.allow_anonymous, self.require_signatures = True, False
        self.on_round: OnRound = dict  # does nothing with what it is told
        self._server, self._book = server, book
        layers = list(recovery.unwrap(strategy))
        self._steps = find_steps(strategy)
        self._weight: str | None = next((w for w in (getattr(x, "weighted_by_key", None) for x in layers) if w), None)
        self._before = recovery.snapshot(strategy)
        self._template: Template | None = None
        self._model = ArrayRecord()  # what the round began with
        self._asked: list[tuple[Metadata, Member]] = []
        self._request: Request | None = None  # of the current round; None where nobody is asked
        self._ended = False  # `requests` wants nothing more
        self._last = 0  # round that is planned
        self._done = 0  # Flower's rounds of this run before this process
        self._settings: dict[str, Any] = {}  # of the app, as the run was started with them
        self._form: Form | None = None  # the names that replies' records had so far
        self._warned: set[int | str] = set()  # nodes and accounts of which a warning has told
        self._evaluated: dict[str, float] = {}  # metrics of the model that the next round begins with

    # Flower's interface

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the strategy up to round `num_rounds`, going on after the last round that is paid already.

        Set `timeout` to the seconds that a round may take: who has not replied by then is not paid for it.
        """

        def evaluate(server_round: int, model: ArrayRecord) -> MetricRecord | None:
            found = None if evaluate_fn is None else evaluate_fn(server_round, model)
            self._evaluated |= numbers("central-", found)
            return found

        rounds = Rounds(grid, num_rounds, timeout, train_config, evaluate_config, evaluate, lambda: self._ended)
        try:
            return self._start(rounds, initial_arrays)
        finally:
            self._finish()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask for this round's samples, each node in a message of its own."""
        if self._template is None:
            self._begin(arrays, resume=False)
        number, members = self._book.done + 1, self._members(grid)
        self._asked, self._model, self._request = [], arrays, None
        if self._ended:
            return []
        model = read_arrays(arrays)
        sent = self._server.place(model)
        messages = list(self.strategy.configure_train(server_round, arrays, config, members))
        if not messages:
            return []
        factors = self._book.factors(members.accounts(messages))
        request = self._server.request(sent, factors)
        covered = self._book.covered(factors, request) if request > 0 else 0
        if covered < 1:
            log.info("Nothing more is asked for: run %r ends before round %d", self.run, number)
            self._ended = True
            return []
        self._request = Request(self.run, number, request, self.server.sends)
        self._server.is_last = server_round == self._last or covered < 2
        log.info("Round %d asks %d nodes for %d samples each", number, len(messages), request)
        self._address(messages, members, self._request)
        record = with_arrays(arrays, model, sent)
        for message in messages if sent is not model else ():
            with_model(message, record)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Compare what came back, pay for it, hand what can be used to the wrapped strategy, and record it all."""
        if self._request is None or self._template is None:
            return None, None
        received = list(replies)
        rules = Rules(
            self._template.after(read_arrays(self._model)), self._request, self._weight, self.require_signatures
        )
        reports = sort_replies(self._asked, received, rules)
        warn_of_other_samples(reports, self._weight or "num-examples", self._samples_of, self._warned)
        paid = self._settle(self._request, reports)
        arrays, metrics, failure = None, None, None
        try:
            arrays, metrics = self._aggregate(server_round, paid)
        except Exception as error:  # noqa: BLE001 - the work is done, and must be paid before the run ends
            failure = error
        told = numbers("", metrics) | self._evaluated
        release_memory(reports, received)
        paid = self._book.record(paid, told, self._checkpoint(self._model if arrays is None else arrays, server_round))
        self.on_round(self._server.numbers(paid))
        self._evaluated = {}
        self._log(paid)
        if failure is not None:
            raise failure
        return arrays, self._metrics(paid, metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model to be evaluated, and with it word of the round's pay.

        Where nodes send models under a dither, they never see the model itself: with it, an agent could compute from
        the answer to θ + u what the answer to θ − u will be.
        """
        self._asked = []
        if self._ended or self._server.shifts:
            return []
        members = self._members(grid)
        messages = list(self.strategy.configure_evaluate(server_round, arrays, config, members))
        self._address(messages, members, None)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Hand the evaluations that can be used to the wrapped strategy."""
        if not self._asked:
            return None
        kept, wrong = sort_evaluations(self._asked, replies, self._weight)
        for line in wrong:
            log.info("\t> evaluation left out: %s", line)
        metrics = self.strategy.aggregate_evaluate(server_round, kept) if kept else None
        self._evaluated |= numbers("eval-", metrics)
        return metrics

    # Inside

    def _start(self, rounds: Rounds, initial_arrays: ArrayRecord) -> Result:
        self._ended, self._settings, self._last = False, recovery.settings_of(rounds.grid), rounds.last
        arrays = self._begin(initial_arrays, resume=True)
        self._members(rounds.grid)  # or raise, before anything is computed
        if self._done:
            log.info("Run %r continues after round %d, the last one paid", self.run, self._done)
        if self._done >= rounds.last:
            log.info("All %d rounds of run %r are paid: there is nothing left to do", rounds.last, self.run)
            return Result(arrays=arrays)
        self.summary()
        fewest = about(self.server.rule).fewest_rounds
        if rounds.last < fewest:
            log.warning("%d rounds are planned: nobody is paid before round %d of the run", rounds.last, fewest)
        return rounds.play(self, arrays, self._done)

    def _begin(self, arrays: ArrayRecord, *, resume: bool) -> ArrayRecord:
        """Take up the run where the ledger has it, and return the model to go on with."""
        self._template = Template.of(read_arrays(arrays))
        self._server.begin(self._template, read_arrays(arrays))
        found = self._book.open(resume=resume)
        if found is None:
            return arrays
        rule, saved = found
        recovery.check_resumable(self.strategy, self.run)
        model = as_record(self._template.ordered(saved.get("model", {}), self.run))
        self._done = int(saved["flower"]["round"])
        self._server.resume(self._book.done, len(self._book.roster), rule, saved)
        recovery.remind(self.strategy, saved.get("strategy", {}))
        return model

    def _address(self, messages: list[Message], members: MembersGrid, request: Request | None) -> None:
        """Give every message its own records, and remember its receiver; its id is known once it is sent."""
        taken: set[str] = set()
        for message in messages:
            member = members.members.get(message.metadata.dst_node_id)
            if member is None:
                raise RefusedError(f"the strategy addresses node {message.metadata.dst_node_id}, which cannot be paid")
            if member.account in taken:
                raise RefusedError(f"the strategy sends two messages to {member.account!r} in a round; pay is for one")
            taken.add(member.account)
            pay = self._book.pay_of(member.account)
            asked = {} if request is None else self._request_of(member.account, request).settings()
            tell(message, asked | ({} if pay is None else pay.settings()))
            self._asked.append((message.metadata, member))
        self._asked.sort(key=lambda asked: asked[1].account)  # the order of sampling must not change any digit

    def _finish(self) -> None:
        """Do what is left to do when the rounds are over, or broken off."""

    def _request_of(self, account: str, request: Request) -> Request:
        """Return what a node is asked for."""
        del account
        return request

    def _samples_of(self, account: str) -> int:
        return 0 if self._request is None else self._request_of(account, self._request).request

    def _metrics(self, paid: PaidRound, own: MetricRecord | None) -> MetricRecord:
        """Return what Flower logs of a round."""
        told = MetricRecord({} if own is None else dict(own))
        told.update({"guerdon-request": paid.request.request, "guerdon-participants": paid.participants})
        told.update({"guerdon-paid": paid.total, "guerdon-pay": [float(reward) for reward in paid.payments.released]})
        told.update(self._server.metrics(paid))
        return told

    def _settle(self, request: Request, reports: list[Report]) -> PaidRound:
        """Return what the round pays; reports that cannot be used, alone or with the others, are refused."""
        seats = self._book.seats(reports)
        paid = self._server.settle(request, seats)
        self._server.refuse(paid)
        usable = sum(report.usable for report in reports)
        self._form = agree(reports, self._form)
        if sum(report.usable for report in reports) < usable:
            paid = self._server.settle(request, seats)
            self._server.refuse(paid)
        check_some_worked(reports, request)
        self._server.accept()
        return paid

    def _aggregate(self, number: int, paid: PaidRound) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return what the wrapped strategy makes of the replies; no model where there is none to compute with."""
        kept = self._server.kept(paid)
        for report, used in kept:
            if used is not report.arrays:
                put_arrays(report, used)
        replies: list[Message] = [report.reply for report, _ in kept]
        if self._steps is not None:
            self._steps.plan_step(self._model, float(paid.done.step), self._server.along(paid))
        if not replies:
            return None, None
        arrays, metrics = self.strategy.aggregate_train(number, replies)
        if arrays is not None and not is_finite(read_arrays(arrays)):
            log.error("The strategy's new model holds NaN or infinity; the one before it stays")
            return None, metrics
        return arrays, metrics

    def _members(self, grid: Grid) -> MembersGrid:
        """Return the grid as the wrapped strategy may see it."""
        keys, short_of = self._book.keys(), self._book.short_of()
        return MembersGrid(grid, keys, short_of, allow_anonymous=self.allow_anonymous, warned=self._warned)

    def _checkpoint(self, model: ArrayRecord, number: int) -> dict[str, Any]:
        groups = {
            "flower": {"round": np.asarray(number), **recovery.pack_settings(self._settings)},
            "model": read_arrays(model),
            "strategy": recovery.changed(recovery.remembered(self.strategy), self._before),
            **self._server.saved(),
        }
        return {name: group for name, group in groups.items() if group}

    def _log(self, paid: PaidRound) -> None:
        unit = self._book.unit
        log.info("Round %d pays %.6f %s to %d nodes", paid.request.round, paid.total, unit, paid.participants)
        for line in paid.lines()[:SHOWN]:
            log.info("\t> %s", line)
        if paid.warning:
            log.warning("Round %d: %s", paid.request.round, paid.warning)
        self._server.log_noise_scale(paid)
        self._server.log_warning(paid)
