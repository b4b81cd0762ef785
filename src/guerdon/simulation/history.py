"""What happened in a simulation, as labelled arrays."""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
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
    metrics: dict[str, Array]  # of the model after the round; with one column more, in front, for before the first
    active: Array  # whether the run was still going
    variance: Array  # σ² as the gradients of the round have it, without bias
    signal: Array  # ‖m‖², likewise
    surprise: Array  # ‖m − p‖² around the server's prediction, likewise
    offset: Array  # how far beside the model the gradients were taken
    accusation: Array  # the logarithm of the evidence against each agent, (…, agents)
    collusion: Array  # and of that against it and its closest partner together, (…, agents)
    proven: Array  # and of that which an accusation rests on: it holds even where four of nine others lie, (…, agents)


@dataclass(frozen=True)
class History:
    """Everything that happened: arrays over (repetitions, rounds) or (repetitions, rounds, agents).

    `metrics` have one column more than there are rounds: the first is before training. `rewards` and `utilities` are by
    payment rule. `variance`, `signal` and `surprise` are what each round's gradients say of σ², ‖m‖² and ‖m − p‖², p
    the server's prediction, without bias; `offset` is how far beside the model they were taken. `accusation` is the
    logarithm of the evidence that information pay has against each agent, `collusion` that against it and the agent
    whose reports are most like its own, and `proven` what is left of the first if the others that speak most against it
    are left out: on that `guerdon audit --alike` accuses. A run that stopped early has nothing but zeros from then on,
    and its metrics stay as they were.
    """

    request: Array
    step: Array
    batch_sizes: Array
    participating: Array
    costs: Array
    rewards: Mapping[str, Array]
    metrics: Mapping[str, Array]
    active: Array
    variance: Array
    signal: Array
    surprise: Array
    offset: Array
    accusation: Array
    collusion: Array
    proven: Array
    interrupted: bool = False

    @classmethod
    def from_rounds(
        cls, played: Rounds, rules: tuple[str, ...], costs: tuple[Cost, ...], interrupted: bool
    ) -> "History":
        """Return the history of what the engine recorded."""
        paid = np.stack([np.asarray(cost(played.sizes[..., k])) for k, cost in enumerate(costs)], axis=-1)
        rewards = dict(zip(rules, played.rewards, strict=True))
        return cls(
            played.request,
            played.step,
            played.sizes,
            played.participating,
            paid,
            rewards,
            played.metrics,
            played.active,
            played.variance,
            played.signal,
            played.surprise,
            played.offset,
            played.accusation,
            played.collusion,
            played.proven,
            interrupted,
        )

    @property
    def repetitions(self) -> int:
        """How many repetitions were finished."""
        return self.request.shape[0]

    @property
    def rounds_played(self) -> Array:
        """How many rounds each repetition went on for, (repetitions,)."""
        return np.sum(self.active, axis=1)

    @property
    def diverged(self) -> Array:
        """Whether the model of each repetition ended at infinity, (repetitions,)."""
        return np.any([~np.isfinite(values[:, -1]) for values in self.metrics.values()], axis=0)

    @property
    def utilities(self) -> dict[str, Array]:
        """Rewards less costs, by payment rule."""
        return {rule: reward - self.costs for rule, reward in self.rewards.items()}

    def total_reward(self, rule: str | None = None) -> Array:
        """Return what each repetition paid to all agents over all rounds; under the first rule unless one is named."""
        return np.sum(self.rewards[rule or next(iter(self.rewards))], axis=(1, 2), dtype=np.float64)

    def numbers(self, number: int) -> dict[str, float]:
        """Return a round (1 for the first) as flat numbers under the first rule: means over repetitions that go on."""
        going = self.active[:, number - 1]
        first = next(iter(self.rewards.values()))[going, number - 1]
        told = {"request": self.request, "variance": self.variance, "signal": self.signal}
        found = {name: values[going, number - 1] for name, values in told.items()}
        found |= {f"metric/{name}": values[going, number] for name, values in self.metrics.items()}
        found |= {f"reward/{agent}": first[:, agent] for agent in range(first.shape[1])}
        found |= {
            "participants": np.sum(self.participating[going, number - 1], axis=-1),
            "paid": np.sum(first, axis=-1),
        }
        means = {name: float(np.mean(values)) for name, values in found.items() if values.size}
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


def pad_rounds(played: Rounds, before: Mapping[str, Array], rounds: int) -> Rounds:
    """Return rounds cut or filled up to `rounds`, with the metrics before the first in front.

    Where all repetitions stopped early, what follows is nothing: zeros, and metrics that stay as they were.
    """

    def fit(values: Array) -> Array:
        missing = max(0, rounds - values.shape[1])
        return np.pad(values[:, :rounds], [(0, 0), (0, missing)] + [(0, 0)] * (values.ndim - 2))

    def fit_metric(first: Array, values: Array) -> Array:
        missing = max(0, rounds - values.shape[1])
        return np.pad(np.concatenate([first[:, None], values[:, :rounds]], axis=1), [(0, 0), (0, missing)], mode="edge")

    metrics = {name: fit_metric(before[name], values) for name, values in played.metrics.items()}
    return jax.tree.map(fit, played._replace(metrics={}))._replace(metrics=metrics)


def _per_agent(values: Array, agents: int) -> Array:
    return np.repeat(values.ravel(), agents)
