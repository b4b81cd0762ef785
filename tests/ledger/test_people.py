"""What people see: statements in plain words, payouts paid once, journals that other programs accept."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.books.money import MICRO, format_amount
from guerdon.ledger.pay.payouts import Payout
from guerdon.ledger.read.queries import Balance, find_agent
from guerdon.ledger.read.render import statement_pieces
from guerdon.ledger.read.statements import read_lines
from tests.support.ledger_scenes import AT_ONCE, HARSH, NAMES, RULE, busy_ledger, on, play, record

HOSTILE = [
    "<script>alert(1)</script>",
    '=HYPERLINK("x")',
    'quote " and \\ slash',
    "two: lines, type:Q; | done",
    "Zoë 北 🏥",
    "-5",
    "a,b",
]


def test_a_statement_tells_everything_in_order(ledger: Ledger) -> None:
    busy_ledger(ledger)
    statement = ledger.statement("north")
    assert (statement.agent, statement.unit) == ("north", "CREDIT")
    kinds = [line.kind for line in statement.lines]
    assert kinds[:2] == ["deposit", "round"]
    assert {"hold", "release", "payout", "settle", "round"} <= set(kinds)
    assert kinds.count("round") == 21
    (balance,) = (row for row in ledger.balances() if row.agent == "north")
    last = statement.lines[-1]
    assert (last.balance, last.deposit, last.held, last.carried) == balance[1:5]
    assert sum(line.change for line in statement.lines) == last.balance
    first = statement.lines[1]
    assert (first.run, first.round, first.request, first.status) == ("heart", 1, 8, "paid")
    assert first.why.startswith("9 for the 8 samples asked for, ")
    assert "of honest work" in first.why
    assert any("held by hand" in line.why for line in statement.lines)
    assert [line.why for line in statement.lines if line.kind == "settle"] == [
        "payout 1 paid: bank 17",
        "payout 2 cancelled",
    ]


@pytest.mark.parametrize(
    ("losses", "words"),
    [("carry", "carried, to be netted against later rewards"), ("carry", "netted against an earlier loss"),
     ("deposit", "charged to the deposit"), ("deposit", "of the loss was waived"), ("floor", "of the loss was waived")],
)  # fmt: skip
def test_a_loss_is_explained(ledger: Ledger, losses: Any, words: str) -> None:
    ledger.enrol(dict.fromkeys(NAMES))
    for name in NAMES:
        ledger.move("deposit", name, 1_000_000)
    ledger.start_run("run", NAMES, HARSH, on(losses))
    record(ledger, "run", play(25, HARSH))
    assert any(words in line.why for name in NAMES for line in ledger.statement(name).lines)
    assert ledger.verify().holds


def test_those_who_were_not_paid_are_told_why(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    one = play(3)[2]
    ledger.record_round("run", 1, *one.arguments()[1:], notes=["", "", "", "exploded"])
    (line,) = ledger.statement("west").lines
    assert line.status == "invalid"
    assert line.why.startswith("nothing: what it sent cannot be used")
    assert line.why.endswith("note: exploded")


def test_an_agent_is_found_by_the_beginning_of_his_name(ledger: Ledger) -> None:
    ledger.enrol(dict.fromkeys(["ab12", "ab34", "cd%", "cd"]))
    assert ledger.statement("ab1").agent == "ab12"
    assert ledger.statement("cd").agent == "cd"
    assert ledger.statement("cd%").agent == "cd%"
    with pytest.raises(RefusedError, match="several agents begin with 'ab': ab12, ab34"):
        ledger.statement("ab")
    for nobody in ("", "x", "%"):
        with pytest.raises(RefusedError, match="there is no agent"):
            ledger.statement(nobody)


def be_hostile(ledger: Ledger) -> None:
    ledger.start_run('run <b>"x"</b>; | y', HOSTILE, RULE, AT_ONCE)
    record(ledger, 'run <b>"x"</b>; | y', play(2, agents=len(HOSTILE)))
    ledger.move("deposit", HOSTILE[0], 2_500_000, 'memo "quoted"\n; and | more')
    ledger.payout(memo="=1+1")


@pytest.fixture
def hostile(ledger: Ledger) -> Ledger:
    be_hostile(ledger)
    return ledger


def test_statements_for_programs_are_exact(hostile: Ledger) -> None:
    for name in HOSTILE:
        statement = hostile.statement(name)
        shown = json.loads(written(hostile, name, "json"))
        assert shown["agent"] == name
        assert Decimal(shown["balance"]) * MICRO == statement.lines[-1].balance
        rows = list(csv.DictReader(io.StringIO(written(hostile, name, "csv"))))
        assert [Decimal(row["balance"]) * MICRO for row in rows] == [line.balance for line in statement.lines]
        assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())


def test_no_name_becomes_markup(hostile: Ledger) -> None:
    for name in HOSTILE:
        page = written(hostile, name, "html")
        assert "<script" not in page
        assert '<b>"x"</b>' not in page
        assert "http" not in page.lower().replace("</html>", "")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in written(hostile, HOSTILE[0], "html")


def written(ledger: Ledger, agent: str, form: str) -> str:
    with ledger.reading() as connection:
        return "".join(statement_pieces(connection, agent, form))


def test_statements_of_nothing_are_whole_too(ledger: Ledger) -> None:
    ledger.enrol({"north": None})
    assert json.loads(written(ledger, "north", "json"))["lines"] == []
    assert "Nothing has happened yet." in written(ledger, "north", "html")
    assert written(ledger, "north", "csv").count("\n") == 1
    assert written(ledger, "north", "text") == "Statement of north #1, in CREDIT\nNothing has happened yet.\n"


def exported(ledger: Ledger, form: str, table: str = "journal") -> str:
    out = io.StringIO()
    ledger.export(form, out, table)
    return out.getvalue()


@pytest.mark.parametrize("scene", ["busy", "hostile", "empty"])
def test_beancount_accepts_the_journal(ledger: Ledger, tmp_path: Path, scene: str) -> None:
    fill(ledger, scene)
    (tmp_path / "books.beancount").write_text(exported(ledger, "beancount"), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "bean-check"), str(tmp_path / "books.beancount")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("hledger") is None, reason="no hledger here: on Debian, apt-get install hledger")
@pytest.mark.parametrize("scene", ["busy", "hostile", "empty"])
def test_hledger_accepts_the_journal(ledger: Ledger, tmp_path: Path, scene: str) -> None:
    fill(ledger, scene)
    path = tmp_path / "books.journal"
    path.write_text(exported(ledger, "hledger"), encoding="utf-8")
    command = ["hledger", "-f", str(path), "check", "--strict", "ordereddates"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"LANG": "C.UTF-8"})
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def fill(ledger: Ledger, scene: str) -> None:
    if scene != "empty":
        {"busy": busy_ledger, "hostile": be_hostile}[scene](ledger)


def test_the_other_programs_would_notice(ledger: Ledger, tmp_path: Path) -> None:
    """A journal in which one amount is wrong is not accepted: the checks above can fail."""
    busy_ledger(ledger)
    lines = exported(ledger, "beancount").splitlines()
    place = next(i for i, line in enumerate(lines) if "Liabilities:Agents" in line and line.startswith("  "))
    words = lines[place].split()
    lines[place] = f"  {words[0]}  {Decimal(words[1]) + 1} {words[2]}"
    (tmp_path / "wrong.beancount").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [str(Path(sys.executable).parent / "bean-check"), str(tmp_path / "wrong.beancount")]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_tables_hold_every_leg_and_every_payment(ledger: Ledger, tmp_path: Path) -> None:
    busy_ledger(ledger)
    legs = list(csv.DictReader(io.StringIO(exported(ledger, "csv"))))
    by_record: dict[str, Decimal] = {}
    for leg in legs:
        by_record[leg["record"]] = by_record.get(leg["record"], Decimal(0)) + Decimal(leg["amount"])
    assert set(by_record.values()) == {Decimal(0)}
    ledger.export("parquet", tmp_path / "legs.parquet")
    frame = pl.read_parquet(tmp_path / "legs.parquet")
    assert frame["amount"].dtype == pl.Decimal(38, 6)
    assert frame.height == len(legs)
    assert frame["amount"].to_list() == [Decimal(leg["amount"]) for leg in legs]
    ledger.export("parquet", tmp_path / "payments.parquet", "payments")
    payments = pl.read_parquet(tmp_path / "payments.parquet")
    assert payments.height == ledger.verify().payments
    (north,) = payments.filter(pl.col("agent") == "north").select(pl.col("released").sum() + pl.col("cut").sum()).rows()
    assert int(north[0] * MICRO) == ledger.statement("north").earned  # nothing was forfeited or waived
    with pytest.raises(ValueError, match="`table` must be 'journal' for beancount"):
        exported(ledger, "beancount", "payments")


def coins(amount: int, places: int = 2) -> int:
    """Return what whole coins can pay of an amount."""
    return amount - amount % 10 ** (6 - places)


def shares(batch: Payout) -> dict[str, int]:
    return {line.agent: line.amount for line in batch.items}


def test_payouts_are_paid_once(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE)
    record(ledger, "run", play(2))
    before = {row.agent: row.balance for row in ledger.balances()}
    assert ledger.payout(minimum=max(before.values())) == 1
    assert ledger.payout() == 2
    with pytest.raises(RefusedError, match="there is nothing to pay out"):
        ledger.payout()
    one, two = ledger.payouts()
    assert shares(one) | shares(two) == {name: coins(amount) for name, amount in before.items() if amount}
    assert (len(one.items), one.outcome, one.total) == (1, "open", coins(max(before.values())))
    ledger.settle_payout(1, "paid", "transfer 9")
    ledger.settle_payout(2, "cancelled")
    for number, outcome in ((1, "paid"), (2, "cancelled")):
        with pytest.raises(RefusedError, match=f"payout {number} was {outcome}"):
            ledger.settle_payout(number, "paid")
    assert sum(row.balance for row in ledger.balances()) == sum(before.values()) - one.total
    assert ledger.common_balances()["bank"] == one.total
    with pytest.raises(RefusedError, match="there is no payout 3"):
        ledger.settle_payout(3, "paid")
    assert ledger.verify().holds


def test_a_payout_nets_what_is_carried_and_a_loss_can_be_repaid_or_waived(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, HARSH, AT_ONCE)
    owing = list[Balance]()
    for one in play(25, HARSH):
        record(ledger, "run", [one])
        owing = owing or [row for row in ledger.balances() if 3 < -row.carried < row.balance]
        if owing:
            break
    name, has, owes = owing[0].agent, owing[0].balance, -owing[0].carried
    with pytest.raises(RefusedError, match="it carries"):
        ledger.move("repay", name, owes + 1)
    ledger.move("repay", name, 1)
    ledger.move("waive", name, 2)
    number = ledger.payout()
    left = has - (owes - 3)
    assert shares(ledger.find_payout(number))[name] == coins(left)
    after = {row.agent: row for row in ledger.balances()}
    assert (after[name].balance, after[name].carried) == (left % 10_000, 0)
    words = ledger.statement(name).lines[-1].why
    frozen, netted = format_amount(coins(left)), format_amount(owes - 3)
    assert words == f"{frozen} frozen to be paid out; {netted} netted against an earlier loss"
    ledger.settle_payout(number, "cancelled")
    assert next(row.balance for row in ledger.balances() if row.agent == name) == left
    assert ledger.verify().problem is None
    assert exported(ledger, "beancount")


def test_money_moves_by_whole_names_only(ledger: Ledger) -> None:
    ledger.enrol({"northwest": None})
    with pytest.raises(RefusedError, match="there is no agent 'north'; do you mean 'northwest'"):
        ledger.move("deposit", "north", 1)


def test_what_is_not_there_cannot_be_moved(ledger: Ledger) -> None:
    ledger.enrol({"north": None})
    ledger.move("deposit", "north", 5)
    for kind, amount in (("withdraw", 6), ("hold", 1), ("release", 1), ("forfeit", 1)):
        with pytest.raises(RefusedError, match=f"cannot {kind} 0.00000{amount} for 'north'"):
            ledger.move(kind, "north", amount)
    for amount in (0, -1, 1.5, True, 10**15 + 1):
        with pytest.raises(
            ValueError, match=r"`amount` must be .* from 1 to 1,000,000,000,000,000 \(1,000,000,000 units\)"
        ):
            ledger.move("deposit", "north", amount)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`kind` must be one of"):
        ledger.move("steal", "north", 1)
    ledger.move("withdraw", "north", 5)
    assert ledger.balances()[0].deposit == 0


def test_runs_and_rounds_are_summed_up(ledger: Ledger) -> None:
    ledger.start_run("run", NAMES, RULE, AT_ONCE, memo="a test")
    record(ledger, "run", play(3), metrics={"loss": 0.5})
    (run,) = ledger.runs()
    assert (run.name, run.agents, run.rounds, run.last_round, run.cost) == ("run", 4, 3, 3, "1 + 1*s")
    assert run.started_at <= run.last_activity
    rounds = ledger.rounds("run")
    assert run.paid == sum(one.paid for one in rounds)
    assert [sum(one.statuses.values()) for one in rounds] == [4, 4, 4]
    assert rounds[0].metrics == {"loss": 0.5}
    np.testing.assert_allclose(rounds[0].paid / MICRO, float(play(1)[0].payments.released.sum()), atol=1e-5)
    with pytest.raises(RefusedError, match="there is no run 'other'; there is 'run'"):
        ledger.rounds("other")


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("table", ["journal", "payments"])
def test_an_empty_table_is_not_exported(ledger: Ledger, tmp_path: Path, form: str, table: str) -> None:
    with pytest.raises(ValueError, match=f"there is nothing to export yet: no {table}"):
        ledger.export(form, io.StringIO() if form == "csv" else tmp_path / "x.parquet", table)


def test_a_part_of_a_statement_is_that_part_of_the_whole(ledger: Ledger) -> None:
    busy_ledger(ledger)
    with ledger.reading() as connection:
        agent = find_agent(connection, "north").id
        whole = ledger.statement("north").lines
        assert len(whole) > 12
        for skipped, count in ((0, 5), (3, 4), (len(whole) - 2, 5), (len(whole), 5), (10**6, 1), (0, 10**6)):
            stop = max(len(whole) - skipped, 0)
            start = max(stop - count, 0)
            assert read_lines(connection, agent, skipped, count) == (whole[start:stop], len(whole)), (skipped, count)
