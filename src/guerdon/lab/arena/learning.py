"""Where agents end that learn what pays: each plays a strategy for a whole training, and they compare notes.

Several populations learn apart from each other, each with random numbers of its own: standard errors are over them.
"""

# NumPy's means and products of unknown arrays have no types.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from guerdon.lab.arena.game import Game
from guerdon.lab.arena.strategies import STRATEGIES
from guerdon.lab.experiments.claims import Mean, mean_over_repetitions

POPULATIONS = 4
GENERATIONS = 16
FRESH = 1_000_003  # added to the seed where what was found or learned is measured
LEARNED = tuple(name for name in STRATEGIES if STRATEGIES[name].crew == 1)
REVISE, EXPLORE, KEEP = 0.34, 0.15, 0.6  # share of agents that revise, and that try something; weight of the past
LEAST_GAINED = 0.5  # points of accuracy, below which nothing was bought


class Settled(NamedTuple):
    """Where agents end that learn from each other what pays; means over populations."""

    strategy: str  # that most of them play
    share: float  # of all agents that do
    effort: Mean  # samples used, relative to the request
    paid: Mean  # to all agents in a round
    accuracy: Mean
    price: Mean  # money for each point of accuracy gained; infinite where none is


def settle(game: Game, name: str, start: Mapping[str, float], generations: int, tell: Callable[[str], None]) -> Settled:
    """Let populations learn what pays under a rule; `start` is what each strategy earned among honest agents."""
    playing = list[list[str]]()
    for number in range(POPULATIONS):
        tell(f"agents that learn under {name}, population {number + 1}")
        playing.append(_learn(game, name, start, generations, number))
    found = [_measure(game, name, one, number) for number, one in enumerate(playing)]
    effort, paid, accuracy, gained = (np.array(values) for values in zip(*found, strict=True))
    strategy, count = Counter(chain(*playing)).most_common(1)[0]
    return Settled(
        strategy, count / (POPULATIONS * game.setting.agents), mean_over_repetitions(effort),
        mean_over_repetitions(paid), mean_over_repetitions(accuracy), price_of(paid * game.setting.rounds, gained),
    )  # fmt: skip


def price_of(paid: Any, gained: Any) -> Mean:
    """Return money for each point, a ratio of means, with its standard error; infinite where nothing was bought."""
    if np.mean(gained) <= LEAST_GAINED or np.mean(paid) <= 0:
        return Mean(float("inf"), float("nan"))
    price = float(np.mean(paid) / np.mean(gained))
    return Mean(price, mean_over_repetitions(paid - price * gained).error / float(np.mean(gained)))


def _learn(game: Game, name: str, start: Mapping[str, float], generations: int, population: int) -> list[str]:
    """Return what the agents of a population play in the end.

    In every generation a third of them change to what has paid best lately, and a few try something else.
    """
    rng = np.random.default_rng((game.seed, population))
    worth, playing = dict(start), ["honest"] * game.setting.agents
    for _ in range(generations):
        best = max(worth, key=lambda strategy: worth[strategy])
        playing = [best if rng.random() < REVISE else own for own in playing]
        tried = [str(rng.choice(LEARNED)) if rng.random() < EXPLORE else own for own in playing]
        found = game.simulate([STRATEGIES[own].agent for own in tried], 1, int(rng.integers(2**31)))
        profit = (found.rewards[name] - found.costs).mean(axis=(0, 1))
        for strategy in set(tried):
            earned = float(np.mean([profit[k] for k, own in enumerate(tried) if own == strategy]))
            worth[strategy] = KEEP * worth[strategy] + (1 - KEEP) * earned
    return playing


def _measure(game: Game, name: str, playing: list[str], population: int) -> tuple[float, float, float, float]:
    """Return effort, pay, accuracy and points gained of a population that tries nothing more."""
    agents = [STRATEGIES[own].agent for own in playing]
    found = game.simulate(agents, 1, game.seed + FRESH + population)
    curve = game.accuracy(found)[0]
    effort, paid = found.batch_sizes.mean() / game.setting.request, found.rewards[name].sum(axis=2).mean()
    return float(effort), float(paid), float(curve[-1]), 100 * float(curve[-1] - curve[0])
