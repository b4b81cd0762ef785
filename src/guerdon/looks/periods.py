"""What a run holds of its members until looks, period by period: a state that each record of the run leads on.

A member's period begins with its first paid round and ends with the run's period, when the member leaves, or with the
run. Its rounds wait for their coins, in order. When an ended period has no round that waits, its looks are opened.
When all of these are decided, what is held of the period is released or forfeited. Periods do not wait for each other.

All of it is a function of the records: `verify` computes it again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from guerdon.looks import draw
from guerdon.looks.draw import Candidates
from guerdon.looks.outcomes import Asked, Decision, Outcome, Settlement, decided, first_decision, settled
from guerdon.terms import Looks


class Look(NamedTuple):
    """One look: its number in the run, the round that is looked at, and what has come of it so far."""

    number: int
    round: int
    asked: Asked


class Period(NamedTuple):
    """A period of one member. `waiting`: rounds whose coins are not drawn, with their weights in micro-units.

    `first`, `last`: the first and the last of its rounds that were paid. `looks` are opened when it has ended, and no
    round waits.
    """

    first: int
    last: int
    ended: bool
    candidates: Candidates
    waiting: tuple[tuple[int, int], ...]
    looks: tuple[Look, ...]

    @property
    def weight(self) -> int:
        """What is held for it, in micro-units."""
        return self.candidates.weight + sum(weight for _, weight in self.waiting)


class Watched(NamedTuple):
    """What is held of each member of a run, in periods; how many looks were opened; the first round of the run."""

    members: tuple[tuple[Period, ...], ...]
    opened: int = 0
    first: int | None = None

    @property
    def held(self) -> Any:
        """What is held of each member, in micro-units."""
        return np.array([sum(period.weight for period in periods) for periods in self.members], dtype=np.int64)


class Settled(NamedTuple):
    """The end of one member's period: its place in the run, its rounds, and what became of what was held."""

    place: int
    first: int
    last: int
    rounds: tuple[int, ...]  # that were looked at
    outcomes: tuple[Outcome, ...]
    settlement: Settlement


def begin(members: int) -> Watched:
    """Return the state before the first round."""
    return Watched(((),) * members)


def joined(state: Watched, members: int) -> Watched:
    """Return the state with members that are new in the last places."""
    return state._replace(members=state.members + ((),) * (members - len(state.members)))


def after_round(
    state: Watched, terms: Looks, number: int, weights: Sequence[int], now: int, *, is_last: bool
) -> Watched:
    """Return the state after a paid round, whose coins are not drawn yet. `weights`: what is held for it, 0: nothing.

    The last round of a run's period ends every member's, and so does the last round of the run. Looks are opened where
    no round waits; else when the coins of those that wait were drawn.
    """
    first = number if state.first is None else state.first
    ends = is_last or terms.ends_period(number, first)
    members = tuple(
        _with_round(periods, terms, number, int(weight), ends=ends)
        for periods, weight in zip(state.members, weights, strict=True)
    )
    return _opened(state._replace(members=members, first=first), now)


def drawn(state: Watched, number: int, coins: Sequence[int | None], now: int) -> Watched:
    """Return the state after the coins of a round were drawn, at a moment in seconds since 1970; looks are opened."""
    return _opened(_each(state, lambda period: _with_coins(period, number, coins)), now)


def leave(state: Watched, places: Sequence[int], now: int) -> Watched:
    """Return the state in which the members at these places have left: their periods end, and looks are opened."""
    chosen = set(places)
    members = tuple(
        tuple(period._replace(ended=True) for period in periods) if place in chosen else periods
        for place, periods in enumerate(state.members)
    )
    return _opened(state._replace(members=members), now)


def next_draw(state: Watched) -> int | None:
    """Return the number of the round whose coins come next; None: no round waits."""
    waiting = [period.waiting[0][0] for periods in state.members for period in periods if period.waiting]
    return min(waiting, default=None)


def find(state: Watched, number: int) -> tuple[int, Look]:
    """Return the place of the member whose look has this number, and the look; raise ValueError where there is none."""
    for place, look in open_looks(state):
        if look.number == number:
            return place, look
    raise ValueError(f"`look` must be one that is open, got {number}: `guerdon looks list` has them")


def open_looks(state: Watched) -> list[tuple[int, Look]]:
    """Return all looks that are not settled, each with the place of its member."""
    return [(place, look) for place, periods in enumerate(state.members) for period in periods for look in period.looks]


def answered(state: Watched, number: int, terms: Looks, now: int, *, appeal: bool) -> Watched:
    """Return the state after a member answered a look, or appealed against what came of it; once each.

    An appeal counts only where a second auditor is named, against an outcome that forfeits, and in time.
    """
    _, look = find(state, number)
    name = "appealed" if appeal else "answered"
    if getattr(look.asked, name) is not None:
        raise ValueError(f"look {number} must be {name} once: it was, and what counts stays the first")
    if appeal:
        _check_appeal(look, terms, now)
    return _with_asked(state, number, look.asked._replace(**{name: now}))


def judged(state: Watched, number: int, outcome: Outcome, now: int, *, appeal: bool) -> Watched:
    """Return the state after the auditor's verdict on a look, or the second auditor's on the appeal; once each."""
    _, look = find(state, number)
    name = "second" if appeal else "verdict"
    if getattr(look.asked, name) is not None:
        raise ValueError(f"look {number} must have one verdict of each auditor: it has this one's")
    if appeal and look.asked.appealed is None:
        raise ValueError(f"look {number} must be appealed before a second verdict: nobody has")
    if not appeal and look.asked.appealed is not None:
        raise ValueError(f"look {number} was appealed: a verdict must be of the second auditor")
    if outcome is Outcome.UNANSWERED:
        raise ValueError(f"a verdict on look {number} must not be 'unanswered': that follows from the ledger alone")
    if not appeal and outcome is not Outcome.PASSED and look.asked.answered is None:
        raise ValueError(f"a verdict against look {number} must follow an answer: the member has not answered")
    return _with_asked(state, number, look.asked._replace(**{name: Decision(outcome, now)}))


def settle(state: Watched, terms: Looks, now: int) -> tuple[list[Settled], Watched]:
    """Return the periods that are decided at this moment, and the state without them."""
    done, members = list[Settled](), list[tuple[Period, ...]]()
    for place, periods in enumerate(state.members):
        left = list[Period]()
        for period in periods:
            found = _decided(place, period, terms, now)
            left += [period] * (found is None)
            done += [] if found is None else [found]
        members.append(tuple(left))
    return done, state._replace(members=tuple(members))


def kept_rounds(state: Watched) -> set[int]:
    """Return the rounds whose reports must be kept: that wait, are candidates, or are looked at."""
    kept = set[int]()
    for periods in state.members:
        for period in periods:
            kept |= {number for number, _ in period.waiting} | set(period.candidates.due)
    return kept


def amounts(done: Sequence[Settled], members: int) -> tuple[Any, Any]:
    """Return what is released to each member, and what each forfeits, in micro-units."""
    released, forfeited = np.zeros(members, dtype=np.int64), np.zeros(members, dtype=np.int64)
    for one in done:
        released[one.place] += one.settlement.released
        forfeited[one.place] += one.settlement.forfeited
    return released, forfeited


def to_plain(state: Watched) -> dict[str, Any]:
    """Return the state in the types of JSON; `from_plain` reads it."""
    return {"members": [[_period_to(period) for period in periods] for periods in state.members],
            "opened": state.opened, "first": state.first}  # fmt: skip


def from_plain(told: Mapping[str, Any]) -> Watched:
    """Return the state that `to_plain` wrote."""
    members = tuple(tuple(_period_from(period) for period in periods) for periods in told["members"])
    return Watched(members, told["opened"], told["first"])


def _with_round(
    periods: tuple[Period, ...], terms: Looks, number: int, weight: int, *, ends: bool
) -> tuple[Period, ...]:
    *before, current = periods if periods and not periods[-1].ended else (*periods, None)
    if current is None and weight == 0:
        return periods
    current = current or Period(number, number, ended=False, candidates=draw.begin(terms.looks), waiting=(), looks=())
    if weight:
        current = current._replace(last=number, waiting=(*current.waiting, (number, weight)))
    return (*before, current._replace(ended=ends))


def _with_coins(period: Period, number: int, coins: Sequence[int | None]) -> Period:
    if not period.waiting or period.waiting[0][0] != number:
        return period
    (_, weight), *rest = period.waiting
    return period._replace(candidates=draw.kept(period.candidates, weight, number, coins), waiting=tuple(rest))


def _opened(state: Watched, now: int) -> Watched:
    """Return the state with the looks opened of every ended period that waits for no coin."""
    count, members = state.opened, list[tuple[Period, ...]]()
    for periods in state.members:
        new = list[Period]()
        for period in periods:
            if period.ended and not period.waiting and not period.looks:
                due = period.candidates.due
                looks = tuple(Look(count + place, number, Asked(now)) for place, number in enumerate(due, 1))
                count, period = count + len(due), period._replace(looks=looks)
            new.append(period)
        members.append(tuple(new))
    return state._replace(members=tuple(members), opened=count)


def _check_appeal(look: Look, terms: Looks, now: int) -> None:
    """Raise unless a look can be appealed now."""
    first = first_decision(look.asked, terms, now)
    if not terms.second_auditor:
        raise ValueError(f"look {look.number} cannot be appealed: the terms name no second auditor")
    if first is None or not first.outcome.forfeits:
        raise ValueError(f"look {look.number} must have failed, or be unanswered, to be appealed: it is not")
    if now > first.moment + terms.appeal:
        raise ValueError(f"look {look.number} must be appealed within {terms.appeal} seconds: it is too late")


def _with_asked(state: Watched, number: int, asked: Asked) -> Watched:
    def changed(look: Look) -> Look:
        return look._replace(asked=asked) if look.number == number else look

    return _each(state, lambda period: period._replace(looks=tuple(map(changed, period.looks))))


def _each(state: Watched, change: Callable[[Period], Period]) -> Watched:
    return state._replace(members=tuple(tuple(map(change, periods)) for periods in state.members))


def _decided(place: int, period: Period, terms: Looks, now: int) -> Settled | None:
    if not period.looks:
        return None
    outcomes = [decided(look.asked, terms, now) for look in period.looks]
    known = [outcome for outcome in outcomes if outcome is not None]
    if len(known) < len(outcomes):
        return None
    rounds = tuple(look.round for look in period.looks)
    settlement = settled(terms, period.candidates, dict(zip(rounds, known, strict=True)))
    return Settled(place, period.first, period.last, rounds, tuple(known), settlement)


def _period_to(period: Period) -> list[Any]:
    looks = [[look.number, look.round, *look.asked] for look in period.looks]
    return [period.first, period.last, period.ended, list(period.candidates), list(period.waiting), looks]


def _period_from(told: Sequence[Any]) -> Period:
    first, last, ended, (weight, rounds), waiting, looks = told
    candidates = Candidates(weight, tuple(tuple(look) for look in rounds))
    pairs = tuple((number, held) for number, held in waiting)
    return Period(first, last, ended, candidates, pairs, tuple(map(_look_from, looks)))


def _look_from(told: Sequence[Any]) -> Look:
    number, round_, opened, answered_, verdict, appealed, second = told
    decisions = [None if one is None else Decision(Outcome(one[0]), one[1]) for one in (verdict, second)]
    return Look(number, round_, Asked(opened, answered_, decisions[0], appealed, decisions[1]))
