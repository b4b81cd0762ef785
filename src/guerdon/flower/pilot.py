"""`Pilot`: any Flower strategy, for some rounds on flat pay, to learn which rule pays for work in this federation."""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import Strategy

from guerdon.costs import Cost, formula_of
from guerdon.flower.asked import AskedRounds
from guerdon.flower.fedsgd import find_steps
from guerdon.flower.nodes import MembersGrid
from guerdon.flower.payload import RecordWitness, on_arrays, read_arrays
from guerdon.paying.book import PaidRound, RunBook, Seats
from guerdon.paying.messages import GRADIENTS, MODELS, Pay, Request
from guerdon.paying.paid_server import PaidServer
from guerdon.paying.reports import Report
from guerdon.pilot import PilotDesign, PilotRecord, Trial, assess, default_rules
from guerdon.rule import Rule
from guerdon.statistical.dithers import Dither
from guerdon.statistical.predictions import Prediction
from guerdon.witness import witness_samples

log = logging.getLogger("flwr.guerdon")


class Pilot(AskedRounds):
    """Wraps a strategy for a pilot: is this federation payable, and by which rule? Nothing is paid by any rule.

        strategy = Pilot(FedAvg(), cost=AffineCost(1, 1), request=16, out="pilot.json")
        strategy.start(grid, initial_arrays, num_rounds=100)

    Each round asks most nodes for `request` samples and a random `share` of them for half of that. `rules` are by name
    (default: steady pay, output agreement and information pay). After each round the record is written to
    `out`, which must not exist yet; `guerdon pilot FILE` shows what it says. `prediction`, `dither` and `alike` are
    those of `Rewarded`, and so is `witness`, for a `WitnessedPay` among the rules. Who is asked for half is drawn
    secretly, unless a `seed` is given. Nodes need no keys.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        cost: Cost,
        request: int,
        rules: Mapping[str, Rule] | None = None,
        out: str | os.PathLike[str] = "pilot.json",
        share: float = 0.3,
        prediction: Prediction | None = None,
        dither: Dither | None = None,
        alike: bool = False,
        witness: RecordWitness | None = None,
        seed: int | None = None,
    ) -> None:
        steps, rules = find_steps(strategy), rules or default_rules(cost)
        samples = {witness_samples(rule) for rule in rules.values()} - {0}
        if len(samples) != (witness is not None):
            raise ValueError("`witness` must be given with `WitnessedPay` among the `rules`, of one number of samples")
        design = PilotDesign(request, share) if seed is None else PilotDesign(request, share, seed)
        self.out = Path(out)
        if self.out.exists():
            raise ValueError(f"`out` must be a file that does not exist yet, got {out!s}; move it, or name another")
        self._trial = Trial(
            rules, design, 0.0 if steps is None else steps.step, sends=MODELS if steps is None else GRADIENTS,
            prediction=prediction, dither=dither, alike=alike, witness=witness is not None,
        )  # fmt: skip
        trainer, holding = self._trial.trainer, self._trial.holding
        self.record = PilotRecord(request, formula_of(cost), trainer.sends, holding=holding)
        server = PaidServer(trainer, witness and on_arrays(witness), next(iter(samples), 0), log)
        super().__init__(strategy, server, _PilotBook(), self.out.stem)
        self._requests: dict[str, int] = {}  # of the round, by account

    def summary(self) -> None:
        """Log what is tried, then what the wrapped strategy says."""
        log.info("\t├──> Pilot on flat pay, recorded in %s", self.out)
        log.info("\t│\t└── Rules: %s", ", ".join(self._trial.tried))
        self.strategy.summary()

    def _begin(self, arrays: ArrayRecord, *, resume: bool) -> ArrayRecord:
        self.record.save(self.out)  # a file that cannot be written must not cost a round
        arrays = super()._begin(arrays, resume=resume)
        self._trial.begin(self._server.layers(read_arrays(arrays)))
        return arrays

    def _address(self, messages: list[Message], members: MembersGrid, request: Request | None) -> None:
        if request is not None:
            accounts = sorted(members.members[message.metadata.dst_node_id].account for message in messages)
            asked = self._trial.design.requests(self.record.rounds, len(accounts))
            self._requests = dict(zip(accounts, map(int, asked), strict=True))
        super()._address(messages, members, request)

    def _request_of(self, account: str, request: Request) -> Request:
        return request.asking(self._requests[account])

    def _settle(self, request: Request, reports: list[Report]) -> PaidRound:
        paid = super()._settle(request, reports)
        seats = paid.seats
        asked = np.array([self._requests.get(account, 0) for account in seats.accounts])
        sent = np.array([report is not None and report.usable for report in seats.reports], dtype=bool)
        server = self._server
        scores = self._trial.score(server.last_ask, server.rows(seats), asked, sent, server.seen)
        self.record = self.record.with_round(seats.accounts, asked, sent, scores)
        self.record.save(self.out)
        return paid

    def _metrics(self, paid: PaidRound, own: MetricRecord | None) -> MetricRecord:
        told = MetricRecord({} if own is None else dict(own))
        told["guerdon-participants"] = paid.participants
        return told

    def _log(self, paid: PaidRound) -> None:
        half = sum(number < self.record.request for number in self._requests.values())
        log.info(
            "Round %d of the pilot: %d nodes, %d of them asked for half", paid.request.round, paid.participants, half
        )

    def _finish(self) -> None:
        """Log what the pilot says."""
        if not self.record.rounds:
            return
        report = assess(self.record)
        for rule in report.rules:
            log.info("Pilot: %s %s", rule.rule, rule.words)
        log.info("Pilot: use %s. %s `guerdon pilot %s` says more", report.recommended or "none", report.why, self.out)


class _PilotBook(RunBook):
    """A book that remembers who takes part and how far the pilot is; the record is written elsewhere."""

    def __init__(self) -> None:
        self.done, self.unit = 0, ""
        self.roster: list[str] = []

    def open(self, *, resume: bool) -> None:
        del resume

    def pay_of(self, account: str) -> Pay | None:
        del account

    def seats(self, reports: Sequence[Report]) -> Seats:
        return Seats.of(self.roster, reports)

    def record(self, paid: PaidRound, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> PaidRound:
        del metrics, checkpoint
        self.roster, self.done = paid.seats.accounts, paid.request.round
        return paid

    def keys(self) -> dict[str, bytes]:
        return {}

    def covered(self, factors: Any, request: int) -> float:
        del factors, request
        return math.inf
