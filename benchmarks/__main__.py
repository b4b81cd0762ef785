"""`python -m benchmarks [name …]`: run all or those named, print tables, fail where a promise is broken."""

import platform
import sys
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import dashboard, field, flower, gather, importing, ledger, reproduce, scaling, simulator
from benchmarks.measure import Promise

ALL = {module.__name__.rpartition(".")[2]: module for module in (
    importing, gather, ledger, dashboard, simulator, reproduce, field, scaling, flower,
)}  # fmt: skip


def main(names: Sequence[str]) -> int:
    """Return 1 if any measured number is worse than what was promised for it."""
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"no benchmark is called {unknown[0]!r}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    console = Console()
    console.print(f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    promises: list[Promise] = []
    for name in names or ALL:
        table, more = ALL[name].run()
        console.print(table)
        promises += more
    console.print(now_and_promised(promises))
    return 0 if all(promise.kept for promise in promises) else 1


def now_and_promised(promises: Sequence[Promise]) -> Table:
    """Return the table of what was promised."""
    table = Table(title="now / promised", title_justify="left")
    for heading in ("what", "now", "promised", ""):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for one in promises:
        bound = f"at {'least' if one.least else 'most'} {one.promised:,g} {one.unit}".rstrip()
        verdict = "kept" if one.kept else "[bold red]BROKEN[/]"
        table.add_row(one.what, f"{one.now:,.4g} {one.unit}".rstrip(), bound, verdict)
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
