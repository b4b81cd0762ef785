"""Memory that does not grow with the ledger: statements and exports are written as they are read."""

import gc
import io
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sqlalchemy import text

from guerdon import gather, round_of
from guerdon.dashboard.queries import _payments_query
from guerdon.ledger import Ledger
from guerdon.ledger.pay.recording import Handed, as_input
from guerdon.ledger.read import queries
from guerdon.ledger.read.render import FORMS, statement_pieces
from tests.support.ledger_scenes import AT_ONCE, NAMES, RULE

ROUNDS = 4000
MOST = 6_000_000  # bytes: statements of so many rounds took 10 to 60 MB when they were made as a whole


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A ledger of many rounds, recorded in few transactions."""
    everybody, rng = np.ones(len(NAMES), dtype=bool), np.random.default_rng(0)
    played = [round_of(gather(rng.normal(size=(len(NAMES), 6)), everybody), everybody, 8) for _ in range(10)]
    extras = dict.fromkeys(["gradients", "signatures", "notes", "work", "metrics", "checkpoint"])
    with Ledger(tmp_path_factory.mktemp("long") / "guerdon.db") as ledger:
        ledger.start_run("run", NAMES, RULE, AT_ONCE)
        with ledger._database.writing() as connection:
            run = queries.need_run(connection, "run")
            for number in range(1, ROUNDS + 1):
                given = as_input(number, (run.rule, run.cost), played[number % 10], extras)
                ledger._recorder.record(connection, run, given, Handed(), None)
        yield ledger


def peak_of(work: Callable[[], object]) -> int:
    """Return the most memory that is held at once, where garbage is looked for as often as in any program."""
    often = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gc.set_threshold(*often)
    return peak


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_statement_of_any_size_is_streamed(long: Ledger, form: str) -> None:
    def write() -> None:
        with long.reading() as connection, open(os.devnull, "w", encoding="utf-8") as out:
            out.writelines(statement_pieces(connection, "north", form))

    assert peak_of(write) < MOST


@pytest.mark.slow
@pytest.mark.parametrize("table", ["journal", "payments"])
def test_exports_of_any_size_are_streamed(long: Ledger, table: str, tmp_path: Path) -> None:
    with open(os.devnull, "w", encoding="utf-8") as out:
        assert peak_of(lambda: long.export("csv", out, table)) < MOST
    assert peak_of(lambda: long.export("parquet", tmp_path / "x.parquet", table)) < MOST
    buffer = io.StringIO()
    long.export("csv", buffer, table)
    assert (
        pl.scan_parquet(tmp_path / "x.parquet").select(pl.len()).collect().item() == buffer.getvalue().count("\n") - 1
    )


def test_the_payments_of_a_run_are_read_without_sorting(tmp_path: Path) -> None:
    with Ledger(tmp_path / "guerdon.db") as ledger, ledger.reading() as connection:
        compiled = str(_payments_query(1, 0).compile(connection, compile_kwargs={"literal_binds": True}))
        plan = [row.detail for row in connection.execute(text(f"EXPLAIN QUERY PLAN {compiled}"))]
    assert any("payments" in step for step in plan)
    assert not any("TEMP B-TREE" in step for step in plan)
