"""A node that answers with noise, and fails, hangs or dies as its configuration tells it."""

import os
import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from guerdon.flower import Request, paid_work, samples_to_use

app = ClientApp(mods=[paid_work()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return a gradient of noise, the same each time for a node and a round."""
    request = Request.read(message.content)
    number = 0 if request is None else request.round
    if number == context.node_config.get("fails-in"):
        raise ZeroDivisionError("this node cannot count")
    if number == context.node_config.get("dies-in"):
        os.abort()
    if number == context.node_config.get("hangs-in"):
        time.sleep(300)
    time.sleep(float(context.node_config.get("takes", 0)))
    rng = np.random.default_rng([int(context.node_config["partition-id"]), number])
    model = message.content.array_records["arrays"]
    noise = {name: rng.normal(size=part.shape) / samples_to_use(message) ** 0.5 for name, part in model.items()}
    arrays = ArrayRecord({name: Array(part.astype(np.float32)) for name, part in noise.items()})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)
