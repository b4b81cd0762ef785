"""The server of Flower's scikit-learn quickstart: FedAvg."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart_sklearn.task import create_model, get_model_params

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the model with all nodes."""
    num_rounds = context.run_config["num-server-rounds"]
    model = create_model(context.run_config["local-epochs"])

    strategy = FedAvg(fraction_train=context.run_config["fraction-train"])

    strategy.start(grid=grid, initial_arrays=ArrayRecord(get_model_params(model)), num_rounds=num_rounds)
