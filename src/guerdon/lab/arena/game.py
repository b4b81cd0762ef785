"""The game: what every strategy earns under every rule, and a search for the best answer to each.

One compiled simulation serves all: every rule is paid beside the others on the same reports, and what agents do is
data. The model is made as under flat pay, from everybody's reports, so that rules differ in what they pay alone.
"""

# NumPy's means and products of unknown arrays have no types.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from guerdon.agreement import FlatPay
from guerdon.lab.agents import Portion, Reporting
from guerdon.lab.arena.entrants import CONTROL, Entrant
from guerdon.lab.arena.settings import WITNESS, ArenaSetting
from guerdon.lab.arena.strategies import Strategy
from guerdon.lab.simulation import History, simulate
from guerdon.requests import FixedRequest
from guerdon.rule import Need
from guerdon.statistical.predictions import RunningMean

if TYPE_CHECKING:
    from guerdon.rule import Rule

CHUNK = 4  # repetitions at once, always as many: one compilation serves all
RANDOM = 16  # answers that a search begins with, beside the strategies
NEARBY = 3  # answers next to the best one so far, for each rule
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


class Game:
    """A setting and its rules, ready to be played."""

    def __init__(
        self, setting: ArenaSetting, entered: Mapping[str, Entrant], seed: int = 0, chunk: int | None = None
    ) -> None:
        self.setting, self.seed, self.chunk = setting, seed, chunk or CHUNK
        self.rules: dict[str, Rule] = {name: entrant.make(setting) for name, entrant in entered.items()}
        for name, rule in self.rules.items():
            if not callable(getattr(rule, "pay", None)):
                raise ValueError(f"the rule {name!r} must be made by a function that returns a `Rule`, got {rule!r}")

    def simulate(self, agents: Sequence[Reporting], repetitions: int, seed: int) -> History:
        """Play so many repetitions with these agents."""
        setting = self.setting
        rules: dict[str, Any] = {f"_{CONTROL}": FlatPay(setting.cost)} | self.rules
        witness = WITNESS if any(Need.WITNESS in rule.needs for rule in self.rules.values()) else 0
        return simulate(
            setting.problem, agents, rules, FixedRequest(setting.request, setting.step), setting.rounds, repetitions,
            seed, prediction=RunningMean(), dither=setting.dither, witness=witness, chunk=self.chunk,
            costs=setting.cost,
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
