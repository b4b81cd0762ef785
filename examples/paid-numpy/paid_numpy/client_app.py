"""The node: sends the gradient of the samples it is asked for. Its configuration can make it shirk or decline."""

import secrets

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from guerdon.flower import decline, paid_work, samples_to_use
from paid_numpy.task import gradient

app = ClientApp(mods=[paid_work()])


@app.train()
def work(message: Message, context: Context) -> Message:
    """Return the gradient at the model that was sent."""
    samples = samples_to_use(message)
    behaviour = str(context.node_config.get("behaviour", "honest"))
    if behaviour == "declining" and secrets.randbelow(2):
        return decline(message, "our machines are busy")
    if behaviour == "shirking":
        samples = max(1, samples // 4)
    arrays, loss = gradient(message.content.array_records["arrays"], samples)
    metrics = MetricRecord({"num-examples": samples, "train-loss": loss})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
