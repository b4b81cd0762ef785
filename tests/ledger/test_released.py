"""A ledger that version 0.1.0 wrote: it is upgraded, holds, says what it said then, and goes on."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import create_engine, insert, select, text

from guerdon.evidence import Evidence
from guerdon.ledger import Ledger, Receipt, RefusedError, tables
from guerdon.ledger.database import Database
from guerdon.ledger.holdings import Flow, Holdings
from guerdon.ledger.journal import DETAILS
from guerdon.ledger.migrations.helpers import LATER
from guerdon.ledger.money import MICRO
from guerdon.ledger.upgrading import parts_of, upgrade_ledger
from tests.ledger.test_escrow import escrow, total
from tests.ledger.test_tampering import attacker, reseal
from tests.support.command_line import run as guerdon

RELEASED = Path(__file__).parents[1] / "data" / "released"
EXPECTED: dict[str, Any] = json.loads((RELEASED / "expected.json").read_text(encoding="utf-8"))
OLD = [name for name in DETAILS if name not in LATER]


@pytest.fixture
def released(where: str) -> str:
    """A copy of the ledger as it was released."""
    if "://" in where:
        copy_to_server(where)
    else:
        shutil.copy(RELEASED / "guerdon.db", where)
    return where


@pytest.fixture
def upgraded(released: str) -> str:
    assert upgrade_ledger(released) == ("0001", tables.REVISION)
    return released


def copy_to_server(where: str) -> None:
    """Copy all but the last record, a signature: the tables are others, and so all hashes."""
    database = Database(where, read_only=False, patience=1.0)
    with database.creating() as connection:
        database.upgrade(connection, "0001")
    database.engine.dispose()
    file = create_engine(f"sqlite:///file:{RELEASED / 'guerdon.db'}?mode=ro&immutable=1&uri=true")
    with attacker(where, keeps=True) as connection, file.connect() as old:
        for table in tables.metadata.sorted_tables:
            if table.name not in (*LATER, "signatures"):
                rows = [dict(row) for row in old.execute(select(table)).mappings()]
                connection.execute(insert(table), rows) if rows else None
        last = int(connection.execute(text("SELECT MAX(seq) FROM records WHERE kind <> 'sign'")).scalar_one())
        connection.execute(text(f"DELETE FROM records WHERE seq > {last}"))
        connection.execute(tables.ledger.update().values(head=last, schema=b"names of all tables on a server."))
        reseal(connection, OLD)
    file.dispose()


def test_a_released_ledger_says_what_it_said(upgraded: str) -> None:
    with Ledger(upgraded) as ledger:
        assert ledger.verify().problem is None
        assert [list(row)[:5] for row in ledger.balances()] == EXPECTED["balances"]
        assert ledger.common_balances() == EXPECTED["common"]
        assert {run.name: run.rounds for run in ledger.runs()} == EXPECTED["rounds"]
        assert ledger.unit == "EUR"
    assert upgrade_ledger(upgraded) == (tables.REVISION, tables.REVISION)


def test_the_chain_goes_on_from_what_was_signed(tmp_path: Path) -> None:
    path = Path(shutil.copy(RELEASED / "guerdon.db", tmp_path))
    query = "SELECT name, seq - 1, previous, public_key, signature FROM ledger, signatures JOIN records ON seq = record"
    with closing(sqlite3.connect(path)) as connection:
        name, record, sealed, key, signature = connection.execute(query).fetchone()
    receipt = Receipt(name, record, sealed, key, signature)
    with pytest.raises(RefusedError, match=r"has tables of version 0001, .* `guerdon ledger upgrade` after a backup"):
        Ledger(path)
    assert guerdon("ledger", "upgrade", "--db", str(path)).stdout == f"version 0001 upgraded to {tables.REVISION}\n"
    with Ledger(path) as ledger, ledger.reading() as connection:
        assert ledger.verify(receipt).problem is None
        records = tables.records
        before, now = connection.execute(select(records).order_by(records.c.seq.desc()).limit(2)).all()[::-1]
        assert before.hash.hex() == EXPECTED["head"] == now.previous.hex()
        assert (now.kind, now.memo) == ("open", f"upgraded from version 0001 to {tables.REVISION}")


def parts(ledger: Ledger) -> list[tuple[str, str, int, int | None]]:
    """Return agent, run, amount and round of each row of `escrow`, in order."""
    query = text(
        "SELECT agents.name, runs.name, escrow.amount, escrow.round FROM escrow JOIN runs ON runs.id = run JOIN "
        "entries ON entries.record = move JOIN accounts ON accounts.id = source JOIN agents ON agents.id = owner "
        "ORDER BY move, run"
    )
    with ledger.reading() as connection:
        return [tuple(row) for row in connection.execute(query)]


def test_what_remarks_said_is_carried_over(upgraded: str) -> None:
    with Ledger(upgraded) as ledger:
        assert parts(ledger) == [
            ("north", "long", 31_000_000, 33),
            ("south", "long", 29_779_044, 33),
            ("east", "long", 29_294_786, 33),
            ("west", "long", 32_000_000, 33),
            ("Köln", "long", 3_000_000, 36),
            ("south", "short", 500_000, None),  # a remark typed by hand settles nothing
            ("west", "long", 750_000, None),  # what east had released by hand had been held by hand
        ]
        assert ledger.audit("long").held == [6_000_000, 6_194_841, 6_000_000, 4_250_000, 0]
        assert ledger.audit("short").held == [4_000_000, 3_500_000, 4_000_000, 3_000_000, 0]
        assert escrow(ledger)["east"] == 6_000_000 + 4_000_000 + 1_250_000  # by hand


A, B = 1, 2  # runs that held 7 in each of 7 rounds, and 3 in one


@pytest.mark.parametrize(
    ("by_hand", "moves", "rows"),
    [
        (0, [(49, None), (3, (A, 7))], [(A, 49, None), (B, 3, None)]),  # the second took what was B's
        (0, [(21, (A, 3)), (28, (A, 7)), (3, (B, 1))], [(A, 21, 3), (A, 28, 7), (B, 3, 1)]),
        (0, [(1, (A, 7)), (48, (A, 7))], [(A, 1, None), (A, 48, 7)]),  # the first was typed by hand
        (5, [(6, None), (46, None)], [(A, 1, None), (A, 46, None)]),
        (5, [(7, (B, 9)), (50, None)], [(B, 3, None), (A, 49, None)]),  # 4 of the first by hand
    ],
)
def test_old_moves_take_from_the_run_they_name_as_far_as_it_goes(by_hand: int, moves: Any, rows: Any) -> None:
    own = Holdings()
    for number in range(1, 8):
        own.add(Flow(number, 6, 7, True, A, number))
    own.add(Flow(8, 6, 3, True, B, 1))
    own.add(Flow(9, 6, by_hand, True))
    found = [row for amount, said in moves for row in parts_of(own, Flow(10, 6, amount, False), said)]
    assert [(row["run"], row["amount"], row["round"]) for row in found] == rows


def test_settling_goes_on_where_it_was(upgraded: str) -> None:
    with Ledger(upgraded) as ledger:
        before = escrow(ledger)
        assert ledger.settle_escrow("long") == []
        assert ledger.settle_escrow("short", alike=True, forfeit_accused=True) == []
        assert escrow(ledger) == before
        held = ledger.audit("long").held
        moves = ledger.settle_escrow("long", alpha=0.5)
        assert moves
        assert ledger.settle_escrow("long", alpha=0.5) == []
        for move in moves:
            place = ledger.roster("long").index(move.agent)
            assert 0 < move.amount <= held[place]
        assert ledger.verify().problem is None
        assert total(ledger) == 0


ALTERED = "the tables, constraints or triggers are not those with which the ledger was made; it was"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE accounts SET balance = balance + 1 WHERE id = 1", "not upgraded: accounts: the balance of treasury"),
        ("DROP VIEW legs", ALTERED),
        ("DROP INDEX ix_entries_target", ALTERED),  # PostgreSQL's hash of version 0.1.0 was one of names
    ],
)
def test_a_ledger_that_does_not_hold_is_not_upgraded(released: str, change: str, message: str) -> None:
    with attacker(released, keeps=True) as connection:
        connection.execute(text(change))
    with pytest.raises(RefusedError, match=message):
        upgrade_ledger(released)
    with attacker(released) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "0001"


def last_calls(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Return how version 0.1.0 was told to record the last round of each run, from what it wrote down."""
    calls: dict[str, dict[str, Any]] = {}
    for run in (run.name for run in ledger.runs() if run.rounds):
        resumed = ledger.resume(run)
        assert resumed is not None
        with ledger.reading() as connection:
            query = "SELECT payments.*, metrics FROM payments JOIN rounds USING (record) JOIN runs ON runs.id = run "
            found = connection.execute(
                text(query + "WHERE runs.name = :run AND number = :number ORDER BY position"),
                {"run": run, "number": resumed.round},
            )
            columns = dict(zip(found.keys(), map(list, zip(*found, strict=True)), strict=True))
        status, amounts = np.array(columns["status"]), np.array([columns["amount"], columns["held"]]) / MICRO
        evidence = Evidence(
            *(np.array(columns[name]) for name in ("deviation", "length", "alignment")),
            counted=~np.isin(status, ["declined", "invalid"]),
        )
        calls[run] = {
            "run": run, "round": resumed.round, "request": resumed.request, "evidence": evidence,
            "participating": status != "declined", "gradients": columns["gradient"],
            "signatures": columns["signature"], "notes": columns["note"], "held": amounts[1],
            "metrics": json.loads(columns["metrics"][0]), "checkpoint": resumed.arrays, "rewards": amounts[0],
        }  # fmt: skip
    return calls


def test_a_round_of_version_0_1_can_be_handed_in_again(upgraded: str) -> None:
    """Its hash of the round covered the payments too."""
    with Ledger(upgraded) as ledger:
        before, calls = ledger.verify(), last_calls(ledger)
        assert len(calls) == sum(count > 0 for count in EXPECTED["rounds"].values())
        for call in calls.values():
            rewards = call.pop("rewards")
            recorded = ledger.record_round(**call)
            assert not recorded.new
            assert recorded.payments is not None
            np.testing.assert_array_equal(recorded.payments.reward, rewards)
            with pytest.raises(RefusedError, match="is recorded already, with another held of agent '"):
                ledger.record_round(**call | {"held": call["held"] + 1})
        assert ledger.verify() == before


def test_a_rule_that_remembers_a_variance_is_read_but_not_continued(upgraded: str) -> None:
    with Ledger(upgraded) as ledger:
        call = last_calls(ledger)["remembering"]
        del call["rewards"]
        with pytest.raises(RefusedError, match="`mechanism` must be a rule that can be recorded"):
            ledger.record_round(**call | {"round": call["round"] + 1})
