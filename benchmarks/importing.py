"""All of Guerdon's own names against `import numpy`, each in a fresh interpreter."""

import subprocess
import sys

from rich.table import Table

from benchmarks.measure import Promise, best_time

LONGEST = 0.3  # seconds, promised for all names; `import guerdon` alone loads none of them


def run() -> tuple[Table, list[Promise]]:
    """Return the table of measurements, and what was promised."""
    times = {statement: _import_time(statement) for statement in ("import numpy", "from guerdon import *")}
    table = Table(title="import, interpreter's own start subtracted", title_justify="left")
    for heading in ("statement", "time", "ratio"):
        table.add_column(heading, justify="left" if heading == "statement" else "right")
    for statement, seconds in times.items():
        table.add_row(statement, f"{seconds * 1e3:.0f} ms", f"{seconds / times['import numpy']:.2f}")
    return table, [Promise("from guerdon import *", times["from guerdon import *"], LONGEST, "s")]


def _import_time(statement: str) -> float:
    return _run_time(statement) - _run_time("pass")


def _run_time(statement: str) -> float:
    return best_time(lambda: subprocess.run([sys.executable, "-c", statement], check=True))
