"""The server: FedAvg, with every round paid and recorded."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from guerdon import AffineCost, FixedRequest
from guerdon.flower import Paid
from guerdon.registry import choose
from guerdon.statistical.servers import server_for
from guerdon.terms import Terms
from paid_torch.task import accuracy, make_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the rounds that are not paid yet."""
    config = context.run_config
    nodes = int(config["min-nodes"])
    rule = choose(str(config["rule"]), AffineCost(1, 1))
    strategy = Paid(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes),
        server_for(rule, FixedRequest(int(config["samples"]), step=float(config["learning-rate"]))),
        Terms(one_step=True),  # nodes take one step on all the samples asked for
        ledger=str(config["guerdon-db"]),
        run=str(config["guerdon-run"]),
        allow_anonymous=bool(config["anonymous"]),
    )
    strategy.start(
        grid,
        ArrayRecord(make_model().state_dict()),
        num_rounds=int(config["num-server-rounds"]),
        timeout=float(config["round-timeout"]),
        evaluate_fn=evaluate,
    )


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Return how good the model is; the ledger stores it with the next round."""
    del server_round
    model = make_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": accuracy(model)})
