"""Running repetitions a chunk at a time, with a progress bar; an interrupt keeps what is finished."""

import contextlib
from collections.abc import Callable, Generator
from typing import Any

from guerdon.arrays import check_positive_integer


def run_in_chunks(
    run: Callable[[int, int], Any], repetitions: int, chunk: int, progress: bool
) -> tuple[list[Any], bool]:
    """Return the results of run(first, count) over all repetitions, and whether an interrupt cut them short.

    An interrupt before anything is finished is not caught: there would be nothing to return.
    """
    check_positive_integer("chunk", chunk)
    finished: list[Any] = []
    with _progress_bar(repetitions, progress) as advance:
        for first in range(0, repetitions, chunk):
            count = min(chunk, repetitions - first)
            try:
                finished.append(run(first, count))
            except KeyboardInterrupt:
                if not finished:
                    raise
                return finished, True
            advance(count)
    return finished, False


@contextlib.contextmanager
def _progress_bar(total: int, wanted: bool) -> Generator[Callable[[int], None]]:
    """Yield a function that moves the bar on (standard error), or one that does nothing."""
    if not wanted:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("repetitions"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("repetitions", total=total)
        yield lambda count: bar.advance(task, count)
