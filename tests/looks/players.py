"""Members that cheat while they see their candidates, and what looks leave them: for tests of the draw and the plan."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from guerdon.looks.draw import BITS, Candidates, begin, kept
from guerdon.looks.outcomes import Outcome, settled
from guerdon.terms import Looks

COSTS = 500, 1_700, 4_000  # of a round, as nature has it: a margin of 5 % needs no rounding
ROUNDS = 20


class View(NamedTuple):
    """What a member knows before its report: more than a real one could."""

    round: int
    cost: int
    state: Candidates
    doomed: bool  # a round that it cheated in is a candidate
    chance: random.Random


class Move(NamedTuple):
    """What it does, and the cost that the round is weighted by (some set it after the report)."""

    works: bool
    cost: int


Strategy = Callable[[View], Move | None]  # None: it leaves
Draw = Callable[[Candidates, int, int, Sequence[int | None]], Candidates]


def _leaves_when_safe(view: View) -> Move | None:
    if view.round > 5 and not view.doomed and view.state.weight > 10_000:
        return None
    return Move(view.chance.random() < 0.5, view.cost)


STRATEGIES: Mapping[str, Strategy] = {
    "never works": lambda view: Move(False, view.cost),
    "cheats when doomed": lambda view: Move(not view.doomed and view.chance.random() < 0.9, view.cost),
    "cheats when safe": lambda view: Move(view.doomed or view.chance.random() < 0.5, view.cost),
    "cheats in dear rounds": lambda view: Move(view.cost < 4_000, view.cost),
    "cheats in cheap rounds": lambda view: Move(view.cost > 500, view.cost),
    "cheats at random": lambda view: Move(view.chance.random() < 0.8, view.cost),
    "cheats at the end": lambda view: Move(view.round <= ROUNDS - 4, view.cost),
    "sets weights after the report": lambda view: Move(view.doomed, 4_000 if view.doomed else 500),
    "leaves when safe": _leaves_when_safe,
}


class Played(NamedTuple):
    """One period of one member."""

    state: Candidates
    cheated: frozenset[int]
    worked: int  # the weight of the rounds that it worked
    spent: int  # what they cost


def play(
    strategy: Strategy, looks: int, chance: random.Random, draw: Draw = kept, terms: Looks | None = None
) -> Played:
    """Play a period. Costs are whole numbers; weights are these, or what the terms pay for a cost."""
    state, cheated, worked, spent = begin(looks), set[int](), 0, 0
    pays = {cost: cost if terms is None else terms.pay(cost) for cost in COSTS}
    for round in range(1, ROUNDS + 1):
        doomed = not cheated.isdisjoint(state.due)
        move = strategy(View(round, chance.choice(COSTS), state, doomed, chance))
        if move is None:
            break
        weight = pays[move.cost]
        if move.works:
            worked, spent = worked + weight, spent + move.cost
        else:
            cheated.add(round)
        state = draw(state, weight, round, [chance.getrandbits(BITS) for _ in range(looks)])
    return Played(state, frozenset(cheated), worked, spent)


def released(terms: Looks, played: Played) -> int:
    """Return what a period releases where every look tells the truth."""
    outcomes = {due: Outcome.FAILED if due in played.cheated else Outcome.PASSED for due in played.state.due}
    return settled(terms, played.state, outcomes).released


def periods(strategy: Strategy, looks: int, seed: int, repetitions: int, **options: Any) -> list[Played]:
    """Play many periods."""
    chance = random.Random(seed)
    return [play(strategy, looks, chance, **options) for _ in range(repetitions)]


def gains(terms: Looks, played: Sequence[Played]) -> Any:
    """Return, for each period, what is released beyond the weight of the rounds that were worked: 0 for declining."""
    return np.array([released(terms, one) - one.worked for one in played], dtype=np.float64)
