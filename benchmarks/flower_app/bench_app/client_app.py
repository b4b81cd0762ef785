"""A node that sends noise; where it is paid, it does what a paid node does: reads the request, and signs."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return noise, through the mod if there is a request: a node that is not paid does not even import it."""
    if not any("guerdon-request" in record for record in message.content.config_records.values()):
        return work(message, context)
    from guerdon.flower import paid_work

    return paid_work()(message, context, work)


def work(message: Message, context: Context) -> Message:
    """Return noise in the form of the model."""
    rng = np.random.default_rng(int(context.node_config["partition-id"]))
    model = message.content.array_records["arrays"]
    noise = {name: rng.normal(size=part.shape).astype(np.float32) for name, part in model.items()}
    arrays = ArrayRecord({name: Array(part) for name, part in noise.items()})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)
