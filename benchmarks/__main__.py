"""`python -m benchmarks`: run them all, print the tables, and fail if a promise is not kept."""

import platform
import sys

import numpy as np
from rich.console import Console

from benchmarks import dashboard, flower, gather, importing, ledger, scaling, simulator


def main() -> int:
    """Return 1 if any measured number is worse than what was promised for it."""
    console = Console()
    console.print(f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    broken: list[str] = []
    for benchmark in (importing, gather, ledger, dashboard, simulator, scaling, flower):
        table, complaints = benchmark.run()
        console.print(table)
        broken += complaints
    for complaint in broken:
        console.print(f"[bold red]not kept:[/] {complaint}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
