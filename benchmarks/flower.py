"""What pay adds to a round: on a real Flower deployment with TLS and keys, and in the server's own arithmetic.

Ten SuperNodes on this machine train a model of one layer under FedAvg, bare and wrapped in `Paid`, in runs that
take turns. Paid nodes sign what they send. Flower asks for replies every three seconds: times are no finer. So what is
promised is the processor time of all programs together, which decides the rest of a round where they share a machine.
A bare and a paid run after each other are compared, because the machine's own speed drifts; pairs give the error.
"""

import json
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from examples.deployment import deployed
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, Strategy
from rich.table import Table
from tests.flower.grids import MemoryGrid, Node

from benchmarks.measure import Promise
from guerdon import AffineCost, FixedRequest, OutputAgreement
from guerdon.flower import Paid, paid_work
from guerdon.ledger import Ledger
from guerdon.ledger.proof.submissions import read_public_key
from guerdon.statistical.offsets import LARGEST_MODEL
from guerdon.statistical.servers import server_for
from guerdon.terms import Terms

APP = Path(__file__).parent / "flower_app"
NODES = 10
DIMENSIONS = {1_000_000: (10, 3), 10_000_000: (3, 2)}  # how many pairs of runs, and rounds of each
PROMISED = 1_000_000
LARGEST_RATIO = 1.05  # of a paid round to a bare one


def run() -> tuple[Table, list[Promise]]:
    """Measure, and return the table and what was promised."""
    table = Table(title="Flower: FedAvg with 10 nodes, one layer, float32", title_justify="left")
    table.add_column("")
    lines = ["round, bare", "paid", "ratio ± s.e.", "processor time, bare", "paid", "ratio ± s.e."]
    lines += ["peak memory, bare", "paid", "grows by", "allowed", "server's arithmetic, bare → paid"]
    cells: list[list[str]] = [[line] for line in lines]
    promises: list[Promise] = []
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        found = {dimension: deployed_rounds(Path(folder) / str(dimension), dimension) for dimension in DIMENSIONS}
    for dimension, (bare, paid) in found.items():
        grown = mean(paid["peaks"]) - mean(bare["peaks"])
        # Records of every agent, what is taken off, and copies of a checkpoint; of a large model there are none.
        allowed = (7 * 4 if dimension <= LARGEST_MODEL else 4) * dimension * NODES
        own = arithmetic(dimension)
        table.add_column(f"d = {dimension:,}", justify="right")
        shown = [
            *compared(bare["rounds"], paid["rounds"]), *compared(bare["worked"], paid["worked"]),
            *(f"{size / 1e6:.0f} MB" for size in (mean(bare["peaks"]), mean(paid["peaks"]), grown, allowed)),
            f"{own[0]:.3f} s → {own[1]:.3f} s",
        ]  # fmt: skip
        for line, cell in zip(cells, shown, strict=True):
            line.append(cell)
        if dimension == PROMISED:
            what = "processor time of a paid Flower round, against a bare one"
            promises.append(Promise(what, ratio_of(bare["worked"], paid["worked"])[0], LARGEST_RATIO, "×"))
        what = f"memory of the server that pay adds at d = {dimension:,}"
        promises.append(Promise(what, grown / 1e6, allowed / 1e6, "MB"))
    for line in cells:
        table.add_row(*line)
    return table, promises


def compared(bare: list[float], paid: list[float]) -> list[str]:
    """Return both means in seconds, and their ratio with its standard error, as cells."""
    ratio, error = ratio_of(bare, paid)
    return [f"{mean(bare):.2f} s", f"{mean(paid):.2f} s", f"{ratio:.3f} ± {error:.3f}"]


def ratio_of(bare: list[float], paid: list[float]) -> tuple[float, float]:
    """Return the mean ratio of runs after each other, and its standard error."""
    ratios = [late / soon for soon, late in zip(bare, paid, strict=True)]
    return mean(ratios), stdev(ratios) / len(ratios) ** 0.5


def deployed_rounds(folder: Path, dimension: int) -> list[dict[str, list[float]]]:
    """Return mean times and processor times of a run's rounds, and peaks of memory, bare and paid, deployed."""
    names = [f"node{i}" for i in range(NODES)]
    found: list[dict[str, list[float]]] = [{"rounds": [], "worked": [], "peaks": []} for _ in range(2)]
    turns, rounds = DIMENSIONS[dimension]
    with deployed(folder, {name: {"partition-id": i} for i, name in enumerate(names)}) as deployment:
        programs = " ".join(str(process.pid) for process in deployment.processes.values())
        for turn in range(turns):
            database = folder / f"ledger{turn}.db"
            with Ledger(database) as ledger:
                ledger.enrol({name: read_public_key(folder / f"{name}.pub") for name in names})
            for paid, into in enumerate(found):
                told = {"paid": bool(paid), "rounds": rounds, "dimension": dimension}
                told |= {"db": str(database), "programs": programs, "out": str(folder / "result.json")}
                run = deployment.run_app(APP, told)
                if run.wait(900) != "finished:completed":
                    raise RuntimeError(run.log()[-3000:])
                result = json.loads((folder / "result.json").read_text())
                for name, values in into.items():
                    values.append(mean(result[name]))
    return found


def answering(number: int, dimension: int) -> Callable[[Message, Context], Any]:
    """Return a node that sends the same noise each time; where it is paid, it signs it."""
    noise = np.random.default_rng(number).normal(size=dimension).astype(np.float32)
    arrays, mod = ArrayRecord({"w": Array(noise)}), paid_work()

    def train(message: Message, context: Context) -> Message:
        del context
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return lambda message, context: mod(message, context, train)


def arithmetic(dimension: int) -> tuple[float, float]:
    """Return what the server itself computes in a round, bare and paid (with a ledger on disk), without a network."""
    nodes = [Node(100 + i, answering(i, dimension)) for i in range(NODES)]
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "guerdon.db") as ledger:
        ledger.enrol({f"n{i}": node.der for i, node in enumerate(nodes)})
        paid = Paid(
            FedAvg(fraction_evaluate=0.0),
            server_for(OutputAgreement(AffineCost(1, 1)), FixedRequest(8, 0.1)),
            Terms(one_step=True),
            run="bench",
            ledger=ledger,
        )
        return server_time(FedAvg(), nodes, dimension), server_time(paid, nodes, dimension)


def server_time(strategy: Strategy, nodes: list[Node], dimension: int) -> float:
    """Return the shortest time of several rounds that a strategy spends itself, before and after the nodes' work."""
    grid, model = MemoryGrid(nodes), ArrayRecord({"w": Array(np.zeros(dimension, np.float32))})
    times: list[float] = []
    for number in range(1, 5):
        begun = time.perf_counter()
        messages = list(strategy.configure_train(number, model, ConfigRecord(), grid))
        sent = time.perf_counter()
        replies = grid.send_and_receive(messages)
        received = time.perf_counter()
        strategy.aggregate_train(number, replies)
        times.append(sent - begun + time.perf_counter() - received)
    return min(times)
