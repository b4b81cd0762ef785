"""Runs an app on Flower's simulation runtime: python -m tests.flower.simulate APP LEDGER. Best without a network."""

import sys
import tempfile
from pathlib import Path

from examples.deployment import CONNECTION, Deployment

if __name__ == "__main__":
    app, ledger = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        deployment = Deployment(Path(folder), secure=False, simulated=True)
        try:
            deployment.start_superlink()
            deployment.flwr("federation", "simulation-config", "@none/default", CONNECTION, "--num-supernodes", "4")
            run = deployment.run_app(app, {"anonymous": True, "num-server-rounds": 2, "guerdon-db": str(ledger)})
            status = run.wait(150)
            sys.exit(0 if status == "finished:completed" else f"{status}\n{run.log()[-3000:]}")
        finally:
            deployment.stop()
