"""`make demo-flower`: paid rounds on a real Flower deployment on this machine, from keys to statements.

Starts a SuperLink and four SuperNodes with TLS and authentication. One node shirks, one declines at random. Runs a few
paid rounds, prints what each node was paid and why, and stops everything that it started.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

from examples.deployment import Deployment, Run, deployed, program
from rich.console import Console

NODES = {"north": {}, "south": {}, "east": {"behaviour": "shirking"}, "west": {"behaviour": "declining"}}
HERE = Path(__file__).parent

console = Console(highlight=False)


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--app", default="paid-torch", choices=("paid-torch", "paid-numpy"), help="the app to run")
    parser.add_argument("--rounds", type=int, default=3, help="how many rounds to pay (default: 3)")
    parser.add_argument("--ledger", type=Path, default=Path("demo.db"), help="the ledger to write (default: demo.db)")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    if options.ledger.exists():
        parser.error(f"{options.ledger} exists already; move it away, or choose another file with --ledger")
    with tempfile.TemporaryDirectory(prefix="guerdon-demo-") as folder:
        demonstrate(Path(folder), options.app, options.rounds, options.ledger.resolve())


def demonstrate(folder: Path, app: str, rounds: int, ledger: Path) -> None:
    """Run the app on a new deployment, then print the statements and check the ledger."""
    console.print("Starting a SuperLink and four SuperNodes, with TLS and keys …")
    with deployed(folder, NODES) as flower:
        for name in NODES:
            guerdon("ledger", "enrol", name, "--public-key", str(folder / f"{name}.pub"), "--db", str(ledger))
        console.print(f"Four nodes are up on 127.0.0.1:{flower.port}, their keys registered with Flower.")
        run = flower.run_app(HERE / app, {"guerdon-db": str(ledger), "num-server-rounds": rounds})
        follow(flower, run, rounds)
    for name in NODES:
        guerdon("ledger", "statement", name, "--db", str(ledger))
    guerdon("ledger", "balances", "--db", str(ledger))
    guerdon("ledger", "verify", "--db", str(ledger))


def follow(flower: Deployment, run: Run, rounds: int) -> None:
    """Print what a run logs about its rounds, until it has finished."""
    shown = 0
    with console.status(f"Training for {rounds} paid rounds …"):
        while not (status := run.status()).startswith("finished"):
            time.sleep(1)
            shown = _print_news(run.log(), shown)
        _print_news(run.log(), shown)
    if status != "finished:completed":
        raise SystemExit(f"The run ended as {status}:\n{run.log()[-3000:]}\n{flower.log('superlink')[-1000:]}")


def _print_news(log: str, shown: int) -> int:
    """Print the lines about pay that were not printed yet, and return how many there are."""
    lines = [line.partition(":")[2].strip() for line in log.splitlines()]
    news = [line for line in lines if line.startswith(("Round ", "> ", "└──> MetricRecord"))]
    for line in news[shown:]:
        console.print(f"  {line}" if line.startswith("Round") else f"    {line.lstrip('└─> ')}", markup=False)
    return len(news)


def guerdon(*arguments: str) -> None:
    """Run a command of Guerdon's own command line."""
    subprocess.run([program("guerdon"), *arguments], check=True)


if __name__ == "__main__":
    main()
