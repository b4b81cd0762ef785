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

from guerdon.agents import Agent, Learning, View
from guerdon.arrays import Array, check_positive_integer
from guerdon.costs import Cost
from guerdon.evidence import Evidence, gather
from guerdon.mechanisms import GenieAided, KnownVariance, Mechanism
from guerdon.noise_scale import Noise, Recall, estimate_noise, lengthen, recall
from guerdon.problems import Problem
from guerdon.requests import BudgetRequest, FixedRequest, NoiseScaleRequest, Outcome, Requests, ScheduledRequest
from guerdon.simulation.chunks import run_in_chunks
from guerdon.simulation.history import History, Rounds, pad_rounds
from guerdon.simulation.terms import Stop, TrueVariance

SEGMENT = 32  # rounds compiled as one scan where a stopping rule may end a run early
MEMORY = 2**29  # bytes that a chunk of repetitions may take

# The numbers of a policy are data to the compiled function. `requests` itself does without JAX, for servers.
for _policy, _data, _fixed in (
    (FixedRequest, ["batch_size", "step"], []),
    (ScheduledRequest, ["batch_sizes", "steps"], []),
    (NoiseScaleRequest, ["max_batch", "min_batch", "first", "curvature"], ["cost"]),
    (BudgetRequest, ["rule", "budget"], []),
):
    jax.tree_util.register_dataclass(_policy, data_fields=_data, meta_fields=_fixed)


class _Setting(NamedTuple):
    """What the compiled function is specialised to, beside the shapes of its data."""

    mechanisms: tuple[Mechanism, ...]
    stop: Stop | None
    positions: tuple[tuple[int, ...], ...]  # which agents belong to each kind


class _Data(NamedTuple):
    """What it is given."""

    problem: Problem
    kinds: tuple[Any, ...]  # agents of one kind, their numbers stacked: they are played together
    requests: Requests


class _Carry(NamedTuple):
    """What a run takes from round to round."""

    model: Array
    previous_model: Array
    previous_step: Array
    states: tuple[Any, ...]  # one per mechanism
    asking: Any  # the state of the policy
    trail: Array  # of the mean gradients; all zeros where the policy does not look at it
    memories: tuple[Any, ...]  # one per kind of agent
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
    stop: Stop | None = None,
    chunk: int | None = None,
    progress: bool = False,
) -> History:
    """Train `repetitions` times for `rounds` rounds, and return everything that happened.

    `mechanism` is one payment rule, or several by name: then all are computed on the same gradients, and the first is
    the one that the agents are paid by and learn from. `costs` are what work really costs each agent (default: what
    the first mechanism believes). After `stop` is reached a run does and pays nothing more. `chunk` repetitions run at
    once; by default as many as fit in half a gigabyte. An interrupt (Ctrl-C) keeps the chunks that are finished.
    """
    rules: dict[str, Any] = dict(mechanism) if isinstance(mechanism, Mapping) else {"reward": mechanism}
    _check(problem, agents, rules, requests, stop, {"rounds": rounds, "repetitions": repetitions})
    true_costs = _costs_per_agent(costs, rules, len(agents))
    positions, kinds = _sort_by_kind(agents)
    setting = _Setting(tuple(rules.values()), stop, positions)
    fitting = max(1, MEMORY // _bytes_per_repetition(problem, len(agents), len(rules), rounds))
    size = min(fitting if chunk is None else chunk, repetitions)
    run = partial(_run, setting, _Data(problem, kinds, requests), rounds, seed, size)
    finished, interrupted = run_in_chunks(run, repetitions, size, progress)
    played = jax.tree.map(lambda *parts: np.concatenate(parts), *finished)
    return History.from_rounds(played, tuple(rules), true_costs, interrupted)


def repetition_key(seed: int, repetition: Array) -> Array:
    """Return the random key of a repetition."""
    return jax.random.fold_in(jax.random.key(seed), repetition)


def round_keys(key: Array, round: Array, num_agents: int) -> Array:  # noqa: A002
    """Return the keys (3, agents) with which each agent chooses, draws his samples and makes up his report."""
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
        states = tuple(jax.tree.map(jnp.asarray, rule.init(num_agents)) for rule in setting.mechanisms)
        memories = tuple(_by_kind(setting, data, lambda agent, *_: agent.init(), data.kinds, jnp.arange(num_agents)))
        metrics = data.problem.metrics(model)
        stopped = setting.stop.reached(metrics) if setting.stop else jnp.asarray(False)
        asking = jax.tree.map(lambda x: jnp.asarray(x, _type_of(x, model)), data.requests.init(num_agents))
        still = jnp.zeros((), model.dtype)
        never = jnp.asarray(False)
        carry = _Carry(model, model, still, states, asking, jnp.zeros_like(model), memories, stopped, never)
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
    num_agents = sum(map(len, setting.positions))
    choose_keys, draw_keys, report_keys = round_keys(key, round, num_agents)
    asked = jnp.asarray(data.requests.ask(carry.asking, round), jnp.int32)
    over = carry.stopped | (asked < 1)  # a request of 0 ends the training
    request = jnp.maximum(asked, 1)
    variance = data.problem.variance(carry.model)
    view = View(round, request, carry.model, carry.previous_model, carry.previous_step, variance, ())
    sizes, sends = _choose(setting, data, view, carry.memories, choose_keys)
    sizes = jnp.clip(sizes, 0, data.problem.max_batch)
    participating = ((sizes > 0) | sends) & ~(over | carry.diverged)
    gradients = jax.vmap(partial(data.problem.gradient, carry.model))(jnp.maximum(sizes, 1), draw_keys)
    reports = _report(setting, data, view, carry.memories, sizes, gradients, report_keys)

    evidence, paid, states = _pay(setting, data, carry, reports, participating, request, variance)
    memories = _learn(setting, data, view, carry.memories, sizes, paid[0])
    step, seen, after = _observe(setting, data, carry, reports, evidence, request, paid[0])
    diverged = carry.diverged | (jnp.any(participating) & ~jnp.any(evidence.counted))
    metrics = {name: jnp.where(diverged, jnp.inf, x) for name, x in data.problem.metrics(after.model).items()}
    stopped = over | (setting.stop.reached(metrics) & ~diverged if setting.stop else False)
    asked_for = jnp.where(over, 0, request), jnp.where(over, 0.0, step)
    used = jnp.where(participating, sizes, 0)
    record = Rounds(*asked_for, used, participating, paid, metrics, ~over, seen.variance, seen.signal)
    return after._replace(states=states, memories=memories, stopped=stopped, diverged=diverged), record


def _observe(
    setting: _Setting,
    data: _Data,
    carry: _Carry,
    reports: Array,
    evidence: Evidence,
    request: Array,
    paid: Array,
) -> tuple[Array, Noise, _Carry]:
    """Return the step that the policy chooses, what the gradients say of noise and signal, and what is carried on."""
    aggregate = _mean(reports, evidence.counted)
    if _has_genie(setting):  # which had the evidence gathered around the true gradient
        evidence = gather(reports, evidence.counted)
    nothing = jnp.zeros((), carry.model.dtype)
    looked = recall(carry.trail, aggregate) if data.requests.recalls else Recall(nothing, nothing)
    step, asking = data.requests.observe(carry.asking, Outcome(request, evidence, looked, jnp.sum(paid)))
    step = jnp.asarray(step, carry.model.dtype)
    asking = jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), carry.asking, asking)
    trail = lengthen(carry.trail, aggregate) if data.requests.recalls else carry.trail
    after = carry._replace(previous_model=carry.model, previous_step=step, asking=asking, trail=trail)
    return step, estimate_noise(evidence, request), after._replace(model=carry.model - step * aggregate)


def _choose(setting: _Setting, data: _Data, view: View, memories: tuple[Any, ...], keys: Array) -> tuple[Array, Array]:
    """Return every agent's batch size, and whether he sends something even without samples."""

    def choose(agent: Agent, memory: Any, key: Array) -> tuple[Array, Array]:
        return agent.choose(view._replace(memory=memory), key), jnp.asarray(agent.fabricates)

    parts = _by_kind(setting, data, choose, memories, keys)
    return _in_order(setting, [size for size, _ in parts]), _in_order(setting, [sends for _, sends in parts])


def _report(
    setting: _Setting,
    data: _Data,
    view: View,
    memories: tuple[Any, ...],
    sizes: Array,
    gradients: Array,
    keys: Array,
) -> Array:
    """Return what every agent sends; what one who declines would have sent is not looked at."""
    if all(type(kind).report is Agent.report for kind in data.kinds):
        return gradients  # everybody sends what he computed: nothing to be copied about

    def report(agent: Agent, memory: Any, gradient: Array, key: Array) -> Array:
        return agent.report(view._replace(memory=memory), gradient, key)

    computed = jnp.where((sizes > 0)[:, None], gradients, 0.0)
    return _in_order(setting, _by_kind(setting, data, report, memories, computed, keys))


def _learn(
    setting: _Setting, data: _Data, view: View, memories: tuple[Any, ...], sizes: Array, rewards: Array
) -> tuple[Any, ...]:
    """Return what every agent remembers after the round, kind by kind."""

    def learn(agent: Agent, memory: Any, size: Array, reward: Array) -> Any:
        return agent.learn(view._replace(memory=memory), size, reward)

    return tuple(_by_kind(setting, data, learn, memories, sizes, rewards))


def _by_kind(
    setting: _Setting, data: _Data, function: Callable[..., Any], memories: tuple[Any, ...], *per_agent: Array
) -> list[Any]:
    """Return, kind by kind, function(agent, memory, …) of every agent, given what is his of each array."""
    return [
        jax.vmap(function)(kind, memory, *(_take(values, where) for values in per_agent))
        for kind, memory, where in zip(data.kinds, memories, setting.positions, strict=True)
    ]


def _take(values: Array, where: tuple[int, ...]) -> Array:
    """Return the rows `where`; a run of neighbours is a slice, which costs nothing."""
    first, last = where[0], where[-1] + 1
    return values[first:last] if where == tuple(range(first, last)) else values[jnp.asarray(where)]


def _pay(
    setting: _Setting, data: _Data, carry: _Carry, reports: Array, participating: Array, request: Array, variance: Array
) -> tuple[Evidence, tuple[Array, ...], tuple[Any, ...]]:
    """Return the evidence, and the rewards and next state under every rule."""
    truth = data.problem.population_gradient(carry.model) if _has_genie(setting) else None
    evidence = gather(reports, participating, truth)
    rewards: list[Array] = []
    states: list[Any] = []
    for rule, state in zip(setting.mechanisms, carry.states, strict=True):
        payments, after = _with_true_variance(rule, variance).pay(state, evidence, participating, request)
        rewards.append(payments.reward)
        states.append(after)
    return evidence, tuple(rewards), tuple(states)


def _with_true_variance(rule: Any, variance: Array) -> Mechanism:
    known = isinstance(getattr(rule, "variance", None), TrueVariance)
    return replace(rule, variance=KnownVariance(variance)) if known else rule


def _has_genie(setting: _Setting) -> bool:
    return any(isinstance(rule, GenieAided) for rule in setting.mechanisms)


def _mean(reports: Array, counted: Array) -> Array:
    """Return the mean of the counted reports; zero where there are none."""
    total = jnp.sum(jnp.where(counted[:, None], reports, 0.0), axis=0)
    return total / jnp.maximum(jnp.sum(counted), 1)


def _type_of(value: Any, model: Array) -> Any:
    """Return the type of a policy's number: whole numbers stay whole, others are as precise as the model."""
    return jnp.int32 if jnp.issubdtype(jnp.asarray(value).dtype, jnp.integer) else model.dtype


def _in_order(setting: _Setting, parts: list[Array]) -> Array:
    """Return what was computed kind by kind in the order of the agents."""
    order = np.argsort([position for where in setting.positions for position in where])
    joined = jnp.concatenate(parts)
    return joined if np.array_equal(order, np.arange(len(order))) else joined[order]


def _sort_by_kind(agents: Sequence[Agent]) -> tuple[tuple[tuple[int, ...], ...], tuple[Any, ...]]:
    """Return, for each kind of agent, their positions and their numbers stacked."""
    kinds: dict[Any, list[int]] = {}
    converted = [jax.tree.map(jnp.asarray, agent) for agent in agents]
    for position, agent in enumerate(converted):
        leaves, structure = jax.tree.flatten(agent)
        kinds.setdefault((structure, tuple((x.shape, x.dtype) for x in leaves)), []).append(position)
    stacked = tuple(_stack([converted[position] for position in where]) for where in kinds.values())
    return tuple(map(tuple, kinds.values())), stacked


def _stack(agents: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *agents)


def _bytes_per_repetition(problem: Problem, num_agents: int, num_rules: int, rounds: int) -> int:
    """Return roughly what a repetition needs: what is recorded, and a few copies of the agents' gradients."""
    dim = jax.eval_shape(problem.init, jax.random.key(0)).shape[0]
    return 4 * num_agents * (rounds * (2 + num_rules) + 6 * dim)


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
    largest = requests.largest(counts["rounds"])
    if largest > problem.max_batch:
        raise ValueError(
            f"`requests` must ask for at most the problem's `max_batch` ({problem.max_batch}), got {largest}"
        )
