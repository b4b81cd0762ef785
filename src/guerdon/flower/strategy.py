"""`Paid`: any Flower strategy, with every round's work requested, compared, paid and recorded."""

import logging
import os

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result, Strategy

from guerdon.flower.driven import DrivenStrategy, server_on_flower
from guerdon.flower.payload import RecordWitness, on_arrays
from guerdon.flower.rounds import Rounds
from guerdon.ledger import Ledger
from guerdon.ledger.books.checks import check_name
from guerdon.run.book import Book
from guerdon.run.driver import OnRound, PaidRun
from guerdon.run.fit import checked
from guerdon.run.rounds import PaidRound
from guerdon.server import Server
from guerdon.terms import Terms

log = logging.getLogger("flwr.guerdon")


class Paid(DrivenStrategy):
    """Wraps a strategy so that every node is asked for ν samples, and paid for them once.

        server = Server(FlatPay(AffineCost(1, 1)), FixedRequest(16, step=0.1))
        strategy = Paid(FedAvg(), server, Terms(budget=5_000), run="heart-2026")
        strategy.start(grid, initial_arrays, num_rounds=10)

    - `server` asks, compares and pays. Nodes send gradients under `FedSGD`, and models under any other strategy; the
      server is told so. Rules for members that differ come with their lens: `guerdon.statistical.server_for`.
    - `terms`: when pay is released, who covers losses, a budget, cost factors, … (default: `Terms()`).
      `Terms(signatures=True)` refuses replies that are not signed with the enrolled key (see `paid_work`).
    - `run` is the name under which rounds are recorded: starting a run again continues after its last paid round.
      `ledger` is a path, a URL or a `Ledger`.
    - `allow_anonymous`: nodes take part whose public keys are not enrolled in the ledger. For experiments.
    - `witness` is for `WitnessedPay`: a function of the model that was sent, which returns the gradients of several
      minibatches of the server's own data, as many samples in all as the rule says.
    - `on_round` is called after each round is recorded, with a flat dictionary of its numbers (`guerdon/paid`, …).

    Under a dither `FedSGD` steps once per pair; any other strategy gets the nodes' models moved back by u, steps in
    every round, and nodes are not asked to evaluate.
    """

    def __init__(
        self,
        strategy: Strategy,
        server: Server,
        terms: Terms | None = None,
        *,
        run: str,
        ledger: Ledger | str | os.PathLike[str] = "guerdon.db",
        allow_anonymous: bool = False,
        witness: RecordWitness | None = None,
        on_round: OnRound | None = None,
    ) -> None:
        check_name("a run's name", run)
        terms = Terms() if terms is None else terms
        server = checked(server_on_flower(server, strategy), terms, witness is not None)
        terms.under(server.rule)  # or raise, before a ledger is made
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self._owns_ledger = self.ledger is not ledger
        book = Book(self.ledger, run, server.rule, terms, log)
        driver = PaidRun(server, book, witness=witness and on_arrays(witness), on_round=on_round, log=log)
        super().__init__(strategy, driver, terms, allow_anonymous=allow_anonymous)

    def _start(self, rounds: Rounds, initial_arrays: ArrayRecord) -> Result:
        result = super()._start(rounds, initial_arrays)
        self.run.book.close()
        for found in self.ledger.earnings(self.run.name) if self.run.book.roster else ():
            log.info("%s #%d was %s", found.agent, found.number, found.words)
        return result

    def _metrics(self, paid: PaidRound, own: MetricRecord | None) -> MetricRecord:
        told = super()._metrics(paid, own)
        told.update({"guerdon-paid": paid.total, "guerdon-pay": [float(reward) for reward in paid.payments.released]})
        return told

    def _finish(self) -> None:
        if self._owns_ledger:
            self.ledger.close()  # it opens again when it is needed
