"""Members with different data, on handwritten digits: what `guerdon reproduce federations` measures on the survey.

Softmax regression on scikit-learn's 1,797 digits (`pip install scikit-learn`; the data come with it), ten agents. An
accelerator is used if JAX finds one; on two cores 40 repetitions take about half an hour.

    python -m benchmarks.digits [REPETITIONS]
"""

import sys
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guerdon.lab.experiments.federations import BEHAVIOURS, FEDAVG, MINIBATCH, REQUEST, STEP, play, unpaid_accuracy
from guerdon.lab.experiments.paper import AGENTS
from guerdon.lab.problems import Problem, from_loss, splits
from guerdon.lab.problems.federation import federation, local_training

TRAINING = 1440  # rows; the rest measure accuracy


def load() -> tuple[Any, Any]:
    """Return pixels with an intercept, and the digit, in random order."""
    found: Any = import_module("sklearn.datasets").load_digits()
    pixels, digits = np.asarray(found.data, dtype=np.float32), np.asarray(found.target, dtype=np.int32)
    order = np.random.default_rng(0).permutation(len(digits))
    return np.hstack([np.ones((len(order), 1), np.float32), pixels / 16])[order], digits[order]


def softmax_regression(features: Any, digits: Any, max_batch: int) -> Problem:
    """Return the problem, with accuracy on the rows that are not for training."""
    tested, truth = jnp.asarray(features[TRAINING:]), jnp.asarray(digits[TRAINING:])

    def loss(weights: Any, example: Any) -> Any:
        return -jax.nn.log_softmax(example[0] @ weights)[example[1]]

    def score(weights: Any) -> Any:
        return {"accuracy": jnp.mean(jnp.argmax(tested @ weights, axis=1) == truth)}

    def begin(key: Any) -> Any:
        del key
        return jnp.zeros((features.shape[1], 10))

    return from_loss(loss, (features[:TRAINING], digits[:TRAINING]), begin, score, max_batch)


def federations() -> dict[str, Problem]:
    """Return the digits, divided among ten agents."""
    features, digits = load()
    whole, labels = softmax_regression(features, digits, REQUEST), digits[:TRAINING]
    rate = STEP / (REQUEST // MINIBATCH)
    return {
        "alike": whole,
        "pools of 140 rows": federation(whole, splits.pools(TRAINING, AGENTS, 140)),
        "Dirichlet(0.5) labels": federation(whole, splits.by_dirichlet(labels, AGENTS, 0.5, seed=1)),
        "two shards each": federation(whole, splits.shards(labels, AGENTS, 2)),
        FEDAVG: local_training(softmax_regression(features, digits, MINIBATCH), rate, REQUEST),
    }


def main(repetitions: int = 40) -> None:
    """Print, for every federation and behaviour, what the first agent earns, and the worst and best of all."""
    print("| federation | behaviour | rule | profit (s.e.) | worst and best agent | accuracy |")
    print("|---" * 6 + "|")
    for name, problem in federations().items():
        for behaviour in BEHAVIOURS:
            found = play(name, problem, behaviour, repetitions, seed=0)
            for rule, profits in found.profits.items():
                own, all_of_them = profits[:, 0], profits.mean(axis=0)
                error = own.std(ddof=1) / repetitions**0.5
                print(
                    f"| {name} | {behaviour} | {rule} | {own.mean():+.1f} ({error:.1f}) | {all_of_them.min():+.1f} … "
                    f"{all_of_them.max():+.1f} | {found.accuracy.mean():.3f} |"
                )
        if name != FEDAVG:
            print(f"| {name} | flat pay | – | – | – | {unpaid_accuracy(problem, STEP, repetitions, 0).mean():.3f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
