"""A server with a model of zeros, and whatever strategy it is told."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from guerdon import AffineCost, EstimatedVariance, FixedRequest, InformationPay, OutputAgreement
from guerdon.flower import FedSGD, Paid
from guerdon.statistical.dithers import Dither
from guerdon.statistical.servers import server_for
from guerdon.terms import Terms

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the rounds that are not paid yet."""
    config = context.run_config
    nodes = int(config["min-nodes"])
    inner = {"FedSGD": FedSGD, "FedAvg": FedAvg}[str(config["strategy"])]
    cost, length = AffineCost(1, 1), float(config["dither"])
    rule = InformationPay(cost) if config["information"] else OutputAgreement(cost, EstimatedVariance())
    requests = FixedRequest(int(config["samples"]), step=0.1)
    strategy = Paid(
        inner(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes),
        server_for(rule, requests, dither=Dither(length) if length else None, alike=True),
        Terms(one_step=True, signatures=bool(config["signed"])),
        ledger=str(config["guerdon-db"]),
        run=str(config["guerdon-run"]),
        allow_anonymous=bool(config["anonymous"]),
    )
    model = ArrayRecord({name: Array(np.zeros(int(config["dimension"]), np.float32)) for name in ("w", "b")})
    strategy.start(grid, model, num_rounds=int(config["num-server-rounds"]), timeout=float(config["round-timeout"]))
