"""What people read of a run under looks: statements, balances, earnings and stakes say what is held, and why."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from guerdon.ledger import Ledger, RefusedError
from guerdon.ledger.read.looked import HELD, run_looks
from guerdon.ledger.read.render import statement_pieces
from tests.support.command_line import run as guerdon
from tests.support.look_scenes import LOOKS, NAMES, RUN, Clock, begin, draw_coins, play, watched

PAY = 9_450_000


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger of eleven rounds: see `watched`."""
    found, clock = tmp_path / "guerdon.db", Clock(monkeypatch)
    with Ledger(found) as ledger:
        watched(ledger, clock)
    return found


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger(path) as found:
        yield found


def statement(ledger: Ledger, member: str, form: str) -> str:
    with ledger.reading() as connection:
        return "".join(statement_pieces(connection, member, form))


def test_held_pay_is_told_period_by_period(ledger: Ledger) -> None:
    (held,) = ledger.held("Lyon")
    parts = (
        "37.80 for rounds 5 to 8, until one open look is decided; 28.35 for rounds 9 to 11, until the looks of round"
    )
    assert held.words == f"66.15 held in run knee: {parts} 12"
    assert [(one.first, one.last, one.amount, one.ends) for one in held.periods] == [
        (5, 8, 4 * PAY, None),
        (9, 11, 3 * PAY, 12),
    ]
    assert held.amount == sum(one.amount for one in held.periods)


def test_held_pay_whose_coins_are_not_drawn_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    with Ledger(tmp_path / "other.db") as ledger:
        begin(ledger)
        play(ledger, 1, is_last=True)
        assert ledger.statement("Basel").lines[0].why.endswith("9.45 of it held until the looks of round 1")
        (held,) = ledger.held("Basel")
        assert held.words.endswith("for round 1, until the coins of its rounds are drawn, which say what is looked at")
        draw_coins(ledger, 1)
        assert "open look" in ledger.held("Basel")[0].words


def test_a_look_says_what_it_waits_for(ledger: Ledger) -> None:
    with ledger.reading() as connection:
        found = run_looks(connection, RUN)
        own = run_looks(connection, RUN, 2)
    assert {one.member: one.awaited.by for one in found.open} == dict(
        zip(NAMES, ("member", "appeal", "auditor"), strict=True)
    )
    assert (found.held, found.released, found.forfeited) == (21 * PAY, 8 * PAY, 4 * PAY)
    assert found.held + found.released + found.forfeited == 33 * PAY, "every round of every member"
    assert found.waiting == [
        "113.40 of 3 members until their open looks are decided",
        "85.05 of 3 members until the looks of round 12",
    ]
    assert [(one.member, one.passed, one.forfeited) for one in found.settled] == [
        ("Basel", 2, 0),
        ("Lyon", 0, 4 * PAY),
        ("Porto", 2, 0),
    ]
    assert (own.held, own.released, own.forfeited, own.settled_total) == (7 * PAY, 0, 4 * PAY, 1)
    assert {one.member for one in (*own.open, *own.settled)} == {"Lyon"}


def test_a_payment_is_not_called_paid_while_looks_hold_it(ledger: Ledger) -> None:
    assert {slip.status for slip in ledger.payslips(RUN)} == {HELD}
    assert {slip.held for slip in ledger.payslips(RUN)} == {"until the looks of round 12"}
    told = ledger.payslips(RUN, 3)[0].why
    assert (
        told == "9 for the 8 samples asked for, plus 0.45 (a margin of 5 %); 9.45 of it held until the looks of round 4"
    )
    assert {line.status for line in ledger.statement("Basel").lines if line.round} == {HELD}


def test_statements_have_one_total_for_each_meaning(ledger: Ledger) -> None:
    told = {name: json.loads(statement(ledger, name, "json")) for name in NAMES}
    amounts = ("earned", "balance", "held", "released", "forfeited")
    assert [told["Lyon"][kind] for kind in amounts] == ["66.150000", "0.000000", "66.150000", "0.000000", "37.800000"]
    assert [told["Porto"][kind] for kind in amounts] == [
        "103.950000",
        "37.800000",
        "66.150000",
        "37.800000",
        "0.000000",
    ]
    assert told["Lyon"]["holds"][0]["why"] == ledger.held("Lyon")[0].words
    page = statement(ledger, "Lyon", "html")
    assert "<b>37.80</b><span>forfeited in failed looks</span>" in page
    assert "released by looks" not in page, "none was"
    assert "is <b>forfeited</b> to the reserve" in page
    assert 'class="held' not in page
    assert "37.80 forfeited in failed looks\n" in statement(ledger, "Lyon", "text")
    assert "37.80 released by looks, in all\n" in statement(ledger, "Porto", "text")


def test_balances_and_earnings_show_what_was_forfeited(path: Path) -> None:
    shown = " ".join(guerdon("ledger", "balances", "--db", str(path)).output.split())
    assert "Earned in all 274.05," in shown
    assert "Failed looks forfeited 37.80: it lies in the reserve." in shown
    told = json.loads(guerdon("ledger", "balances", "--db", str(path), "--json").stdout)
    assert [row["forfeited"] for row in told["agents"]] == ["0.000000", "37.800000", "0.000000"]
    assert [row["released"] for row in told["agents"]] == ["37.800000", "0.000000", "37.800000"]
    assert [row["forfeited"] for row in told["pay_against_cost"]] == [0.0, 37.8, 0.0]
    assert sum(float(row["earned"]) for row in told["agents"]) == pytest.approx(274.05)
    with Ledger(path) as ledger:
        assert ledger.earnings(RUN)[1].words.endswith("in 11 rounds; failed looks forfeited 37.8")
        assert "forfeited" not in ledger.earnings(RUN)[0].words


def test_without_looks_nothing_of_them_is_shown(tmp_path: Path) -> None:
    with Ledger(tmp_path / "plain.db") as ledger:
        ledger.enrol({"Basel": None})
        assert "forfeited" not in statement(ledger, "Basel", "html")
        assert "forfeited" not in statement(ledger, "Basel", "text")
    assert "forfeited" not in guerdon("ledger", "balances", "--db", str(tmp_path / "plain.db")).output


def test_looks_cover_a_run_and_no_deposit_has_to(path: Path) -> None:
    shown = guerdon("ledger", "stakes", RUN, "--db", str(path))
    assert shown.code == 0
    assert shown.output.startswith("Looks, not deposits, cover run 'knee': all pay is held until some of its rounds")
    told = json.loads(guerdon("ledger", "stakes", "--db", str(path), "--json").stdout)
    assert (told["run"], told["covered_by"]) == (RUN, "looks")
    with Ledger(path) as ledger, pytest.raises(RefusedError, match="looks, not deposits, cover run 'knee'"):
        ledger.stakes(RUN)


def test_the_end_of_a_period_follows_the_first_round() -> None:
    assert [LOOKS.end_of_period(number, first=3) for number in range(3, 12)] == [6] * 4 + [10] * 4 + [14]
    assert all(LOOKS.ends_period(LOOKS.end_of_period(number, first), first) for first in (0, 1, 3) for number in (3, 9))
