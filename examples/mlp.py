"""Pay for the training of a small neural network: any JAX loss, any pytree of parameters.

Run it with `python examples/mlp.py`. Ten agents train a two-layer classifier on two interleaved spirals. One of them
uses a quarter of the samples it was asked for, one sends zeros. The table shows what each earns under two payment
rules, and why a rule that pays for agreement is not safe with agents that may send anything.
"""

import jax
import jax.numpy as jnp
import numpy as np

from guerdon import AffineCost, FlatPay, OutputAgreement
from guerdon.lab.agents import Cooperative, Portion, zero
from guerdon.lab.problems import FromLoss, from_loss
from guerdon.lab.simulation import History, simulate
from guerdon.requests import FixedRequest

COST = AffineCost(fixed=1, per_sample=1)


def spirals(count: int = 2_000, seed: int = 0) -> dict[str, np.ndarray]:
    """Return points on two interleaved spirals, with a little noise, and which spiral they are on."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    angle = 3 * np.sqrt(rng.random(count)) * np.pi / 2
    radius = angle / 4 * np.where(label, 1, -1)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1) + 0.05 * rng.normal(size=(count, 2))
    return {"point": points.astype(np.float32), "label": label.astype(np.float32)}


def init(key: jax.Array) -> dict[str, dict[str, jax.Array]]:
    """Return random weights: 2 → 32 → 1."""
    first, second = jax.random.split(key)
    return {
        "hidden": {"weights": 1.5 * jax.random.normal(first, (2, 32)), "bias": jnp.zeros(32)},
        "output": {"weights": jax.random.normal(second, (32,)) / 6, "bias": jnp.zeros(())},
    }


def logit(parameters: dict[str, dict[str, jax.Array]], point: jax.Array) -> jax.Array:
    """Return the score of one point."""
    hidden = jnp.tanh(point @ parameters["hidden"]["weights"] + parameters["hidden"]["bias"])
    return hidden @ parameters["output"]["weights"] + parameters["output"]["bias"]


def loss(parameters: dict[str, dict[str, jax.Array]], example: dict[str, jax.Array]) -> jax.Array:
    """Return the log loss of one example."""
    score = logit(parameters, example["point"])
    return jnp.logaddexp(0.0, score) - example["label"] * score


def spiral_problem() -> FromLoss:
    """Return the problem, with accuracy on fresh points as its metric."""
    fresh = spirals(seed=1)

    def metrics(parameters: dict[str, dict[str, jax.Array]]) -> dict[str, jax.Array]:
        scores = jax.vmap(logit, in_axes=(None, 0))(parameters, jnp.asarray(fresh["point"]))
        return {"accuracy": jnp.mean((scores > 0) == (fresh["label"] > 0.5))}

    return from_loss(loss, spirals(), init, metrics, max_batch=16)


def main(rounds: int = 300, repetitions: int = 20) -> History:
    """Train, and print what each agent earned."""
    agents = [*[Cooperative()] * 8, Portion(0.25), zero()]
    rules = {"agreement": OutputAgreement(COST), "flat": FlatPay(COST)}
    history = simulate(spiral_problem(), agents, rules, FixedRequest(16, 1.0), rounds, repetitions)
    print(f"accuracy {history.metrics['accuracy'][:, 0].mean():.2f} → {history.metrics['accuracy'][:, -1].mean():.2f}")
    print("profit per round   agreement     flat")
    for name, who in (("honest", range(8)), ("a quarter of the work", [8]), ("zeros", [9])):
        earned = [history.utilities[rule][:, :, list(who)].mean() for rule in rules]
        print(f"{name:<22}{earned[0]:>6.2f}  {earned[1]:>7.2f}")
    return history


if __name__ == "__main__":
    main()
