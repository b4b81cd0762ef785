"""Cheating in a round is worth what declining it is worth: by simulation, and exactly for every adaptive strategy."""

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from guerdon.looks.draw import (
    BITS,
    Candidates,
    Draw,
    Reported,
    begin,
    coins,
    commitment,
    kept,
    nonce,
    reports_hash,
    segments,
)
from guerdon.looks.outcomes import Outcome, settled
from guerdon.terms import Looks
from tests.looks.players import STRATEGIES, gains, periods
from tests.support.means import mean

SURE = 4.0  # standard errors
REPETITIONS = 2500
SHARE, ALL = Looks(forfeit="share"), Looks(forfeit="all")


# The theorem, by simulation.


@pytest.mark.parametrize("looks", [1, 2])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_cheat_gains_nothing_by_the_rounds_it_did_not_work(name: str, looks: int) -> None:
    """Exactly nothing where looks forfeit their share, and with one look; never more where all is forfeited."""
    played = periods(STRATEGIES[name], looks, seed=1, repetitions=REPETITIONS)
    share, everything = gains(SHARE, played), gains(ALL, played)
    if name == "never works":
        assert (share == 0).all()
        assert (everything == 0).all()
        return
    assert abs(mean(share).z(0)) < SURE
    assert mean(share).error < 500, "of some 41,300 that a period pays: 5 % would be found"
    if looks == 1:
        assert (share == everything).all()
    else:
        assert (everything <= share).all()
        assert mean(everything).z(0) < -SURE, "two looks at all of it make every other cheat lose"


@pytest.mark.parametrize(("looks", "terms"), [(1, SHARE), (2, SHARE), (2, ALL)])
def test_with_a_margin_every_cheat_earns_less_than_honest_work(looks: int, terms: Looks) -> None:
    """The same costs come to both. Without a margin no cheat earns more."""
    for margin in (0.0, 0.05):
        paying = Looks(margin=margin, forfeit=terms.forfeit)
        for name, strategy in STRATEGIES.items():
            played = periods(strategy, looks, seed=2, repetitions=400, terms=paying)
            offered = np.array([one.state.weight for one in played]) * margin / (1 + margin)  # to an honest member
            profit = gains(paying, played) + [one.worked - one.spent for one in played]
            beyond = mean(profit - offered)
            assert beyond.value <= SURE * beyond.error, (name, margin)
            if margin and name == "never works":
                assert beyond.z(0) < -SURE


def unweighted(state: Candidates, weight: int, round: int, coins: Sequence[int | None]) -> Candidates:
    """Keep every round with the same chance, whatever its pay."""
    after = kept(state._replace(weight=round - 1), 1, round, coins)
    return after._replace(weight=state.weight + weight)


def half_as_often(state: Candidates, weight: int, round: int, coins: Sequence[int | None]) -> Candidates:
    """Replace with half the chance."""
    return kept(state, weight, round, [min(2 * coin, 2**BITS - 1) for coin in coins if coin is not None])


@pytest.mark.parametrize(
    ("draw", "name"), [(unweighted, "cheats in dear rounds"), (half_as_often, "cheats at the end")]
)
def test_a_wrong_draw_is_found(draw: Any, name: str) -> None:
    """The power of the test above: it fails by far where the draw is wrong by this much."""
    played = periods(STRATEGIES[name], 1, seed=1, repetitions=REPETITIONS, draw=draw)
    assert mean(gains(SHARE, played)).z(0) > 2 * SURE


def test_a_coin_that_is_known_before_the_report_is_found() -> None:
    """A member that knows it works when it will be looked at, and is paid for the rest."""
    chance, total = random.Random(3), list[float]()
    for _ in range(REPETITIONS):
        state, cheated, worked = begin(1), set[int](), 0
        for round in range(1, 21):
            after = kept(state, 17, round, [chance.getrandbits(BITS)])
            if round in after.due:
                worked += 17
            else:
                cheated.add(round)
            state = after
        passed = {due: Outcome.FAILED if due in cheated else Outcome.PASSED for due in state.due}
        total.append(settled(SHARE, state, passed).released - worked)
    assert mean(total).z(0) > 2 * SURE


# The theorem, exactly: the best and the worst of all adaptive strategies, by going backward through all coins.


Refusal = Callable[[Candidates, int, int], Candidates]
GOOD, BAD = 0, 1  # a candidate is known by the parity of its number: so these two stand for all rounds before


def best(
    terms: Looks, looks: int, rounds: int, pick: Callable[..., Fraction], refuse: Refusal | None = None
) -> Fraction:
    """Return the best (`pick`=max) or worst (min) expected gain beyond the rounds worked.

    At each step a member sees its candidates, works or not, sets a weight of 2 or 4 after that, or leaves. A friend at
    the server may `refuse` to open after it has seen the coin.
    """

    @cache
    def value(state: Candidates, left: int) -> Fraction:
        outcomes = {GOOD: Outcome.PASSED, BAD: Outcome.FAILED}
        stop = Fraction(settled(terms, state, outcomes).released) if state.weight else Fraction(0)
        moves = [after_coins(state, bad, weight, left - 1) for bad in (0, 1) for weight in (2, 4)] if left else []
        return pick([stop, *moves])

    def after_coins(state: Candidates, bad: int, weight: int, left: int) -> Fraction:
        total = state.weight + weight
        equally_likely = [(2 * place + 1 << BITS) // (2 * total) for place in range(total)]
        draws = [(coin, other) for coin in equally_likely for other in (equally_likely if looks == 2 else [0])]
        results = [outcome(state, bad, weight, coin, left) for coin in draws]
        return sum(results, Fraction(0)) / len(results) - (0 if bad else weight)

    @cache
    def outcome(state: Candidates, bad: int, weight: int, coin: tuple[int, int], left: int) -> Fraction:
        opened = value(known_by_parity(kept(state, weight, 2 + bad, coin)), left)
        return (
            opened if refuse is None else pick([opened, value(known_by_parity(refuse(state, weight, 2 + bad)), left)])
        )

    return value(begin(looks), rounds)


def known_by_parity(state: Candidates) -> Candidates:
    return Candidates(state.weight, tuple((max(number % 2 for number in look),) for look in state.rounds))


@pytest.mark.parametrize(("looks", "rounds"), [(1, 4), (2, 3)])
def test_no_strategy_gains_or_loses_where_a_look_forfeits_its_share(looks: int, rounds: int) -> None:
    assert best(SHARE, looks, rounds, max) == 0
    assert best(SHARE, looks, rounds, min) == 0


def test_no_strategy_gains_where_a_look_forfeits_all() -> None:
    assert best(ALL, 2, 3, max) == 0
    assert best(ALL, 2, 3, min) < 0  # for who works although it is doomed


def joins(state: Candidates, weight: int, round: int) -> Candidates:
    return kept(state, weight, round, [None] * len(state.rounds))


def keeps(state: Candidates, weight: int, round: int) -> Candidates:
    return kept(state, weight, round, [2**BITS - 1] * len(state.rounds))


def replaces(state: Candidates, weight: int, round: int) -> Candidates:
    return kept(state, weight, round, [0] * len(state.rounds))


@pytest.mark.parametrize(("looks", "terms"), [(1, SHARE), (2, SHARE), (2, ALL)])
def test_nothing_is_gained_by_refusing_to_open_a_coin(looks: int, terms: Looks) -> None:
    """A refused round joins the candidates. Were it kept out, or put in their place, refusing would pay."""
    assert best(terms, looks, 3, max, joins) == 0
    assert best(terms, looks, 3, max, keeps) > 0
    assert best(terms, looks, 3, max, replaces) > 0


# The state.


def test_each_candidate_is_a_round_with_chance_in_proportion_to_its_weight() -> None:
    weights, chance, found = (1, 3, 0, 4), random.Random(5), list[tuple[int, ...]]()
    for _ in range(4000):
        state = begin(2)
        for round, weight in enumerate(weights, 1):
            state = kept(state, weight, round, [chance.getrandbits(BITS), chance.getrandbits(BITS)])
        found.append(tuple(look[0] for look in state.rounds))
    rounds = np.array(found)
    for round, weight in enumerate(weights, 1):
        for hits in (rounds == round).T:
            assert abs(hits.mean() - weight / 8) <= SURE * np.sqrt(weight / 8 * (1 - weight / 8) / 4000)
    both = (rounds == 4).all(axis=1).mean()
    assert abs(both - 1 / 4) < SURE * np.sqrt(3 / 16 / 4000), "looks are drawn independently of each other"


def test_the_comparison_is_exact_at_its_edge() -> None:
    """As no floating-point number could tell: the largest coin that replaces, and the next."""
    state = Candidates(10**15, ((1,),))
    edge = (7 << BITS) // (10**15 + 7)
    assert kept(state, 7, 2, [edge]).rounds == ((2,),)
    assert kept(state, 7, 2, [edge + 1]).rounds == ((1,),)


def test_the_first_weight_is_a_candidate_whatever_the_coin() -> None:
    absent = kept(begin(2), 0, 1, [0, None])
    assert absent == begin(2)
    assert absent.due == ()
    assert kept(absent, 5, 2, [2**BITS - 1, 0]) == Candidates(5, ((2,), (2,)))
    assert kept(absent, 5, 2, [None, None]).due == (2,)


def test_after_a_refusal_the_next_round_replaces_both() -> None:
    state = kept(kept(begin(1), 5, 1, [0]), 5, 2, [None])
    assert state.rounds == ((1, 2),)
    assert kept(state, 5, 3, [0]).rounds == ((3,),)
    assert kept(state, 5, 3, [2**BITS - 1]).rounds == ((1, 2),)


@pytest.mark.parametrize(
    ("weight", "round", "given", "complaint"),
    [
        (-1, 2, [0], "`weight` must be a whole number of micro-units of at least 0, got -1"),
        (1.5, 2, [0], "`weight` must be a whole number of micro-units of at least 0, got 1.5"),
        (True, 2, [0], "`weight` must be a whole number"),
        (1, 1, [0], r"`round` must come after the rounds that are kept, \(1,\), got 1: apply each once"),
        (1, 2, [], "`coins` must have one for each of the 1 looks, got 0"),
    ],
)
def test_what_cannot_be_kept_is_refused(weight: Any, round: int, given: list[int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        kept(Candidates(5, ((1,),)), weight, round, given)


# The coin.


def drawn(round: int = 1, reports: bytes = b"r" * 32, **changed: Any) -> Draw:
    place = "books", "heart", round
    server, auditor = (nonce(secret * 16, role, *place) for secret, role in SECRETS)
    promised = commitment(server, "server", *place), commitment(auditor, "auditor", *place)
    return Draw(*place, promised[0], promised[1], reports, server, auditor)._replace(**changed)


SECRETS = (b"s", "server"), (b"a", "auditor")


def test_coins_are_uniform_and_differ_between_rounds_and_looks() -> None:
    shares = np.array(
        [[coin / 2**BITS for coin in coins(drawn(round), 3) if coin is not None] for round in range(1, 1001)]
    )
    assert shares.shape == (1000, 3)
    ordered = np.sort(shares, axis=0)
    apart = np.abs(ordered - (np.arange(1000)[:, None] + 0.5) / 1000).max(axis=0)
    assert (apart < 1.63 / np.sqrt(1000)).all(), "Kolmogorov and Smirnov, 1 %"
    assert np.abs(np.corrcoef(shares.T) - np.eye(3)).max() < SURE / np.sqrt(1000)
    assert coins(drawn(), 2) == coins(drawn(), 3)[:2], "more looks leave the coins of the others as they are"


def test_every_contribution_changes_the_coin() -> None:
    other_server, other_auditor = (nonce(b"x" * 16, role, "books", "heart", 1) for _, role in SECRETS)
    changed = [
        drawn(reports=b"q" * 32),
        drawn(server=commitment(other_server, "server", "books", "heart", 1), server_nonce=other_server),
        drawn(auditor=commitment(other_auditor, "auditor", "books", "heart", 1), auditor_nonce=other_auditor),
        drawn(round=2),
    ]
    assert len({coins(draw, 1) for draw in [drawn(), *changed]}) == 5


def test_a_coin_is_none_until_both_have_opened() -> None:
    assert coins(drawn(server_nonce=None), 2) == (None, None)
    assert coins(drawn(auditor_nonce=None), 2) == (None, None)
    assert segments(drawn(auditor_nonce=None), 0, 4) == (0, 1, 2, 3)


@pytest.mark.parametrize("name", ["server_nonce", "auditor_nonce"])
def test_an_opening_of_something_else_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be what round 1 of run 'heart' has the commitment of"):
        coins(drawn(**cast("Any", {name: b"another"})), 1)


def test_the_servers_commitment_cannot_be_copied_by_the_auditor() -> None:
    """Who copied it would contribute nothing, and could leave the coin to the other alone."""
    own = drawn()
    with pytest.raises(ValueError, match="`auditor_nonce` must be what round 1"):
        coins(own._replace(auditor=own.server, auditor_nonce=own.server_nonce), 1)


def test_nonces_follow_from_a_secret_and_nothing_else() -> None:
    own = nonce(b"s" * 16, "server", "books", "heart", 1)
    assert own == nonce(b"s" * 16, "server", "books", "heart", 1)
    others = {
        nonce(b"s" * 16, "server", *place) for place in (("books", "heart", 2), ("books", "lung", 1), ("b", "heart", 1))
    }
    assert len(others | {own, nonce(b"t" * 16, "server", "books", "heart", 1)}) == 5
    with pytest.raises(ValueError, match="`secret` must have 16 bytes or more, got 3"):
        nonce(b"abc", "server", "books", "heart", 1)
    with pytest.raises(ValueError, match="`role` must be one of 'server', 'auditor', got 'member'"):
        nonce(b"s" * 16, "member", "books", "heart", 1)


def test_one_segment_is_drawn_each_as_often() -> None:
    found = [segments(drawn(round), 0, 4) for round in range(1, 1001)]
    counts = np.bincount([place for (place,) in found], minlength=4)
    assert len(counts) == 4
    assert (np.abs(counts - 250) < SURE * np.sqrt(1000 * 3 / 16)).all()
    assert any(segments(drawn(round), 1, 4) != segments(drawn(round), 0, 4) for round in range(1, 9))


def test_the_hash_of_reports_covers_all_of_them_and_their_weights() -> None:
    lines = [Reported("Basel", 5, b"r", b"s"), Reported("Lyon", 0, None, None)]
    hashed = reports_hash(lines)
    assert hashed == reports_hash(reversed(lines))
    others = [lines[:1], [lines[0]._replace(weight=6), lines[1]], [lines[0]._replace(signature=b"t"), lines[1]]]
    others += [[lines[0]._replace(report=b"q"), lines[1]], [lines[0]._replace(member="Bern"), lines[1]]]
    assert len({hashed, *map(reports_hash, others)}) == 6
    with pytest.raises(ValueError, match=r"`reports` must name each member once, got \['Basel', 'Basel'\]"):
        reports_hash([lines[0], lines[0]._replace(report=None)])
