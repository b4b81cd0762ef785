"""Against the field, on its workload: logistic regression on an MNIST-shaped problem, in client-rounds a second.

100 rounds of 10 clients, each of which draws 60 rows and takes six steps on minibatches of 10; their models are
averaged. Four programs do this, on the same model and data, in one run: a loop in NumPy, the same with each round
compiled by JAX, Guerdon's `simulate` (which also pays every client and measures accuracy in every round), and Flower's
simulation (which also runs every client as an app in a process of Ray's, and hands it messages). Flower runs in a
network namespace of its own, so that nothing leaves the machine: that needs root and Linux, and is left out elsewhere.

    python -m benchmarks field
"""

# JAX's transformations forget the types of their arguments.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.measure import Promise

ROUNDS, CLIENTS, ROWS, BATCH, RATE = 100, 10, 60, 10, 0.03  # rows: what a client uses in a round
TRAINING, TEST, KINDS, PIXELS = 10_000, 2_000, 10, 784
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
# In a network namespace: no way out but loopback. Imported, because Ray's processes import what they run by its name.
PROGRAM = "import sys, pathlib, benchmarks.field as field; field.flower_run(pathlib.Path(sys.argv[1]))"
ALONE = 'ip link set lo up && exec "$0" -c "$1" "$2"'
LEAST_RATIO = 20.0  # promised: Guerdon's client-rounds against those of Flower's simulation, without its start


@functools.cache
def images() -> tuple[Any, Any]:
    """Return made-up images with an intercept, training rows first, and which of ten kinds each is."""
    rng = np.random.default_rng(0)
    patterns = np.kron(rng.random((KINDS, 7, 7)), np.ones((4, 4))).reshape(KINDS, PIXELS)
    kinds = rng.integers(0, KINDS, TRAINING + TEST)
    shown = np.clip(0.5 + (patterns[kinds] - 0.5) / 4 + 0.5 * rng.normal(size=(len(kinds), PIXELS)), 0, 1)
    return np.hstack([np.ones((len(kinds), 1)), shown]).astype(np.float32), kinds


def trained(weights: Any, rng: np.random.Generator) -> Any:
    """Return what a client makes of the weights."""
    features, kinds = images()
    for rows in rng.integers(0, TRAINING, (ROWS // BATCH, BATCH)):
        scores = np.exp(features[rows] @ weights)
        scores /= scores.sum(axis=1, keepdims=True)
        scores[np.arange(BATCH), kinds[rows]] -= 1
        weights = weights - RATE / BATCH * features[rows].T @ scores
    return weights


def accuracy(weights: Any) -> float:
    """Return the share of the test rows that are told right."""
    features, kinds = images()
    return float(np.mean(np.argmax(features[TRAINING:] @ np.asarray(weights), axis=1) == kinds[TRAINING:]))


def start() -> Any:
    """Return the weights that all begin with."""
    return np.zeros((PIXELS + 1, KINDS), np.float32)


def numpy_loop() -> Any:
    """Train as a researcher would write it."""
    rng, weights = np.random.default_rng(1), start()
    for _ in range(ROUNDS):
        weights = np.mean([trained(weights, rng) for _ in range(CLIENTS)], axis=0)
    return weights


def jax_loop() -> Any:
    """Train with one compiled program per round: clients side by side, their steps one after the other."""
    import jax

    weights = jax.numpy.asarray(start())
    for key in jax.random.split(jax.random.key(1), ROUNDS):
        weights = _compiled_round()(weights, key)
    return weights


@functools.cache
def _compiled_round() -> Callable[[Any, Any], Any]:
    import jax
    import jax.numpy as jnp

    features, kinds = (jnp.asarray(part[:TRAINING]) for part in images())

    def loss(weights: Any, rows: Any) -> Any:
        told = jax.nn.log_softmax(features[rows] @ weights)
        return -jnp.mean(told[jnp.arange(BATCH), kinds[rows]])

    def one(weights: Any, key: Any) -> Any:
        batches = jax.random.randint(key, (ROWS // BATCH, BATCH), 0, TRAINING)
        return jax.lax.scan(lambda w, rows: (w - RATE * jax.grad(loss)(w, rows), None), weights, batches)[0]

    def all_of_them(weights: Any, key: Any) -> Any:
        return jnp.mean(jax.vmap(one, (None, 0))(weights, jax.random.split(key, CLIENTS)), axis=0)

    return jax.jit(all_of_them)


def guerdon_run() -> Any:
    """Train, pay every client by output agreement in every round, and return the accuracy at the end."""
    from guerdon import AffineCost, FixedRequest, OutputAgreement
    from guerdon.lab.agents import Cooperative
    from guerdon.lab.simulation import simulate

    agents, rule = [Cooperative()] * CLIENTS, OutputAgreement(AffineCost(1, 1))
    requests = FixedRequest(ROWS, RATE)
    found = simulate(_problem(), agents, rule, requests, ROUNDS, 1, sends="models")
    return found.metrics["accuracy"][:, -1].mean()


@functools.cache
def _problem() -> Any:
    import jax
    import jax.numpy as jnp

    from guerdon.lab.problems import from_loss
    from guerdon.lab.problems.federation import local_training

    features, kinds = (jnp.asarray(part) for part in images())

    def loss(weights: Any, example: Any) -> Any:
        return -jax.nn.log_softmax(example[0] @ weights)[example[1]]

    def score(weights: Any) -> Any:
        return {"accuracy": jnp.mean(jnp.argmax(features[TRAINING:] @ weights, axis=1) == kinds[TRAINING:])}

    data = features[:TRAINING], kinds[:TRAINING]
    return local_training(from_loss(loss, data, lambda _: jnp.asarray(start()), score, BATCH), RATE, ROWS)


def flower_run(out: Path) -> None:
    """Train under Flower's simulation, and write down the time of its rounds and the accuracy."""
    from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        number = str(message.content.config_records["config"]["server-round"])
        rng = np.random.default_rng([int(context.node_config["partition-id"]), int(number)])
        weights = trained(message.content.array_records["arrays"]["w"].numpy(), rng)
        metrics = MetricRecord({"num-examples": ROWS})
        return Message(RecordDict({"arrays": ArrayRecord({"w": Array(weights)}), "metrics": metrics}), reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        ends: list[float] = []

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
            ends.append(time.perf_counter())
            return MetricRecord({"accuracy": accuracy(arrays["w"].numpy()) if number == ROUNDS else 0.0})

        model = ArrayRecord({"w": Array(start())})
        found = strategy.start(grid, model, num_rounds=ROUNDS, evaluate_fn=evaluate)
        # The first round waits for Ray to start its processes.
        seconds = (ends[-1] - ends[1]) * ROUNDS / (ROUNDS - 1)
        out.write_text(json.dumps([seconds, accuracy(found.arrays["w"].numpy())]))

    cores = len(os.sched_getaffinity(0))
    run_simulation(
        server, client, num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": cores}},
    )  # fmt: skip


def run() -> tuple[Table, list[Promise]]:
    """Return the table of measurements, and what was promised."""
    table = Table(title=f"{ROUNDS} rounds × {CLIENTS} clients, logistic regression on {PIXELS} pixels, 10 kinds")
    for heading in ("", "seconds", "client-rounds a second", "accuracy"):
        table.add_column(heading, justify="right" if heading else "left")

    def add(words: str, seconds: float, reached: float) -> float:
        rate = ROUNDS * CLIENTS / seconds
        table.add_row(words, f"{seconds:.2f}", f"{rate:,.0f}", f"{reached:.3f}")
        return rate

    add("a loop in NumPy", *_timed(lambda: accuracy(numpy_loop())))
    add("the same, each round compiled by JAX", *_timed(lambda: accuracy(jax_loop())))
    paid = add("Guerdon: simulate, every client paid", *_timed(guerdon_run))
    found = _flower()
    if found is None:
        table.add_row("Flower's simulation", "left out", "", "")
        return table, []
    whole, seconds, reached = found
    theirs = add("Flower's simulation, its start excluded", seconds, reached)
    add("Flower's simulation, all of it", whole, reached)
    what = "Guerdon's client-rounds, against Flower's simulation"
    return table, [Promise(what, paid / theirs, LEAST_RATIO, "×", least=True)]


def _timed(function: Callable[[], Any]) -> tuple[float, float]:
    """Return the shorter time of two runs after one that compiles, and what they come to."""
    function()
    times: list[float] = []
    reached = 0.0
    for _ in range(2):
        begun = time.perf_counter()
        reached = float(function())
        times.append(time.perf_counter() - begun)
    return min(times), reached


def _flower() -> tuple[float, float, float] | None:
    """Return the time of Flower's whole run and of its rounds, and the accuracy; None where it cannot run."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        begun = time.perf_counter()
        command = ["unshare", "--net", "sh", "-c", ALONE, sys.executable, PROGRAM, str(out)]
        try:
            done = subprocess.run(command, env=os.environ | QUIET, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return None
        whole = time.perf_counter() - begun
        if not out.exists():
            print(f"Flower's simulation was left out: {done.stderr[-2000:]}", file=sys.stderr)
            return None
        seconds, reached = json.loads(out.read_text())
        return whole, seconds, reached
