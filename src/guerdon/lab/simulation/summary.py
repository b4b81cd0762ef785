"""What many repetitions of a training come to, without the repetitions: sums that are taken where they run.

Of each round: the mean over repetitions and its standard error. Of each repetition: its totals over rounds. Both are
sums in double precision, taken on the device a chunk at a time. Chunks are put together on the host: for n and m
repetitions with means a and b the sum of squared deviations is A + B + (b − a)²·nm/(n + m), which loses no digits
(Chan, Golub and LeVeque, 1983).
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array
from guerdon.lab.simulation.history import Rounds

LEVELS = (0.05, 0.5, 0.95)


class Moments(NamedTuple):
    """A mean over repetitions, and the sum of squared deviations from it."""

    mean: Array
    squares: Array


class Totals(NamedTuple):
    """What adds up over the rounds of each repetition; every array begins with (repetitions,)."""

    rounds: Array
    rewards: Mapping[str, Array]  # (…, agents)
    costs: Array  # (…, agents)


class SummedChunk(NamedTuple):
    """What is kept of a chunk: moments of every round, and each repetition's totals and first and last metrics."""

    moments: Any
    before: Any
    totals: Totals
    first: Mapping[str, Array]
    last: Mapping[str, Array]
    number: int


class Statistic(NamedTuple):
    """A mean over repetitions and its standard error (NaN for a single repetition)."""

    mean: Array
    error: Array


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """What repetitions come to: statistics of every round over repetitions, and totals of every repetition.

    `request`, `step`, `active`, `variance`, `signal`, `surprise` and `offset` are statistics over repetitions of each
    round; `batch_sizes`, `participating`, `costs`, `accusation`, `collusion` and `proven` of each round and
    agent; `rewards` and
    `utilities` likewise by payment rule; `metrics` by name, the first before training; and `paid` is what all agents
    together were paid up to each round. What each is, `History` says.

    Of each repetition there are `rounds_played`, `diverged`, `total_reward`, `total_rewards` and `total_costs` of each
    agent, and `first_metrics` and `last_metrics`: from these, quantiles over repetitions are exact. Quantiles of a
    single round need every repetition: take the full history, which copies only what you ask it for.
    """

    repetitions: int
    request: Statistic
    step: Statistic
    batch_sizes: Statistic
    participating: Statistic
    costs: Statistic
    rewards: Mapping[str, Statistic]
    utilities: Mapping[str, Statistic]
    paid: Mapping[str, Statistic]
    metrics: Mapping[str, Statistic]
    active: Statistic
    variance: Statistic
    signal: Statistic
    surprise: Statistic
    offset: Statistic
    accusation: Statistic
    collusion: Statistic
    proven: Statistic
    rounds_played: Array
    total_rewards: Mapping[str, Array]
    total_costs: Array
    first_metrics: Mapping[str, Array]
    last_metrics: Mapping[str, Array]
    interrupted: bool = False

    @classmethod
    def of(
        cls, chunks: Sequence[SummedChunk], rounds: int, rules: tuple[str, ...], tables: Array, interrupted: bool
    ) -> "Summary":
        """Return the summary of chunks."""
        del tables
        repetitions, per_round = reduce(_merge, [(chunk.number, _fill_up(chunk, rounds)) for chunk in chunks])
        statistics = {name: _statistic(moments, repetitions) for name, moments in per_round.items()}
        for name in ("rewards", "utilities", "paid"):  # JAX sorts the names of what it computes
            statistics[name] = {rule: statistics[name][rule] for rule in rules}
        first, last, totals = (
            jax.tree.map(lambda *parts: np.concatenate(parts), *(getattr(chunk, name) for chunk in chunks))
            for name in ("first", "last", "totals")
        )
        return cls(
            repetitions,
            **statistics,
            rounds_played=totals.rounds.astype(np.int64),
            total_rewards={rule: totals.rewards[rule] for rule in rules},
            total_costs=totals.costs,
            first_metrics=first,
            last_metrics=last,
            interrupted=interrupted,
        )

    @property
    def diverged(self) -> Array:
        """Whether the model of each repetition ended at infinity, (repetitions,)."""
        return np.any([~np.isfinite(values) for values in self.last_metrics.values()], axis=0)

    @property
    def total_utilities(self) -> Mapping[str, Array]:
        """Rewards less costs of each repetition and agent, by payment rule."""
        return {rule: total - self.total_costs for rule, total in self.total_rewards.items()}

    def total_reward(self, rule: str | None = None) -> Array:
        """Return what each repetition paid to all agents over all rounds; under the first rule unless one is named."""
        return np.sum(self.total_rewards[rule or next(iter(self.total_rewards))], axis=1)

    def quantiles(self, levels: Sequence[float] = LEVELS) -> dict[str, Any]:
        """Return quantiles over repetitions: of the rounds played, of what each rule paid in all, of the last metrics.

        They are exact, not made from chunks.
        """
        of: dict[str, Array] = {"rounds_played": self.rounds_played}
        of |= {f"total_reward: {rule}": self.total_reward(rule) for rule in self.total_rewards}
        of |= {f"last {name}": values for name, values in self.last_metrics.items()}
        return {name: np.quantile(np.asarray(values, dtype=np.float64), levels) for name, values in of.items()}

    def __repr__(self) -> str:
        rounds, agents = np.shape(self.batch_sizes.mean)
        words = ", interrupted" if self.interrupted else ""
        return f"Summary({self.repetitions} repetitions, {rounds} rounds, {agents} agents{words})"


def sum_up(
    rules: tuple[str, ...], tables: Array, before: Mapping[str, Array], parts: Iterable[Rounds], rounds: int, count: int
) -> SummedChunk:
    """Return what is kept of a chunk of repetitions, of which the first `count` count."""
    moments_of_parts: list[Any] = []
    totals, last, left = None, before, rounds
    for part in parts:  # played as users play: only the sums are in double precision
        with jax.enable_x64(True):
            totals = _no_totals(rules, part) if totals is None else totals
            moments, totals, last = _sum_part(rules, jnp.asarray(tables), part, totals, left, count)
        moments_of_parts.append(moments)
        left -= part.active.shape[1]
    with jax.enable_x64(True):
        start = _moments_of(before, count)
    joined = jax.tree.map(lambda *x: np.concatenate([np.asarray(one) for one in x]), *moments_of_parts)
    kept, first, last = jax.tree.map(lambda x: np.asarray(x)[:count], (totals, before, last))
    return SummedChunk(joined, jax.tree.map(np.asarray, start), kept, first, last, count)


def _no_totals(rules: tuple[str, ...], part: Rounds) -> Totals:
    repetitions, _, agents = part.sizes.shape
    nothing = jnp.zeros((repetitions, agents), jnp.float64)
    return Totals(jnp.zeros(repetitions, jnp.float64), dict.fromkeys(rules, nothing), nothing)


@partial(jax.jit, static_argnums=0)
def _sum_part(
    rules: tuple[str, ...], tables: Array, part: Rounds, totals: Totals, left: Array, count: Array
) -> tuple[Any, Totals, dict[str, Array]]:
    """Return moments of every round of a stretch, the totals up to its end, and the metrics there.

    `left` rounds count: those beyond are played only because all stretches are of one length.
    """
    played = _in_double(part, rules, tables)
    counted = jnp.arange(part.active.shape[1]) < left
    rewards = {rule: jnp.where(counted[:, None], reward, 0.0) for rule, reward in played["rewards"].items()}
    costs = jnp.where(counted[:, None], played["costs"], 0.0)
    paid = {
        rule: jnp.sum(totals.rewards[rule], axis=1)[:, None] + jnp.cumsum(jnp.sum(reward, axis=2), axis=1)
        for rule, reward in rewards.items()
    }
    after = Totals(
        totals.rounds + jnp.sum(part.active & counted, axis=1),
        {rule: totals.rewards[rule] + jnp.sum(reward, axis=1) for rule, reward in rewards.items()},
        totals.costs + jnp.sum(costs, axis=1),
    )
    end = jnp.minimum(part.active.shape[1], left) - 1
    last = {name: jnp.take(values, end, axis=1) for name, values in part.metrics.items()}
    return _moments_of(played | {"paid": paid}, count), after, last


def _in_double(part: Rounds, rules: tuple[str, ...], tables: Array) -> dict[str, Any]:
    """Return what a history has of some rounds, by its names there, in double precision."""
    fields = part._asdict()
    fields["batch_sizes"] = fields.pop("sizes")
    fields["rewards"] = dict(zip(rules, part.rewards, strict=True))
    values: dict[str, Any] = jax.tree.map(lambda x: x.astype(jnp.float64), fields)
    costs = tables[jnp.arange(tables.shape[0]), part.sizes]
    utilities = {rule: reward - costs for rule, reward in values["rewards"].items()}
    return values | {"costs": costs, "utilities": utilities}


@jax.jit
def _moments_of(values: Any, count: Array) -> Any:
    """Return the moments over the first `count` repetitions of every array."""

    def moments(array: Array) -> Moments:
        wide = array.astype(jnp.float64)
        counted = (jnp.arange(array.shape[0]) < count).reshape(-1, *[1] * (array.ndim - 1))
        mean = jnp.sum(jnp.where(counted, wide, 0.0), axis=0) / count
        return Moments(mean, jnp.sum(jnp.where(counted, (wide - mean) ** 2, 0.0), axis=0))

    return jax.tree.map(moments, values)


def _fill_up(chunk: SummedChunk, rounds: int) -> dict[str, Any]:
    """Return the moments of a chunk cut or filled up to `rounds`: zeros, and what stays as it was where a run ended."""
    stays = {name: jax.tree.map(lambda x: _fit(x, rounds, "edge"), chunk.moments[name]) for name in ("metrics", "paid")}
    metrics = jax.tree.map(lambda first, x: np.concatenate([first[None], x]), chunk.before, stays["metrics"])
    zeros = jax.tree.map(lambda x: _fit(x, rounds, "constant"), chunk.moments)
    return zeros | stays | {"metrics": metrics}


def _fit(values: Any, rounds: int, mode: Any) -> Any:
    missing = max(0, rounds - values.shape[0])
    return np.pad(values[:rounds], [(0, missing)] + [(0, 0)] * (values.ndim - 1), mode=mode)


def _merge(one: tuple[int, Any], other: tuple[int, Any]) -> tuple[int, Any]:
    """Return the number of repetitions and the moments of two chunks together."""
    (n, first), (m, second) = one, other

    def merge(a: Moments, b: Moments) -> Moments:
        with np.errstate(invalid="ignore"):  # where a model went to infinity, so does its mean
            apart = b.mean - a.mean
            return Moments(a.mean + apart * (m / (n + m)), a.squares + b.squares + apart**2 * (n * m / (n + m)))

    return n + m, jax.tree.map(merge, first, second, is_leaf=lambda x: isinstance(x, Moments))


def _statistic(moments: Any, repetitions: int) -> Any:
    def of(moments: Moments) -> Statistic:
        error = np.sqrt(moments.squares / max(repetitions - 1, 1) / repetitions)
        return Statistic(moments.mean, error if repetitions > 1 else np.full_like(error, np.nan))

    return jax.tree.map(of, moments, is_leaf=lambda x: isinstance(x, Moments))
