"""The node: sends the gradient of the rows that it is asked for. Its configuration can make it cheat or decline."""

import secrets

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from guerdon.flower import Request, decline, named_work, paid_work, samples_to_use
from paid_numpy.task import Arrays, loss, own_rows, work

FIRST = "first-report"  # in the state of a node that replays it

app = ClientApp(mods=[paid_work()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return the gradient at the model that was sent."""
    behaviour = str(context.node_config.get("behaviour", "honest"))
    if behaviour == "declining" and secrets.randbelow(2):
        return decline(message, "our machines are busy")
    data = own_rows(int(context.node_config.get("partition-id", context.node_id)))
    rows, seed = rows_to_use(message, data)
    rows = cheated(rows, behaviour)
    model = {name: part.numpy() for name, part in message.content.array_records["arrays"].items()}
    found = ArrayRecord({name: Array(part) for name, part in work(model, rows, seed).items()})
    if behaviour == "replaying":
        found = context.state.array_records.setdefault(FIRST, found)
    metrics = MetricRecord({"num-examples": len(rows["label"]), "train-loss": loss(model, rows)})
    return Message(RecordDict({"arrays": found, "metrics": metrics}), reply_to=message)


def rows_to_use(message: Message, data: Arrays) -> tuple[Arrays, int]:
    """Return the rows that the round names and its seed; where it names none, as many of any as it asks for."""
    request = Request.read(message.content)
    if request is not None and request.work is not None:
        return named_work(message, data)
    chosen = np.random.default_rng().choice(len(data["label"]), samples_to_use(message), replace=False)
    return {name: column[chosen] for name, column in data.items()}, 0


def cheated(rows: Arrays, behaviour: str) -> Arrays:
    """Return the rows that a node of this behaviour works on in place of the ones it should."""
    places = np.arange(len(rows["label"]))
    if behaviour == "shirking":
        places = places[: max(1, len(places) // 4)]
    if behaviour == "replacing":
        places[-1] = places[0]
    return {name: column[places] for name, column in rows.items()}
