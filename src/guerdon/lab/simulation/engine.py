"""The simulator: repetitions of a training, a chunk at a time.

Each repetition has its own random key, made from the seed and its number, so the same seed gives the same numbers
however the repetitions are divided into chunks.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

import jax
import jax.numpy as jnp

from guerdon.arrays import Array, check_choice, check_positive_integer
from guerdon.costs import Cost
from guerdon.lab.agents import Agent, Learning
from guerdon.lab.problems import Problem
from guerdon.lab.problems.federation import draws_alike
from guerdon.lab.simulation.chunks import run_in_chunks
from guerdon.lab.simulation.facts import Stop, check_joins, check_rounds, check_witness, without_dimension
from guerdon.lab.simulation.history import History, Rounds, cost_tables, hold
from guerdon.lab.simulation.players import sort_by_kind
from guerdon.lab.simulation.summary import Summary, sum_up
from guerdon.lab.simulation.training import Carry, Data, Setting, begin, play, repetition_keys
from guerdon.requests import Requests
from guerdon.rule import Need, Rule
from guerdon.server import Sends
from guerdon.statistical.dithers import Dither
from guerdon.statistical.predictions import Prediction, RunningMean
from guerdon.statistical.servers import server_for

SEGMENT = 16  # rounds compiled as one scan where a stopping rule may end a run early
MEMORY = 2**29  # bytes that a chunk of repetitions may take

T = TypeVar("T", covariant=True)
OnRound: TypeAlias = Callable[[dict[str, float]], object]


class Collect(Protocol[T]):
    """Makes something of a chunk: the metrics before its first round, its rounds in stretches, and how many count."""

    def __call__(self, before: Mapping[str, Array], parts: Iterator[Rounds], rounds: int, count: int) -> T: ...


@overload
def simulate(
    problem: Problem,
    agents: Sequence[Agent],
    rule: Rule | Mapping[str, Rule],
    requests: Requests,
    rounds: int,
    repetitions: int,
    seed: int = ...,
    *,
    costs: Cost | Sequence[Cost] | None = ...,
    prediction: Prediction | None = ...,
    dither: Dither | None = ...,
    stop: Stop | None = ...,
    joins: Sequence[int | Sequence[int]] | None = ...,
    alike: bool | None = ...,
    witness: int = ...,
    sends: Sends = ...,
    dimension_free: bool | None = ...,
    keep: Literal["all"] = ...,
    chunk: int | None = ...,
    progress: bool = ...,
    on_round: OnRound | None = ...,
) -> History: ...
@overload
def simulate(
    problem: Problem,
    agents: Sequence[Agent],
    rule: Rule | Mapping[str, Rule],
    requests: Requests,
    rounds: int,
    repetitions: int,
    seed: int = ...,
    *,
    costs: Cost | Sequence[Cost] | None = ...,
    prediction: Prediction | None = ...,
    dither: Dither | None = ...,
    stop: Stop | None = ...,
    joins: Sequence[int | Sequence[int]] | None = ...,
    alike: bool | None = ...,
    witness: int = ...,
    sends: Sends = ...,
    dimension_free: bool | None = ...,
    keep: Literal["summary"],
    chunk: int | None = ...,
    progress: bool = ...,
    on_round: OnRound | None = ...,
) -> Summary: ...
def simulate(
    problem: Problem,
    agents: Sequence[Agent],
    rule: Rule | Mapping[str, Rule],
    requests: Requests,
    rounds: int,
    repetitions: int,
    seed: int = 0,
    *,
    costs: Cost | Sequence[Cost] | None = None,
    prediction: Prediction | None = None,
    dither: Dither | None = None,
    stop: Stop | None = None,
    joins: Sequence[int | Sequence[int]] | None = None,
    alike: bool | None = None,
    witness: int = 0,
    sends: Sends = "gradients",
    dimension_free: bool | None = None,
    keep: Literal["all", "summary"] = "all",
    chunk: int | None = None,
    progress: bool = False,
    on_round: OnRound | None = None,
) -> History | Summary:
    """Train `repetitions` times for `rounds` rounds, and return everything that happened, or what it comes to.

    With `keep="summary"` means and standard errors over repetitions are returned instead of the repetitions, and each
    repetition's totals (see `Summary`). They are taken where the training runs, so that a million repetitions need
    little memory.

    `rule` is one payment rule, or several by name: then all are computed on the same gradients, and the first is
    the one that the agents are paid by and learn from. `costs` are what work really costs each agent (default: what
    the first rule believes). `prediction` is the server's public one of each gradient, which information pay
    measures improvements on (default: `RunningMean()` where a rule wants one), and `dither` makes the server broadcast
    next to the model, stepping once every two rounds. After `stop` is reached a run does and pays nothing more. `joins`
    gives the round (0 for the first) in which each agent joins, as one that nothing is known of; several rounds are an
    agent that throws its name away and comes back under a new one. `alike` says that all agents draw fresh samples of
    the same kind (default: unless the problem gives each its own). `witness` is how many minibatches of
    `problem.max_batch` samples the server itself draws in a round, for `WitnessedPay`. With `sends="models"` agents
    send the broadcast model less `requests.step` times their report: where the problem is a
    `guerdon.lab.problems.federation.local_training` of the same rate, that is FedAvg, and there is a step in every
    round.

    Where agents choose batch sizes only, all that matters of linear regression is lengths and angles: these are drawn
    at a cost that does not depend on the dimension. `dimension_free=False` draws whole gradients all the same; two runs
    of one seed have the same random numbers only if they are drawn in the same way.

    `on_round` is called for each round, once all are played, with its numbers (`History.numbers`).
    `chunk` repetitions run at once; by default as many as fit in half a gigabyte, or in an eighth of an
    accelerator's memory. An interrupt (Ctrl-C) keeps the chunks that are finished.
    """
    rules: dict[str, Any] = dict(rule) if isinstance(rule, Mapping) else {"reward": rule}
    check_choice("keep", keep, ("all", "summary"))
    if on_round is not None and keep == "summary":
        raise ValueError('`keep` must be "all" where `on_round` is given, got "summary", which has no single runs')
    _check(problem, agents, rules, requests, stop, {"rounds": rounds, "repetitions": repetitions})
    server_for(next(iter(rules.values())), requests, prediction, dither, sends)  # raises where they do not fit
    check_rounds(dither, rounds, requests, sends)
    true_costs = _costs_per_agent(costs, rules, len(agents))
    positions, kinds = sort_by_kind(agents)
    informed = any(Need.PREDICTION in one.needs for one in rules.values())
    prediction = prediction or (RunningMean() if informed else None)
    alike = draws_alike(problem) if alike is None else alike
    check_witness(rules, witness, problem.max_batch)
    setting = Setting(tuple(rules.values()), positions, prediction, dither, alike, witness, sends)
    problem = without_dimension(problem, agents, setting.servers(requests), witness, dimension_free)
    seats = None if joins is None else check_joins(joins, len(agents))
    needed = _bytes_per_repetition(problem, len(agents), len(rules), rounds, alike=alike)
    needed += 8 * len(agents) * rounds * (7 + 3 * len(rules)) if keep == "summary" else 0  # in double precision
    fitting = max(1, _memory() // needed)
    size = min(fitting if chunk is None else chunk, repetitions)
    data = Data(problem, kinds, requests, seats, jnp.asarray(rounds - 1), stop)
    names, tables = tuple(rules), cost_tables(true_costs, problem.max_batch)
    collect = hold if keep == "all" else partial(sum_up, names, tables)
    run = partial(_run, setting, data, rounds, seed, size, collect)
    finished, interrupted = run_in_chunks(run, repetitions, size, progress)
    if keep == "summary":
        return Summary.of(finished, rounds, names, tables, interrupted)
    history = History(finished, rounds, names, tables, interrupted)
    if on_round is not None:
        for number in range(1, rounds + 1):
            on_round(history.numbers(number))
    return history


def _run(
    setting: Setting, data: Data, rounds: int, seed: int, size: int, collect: Collect[T], first: int, count: int
) -> T:
    """Play `count` repetitions from number `first` on, and return what `collect` makes of them when it is there.

    Always `size` are played, and those beyond `count` left out: a shorter last chunk needs no compilation of its own.
    """
    keys = repetition_keys(jax.random.key(seed), first, size)
    carry, before = begin(setting, data, keys)
    return jax.block_until_ready(collect(before, _segments(setting, data, rounds, carry, keys), rounds, count))


def _segments(setting: Setting, data: Data, rounds: int, carry: Carry, keys: Array) -> Iterator[Rounds]:
    """Yield the rounds, in stretches of equal length, until all repetitions have stopped or all rounds are played."""
    length = min(SEGMENT, rounds) if data.stop else rounds
    for start in range(0, rounds, length):
        carry, part = play(setting, length, data, carry, keys, start)
        yield part
        if start + length < rounds and bool(jnp.all(carry.stopped)):
            return


def _memory() -> int:
    """Return how many bytes a chunk may take: more where an accelerator has much of its own."""
    statistics: Any = jax.devices()[0].memory_stats()  # None on a processor
    return max(MEMORY, (statistics or {}).get("bytes_limit", 0) // 8)


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
        raise ValueError("`agents` and `rule` must not be empty")
    metrics = jax.eval_shape(lambda: problem.metrics(problem.init(jax.random.key(0))))
    if stop is not None and stop.metric not in metrics:
        raise ValueError(f"`stop.metric` must be one of {', '.join(metrics)}, got {stop.metric!r}")
    tried = [int(jnp.max(agent.sizes)) for agent in agents if isinstance(agent, Learning)]
    if max(tried, default=0) > problem.max_batch:
        raise ValueError(
            f"`sizes` of a learning agent must be at most `max_batch` ({problem.max_batch}), got {max(tried)}"
        )
    varied = max(getattr(rule, "vary", 0.0) for rule in rules.values())
    if len(rules) > 1 and varied:
        raise ValueError("`rule` must be one rule where it varies requests, got others beside it: run each alone")
    largest = round(requests.largest(counts["rounds"]) * (1 + varied))
    if largest > problem.max_batch:
        raise ValueError(
            f"`requests` must ask for at most the problem's `max_batch` ({problem.max_batch}), got {largest}"
        )
