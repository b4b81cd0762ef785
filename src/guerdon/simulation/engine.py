"""The simulator: a scan over rounds inside a map over repetitions, compiled once per shape.

Each repetition has its own random key, made from the seed and its number, so the same seed gives the same numbers
however the repetitions are divided into chunks. Batch sizes, requests, steps and all other numbers of agents, problems
and policies are data to the compiled function; only what they are, and how many, is part of it.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.agents import Agent, Learning, View
from guerdon.arrays import Array, check_positive_integer
from guerdon.audit import BETS, against_agents, bet, evidence_against, pair_scores
from guerdon.broadcasts import Dither
from guerdon.costs import Cost
from guerdon.information import InformationPay
from guerdon.mechanisms import Mechanism
from guerdon.noise_scale import Recall, estimate_noise, lengthen, recall
from guerdon.predictions import Prediction, Seen, ZeroPrediction
from guerdon.problems import Problem
from guerdon.requests import BudgetRequest, FixedRequest, NoiseScaleRequest, Outcome, Requests, ScheduledRequest
from guerdon.simulation.chunks import run_in_chunks
from guerdon.simulation.history import History, Rounds, pad_rounds
from guerdon.simulation.paying import Round, Settled, settle
from guerdon.simulation.players import Players, by_kind, choose, learn, report, sort_by_kind
from guerdon.simulation.terms import Stop
from guerdon.trees import register

SEGMENT = 32  # rounds compiled as one scan where a stopping rule may end a run early
MEMORY = 2**29  # bytes that a chunk of repetitions may take

# The numbers of a policy are data to the compiled function. `requests` itself does without JAX, for servers.
for _policy, _data in (
    (FixedRequest, ["batch_size", "step"]),
    (ScheduledRequest, ["batch_sizes", "steps"]),
    (NoiseScaleRequest, ["max_batch", "min_batch", "first", "curvature"]),
    (BudgetRequest, ["rule", "budget"]),
):
    register(_policy, _data)


class _Setting(NamedTuple):
    """What the compiled function is specialised to, beside the shapes of its data."""

    mechanisms: tuple[Mechanism, ...]
    stop: Stop | None
    positions: tuple[tuple[int, ...], ...]  # which agents belong to each kind
    prediction: Prediction
    dither: Dither | None


class _Data(NamedTuple):
    """What it is given."""

    problem: Problem
    kinds: tuple[Any, ...]  # agents of one kind, their numbers stacked: they are played together
    requests: Requests

    def players(self, setting: _Setting) -> Players:
        """Return the agents."""
        return Players(setting.positions, self.kinds)


class _Carry(NamedTuple):
    """What a run takes from round to round."""

    model: Array
    aggregate: Array  # the mean gradient of the last step
    origin: Array  # the model that it was taken at
    variance: Array  # σ² as the last round had it
    predicting: Any  # the state of the prediction
    dithering: Any  # and of the dither
    states: tuple[Any, ...]  # one per mechanism
    pairs: Array  # wealth of the bets against pairs of agents; empty where no rule audits
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
    prediction: Prediction | None = None,
    dither: Dither | None = None,
    stop: Stop | None = None,
    chunk: int | None = None,
    progress: bool = False,
) -> History:
    """Train `repetitions` times for `rounds` rounds, and return everything that happened.

    `mechanism` is one payment rule, or several by name: then all are computed on the same gradients, and the first is
    the one that the agents are paid by and learn from. `costs` are what work really costs each agent (default: what
    the first mechanism believes). `prediction` is the server's public one of each gradient, which information pay
    measures improvements on (default: none), and `dither` makes her broadcast beside the model, stepping once every two
    rounds. After `stop` is reached a run does and pays nothing more. `chunk` repetitions run at
    once; by default as many as fit in half a gigabyte. An interrupt (Ctrl-C) keeps the chunks that are finished.
    """
    rules: dict[str, Any] = dict(mechanism) if isinstance(mechanism, Mapping) else {"reward": mechanism}
    _check(problem, agents, rules, requests, stop, {"rounds": rounds, "repetitions": repetitions})
    _check_dither(dither, requests, rounds)
    true_costs = _costs_per_agent(costs, rules, len(agents))
    positions, kinds = sort_by_kind(agents)
    setting = _Setting(tuple(rules.values()), stop, positions, prediction or ZeroPrediction(), dither)
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
        everybody = jnp.arange(num_agents)
        memories = tuple(by_kind(data.players(setting), lambda agent, *_: agent.init(), data.kinds, everybody))
        metrics = data.problem.metrics(model)
        stopped = setting.stop.reached(metrics) if setting.stop else jnp.asarray(False)
        asking = jax.tree.map(lambda x: jnp.asarray(x, _type_of(x, model)), data.requests.init(num_agents))
        nothing = jnp.zeros_like(model)
        predicting = setting.prediction.init(model)
        dithering = setting.dither.init(model) if setting.dither else ()
        never = jnp.asarray(False)
        variance = data.problem.variance(model)
        public = nothing, model, variance, predicting, dithering
        pairs = jnp.zeros((len(BETS), num_agents, num_agents) if _audits(setting) else (0,))
        carry = _Carry(model, *public, states, pairs, asking, nothing, memories, stopped, never)
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
    asked = jnp.asarray(data.requests.ask(carry.asking, round), jnp.int32)
    over = carry.stopped | (asked < 1)  # a request of 0 ends the training
    request = jnp.maximum(asked, 1)
    model, carry = _broadcast(setting, key, carry, round)
    expected = setting.prediction.predict(carry.predicting, model)
    view = View(round, request, model, carry.aggregate, carry.origin, expected, carry.variance, ())
    sizes, fabricates, leaders = choose(players, view, carry.memories, choose_keys)
    sizes = jnp.clip(sizes, 0, problem.max_batch)
    participating = ((sizes > 0) | fabricates) & ~(over | carry.diverged)
    gradients = jax.vmap(partial(problem.gradient, model))(jnp.maximum(sizes, 1), draw_keys[leaders])
    reports = report(players, view, carry.memories, sizes, gradients, report_keys)

    played = Round(carry.pairs, reports, participating, request, expected, problem, model)
    settled = settle(setting.mechanisms, carry.states, played)
    memories = learn(players, view, carry.memories, sizes, settled.rewards[0])
    step, after = _observe(setting, data, carry, settled, played, round)
    diverged = carry.diverged | (jnp.any(participating) & ~jnp.any(settled.evidence.counted))
    metrics = {name: jnp.where(diverged, jnp.inf, x) for name, x in problem.metrics(after.model).items()}
    stopped = over | (setting.stop.reached(metrics) & ~diverged if setting.stop else False)
    asked_for = jnp.where(over, 0, request), jnp.where(over, 0.0, step)
    used, noise = jnp.where(participating, sizes, 0), estimate_noise(settled.evidence, request)
    said = settled.surprise
    pairs, collusion = _watch_pairs(setting, carry.pairs, settled)
    after = after._replace(variance=jnp.where(said.enough, said.variance, carry.variance), pairs=pairs)
    record = Rounds(
        *asked_for, used, participating, settled.rewards, metrics, ~over, noise.variance, noise.signal, said.signal,
        carry.dithering.length if setting.dither else jnp.zeros(()), _accusations(setting, settled), collusion,
    )  # fmt: skip
    return after._replace(states=settled.states, memories=memories, stopped=stopped, diverged=diverged), record


def _broadcast(setting: _Setting, key: Array, carry: _Carry, round: Array) -> tuple[Array, _Carry]:  # noqa: A002
    """Return the model that is broadcast: the current one, or one beside it."""
    if setting.dither is None:
        return carry.model, carry
    fresh = jax.random.fold_in(jax.random.fold_in(key, 2**31 - 2), round)
    normals = jax.random.normal(fresh, carry.model.shape, carry.model.dtype)
    model, dithering = setting.dither.place(carry.dithering, carry.model, round, normals)
    return model, carry._replace(dithering=dithering)


def _observe(
    setting: _Setting,
    data: _Data,
    carry: _Carry,
    settled: Settled,
    played: Round,
    round: Array,  # noqa: A002
) -> tuple[Array, _Carry]:
    """Return the step that the policy chooses, and what is carried on."""
    request, expected = played.request, played.prediction
    recalls, nothing = data.requests.recalls, jnp.zeros((), carry.model.dtype)
    looked = recall(carry.trail, settled.aggregate) if recalls else Recall(nothing, nothing)
    outcome = Outcome(request, settled.evidence, looked, jnp.sum(settled.rewards[0]))
    step, asking = data.requests.observe(carry.asking, outcome)
    step = jnp.asarray(step, carry.model.dtype)
    asking = jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), carry.asking, asking)
    trail = lengthen(carry.trail, settled.aggregate) if recalls else carry.trail
    carry = carry._replace(asking=asking, trail=trail)
    if setting.dither is None:
        return step, _step(setting, carry, Seen(carry.model, settled.aggregate), step)
    second = round % 2 == 1
    samples = jnp.sum(settled.reference) * request
    seen, dithering = setting.dither.observe(
        carry.dithering, round, carry.model, settled.aggregate, expected, settled.surprise.variance, samples
    )
    dithering = jax.tree.map(partial(jnp.where, second), setting.dither.adapt(dithering, request), dithering)
    moved = _step(setting, carry, seen, step)
    carry = jax.tree.map(partial(jnp.where, second), moved, carry)._replace(dithering=dithering)
    return jnp.where(second, step, 0.0), carry


def _step(setting: _Setting, carry: _Carry, seen: Seen, step: Array) -> _Carry:
    """Return what is carried on after a step along the mean gradient."""
    predicting = setting.prediction.learn(carry.predicting, seen)
    model = carry.model - step * seen.aggregate
    return carry._replace(model=model, aggregate=seen.aggregate, origin=carry.model, predicting=predicting)


def _accusations(setting: _Setting, settled: Settled) -> Array:
    """Return the logarithm of the evidence against each agent, of the first rule that keeps any; else zeros."""
    for rule, state in zip(setting.mechanisms, settled.states, strict=True):
        if isinstance(rule, InformationPay):
            return against_agents(state.wealth)
    return jnp.zeros_like(settled.rewards[0])


def _watch_pairs(setting: _Setting, pairs: Array, settled: Settled) -> tuple[Array, Array]:
    """Return the wealth of the bets against pairs, and the evidence against the worst pair of each agent."""
    if not _audits(setting):
        return pairs, jnp.zeros_like(settled.rewards[0])
    pairs = bet(pairs, pair_scores(settled.products, settled.evidence.counted, settled.reference))
    return pairs, jnp.max(evidence_against(pairs), axis=0)


def _audits(setting: _Setting) -> bool:
    """Tell whether a rule keeps evidence against agents."""
    return any(isinstance(rule, InformationPay) for rule in setting.mechanisms)


def _type_of(value: Any, model: Array) -> Any:
    """Return the type of a policy's number: whole numbers stay whole, others are as precise as the model."""
    return jnp.int32 if jnp.issubdtype(jnp.asarray(value).dtype, jnp.integer) else model.dtype


def _bytes_per_repetition(problem: Problem, num_agents: int, num_rules: int, rounds: int) -> int:
    """Return roughly what a repetition needs: what is recorded, and a few copies of the agents' gradients."""
    dim = jax.eval_shape(problem.init, jax.random.key(0)).shape[0]
    return 4 * num_agents * (rounds * (2 + num_rules) + 6 * dim)


def _check_dither(dither: Dither | None, requests: Requests, rounds: int) -> None:
    if dither is not None and requests.recalls:
        raise ValueError("`requests` must be fixed or scheduled under a dither: those that learn expect a step a round")
    if dither is not None and rounds % 2:
        raise ValueError(f"`rounds` must be even under a dither, which steps once in two rounds, got {rounds}")


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
