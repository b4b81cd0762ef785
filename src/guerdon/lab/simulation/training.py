"""One training with strategic agents: a scan over rounds inside a map over repetitions, compiled once per shape.

Batch sizes, requests, steps and all other numbers of agents, problems and policies are data to the compiled function;
only what they are, and how many, is part of it.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from guerdon.adaptive import BudgetRequest, NoiseScaleRequest
from guerdon.arrays import Array
from guerdon.lab._trees import register
from guerdon.lab.agents import View
from guerdon.lab.problems import Problem
from guerdon.lab.problems.federation import draw_gradient
from guerdon.lab.simulation.facts import Stop, TruthAtModel, validation_loss
from guerdon.lab.simulation.history import Rounds
from guerdon.lab.simulation.players import Players, announce, by_kind, choose, learn, report
from guerdon.lab.simulation.suspicions import accusations, collusions, nothing_proven, proofs, prove
from guerdon.lab.truth import Facts, informed, shrinkage_of
from guerdon.noise_scale import estimate_noise
from guerdon.requests import FixedRequest, Requests, ScheduledRequest
from guerdon.rule import Need, Rule, notice_of
from guerdon.server import Ask, Sends, Server, ServerState, Settlement
from guerdon.statistical.dithers import Dither
from guerdon.statistical.predictions import Prediction
from guerdon.statistical.servers import server_for
from guerdon.witness import WitnessSample, witness_sample

# The numbers of a policy and of a goal are data to the compiled function. `requests` itself does without JAX.
for _policy, _data in (
    (FixedRequest, ["batch_size", "step"]),
    (ScheduledRequest, ["batch_sizes", "steps"]),
    (NoiseScaleRequest, ["max_batch", "min_batch", "first", "curvature"]),
    (BudgetRequest, ["rule", "budget", "max_batch", "curvature"]),
    (Stop, ["at_most", "at_least"]),
):
    register(_policy, _data)

# Of the length of a report: by so much an agent's own arithmetic may change it, as in p + (X − p). Rounding of single
# precision gives 1e-6, and the mildest forgery that we know, 5 % of shared noise, 0.2.
REPEATED = 1e-4


class Setting(NamedTuple):
    """What the compiled function is specialised to, beside the shapes of its data."""

    rules: tuple[Rule, ...]
    positions: tuple[tuple[int, ...], ...]  # which agents belong to each kind
    prediction: Prediction | None
    dither: Dither | None
    alike: bool
    witness: int  # minibatches that the server draws itself; 0: none
    sends: Sends

    def servers(self, requests: Requests) -> tuple[Server, ...]:
        """Return a server for each rule; the first is the one that trains."""
        given = requests, self.prediction, self.dither, self.sends, self.alike
        return tuple(server_for(rule, *given) for rule in self.rules)

    def scale(self, requests: Any) -> Any:
        """Return what a report is multiplied by when it is sent: a model is the broadcast one, and a step beside it."""
        return -requests.step if self.sends == "models" else 1.0


class Data(NamedTuple):
    """What it is given."""

    problem: Problem
    kinds: tuple[Any, ...]  # agents of one kind, their numbers stacked: they are played together
    requests: Requests
    joins: Array | None  # (agents, names): the rounds in which each agent joins; None: all are there from the start
    last: Array  # round, in which what a rule holds is settled
    stop: Stop | None

    def players(self, setting: Setting) -> Players:
        """Return the agents."""
        return Players(setting.positions, self.kinds)


class Carry(NamedTuple):
    """What a run takes from round to round."""

    model: Array
    aggregate: Array  # the mean gradient of the last step
    origin: Array  # the model that it was taken at
    variance: Array  # σ² as the last round had it
    servers: tuple[ServerState, ...]  # one per rule
    memories: tuple[Any, ...]  # one per kind of agent
    proven: Array  # wealth of the bets that an accusation rests on
    stopped: Array
    diverged: Array


def repetition_key(seed: int, repetition: Array) -> Array:
    """Return the random key of a repetition."""
    return jax.random.fold_in(jax.random.key(seed), repetition)


@partial(jax.jit, static_argnums=2)
def repetition_keys(key: Array, first: Array, count: int) -> Array:
    """Return the keys of `count` repetitions from number `first` on."""
    return jax.vmap(partial(jax.random.fold_in, key))(first + jnp.arange(count))


def round_keys(key: Array, round: Array, num_agents: int) -> Array:
    """Return the keys (3, agents) with which each agent chooses, draws its samples and makes up its report."""
    return jnp.stack([keys_of(key, round, num_agents, use) for use in range(3)])


def keys_of(key: Array, round: Array, num_agents: int, use: int) -> Array:
    """Return the agents' keys for one use alone: 0 to choose, 1 to draw, 2 to report."""
    # A loop over ten agents the compiler unrolls, which takes it as long as a fifth of the whole round; over 16 not.
    padded = -(-num_agents // 16) * 16
    numbers = num_agents * (3 * round + use) + jnp.arange(padded)
    return jax.vmap(partial(jax.random.fold_in, key))(numbers)[:num_agents]


@partial(jax.jit, static_argnums=0)
def begin(setting: Setting, data: Data, keys: Array) -> tuple[Carry, dict[str, Array]]:
    """Return every repetition before its first round, and the metrics of its model."""
    num_agents = sum(map(len, setting.positions))

    def begin(key: Array) -> tuple[Carry, dict[str, Array]]:
        # A key of its own: one that splits further must not meet those of the rounds, which are folded from 0 on.
        model = data.problem.init(jax.random.fold_in(key, 2**31 - 1))
        model = jax.lax.convert_element_type(model, model.dtype)  # never weakly typed: one compilation for all segments
        servers = tuple(
            jax.tree.map(lambda x: jnp.asarray(x, _type_of(x, model)), server.init(model, num_agents))
            for server in setting.servers(data.requests)
        )
        if data.joins is not None:  # nobody is there before the round in which it joins
            servers = tuple(state._replace(enrolled=0 * state.enrolled) for state in servers)
        everybody = jnp.arange(num_agents)
        memories = tuple(by_kind(data.players(setting), lambda agent, *_: agent.init(), data.kinds, everybody))
        metrics = data.problem.metrics(model)
        stopped = data.stop.reached(metrics) if data.stop else jnp.asarray(False)
        variance, never = data.problem.variance(model), jnp.asarray(False)
        proven = jnp.asarray(nothing_proven(num_agents), model.dtype)
        carry = Carry(model, jnp.zeros_like(model), model, variance, servers, memories, proven, stopped, never)
        return carry, metrics

    return jax.vmap(begin)(keys)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def play(setting: Setting, length: int, data: Data, carry: Carry, keys: Array, start: Array) -> tuple[Carry, Rounds]:
    """Play `length` rounds of every repetition."""

    def one_repetition(carry: Carry, key: Array) -> tuple[Carry, Rounds]:
        return jax.lax.scan(partial(_play_round, setting, data, key), carry, start + jnp.arange(length))

    return jax.vmap(one_repetition)(carry, keys)


def _play_round(
    setting: Setting,
    data: Data,
    key: Array,
    carry: Carry,
    round: Array,
) -> tuple[Carry, Rounds]:
    """Play one round, in the paper's order: ask, choose, draw, report, pay, step."""
    players, problem = data.players(setting), data.problem
    choose_keys, draw_keys, report_keys = (keys_of(key, round, players.number, use) for use in range(3))
    servers = setting.servers(data.requests)
    states, proven = _admit(servers, carry, data.joins, round)
    ask, first = servers[0].ask(states[0], carry.model, _normals(setting, key, carry.model, round))
    asked = jnp.asarray(ask.request, jnp.int32)
    over = carry.stopped | (asked < 1)  # a request of 0 ends the training
    ask = ask._replace(request=jnp.maximum(asked, 1), is_last=round == data.last)
    scale = setting.scale(data.requests)
    public = carry.aggregate / scale, carry.origin, ask.prediction / scale, carry.variance / scale**2
    shrinkage = shrinkage_of(servers[0].rule, states[0].rule, ask.request)
    view = View(round, ask.request if ask.notice.own is None else ask.notice.own, ask.model, *public, (), shrinkage)
    sizes, fabricates, leaders = choose(players, view, carry.memories, choose_keys)
    sizes = jnp.clip(sizes, 0, problem.max_batch)
    participating = ((sizes > 0) | fabricates) & ~(over | carry.diverged)
    if data.joins is not None:
        participating &= jnp.any(data.joins <= round, axis=1)
    gradients = _draw(problem, ask.model, leaders, jnp.maximum(sizes, 1), draw_keys)
    reports = report(players, view, carry.memories, sizes, gradients, report_keys)
    used = _used(reports, gradients, leaders, sizes)
    if setting.sends == "models":
        reports = ask.model + scale * reports

    truth = TruthAtModel(problem, ask.model)
    announced = announce(players, view, carry.memories, sizes)
    facts = Facts(reports, ask.prediction, announced, ask.model, partial(validation_loss, problem), used=used)
    witness = draw_witness(problem, ask.model, key, round, setting.witness) if setting.witness else None
    ask = ask._replace(witness=witness)
    done, rewards, after = _settle(servers, (first, *states[1:]), ask, facts, participating, truth)
    after = jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), carry.servers, after)
    memories = learn(players, view, carry.memories, sizes, gradients, rewards[0])
    stepped = jnp.asarray(True) if setting.dither is None else done.step != 0
    diverged = carry.diverged | (jnp.any(participating) & ~jnp.any(done.reading.plain.counted))
    moved = Carry(
        _turned(problem, carry.model - done.step * done.mean),
        jnp.where(stepped, done.mean, carry.aggregate),
        jnp.where(stepped, carry.model, carry.origin),
        jnp.where(done.error.enough, done.error.variance, carry.variance),
        after, memories, prove(servers[0], proven, first, done), over, diverged,
    )  # fmt: skip
    metrics = {name: jnp.where(diverged, jnp.inf, x) for name, x in problem.metrics(moved.model).items()}
    stopped = over | (data.stop.reached(metrics) & ~diverged if data.stop else False)
    noise = estimate_noise(done.reading.plain, ask.request)
    watched = servers, after, players.number
    record = Rounds(
        jnp.where(over, 0, ask.request), jnp.where(over, 0.0, done.step), jnp.where(participating, sizes, 0),
        participating, rewards, metrics, ~over, noise.variance, noise.signal, done.error.signal, done.offset,
        accusations(*watched), collusions(*watched), proofs(servers[0], moved.proven),
    )  # fmt: skip
    return moved._replace(stopped=stopped), record


def _draw(problem: Any, model: Array, leaders: Array, sizes: Array, keys: Array) -> Array:
    """Return what every agent computes of its samples."""
    if hasattr(problem, "gradients"):  # all at once, in a frame of their own: nobody has another's samples
        return problem.gradients(model, sizes, keys[0])
    return jax.vmap(partial(draw_gradient, problem, model))(leaders, sizes, keys[leaders])


def _used(reports: Array, gradients: Array, leaders: Array, sizes: Array) -> Array:
    """Return on how many rows of its own each report is the work: what a look would find. 0 where it is none."""
    apart = jnp.sum((reports - gradients) ** 2, axis=-1)
    same = apart <= REPEATED**2 * jnp.sum(gradients**2, axis=-1)
    return jnp.where(same & (leaders == jnp.arange(len(leaders))), sizes, 0)


def _turned(problem: Any, model: Array) -> Array:
    return problem.turn(model) if hasattr(problem, "turn") else model


def _settle(
    servers: tuple[Server, ...],
    states: tuple[ServerState, ...],
    ask: Ask,
    facts: Facts,
    participating: Array,
    truth: TruthAtModel,
) -> tuple[Settlement, tuple[Array, ...], tuple[ServerState, ...]]:
    """Return what the round came to under the first rule, and the rewards and states of all."""
    knowing = [replace(server, rule=informed(server.rule, facts._replace(truth=truth))) for server in servers]
    asks = [_ask_of(server, state, ask, truth) for server, state in zip(servers, states, strict=True)]
    done, first = knowing[0].settle(states[0], asks[0], facts.reports, participating)
    rewards, following = [done.payments.released], [first]
    for server, state, asked in zip(knowing[1:], states[1:], asks[1:], strict=True):
        payments, _, after = server.pay(state, asked, facts.reports, participating)
        rewards.append(payments.released)
        following.append(after)
    return done, tuple(rewards), tuple(following)


def _ask_of(server: Server, state: ServerState, ask: Ask, truth: TruthAtModel) -> Ask:
    """Return what was asked for as a rule has it: with its own notice, and the truth where it wants that."""
    ask = ask._replace(notice=notice_of(server.rule, state.rule, ask.request))
    return ask._replace(prediction=truth.gradient) if Need.TRUTH in server.rule.needs else ask


def _admit(
    servers: tuple[Server, ...],
    carry: Carry,
    joins: Array | None,
    round: Array,
) -> tuple[tuple[ServerState, ...], Array]:
    """Return the servers' states, and what is proven, with nothing known of those that join in this round."""
    if joins is None:
        return carry.servers, carry.proven
    new = jnp.any(joins == round, axis=1)
    states = tuple(server.admit(state, new) for server, state in zip(servers, carry.servers, strict=True))
    return states, jnp.where(new, 0.0, carry.proven)


def _normals(setting: Setting, key: Array, model: Array, round: Array) -> Array | None:
    """Return what a dither is made of."""
    if setting.dither is None:
        return None
    fresh = jax.random.fold_in(jax.random.fold_in(key, 2**31 - 2), round)
    return jax.random.normal(fresh, model.shape, model.dtype)


def draw_witness(problem: Problem, model: Array, key: Array, round: Array, minibatches: int) -> WitnessSample:
    """Return what the server's own samples say in a round: minibatches of the largest size, of all data."""
    keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 2**31 - 3), round), minibatches)
    drawn = jax.vmap(lambda one: problem.gradient(model, jnp.asarray(problem.max_batch), one))(keys)
    return witness_sample(drawn, problem.max_batch)


def _type_of(value: Any, model: Array) -> Any:
    """Return the type of a policy's number: whole numbers stay whole, others are as precise as the model."""
    return jnp.int32 if jnp.issubdtype(jnp.asarray(value).dtype, jnp.integer) else model.dtype
