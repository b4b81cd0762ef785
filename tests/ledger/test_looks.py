"""Verified work in the ledger: pay is held, coins are drawn, looks are opened, judged, appealed and settled."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guerdon import FlatPay, gather, round_of
from guerdon.costs import AffineCost
from guerdon.ledger import Ledger, RefusedError
from guerdon.looks import draw
from guerdon.looks.draw import Draw, Reported
from guerdon.looks.outcomes import Outcome
from guerdon.terms import AtOnce, Terms
from tests.ledger.test_tampering import attacker, reseal, unprotect
from tests.support.look_scenes import (
    AUDITOR,
    LOOKS,
    NAMES,
    REQUEST,
    RULE,
    RUN,
    SECOND,
    Clock,
    begin,
    commitment_of,
    draw_coins,
    named,
    nonce_of,
    pass_all,
    play,
    play_period,
    verdict_on,
)

PAY = 9_450_000  # micro-units for a round: the cost, and 5 % of it


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def ledger(where: str, clock: Clock) -> Iterator[Ledger]:
    assert clock.now
    with Ledger(where) as found:
        yield found


def balances(ledger: Ledger) -> dict[str, tuple[int, int]]:
    return {found.agent: (found.balance, found.held) for found in ledger.balances()}


def verified(ledger: Ledger) -> None:
    found = ledger.verify()
    assert found.holds, found.problem


def test_pay_is_held_until_its_looks_have_passed(ledger: Ledger, clock: Clock) -> None:
    begin(ledger)
    play_period(ledger)
    assert balances(ledger) == dict.fromkeys(NAMES, (0, 4 * PAY))
    looks = ledger.looks.open(RUN)
    assert {look.member for look in looks} == set(NAMES)
    assert [look.number for look in looks] == list(range(1, len(looks) + 1))
    assert all(look.deadline == clock.now + 100 for look in looks)
    assert len({frozenset(look.round for look in looks if look.member == name) for name in NAMES}) == 1, (
        "equal pay, equal candidates"
    )
    assert ledger.looks.settle(RUN) == [], "nothing is decided"
    pass_all(ledger)
    done = ledger.looks.settle(RUN)
    released = [(one.member, one.first, one.last, one.released, one.forfeited) for one in done]
    assert released == [(name, 1, 4, 4 * PAY, 0) for name in NAMES]
    assert balances(ledger) == dict.fromkeys(NAMES, (4 * PAY, 0))
    assert ledger.looks.open() == []
    assert [one._replace(record=0) for one in ledger.looks.settled(RUN)] == [one._replace(record=0) for one in done]
    verified(ledger)


def test_a_failed_look_forfeits_to_the_reserve_when_no_appeal_can_come(ledger: Ledger, clock: Clock) -> None:
    begin(ledger)
    play_period(ledger)
    pass_all(ledger, but={"Lyon": Outcome.FAILED})
    done = ledger.looks.settle(RUN)
    assert {one.member for one in done} == {"Basel", "Porto"}
    clock.now += 101
    (lyon,) = ledger.looks.settle(RUN)
    assert (lyon.released, lyon.forfeited) == (0, 4 * PAY)
    assert ledger.common_balances()["reserve"] == 4 * PAY
    assert balances(ledger)["Lyon"] == (0, 0)
    verified(ledger)


def test_an_appeal_is_decided_by_the_second_auditor_alone(ledger: Ledger, clock: Clock) -> None:
    begin(ledger)
    play_period(ledger)
    pass_all(ledger, but={"Lyon": Outcome.FAILED})
    ledger.looks.settle(RUN)
    for look in ledger.looks.open(RUN):
        with pytest.raises(RefusedError, match="must be appealed before a second verdict"):
            ledger.looks.verdict(verdict_on(ledger, look, by=SECOND).to_json(), appeal=True)
        ledger.looks.answer(RUN, look.number, b"b" * 32, appeal=True)
        with pytest.raises(RefusedError, match="signed by the auditor of the terms"):
            ledger.looks.verdict(verdict_on(ledger, look, by=AUDITOR).to_json(), appeal=True)
        clock.now += 50
        ledger.looks.verdict(verdict_on(ledger, look, by=SECOND).to_json(), appeal=True)
    (lyon,) = ledger.looks.settle(RUN)
    assert (lyon.released, lyon.forfeited) == (4 * PAY, 0)
    verified(ledger)


def test_a_member_that_does_not_answer_forfeits_and_a_silent_auditor_releases(ledger: Ledger, clock: Clock) -> None:
    begin(ledger)
    play_period(ledger)
    for look in ledger.looks.open(RUN):
        if look.member != "Porto":
            ledger.looks.answer(RUN, look.number, b"b" * 32)
    clock.now += 101
    assert {one.member for one in ledger.looks.settle(RUN)} == {"Basel", "Lyon"}, "nobody judged them in time"
    assert balances(ledger)["Basel"] == (4 * PAY, 0)
    clock.now += 100
    (porto,) = ledger.looks.settle(RUN)
    assert porto.forfeited == 4 * PAY
    assert set(porto.looks.values()) == {"unanswered"}
    verified(ledger)


def test_an_appeal_counts_only_against_a_failure_in_time_and_where_somebody_decides_it(
    ledger: Ledger, clock: Clock
) -> None:
    begin(ledger, replace(LOOKS, second_auditor=""))
    play_period(ledger)
    pass_all(ledger, but={"Lyon": Outcome.FAILED})
    look = next(look for look in ledger.looks.open(RUN) if look.member == "Lyon")
    with pytest.raises(RefusedError, match="the terms name no second auditor"):
        ledger.looks.answer(RUN, look.number, b"b" * 32, appeal=True)
    clock.now += 101
    assert {one.forfeited for one in ledger.looks.settle(RUN)} == {0, 4 * PAY}


def test_what_is_judged_before_or_after_its_time_is_refused(ledger: Ledger, clock: Clock) -> None:
    begin(ledger)
    play_period(ledger)
    look = ledger.looks.open(RUN)[0]
    with pytest.raises(RefusedError, match="must have failed, or be unanswered, to be appealed"):
        ledger.looks.answer(RUN, look.number, b"b" * 32, appeal=True)
    with pytest.raises(RefusedError, match="must follow an answer"):
        ledger.looks.verdict(verdict_on(ledger, look, Outcome.FAILED).to_json())
    with pytest.raises(RefusedError, match="must not be 'unanswered'"):
        ledger.looks.verdict(verdict_on(ledger, look, Outcome.UNANSWERED, reasons=()).to_json())
    clock.now += 101
    ledger.looks.answer(RUN, look.number, b"b" * 32, appeal=True)
    with pytest.raises(RefusedError, match="was appealed: a verdict must be of the second auditor"):
        ledger.looks.verdict(verdict_on(ledger, look).to_json())
    other = ledger.looks.open(RUN)[1]
    clock.now += 101
    with pytest.raises(RefusedError, match="must be appealed within 100 seconds"):
        ledger.looks.answer(RUN, other.number, b"b" * 32, appeal=True)
    verified(ledger)


def test_settlements_name_the_members_that_they_are_of(ledger: Ledger, clock: Clock) -> None:
    """Members' numbers follow their enrolment, their places follow the run."""
    ledger.enrol(dict.fromkeys(reversed(NAMES)))
    begin(ledger)
    play_period(ledger)
    pass_all(ledger, but={"Basel": Outcome.FAILED})
    clock.now += 101
    done = {one.member: one.forfeited for one in ledger.looks.settle(RUN)}
    assert done == {"Basel": 4 * PAY, "Lyon": 0, "Porto": 0}
    assert balances(ledger)["Basel"] == (0, 0)
    verified(ledger)


def test_nothing_is_settled_while_the_last_record_is_ahead_of_the_clock(ledger: Ledger, clock: Clock) -> None:
    begin(ledger)
    play_period(ledger)
    clock.now += 10**8
    ledger.enrol({"Vigo": None})
    clock.now -= 10**8
    with pytest.raises(RefusedError, match="later than this machine's clock"):
        ledger.looks.settle(RUN)


def test_absences_leaving_and_the_end_of_a_run_settle_what_was_worked(ledger: Ledger) -> None:
    begin(ledger)
    play(ledger, 1)
    play(ledger, 2, absent=["Porto"])
    draw_coins(ledger, 1)
    draw_coins(ledger, 2)
    assert ledger.looks.leave(RUN, ["Porto"]) is not None
    assert {(look.member, look.round) for look in ledger.looks.open(RUN)} == {("Porto", 1)}
    assert ledger.looks.leave(RUN, ["Porto"]) is None, "done again, it changes nothing"
    play(ledger, 3, absent=["Porto"])
    assert ledger.close_run(RUN).record is not None
    assert {look.member for look in ledger.looks.open(RUN)} == {"Porto"}, "round 3 waits for its coins"
    draw_coins(ledger, 3)
    assert {look.member for look in ledger.looks.open(RUN)} == set(NAMES)
    pass_all(ledger)
    assert {one.member: one.released for one in ledger.looks.settle(RUN)} == {
        "Basel": 3 * PAY,
        "Lyon": 3 * PAY,
        "Porto": PAY,
    }
    verified(ledger)


def test_refused_coins_mean_more_looks(ledger: Ledger) -> None:
    begin(ledger)
    for number in (1, 2, 3, 4):
        play(ledger, number)
        draw_coins(ledger, number, refused="auditor" if number == 3 else "server" if number == 2 else "")
    rounds = {look.round for look in ledger.looks.open(RUN) if look.member == "Basel"}
    assert rounds == {4} or {2, 3} <= rounds, "a later coin may replace them, as one round"
    verified(ledger)


def test_everybody_can_draw_the_coins_again(ledger: Ledger) -> None:
    begin(ledger)
    play(ledger, 1)
    draw_coins(ledger, 1)
    (work,) = ledger.looks.work(RUN)
    assert work.used == dict.fromkeys(NAMES, REQUEST)
    with ledger.reading() as connection:
        rows = connection.exec_driver_sql(
            "SELECT agents.name, released, gradient, signature FROM payments JOIN agents ON agents.id = agent"
        ).all()
    reports = draw.reports_hash(Reported(*row) for row in rows)
    nonces = [nonce_of(ledger, role, 1) for role in draw.ROLES]
    told = Draw(ledger.name, RUN, 1, work.named.server, work.named.auditor, reports, *nonces)
    assert draw.coins(told, 2) != draw.coins(told._replace(reports=bytes(32)), 2)


def test_coins_are_drawn_in_order_once_and_as_they_were_committed_to(ledger: Ledger) -> None:
    begin(ledger)
    play(ledger, 1)
    play(ledger, 2)
    with pytest.raises(RefusedError, match="got 2: round 1 comes next"):
        draw_coins(ledger, 2)
    with pytest.raises(RefusedError, match=r"must be what round 1 .* has the commitment of"):
        ledger.looks.draw(RUN, 1, nonce_of(ledger, "server", 2), None)
    draw_coins(ledger, 1)
    assert ledger.looks.draw(RUN, 1, nonce_of(ledger, "server", 1), nonce_of(ledger, "auditor", 1)) is None
    with pytest.raises(RefusedError, match="drawn already, by other nonces"):
        draw_coins(ledger, 1, refused="server")
    draw_coins(ledger, 2)
    with pytest.raises(RefusedError, match="no round waits for coins"):
        draw_coins(ledger, 3)


def test_a_root_that_changes_counts_from_the_next_period_on(ledger: Ledger) -> None:
    begin(ledger)
    play(ledger, 1)
    other = commitment_of(ledger, "Basel").committed()._replace(root=b"r" * 32)
    assert ledger.looks.commit(other) is not None
    assert ledger.looks.commit(other) is None
    assert [change.from_round for change in ledger.looks.changes(RUN)["Basel"]] == [0, 5]
    late = commitment_of(ledger, "Basel").committed()._replace(member="Vigo")
    ledger.looks.commit(late)
    assert [change.from_round for change in ledger.looks.changes(RUN)["Vigo"]] == [3], "round 2 may be open"
    verified(ledger)


def test_a_run_that_goes_on_in_a_new_process_keeps_what_it_holds(ledger: Ledger, where: str) -> None:
    begin(ledger)
    play(ledger, 1)
    with Ledger(where) as other:
        draw_coins(other, 1)
        play(other, 2)
    draw_coins(ledger, 2)
    play_period(ledger, 3, 2)
    assert len(ledger.looks.open(RUN)) >= 3
    verified(ledger)


def test_what_the_ledger_refuses(ledger: Ledger) -> None:
    begin(ledger)
    reports, sent = np.ones((3, 2)), np.ones(3, dtype=bool)
    told = round_of(gather(reports, sent), sent, REQUEST)
    with pytest.raises(RefusedError, match="`work` must be given"):
        ledger.record_round(RUN, 1, told)
    with pytest.raises(RefusedError, match="four values of 32 bytes"):
        ledger.record_round(RUN, 1, told, work=named(ledger, 1)._replace(number=b"1"))
    ledger.start_run("other", NAMES, FlatPay(AffineCost(1, 1)), Terms(AtOnce()))
    with pytest.raises(RefusedError, match="`work` must be None, unless"):
        ledger.record_round("other", 1, told, work=named(ledger, 1))
    with pytest.raises(RefusedError, match="'other' holds no pay until looks"):
        ledger.looks.settle("other")
    with pytest.raises(RefusedError, match="`ledger` of a commitment must be this ledger's name"):
        ledger.looks.commit(commitment_of(ledger, "Basel").committed()._replace(ledger="other"))
    with pytest.raises(RefusedError, match="no agent 'Bern' in run"):
        ledger.looks.leave(RUN, ["Bern"])
    with pytest.raises(RefusedError, match="another `hold`"):
        ledger.start_run(RUN, NAMES, RULE, Terms(AtOnce()))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"look": 99}, "must be one that is open, got 99"),
        ({"round": 77}, "the verdict of another"),
        ({"member": "Lyon"}, "the verdict of another"),
        ({"root": "ab" * 32}, "not of the rows and the report"),
        ({"report": "ab" * 32}, "not of the rows and the report"),
        ({"ledger": "other"}, "must be of this ledger and run"),
        ({"by": SECOND}, "signed by the auditor of the terms"),
    ],
)
def test_a_verdict_on_something_else_is_refused(ledger: Ledger, wrong: dict[str, Any], match: str) -> None:
    begin(ledger)
    play_period(ledger)
    look = next(look for look in ledger.looks.open(RUN) if look.member == "Basel")
    with pytest.raises(RefusedError, match=match):
        ledger.looks.verdict(verdict_on(ledger, look, **wrong).to_json())
    for text in ("", "{}", "[]"):
        with pytest.raises(RefusedError, match="a verdict must be a file that `guerdon look` wrote"):
            ledger.looks.verdict(text)


def test_a_verdict_and_an_answer_count_once(ledger: Ledger) -> None:
    begin(ledger)
    play_period(ledger)
    look = ledger.looks.open(RUN)[0]
    assert ledger.looks.answer(RUN, look.number, b"b" * 32) is not None
    assert ledger.looks.answer(RUN, look.number, b"b" * 32) is None
    with pytest.raises(RefusedError, match="has another in answers already"):
        ledger.looks.answer(RUN, look.number, b"c" * 32)
    text = verdict_on(ledger, look).to_json()
    assert ledger.looks.verdict(text) is not None
    assert ledger.looks.verdict(text) is None
    with pytest.raises(RefusedError, match="has another in verdicts already"):
        ledger.looks.verdict(verdict_on(ledger, look, Outcome.FAILED).to_json())


TAMPERED = {
    "a draw that is not the coin's": ("UPDATE draws SET server_nonce = zeroblob(32) WHERE round = 2", "draws"),
    "a refusal that never was": (
        "UPDATE draws SET server_nonce = NULL WHERE round = 2",
        "draws|verdicts|answers|settled",
    ),
    "a release without a verdict": ("DELETE FROM verdicts WHERE look = 1", "verdicts"),
    "another amount": ("UPDATE settled SET released = released + 1", "settled"),
    "another verdict": ("UPDATE verdicts SET text = replace(text, 'passed', 'failed')", "verdicts"),
    "another root": ("UPDATE commitments SET root = zeroblob(32)", "verdicts"),
    "a later root": ("UPDATE commitments SET from_round = 1", "commitments"),
    "another holding": ("UPDATE holdings SET text = replace(text, 'opened\":', 'opened\": ')", "holdings"),
    "a period forgotten": ("DELETE FROM settled WHERE agent = 1", "settled"),
    "somebody else's report": ("UPDATE payments SET gradient = zeroblob(32) WHERE agent = 1", "draws|verdicts|answers"),
}


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_changed_afterwards_is_found_even_with_new_hashes(tmp_path: Path, what: str) -> None:
    path = str(tmp_path / "guerdon.db")
    with Ledger(path) as ledger:
        begin(ledger)
        play_period(ledger)
        pass_all(ledger)
        ledger.looks.settle(RUN)
        play(ledger, 5)
        verified(ledger)
    unprotect(path)
    change, where = TAMPERED[what]
    with attacker(path, keeps=True) as connection:
        connection.exec_driver_sql(change)
        reseal(connection)
    with Ledger(path, read_only=True) as ledger:
        found = ledger.verify()
    assert not found.holds
    assert any(name in str(found.problem) for name in where.split("|")), found.problem


def test_numbers_of_rounds_are_in_the_chain(tmp_path: Path, clock: Clock) -> None:
    path = str(tmp_path / "guerdon.db")
    with Ledger(path) as ledger:
        begin(ledger)
        play(ledger, clock.now and 1)
    unprotect(path)
    with attacker(path, keeps=True) as connection:
        connection.exec_driver_sql("UPDATE named SET number = zeroblob(32)")
    with Ledger(path, read_only=True) as ledger:
        assert "contents of record" in str(ledger.verify().problem)


@pytest.mark.usefixtures("clock")
def test_a_settlement_that_came_too_early_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator who runs other code can write anything that is hashed well: what decides is recomputed."""
    path = tmp_path / "guerdon.db"
    with Ledger(path) as ledger, monkeypatch.context() as patch:
        begin(ledger)
        play_period(ledger)
        patch.setattr("guerdon.looks.periods.decided", lambda *_: Outcome.PASSED)
        assert len(ledger.looks.settle(RUN)) == 3
    with Ledger(path, read_only=True) as ledger:
        assert "settled: record" in str(ledger.verify().problem)


def test_held_pay_says_why_and_until_when(ledger: Ledger) -> None:
    begin(ledger)
    play(ledger, 1)
    draw_coins(ledger, 1)
    (held,) = ledger.held("Basel")
    assert held.words == "9.45 held in run knee for round 1, until the looks of round 4"
    ledger.looks.leave(RUN, ["Basel"])
    (held,) = ledger.held("Basel")
    assert held.words == "9.45 held in run knee for round 1, until one open look is decided"


def test_the_statement_says_what_is_held_and_what_the_looks_came_to(ledger: Ledger, clock: Clock) -> None:
    begin(ledger)
    play_period(ledger)
    pass_all(ledger, but={"Lyon": Outcome.FAILED})
    clock.now += 101
    ledger.looks.settle(RUN)
    count = len(ledger.looks.settled(RUN)[0].looks)
    lines = ledger.statement("Basel").lines
    assert "9.45 of it held until the looks of round 4" in lines[0].why
    assert lines[-1].why == f"knee, rounds 1 to 4: {count} of {count} looks passed; 37.80 released"
    assert lines[-1].change == 4 * PAY
    lost = ledger.statement("Lyon").lines[-1]
    assert lost.why.startswith(f"knee, rounds 1 to 4: 0 of {count} looks passed (round ")
    assert lost.why.endswith("; 37.80 forfeited to the reserve")
    assert (lost.change, lost.held, lost.balance) == (0, 0, 0)


def test_what_is_recorded_can_be_read_by_anybody(ledger: Ledger) -> None:
    begin(ledger)
    play_period(ledger)
    text = verdict_on(ledger, ledger.looks.open(RUN)[0]).to_json()
    ledger.looks.verdict(text)
    with ledger.reading() as connection:
        kept = connection.exec_driver_sql("SELECT text FROM verdicts").scalar_one()
    assert json.loads(kept)["verdict"]["outcome"] == "passed"
