"""The server's half of a round, written once: for the simulator, for Flower, and for a loop of your own.

    server = Server(OutputAgreement(AffineCost(1, 1)), FixedRequest(16, step=0.1))
    state = server.init(model, num_agents=6)
    for _ in range(100):
        ask, state = server.ask(state, model)                      # ask.model is what to broadcast
        reports, sent = collect(ask)                               # yours: ask.request samples of each agent
        done, state = server.settle(state, ask, reports, sent)     # done.payments, done.notes, done.evidence, …
        model = model - done.step * done.mean

Everything is pure: what the server knows is in the state, a NamedTuple of arrays (`guerdon.states` saves and restores
it). It runs on NumPy, on PyTorch, and on JAX under jit, vmap and scan. A model is an array or a list of layers; reports
are (agents, dim), a list of layers (agents, …), or `guerdon.reports.AgentRows`, which are never copied as a whole.

What `settle` does, in this order:

1. The lens turns the reports into evidence (`guerdon.lens`).
2. The rule pays by the evidence (`guerdon.rule`).
3. The mean of the reports is taken, and the policy chooses the step (`guerdon.requests`).
4. What the round has shown is learned: by the broadcast (`guerdon.broadcast`) and by the lens.

A round in which nobody sends anything usable teaches nothing; under a dither its part is asked for again.
"""

# No type covers both an array and a list of layers.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from guerdon._checks import check_model, check_parts, check_reports, check_same_model
from guerdon.arrays import (
    Array,
    check_choice,
    check_positive_integer,
    is_traced,
    namespace,
    over_layers,
    zeros_like,
)
from guerdon.asking import Ask, Reading, ServerState, Settlement, as_step
from guerdon.broadcast import AtModel, Broadcast, Shown
from guerdon.lens import Lens, Plain
from guerdon.reports import Layers, combine
from guerdon.requests import Outcome, Requests
from guerdon.rule import Payments, Round, Rule, as_recorded, notice_of, padded, times
from guerdon.states import choose_state, chosen, grown

Sends = Literal["gradients", "models"]
__all__ = ["Ask", "Reading", "Sends", "Server", "ServerState", "Settlement"]


@dataclass(frozen=True)
class Server:
    """Asks, reads, pays and learns; it knows nothing of the insides of its parts.

    - `rule`: pays by the evidence.
    - `requests`: the policy that says how many samples to ask for, and how long a step to take.
    - `lens`: makes evidence of reports. Default: as they are, for members that are alike.
    - `broadcast`: where gradients are taken. Default: at the model.
    - `sends`: what agents send: "gradients", or "models" that they trained from the one broadcast. Then the mean of a
      settlement is the mean move, and a step is taken in every round, also under a dither.

    >>> import numpy as np
    >>> from guerdon import AffineCost, FixedRequest, KnownVariance, OutputAgreement
    >>> server = Server(OutputAgreement(AffineCost(1, 1), KnownVariance(8.0)), FixedRequest(8, step=0.5))
    >>> model = np.zeros(2)
    >>> ask, state = server.ask(server.init(model, num_agents=4), model)
    >>> reports = np.array([[2.0, 0.0], [3.0, 1.0], [2.5, -0.5], [0.0, 0.0]])
    >>> done, state = server.settle(state, ask, reports, sent=np.ones(4, dtype=bool))
    >>> done.payments.released.round(1)
    array([ 19.2,  -9.2,   8.6, -30.6])
    >>> model - done.step * done.mean
    array([-0.9375, -0.0625])
    """

    rule: Rule
    requests: Requests
    lens: Lens = Plain()  # noqa: RUF009 - frozen
    broadcast: Broadcast = AtModel()  # noqa: RUF009 - frozen
    sends: Sends = "gradients"

    def __post_init__(self) -> None:
        check_choice("sends", self.sends, ("gradients", "models"))
        check_parts(self.rule, self.requests, self.lens, self.broadcast, self.sends)

    def init(self, model: Any, num_agents: int) -> ServerState:
        """Return the state before the first round.

        - `model`: an array, or a list of layers, of NumPy, JAX or PyTorch.
        - `num_agents`: how many are enrolled, K.
        """
        check_positive_integer("num_agents", num_agents)
        check_model(model)
        return ServerState(
            np.zeros((), dtype=np.int32),
            self.rule.init(num_agents),
            self.requests.init(model, num_agents),
            self.lens.init(model, num_agents),
            self.broadcast.init(model),
            np.asarray(num_agents, dtype=np.int32),
        )

    def enlarge(self, state: ServerState, num_agents: int) -> ServerState:
        """Return the state for `num_agents` in all: newcomers come last, and nothing is known of them."""
        return state._replace(
            rule=padded(self.rule.init(num_agents), state.rule),
            lens=grown(state.lens, num_agents),
            enrolled=np.asarray(num_agents, dtype=np.int32),
        )

    def adopt(self, state: ServerState, other: ServerState, who: Array) -> ServerState:
        """Return the state with what another one knows of some agents.

        - `other`: a state of as many agents.
        - `who`: booleans (agents,), those that are taken from `other`.
        """
        return state._replace(rule=chosen(who, other.rule, state.rule), lens=chosen(who, other.lens, state.lens))

    def admit(self, state: ServerState, newcomers: Array) -> ServerState:
        """Return the state with the places of `newcomers` (booleans) given to agents that nothing is known of.

        What a rule would still have settled for the agents that had these places is dropped, as with a name that is
        thrown away: a simulation's, never a ledger's, where newcomers come last.
        """
        xp = namespace(newcomers)
        return state._replace(
            rule=chosen(newcomers, self.rule.init(newcomers.shape[0]), state.rule),
            lens=chosen(newcomers, None, state.lens, pairs=True),
            enrolled=state.enrolled + xp.sum(xp.astype(newcomers, xp.int32)),
        )

    def needs_mean(self, state: ServerState) -> bool:
        """Tell whether anything learns from the mean of the reports."""
        return self.lens.learns(state.lens) or self.broadcast.learns or self.requests.learns

    def for_agents(self, state: ServerState, num_agents: float) -> ServerState:
        """Return the state for a round of so many agents (or the sum of their cost factors): they share a budget."""
        return state._replace(requests=self.requests.for_agents(state.requests, num_agents))

    def request(self, state: ServerState) -> Array:
        """Return ν of the next round, in samples; 0 ends the training."""
        return self.requests.ask(state.requests, state.round)

    def ask(self, state: ServerState, model: Any, normals: Any = None) -> tuple[Ask, ServerState]:
        """Return what to ask for, and the state to settle the round with.

        - `state`: what `init` or `settle` returned.
        - `model`: that the next step is taken from.
        - `normals`: under a dither, fresh standard normal numbers in the model's shape. None: the operating system's.
          A compiled function must be given them: it would draw once and for all.
        """
        check_model(model)
        check_same_model(state, model)
        sent, placed = self.broadcast.place(state.broadcast, model, normals)
        request, start = self.request(state), sent if self.sends == "models" else None
        prediction = self.lens.predict(state.lens, sent)
        notice = notice_of(self.rule, state.rule, request)
        ask = Ask(sent, request, model, prediction, notice, start, state.enrolled)
        return ask, state._replace(broadcast=placed)

    def pay(self, state: ServerState, ask: Ask, reports: Layers, sent: Array) -> tuple[Payments, Reading, ServerState]:
        """Return what each agent is paid, how the reports compare, and the state with what it learned of agents.

        The arguments are those of `settle`. No step is taken and no round counted: for a model that is made elsewhere.
        """
        check_reports(ask.origin, reports, sent, state.enrolled)
        payments, _, reading, state = self._pay(state, ask, reports, sent)
        if self.lens.learns(state.lens):
            mean = self._mean(reading, ask, reports)
            state = state._replace(lens=self.lens.learn(state.lens, ask, reports, reading, mean, None))
        return payments, reading, state

    def settle(
        self, state: ServerState, ask: Ask, reports: Layers, sent: Array, *, mean: bool = True, factors: Any = 1.0
    ) -> tuple[Settlement, ServerState]:
        """Return what the round came to, and the next state.

        - `state`, `ask`: what `ask` returned.
        - `reports`: gradients or models, (agents, dim), a list of layers (agents, …), or `AgentRows`.
        - `sent`: booleans (agents,). The reports of agents that did not send are not looked at.
        - `mean`: False leaves the mean out (zeros) where nothing learns from it: for a model that is made elsewhere.
        - `factors`: one cost factor per agent. An agent with factor 1.5 is paid 1.5 times as much.
        """
        check_reports(ask.origin, reports, sent, state.enrolled)
        wanted = mean or self.needs_mean(state)
        payments, played, reading, state = self._pay(state, ask, reports, sent)
        average = self._mean(reading, ask, reports) if wanted else zeros_like(ask.origin)
        xp, payments = namespace(payments.released), times(payments, factors)
        outcome = Outcome(ask.request, reading.plain, average, xp.sum(payments.released))
        step, requests = self.requests.observe(state.requests, outcome)
        shown, broadcast = self.broadcast.settle(state.broadcast, ask, reading, average)
        lens = self.lens.learn(state.lens, ask, reports, reading, average, shown)
        step, average = self._step(as_step(step, ask), average, shown)
        done = Settlement(payments, played, average, step, reading, shown.noise_scale, shown.offset)
        return done, state._replace(round=state.round + 1, requests=requests, lens=lens, broadcast=broadcast)

    def _pay(
        self, state: ServerState, ask: Ask, reports: Layers, sent: Array
    ) -> tuple[Payments, Round, Reading, ServerState]:
        """Return also the round as it is recorded."""
        reading, lens = self.lens.read(state.lens, ask, reports, sent)
        played = as_recorded(Round(reading.evidence, sent, ask.request, reading.trusted, ask.is_last))
        payments, rule = self.rule.pay(state.rule, played)
        return payments, played, reading, state._replace(rule=rule, lens=lens)

    def _step(self, step: Array, mean: Any, shown: Shown) -> tuple[Array, Any]:
        """Return the step to take and along what: all of a mean move; under a dither a step once in a block."""
        if self.sends == "models":
            return 0 * step - 1, mean
        if self.broadcast.learns:
            mean = choose_state(shown.steps, lambda: shown.observation.mean, mean)
            step = choose_state(shown.steps, lambda: step, 0 * step)
        return step, mean

    def _mean(self, reading: Reading, ask: Ask, reports: Layers) -> Any:
        """Return the mean of the reports that are used, shortened where they are too long; zero if there are none."""
        xp = namespace(reading.parts)
        count = xp.sum(xp.astype(reading.used, reading.parts.dtype))
        if not is_traced(count) and not bool(count):
            return zeros_like(ask.origin)
        weights = xp.where(reading.used, reading.parts, 0.0) / xp.where(count > 0, count, 1.0)
        mean = combine(reports, weights)
        if is_traced(weights) or bool(xp.any(reading.used & (reading.parts < 1))):
            rest = xp.where(count > 0, 1 - xp.sum(weights), 0.0)  # what shortening leaves to the prediction
            mean = over_layers(
                lambda part, centre: xp.where(count > 0, part + rest * centre, 0.0), mean, reading.towards
            )
        if ask.start is not None:
            mean = over_layers(lambda part, start: xp.where(count > 0, part - start, 0.0), mean, ask.start)
        return over_layers(lambda part, model: namespace(part).astype(part, model.dtype), mean, ask.origin)
