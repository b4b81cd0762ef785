"""Payouts that a bank can make: whole coins, a line for each payee, each paid, bounced or cancelled, none twice."""

import csv
import io
import json
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from sqlalchemy import text

from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.books import tables
from guerdon.ledger.pay.bank import SCHEMA
from guerdon.ledger.proof.verify import verify
from tests.ledger.test_tampering import attacker, reseal
from tests.support.command_line import run as guerdon
from tests.support.ledger_scenes import AT_ONCE, HARSH, NAMES, RULE, play, prepare, record

IBANS = ["DE89370400440532013000", "FR1420041010050500013M02606", "CH9300762011623852957", "GB29NWBK60161331926819"]


def fill(where: str) -> None:
    with Ledger(where, unit="EUR") as ledger:
        ledger.start_run("run", NAMES, RULE, AT_ONCE)
        record(ledger, "run", play(5))
        for name, iban in zip(NAMES, IBANS, strict=True):
            ledger.set_payee(name, iban, f"Hôpital {name} & Co")


@pytest.fixture
def paying(where: str) -> Any:
    with Ledger(prepare(where, fill)) as ledger:
        yield ledger


def balances(ledger: Ledger) -> dict[str, int]:
    return {row.agent: row.balance for row in ledger.balances()}


@pytest.mark.parametrize(("places", "coin"), [(None, 10_000), (0, 1_000_000), (6, 1)])
def test_a_payout_pays_whole_coins_and_the_rest_stays(paying: Ledger, places: int | None, coin: int) -> None:
    before = balances(paying)
    batch = paying.find_payout(paying.payout(places=places))
    assert {line.agent: line.amount for line in batch.items} == {name: has - has % coin for name, has in before.items()}
    assert balances(paying) == {name: has % coin for name, has in before.items()}
    assert any(has % 10_000 for has in before.values())
    assert paying.verify().problem is None


def test_the_smallest_coin_is_that_of_the_unit(tmp_path: Path) -> None:
    with Ledger(tmp_path / "yen.db", unit="JPY") as ledger:
        ledger.start_run("run", NAMES, RULE, AT_ONCE)
        record(ledger, "run", play(1))
        assert all(line.amount % 1_000_000 == 0 for line in ledger.find_payout(ledger.payout()).items)
        with pytest.raises(ValueError, match="`places` must be 0 to 6 decimals, got 7"):
            ledger.payout(places=7)
        with pytest.raises(RefusedError, match=r"nothing to pay out: no balance reaches 1\.00"):
            ledger.payout()


def test_lines_are_settled_one_by_one(paying: Ledger) -> None:
    before, number = balances(paying), paying.payout()
    rest = balances(paying)
    paying.settle_payout(number, "bounced", "AC04", agents=["north"])
    paying.settle_payout(number, "paid", "SEPA 1", agents=["south", "east"])
    assert paying.find_payout(number).outcome == "open"
    paying.settle_payout(number, "cancelled", agents=["west"])
    paying.settle_payout(number, "bounced", "AC06", agents=["south"])
    batch = paying.find_payout(number)
    told = {line.agent: (line.outcome, line.reference) for line in batch.items}
    assert told == {"north": ("bounced", "AC04"), "south": ("bounced", "AC06"), "east": ("paid", "SEPA 1"),
                    "west": ("cancelled", "")}  # fmt: skip
    assert (batch.outcome, batch.state, batch.reference) == (
        "mixed", "1 paid, 1 cancelled, 2 bounced", "AC04, SEPA 1, AC06",
    )  # fmt: skip
    assert balances(paying) == before | {"east": rest["east"]}
    paid = next(line.amount for line in batch.items if line.agent == "east")
    assert paying.common_balances() | {"treasury": 0} == {"treasury": 0, "bank": paid, "payable": 0, "reserve": 0}
    assert paying.verify().problem is None
    lines = paying.statement("south").lines
    assert [line.why for line in lines if line.kind == "settle"] == ["payout 1 paid: SEPA 1", "payout 1 bounced: AC06"]
    assert lines[-1].balance == before["south"]


@pytest.mark.parametrize(
    ("outcome", "agents", "message"),
    [
        ("paid", ["north"], "the line of 'north' in payout 1 was paid on .*; it cannot become paid"),
        ("cancelled", ["north"], "cannot become cancelled"),
        ("bounced", ["south"], "was bounced on .* already; it cannot become bounced"),
        ("paid", ["nobody"], "payout 1 has no line of agent 'nobody'"),
        ("bounced", None, "`agents` must name the agents whose transfers bounced"),
        ("lost", ["east"], "`outcome` must be one of"),
    ],
)
def test_no_line_is_settled_twice(paying: Ledger, outcome: str, agents: list[str] | None, message: str) -> None:
    paying.payout()
    paying.settle_payout(1, "paid", agents=["north"])
    paying.settle_payout(1, "bounced", agents=["south"])
    before = paying.verify()
    with pytest.raises(ValueError, match=message):
        paying.settle_payout(1, outcome, agents=agents)
    assert paying.verify() == before


def test_nothing_is_withdrawn_while_a_loss_is_carried(where: str) -> None:
    with Ledger(where) as ledger:
        ledger.enrol(dict.fromkeys(NAMES))
        for name in NAMES:
            ledger.move("deposit", name, 50_000_000)
        ledger.start_run("run", NAMES, HARSH, AT_ONCE)
        owing = list[Any]()
        for one in play(25, HARSH):
            record(ledger, "run", [one])
            owing = [row for row in ledger.balances() if row.carried < 0]
            if owing:
                break
        name, loss = owing[0].agent, -owing[0].carried
        with pytest.raises(
            RefusedError, match=r"cannot withdraw 1\.00 for .*: it carries a loss of .* repaid or waived"
        ):
            ledger.move("withdraw", name, 1_000_000)
        ledger.payout()
        shares = {line.agent for line in ledger.find_payout(1).items}
        assert all(row.carried == 0 or row.agent not in shares for row in ledger.balances())
        if name not in shares:
            ledger.move("waive", name, loss)
        ledger.move("withdraw", name, 1_000_000)
        assert ledger.verify().problem is None


def test_what_is_asked_for_twice_under_one_key_is_done_once(paying: Ledger) -> None:
    first = paying.move("deposit", "north", 5_000_000, "transfer 7", key="bank 7")
    again = paying.move("deposit", "north", 5_000_000, "transfer 7", key="bank 7")
    assert (first.new, again.new, again.record) == (True, False, first.record)
    number, before = paying.payout(key="November"), paying.verify()
    assert paying.payout(key="November") == number
    assert paying.verify() == before
    for other in (lambda: paying.move("deposit", "north", 6_000_000, "transfer 7", key="bank 7"),
                  lambda: paying.move("deposit", "north", 5_000_000, key="November"),
                  lambda: paying.payout(minimum=2, key="November")):  # fmt: skip
        with pytest.raises(RefusedError, match=r"the key '.*' belongs to record \d+, which was asked for with other"):
            other()
    with pytest.raises(ValueError, match="`key` must be text of 1 to 200"):
        paying.move("deposit", "north", 1, key="")
    assert next(row.deposit for row in paying.balances() if row.agent == "north") == 5_000_000


def exported(ledger: Ledger, form: str, *, payout: int = 1, **options: Any) -> str:
    out = io.StringIO()
    ledger.export_payout(payout, form, out, **options)
    return out.getvalue()


OPERATOR: dict[str, Any] = {"name": "Heart Study", "iban": "DE02 1203 0000 0000 2020 51"}


def test_the_bank_gets_the_open_lines(paying: Ledger) -> None:
    paying.payout()
    paying.settle_payout(1, "cancelled", agents=["west"])
    lines = {line.agent: line for line in paying.find_payout(1).items if line.outcome == "open"}
    rows = {row["agent"]: row for row in csv.DictReader(io.StringIO(exported(paying, "csv")))}
    assert rows.keys() == lines.keys() == {"north", "south", "east"}
    root = ET.fromstring(exported(paying, "pain.001", **OPERATOR))  # noqa: S314 - our own

    def find(name: str) -> list[str]:
        return [str(one.text) for one in root.iter(f"{{{SCHEMA}}}{name}")]

    assert sorted(find("InstdAmt")) == sorted(f"{line.amount / 1e6:.2f}" for line in lines.values())
    total = f"{sum(line.amount for line in lines.values()) / 1e6:.2f}"
    assert (find("CtrlSum"), find("NbOfTxs")) == ([total] * 2, ["3"] * 2)
    assert find("IBAN")[0] == "DE02120300000000202051"
    assert set(find("IBAN")[1:]) == {line.account for line in lines.values()}
    assert "Hopital north + Co" in find("Nm")
    assert set(find("EndToEndId")) == {row["reference"] for row in rows.values()}
    assert exported(paying, "pain.001", **OPERATOR) == exported(paying, "pain.001", **OPERATOR)


def test_pain_001_is_as_its_schema_wants_it(paying: Ledger) -> None:
    from xmlschema import XMLSchema, XMLSchemaValidationError

    paying.set_payee("west", IBANS[3], "Zażółć Øst ß & 北京 " + 10 * "Krankenhaus ")
    paying.payout()
    written = exported(paying, "pain.001", **OPERATOR)
    assert "<Nm>Zazolc Ost ss + .. Krankenhaus " in written
    schema = XMLSchema(str(files("sepaxml") / "schemas" / "pain.001.001.09.xsd"))
    schema.validate(written)
    with pytest.raises(XMLSchemaValidationError):
        schema.validate(written.replace("SLEV", "SLOW"))


def test_what_a_bank_cannot_pay_is_not_exported(paying: Ledger, tmp_path: Path) -> None:
    paying.enrol({"new": None})
    paying.start_run("more", [*NAMES, "new"], RULE, AT_ONCE)
    record(paying, "more", play(1, agents=5))
    paying.payout()
    with pytest.raises(RefusedError, match="payout 1 has no bank account for 'new'; cancel these lines, say where"):
        exported(paying, "csv")
    paying.settle_payout(1, "cancelled", agents=["new"])
    with pytest.raises(ValueError, match="`name` and `iban` must be those of the account that pays"):
        exported(paying, "pain.001", name="Heart Study")
    with pytest.raises(ValueError, match="`form` must be one of"):
        exported(paying, "mt103")
    paying.settle_payout(1, "paid")
    with pytest.raises(RefusedError, match="payout 1 has no open line"):
        exported(paying, "csv")
    paying.set_payee("new", IBANS[0])
    paying.payout(places=6)
    with pytest.raises(RefusedError, match=r"pain.001 needs whole cents for 'east'; create the payout with places=2"):
        exported(paying, "pain.001", payout=2, **OPERATOR)
    paying.settle_payout(2, "cancelled")
    paying.set_payee("new", "wallet 7")
    paying.payout()
    with pytest.raises(RefusedError, match=r"pain.001 needs an IBAN for 'new', got 'wallet 7'; use the form csv"):
        exported(paying, "pain.001", payout=3, **OPERATOR)
    with Ledger(tmp_path / "credits.db") as ledger:
        ledger.start_run("run", NAMES, RULE, AT_ONCE)
        record(ledger, "run", play(5))
        ledger.set_payee("north", "wallet 7")
        ledger.payout()
        ledger.settle_payout(1, "cancelled", agents=NAMES[1:])
        assert "wallet 7" in exported(ledger, "csv")
        with pytest.raises(RefusedError, match=r"pain.001 is for EUR, and this ledger counts in CREDIT"):
            exported(ledger, "pain.001", **OPERATOR)


def test_account_numbers_are_checked_and_the_last_one_counts(paying: Ledger) -> None:
    for wrong in ("DE89 3704 0044 0532 0130 01", "", "x" * 65, "a\nb"):
        with pytest.raises(ValueError, match="`account` must be an IBAN"):
            paying.set_payee("north", wrong)
    with pytest.raises(RefusedError, match="there is no agent 'nort'"):
        paying.set_payee("nort", IBANS[1])
    assert not paying.set_payee("north", "de89 3704 0044 0532 0130 00", " Ho\u0302pital  north & Co").new
    assert paying.set_payee(" north", IBANS[1]).new
    paying.payout()
    paying.set_payee("north", IBANS[2])
    line = next(line for line in paying.find_payout(1).items if line.agent == "north")
    assert (line.holder, line.account) == ("north", IBANS[1])  # as it was when the payout was made
    assert paying.settle_payout(1, "paid", agents=["north "]).new
    assert paying.verify().problem is None


def fill_to_forge(where: str) -> None:
    fill(where)
    with Ledger(where) as ledger:
        ledger.payout()
        ledger.settle_payout(1, "paid", agents=["north"])
        ledger.settle_payout(1, "bounced", agents=["north", "south"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE payout_lines SET account = 'DE02' WHERE agent = 2", "payout_lines: record 13 must have one line"),
        ("DELETE FROM payout_lines WHERE agent = 2", "payout_lines: record 13 must have one line for each agent"),
        ("UPDATE batches SET minimum = 1000000000", "payout_lines: record 13 must"),
        ("UPDATE batches SET places = 6", "entries: record 13, line 0"),
        ("DELETE FROM payout_lines; DELETE FROM batches", "batches: record 13 (payout) must have one row there"),
        ("UPDATE outcomes SET outcome = 'cancelled' WHERE record = 15 AND agent = 2", "does not have, or twice"),
        ("UPDATE outcomes SET outcome = 'cancelled' WHERE record = 15", "cannot become cancelled any more"),
        ("UPDATE outcomes SET payout = 12", "which is no payout before it"),
        ("UPDATE outcomes SET record = 12 WHERE record = 14", "outcomes: record 12 (enrol) can have no row there"),
    ],
)  # fmt: skip
def test_forged_lines_are_found_even_where_all_hashes_fit(where: str, change: str, message: str) -> None:
    with attacker(prepare(where, fill_to_forge)) as connection:
        if connection.dialect.name == "sqlite":
            for table in ("payout_lines", "batches", "outcomes", "records", "ledger", "payments", "versions"):
                for kind in ("update", "delete"):
                    connection.execute(text(f"DROP TRIGGER IF EXISTS {table}_no_{kind}"))
            from guerdon.ledger.books.definitions import schema_digest

            connection.execute(tables.versions.update().values(schema=schema_digest(connection)))
        for part in change.split("; "):
            connection.execute(text(part))
        reseal(connection)
        assert message in str(verify(connection).problem)


def test_the_command_line_pays_line_by_line(tmp_path: Path) -> None:
    where = str(tmp_path / "guerdon.db")
    fill(where)

    def run(*arguments: str) -> str:
        result = guerdon("ledger", *arguments, "--db", where)
        assert result.code == 0, result.stdout
        return result.stdout

    assert "north is paid to DE02120300000000202051 from now on" in run("payee", "north", "DE02120300000000202051")
    assert "DE02120300000000202051" in run("payout", "create", "--key", "may")
    assert "Payout 1" in run("payout", "create", "--key", "may")
    out = tmp_path / "bank.xml"
    run("payout", "export", "1", "--format", "pain.001", "--name", "Study", "--iban", IBANS[0], "--on", "2026-12-01",
        "--out", str(out))  # fmt: skip
    assert "<Dt>2026-12-01</Dt>" in out.read_text(encoding="utf-8")
    assert "payout 1 is paid" in run("payout", "paid", "1", "--memo", "SEPA 4711")
    assert "the line of south, is bounced" in run("payout", "bounced", "1", "--agent", "south", "--memo", "AC04")
    (batch,) = json.loads(run("payout", "list", "--json"))["payouts"]
    assert (batch["outcome"], batch["reference"]) == ("mixed", "SEPA 4711, AC04")
    assert {line["agent"]: line["reference"] for line in batch["items"]}["south"] == "AC04"
    shown = " ".join(run("payout", "list").split())
    assert "SEPA" in shown
    assert "bounced" in run("payout", "show", "1")
    assert json.loads(run("payout", "show", "1", "--json"))["items"] == batch["items"]
    assert "recorded already" in run("move", "deposit", "north", "1", "--key", "a") + run(
        "move", "deposit", "north", "1", "--key", "a"
    )
