"""Any Flower strategy, with its rounds driven by a `PaidRun`: what is Flower's own, and nothing else."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, Metadata, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedXgbBagging, FedXgbCyclic, Result, Strategy

from guerdon._checks import check_is_server
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
from guerdon.ledger.books.errors import RefusedError
from guerdon.rule import Need
from guerdon.run.driver import PaidRun
from guerdon.run.messages import GRADIENTS, MODELS
from guerdon.run.mistaken import check_gradients
from guerdon.run.reports import is_finite
from guerdon.run.rounds import PaidRound
from guerdon.server import Sends, Server
from guerdon.statistical.dithers import dither_in
from guerdon.statistical.lenses import prediction_of
from guerdon.terms import Terms
from guerdon.words import about

log = logging.getLogger("flwr.guerdon")

MISTAKEN = (
    "let the app send the gradient of `samples_to_use(message)` samples, or wrap FedAvg in place of FedSGD: under it "
    "nodes train models"
)
STEP_UNUSED = "; its step is not used: nodes send models, and the strategy moves as it always does"


def sends_of(strategy: Strategy) -> Sends:
    """Return what nodes send under a strategy: gradients where `FedSGD` is in it, else models."""
    if isinstance(strategy, DrivenStrategy):
        raise TypeError(f"`strategy` must be one that is not paid yet, got {type(strategy).__name__}: wrap it once")
    sends = MODELS if find_steps(strategy) is None else GRADIENTS
    for layer in recovery.unwrap(strategy):
        if isinstance(layer, FedXgbBagging | FedXgbCyclic):
            raise TypeError(
                f"`strategy` must be one that averages arrays of numbers, got {type(layer).__name__}, which sends "
                "trees: they cannot be compared; train a model of arrays, such as under FedAvg"
            )
    return sends


class DrivenStrategy(Strategy):
    """Wraps a strategy: every node is asked for samples, and every round is compared, settled and booked by a run.

    `Paid` pays what is settled, `Pilot` measures what rules would pay. `allow_anonymous` admits nodes whose keys nobody
    has enrolled.
    """

    def __init__(self, strategy: Strategy, run: PaidRun, terms: Terms, *, allow_anonymous: bool) -> None:
        self.strategy, self.run, self.terms, self.allow_anonymous = strategy, run, terms, allow_anonymous
        layers = list(recovery.unwrap(strategy))
        self._steps = find_steps(strategy)
        self._weight: str | None = next((w for w in (getattr(x, "weighted_by_key", None) for x in layers) if w), None)
        self._before = recovery.snapshot(strategy)
        self._begun = False
        self._record = ArrayRecord()  # the model that the round began with
        self._asked: list[tuple[Metadata, Member]] = []
        self._ended = False  # nothing more is asked for
        self._last = 0  # round that is planned
        self._done = 0  # Flower's rounds of this run before this process
        self._settings: dict[str, Any] = {}  # of the app, as the run was started with them
        self._form: Form | None = None  # the names that replies' records had so far
        self._warned: set[int | str] = set()  # nodes and accounts of which a warning has told
        self._evaluated: dict[str, float] = {}  # metrics of the model that the next round begins with

    @property
    def server(self) -> Server:
        """Asks, compares, pays and learns."""
        return self.run.server

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

        `timeout`: the seconds that a round may take, at most the `deadline` of the terms. Who has not replied by then
        is not paid for it.
        """
        timeout = timeout if self.terms.deadline is None else min(timeout, self.terms.deadline)

        def evaluate(server_round: int, model: ArrayRecord) -> MetricRecord | None:
            found = None if evaluate_fn is None else evaluate_fn(server_round, model)
            self._evaluated |= numbers("central-", found)
            return found

        configs, ended = (train_config, evaluate_config), lambda: self._ended
        rounds = Rounds(grid, num_rounds, timeout, self.terms.quorum, *configs, evaluate, ended)
        try:
            return self._start(rounds, initial_arrays)
        finally:
            self._finish()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask for this round's samples, each node in a message of its own."""
        if not self._begun:
            self._begin(arrays, resume=False)
        members = self._members(grid)
        self._asked, self._record, self.run.request = [], arrays, None
        if self._ended:
            return []
        model = self.run.model = read_arrays(arrays)
        messages = list(self.strategy.configure_train(server_round, arrays, config, members))
        if not messages:
            return []
        if self.run.ask(members.accounts(messages), is_last=server_round == self._last) is None:
            self._ended = True
            return []
        self._address(messages, members, asks=True)
        record = with_arrays(arrays, model, self.run.sent)
        for message in messages if self.run.sent is not model else ():
            with_model(message, record)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Compare what came back, pay for it, hand what can be used to the wrapped strategy, and record it all."""
        request = self.run.request
        if request is None:
            return None, None
        received = list(replies)
        template = self.run.template.after(self.run.model)
        reports = sort_replies(self._asked, received, Rules(template, request, self._weight, self.terms.signatures))
        warn_of_other_samples(reports, self._weight or "num-examples", self._samples_of, self._warned)

        if self.run.done == 0 and request.sends == GRADIENTS:
            check_gradients(reports, self.run.sent, MISTAKEN)

        def one_form() -> None:
            self._form = agree(reports, self._form)

        paid = self.run.pay(reports, agree=one_form)
        check_some_worked(reports, request)
        arrays, metrics, failure = None, None, None
        try:
            arrays, metrics = self._aggregate(server_round, paid)
        except Exception as error:  # noqa: BLE001 - the work is done, and must be paid before the run ends
            failure = error
        told = numbers("", metrics) | self._evaluated
        release_memory(reports, received)
        model = self.run.model if arrays is None else read_arrays(arrays)
        paid = self.run.record(paid, model, told, self._saved(server_round))
        self._evaluated = {}
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
        if self._ended or self.run.shifts:
            return []
        members = self._members(grid)
        messages = list(self.strategy.configure_evaluate(server_round, arrays, config, members))
        self._address(messages, members, asks=False)
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

    def summary(self) -> None:
        """Log who is paid by which rule, then what the wrapped strategy says."""
        server, (headline, *more) = self.server, self.run.book.summary()
        log.info("\t├──> %s", headline)
        for line in more:
            log.info("\t│\t├── %s", line)
        log.info("\t│\t├── Rule: %r", server.rule)
        log.info("\t│\t├── Requests: %r%s", server.requests, "" if self._steps else STEP_UNUSED)
        if Need.PREDICTION in server.rule.needs or server.broadcast.learns:
            log.info("\t│\t├── Prediction: %s, dither: %s", prediction_of(server.lens), dither_in(server))
        if self.run.shifts:
            log.info("\t│\t├── Nodes are not asked to evaluate: the model itself would give the dither away")
        log.info("\t│\t└── Nodes: %s", "anonymous ones too" if self.allow_anonymous else "with enrolled keys only")
        self.strategy.summary()

    # Inside

    def _start(self, rounds: Rounds, initial_arrays: ArrayRecord) -> Result:
        self._ended, self._settings, self._last = False, recovery.settings_of(rounds.grid), rounds.last
        arrays = self._begin(initial_arrays, resume=True)
        self._members(rounds.grid)  # or raise, before anything is computed
        if self._done:
            log.info("Run %r continues after round %d, the last one paid", self.run.name, self._done)
        if self._done >= rounds.last:
            log.info("All %d rounds of run %r are paid: there is nothing left to do", rounds.last, self.run.name)
            return Result(arrays=arrays)
        self.summary()
        fewest = about(self.server.rule).fewest_rounds
        if rounds.last < fewest:
            log.warning("%d rounds are planned: nobody is paid before round %d of the run", rounds.last, fewest)
        return rounds.play(self, arrays, self._done)

    def _begin(self, arrays: ArrayRecord, *, resume: bool) -> ArrayRecord:
        """Take up the run where the book has it, and return the model to go on with."""
        self.run.begin(read_arrays(arrays), resume=resume)
        self._begun = True
        saved = self.run.saved
        if not saved:
            return arrays
        recovery.check_resumable(self.strategy, self.run.name)
        self._done = int(saved["flower"]["round"])
        recovery.remind(self.strategy, saved.get("strategy", {}))
        return as_record(self.run.model)

    def _address(self, messages: list[Message], members: MembersGrid, *, asks: bool) -> None:
        """Give every message its own records, and remember its receiver; its id is known once it is sent."""
        taken: set[str] = set()
        for message in messages:
            member = members.members.get(message.metadata.dst_node_id)
            if member is None:
                raise RefusedError(f"the strategy addresses node {message.metadata.dst_node_id}, which cannot be paid")
            if member.account in taken:
                raise RefusedError(f"the strategy sends two messages to {member.account!r} in a round; pay is for one")
            taken.add(member.account)
            pay = self.run.book.pay_of(member.account)
            asked = self.run.request_of(member.account).settings() if asks else {}
            tell(message, asked | ({} if pay is None else pay.settings()))
            self._asked.append((message.metadata, member))
        self._asked.sort(key=lambda asked: asked[1].account)  # the order of sampling must not change any digit

    def _finish(self) -> None:
        """Do what is left to do when the rounds are over, or broken off."""

    def _samples_of(self, account: str) -> int:
        return self.run.request_of(account).request

    def _metrics(self, paid: PaidRound, own: MetricRecord | None) -> MetricRecord:
        """Return what Flower logs of a round."""
        told = MetricRecord({} if own is None else dict(own))
        told.update({"guerdon-request": paid.request.request, "guerdon-participants": paid.participants})
        if self.server.broadcast.learns:
            told["guerdon-noise-scale"] = float(paid.done.noise_scale)
            told["guerdon-offset"] = float(paid.done.offset)
        return told

    def _aggregate(self, number: int, paid: PaidRound) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return what the wrapped strategy makes of the replies; no model where there is none to compute with."""
        kept = self.run.kept(paid)
        for report, used in kept:
            if used is not report.arrays:
                put_arrays(report, used)
        replies: list[Message] = [report.reply for report, _ in kept]
        if self._steps is not None:
            self._steps.plan_step(self._record, float(paid.done.step), self.run.along(paid))
        if not replies:
            return None, None
        arrays, metrics = self.strategy.aggregate_train(number, replies)
        if arrays is not None and not is_finite(read_arrays(arrays)):
            log.error("The strategy's new model holds NaN or infinity; the one before it stays")
            return None, metrics
        return arrays, metrics

    def _members(self, grid: Grid) -> MembersGrid:
        """Return the grid as the wrapped strategy may see it."""
        keys, short_of = self.run.book.keys(), self.run.short_of()
        return MembersGrid(grid, keys, short_of, allow_anonymous=self.allow_anonymous, warned=self._warned)

    def _saved(self, number: int) -> dict[str, Any]:
        """Return the groups of arrays that a checkpoint must hold beside those of the run."""
        return {
            "flower": {"round": np.asarray(number), **recovery.pack_settings(self._settings)},
            "strategy": recovery.changed(recovery.remembered(self.strategy), self._before),
        }


def server_on_flower(server: Server, strategy: Strategy) -> Server:
    """Return a server for what nodes send under a strategy, or raise where one of them is none."""
    check_is_server(server)
    return replace(server, sends=sends_of(strategy))
