"""Terms are checked, looks are decided once, and every micro-unit that was held is released or forfeited."""

from typing import Any

import pytest

from guerdon.looks.draw import Candidates
from guerdon.looks.outcomes import Asked, Decision, Outcome, awaited, decided, settled
from guerdon.terms import Looks

TERMS = Looks(answer=10, verdict=20, appeal=30)
PASSED, FAILED, UNANSWERED, SILENT = Outcome.PASSED, Outcome.FAILED, Outcome.UNANSWERED, Outcome.SILENT


@pytest.mark.parametrize(
    ("given", "error", "complaint"),
    [
        ({"period": 0}, ValueError, "`period` must be a positive integer, got 0"),
        ({"looks": 1.5}, TypeError, "`looks` must be a positive integer, got 1.5"),
        ({"margin": -0.1}, ValueError, "`margin` must be a finite number of at least 0, got -0.1"),
        ({"forfeit": "half"}, ValueError, "`forfeit` must be one of 'share', 'all', got 'half'"),
        ({"answer": 0}, ValueError, "`answer` must be a positive integer, got 0"),
        ({"verdict": 0}, ValueError, "`verdict` must be a positive integer, got 0"),
        ({"appeal": True}, TypeError, "`appeal` must be a positive integer, got True"),
        ({"auditor": "abc"}, ValueError, "`auditor` must be an Ed25519 public key, 64 hexadecimal digits"),
        ({"auditor": "AB" * 32}, ValueError, "`auditor` must be an Ed25519 public key"),
        ({"second_auditor": "ab" * 31}, ValueError, "`second_auditor` must be an Ed25519 public key"),
        ({"auditor": "ab" * 32, "second_auditor": "ab" * 32}, ValueError, "`second_auditor` must be another"),
        ({"forfeited_to": ""}, ValueError, "`forfeited_to` must say what forfeited money is for, got ''"),
    ],
)
def test_terms_that_make_no_sense_are_refused(given: dict[str, Any], error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        Looks(**given)


def test_pay_is_exact_and_rounded_half_to_even() -> None:
    assert Looks(margin=0.05).pay(17_000_000) == 17_850_000
    assert [Looks(margin=0.05).pay(cost) for cost in (10, 30, 9, 11)] == [10, 32, 9, 12]
    assert Looks(margin=0.1).pay(10**15 + 5) == 1_100_000_000_000_006, "5.5 becomes 6; floats would not know it"
    assert Looks(margin=0).pay(7) == 7
    assert Looks().weight(pay=-3, cost=17) == 17
    assert Looks().weight(pay=30, cost=17) == 30


def test_periods_end_together() -> None:
    terms = Looks(period=3)
    assert [round for round in range(1, 8) if terms.ends_period(round)] == [3, 6]
    assert [round for round in range(8) if terms.ends_period(round, first=0)] == [2, 5]


# A look's life.


@pytest.mark.parametrize(
    ("asked", "history"),
    [
        # opened at 0; the answer is due at 10, an appeal 30 after the verdict, a verdict 20 after what it is on
        (Asked(0), [(10, None), (11, None), (40, None), (41, UNANSWERED)]),
        (Asked(0, 11), [(11, None), (41, UNANSWERED)]),
        (Asked(0, 10), [(30, None), (31, SILENT)]),
        (Asked(0, 10, Decision(PASSED, 30)), [(30, PASSED), (99, PASSED)]),
        (Asked(0, 10, Decision(Outcome.UNREPEATABLE, 30)), [(30, Outcome.UNREPEATABLE)]),
        (Asked(0, 10, Decision(FAILED, 31)), [(31, SILENT)]),
        (Asked(0, 10, Decision(FAILED, 30)), [(60, None), (61, FAILED)]),
        (Asked(0, 10, Decision(UNANSWERED, 30)), [(30, None), (31, SILENT)]),
        (Asked(0, 11, Decision(PASSED, 12)), [(12, PASSED)]),
        (Asked(0, None, Decision(UNANSWERED, 5)), [(10, None), (40, None), (41, UNANSWERED)]),
        (Asked(0, None, Decision(FAILED, 5)), [(10, None), (41, UNANSWERED)]),
        (Asked(0, 10, Decision(FAILED, 30), 60), [(80, None), (81, SILENT)]),
        (Asked(0, 10, Decision(FAILED, 30), 61), [(61, FAILED)]),
        (Asked(0, 10, Decision(FAILED, 30), 60, Decision(PASSED, 80)), [(80, PASSED)]),
        (Asked(0, 10, Decision(FAILED, 30), 60, Decision(FAILED, 80)), [(80, FAILED)]),
        (Asked(0, 10, Decision(FAILED, 30), 60, Decision(FAILED, 81)), [(81, SILENT)]),
        (Asked(0, None, None, 40, Decision(PASSED, 50)), [(50, PASSED)]),
        (Asked(0, None, None, 41, Decision(PASSED, 50)), [(50, UNANSWERED)]),
    ],
)
def test_a_look_is_open_until_nothing_can_change_it(asked: Asked, history: list[tuple[int, Outcome | None]]) -> None:
    assert [(now, decided(asked, TERMS, now)) for now, _ in history] == history


def test_only_what_the_member_did_forfeits() -> None:
    assert {outcome for outcome in Outcome if outcome.forfeits} == {FAILED, UNANSWERED}


# Settlement.


@pytest.mark.parametrize("weight", [100, 101, 1, 0])
@pytest.mark.parametrize("failures", [0, 1, 2, 3])
def test_every_micro_unit_is_released_or_forfeited(weight: int, failures: int) -> None:
    state = Candidates(weight, ((1,), (2,), (3,)) if weight else ((), (), ()))
    outcomes = {number: FAILED if number <= failures else PASSED for number in (1, 2, 3)}
    share, everything = (settled(Looks(forfeit=forfeit), state, outcomes) for forfeit in ("share", "all"))
    assert share.released + share.forfeited == everything.released + everything.forfeited == weight
    assert share.forfeited == weight * failures // 3
    assert everything.forfeited == (weight if failures else 0)
    assert share.failed == everything.failed == tuple(weight > 0 and number <= failures for number in (1, 2, 3))


def test_one_round_may_be_the_candidate_of_two_looks() -> None:
    state = Candidates(100, ((4,), (4,)))
    assert state.due == (4,)
    assert settled(Looks(), state, {4: FAILED}).released == 0
    assert settled(Looks(), state, {4: SILENT}).released == 100


def test_a_look_at_two_rounds_fails_where_one_does() -> None:
    state = Candidates(100, ((1, 4), (4,)))
    assert settled(Looks(), state, {1: UNANSWERED, 4: PASSED}) == (50, 50, (True, False))


def test_nothing_is_settled_before_all_is_decided() -> None:
    with pytest.raises(ValueError, match=r"got none for \[4\]: wait"):
        settled(Looks(), Candidates(100, ((1,), (4,))), {1: PASSED})


@pytest.mark.parametrize(
    ("asked", "now", "by", "until", "words"),
    [
        (Asked(0), 10, "member", 10, "the member must open its rows by 1970-01-01 00:00 UTC, else the look counts as"),
        (Asked(0, 5), 25, "auditor", 25, "the auditor must sign a verdict by"),
        (Asked(0), 11, "appeal", 40, "unanswered; the member may appeal by"),
        (Asked(0, 5, Decision(FAILED, 9)), 9, "appeal", 39, "failed; the member may appeal by"),
        (
            Asked(0, 5, Decision(FAILED, 9), 20),
            21,
            "second auditor",
            40,
            "failed and appealed; the second auditor must",
        ),
        (Asked(0, 5, Decision(PASSED, 9)), 9, "", None, "passed; its period is settled when all its looks are decided"),
        (Asked(0, 5), 26, "", None, "auditor silent; its period is settled"),
        (Asked(0, 5, Decision(FAILED, 9)), 40, "", None, "failed; its period is settled"),
    ],
)
def test_what_a_look_waits_for_is_said(asked: Asked, now: int, by: str, until: int | None, words: str) -> None:
    found = awaited(asked, TERMS, now)
    assert (found.by, found.until) == (by, until)
    assert found.words.startswith(words)
    assert (found.until is None) == (decided(asked, TERMS, now) is not None)
    if until is not None:  # and what it waits for is over one second later
        assert awaited(asked, TERMS, until + 1) != found
