"""Reports of a training in many kinds of data: of members that cooperate, and of one that may use another size.

A training follows the reports of members that cooperate. What the one that deviates sends does not change it, so all
sizes are compared on the same others. They also share samples: 2ν are drawn for the member, in a circle, and a report
is made of so many that follow each other, from each on. So all sizes have 2ν reports, and the same loud samples.
Everything is in NumPy, with repetitions along the first axis.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from guerdon.lab.problems.heart import load_survey, prepare

SURVEYS: dict[str, float | None] = {"survey": None, "survey, 1 %": 0.01, "survey, equal": 0.5}
STEP = 0.1
POSITIVES, OTHERS = 2_000, 2_000  # rows by which σ² is computed: so many of either kind, weighted
FIT = 400  # steps of full-batch descent to the fitted model, at a rate that suits standardised columns
STAGES = {"early": 0.0, "middle": 0.1, "late": 1.0}  # how much of that a training starts with
KNOWN = 100  # repetitions in which σ² is computed
PASS = 20  # rounds after which a member comes to its first rows again, where rows are used again
SPREAD = 0.25  # standard deviation of the logarithm of noise levels that differ


class Cell(NamedTuple):
    """What is played."""

    data: str
    members: int
    request: int
    cost: str
    stage: str
    dim: int

    @property
    def words(self) -> str:
        dim = "" if self.data in SURVEYS else f", d = {self.dim}"
        return f"{self.data}{dim}, K = {self.members}, ν = {self.request}, {self.cost}, {self.stage}"


class World(Protocol):
    """Where gradients come from."""

    def start(self, repetitions: int, rng: Any) -> Any:
        """Return the models before the first round, (repetitions, dim)."""
        ...

    def variance(self, models: Any) -> Any:
        """Return σ² at each model, of one sample."""
        ...

    def draw(self, models: Any, member: int, turn: int, size: int, rng: Any, copies: int = 1) -> Any:
        """Return the mean gradient over `size` samples of a member in a round, (repetitions · copies, dim).

        `copies`: so many models in a row are those of one repetition.
        """
        ...

    @property
    def step(self) -> float:
        """How far the training follows a mean gradient."""
        ...

    @property
    def alike(self) -> bool:
        """Whether samples are fresh and all members draw from the same."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether samples are used once."""
        ...


@dataclass(frozen=True)
class Played:
    """The squared distances of all pairs in a training, and what the server's own samples say.

    `others` are (repetitions, rounds, members, members) with the first member honest, `own` the distances to the others
    of each report that it could send, by size: (repetitions, rounds, reports, members − 1). It sends the first of them.
    `variance` is σ² in the first `KNOWN` repetitions, (repetitions, rounds): it takes more work than all reports.
    """

    others: Any
    own: Mapping[int, Any]
    own_witness: Mapping[int, Any]  # (repetitions, rounds, reports), to the mean of the server's own samples
    witness_variance: Any  # σ̂² from these, (repetitions, rounds)
    variance: Any


def play(
    world: World, members: int, request: int, sizes: Sequence[int], shape: tuple[int, int], batches: int, seed: int
) -> Played:
    """Play a training of `shape` (repetitions, rounds) in which the server draws `batches` minibatches itself."""
    rng, (repetitions, rounds) = np.random.default_rng(seed), shape
    models = world.start(repetitions, rng)
    parts: list[list[Any]] = [[], [], []]
    own: dict[int, list[Any]] = {size: [] for size in sizes}
    own_witness: dict[int, list[Any]] = {size: [] for size in sizes}
    for turn in range(rounds):
        reports = _reports(world, models, turn, request, sizes, rng)
        rest = [world.draw(models, k, turn, request, rng) for k in range(1, members)]
        sent = np.stack([reports[request][:, 0], *rest], axis=1)
        drawn = np.stack([world.draw(models, members + b, turn, request, rng) for b in range(batches)], axis=1)
        middle = drawn.mean(axis=1)
        spread = request * np.sum((drawn - middle[:, None]) ** 2, axis=(1, 2)) / (batches - 1)
        for part, value in zip(parts, (apart(sent, sent), spread, world.variance(models[:KNOWN])), strict=True):
            part.append(value)
        for size in sizes:
            own[size].append(apart(reports[size], sent[:, 1:]))
            own_witness[size].append(apart(reports[size], middle[:, None])[..., 0])
        models = models - world.step * sent.mean(axis=1)
    others, spreads, variance = (np.stack(part, axis=1) for part in parts)
    alone, to_witness = ({size: np.stack(found, axis=1) for size, found in each.items()} for each in (own, own_witness))
    return Played(others, alone, to_witness, spreads, variance)


def _reports(world: World, models: Any, turn: int, request: int, sizes: Sequence[int], rng: Any) -> dict[int, Any]:
    """Return the reports that the first member could send, by size: (repetitions, reports, dim)."""
    if not world.fresh:
        return {size: world.draw(models, 0, turn, size, rng)[:, None] for size in sizes}
    count, (repetitions, dim) = 2 * request, models.shape
    samples = world.draw(np.repeat(models, count, axis=0), 0, turn, 1, rng, count).reshape(repetitions, count, dim)
    sums = np.cumsum(np.concatenate([0 * samples[:, :1], samples, samples], axis=1), axis=1)
    return {size: (sums[:, size : size + count] - sums[:, :count]) / size for size in sizes}


def apart(some: Any, others: Any) -> Any:
    """Return the squared distances of (…, a, dim) from (…, b, dim), as (…, a, b)."""
    squares = [np.einsum("...ad,...ad->...a", each, each) for each in (some, others)]
    found = squares[0][..., :, None] + squares[1][..., None, :] - 2 * some @ np.swapaxes(others, -1, -2)
    return np.maximum(found, 0.0)


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
    return features[rows], labels[rows].astype(np.float32), np.concatenate(weights)


@cache
def _squares(positives: float | None) -> Any:
    return np.sum(_weighted_rows(positives)[0] ** 2, axis=1)


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
    alike: bool = True
    fresh: bool = True

    def start(self, repetitions: int, rng: Any) -> Any:
        del rng
        return np.tile(_fitted(self.positives, STAGES[self.stage]), (repetitions, 1))

    def variance(self, models: Any) -> Any:
        some, labels, weights = _weighted_rows(self.positives)
        error = _sigmoid(some @ models.T) - labels[:, None]
        mean = some.T @ (weights[:, None] * error)
        square = (weights * _squares(self.positives)) @ error**2
        return square - np.sum(mean**2, axis=0)

    def draw(self, models: Any, member: int, turn: int, size: int, rng: Any, copies: int = 1) -> Any:
        del member, turn, copies
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
    rows: int = 0  # that each member owns for a round of a pass, and uses the first of; 0: samples are fresh

    @property
    def alike(self) -> bool:
        return not (self.levels or self.rows)

    @property
    def fresh(self) -> bool:
        return not self.rows

    @property
    def step(self) -> float:
        return 0.5 / (1 + (self.dim + 1) / self.crowd)

    def start(self, repetitions: int, rng: Any) -> Any:
        share = {"early": 1.0, "middle": 0.3, "late": 0.05}[self.stage]
        return share * rng.standard_normal((repetitions, self.dim)).astype(np.float32)

    def variance(self, models: Any) -> Any:
        return 4 * ((self.dim + 1) * np.sum(models**2, axis=1) + self.dim)

    def draw(self, models: Any, member: int, turn: int, size: int, rng: Any, copies: int = 1) -> Any:
        if self.rows:
            return self._of_rows(models, member, turn, size)
        found = self._fresh(models, size, rng)
        if not self.levels:
            return found
        # The noise of a member around the mean gradient is this much larger or smaller, in every round.
        levels = np.random.default_rng([7, member, self.crowd, self.dim]).standard_normal(len(models) // copies)
        level = np.exp(SPREAD * np.repeat(levels, copies))[:, None]
        return 2 * models + level * (found - 2 * models)

    def _fresh(self, models: Any, size: int, rng: Any) -> Any:
        """Return minibatch gradients of fresh samples, of size + dim numbers, by the exact sampler."""
        length = np.linalg.norm(models, axis=1, keepdims=True)
        along = models / np.where(length > 0, length, 1.0)
        features = rng.standard_normal((len(models), size), dtype=np.float32)
        error = length * features - NOISES[self.noise](rng, features.shape)
        across = rng.standard_normal(models.shape, dtype=np.float32)
        across = across - np.sum(across * along, axis=1, keepdims=True) * along
        found = np.sum(features * error, axis=1, keepdims=True) * along
        return 2 / size * (found + np.linalg.norm(error, axis=1, keepdims=True) * across)

    def _of_rows(self, models: Any, member: int, turn: int, size: int) -> Any:
        """Return minibatch gradients of rows that a member owns: the same ones in every pass.

        A larger size has all rows of a smaller one, so that sizes differ by little else.
        """
        if size > self.rows:
            raise ValueError(f"`size` must be at most the rows of a round, {self.rows}, got {size}")
        own, noise = (np.random.default_rng([member, len(models), turn % PASS, kind]) for kind in (0, 1))
        features = own.standard_normal((size, len(models), self.dim), dtype=np.float32)
        error = np.einsum("srd,rd->sr", features, models) - NOISES[self.noise](noise, features.shape[:2])
        return 2 * np.einsum("sr,srd->rd", error, features) / size


def world_of(cell: Cell) -> World:
    """Return where the gradients of a cell come from."""
    data, dim, stage = cell.data, cell.dim, cell.stage
    if data in SURVEYS:
        return SurveyWorld(SURVEYS[data], stage)
    crowd = cell.members * cell.request
    if data == "rows again":
        return LinearWorld(dim, "t₅", stage, crowd, rows=2 * cell.request)
    if data == "noise differs":
        return LinearWorld(dim, "normal", stage, crowd, levels=True)
    return LinearWorld(dim, data, stage, crowd)


def survey_label() -> str:
    """Return which survey is used."""
    return _survey(None)[2]
