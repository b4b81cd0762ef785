"""A bare or a paid FedAvg over a model of one layer; writes what its rounds took, and its peak memory."""

import itertools
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from guerdon import AffineCost, FixedRequest, OutputAgreement
from guerdon.flower import Rewarded

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds."""
    config = context.run_config
    nodes = int(config["nodes"])
    strategy: Any = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    if config["paid"]:
        strategy = Rewarded(
            strategy,
            mechanism=OutputAgreement(AffineCost(1, 1)),
            requests=FixedRequest(8, step=0.1),
            one_step=True,
            ledger=str(config["db"]),
            run=f"bench-{config['dimension']}",
        )
    ends: list[float] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> None:
        del server_round, arrays
        ends.append(time.perf_counter())

    model = ArrayRecord({"w": Array(np.zeros(int(config["dimension"]), np.float32))})
    strategy.start(grid, model, num_rounds=int(config["rounds"]), timeout=300, evaluate_fn=evaluate)
    found = {
        "rounds": [later - sooner for sooner, later in itertools.pairwise(ends)],
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    Path(str(config["out"])).write_text(json.dumps(found))
