"""Named rows: each once before any again, every order equally likely, nothing known before the seed, one counter."""

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.looks.naming import Deck, Seeds, Used, member_seeds, named_rows, new_number, rows_used, used_before
from guerdon.looks.opening import Committed, RootChange

NAMES: dict[str, Any] = {"ledger": "heart", "run": "run 1", "round": 7, "member": "Bern"}

SEED = "bcfcfa3f697d9a8321646e967f7c9fbb9866b58b77f23ea3adc238af6d526b4b"
WORK = 2146482908723813088
FIVE = [174, 142, 528, 326, 575]


def seed_of(*what: int) -> bytes:
    return hashlib.sha256(repr(what).encode()).digest()


def slow_names(seed: bytes, size: int, used: Sequence[tuple[bytes, int]], count: int) -> list[int]:
    """A list of the cards that are left, shuffled as Fisher and Yates did it, and filled up when it is empty."""
    left: list[int] = []

    def deal(words: bytes, number: int) -> list[int]:
        cards: list[int] = []
        stream = hashlib.shake_256(b"guerdon rows 1" + words).digest(8 * number)
        for at in range(0, 8 * number, 8):
            if not left:
                left.extend(range(size))
            place = int.from_bytes(stream[at : at + 8], "little") % len(left)
            left[0], left[place] = left[place], left[0]
            cards.append(left.pop(0))
        return cards

    for earlier, rows in used:
        deal(earlier, rows)
    return deal(seed, count)


ROUNDS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=8)


@given(st.integers(1, 25), ROUNDS, st.integers(1, 60))
def test_names_are_those_of_the_shuffle(size: int, rounds: list[tuple[int, int]], count: int) -> None:
    used = [Used(seed_of(i, seed), rows) for i, (seed, rows) in enumerate(rounds)]
    names = named_rows(seed_of(99), size, used, count).tolist()
    assert names == slow_names(seed_of(99), size, used, count)
    deck = Deck(size)
    for earlier, rows in used:
        deck.deal(earlier, rows)
    assert deck.peek(seed_of(99), count).tolist() == deck.deal(seed_of(99), count).tolist() == names


@given(st.integers(1, 25), st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1)), min_size=1, max_size=12))
def test_each_row_is_used_once_before_any_is_used_again(size: int, rounds: list[tuple[int, float]]) -> None:
    """Members use any part of what is named, also nothing; rounds reach into the next pass, and through several."""
    used: list[Used] = []
    cards: list[int] = []
    for t, (count, share) in enumerate(rounds):
        seed, rows = seed_of(t), round(share * count)
        cards += named_rows(seed, size, used, count).tolist()[:rows]
        used.append(Used(seed, rows))
    assert rows_used(used) == len(cards)
    for start in range(0, len(cards), size):
        this_pass = cards[start : start + size]
        assert len(set(this_pass)) == len(this_pass)
        assert set(this_pass) <= set(range(size))


@given(st.integers(1, 25), ROUNDS, st.integers(1, 60), st.integers(1, 60))
def test_fewer_rows_are_the_first_of_more(size: int, rounds: list[tuple[int, int]], less: int, more: int) -> None:
    """So "the first S of the named rows" is the same whatever was asked for."""
    used = [Used(seed_of(i, seed), rows) for i, (seed, rows) in enumerate(rounds)]
    few, many = (named_rows(seed_of(99), size, used, count).tolist() for count in sorted((less, more)))
    assert few == many[: len(few)]


def test_a_round_may_reach_into_the_next_pass_and_go_through_several() -> None:
    used = [Used(seed_of(0), 4)]
    first = named_rows(seed_of(0), 6, [], 4).tolist()
    names = named_rows(seed_of(1), 6, used, 15).tolist()
    assert sorted(first + names[:2]) == sorted(names[2:8]) == sorted(names[8:14]) == list(range(6))
    assert Counter(named_rows(seed_of(2), 6, [], 15).tolist()).keys() == set(range(6))
    assert named_rows(seed_of(3), 1, used, 3).tolist() == [0, 0, 0]


def test_a_declined_round_leaves_its_rows_in_the_deck() -> None:
    """It is as if it had not been; and what a member did not use of the named rows is not lost either."""
    used = [Used(seed_of(0), 5)]
    declined = [*used, Used(seed_of(1), 0)]
    np.testing.assert_array_equal(named_rows(seed_of(2), 20, declined, 8), named_rows(seed_of(2), 20, used, 8))
    named = named_rows(seed_of(1), 20, used, 8)
    rest = named_rows(seed_of(2), 20, [*used, Used(seed_of(1), 3)], 12)  # all that is left
    assert set(named[3:].tolist()) < set(rest.tolist())
    assert not set(named[:3].tolist()) & set(rest.tolist())


# A test of uniformity is worth what it finds: it is told of dealers that are not quite fair.
DEALS = 15_000
Dealer = Callable[[int], tuple[int, ...]]


def excess(deal: Dealer, outcomes: Sequence[tuple[int, ...]]) -> float:
    """Return χ² of the outcomes of many deals against equal chances, in its standard deviations above its mean."""
    counts, expected = Counter(map(deal, range(DEALS))), DEALS / len(outcomes)
    assert counts.keys() <= set(outcomes)
    chi2 = sum((counts[outcome] - expected) ** 2 for outcome in outcomes) / expected
    freedom = len(outcomes) - 1
    return (chi2 - freedom) / math.sqrt(2 * freedom)


def in_rounds(*rows: int) -> Dealer:
    """Return a dealer of a whole pass in some rounds, each with its own seed."""

    def deal(number: int) -> tuple[int, ...]:
        used: list[Used] = []
        cards: list[int] = []
        for t, count in enumerate(rows):
            cards += named_rows(seed_of(number, t), sum(rows), used, count).tolist()
            used.append(Used(seed_of(number, t), count))
        return tuple(cards)

    return deal


def unfair(number: int) -> tuple[int, ...]:
    """The famous wrong shuffle: each card changes places with any of all."""
    cards = list(range(5))
    words = hashlib.shake_256(seed_of(number)).digest(40)
    for i in range(5):
        j = int.from_bytes(words[8 * i : 8 * i + 8]) % 5
        cards[i], cards[j] = cards[j], cards[i]
    return tuple(cards)


def slightly_unfair(number: int) -> tuple[int, ...]:
    """A fair shuffle but for one deal in twenty, whose first card is 0."""
    cards = in_rounds(5)(number)
    return cards if number % 20 else (0, *(card for card in cards if card))


@pytest.mark.parametrize("rows", [(5,), (2, 1, 2), (1, 1, 1, 1, 1), (4, 1)])
def test_every_order_of_a_pass_is_equally_likely(rows: tuple[int, ...]) -> None:
    assert abs(excess(in_rounds(*rows), list(itertools.permutations(range(5))))) < 4


@pytest.mark.parametrize("dealer", [unfair, slightly_unfair])
def test_an_unfair_dealer_would_be_seen(dealer: Dealer) -> None:
    assert excess(dealer, list(itertools.permutations(range(5)))) > 8


def test_rows_of_a_large_deck_are_equally_likely() -> None:
    """Of 1,000 rows the 500th and 501st of a pass, whose seed comes after all others: any of those that are left."""
    used = [Used(seed_of(0), 499)]
    gone = set(named_rows(seed_of(0), 1000, [], 499).tolist())
    left = [row for row in range(1000) if row not in gone]
    deck = Deck(1000)
    deck.deal(seed_of(0), 499)
    first, second = np.array([deck.peek(seed_of(1, i), 2) for i in range(DEALS)]).T
    assert deck.peek(seed_of(1, 0), 2).tolist() == named_rows(seed_of(1, 0), 1000, used, 2).tolist()
    for cards in (first, second):
        assert abs(excess(lambda i, cards=cards: (int(cards[i]),), [(row,) for row in left])) < 4
    # Neither says anything about the other: correlation within 4 standard errors of −1/500.
    assert abs(np.corrcoef(first, second)[0, 1] + 1 / 500) < 4 / math.sqrt(DEALS)


def test_what_is_named_next_depends_on_the_seed_that_is_asked_with() -> None:
    """With all earlier seeds known: 200 next seeds name 200 different sets of 8 of the 80 rows that are left."""
    used = [Used(seed_of(t), 10) for t in range(2)]
    named = {tuple(named_rows(seed_of(9, i), 100, used, 8).tolist()) for i in range(200)}
    assert len(named) == 200


def test_seeds_are_bound_to_ledger_run_round_and_member() -> None:
    number = new_number()
    changes: list[dict[str, Any]] = [{}, {"ledger": "x"}, {"run": "x"}, {"round": 8}, {"member": "Basel"}]
    seeds = [member_seeds(number, **{**NAMES, **change}) for change in changes]
    seeds.append(member_seeds(new_number(), **NAMES))
    assert len({seed.rows for seed in seeds}) == len({seed.work for seed in seeds}) == 6
    assert member_seeds(number, **NAMES) == seeds[0]
    names = [tuple(named_rows(seed.rows, 10**6, [], 16).tolist()) for seed in seeds]
    assert len(set(names)) == 6


def test_seeds_are_those_that_were_recorded() -> None:
    """A change here would name other rows for every recorded round."""
    assert member_seeds(bytes(32), **NAMES) == Seeds(bytes.fromhex(SEED), WORK)
    assert named_rows(bytes.fromhex(SEED), 600, [Used(bytes(32), 599)], 5).tolist() == FIVE


def test_the_work_seed_is_one_that_libraries_take() -> None:
    works = [member_seeds(seed_of(i), **NAMES).work for i in range(200)]
    assert all(0 <= work < 2**63 for work in works)
    assert max(works) > 2**62
    assert all(np.random.default_rng(work).random() < 1 for work in works[:3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: named_rows(bytes(31), 5, [], 1), "`seed` must be 32 bytes: use `member_seeds`"),
        (lambda: named_rows(bytes(32), 0, [], 1), "`size` must be a positive integer, got 0"),
        (lambda: named_rows(bytes(32), 5, [], 0), "`count` must be a positive integer, got 0"),
        (
            lambda: named_rows(bytes(32), 5, [(bytes(32), -1)], 1),
            "`used` must have whole numbers of at least 0, got -1",
        ),
        (lambda: named_rows(bytes(32), 5, [(b"", 1)], 1), "`seed` must be 32 bytes"),
        (lambda: rows_used([(bytes(32), True)]), "`used` must have whole numbers of at least 0, got True"),
        (lambda: member_seeds(b"short", **NAMES), "`number` must be 32 bytes: use `new_number`"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_rows_count_as_used_since_the_rows_that_count_are_what_they_are() -> None:
    rows, others = (Committed("books", "run", "Bern", bytes([part]) * 32, 40, 40) for part in (1, 2))
    recorded = [(number, Used(bytes([number]) * 32, 8)) for number in (1, 2, 3, 4, 5, 6)]

    def numbers(changes: list[RootChange], round: int) -> tuple[Committed, list[int]]:
        committed, used = used_before(changes, recorded, round)
        return committed, [one.seed[0] for one in used]

    changed = [RootChange(rows, 0), RootChange(others, 4)]
    assert numbers(changed, 3) == (rows, [1, 2])
    assert numbers(changed, 4) == (others, []), "a new pass"
    assert numbers(changed, 6) == (others, [4, 5])
    taken_back = [*changed, RootChange(rows, 4)]
    assert numbers(taken_back, 6) == (rows, [1, 2, 3, 4, 5]), "a change that never counted is none"
    same = [RootChange(rows, 0), RootChange(rows._replace(distinct=39), 4)]
    assert numbers(same, 6)[1] == [1, 2, 3, 4, 5], "the rows are the same"
