"""`import guerdon` against `import numpy`, each in a fresh interpreter."""

import subprocess
import sys

from rich.table import Table

from benchmarks.measure import best_time

LONGEST = 0.3  # seconds, promised for `import guerdon`


def run() -> tuple[Table, list[str]]:
    """Return the table of measurements, and what was promised and not kept."""
    times = {statement: _import_time(statement) for statement in ("import numpy", "import guerdon")}
    table = Table(title="import, interpreter's own start subtracted", title_justify="left")
    for heading in ("statement", "time", "ratio"):
        table.add_column(heading, justify="left" if heading == "statement" else "right")
    for statement, seconds in times.items():
        table.add_row(statement, f"{seconds * 1e3:.0f} ms", f"{seconds / times['import numpy']:.2f}")
    ours = times["import guerdon"]
    return table, [f"import guerdon took {ours:.2f} s, more than the {LONGEST} promised"] if ours > LONGEST else []


def _import_time(statement: str) -> float:
    return _run_time(statement) - _run_time("pass")


def _run_time(statement: str) -> float:
    return best_time(lambda: subprocess.run([sys.executable, "-c", statement], check=True))
