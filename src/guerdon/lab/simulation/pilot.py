"""A pilot in the simulator: agents compute their reports with JAX, and the server is that of a pilot on Flower."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array, check_positive_integer
from guerdon.costs import Cost, formula_of
from guerdon.lab._trees import register
from guerdon.lab.agents import Agent, View
from guerdon.lab.problems import Problem
from guerdon.lab.problems.federation import draw_gradient, draws_alike
from guerdon.lab.simulation.facts import check_witness
from guerdon.lab.simulation.players import Players, choose, learn, report, sort_by_kind
from guerdon.lab.simulation.training import draw_witness, repetition_key, round_keys
from guerdon.pilot import PilotDesign, PilotRecord, Trial
from guerdon.rule import Rule
from guerdon.server import Ask, Settlement
from guerdon.statistical.dithers import Dither
from guerdon.statistical.predictions import Prediction
from guerdon.witness import WitnessSample


@register
@dataclass(frozen=True)
class Asked(Agent):
    """Does what `agent` does, but is asked for another number of samples: `requests[round]`."""

    agent: Agent
    requests: Array

    @property
    def fabricates(self) -> bool:
        """Whether it sends a report even without samples."""
        return self.agent.fabricates

    @property
    def leader(self) -> int:
        """The position of the agent that draws its samples."""
        return self.agent.leader

    def init(self) -> Any:
        """Return what it remembers before the first round."""
        return self.agent.init()

    def choose(self, view: View, key: Array) -> Array:
        """Return the batch size that it uses."""
        return self.agent.choose(self._own(view), key)

    def report(self, view: View, gradient: Array, key: Array) -> Array:
        """Return what it sends."""
        return self.agent.report(self._own(view), gradient, key)

    def keep(self, view: View, gradient: Array) -> Any:
        """Return what it remembers once it has reported."""
        return self.agent.keep(self._own(view), gradient)

    def learn(self, view: View, batch_size: Array, reward: Array) -> Any:
        """Return what it remembers after the round."""
        return self.agent.learn(self._own(view), batch_size, reward)

    def _own(self, view: View) -> View:
        return view._replace(request=self.requests[view.round])


def run_pilot(
    problem: Problem,
    agents: Sequence[Agent],
    rules: Mapping[str, Rule],
    request: int,
    step: float,
    rounds: int,
    seed: int = 0,
    *,
    share: float = 0.3,
    prediction: Prediction | None = None,
    dither: Dither | None = None,
    alike: bool | None = None,
    witness: int = 0,
) -> PilotRecord:
    """Train once for `rounds` rounds on flat pay, and return what each rule would have paid (see `guerdon.pilot`).

    `share` of the agents are asked for half of `request` in each round. `alike` says that all agents draw fresh samples
    of the same kind (default: unless the problem gives agents data of their own). `witness` is how many minibatches of
    `problem.max_batch` samples the server itself draws in a round, for `WitnessedPay`.
    """
    for name, number in (("rounds", rounds), ("request", request)):
        check_positive_integer(name, number)
    if request > problem.max_batch:
        raise ValueError(f"`request` must be at most the problem's `max_batch` ({problem.max_batch}), got {request}")
    alike = draws_alike(problem) if alike is None else alike
    design = PilotDesign(request, share, seed)
    check_witness(rules, witness, problem.max_batch)
    trial = Trial(rules, design, step, prediction=prediction, dither=dither, alike=alike, witness=witness > 0)
    asked = np.stack([design.requests(number, len(agents)) for number in range(rounds)])
    return _play_rounds(trial, _Players(problem, agents, asked, trial.cost, seed), asked, witness)


def _play_rounds(trial: Trial, players: "_Players", asked: Any, witness: int) -> PilotRecord:
    """Return the record of one training, the server's half in NumPy."""
    server, model, names = trial.trainer, players.model, [f"agent-{seat}" for seat in range(asked.shape[1])]
    trial.begin(model)
    state = server.init(model, len(names))
    record = PilotRecord(trial.design.request, formula_of(trial.cost), server.sends, holding=trial.holding)
    for number, requests in enumerate(asked):
        ask, state = server.ask(state, model, players.normals(number))
        reports, sent = players.play(number, ask)
        scores = trial.score(ask, [[row] for row in reports], requests, sent, players.witness(number, ask, witness))
        done, state = server.settle(state, ask, [reports], sent)
        record = record.with_round(names, requests, sent, scores)
        players.tell(model, done)
        model = [model[0] - float(done.step) * done.mean[0]]
    return record


class _Players:
    """The agents of a simulated pilot: what they know, and what they remember."""

    def __init__(self, problem: Problem, agents: Sequence[Agent], asked: Any, cost: Cost, seed: int) -> None:
        self._key = repetition_key(seed, jnp.asarray(0))
        first = problem.init(jax.random.fold_in(self._key, 2**31 - 1))
        self.model = [np.asarray(first, dtype=np.float64)]
        asked_agents = [Asked(agent, jnp.asarray(asked[:, seat])) for seat, agent in enumerate(agents)]
        self._problem, (self._positions, self._kinds) = problem, sort_by_kind(asked_agents)
        self._memories = tuple(jax.vmap(lambda agent: agent.init())(kind) for kind in self._kinds)
        self._flat = np.asarray(cost(asked), dtype=np.float32)  # what everybody is paid
        self._public = jnp.zeros_like(first), first, problem.variance(first)

    def normals(self, number: int) -> list[Any]:
        """Return what a dither is made of, the same for the same seed."""
        fresh = jax.random.fold_in(jax.random.fold_in(self._key, 2**31 - 2), number)
        return [np.asarray(jax.random.normal(fresh, self.model[0].shape), dtype=np.float64)]

    def play(self, number: int, ask: Ask) -> tuple[Any, Any]:
        """Return every agent's report, and who sent one."""
        model, prediction = (jnp.asarray(part[0], self._public[0].dtype) for part in (ask.model, ask.prediction))
        aggregate, origin, variance = self._public
        view = View(jnp.asarray(number), jnp.asarray(ask.request), model, aggregate, origin, prediction, variance, ())
        given = self._problem, self._kinds, self._memories
        reports, sent, self._memories = _play(self._positions, *given, view, self._key, self._flat[number])
        return np.asarray(reports, dtype=np.float64), np.asarray(sent)

    def witness(self, number: int, ask: Ask, minibatches: int) -> WitnessSample | None:
        """Return what the server's own samples say, if it has any."""
        if not minibatches:
            return None
        model = jnp.asarray(ask.model[0], self._public[0].dtype)
        gradient, variance = _draw_witness(minibatches, self._problem, model, self._key, jnp.asarray(number))
        samples = minibatches * self._problem.max_batch
        return WitnessSample([np.asarray(gradient, dtype=np.float64)], np.asarray(variance), samples)

    def tell(self, model: list[Any], done: Settlement) -> None:
        """Make public where the step was taken from, and along what."""
        aggregate, origin, variance = self._public
        if done.step:
            aggregate, origin = (jnp.asarray(part[0], aggregate.dtype) for part in (done.mean, model))
        if done.error.enough:
            variance = jnp.asarray(done.error.variance, variance.dtype)
        self._public = aggregate, origin, variance


@partial(jax.jit, static_argnums=0)
def _draw_witness(minibatches: int, problem: Problem, model: Array, key: Array, number: Array) -> tuple[Array, Array]:
    sample = draw_witness(problem, model, key, number, minibatches)
    return sample.gradient, sample.variance


@partial(jax.jit, static_argnums=0)
def _play(
    positions: Any, problem: Problem, kinds: Any, memories: Any, view: View, key: Array, flat: Array
) -> tuple[Array, Array, Any]:
    """Return reports, who sent one, and what agents remember after a round."""
    players = Players(positions, kinds)
    choose_keys, draw_keys, report_keys = round_keys(key, view.round, players.number)
    sizes, fabricates, leaders = choose(players, view, memories, choose_keys)
    sizes = jnp.clip(sizes, 0, problem.max_batch)
    sent = (sizes > 0) | fabricates
    draw = partial(draw_gradient, problem, view.model)
    gradients = jax.vmap(draw)(leaders, jnp.maximum(sizes, 1), draw_keys[leaders])
    reports = report(players, view, memories, sizes, gradients, report_keys)
    return reports, sent, learn(players, view, memories, sizes, gradients, jnp.where(sent, flat, 0.0))
