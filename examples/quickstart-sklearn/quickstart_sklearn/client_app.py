"""The node of Flower's scikit-learn quickstart: fits the model it is sent to its own rows."""

import warnings

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.metrics import log_loss

from quickstart_sklearn.task import create_model, get_model_params, load_data, set_model_params

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = create_model(context.run_config["local-epochs"])
    set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())

    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    X_train, _, y_train, _ = load_data(partition_id, num_partitions)  # noqa: N806 - as scikit-learn writes it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged: that is what the rounds are for
        model.fit(X_train, y_train)

    loss = log_loss(y_train, model.predict_proba(X_train), labels=model.classes_)
    metrics = {"train_logloss": loss, "num-examples": len(X_train)}
    arrays = ArrayRecord(get_model_params(model))
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    model = create_model(context.run_config["local-epochs"])
    set_model_params(model, msg.content["arrays"].to_numpy_ndarrays())

    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    _, X_test, _, y_test = load_data(partition_id, num_partitions)  # noqa: N806 - as scikit-learn writes it

    loss = log_loss(y_test, model.predict_proba(X_test), labels=model.classes_)
    metrics = {"test_logloss": loss, "accuracy": model.score(X_test, y_test), "num-examples": len(X_test)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
