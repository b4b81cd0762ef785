"""The server: asks for the number of samples that makes the cheapest progress, and steps along the mean gradient."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from guerdon import AffineCost, NoiseScaleRequest
from guerdon.flower import FedSGD, Paid
from guerdon.registry import choose
from guerdon.statistical.servers import server_for
from paid_numpy.task import accuracy, make_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the rounds that are not paid yet."""
    config = context.run_config
    nodes, cost = int(config["min-nodes"]), AffineCost(1, 1)
    requests = NoiseScaleRequest(cost, max_batch=int(config["max-samples"]))
    strategy = Paid(
        FedSGD(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes),
        server_for(choose(str(config["rule"]), cost), requests),
        ledger=str(config["guerdon-db"]),
        run=str(config["guerdon-run"]),
        allow_anonymous=bool(config["anonymous"]),
    )
    strategy.start(
        grid,
        make_model(),
        num_rounds=int(config["num-server-rounds"]),
        timeout=float(config["round-timeout"]),
        evaluate_fn=evaluate,
    )


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Return how good the model is; the ledger stores it with the next round."""
    del server_round
    return MetricRecord({"accuracy": accuracy(arrays)})
