"""Periods: what is held until looks, over every order of rounds, coins, leavings, answers, verdicts and appeals."""

import json
import random

import pytest

from guerdon.looks import periods
from guerdon.looks.draw import BITS
from guerdon.looks.outcomes import Outcome
from guerdon.terms import Looks

SECOND = "cd" * 32
TERMS = Looks(period=4, looks=2, answer=10, verdict=10, appeal=10, second_auditor=SECOND)


def play(rounds: int, weights: tuple[int, ...], terms: Looks = TERMS) -> periods.Watched:
    """Play rounds whose coins are drawn at once: the first look keeps the last round, the second the first."""
    state = periods.begin(len(weights))
    for number in range(1, rounds + 1):
        state = periods.after_round(state, terms, number, weights, number, is_last=number == rounds)
        state = periods.drawn(state, number, [0, 2**BITS - 1][: terms.looks], number)
    return state


def test_a_period_ends_for_all_and_its_looks_are_opened_with_its_last_coin():
    state = periods.begin(2)
    for number in (1, 2, 3):
        state = periods.after_round(state, TERMS, number, (5, 7), 100, is_last=False)
    assert periods.next_draw(state) == 1, "coins may come late, but in order"
    for number in (1, 2, 3):
        state = periods.drawn(state, number, [0, 2**BITS - 1], 100)
    state = periods.after_round(state, TERMS, 4, (5, 7), 200, is_last=False)
    assert periods.open_looks(state) == [], "round 4 has no coins yet"
    state = periods.drawn(state, 4, [0, 2**BITS - 1], 300)
    looks = [(place, look.number, look.round, look.asked.opened) for place, look in periods.open_looks(state)]
    assert looks == [(0, 1, 1, 300), (0, 2, 4, 300), (1, 3, 1, 300), (1, 4, 4, 300)]
    state = periods.after_round(state, TERMS, 5, (5, 7), 400, is_last=False)
    assert state.held.tolist() == [25, 35], "the next period goes on beside it"


def test_a_member_that_is_paid_nothing_has_no_look():
    state = play(4, (5, 0))
    assert {place for place, _ in periods.open_looks(state)} == {0}
    assert state.held.tolist() == [20, 0]


def test_a_last_round_that_pays_nobody_opens_the_looks_of_those_before():
    state = periods.drawn(periods.after_round(periods.begin(1), TERMS, 1, (5,), 1, is_last=False), 1, [0, 0], 1)
    state = periods.after_round(state, TERMS, 2, (0,), 9, is_last=True)
    assert [look.asked.opened for _, look in periods.open_looks(state)] == [9]


def test_leaving_ends_a_period_at_once_and_only_of_those_who_leave():
    state = periods.begin(2)
    state = periods.drawn(periods.after_round(state, TERMS, 1, (5, 5), 1, is_last=False), 1, [0, 0], 1)
    state = periods.leave(state, [1], 50)
    assert [(place, look.round, look.asked.opened) for place, look in periods.open_looks(state)] == [(1, 1, 50)]
    again = periods.after_round(state, TERMS, 2, (5, 5), 60, is_last=False)
    assert [len(own) for own in again.members] == [1, 2], "one that comes back begins another period"


def test_a_first_round_with_the_number_0_counts_the_period_from_there():
    state = periods.begin(1)
    for number in range(4):
        state = periods.after_round(state, TERMS, number, (1,), 0, is_last=False)
    assert state.members[0][0].ended


def test_what_is_decided_is_released_or_forfeited_once():
    state = play(4, (10, 10))
    (place, first), (_, second) = periods.open_looks(state)[:2]
    state = periods.answered(state, first.number, TERMS, 10, appeal=False)
    state = periods.answered(state, second.number, TERMS, 10, appeal=False)
    state = periods.judged(state, first.number, Outcome.PASSED, 12, appeal=False)
    state = periods.judged(state, second.number, Outcome.FAILED, 12, appeal=False)
    assert periods.settle(state, TERMS, 22)[0] == [], "it can be appealed until 22"
    (done, other), after = periods.settle(state, TERMS, 25)
    assert (done.place, done.settlement.released, done.settlement.forfeited) == (place, 20, 20)
    assert other.settlement.forfeited == 40, "the other member did not answer, and nobody appealed"
    assert after.held.tolist() == [0, 0]
    assert periods.settle(after, TERMS, 10**6)[0] == []


def test_an_appeal_that_is_not_decided_keeps_everything_where_it_is():
    state = play(4, (10,), Looks(period=4, looks=1, answer=10, verdict=10, appeal=10, second_auditor=SECOND))
    ((_, look),) = periods.open_looks(state)
    state = periods.answered(state, look.number, TERMS, 5, appeal=False)
    state = periods.judged(state, look.number, Outcome.FAILED, 6, appeal=False)
    state = periods.answered(state, look.number, TERMS, 7, appeal=True)
    terms = Looks(period=4, looks=1, answer=10, verdict=10, appeal=10, second_auditor=SECOND)
    assert periods.settle(state, terms, 17)[0] == []
    state = periods.judged(state, look.number, Outcome.PASSED, 17, appeal=True)
    ((done,), _) = periods.settle(state, terms, 17)
    assert done.settlement.released == 40


def test_what_is_refused():
    state = play(4, (10,))
    number = periods.open_looks(state)[0][1].number
    answered = periods.answered(state, number, TERMS, 5, appeal=False)
    with pytest.raises(ValueError, match="answered once"):
        periods.answered(answered, number, TERMS, 6, appeal=False)
    with pytest.raises(ValueError, match="got 99"):
        periods.answered(state, 99, TERMS, 5, appeal=False)
    with pytest.raises(ValueError, match="appealed before"):
        periods.judged(state, number, Outcome.PASSED, 5, appeal=True)


def test_nothing_is_lost_whatever_happens_and_the_state_can_be_kept():
    for seed in range(60):
        chance, state, paid, moved = random.Random(seed), periods.begin(3), 0, 0
        number = now = 0
        for _ in range(60):
            now += chance.randrange(4)
            what = chance.randrange(6)
            if what <= 1:
                number += 1
                weights = [chance.choice([0, 0, 3, 17]) for _ in range(3)]
                state = periods.after_round(state, TERMS, number, weights, now, is_last=chance.random() < 0.05)
                paid += sum(weights)
            elif what == 2 and (drawn := periods.next_draw(state)) is not None:
                coins = [None if chance.random() < 0.2 else chance.getrandbits(BITS) for _ in range(2)]
                state = periods.drawn(state, drawn, coins, now)
            elif what == 3:
                state = periods.leave(state, [chance.randrange(3)], now)
            elif looks := periods.open_looks(state):
                _, look = chance.choice(looks)
                if look.asked.answered is None:
                    state = periods.answered(state, look.number, TERMS, now, appeal=False)
                elif look.asked.verdict is None:
                    state = periods.judged(state, look.number, chance.choice(list(Outcome)[:2]), now, appeal=False)
            done, state = periods.settle(state, TERMS, now)
            released, forfeited = periods.amounts(done, 3)
            moved += int(released.sum() + forfeited.sum())
            assert int(state.held.sum()) + moved == paid
            assert periods.from_plain(json.loads(json.dumps(periods.to_plain(state)))) == state
        looked = {look.round for _, look in periods.open_looks(state)}
        assert looked <= periods.kept_rounds(state), "what is looked at is still there"
