"""Experiments: an agent of `guerdon.lab.agents` in the place of an honest node of a Flower federation.

app = ClientApp(mods=[paid_work(), strategic(Portion(0.5))])
"""

# JAX's transformations forget the types of their arguments.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false

import secrets
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from guerdon.flower.client import decline
from guerdon.flower.messages import tell
from guerdon.flower.payload import read_arrays
from guerdon.lab.agents import Agent, View
from guerdon.run.messages import CHOSEN, GRADIENTS, Pay, Request

SIZE, MEMORY, MODEL = "guerdon-size", "guerdon-memory", "guerdon-model"  # what a node keeps between messages


def strategic(agent: Agent | Callable[[Context], Agent | None], *, seed: int | None = None) -> Mod:
    """Return the mod that lets an agent choose and report in a node's place; put it after `paid_work()`.

    Arguments: `agent`, or a function that returns the agent of a node (None: the node is honest); `seed` makes its
    choices repeatable.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        chosen = agent(context) if callable(agent) else agent
        if chosen is None:
            return call_next(message, context)
        return _Strategic(chosen, seed).work(message, context, call_next)

    return mod


class _Strategic:
    """An agent that chooses how many samples the app uses, and what is sent in place of its result.

    The node's state holds what the agent remembers, so it lasts as long as the SuperNode does. The agent does not know
    everything that a simulated agent knows:

    - σ²: agents that fit their noise to it add none.
    - The step between two broadcasts: the agent assumes 1, so the whole move of the model counts as the last aggregate.
      Under a dither (`guerdon.flower.broadcast`) that is wrong: two broadcasts differ by 2u, or by a step and two
      different u's, so an echo returns the dither more than the gradient.
    - The server's prediction: it is not sent, and the agent assumes zeros.
    """

    def __init__(self, agent: Agent, seed: int | None) -> None:
        self.agent, self.seed = agent, secrets.randbits(32) if seed is None else seed

    def work(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Return the agent's reply: the app's reply to the chosen number of samples, replaced by the agent's report."""
        request = Request.read(message.content)
        if request is None:
            return call_next(message, context)
        sent = next(iter(message.content.array_records.values()))
        view = self._view(request, sent, message, context)
        choice, report = jax.random.split(jax.random.fold_in(jax.random.key(self.seed), request.round))
        size = int(self.agent.choose(view, choice))
        self._keep(context, view, size, sent)
        if size < 1 and not self.agent.fabricates:
            return decline(message, "not worth it")
        # An agent that fabricates uses one sample, so that its reply has the expected form, and discards the result.
        tell(message, {CHOSEN: max(size, 1)})
        reply = call_next(message, context)
        if reply.has_content() and len(reply.content.array_records) == 1:
            name, arrays = next(iter(reply.content.array_records.items()))
            reply.content[name] = self._report(view, sent, arrays, request, report, used=size > 0)
        return reply

    def _view(self, request: Request, sent: ArrayRecord, message: Message, context: Context) -> View:
        """Return what the agent knows, after it has learned from the pay in the message."""
        model = _vector(sent)
        previous = context.state.array_records.get(MODEL)
        view = View(
            round=jnp.asarray(request.round - 1),
            request=jnp.asarray(request.request),
            model=model,
            aggregate=jnp.zeros_like(model) if previous is None else _vector(previous) - model,
            origin=model if previous is None else _vector(previous),
            prediction=jnp.zeros_like(model),
            variance=jnp.asarray(0.0),
            memory=self._memory(context),
        )
        pay, last = Pay.read(message.content), context.state.config_records.get(SIZE)
        if pay is None or last is None or last["round"] != pay.round:
            return view
        return view._replace(memory=self.agent.learn(view, jnp.asarray(last["size"]), jnp.asarray(pay.reward / 1e6)))

    def _memory(self, context: Context) -> Any:
        leaves, form = jax.tree.flatten(self.agent.init())
        kept = context.state.array_records.get(MEMORY)
        return jax.tree.unflatten(
            form, leaves if kept is None else [jnp.asarray(array.numpy()) for array in kept.values()]
        )

    def _keep(self, context: Context, view: View, size: int, sent: ArrayRecord) -> None:
        context.state[SIZE] = ConfigRecord({"round": int(view.round) + 1, "size": size})
        leaves = jax.tree.leaves(view.memory)
        context.state[MEMORY] = ArrayRecord({str(i): Array(np.asarray(leaf)) for i, leaf in enumerate(leaves)})
        context.state[MODEL] = ArrayRecord(dict(sent))

    def _report(
        self, view: View, sent: ArrayRecord, arrays: ArrayRecord, request: Request, key: Any, *, used: bool
    ) -> ArrayRecord:
        """Return what the agent sends: its report replaces the gradient, or the move away from the model."""
        origin = 0.0 if request.sends == GRADIENTS else view.model
        sign = 1.0 if request.sends == GRADIENTS else -1.0
        ordered = ArrayRecord({name: arrays[name] for name in sent})
        gradient = sign * (_vector(ordered) - origin) if used else jnp.zeros_like(view.model)
        changed = np.asarray(origin + sign * self.agent.report(view, gradient, key))
        start, replaced = 0, dict[str, Array]()
        for name, array in read_arrays(ordered).items():
            replaced[name] = arrays[name]
            if array.dtype.kind == "f":
                part = changed[start : start + array.size].reshape(array.shape)
                replaced[name] = Array(np.ascontiguousarray(part.astype(array.dtype)))
                start += array.size
        return ArrayRecord(replaced)


def _vector(record: ArrayRecord) -> Any:
    """Return the floating-point arrays of a record end to end."""
    arrays = read_arrays(record).values()
    return jnp.concatenate([jnp.asarray(array.reshape(-1)) for array in arrays if array.dtype.kind == "f"])
