"""The games of the arena: what is learned, by how many agents, and what the server broadcasts.

All rules have the same problem, agents, costs and request, and the same money: h(ν) for an honest round. The server
takes gradients to either side of the model in turn (`guerdon.statistical.dithers`) and predicts them, for every rule
alike.
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.arrays import Array, check_choice, check_positive_integer
from guerdon.costs import AffineCost, Cost
from guerdon.lab._trees import register
from guerdon.lab.problems import Problem, from_loss, linear_regression
from guerdon.lab.problems.federation import federation
from guerdon.lab.problems.heart import load_survey, prepare
from guerdon.lab.problems.splits import by_dirichlet
from guerdon.statistical.dithers import Dither

REQUEST = 16
WITNESS = 8  # minibatches of the server's own, for the rule that has a witness
LEAST_AGENTS = 4
CONCENTRATION = 1.0  # of the labels that different agents have
ROWS, INPUTS, HIDDEN = 4000, 10, 6  # of the network's data and layers
CHECKED = 1000  # rows that the network's accuracy is measured on


@dataclass(frozen=True)
class ArenaSetting:
    """A game: everything but the rule and what the agents do."""

    name: str
    words: str
    problem: Problem
    agents: int
    request: int
    step: float  # per pair of rounds
    dither: Dither
    validation_step: float  # that a validation set judges reports by
    accuracy: Callable[[Any], Any]  # of the problem's first metric, from 0 to 1
    cost: Cost = field(default_factory=lambda: AffineCost(1, 1))
    rounds: int = 100
    survey: str = ""

    @property
    def fair(self) -> float:
        """What an honest round costs."""
        return float(self.cost(self.request))

    @property
    def witness_samples(self) -> int:
        """How many samples of its own a server with a witness has."""
        return WITNESS * self.problem.max_batch


@register
@dataclass(frozen=True)
class StillQuadratic:
    """Loss ½‖θ‖² from `start`, gradients with normal noise of variance `noise` for a single sample."""

    start: Array
    noise: float
    max_batch: int = field(metadata={"static": True})

    def init(self, key: Array) -> Array:
        del key
        return self.start

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        deviation = jnp.sqrt(self.noise / (batch_size * model.shape[0]))
        return model + deviation * jax.random.normal(key, model.shape, model.dtype)

    def population_gradient(self, model: Array) -> Array:
        return model

    def variance(self, model: Array) -> Array:
        return self.noise + 0 * jnp.sum(model)

    def metrics(self, model: Array) -> dict[str, Array]:
        return {"error": jnp.sum(model**2)}

    def validation_loss(self, model: Array) -> Array:
        """Return ½‖θ‖²."""
        return jnp.sum(model**2) / 2


def still(agents: int, different: bool) -> ArenaSetting:
    """Return the game without training: K agents, ν = 8, d = 50 and a noise scale B = 8, the same in every round.

    The model stays where it is, so that the prediction is as good as it can be, and the dither is all that is new.
    """
    _refuse(different, "still")
    dim, scale, request = 50, 8.0, 8
    problem = StillQuadratic(jnp.full(dim, 2**0.5), float(dim), 2 * request)
    words = f"a still model: ν = {request}, B = {scale:g}, d = {dim}"
    dither = Dither((dim / scale) ** 0.5)
    return ArenaSetting("still", words, problem, agents, request, 1e-6, dither, 0.1, lambda metric: 0 * metric)


def linear(agents: int, different: bool) -> ArenaSetting:
    """Return the paper's linear regression, in 20 dimensions; accuracy is the share of the error that is gone."""
    _refuse(different, "linear")
    dim, start = 20, 20.0
    problem = linear_regression(dim, start, 2 * REQUEST)
    return ArenaSetting(
        "linear", f"linear regression, d = {dim}", problem, agents, REQUEST, 0.1, Dither(2.0), 0.1,
        lambda metric: 1 - metric / start,
    )  # fmt: skip


@cache
def _survey() -> Any:
    return prepare(load_survey())


def heart(agents: int, different: bool) -> ArenaSetting:
    """Return logistic regression on the heart survey; different agents differ in how many of their rows are sick."""
    data = _survey()
    problem: Any = data.regression(2 * REQUEST, 2000)
    if different:
        problem = federation(problem, by_dirichlet(data.train_labels, agents, CONCENTRATION))
    return ArenaSetting(
        "heart", f"logistic regression on the {data.label}", problem, agents, REQUEST, 0.4, Dither(3.0), 0.2,
        lambda metric: metric, survey=data.label,
    )  # fmt: skip


def network(agents: int, different: bool) -> ArenaSetting:
    """Return a small network that learns what another one says of random rows."""
    problem: Any = _network()
    if different:
        problem = federation(problem, by_dirichlet(np.asarray(problem.data[1]), agents, CONCENTRATION))
    words = f"a network with {HIDDEN} hidden units"
    return ArenaSetting("network", words, problem, agents, REQUEST, 0.8, Dither(1.5), 0.4, lambda metric: metric)


PROBLEMS = {"linear": linear, "heart": heart, "network": network, "still": still}


def setting_of(problem: str, agents: int = 10, different: bool = False) -> ArenaSetting:
    """Return the game of that name."""
    check_choice("problem", problem, tuple(PROBLEMS))
    check_positive_integer("agents", agents)
    if agents < LEAST_AGENTS:
        raise ValueError(
            f"`agents` must be at least {LEAST_AGENTS}, so that there are others to compare with, got {agents}"
        )
    return PROBLEMS[problem](agents, different)


def _refuse(different: bool, name: str) -> None:
    if different:
        raise ValueError(f"`different` agents need rows of their own: choose heart or network, got {name!r}")


@cache
def _network() -> Any:
    """Return the problem; its data are the same every time."""
    rng = np.random.default_rng(19)
    rows = rng.normal(size=(ROWS, INPUTS)).astype(np.float32)
    hidden = np.tanh(rows @ rng.normal(size=(INPUTS, HIDDEN)))
    labels = (hidden @ rng.normal(size=HIDDEN) > 0).astype(np.float32)
    checked = jnp.asarray(rows[-CHECKED:]), jnp.asarray(labels[-CHECKED:])

    def score(parameters: Any, inputs: Array) -> Array:
        return jnp.tanh(inputs @ parameters["in"] + parameters["bias"]) @ parameters["out"]

    def loss(parameters: Any, example: Any) -> Array:
        value = score(parameters, example[0])
        return jax.nn.softplus(value) - example[1] * value

    def start(key: Array) -> Any:
        first, second = jax.random.split(key)
        inner = jax.random.normal(first, (INPUTS, HIDDEN)) / INPUTS**0.5
        return {"in": inner, "bias": jnp.zeros(HIDDEN), "out": jax.random.normal(second, (HIDDEN,)) / HIDDEN**0.5}

    def metrics(parameters: Any) -> dict[str, Array]:
        return {"accuracy": jnp.mean((score(parameters, checked[0]) > 0) == (checked[1] > 0.5))}

    data = (rows[:-CHECKED], labels[:-CHECKED])
    return from_loss(loss, data, start, metrics, 2 * REQUEST)
