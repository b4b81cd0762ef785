"""A contest: every strategy under every rule, the best answer to each, and agents that learn."""

# NumPy's means of unknown arrays have no types.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from guerdon.lab.arena.entrants import Entrant, knowledge
from guerdon.lab.arena.game import NEARBY, RANDOM, Game, PlayedStrategy, as_agent, in_words
from guerdon.lab.arena.learning import FRESH, GENERATIONS, LEARNED, POPULATIONS, Settled, settle
from guerdon.lab.arena.settings import ArenaSetting
from guerdon.lab.arena.strategies import STRATEGIES, Strategy
from guerdon.lab.experiments.claims import Mean, mean_over_repetitions
from guerdon.rule import Need

GROUP = 4  # rules that are paid beside each other where agents learn: more compile once, and are paid for nothing


class BestAnswer(NamedTuple):
    """The most profitable answer to a rule that the search found, measured afresh; `gain` is over honest work."""

    words: str
    gain: Mean


class RuleResult(NamedTuple):
    """What the arena found of a rule."""

    entrant: Entrant
    knows: list[str]
    gains: Mapping[str, Mean]  # of each strategy over honest work, in a round
    rent: Mean  # what honest agents are paid over their cost
    spread: Mean  # standard deviation of that among honest agents and runs
    best: BestAnswer
    settled: Settled


def run_arena(
    setting: ArenaSetting,
    entered: Mapping[str, Entrant],
    repetitions: int = 16,
    generations: int = GENERATIONS,
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, RuleResult]:
    """Play every strategy under every rule, search for the best answer to each, and let agents learn."""
    game = Game(setting, entered, seed)
    played = dict[str, PlayedStrategy]()
    for name, strategy in STRATEGIES.items():
        tell(name)
        played[name] = game.play(strategy, repetitions)
    answers = game.find_answers(tell)
    results, names = dict[str, RuleResult](), list(entered)
    for first in range(0, len(names), GROUP):
        group = {name: entered[name] for name in names[first : first + GROUP]}
        alone = Game(setting, group, seed, chunk=1)  # pays no rule but these
        afresh = _Afresh(alone, repetitions)
        for name, entrant in group.items():
            gains = {own: mean_over_repetitions(_gain(played, own, name)) for own in STRATEGIES}
            best = _best(afresh, name, answers[name], gains, Need.ANNOUNCEMENTS in game.rules[name].needs)
            worth = {own: float(np.mean(played[own].profit[name])) for own in LEARNED}
            honest = played["honest"].honest[name]
            results[name] = RuleResult(
                entrant, knowledge(game.rules[name]), gains, mean_over_repetitions(honest.mean(axis=1)),
                spread_of(honest), best, settle(alone, name, worth, generations, tell),
            )  # fmt: skip
    return results


def count_steps_of(entered: Mapping[str, Entrant]) -> int:
    """Return how often `run_arena` tells what it does."""
    return len(STRATEGIES) + RANDOM + (NEARBY + POPULATIONS) * len(entered)


def spread_of(profits: Any) -> Mean:
    """Return the standard deviation of (repetitions, agents), and its standard error: each repetition left out once."""
    number = len(profits)
    without = [np.delete(profits, left_out, axis=0).std() for left_out in range(number)]
    return Mean(float(np.std(profits)), float((number - 1) ** 0.5 * np.std(without)))


def _gain(played: Mapping[str, PlayedStrategy], strategy: str, name: str) -> Any:
    """Return what a strategy gained over honest work in each repetition: the same random numbers for both."""
    return played[strategy].profit[name] - played["honest"].profit[name]


class _Afresh:
    """Strategies played on random numbers that no search has seen, each once."""

    def __init__(self, game: Game, repetitions: int) -> None:
        self._game, self._repetitions = game, repetitions
        self._played = dict[str, PlayedStrategy]()

    def gain(self, name: str, words: str, strategy: Strategy) -> Mean:
        """Return what a strategy gains over honest work under a rule."""
        return mean_over_repetitions(
            self._play(words, strategy).profit[name] - self._play("honest", STRATEGIES["honest"]).profit[name]
        )

    def _play(self, words: str, strategy: Strategy) -> PlayedStrategy:
        if words not in self._played:
            self._played[words] = self._game.play(strategy, self._repetitions, self._game.seed + FRESH)
        return self._played[words]


def _best(
    afresh: _Afresh, name: str, answer: Mapping[str, float], gains: Mapping[str, Mean], claims: bool
) -> BestAnswer:
    """Return the better of what the search found and the best strategy of the list."""
    listed = max(gains, key=lambda own: gains[own].value)
    options = {listed: STRATEGIES[listed], in_words(answer, claims): Strategy("", as_agent(answer))}
    measured = {words: afresh.gain(name, words, option) for words, option in options.items()}
    words = max(measured, key=lambda one: measured[one].value)
    return BestAnswer(words, measured[words])
