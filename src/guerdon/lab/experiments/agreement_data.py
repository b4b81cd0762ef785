"""Reports of a training in many kinds of data: of members that cooperate, and of one that may use another size.

A training follows the reports of members that cooperate. What the one that deviates sends does not change it, so all
sizes are compared on the same others. Everything is in NumPy, with repetitions along the first axis.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from guerdon.lab.problems.heart import load_survey, prepare

SURVEYS: dict[str, float | None] = {"survey": None, "survey, 1 %": 0.01, "survey, equal": 0.5}
STEP = 0.1
POSITIVES, OTHERS = 2_000, 2_000  # rows by which σ² is computed: so many of either kind, weighted
FIT = 400  # steps of full-batch descent to the fitted model, at a rate that suits standardised columns
STAGES = {"early": 0.0, "middle": 0.1, "late": 1.0}  # how much of that a training starts with
ROWS = 20  # times the request: what a member owns where rows are used again
SPREAD = 0.25  # standard deviation of the logarithm of noise levels that differ


class World(Protocol):
    """Where gradients come from."""

    def start(self, repetitions: int, rng: Any) -> Any:
        """Return the models before the first round, (repetitions, dim)."""
        ...

    def variance(self, models: Any) -> Any:
        """Return σ² at each model, of one sample."""
        ...

    def draw(self, models: Any, member: int, turn: int, size: int, rng: Any) -> Any:
        """Return the mean gradient over `size` samples of a member in a round, (repetitions, dim)."""
        ...

    @property
    def step(self) -> float:
        """How far the training follows a mean gradient."""
        ...


@dataclass(frozen=True)
class Played:
    """The squared distances of all pairs in a training, and what the server's own samples say.

    `others` are (repetitions, rounds, members, members) with the first member honest, `own` its distances to the others
    by size, (repetitions, rounds, members − 1). `variance` is σ², (repetitions, rounds).
    """

    others: Any
    own: Mapping[int, Any]
    witness: Any  # (repetitions, rounds, members), to the mean of the server's own samples; first member honest
    own_witness: Mapping[int, Any]
    witness_variance: Any  # σ̂² from these, (repetitions, rounds)
    variance: Any


def play(
    world: World, members: int, request: int, sizes: Sequence[int], shape: tuple[int, int], batches: int, seed: int
) -> Played:
    """Play a training of `shape` (repetitions, rounds) in which the server draws `batches` minibatches itself."""
    rng, (repetitions, rounds) = np.random.default_rng(seed), shape
    models = world.start(repetitions, rng)
    parts: list[list[Any]] = [[], [], [], []]
    own: dict[int, list[Any]] = {size: [] for size in sizes}
    own_witness: dict[int, list[Any]] = {size: [] for size in sizes}
    for turn in range(rounds):
        sent = np.stack([world.draw(models, k, turn, request, rng) for k in range(members)], axis=1)
        drawn = np.stack([world.draw(models, members + b, turn, request, rng) for b in range(batches)], axis=1)
        middle = drawn.mean(axis=1)
        spread = request * np.sum((drawn - middle[:, None]) ** 2, axis=(1, 2)) / (batches - 1)
        for part, value in zip(parts, (_apart(sent), _far(sent, middle), spread, world.variance(models)), strict=True):
            part.append(value)
        for size in sizes:
            mine = sent[:, 0] if size == request else world.draw(models, 0, turn, size, rng)
            own[size].append(np.sum((sent[:, 1:] - mine[:, None]) ** 2, axis=2))
            own_witness[size].append(np.sum((mine - middle) ** 2, axis=1))
        models = models - world.step * sent.mean(axis=1)
    others, witness, spreads, variance = (np.stack(part, axis=1) for part in parts)
    stacked = ({size: np.stack(found, axis=1) for size, found in each.items()} for each in (own, own_witness))
    mine, mine_witness = stacked
    return Played(others, mine, witness, mine_witness, spreads, variance)


def _apart(sent: Any) -> Any:
    return np.stack([np.sum((sent - sent[:, k, None]) ** 2, axis=2) for k in range(sent.shape[1])], axis=1)


def _far(sent: Any, middle: Any) -> Any:
    return np.sum((sent - middle[:, None]) ** 2, axis=2)


@cache
def _survey(positives: float | None) -> Any:
    found = prepare(load_survey(), positives=positives)
    return found.train_features, found.train_labels, found.label


@cache
def _weighted_rows(positives: float | None) -> Any:
    """Return features, labels and weights of some rows: many of those with the disease, however rare they are."""
    features, labels, _ = _survey(positives)
    rng, chosen, weights = np.random.default_rng(1), list[Any](), list[Any]()
    for kind, most in ((1, POSITIVES), (0, OTHERS)):
        rows = np.flatnonzero(labels == kind)
        chosen.append(rng.choice(rows, min(most, len(rows)), replace=False))
        weights.append(np.full(len(chosen[-1]), len(rows) / len(labels) / len(chosen[-1]), np.float32))
    rows = np.concatenate(chosen)
    return features[rows], labels[rows], np.concatenate(weights)


@cache
def _fitted(positives: float | None, share: float) -> Any:
    """Return the model after a share of the descent to the best one."""
    some, own, weights = _weighted_rows(positives)
    model = np.zeros(some.shape[1], np.float32)
    for _ in range(round(share * FIT)):
        model = model - 0.5 * some.T @ (weights * (_sigmoid(some @ model) - own))
    return model


def _sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


@dataclass(frozen=True)
class SurveyWorld:
    """Logistic regression on the survey, with a given share of positives; samples are drawn afresh."""

    positives: float | None
    stage: str
    step: float = STEP

    def start(self, repetitions: int, rng: Any) -> Any:
        del rng
        return np.tile(_fitted(self.positives, STAGES[self.stage]), (repetitions, 1))

    def variance(self, models: Any) -> Any:
        some, labels, weights = _weighted_rows(self.positives)
        error = _sigmoid(some @ models.T) - labels[:, None]
        mean = some.T @ (weights[:, None] * error)
        square = (weights * np.sum(some**2, axis=1)) @ error**2
        return square - np.sum(mean**2, axis=0)

    def draw(self, models: Any, member: int, turn: int, size: int, rng: Any) -> Any:
        del member, turn
        features, labels, _ = _survey(self.positives)
        rows = rng.integers(0, len(features), (len(models), size))
        some = features[rows]
        error = _sigmoid(np.einsum("rsd,rd->rs", some, models)) - labels[rows]
        return np.einsum("rs,rsd->rd", error, some) / size


NOISES: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "χ²": lambda rng, shape: (rng.standard_normal(shape) ** 2 - 1) / np.sqrt(2),
    "t₅": lambda rng, shape: rng.standard_t(5, shape) / np.sqrt(5 / 3),
}


@dataclass(frozen=True)
class LinearWorld:
    """The paper's linear regression, with labels whose noise has one of several distributions of variance 1."""

    dim: int
    noise: str
    stage: str
    crowd: int  # samples that a round has in all, for the paper's step
    levels: bool = False  # members whose noise levels differ, each drawn once
    rows: int = 0  # that each member owns and uses again; 0: samples are fresh

    @property
    def step(self) -> float:
        return 0.5 / (1 + (self.dim + 1) / self.crowd)

    def start(self, repetitions: int, rng: Any) -> Any:
        share = {"early": 1.0, "middle": 0.3, "late": 0.05}[self.stage]
        return share * rng.standard_normal((repetitions, self.dim)).astype(np.float32)

    def variance(self, models: Any) -> Any:
        return 4 * ((self.dim + 1) * np.sum(models**2, axis=1) + self.dim)

    def draw(self, models: Any, member: int, turn: int, size: int, rng: Any) -> Any:
        if self.rows:
            return self._of_rows(models, member, turn, size)
        found = self._fresh(models, size, rng)
        if not self.levels:
            return found
        # The noise of a member around the mean gradient is this much larger or smaller, in every round.
        level = np.exp(SPREAD * np.random.default_rng([7, member]).standard_normal((len(models), 1)))
        return 2 * models + level * (found - 2 * models)

    def _fresh(self, models: Any, size: int, rng: Any) -> Any:
        """Return minibatch gradients of fresh samples, at a cost of size + dim numbers (the sampler of THEORY §5)."""
        length = np.linalg.norm(models, axis=1, keepdims=True)
        along = models / np.where(length > 0, length, 1.0)
        features = rng.standard_normal((len(models), size), dtype=np.float32)
        error = length * features - NOISES[self.noise](rng, features.shape)
        across = rng.standard_normal(models.shape, dtype=np.float32)
        across = across - np.sum(across * along, axis=1, keepdims=True) * along
        found = np.sum(features * error, axis=1, keepdims=True) * along
        return 2 / size * (found + np.linalg.norm(error, axis=1, keepdims=True) * across)

    def _of_rows(self, models: Any, member: int, turn: int, size: int) -> Any:
        """Return minibatch gradients of rows that a member owns: each once, and then from the first again."""
        own = np.random.default_rng([member, len(models), turn % max(1, self.rows // size)])
        features = own.standard_normal((len(models), size, self.dim), dtype=np.float32)
        error = np.einsum("rsd,rd->rs", features, models) - NOISES[self.noise](own, features.shape[:2])
        return 2 * np.einsum("rs,rsd->rd", error, features) / size


def world_of(data: str, dim: int, stage: str, members: int, request: int) -> World:
    """Return where the gradients of a cell come from."""
    if data in SURVEYS:
        return SurveyWorld(SURVEYS[data], stage)
    crowd = members * request
    if data == "rows again":
        return LinearWorld(dim, "t₅", stage, crowd, rows=ROWS * request)
    if data == "noise differs":
        return LinearWorld(dim, "normal", stage, crowd, levels=True)
    return LinearWorld(dim, data, stage, crowd)


def survey_label() -> str:
    """Return which survey is used."""
    return _survey(None)[2]
