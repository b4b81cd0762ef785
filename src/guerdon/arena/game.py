"""The game: what every strategy earns under every rule, the best answer to each rule, and where agents that learn end.

One compiled simulation serves all: every rule is paid beside the others on the same reports, and what agents do is
data. The model is made as under flat pay, from everybody's reports, so that rules differ in what they pay alone.
"""

# NumPy's means and products of unknown arrays have no types.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from guerdon.agents import Portion, Reporting
from guerdon.arena.entrants import CONTROL, Entrant, knowledge
from guerdon.arena.settings import WITNESS, ArenaSetting
from guerdon.arena.strategies import STRATEGIES, Strategy
from guerdon.experiments.claims import Mean, mean_over_repetitions
from guerdon.predictions import RunningMean
from guerdon.requests import FixedRequest
from guerdon.rules import FlatPay, Mechanism, Need
from guerdon.simulation import History, simulate

CHUNK = 4  # repetitions at once, always as many: one compilation serves all
RANDOM = 16  # answers that a search begins with, beside the strategies
NEARBY = 3  # answers next to the best one so far, for each rule
FRESH = 1_000_003  # added to the seed where what a search found is measured
LEARNED = tuple(name for name in STRATEGIES if STRATEGIES[name].crew == 1)
REVISE, EXPLORE, KEEP = 0.34, 0.15, 0.6  # share of agents that revise, and that try something; weight of the past

LEAST_GAINED = 0.5  # points of accuracy, below which nothing was bought
LEAST_PART, LEAST_SHARE = 0.05, 0.03  # of an answer, below which it is not told

# What an answer is made of: share of the work, and what is sent and claimed, each between two numbers.
BOX = {
    "share": (0.0, 2.0), "gradient": (0.0, 3.0), "prediction": (0.0, 2.0), "echo": (0.0, 1.5), "noise": (0.0, 2.0),
    "claim": (0.0, 4.0),
}  # fmt: skip


class PlayedStrategy(NamedTuple):
    """What came of a strategy, per repetition: profit a round of who plays it, by rule, and the accuracy at the end."""

    profit: Mapping[str, Any]
    honest: Mapping[str, Any]  # profit a round of every honest agent, (repetitions, agents)
    accuracy: Any


class BestAnswer(NamedTuple):
    """The most profitable answer to a rule that the search found, measured afresh; `gain` is over honest work."""

    words: str
    gain: Mean


class Settled(NamedTuple):
    """Where agents end that learn from each other what pays."""

    strategy: str  # that most of them play
    effort: float  # samples used, relative to the request
    paid: float  # to all agents in a round
    accuracy: float
    price: float  # money for each point of accuracy gained; infinite where none is


class RuleResult(NamedTuple):
    """What the arena found of a rule."""

    entrant: Entrant
    knows: list[str]
    gains: Mapping[str, Mean]  # of each strategy over honest work, in a round
    rent: Mean  # what honest agents are paid over their cost
    spread: float  # standard deviation of that among honest agents and runs
    best: BestAnswer
    settled: Settled


class Game:
    """A setting and its rules, ready to be played."""

    def __init__(self, setting: ArenaSetting, entered: Mapping[str, Entrant], seed: int = 0) -> None:
        self.setting, self.seed = setting, seed
        self.rules: dict[str, Mechanism] = {name: entrant.make(setting) for name, entrant in entered.items()}

    def simulate(self, agents: Sequence[Reporting], repetitions: int, seed: int) -> History:
        """Play so many repetitions with these agents."""
        setting = self.setting
        rules: dict[str, Any] = {f"_{CONTROL}": FlatPay(setting.cost)} | self.rules
        witness = WITNESS if any(rule.wants_witness for rule in self.rules.values()) else 0
        return simulate(
            setting.problem, agents, rules, FixedRequest(setting.request, setting.step), setting.rounds, repetitions,
            seed, prediction=RunningMean(), dither=setting.dither, witness=witness, chunk=CHUNK, costs=setting.cost,
        )  # fmt: skip

    def play(self, strategy: Strategy, repetitions: int, seed: int | None = None) -> PlayedStrategy:
        """Let the first agents play a strategy, and the others work."""
        found = self.simulate(strategy.agents(self.setting.agents), repetitions, self.seed if seed is None else seed)
        crew, costs = strategy.crew, np.asarray(found.costs, dtype=np.float64)
        profit = {  # a crew works once, and is paid under every name
            name: (found.rewards[name][:, :, :crew].sum(axis=2) - costs[:, :, 0]).mean(axis=1) / crew
            for name in self.rules
        }
        honest = {name: (found.rewards[name] - costs)[:, :, crew:].mean(axis=1) for name in self.rules}
        return PlayedStrategy(profit, honest, self.accuracy(found)[:, -1])

    def accuracy(self, found: History) -> Any:
        """Return how accurate the model was after each round, and before the first."""
        metric = next(iter(found.metrics.values()))
        return np.clip(np.nan_to_num(np.asarray(self.setting.accuracy(metric)), nan=0.0, neginf=0.0), 0.0, 1.0)

    def find_answers(self, tell: Callable[[str], None]) -> dict[str, dict[str, float]]:
        """Search for the most profitable answer to every rule; every trial counts for all of them."""
        rng, (low, high) = np.random.default_rng(self.seed), np.array(list(BOX.values())).T
        trials: list[tuple[Any, dict[str, float]]] = []

        def attempt(point: Any) -> None:
            strategy = Strategy("", as_agent(dict(zip(BOX, point, strict=True))))
            profit = self.play(strategy, CHUNK, self.seed).profit
            trials.append((point, {name: float(np.mean(values)) for name, values in profit.items()}))

        for number in range(RANDOM):
            tell(f"a search, trial {number + 1}")
            attempt(rng.uniform(low, high) * (rng.random(len(low)) < 0.6))  # some parts are left out
        for size in (0.3, 0.15, 0.08)[:NEARBY]:
            for name in self.rules:
                tell(f"a search for {name}")
                best = max(trials, key=lambda trial: trial[1][name])[0]
                attempt(np.clip(best + size * (high - low) * rng.normal(size=len(low)), low, high))
        return {
            name: dict(zip(BOX, max(trials, key=lambda trial: trial[1][name])[0], strict=True)) for name in self.rules
        }

    def learn(self, name: str, start: Mapping[str, float], generations: int) -> Settled:
        """Let agents learn what pays under a rule: each plays a strategy for a whole run, and they compare notes.

        `start` is what each strategy earned among honest agents. In every generation a third of the agents change to
        what has paid best lately, and a few try something else.
        """
        rng, number = np.random.default_rng(self.seed), self.setting.agents
        worth, playing = dict(start), ["honest"] * number
        for generation in range(generations):
            best = max(worth, key=lambda strategy: worth[strategy])
            playing = [best if rng.random() < REVISE else own for own in playing]
            tried = [str(rng.choice(LEARNED)) if rng.random() < EXPLORE else own for own in playing]
            found = self.simulate([STRATEGIES[own].agent for own in tried], CHUNK, self.seed + generation)
            profit = (found.rewards[name] - found.costs).mean(axis=(0, 1))
            for strategy in set(tried):
                earned = float(np.mean([profit[k] for k, own in enumerate(tried) if own == strategy]))
                worth[strategy] = KEEP * worth[strategy] + (1 - KEEP) * earned
        return self._settled(name, playing)

    def _settled(self, name: str, playing: list[str]) -> Settled:
        """Return where agents stand that do what they have learned, and try nothing more."""
        found = self.simulate([STRATEGIES[own].agent for own in playing], CHUNK, self.seed + FRESH)
        used = float(found.batch_sizes.mean()) / self.setting.request
        paid = float(found.rewards[name].sum(axis=2).mean())
        curves = self.accuracy(found)
        gained = 100 * float(curves[:, -1].mean() - curves[:, 0].mean())
        price = paid * self.setting.rounds / gained if gained > LEAST_GAINED and paid > 0 else float("inf")
        return Settled(max(set(playing), key=playing.count), used, paid, float(curves[:, -1].mean()), price)


def as_agent(answer: Mapping[str, float]) -> Reporting:
    """Return the agent that gives an answer; it sends something also where it uses no samples."""
    return Reporting(
        Portion(float(answer["share"])), gradient=float(answer["gradient"]), echo=float(answer["echo"]),
        prediction=float(answer["prediction"]), honest_noise=float(answer["noise"]), claim=float(answer["claim"]),
        fabricates=True,
    )  # fmt: skip


def in_words(answer: Mapping[str, float], claims: bool = True) -> str:
    """Return an answer for people: what it uses, sends and (where a rule asks) claims, without what hardly matters."""
    idle = answer["share"] < LEAST_SHARE
    parts = ["does not work" if idle else f"uses {answer['share']:.0%} of the samples"]
    sends = {"gradient": "gradient", "prediction": "prediction", "echo": "last mean", "noise": "noise"}
    seen = [part for part in sends if answer[part] > LEAST_PART and not (idle and part == "gradient")]
    parts.append("sends " + (" + ".join(f"{answer[part]:.2g} × {sends[part]}" for part in seen) or "zeros"))
    if claims:
        told = answer["claim"] > LEAST_PART
        parts.append(f"claims {answer['claim']:.2g} × the request" if told else "claims the truth")
    return ", ".join(parts)


def run_arena(
    setting: ArenaSetting,
    entered: Mapping[str, Entrant],
    repetitions: int = 16,
    generations: int = 24,
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
    afresh, results = _Afresh(game, repetitions), dict[str, RuleResult]()
    for name, entrant in entered.items():
        tell(f"agents that learn under {name}")
        gains = {own: mean_over_repetitions(_gain(played, own, name)) for own in STRATEGIES}
        best = _best(afresh, name, answers[name], gains, Need.ANNOUNCEMENTS in game.rules[name].needs)
        worth = {own: float(np.mean(played[own].profit[name])) for own in LEARNED}
        honest = played["honest"].honest[name]
        results[name] = RuleResult(
            entrant, knowledge(game.rules[name]), gains, mean_over_repetitions(honest.mean(axis=1)),
            float(honest.std()), best, game.learn(name, worth, generations),
        )  # fmt: skip
    return results


def count_steps_of(entered: Mapping[str, Entrant]) -> int:
    """Return how often `run_arena` tells what it does."""
    return len(STRATEGIES) + RANDOM + (NEARBY + 1) * len(entered)


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
