"""What happened in a simulation, as labelled arrays. They stay where they were computed until they are asked for."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from guerdon.arrays import Array
from guerdon.costs import Cost

if TYPE_CHECKING:
    import polars as pl


class Rounds(NamedTuple):
    """What the engine records of each round; every array begins with (repetitions, rounds)."""

    request: Array
    step: Array
    sizes: Array  # batch sizes used, (…, agents)
    participating: Array  # who sent something, (…, agents)
    rewards: tuple[Array, ...]  # (…, agents) for each payment rule
    metrics: dict[str, Array]  # of the model after the round
    active: Array  # whether the run was still going
    variance: Array  # σ² as the gradients of the round have it, without bias
    signal: Array  # ‖m‖², likewise
    surprise: Array  # ‖m − p‖² around the server's prediction, likewise
    offset: Array  # how far beside the model the gradients were taken
    accusation: Array  # the logarithm of the evidence against each agent, (…, agents)
    collusion: Array  # and of that against it and its closest partner together, (…, agents)
    proven: Array  # and of that which an accusation rests on: it holds even where four of nine others lie, (…, agents)


class PlayedChunk(NamedTuple):
    """The rounds of some repetitions, in stretches, and the metrics before the first; only the first `number` count."""

    parts: tuple[Rounds, ...]
    before: Mapping[str, Array]
    number: int


def hold(before: Mapping[str, Array], parts: Iterable[Rounds], rounds: int, count: int) -> PlayedChunk:
    """Return a chunk of repetitions as it is."""
    del rounds
    return PlayedChunk(tuple(parts), before, count)


def cost_tables(costs: Sequence[Cost], max_batch: int) -> Any:
    """Return what each agent's batch sizes 0…max_batch cost, (agents, max_batch + 1)."""
    sizes = np.arange(max_batch + 1)
    tables = {id(cost): np.asarray(cost(sizes), dtype=np.float64) for cost in costs}
    return np.stack([tables[id(cost)] for cost in costs])


class OnDemand(Mapping[str, Any]):
    """Arrays by name, each made when it is first asked for."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Any]) -> None:
        self._made: dict[str, Any] = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> Any:
        if self._made[name] is None:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """Everything that happened: arrays over (repetitions, rounds) or (repetitions, rounds, agents).

    `metrics` have one column more than there are rounds: the first is before training. `rewards` and `utilities` are by
    payment rule. `variance`, `signal` and `surprise` are what each round's gradients say of σ², ‖m‖² and ‖m − p‖², p
    the server's prediction, without bias; `offset` is how far beside the model they were taken. `accusation` is the
    logarithm of the evidence that information pay has against each agent, `collusion` that against it and the agent
    whose reports are most like its own, and `proven` what is left of the first if the others that speak most against it
    are left out: on that `guerdon audit --alike` accuses. A run that stopped early has nothing but zeros from then on,
    and its metrics stay as they were.

    The arrays are read-only: what lies on an accelerator is copied to the host when it is asked for, and only that.
    """

    chunks: Sequence[PlayedChunk]
    rounds: int
    rules: tuple[str, ...]
    cost_tables: Array
    interrupted: bool = False

    @cached_property
    def request(self) -> Array:
        return self._whole(lambda part: part.request)

    @cached_property
    def step(self) -> Array:
        return self._whole(lambda part: part.step)

    @cached_property
    def batch_sizes(self) -> Array:
        return self._whole(lambda part: part.sizes)

    @cached_property
    def participating(self) -> Array:
        return self._whole(lambda part: part.participating)

    @cached_property
    def active(self) -> Array:
        return self._whole(lambda part: part.active)

    @cached_property
    def variance(self) -> Array:
        return self._whole(lambda part: part.variance)

    @cached_property
    def signal(self) -> Array:
        return self._whole(lambda part: part.signal)

    @cached_property
    def surprise(self) -> Array:
        return self._whole(lambda part: part.surprise)

    @cached_property
    def offset(self) -> Array:
        return self._whole(lambda part: part.offset)

    @cached_property
    def accusation(self) -> Array:
        return self._whole(lambda part: part.accusation)

    @cached_property
    def collusion(self) -> Array:
        return self._whole(lambda part: part.collusion)

    @cached_property
    def proven(self) -> Array:
        return self._whole(lambda part: part.proven)

    @cached_property
    def costs(self) -> Array:
        """What each batch size cost the agent that used it."""
        return self.cost_tables[np.arange(self.cost_tables.shape[0]), self.batch_sizes]

    @cached_property
    def rewards(self) -> Mapping[str, Array]:
        """By payment rule."""
        return OnDemand(self.rules, lambda rule: self._whole(lambda part: part.rewards[self.rules.index(rule)]))

    @cached_property
    def utilities(self) -> Mapping[str, Array]:
        """Rewards less costs, by payment rule."""
        return OnDemand(self.rules, lambda rule: self.rewards[rule] - self.costs)

    @cached_property
    def metrics(self) -> Mapping[str, Array]:
        """By name; the first column is before training."""
        return OnDemand(self.chunks[0].before, self._metric)

    @property
    def repetitions(self) -> int:
        """How many repetitions were finished."""
        return sum(chunk.number for chunk in self.chunks)

    @property
    def rounds_played(self) -> Array:
        """How many rounds each repetition went on for, (repetitions,)."""
        return np.sum(self.active, axis=1)

    @property
    def diverged(self) -> Array:
        """Whether the model of each repetition ended at infinity, (repetitions,)."""
        return np.any([~np.isfinite(values) for values in self.last_metrics.values()], axis=0)

    @cached_property
    def total_rewards(self) -> Mapping[str, Array]:
        """What each repetition paid each agent over all rounds, (repetitions, agents), by payment rule."""
        return OnDemand(self.rules, lambda rule: np.sum(self.rewards[rule], axis=1, dtype=np.float64))

    @cached_property
    def total_costs(self) -> Array:
        """What all rounds cost each agent in each repetition, (repetitions, agents)."""
        return np.sum(self.costs, axis=1)

    @property
    def last_metrics(self) -> Mapping[str, Array]:
        """Where each repetition ended, (repetitions,), by name."""
        return {name: values[:, -1] for name, values in self.metrics.items()}

    def total_reward(self, rule: str | None = None) -> Array:
        """Return what each repetition paid to all agents over all rounds; under the first rule unless one is named."""
        return np.sum(self.total_rewards[rule or self.rules[0]], axis=1)

    def __repr__(self) -> str:
        agents, words = self.cost_tables.shape[0], ", interrupted" if self.interrupted else ""
        return f"History({self.repetitions} repetitions, {self.rounds} rounds, {agents} agents{words})"

    def numbers(self, number: int) -> dict[str, float]:
        """Return a round (1 for the first) as flat numbers under the first rule: means over repetitions that go on."""
        going = self.active[:, number - 1]
        first = next(iter(self.rewards.values()))[going, number - 1]
        columns = {"request": self.request, "variance": self.variance, "signal": self.signal}
        values_of_round = {name: values[going, number - 1] for name, values in columns.items()}
        values_of_round |= {f"metric/{name}": values[going, number] for name, values in self.metrics.items()}
        values_of_round |= {f"reward/{agent}": first[:, agent] for agent in range(first.shape[1])}
        values_of_round |= {
            "participants": np.sum(self.participating[going, number - 1], axis=-1),
            "paid": np.sum(first, axis=-1),
        }
        means = {name: float(np.mean(values)) for name, values in values_of_round.items() if values.size}
        means = {"round": float(number)} | {name: mean for name, mean in means.items() if np.isfinite(mean)}
        return {f"guerdon/{name}": mean for name, mean in means.items()}

    def to_frame(self) -> "pl.DataFrame":
        """Return one row per repetition, round, agent and payment rule, for rounds that were played."""
        import polars as pl

        reps, rounds, agents = self.batch_sizes.shape
        index = np.broadcast_to(self.active[:, :, None], (reps, rounds, agents)).ravel()
        repetition, turn, agent = (axis.ravel()[index] for axis in np.indices((reps, rounds, agents)))
        common: dict[str, Any] = {"repetition": repetition, "round": turn + 1, "agent": agent}
        per_round = {"request": self.request, "step": self.step, "variance": self.variance, "signal": self.signal}
        common |= {name: _per_agent(x, agents)[index] for name, x in per_round.items()}
        for name, values in (("batch_size", self.batch_sizes), ("sent", self.participating), ("cost", self.costs)):
            common[name] = values.ravel()[index]
        common |= {name: _per_agent(values[:, 1:], agents)[index] for name, values in self.metrics.items()}
        frames = [
            pl.DataFrame(common | {"rule": [rule] * int(index.sum()), "reward": reward.ravel()[index]})
            for rule, reward in self.rewards.items()
        ]
        return pl.concat(frames)

    def save(self, path: Path | str) -> None:
        """Write `to_frame()` as Parquet."""
        self.to_frame().write_parquet(path)

    def _whole(self, part_of: Callable[[Rounds], Any]) -> Any:
        """Return an array of all repetitions and rounds: cut to the rounds, or filled up with zeros."""
        parts = [[np.asarray(part_of(part)) for part in chunk.parts] for chunk in self.chunks]
        first = parts[0][0]
        shape = self.repetitions, self.rounds, *first.shape[2:]
        if first.shape == shape:
            return _read_only(first)  # nothing to put together: nothing to copy
        whole = np.zeros(shape, first.dtype)
        for rows, stretches in zip(self._rows(), parts, strict=True):
            for columns, values in _beside(stretches, self.rounds):
                whole[rows, columns] = values[: rows.stop - rows.start, : columns.stop - columns.start]
        return _read_only(whole)

    def _metric(self, name: str) -> Any:
        """Return a metric of all repetitions, with a column for before training; once a run ended it stays."""
        after = self._whole(lambda part: part.metrics[name])
        before = np.concatenate([np.asarray(chunk.before[name])[: chunk.number] for chunk in self.chunks])
        whole = np.concatenate([before[:, None], after], axis=1)
        for rows, chunk in zip(self._rows(), self.chunks, strict=True):
            ended = 1 + sum(part.active.shape[1] for part in chunk.parts)
            whole[rows, ended:] = whole[rows, ended - 1 : ended]
        return _read_only(whole)

    def _rows(self) -> Iterator[slice]:
        """Yield the repetitions of each chunk."""
        start = 0
        for chunk in self.chunks:
            yield slice(start, start + chunk.number)
            start += chunk.number


def _beside(stretches: Sequence[Array], rounds: int) -> Iterator[tuple[slice, Array]]:
    """Yield stretches of rounds with the columns that they take, at most `rounds` in all."""
    start = 0
    for values in stretches:
        yield slice(start, min(start + values.shape[1], rounds)), values
        start += values.shape[1]


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _per_agent(values: Array, agents: int) -> Array:
    return np.repeat(values.ravel(), agents)
