"""A bare or a paid FedAvg over a model of one layer; writes what its rounds took, and its peak memory.

Flower asks for replies every three seconds, so a round's time is no finer than that. The processor time of all
programs of the deployment has no such steps: it is taken, too.
"""

import contextlib
import itertools
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from guerdon import AffineCost, FixedRequest, OutputAgreement
from guerdon.flower import Paid
from guerdon.statistical.servers import server_for
from guerdon.terms import Terms

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    config = context.run_config
    nodes = int(config["nodes"])
    strategy: Any = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    if config["paid"]:
        strategy = Paid(
            strategy,
            server_for(OutputAgreement(AffineCost(1, 1)), FixedRequest(8, step=0.1)),
            Terms(one_step=True),
            ledger=str(config["db"]),
            run=f"bench-{config['dimension']}",
        )
    programs = {int(number) for number in str(config["programs"]).split()}
    ends: list[float] = []
    worked: list[float] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> None:
        del server_round, arrays
        ends.append(time.perf_counter())
        worked.append(processor_time(programs))

    model = ArrayRecord({"w": Array(np.zeros(int(config["dimension"]), np.float32))})
    strategy.start(grid, model, num_rounds=int(config["rounds"]), timeout=300, evaluate_fn=evaluate)
    found = {
        "rounds": [later - sooner for sooner, later in itertools.pairwise(ends)],
        "worked": [later - sooner for sooner, later in itertools.pairwise(worked)],
        "peaks": [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024],
    }
    Path(str(config["out"])).write_text(json.dumps(found))


def processor_time(programs: set[int]) -> float:
    """Return the processor time in seconds of some programs and of all that they started, ended ones too (Linux)."""
    ticks = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended, and its time is its parent's
            fields = status.read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) if int(fields[3]) in programs else 0  # those of its session
    return ticks / os.sysconf("SC_CLK_TCK")
