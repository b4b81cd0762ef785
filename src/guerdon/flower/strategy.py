"""`Rewarded`: any Flower strategy, with every round's work requested, compared, paid and recorded."""

import logging
import os
from collections.abc import Mapping
from dataclasses import replace

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Result, Strategy

from guerdon.arrays import check_choice
from guerdon.flower.asked import AskedRounds
from guerdon.flower.fedsgd import find_steps
from guerdon.flower.payload import RecordWitness, on_arrays
from guerdon.flower.rounds import Rounds
from guerdon.ledger import Ledger
from guerdon.ledger.checks import check_name
from guerdon.ledger.tables import LIABILITIES
from guerdon.paying.book import Book, OnRound, pay_terms
from guerdon.paying.messages import GRADIENTS, MODELS, Request
from guerdon.paying.paid_server import PaidServer, check_server
from guerdon.registry import as_recorded
from guerdon.requests import Requests
from guerdon.rule import Need, Rule
from guerdon.statistical.dithers import Dither, dither_in
from guerdon.statistical.lenses import prediction_of
from guerdon.statistical.predictions import Prediction
from guerdon.statistical.servers import server_for

log = logging.getLogger("flwr.guerdon")

STEP_UNUSED = "; its step is not used: nodes send models, and the strategy moves as it always does"


class Rewarded(AskedRounds):
    """Wraps a strategy so that every node is asked for ν samples, paid by how close its work lies to the others', once.

        strategy = Rewarded(FedAvg(), rule=OutputAgreement(AffineCost(1, 1)), requests=FixedRequest(16, 0.1),
                            ledger="guerdon.db", run="heart-2026")
        strategy.start(grid, initial_arrays, num_rounds=10)

    `ledger` is a path, a URL or a `Ledger`. `run` is the name under which rounds are recorded: starting a run again
    continues after its last paid round. `liability` says what becomes of a negative reward (see `Ledger.start_run`).

    Where a reward can be negative, pay vests after 20 rounds of a node's own, or after `vesting`: until then a loss can
    claim it. When the planned rounds are over the rest vests (see `guerdon.ledger.vesting`). With `liability="deposit"`
    a node that joins later must have left a `deposit` (in units): else it is not asked.

    Only nodes whose public keys are enrolled in the ledger are asked and paid, unless `allow_anonymous` is true.
    `require_signatures` refuses replies that are not signed with the enrolled key (see `guerdon.flower.paid_work`).

    Under `InformationPay` reports are compared around a public `prediction` (default: `RunningMean()`), and one that is
    too long is shortened before the strategy sees it. `dither` broadcasts θ + u and θ − u by turns (see
    `guerdon.statistical.dithers`). `FedSGD` then steps once per pair; any other strategy gets the nodes' models moved
    back by u, steps in every round, and nodes are not asked to evaluate. `escrow` holds back the fixed part of the cost
    of what each earns.

    Nodes may have different data: the strategy gets every reply that can be used. `alike` says that all draw fresh
    samples of the same kind; then replies that are not trusted are left out (see `guerdon.Server`). `one_step` says
    that nodes take one step on all requested samples: only then may they send models under `OutputAgreement`.

    `budget` ends the run before a round that could cost more than is left of it: every node asked, times its cost.
    `cost_factors` says, by account, whose work costs a multiple of the rule's cost, and is paid so much more.

    `witness` is for `WitnessedPay`: a function of the model that was sent, which returns the gradients of several
    minibatches of the server's own data, as many samples in all as the rule says.

    `on_round` is called after each round is recorded, with a flat dictionary of its numbers (`guerdon/paid`, …).
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        rule: Rule,
        requests: Requests,
        run: str,
        ledger: Ledger | str | os.PathLike[str] = "guerdon.db",
        liability: str = "carry",
        vesting: int | None = None,
        deposit: float | None = None,
        allow_anonymous: bool = False,
        require_signatures: bool = False,
        prediction: Prediction | None = None,
        dither: Dither | None = None,
        escrow: bool = False,
        alike: bool = False,
        one_step: bool = False,
        witness: RecordWitness | None = None,
        budget: float | None = None,
        cost_factors: Mapping[str, float] | None = None,
        on_round: OnRound | None = None,
    ) -> None:
        if isinstance(strategy, AskedRounds):
            raise TypeError(f"`strategy` must be one that is not paid yet, got {type(strategy).__name__}: wrap it once")
        sends = MODELS if find_steps(strategy) is None else GRADIENTS
        check_name("a run's name", run)
        check_choice("liability", liability, LIABILITIES)
        asks = server_for(rule, requests, prediction, dither, sends, alike)  # which checks its parts
        stakes = pay_terms(rule, liability, vesting, deposit)
        rule = as_recorded(rule)
        server = check_server(replace(asks, rule=rule), one_step=one_step)
        if (witness is None) == (Need.WITNESS in rule.needs):
            raise ValueError("`witness` must be given with `WitnessedPay`, and with no other rule")
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self._owns_ledger = self.ledger is not ledger
        self._paid = Book(self.ledger, run, rule, stakes, escrow, budget, cost_factors, log)
        super().__init__(strategy, PaidServer(server, witness and on_arrays(witness), log=log), self._paid, run)
        self.allow_anonymous, self.require_signatures = allow_anonymous, require_signatures
        self.on_round = on_round or self.on_round

    def summary(self) -> None:
        """Log who is paid by which rule, then what the wrapped strategy says."""
        server = self.server
        log.info("\t├──> Paid rounds of run %r, recorded in %s", self.run, self.ledger.where)
        log.info("\t│\t├── Rule: %r", server.rule)
        if self._paid.cost_factors:
            told = ", ".join(f"{name} × {factor:g}" for name, factor in self._paid.cost_factors.items())
            log.info("\t│\t├── Cost: %s", told)
        log.info("\t│\t├── Requests: %r%s", server.requests, "" if self._steps else STEP_UNUSED)
        if Need.PREDICTION in server.rule.needs or server.broadcast.learns:
            log.info("\t│\t├── Prediction: %s, dither: %s", prediction_of(server.lens), dither_in(server))
        if self._server.shifts:
            log.info("\t│\t├── Nodes are not asked to evaluate: the model itself would give the dither away")
        log.info("\t│\t└── Nodes: %s", "anonymous ones too" if self.allow_anonymous else "with enrolled keys only")
        self.strategy.summary()

    def _request_of(self, account: str, request: Request) -> Request:
        return self._server.request_of(account, request, self._book.roster)

    def _start(self, rounds: Rounds, initial_arrays: ArrayRecord) -> Result:
        warning = self._paid.stakes.warning(self.server.rule)
        if warning:
            log.warning("%s", warning)
        result = super()._start(rounds, initial_arrays)
        self._paid.close()
        for found in self.ledger.earnings(self.run) if self._book.roster else ():
            log.info("%s #%d was %s", found.agent, found.number, found.words)
        return result

    def _finish(self) -> None:
        if self._owns_ledger:
            self.ledger.close()  # it opens again when it is needed
