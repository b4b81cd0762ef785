"""The simulator: a scan over rounds inside a map over repetitions, compiled once per shape.

Each repetition has its own random key, made from the seed and its number, so the same seed gives the same numbers
however the repetitions are divided into chunks. Batch sizes, requests, steps and all other numbers of agents, problems
and policies are data to the compiled function; only what they are, and how many, is part of it.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from guerdon._trees import register
from guerdon.agents import Agent, Learning, View
from guerdon.arrays import Array, check_positive_integer
from guerdon.audit import against_agents
from guerdon.broadcasts import Dither
from guerdon.costs import Cost
from guerdon.noise_scale import estimate_noise
from guerdon.predictions import Prediction, RunningMean
from guerdon.problems import Problem
from guerdon.problems.federation import draw_gradient, draws_alike
from guerdon.requests import BudgetRequest, FixedRequest, NoiseScaleRequest, Requests, ScheduledRequest
from guerdon.rules import Facts, Mechanism, WitnessSample, witness_sample
from guerdon.server import Ask, Sends, Server, ServerState, Settlement
from guerdon.simulation.chunks import run_in_chunks
from guerdon.simulation.history import History, Rounds, pad_rounds
from guerdon.simulation.players import Players, announce, by_kind, choose, learn, report, sort_by_kind
from guerdon.simulation.suspicions import accusations, collusions, nothing_proven, prove
from guerdon.simulation.terms import AtModel, Stop, check_joins, check_rounds, check_witness, validation_loss

SEGMENT = 32  # rounds compiled as one scan where a stopping rule may end a run early
MEMORY = 2**29  # bytes that a chunk of repetitions may take

# The numbers of a policy are data to the compiled function. `requests` itself does without JAX, for servers.
for _policy, _data in (
    (FixedRequest, ["batch_size", "step"]),
    (ScheduledRequest, ["batch_sizes", "steps"]),
    (NoiseScaleRequest, ["max_batch", "min_batch", "first", "curvature"]),
    (BudgetRequest, ["rule", "budget", "max_batch", "curvature"]),
):
    register(_policy, _data)


class _Setting(NamedTuple):
    """What the compiled function is specialised to, beside the shapes of its data."""

    mechanisms: tuple[Mechanism, ...]
    stop: Stop | None
    positions: tuple[tuple[int, ...], ...]  # which agents belong to each kind
    prediction: Prediction | None
    dither: Dither | None
    alike: bool
    witness: int  # minibatches that the server draws itself; 0: none
    sends: Sends

    def servers(self, requests: Requests) -> tuple[Server, ...]:
        """Return a server for each rule; the first is the one that trains."""
        given = requests, self.prediction, self.dither, self.sends, self.alike
        return tuple(Server(rule, *given) for rule in self.mechanisms)

    def scale(self, requests: Any) -> Any:
        """Return what a report is multiplied by when it is sent: a model is the broadcast one, and a step beside it."""
        return -requests.step if self.sends == "models" else 1.0


class _Data(NamedTuple):
    """What it is given."""

    problem: Problem
    kinds: tuple[Any, ...]  # agents of one kind, their numbers stacked: they are played together
    requests: Requests
    joins: Array | None  # the round in which each agent joins; None: all are there from the start
    last: Array  # round, in which what a rule holds is settled

    def players(self, setting: _Setting) -> Players:
        """Return the agents."""
        return Players(setting.positions, self.kinds)


class _Carry(NamedTuple):
    """What a run takes from round to round."""

    model: Array
    aggregate: Array  # the mean gradient of the last step
    origin: Array  # the model that it was taken at
    variance: Array  # σ² as the last round had it
    servers: tuple[ServerState, ...]  # one per mechanism
    memories: tuple[Any, ...]  # one per kind of agent
    proven: Array  # wealth of the bets that an accusation rests on
    stopped: Array
    diverged: Array


def simulate(
    problem: Problem,
    agents: Sequence[Agent],
    mechanism: Mechanism | Mapping[str, Mechanism],
    requests: Requests,
    rounds: int,
    repetitions: int,
    seed: int = 0,
    *,
    costs: Cost | Sequence[Cost] | None = None,
    prediction: Prediction | None = None,
    dither: Dither | None = None,
    stop: Stop | None = None,
    joins: Sequence[int] | None = None,
    alike: bool | None = None,
    witness: int = 0,
    sends: Sends = "gradients",
    chunk: int | None = None,
    progress: bool = False,
    on_round: Callable[[dict[str, float]], object] | None = None,
) -> History:
    """Train `repetitions` times for `rounds` rounds, and return everything that happened.

    `mechanism` is one payment rule, or several by name: then all are computed on the same gradients, and the first is
    the one that the agents are paid by and learn from. `costs` are what work really costs each agent (default: what
    the first mechanism believes). `prediction` is the server's public one of each gradient, which information pay
    measures improvements on (default: `RunningMean()` where a rule wants one), and `dither` makes the server broadcast
    next to the model, stepping once every two rounds. After `stop` is reached a run does and pays nothing more. `joins`
    gives the round (0 for the first) in which each agent joins, as one that nothing is known of. `alike` says that all
    agents draw fresh samples of the same kind (default: unless the problem gives each its own). `witness` is how many
    minibatches of `problem.max_batch` samples the server itself draws in a round, for `WitnessedPay`. With
    `sends="models"` agents send the broadcast model less `requests.step` times their report: where the problem is a
    `guerdon.problems.federation.local_training` of the same rate, that is FedAvg, and there is a step in every round.

    `on_round` is called for each round, once all are played, with its numbers (`History.numbers`).
    `chunk` repetitions run at once; by default as many as fit in half a gigabyte. An interrupt (Ctrl-C) keeps the
    chunks that are finished.
    """
    rules: dict[str, Any] = dict(mechanism) if isinstance(mechanism, Mapping) else {"reward": mechanism}
    _check(problem, agents, rules, requests, stop, {"rounds": rounds, "repetitions": repetitions})
    Server(next(iter(rules.values())), requests, prediction, dither, sends)  # raises where they do not fit each other
    check_rounds(dither, rounds, requests, sends)
    true_costs = _costs_per_agent(costs, rules, len(agents))
    positions, kinds = sort_by_kind(agents)
    informed = any(rule.wants_prediction and not rule.wants_truth for rule in rules.values())
    prediction = prediction or (RunningMean() if informed else None)
    alike = draws_alike(problem) if alike is None else alike
    check_witness(rules, witness, problem.max_batch)
    setting = _Setting(tuple(rules.values()), stop, positions, prediction, dither, alike, witness, sends)
    seats = None if joins is None else check_joins(joins, len(agents))
    fitting = max(1, MEMORY // _bytes_per_repetition(problem, len(agents), len(rules), rounds, alike=alike))
    size = min(fitting if chunk is None else chunk, repetitions)
    run = partial(_run, setting, _Data(problem, kinds, requests, seats, jnp.asarray(rounds - 1)), rounds, seed, size)
    finished, interrupted = run_in_chunks(run, repetitions, size, progress)
    played = jax.tree.map(lambda *parts: np.concatenate(parts), *finished)
    history = History.from_rounds(played, tuple(rules), true_costs, interrupted)
    for number in range(1, rounds + 1) if on_round is not None else ():
        on_round(history.numbers(number))
    return history


def repetition_key(seed: int, repetition: Array) -> Array:
    """Return the random key of a repetition."""
    return jax.random.fold_in(jax.random.key(seed), repetition)


def round_keys(key: Array, round: Array, num_agents: int) -> Array:  # noqa: A002
    """Return the keys (3, agents) with which each agent chooses, draws its samples and makes up its report."""
    numbers = 3 * num_agents * round + jnp.arange(3 * num_agents)
    return jax.vmap(partial(jax.random.fold_in, key))(numbers).reshape(3, num_agents)


def _run(setting: _Setting, data: _Data, rounds: int, seed: int, size: int, first: int, count: int) -> Rounds:
    """Play `count` repetitions from number `first` on, until all have stopped or all rounds are played.

    Always `size` are played, and those beyond `count` left out: a shorter last chunk needs no compilation of its own.
    """
    keys = jax.vmap(partial(repetition_key, seed))(jnp.arange(first, first + size))
    carry, before = _begin(setting, data, keys)
    length = min(SEGMENT, rounds) if setting.stop else rounds
    parts: list[Rounds] = []
    for start in range(0, rounds, length):
        carry, part = _play(setting, length, data, carry, keys, start)
        parts.append(jax.tree.map(np.asarray, part))
        if bool(jnp.all(carry.stopped)):
            break
    played: Rounds = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *parts)
    padded = pad_rounds(played, jax.tree.map(np.asarray, before), rounds)
    return jax.tree.map(lambda x: x[:count], padded)


@partial(jax.jit, static_argnums=0)
def _begin(setting: _Setting, data: _Data, keys: Array) -> tuple[_Carry, dict[str, Array]]:
    """Return every repetition before its first round, and the metrics of its model."""
    num_agents = sum(map(len, setting.positions))

    def begin(key: Array) -> tuple[_Carry, dict[str, Array]]:
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
        stopped = setting.stop.reached(metrics) if setting.stop else jnp.asarray(False)
        variance, never = data.problem.variance(model), jnp.asarray(False)
        proven = jnp.asarray(nothing_proven(num_agents), model.dtype)
        carry = _Carry(model, jnp.zeros_like(model), model, variance, servers, memories, proven, stopped, never)
        return carry, metrics

    return jax.vmap(begin)(keys)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _play(
    setting: _Setting, length: int, data: _Data, carry: _Carry, keys: Array, start: Array
) -> tuple[_Carry, Rounds]:
    """Play `length` rounds of every repetition."""

    def one_repetition(carry: _Carry, key: Array) -> tuple[_Carry, Rounds]:
        return jax.lax.scan(partial(_play_round, setting, data, key), carry, start + jnp.arange(length))

    return jax.vmap(one_repetition)(carry, keys)


def _play_round(
    setting: _Setting,
    data: _Data,
    key: Array,
    carry: _Carry,
    round: Array,  # noqa: A002
) -> tuple[_Carry, Rounds]:
    """Play one round, in the paper's order: ask, choose, draw, report, pay, step."""
    players, problem = data.players(setting), data.problem
    choose_keys, draw_keys, report_keys = round_keys(key, round, players.number)
    servers = setting.servers(data.requests)
    states = carry.servers if data.joins is None else _admit(servers, carry.servers, data.joins == round)
    ask, first = servers[0].ask(states[0], carry.model, _normals(setting, key, carry.model, round))
    asked = jnp.asarray(ask.request, jnp.int32)
    over = carry.stopped | (asked < 1)  # a request of 0 ends the training
    ask = ask._replace(request=jnp.maximum(asked, 1))
    scale = setting.scale(data.requests)
    public = carry.aggregate / scale, carry.origin, ask.prediction / scale, carry.variance / scale**2
    shrinkage = servers[0].mechanism.shrinkage(states[0].rule, ask.request)
    view = View(round, ask.request if ask.own is None else ask.own, ask.model, *public, (), shrinkage)
    sizes, fabricates, leaders = choose(players, view, carry.memories, choose_keys)
    sizes = jnp.clip(sizes, 0, problem.max_batch)
    participating = ((sizes > 0) | fabricates) & ~(over | carry.diverged)
    if data.joins is not None:
        participating &= data.joins <= round
    draw = partial(draw_gradient, problem, ask.model)
    gradients = jax.vmap(draw)(leaders, jnp.maximum(sizes, 1), draw_keys[leaders])
    reports = report(players, view, carry.memories, sizes, gradients, report_keys)
    if setting.sends == "models":
        reports = ask.model + scale * reports

    truth = AtModel(problem, ask.model)
    announced = announce(players, view, carry.memories, sizes)
    facts = Facts(reports, ask.prediction, announced, ask.model, partial(validation_loss, problem))
    witness = draw_witness(problem, ask.model, key, round, setting.witness) if setting.witness else None
    servers = tuple(replace(one, mechanism=one.mechanism.closing(round == data.last)) for one in servers)
    done, rewards, after = _settle(servers, (first, *states[1:]), ask, facts, participating, truth, witness)
    after = jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), carry.servers, after)
    memories = learn(players, view, carry.memories, sizes, gradients, rewards[0])
    stepped = jnp.asarray(True) if setting.dither is None else done.step != 0
    diverged = carry.diverged | (jnp.any(participating) & ~jnp.any(done.comparison.plain.counted))
    moved = _Carry(
        carry.model - done.step * done.mean,
        jnp.where(stepped, done.mean, carry.aggregate),
        jnp.where(stepped, carry.model, carry.origin),
        jnp.where(done.error.enough, done.error.variance, carry.variance),
        after, memories, prove(setting.mechanisms[0], carry.proven, done), over, diverged,
    )  # fmt: skip
    metrics = {name: jnp.where(diverged, jnp.inf, x) for name, x in problem.metrics(moved.model).items()}
    stopped = over | (setting.stop.reached(metrics) & ~diverged if setting.stop else False)
    noise = estimate_noise(done.comparison.plain, ask.request)
    watched = setting.mechanisms, after, players.number
    record = Rounds(
        jnp.where(over, 0, ask.request), jnp.where(over, 0.0, done.step), jnp.where(participating, sizes, 0),
        participating, rewards, metrics, ~over, noise.variance, noise.signal, done.error.signal, done.offset,
        accusations(*watched), collusions(*watched), against_agents(moved.proven),
    )  # fmt: skip
    return moved._replace(stopped=stopped), record


def _settle(
    servers: tuple[Server, ...],
    states: tuple[ServerState, ...],
    ask: Ask,
    facts: Facts,
    participating: Array,
    truth: AtModel,
    witness: WitnessSample | None,
) -> tuple[Settlement, tuple[Array, ...], tuple[ServerState, ...]]:
    """Return what the round came to under the first rule, and the rewards and states of all."""
    knowing = [replace(server, mechanism=server.mechanism.knowing(truth).informed(facts)) for server in servers]
    asks = [ask._replace(prediction=truth.gradient) if server.mechanism.wants_truth else ask for server in servers]
    done, first = knowing[0].settle(states[0], asks[0], facts.reports, participating, witness=witness)
    rewards, following = [done.payments.reward], [first]
    for server, state, asked in zip(knowing[1:], states[1:], asks[1:], strict=True):
        payments, _, after = server.pay(state, asked, facts.reports, participating, witness)
        rewards.append(payments.reward)
        following.append(after)
    return done, tuple(rewards), tuple(following)


def _admit(servers: tuple[Server, ...], states: tuple[ServerState, ...], newcomers: Array) -> tuple[ServerState, ...]:
    return tuple(server.admit(state, newcomers) for server, state in zip(servers, states, strict=True))


def _normals(setting: _Setting, key: Array, model: Array, round: Array) -> Array | None:  # noqa: A002
    """Return what a dither is made of."""
    if setting.dither is None:
        return None
    fresh = jax.random.fold_in(jax.random.fold_in(key, 2**31 - 2), round)
    return jax.random.normal(fresh, model.shape, model.dtype)


def draw_witness(problem: Problem, model: Array, key: Array, round: Array, minibatches: int) -> WitnessSample:  # noqa: A002
    """Return what the server's own samples say in a round: minibatches of the largest size, of all data."""
    keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, 2**31 - 3), round), minibatches)
    drawn = jax.vmap(lambda one: problem.gradient(model, jnp.asarray(problem.max_batch), one))(keys)
    return witness_sample(drawn, problem.max_batch)


def _type_of(value: Any, model: Array) -> Any:
    """Return the type of a policy's number: whole numbers stay whole, others are as precise as the model."""
    return jnp.int32 if jnp.issubdtype(jnp.asarray(value).dtype, jnp.integer) else model.dtype


def _bytes_per_repetition(problem: Problem, num_agents: int, num_rules: int, rounds: int, *, alike: bool) -> int:
    """Return roughly what a repetition needs: what is recorded, and copies of the agents' gradients and records."""
    dim = jax.eval_shape(problem.init, jax.random.key(0)).shape[0]
    copies = 6 if alike else 6 + 4 * num_rules
    return 4 * num_agents * (rounds * (2 + num_rules) + copies * dim)


def _costs_per_agent(costs: Any, rules: Mapping[str, Any], num_agents: int) -> tuple[Cost, ...]:
    """Return every agent's cost."""
    if costs is None:
        costs = next(iter(rules.values())).cost
    if isinstance(costs, Cost):
        return (costs,) * num_agents
    if len(costs) != num_agents:
        raise ValueError(f"`costs` must be one cost, or one for each of the {num_agents} agents, got {len(costs)}")
    return tuple(costs)


def _check(
    problem: Problem,
    agents: Sequence[Agent],
    rules: Mapping[str, Any],
    requests: Requests,
    stop: Stop | None,
    counts: Mapping[str, int],
) -> None:
    """Raise where the parts of a simulation do not fit each other."""
    for name, count in counts.items():
        check_positive_integer(name, count)
    if not agents or not rules:
        raise ValueError("`agents` and `mechanism` must not be empty")
    metrics = jax.eval_shape(lambda: problem.metrics(problem.init(jax.random.key(0))))
    if stop is not None and stop.metric not in metrics:
        raise ValueError(f"`stop.metric` must be one of {', '.join(metrics)}, got {stop.metric!r}")
    tried = [int(jnp.max(agent.sizes)) for agent in agents if isinstance(agent, Learning)]
    if max(tried, default=0) > problem.max_batch:
        raise ValueError(
            f"`sizes` of a learning agent must be at most `max_batch` ({problem.max_batch}), got {max(tried)}"
        )
    if len(rules) > 1 and any(rule.vary for rule in rules.values()):
        raise ValueError("`mechanism` must be one rule where it varies requests, got others beside it: run each alone")
    largest = round(requests.largest(counts["rounds"]) * (1 + max(rule.vary for rule in rules.values())))
    if largest > problem.max_batch:
        raise ValueError(
            f"`requests` must ask for at most the problem's `max_batch` ({problem.max_batch}), got {largest}"
        )
