"""The node: trains on as many samples as it is asked for, unless its configuration says that it cheats."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from guerdon.flower import paid_work, samples_to_use
from guerdon.lab.agents import Agent, Declining, Portion
from guerdon.lab.strategic_nodes import strategic
from paid_torch.task import make_model, train

BEHAVIOURS: dict[str, Agent | None] = {"honest": None, "shirking": Portion(0.25), "declining": Declining(0.5)}


def behaviour(context: Context) -> Agent | None:
    """Return how this node behaves; an app in production has `paid_work()` alone."""
    return BEHAVIOURS[str(context.node_config.get("behaviour", "honest"))]


app = ClientApp(mods=[paid_work(), strategic(behaviour)])


@app.train()
def work(message: Message, context: Context) -> Message:
    """Take one step on the samples asked for, and return the model."""
    model = make_model()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    samples = samples_to_use(message)
    loss = train(model, samples, float(context.run_config["learning-rate"]))
    metrics = MetricRecord({"num-examples": samples, "train-loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
