"""NVIDIA FLARE: paid rounds in its FedAvg workflow. Accounts are FLARE's client names, which its certificates prove.

    job.to_server(PaidFedAvg("model.safetensors", "heart-2026", request=16, cost="1 + s", num_clients=3, num_rounds=10))

A client reads `flare.receive().meta["guerdon-request"]`, and sends gradients, or models that it trained, in `params`.
"""

# FLARE's own classes leave most of their types open.
# pyright: reportMissingTypeArgument=false, reportUnknownParameterType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingParameterType=false, reportMissingTypeStubs=false
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

import logging
from pathlib import Path

import numpy as np
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from nvflare.app_common.workflows.fedavg import FedAvg
from safetensors.numpy import load_file, save_file

from guerdon.costs import ExpressionCost
from guerdon.ledger import Ledger
from guerdon.looks.recompute import arrays_hash
from guerdon.registry import choose
from guerdon.requests import FixedRequest
from guerdon.run.driver import PaidRun, open_run
from guerdon.run.messages import Work
from guerdon.run.mistaken import check_gradients
from guerdon.run.reports import Arrays, Report
from guerdon.run.terms_file import read_terms
from guerdon.server import Sends
from guerdon.statistical.dithers import Dither
from guerdon.statistical.servers import server_for
from guerdon.terms import Terms

log = logging.getLogger("guerdon.flare")

MISTAKEN = 'let clients send gradients, or give `sends="models"`'
TWICE = "it answered twice"
WORKS = "guerdon-works"  # in the meta of what is broadcast: each client's named work


def named_work(model: FLModel, client: str) -> tuple[np.ndarray, int]:
    """Return the indices of the rows that a round names for a client, and the seed of all other randomness.

        rows, seed = named_work(flare.receive(), flare.get_site_name())

    Raises ValueError where the round names none for it, or the model is not the one that it names.
    """
    told = (model.meta or {}).get(WORKS, {}).get(client)
    work = None if told is None else Work.read(told)
    if work is None:
        raise ValueError(
            f"the round names no rows for {client!r}: has it committed to its rows, and do looks hold the pay?"
        )
    if arrays_hash({name: np.asarray(array) for name, array in (model.params or {}).items()}).hex() != work.model:
        raise ValueError("the model must be the one that the round names: another was sent, so no work is done at it")
    return np.array(work.rows, dtype=np.int64), work.seed


class PaidAggregator(ModelAggregator):
    """Pays for what the clients of a round sent, and returns what to broadcast next; the rest is `PaidRun`'s."""

    def __init__(self, run: PaidRun) -> None:
        super().__init__()
        self.run = run
        self._reports: dict[str, Report] = {}

    def accept_model(self, model: FLModel) -> None:
        """Take what a client sent. FLARE itself names the client in `meta`, whatever it says of itself."""
        name = str((model.meta or {})["client_name"])
        if name in self._reports:
            self._reports[name].refuse(TWICE)
        else:
            self._reports[name] = self.run.report(name, self._full(model), model)

    def aggregate_model(self) -> FLModel:
        """Settle the round, and return what is broadcast in the next: under a dither not the model itself."""
        if self._reports:
            if self.run.done == 0 and self.run.server.sends == "gradients":
                check_gradients(list(self._reports.values()), self.run.sent, MISTAKEN)
            late = [Report(name, "no answer") for name in self.run.book.roster if name not in self._reports]
            self.run.settle([*self._reports.values(), *late])
        return self.broadcast()

    def reset_stats(self) -> None:
        """Begin a round with nothing received."""
        self._reports = {}

    def broadcast(self) -> FLModel:
        """Open the next round, and return what is sent in it; the model itself once the run has ended."""
        book = self.run.book
        members = sorted({*book.roster, *book.committed()})
        asked = self.run.request or self.run.ask(members)
        sent = self.run.model if asked is None else self.run.sent
        meta = {} if asked is None else asked.settings()
        if self.run.named is not None:  # all clients get the same message: it names the work of each
            named = ((name, self.run.request_of(name).work) for name in book.committed())
            meta[WORKS] = {name: work.settings() for name, work in named if work is not None}
        return FLModel(params=dict(sent), params_type=ParamsType.FULL, meta=meta)

    def _full(self, model: FLModel) -> Arrays:
        """Return a client's arrays; what it sent as a difference is added to what was broadcast."""
        found = {str(name): np.asarray(array) for name, array in (model.params or {}).items()}
        if model.params_type != ParamsType.DIFF or self.run.server.sends == "gradients":
            return found
        sent = self.run.sent
        return {name: sent[name] + array if _adds(sent.get(name), array) else array for name, array in found.items()}


def _adds(sent: np.ndarray | None, difference: np.ndarray) -> bool:
    """Tell whether a difference is one of what was sent; another is refused for what it is."""
    return sent is not None and sent.shape == difference.shape


class PaidFedAvg(FedAvg):
    """FLARE's FedAvg, with every round asked for, paid and recorded; it goes on after the last paid round.

    `model_file` is a safetensors file on the server, `run_name` the run's name in the ledger, `terms` a file of terms
    (TOML) on the server. The other arguments are those of `guerdon serve`: plain values, which FLARE writes into the
    job's configuration. The trained model is written beside the model's file (`.trained.safetensors`).
    """

    def __init__(
        self,
        model_file: str,
        run_name: str,
        request: int,
        ledger: str = "guerdon.db",
        rule: str = "steady",
        cost: str = "1 + s",
        step: float = 0.1,
        sends: Sends = "gradients",
        dither: float | None = None,
        alike: bool = False,
        terms: str | None = None,
        num_clients: int = 3,
        num_rounds: int = 5,
    ) -> None:
        super().__init__(num_clients=num_clients, num_rounds=num_rounds, persistor_id="", save_filename="")
        # By the names of the arguments: FLARE reads them to write the job's configuration.
        self.model_file, self.run_name, self.ledger, self.terms = model_file, run_name, ledger, terms
        self.request, self.rule, self.cost, self.step = request, rule, cost, step
        self.dither, self.alike = dither, alike
        self.sends: Sends = sends

    def run(self) -> None:
        """Train, from the last round that is paid."""
        price = ExpressionCost(self.cost)
        space = None if self.dither is None else Dither(self.dither)
        rule, policy = choose(self.rule, price), FixedRequest(self.request, self.step)
        with Ledger(self.ledger) as ledger:
            server = server_for(rule, policy, None, space, self.sends, self.alike)
            arrays = load_file(self.model_file)
            terms = Terms() if self.terms is None else read_terms(self.terms)
            paid = open_run(server, ledger, self.run_name, arrays, terms, rounds=self.num_rounds, log=log)
            if paid.is_over:
                return
            self.aggregator = PaidAggregator(paid)
            self.start_round, self.num_rounds = paid.done, self.num_rounds - paid.done
            self.model = self.aggregator.broadcast()
            super().run()
            save_file(dict(paid.model), Path(self.model_file).with_suffix(".trained.safetensors"))
