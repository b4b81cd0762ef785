"""Local epochs: what pay by models says about work, when a node takes several steps before it sends its model.

Nodes train as under FedAvg: a step for every minibatch of 4 samples, so fewer samples are fewer steps, as in any data
loader. One of ten does something else than the others. Measured here: what it gains or loses (pay minus cost, against
honest work) under output agreement, information pay, and information and steady pay with a dither, on three problems:
logistic regression on the heart survey (the synthetic one unless GUERDON_HEART_DATA names the real file), softmax
regression and a small convolutional network on made-up images of ten kinds.

    python -m benchmarks.local_epochs [repetitions]
"""

# JAX's transformations forget the types of what they are given.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

import sys
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guerdon import AffineCost, FixedRequest, InformationPay, OutputAgreement, SteadyPay
from guerdon.arrays import Array
from guerdon.lab._trees import register
from guerdon.lab.agents import Portion, Reporting, echo, scale, zero
from guerdon.lab.problems import from_loss, logistic_regression
from guerdon.lab.problems.federation import LocalTraining, local_training
from guerdon.lab.problems.heart import load_survey, prepare
from guerdon.lab.simulation import simulate
from guerdon.statistical.dithers import Dither

AGENTS, REQUEST, MINIBATCH, RATE, ROUNDS = 10, 32, 4, 0.1, 120
COST = AffineCost(1, 1)
HONEST = scale(1.0)
Setting = tuple[float | None, bool]  # how long the dither is, and whether all agents are said to be alike
PLAIN: Setting = (None, False)
COLUMNS: dict[str, Setting] = {
    "information pay": PLAIN,
    "with a dither of 2": (2.0, False),
    "of 4": (4.0, False),
    "of 4, `alike`": (4.0, True),
}
DEVIATIONS: dict[str, Reporting] = {
    "as asked": HONEST,
    "half the work: fewer steps": scale(1.0, Portion(0.5)),
    "half the work: smaller minibatches": scale(1.0, Portion(0.5)),
    "no work: the model as it was sent": zero(),
    "no work: the last mean move again": echo(),
    "its move times 1.5": scale(1.5),
    "its move times 2": scale(2.0),
    "twice the work": scale(1.0, Portion(2.0)),
}


@register
@dataclass(frozen=True)
class SameSteps(LocalTraining):
    """Agents that always take as many steps as they are asked to, with fewer samples in each if they use fewer."""

    def local_gradient(self, model: Array, agent: Array, batch_size: Array, key: Array) -> Array:
        """Return the sum of the gradients on the way."""
        steps = REQUEST // MINIBATCH
        problem = LocalTraining(_Smaller(self.problem, batch_size // steps), self.rate, REQUEST)
        return problem.local_gradient(model, agent, jnp.asarray(REQUEST), key)


@dataclass(frozen=True)
class _Smaller:
    problem: Any
    size: Array
    max_batch: int = MINIBATCH

    def gradient(self, model: Array, batch_size: Array, key: Array) -> Array:
        return self.problem.gradient(model, jnp.minimum(batch_size, self.size), key)


def survey() -> Any:
    """Return logistic regression on the survey, 38 numbers."""
    found = prepare(load_survey())
    kept = found.validation_features[:500], found.validation_labels[:500]
    return logistic_regression(found.train_features, found.train_labels, *kept, max_batch=MINIBATCH)


def images(rows: int = 2000, seed: int = 0) -> tuple[Array, Array]:
    """Return images of 8 by 8, each one of ten smooth patterns and noise, and which."""
    rng = np.random.default_rng(seed)
    patterns = np.kron(rng.random((10, 4, 4)), np.ones((2, 2)))
    kinds = rng.integers(0, 10, rows)
    shown = np.clip(patterns[kinds] + 0.4 * rng.normal(size=(rows, 8, 8)), 0, 1)
    return jnp.asarray(shown, jnp.float32), jnp.asarray(kinds)


def classifier(network: Any, start: Any) -> Any:
    """Return the problem of telling the images apart."""
    shown, kinds = images()

    def loss(weights: Any, example: Any) -> Array:
        return -jax.nn.log_softmax(network(weights, example[0]))[example[1]]

    def metrics(weights: Any) -> dict[str, Array]:
        found = jax.vmap(lambda image: jnp.argmax(network(weights, image)))(shown[:300])
        return {"accuracy": jnp.mean(found == kinds[:300])}

    return from_loss(loss, (shown, kinds), start, metrics, MINIBATCH)


def softmax() -> Any:
    """Return softmax regression on the images, 650 numbers."""
    return classifier(
        lambda w, image: image.reshape(-1) @ w["w"] + w["b"], lambda _: {"w": jnp.zeros((64, 10)), "b": jnp.zeros(10)}
    )


def network() -> Any:
    """Return a network with four filters of 3 by 3 on the images, 690 numbers."""

    def start(key: Array) -> Any:
        filters, last = jax.random.normal(key, (4, 1, 3, 3)) / 3, jax.random.normal(key, (64, 10)) / 8
        return {"filters": filters, "bias": jnp.zeros((4, 1, 1)), "w": last, "b": jnp.zeros(10)}

    def apply(w: Any, image: Array) -> Array:
        seen = jax.lax.conv_general_dilated(image[None, None], w["filters"], (2, 2), "SAME")[0]
        return jax.nn.relu(seen + w["bias"]).reshape(-1) @ w["w"] + w["b"]

    return classifier(apply, start)


PROBLEMS = {"logistic regression, survey": survey, "softmax regression, images": softmax, "network, images": network}


def gains(problem: Any, name: str, setting: Setting, repetitions: int) -> tuple[dict[str, str], float, float]:
    """Return the mean gain and its s.e. under each rule, honest pay's s.d. in a round, and the accuracy reached."""
    trained = local_training(problem, RATE, 2 * REQUEST)
    if "smaller" in name:
        trained = SameSteps(problem, RATE, 2 * REQUEST)
    length, alike = setting
    rules = {
        "information": InformationPay(COST), "agreement": OutputAgreement(COST), "steady": SteadyPay(COST, ROUNDS),
    }  # fmt: skip
    history = simulate(
        trained, [DEVIATIONS[name], *[HONEST] * (AGENTS - 1)], rules, FixedRequest(REQUEST, RATE), ROUNDS, repetitions,
        seed=1, dither=None if length is None else Dither(length), alike=alike, sends="models",
    )  # fmt: skip
    found = {rule: np.asarray(paid)[:, :, 0].mean(axis=1) for rule, paid in history.utilities.items()}
    cells = {rule: f"{own.mean():+.1f} ({own.std() / repetitions**0.5:.1f})" for rule, own in found.items()}
    spread = float(np.std(history.rewards["information"][:, :, 1]))
    return cells, spread, float(np.mean(history.metrics["accuracy"][:, -20:]))


def main(repetitions: int = 250) -> None:
    """Print a table for every problem."""
    print(f"Gain over honest work in a round (s.e.): {AGENTS} agents, {REQUEST} samples asked for, cost 1 + s,")
    print(f"minibatches of {MINIBATCH}, rate {RATE:g}, {ROUNDS} rounds, {repetitions} repetitions")
    for title, build in PROBLEMS.items():
        problem = build()
        columns = ["output agreement", *COLUMNS, "steady pay, dither of 4"]
        print(f"\n| {title} | {' | '.join(columns)} |\n" + "|---" * (len(columns) + 1) + "|")
        for name in DEVIATIONS:
            found = {setting: gains(problem, name, setting, repetitions) for setting in COLUMNS.values()}
            cells = [found[PLAIN][0]["agreement"], *(cells["information"] for cells, _, _ in found.values())]
            cells.append(found[COLUMNS["of 4"]][0]["steady"])
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
            if name == "as asked":
                reached = [f"{spread:.0f}, accuracy {accuracy:.3f}" for _, spread, accuracy in found.values()]
                print(f"| standard deviation of honest pay | | {' | '.join(reached)} | |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
