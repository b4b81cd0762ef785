"""A node that answers with noise, and fails, hangs or dies as the run's configuration tells it."""

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
    faults = _faults(context)
    if number == faults.get("fails-in"):
        raise ZeroDivisionError("this node cannot count")
    if number == faults.get("dies-in"):
        os.abort()
    if number == faults.get("hangs-in"):
        time.sleep(300)
    time.sleep(faults.get("takes", 0))
    rng = np.random.default_rng([int(context.node_config["partition-id"]), number])
    model = message.content.array_records["arrays"]
    noise = {name: rng.normal(size=part.shape) / samples_to_use(message) ** 0.5 for name, part in model.items()}
    arrays = ArrayRecord({name: Array(part.astype(np.float32)) for name, part in noise.items()})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


def _faults(context: Context) -> dict[str, int]:
    """Return what is special about this node, where "n1 fails-in 2" is written about the node of partition 1."""
    told = [part.split() for part in str(context.run_config["faults"]).split(",") if part]
    return {what: int(number) for name, what, number in told if name == f"n{context.node_config['partition-id']}"}
