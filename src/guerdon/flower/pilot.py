"""`Pilot`: any Flower strategy, for some rounds on flat pay, to learn which rule pays for work in this federation."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from flwr.serverapp.strategy import Strategy

from guerdon.costs import Cost, formula_of
from guerdon.flower.driven import DrivenStrategy, sends_of
from guerdon.flower.fedsgd import find_steps
from guerdon.flower.payload import RecordWitness, on_arrays
from guerdon.pilot import PilotDesign, PilotRecord, Trial, default_rules
from guerdon.rule import Rule
from guerdon.run.driver import PaidRun
from guerdon.run.pilots import PilotBook
from guerdon.statistical.dithers import Dither
from guerdon.statistical.predictions import Prediction
from guerdon.terms import Terms
from guerdon.witness import witness_samples

log = logging.getLogger("flwr.guerdon")


class Pilot(DrivenStrategy):
    """Wraps a strategy for a pilot: is this federation payable, and by which rule? Nothing is paid by any rule.

        strategy = Pilot(FedAvg(), cost=AffineCost(1, 1), request=16, out="pilot.json")
        strategy.start(grid, initial_arrays, num_rounds=100)

    Each round asks most nodes for `request` samples and a random `share` of them for half of that. `rules` are by name
    (default: steady pay, output agreement and information pay). After each round the record is written to
    `out`, which must not exist yet; `guerdon pilot FILE` shows what it says. `prediction`, `dither` and `alike` are
    those of `guerdon.statistical.server_for`, and `witness`, for a `WitnessedPay` among the rules, is that of `Paid`.
    Who is asked for half is drawn secretly, unless a `seed` is given. Nodes need no keys.
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
        sends, steps, rules = sends_of(strategy), find_steps(strategy), rules or default_rules(cost)
        samples = {witness_samples(rule) for rule in rules.values()} - {0}
        if len(samples) != (witness is not None):
            raise ValueError("`witness` must be given with `WitnessedPay` among the `rules`, of one number of samples")
        design = PilotDesign(request, share) if seed is None else PilotDesign(request, share, seed)
        trial = Trial(
            rules, design, 0.0 if steps is None else steps.step, sends=sends, prediction=prediction, dither=dither,
            alike=alike, witness=witness is not None,
        )  # fmt: skip
        record = PilotRecord(request, formula_of(cost), trial.trainer.sends, holding=trial.holding)
        self._book = PilotBook(trial, record, Path(out))
        gradients = witness and on_arrays(witness)
        run = PaidRun(trial.trainer, self._book, witness=gradients, samples=next(iter(samples), 0), log=log)
        super().__init__(strategy, run, Terms(), allow_anonymous=True)

    @property
    def record(self) -> PilotRecord:
        """What was measured so far."""
        return self._book.record_so_far

    def _finish(self) -> None:
        """Log what the pilot says."""
        for line in self._book.conclusion():
            log.info("%s", line)
