"""The ledger's command line as a person uses it: on a real file, wrong input included."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from guerdon.ledger import Ledger
from guerdon.ledger.books import tables
from tests.support import command_line
from tests.support.ledger_scenes import AT_ONCE, NAMES, RULE, fill_busily, play, prepare, record


def run(*arguments: str, cwd: Path, code: int = 0, **environment: str) -> str:
    done = command_line.run("ledger", *arguments, cwd=cwd, **environment)
    assert done.code == code, done.output
    return (done.stdout if code == 0 else done.output).replace("\n", " \n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a ledger in its usual place."""
    prepare(str(tmp_path / "guerdon.db"), fill_busily)
    return tmp_path


def test_looking_around(folder: Path) -> None:
    shown = run("balances", cwd=folder)
    assert all(name in shown for name in NAMES)
    assert "Earned in all" in shown
    assert "heart" in run("runs", cwd=folder)
    assert "5 paid" in run("rounds", "memory", cwd=folder)
    assert "samples asked for" in run("statement", "nor", cwd=folder).replace("\n", "")
    assert "✓ holds: " in run("verify", cwd=folder)


def test_json_is_exact_and_complete(folder: Path) -> None:
    def read(*arguments: str) -> Any:
        return json.loads(run(*arguments, "--json", cwd=folder))

    with Ledger(folder / "guerdon.db", read_only=True) as ledger:
        balances = {row.agent: row.balance for row in ledger.balances()}
    assert {row["agent"]: int(Decimal(row["balance"]) * 10**6) for row in read("balances")["agents"]} == balances
    assert [row["name"] for row in read("runs")["runs"]] == ["heart", "harsh", "memory", "vesting"]
    assert len(read("rounds", "heart")["rounds"]) == 6
    assert [row["outcome"] for row in read("payout", "list")["payouts"]] == ["mixed", "cancelled", "open"]
    assert read("verify")["holds"] is True


def test_pay_against_cost_is_shown(folder: Path) -> None:
    shown = run("balances", cwd=folder)
    assert "Pay against cost" in shown
    assert "±" in shown
    told = json.loads(run("balances", "--json", cwd=folder))["pay_against_cost"]
    with Ledger(folder / "guerdon.db", read_only=True) as ledger:
        assert [row["pay"] for row in told] == [row.pay for row in ledger.earnings()]
        assert [row["margin"] for row in told] == [row.margin for row in ledger.earnings()]


def test_the_only_run_need_not_be_named(tmp_path: Path, folder: Path) -> None:
    listed = run("rounds", cwd=folder, code=2)
    assert "`RUN` must name a run of the ledger ('heart', 'harsh', 'memory', 'vesting'), got None" in " ".join(
        listed.split()
    )
    where = str(tmp_path / "one.db")
    with Ledger(where) as ledger:
        ledger.start_run("only", NAMES, RULE, AT_ONCE)
        record(ledger, "only", play(2))
    assert json.loads(run("rounds", "--db", where, "--json", cwd=folder))["run"] == "only"
    assert run("statement", "north", "--db", where, "--json", cwd=folder) == run(
        "statement", "north", "--db", where, "--format", "json", cwd=folder
    )


def test_a_day_of_an_operator(tmp_path: Path) -> None:
    assert run("enrol", "north", "--unit", "EUR", cwd=tmp_path).strip() == "north #1 is enrolled"
    assert "counts in EUR, not in USD" in run("enrol", "north", "--unit", "USD", cwd=tmp_path, code=2)
    assert run("enrol", "north", cwd=tmp_path).strip() == "north #1 was enrolled already"
    run("move", "deposit", "north", "100", "--memo", "transfer 1", cwd=tmp_path)
    with Ledger(tmp_path / "guerdon.db") as ledger:
        ledger.start_run("run", NAMES, RULE, AT_ONCE)
        record(ledger, "run", play(3))
    run("move", "hold", "north", "1.5", cwd=tmp_path)
    refused = run("move", "release", "north", "2", cwd=tmp_path, code=2)
    assert "cannot release 2.00 for 'north': its held account has 1.50 by hand" in " ".join(refused.split())
    assert "release of 1.00 for north recorded" in run("move", "release", "north", "1", cwd=tmp_path)
    assert "Balances in EUR" in run("balances", cwd=tmp_path)
    assert "Payout 1" in run("payout", "create", "--minimum", "0.01", cwd=tmp_path)
    assert "payout 1 is paid" in run("payout", "paid", "1", "--memo", "SEPA 7", cwd=tmp_path)
    assert "payout 1 was paid" in run("payout", "paid", "1", cwd=tmp_path, code=2)
    public = run("key", "operator.pem", cwd=tmp_path).strip()
    run("sign", "--key", "operator.pem", "--out", "head.json", cwd=tmp_path)
    assert "✓ holds" in run("verify", "--receipt", "head.json", "--signed-by", public, cwd=tmp_path)
    assert "`--signed-by` must be" in run("verify", "--receipt", "head.json", "--signed-by", "00", cwd=tmp_path, code=2)
    assert f"version {tables.REVISION} already" in run("upgrade", cwd=tmp_path)


def test_files_are_written(folder: Path) -> None:
    for form in ("json", "csv", "html"):
        run("statement", "north", "--format", form, "--out", f"north.{form}", cwd=folder)
        assert (folder / f"north.{form}").stat().st_size > 1000
        assert run("statement", "north", "--format", form, cwd=folder).strip()
    for form in ("beancount", "hledger", "csv", "parquet"):
        run("export", "--format", form, "--out", f"books.{form}", cwd=folder)
        assert (folder / f"books.{form}").stat().st_size > 1000
    assert run("export", "--format", "csv", "--table", "payments", cwd=folder).startswith(
        "run,round,time,request,agent"
    )


def test_tampering_is_named_and_fails(folder: Path) -> None:
    with Ledger(folder / "guerdon.db") as ledger, ledger._database.engine.begin() as connection:
        connection.execute(text("UPDATE accounts SET balance = balance + 1 WHERE kind = 'treasury'"))
    shown = run("verify", cwd=folder, code=1)
    assert "✗ accounts: the balance of treasury is " in shown
    assert json.loads(run("verify", "--json", cwd=folder, code=1))["holds"] is False


def test_the_address_may_come_from_the_environment(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert "north" in run("balances", cwd=elsewhere, GUERDON_DB=str(folder / "guerdon.db"))
    assert "there is no ledger at guerdon.db" in run("balances", cwd=elsewhere, code=2)


def test_in_a_process_of_its_own(folder: Path) -> None:
    shown = command_line.start("ledger", "verify", cwd=folder)
    assert (shown.code, shown.stderr) == (0, "")
    assert shown == command_line.run("ledger", "verify", cwd=folder)


def test_nothing_recorded_can_move_the_terminal(tmp_path: Path) -> None:
    with Ledger(tmp_path / "guerdon.db") as ledger:
        ledger.start_run("run", NAMES, RULE, AT_ONCE)
        ledger.record_round("run", *play(1)[0].arguments(), notes=["\x1b[2J\x1b]0;title\x07", "", "", ""])
    assert "\x1b" not in run("statement", "north", cwd=tmp_path)
    assert "printable characters" in run("enrol", "\x1b[31mred", cwd=tmp_path, code=2)


def test_a_ledger_on_a_server(where: str, tmp_path: Path) -> None:
    with Ledger(where) as ledger:
        ledger.start_run("run", NAMES, RULE, AT_ONCE)
        record(ledger, "run", play(2))
    assert "north" in run("balances", "--db", where, cwd=tmp_path)
    assert "✓ holds" in run("verify", "--db", where, cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["balances"], "there is no ledger at guerdon.db"),
        (["verify", "--db", "gone.db"], "there is no ledger at gone.db"),
        (["move", "deposit", "north", "1"], "there is no ledger at guerdon.db"),
        (["payout", "create"], "there is no ledger at guerdon.db"),
        (["sign", "--key", "gone.pem"], "gone.pem cannot be opened: no such file or directory"),
        (["verify", "--receipt", "gone.json"], "gone.json cannot be opened: no such file or directory"),
        (["balances", "--db", "postgresql://u:secret@127.0.0.1:1/x"], "the database server cannot be reached"),
        (["balances", "--db", "mongodb://x/y"], "a ledger is kept in an SQLite file or in PostgreSQL"),
        (["enrol", ""], "an agent's name must be text of 1 to 200 printable characters"),
        (["key", "/nowhere/key.pem"], "cannot be opened: no such file or directory"),
        (["statement"], "missing argument 'AGENT'"),
        (["move", "steal", "north", "1"], "invalid value for"),
        (["export", "--format", "xlsx"], "invalid value for '--format'"),
        (["upgrade"], "there is no ledger at guerdon.db"),
    ],
)
def test_wrong_input_is_one_clear_message(tmp_path: Path, arguments: list[str], message: str) -> None:
    shown = run(*arguments, cwd=tmp_path, code=2)
    assert message in shown.replace(" \n", " ").replace("│", "").replace("  ", " ")
    assert "secret" not in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["statement", "nobody"], "there is no agent 'nobody'"),
        (["rounds", "nothing"], "there is no run 'nothing'; there is 'heart', 'harsh', 'memory', 'vesting'"),
        (["move", "deposit", "north", "1.0000001"], "an amount must have at most 6 decimals"),
        (["move", "withdraw", "north", "1000"], "cannot withdraw 1,000.00 for 'north'"),
        (["move", "deposit", "north", "lots"], "an amount must be a number such as 12.50, got 'lots'"),
        (["payout", "paid", "9"], "there is no payout 9"),
        (["export", "--format", "parquet"], "`--format parquet` needs `--out FILE`"),
        (["export", "--format", "hledger", "--table", "payments"], "`table` must be 'journal' for hledger"),
        (["export", "--format", "csv", "--out", "/nowhere/x.csv"], "cannot be opened: no such file or directory"),
    ],
)
def test_wrong_wishes_are_one_clear_message(folder: Path, arguments: list[str], message: str) -> None:
    assert message in run(*arguments, cwd=folder, code=2).replace(" \n", " ")
