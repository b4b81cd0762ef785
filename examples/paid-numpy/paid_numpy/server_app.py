"""The server: asks for samples, steps along the mean gradient, and pays; held until looks where there is an auditor."""

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from guerdon import AffineCost, FixedRequest, Looks, NoiseScaleRequest, Terms
from guerdon.flower import FedSGD, Paid
from guerdon.registry import choose
from guerdon.statistical.servers import server_for
from paid_numpy.task import accuracy, make_model

WORK = "paid_numpy.task:work"  # what the auditor computes again
STEP = 0.1

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the rounds that are not paid yet."""
    config = context.run_config
    nodes, cost, most = int(config["min-nodes"]), AffineCost(1, 1), int(config["max-samples"])
    auditor = str(config["auditor"])
    requests = FixedRequest(most, STEP) if auditor else NoiseScaleRequest(cost, max_batch=most)
    strategy = Paid(
        FedSGD(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes),
        server_for(choose(str(config["rule"]), cost), requests),
        terms(auditor, int(config["period"])),
        ledger=str(config["guerdon-db"]),
        run=str(config["guerdon-run"]),
        allow_anonymous=bool(config["anonymous"]),
    )
    strategy.start(
        grid,
        ArrayRecord({name: Array(part) for name, part in make_model().items()}),
        num_rounds=int(config["num-server-rounds"]),
        timeout=float(config["round-timeout"]),
        evaluate_fn=evaluate,
    )


def terms(auditor: str, period: int) -> Terms:
    """Return the terms of the run: with an auditor's public key, pay is held until looks."""
    if not auditor:
        return Terms()
    return Terms(Looks(period, auditor=auditor, work=WORK), signatures=True)


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Return how good the model is; the ledger stores it with the next round."""
    del server_round
    return MetricRecord({"accuracy": accuracy({name: part.numpy() for name, part in arrays.items()})})
