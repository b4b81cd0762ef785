"""The playground: the game in closed form, and beside it a small simulated certificate, one at a time."""

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from guerdon._quantiles import student_quantile
from guerdon.costs import AffineCost, ExpressionCost, check_cost
from guerdon.dashboard.monitor import TICK, event
from guerdon.lab.game import LARGEST_RATIO, RULES, MinibatchGame, curve_of, equilibrium_report
from guerdon.lab.truth import choices, choose
from guerdon.rule import Rule
from guerdon.words import about

if TYPE_CHECKING:
    from guerdon.lab.certificate import Certificate

MOST_AGENTS = 200
LARGEST_BATCH = 256
DIMENSION = 100
ROUNDS = 20
REPETITIONS = 500
NEEDED = ("jax", "polars")
PRICES = {  # rules of the arena whose pay depends on nobody else; the simulator comes with them
    "stackelberg": "a price per announced sample (Stackelberg)",
    "contract": "a menu of amounts and rewards (contract)",
    "accuracy": "pay for announced accuracy (crowdsourcing)",
}


BatchSize = Annotated[int, Field(ge=1, le=LARGEST_BATCH)]


class GameSettings(BaseModel):
    """What the sliders say."""

    agents: int = Field(10, ge=1, le=MOST_AGENTS, description="Number of agents.")
    request: BatchSize = Field(8, description="Batch size that the server requests.")
    cost: str = Field("1 + s", max_length=200, description="Cost of s samples: numbers, s, + - * / **.")
    rule: str = Field("agreement", max_length=100, description="Payment rule.")
    others: int = Field(8, ge=0, le=LARGEST_BATCH, description="Batch size of all others.")
    max_batch: BatchSize = Field(32, description="Largest possible batch size.")
    ratio: float = Field(1.0, gt=0, le=LARGEST_RATIO, description="σ²/V: the variance, by the scale of agreement.")

    def chosen(self) -> Rule:
        """Return the payment rule, or raise a ValueError that says which setting is wrong."""
        for name in ("others", "request"):
            if getattr(self, name) > self.max_batch:
                largest = f"`max_batch` ({self.max_batch})"
                raise ValueError(f"`{name}` must be at most {largest}, got {getattr(self, name)}")
        if self.ratio != 1 and self.rule != "agreement":
            raise ValueError(
                f"`ratio` must be left out under the rule {self.rule!r}, got {self.ratio:g}: only agreement has a scale"
            )
        rule = self._rule(ExpressionCost(self.cost))
        check_cost(rule.cost, self.max_batch)
        return rule

    def _rule(self, cost: ExpressionCost) -> Rule:
        if self.rule not in PRICES or self.rule in choices() or not can_simulate():
            return choose(self.rule, cost)
        from guerdon.lab.arena.prices import ContractMenu, LocalAccuracy, StackelbergPrice

        made = {"stackelberg": StackelbergPrice, "contract": ContractMenu, "accuracy": LocalAccuracy}
        return made[self.rule](cost)

    def check_simulation(self) -> None:
        """Raise a ValueError that says which setting cannot be simulated."""
        self.chosen()
        if self.ratio != 1:
            raise ValueError(f"`ratio` must be left out here, got {self.ratio:g}: a simulation has the scale it finds")

    def game(self) -> MinibatchGame:
        """Return the game in closed form, or raise a ValueError that says which setting is wrong."""
        rule, sizes = self.chosen(), (self.agents, self.request, ExpressionCost(self.cost), self.max_batch)
        if self.rule in RULES:
            return MinibatchGame(*sizes, rule=self.rule, ratio=self.ratio)
        curve = curve_of(rule)
        if curve is None:
            raise ValueError(f"the rule {self.rule!r} has no closed form; press Simulate to see what it pays")
        return MinibatchGame(*sizes, rule=self.rule, curve=curve)


class BatchSizePay(BaseModel):
    """What one batch size earns."""

    batch_size: int
    expected_reward: float
    cost: float
    utility: float


class GameAnswer(GameSettings):
    """The game from one agent's side, computed by `guerdon.lab.game`."""

    best_response: int
    symmetric_equilibria: list[int]
    others_in_equilibrium: bool
    path: list[int]  # the batch sizes if all agents, from that of the others on, answer each other's last one
    table: list[BatchSizePay]


def play(settings: GameSettings) -> GameAnswer:
    """Return curve, best response and equilibria, as `guerdon equilibrium --json` gives them."""
    game = settings.game()
    report = equilibrium_report(game, settings.others, settings.cost)
    numbers = [value for row in report["table"] for value in row.values()]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"`cost` must be a number that can be drawn for every s up to {settings.max_batch}")
    path = [sizes[0] for sizes in game.best_response_path([settings.others] * settings.agents, max_steps=30)]
    stable = settings.others in report["symmetric_equilibria"]
    return GameAnswer.model_validate(report | {"others_in_equilibrium": stable, "path": path})


def can_simulate() -> bool:
    """Tell whether the simulator's own dependencies are installed."""
    return all(find_spec(package) is not None for package in NEEDED)


def offered_rules() -> dict[str, str]:
    """Return the rules that can be chosen, in words: every one that is registered, and prices of the arena."""
    made = {name: make(AffineCost(1, 1)) for name, make in choices().items()}
    words_of = {name: about(rule).words(rule) for name, rule in made.items()}
    return words_of | {name: words for name, words in PRICES.items() if name not in words_of and can_simulate()}


def sizes_to_try(settings: GameSettings) -> list[int]:
    """Return the batch sizes to simulate beside the request: about eight, around it and that of the others."""
    request, others = settings.request, settings.others
    wanted = {1, request // 2, (3 * request) // 4, request - 1, request + 1, (3 * request) // 2, 2 * request, others}
    return sorted(size for size in wanted - {request} if 1 <= size <= settings.max_batch)


class SimulationCancelled(Exception):  # noqa: N818 - nothing went wrong
    """The reader has gone."""


class SimulationJob:
    """A certificate that a thread computes; `state` is its last event."""

    def __init__(self, settings: GameSettings, ended: Callable[[], None]) -> None:
        self.state: tuple[str, dict[str, Any]] = ("progress", {"done": 0.0, "what": "starting"})
        self._settings = settings
        self.cancelled = threading.Event()
        self._tried = 0
        self._ended = ended

    def run(self) -> None:
        """Compute; every outcome is kept in `state`."""
        total = len(sizes_to_try(self._settings)) + 2

        def announce(name: str) -> None:
            if self.cancelled.is_set():
                raise SimulationCancelled
            self.state = ("progress", {"done": self._tried / total, "what": name})
            self._tried += 1

        try:
            self.state = ("result", simulate(self._settings, announce))
        except SimulationCancelled:
            self.state = ("failed", {"detail": "cancelled"})
        except (ValueError, ArithmeticError, MemoryError, RuntimeError) as error:
            self.state = ("failed", {"detail": str(error)})
        finally:
            self._ended()


class SimulationQueue:
    """Simulations one at a time; each ends when its reader goes away."""

    def __init__(self, closing: Callable[[], bool]) -> None:
        self._busy = threading.Lock()
        self._closing = closing

    async def follow(self, settings: GameSettings) -> AsyncGenerator[str]:
        """Yield the events of a simulation: queued, progress, and last result or failed."""
        while not self._busy.acquire(blocking=False):
            if self._closing():
                return
            yield event("queued", {"detail": "another simulation is running; waiting for it"})
            await asyncio.sleep(5 * TICK)
        job = SimulationJob(settings, self._busy.release)
        threading.Thread(target=job.run, name="guerdon-simulation", daemon=True).start()
        try:
            sent = None
            while sent is None or sent[0] == "progress":
                if job.state != sent:
                    sent = job.state
                    yield event(*sent)
                elif self._closing():
                    return
                await asyncio.sleep(TICK)
        finally:
            job.cancelled.set()  # stops before the next batch size


def simulate(settings: GameSettings, announce: Callable[[str], None]) -> dict[str, Any]:
    """Return what each batch size earned in simulation: normal gradients in 100 dimensions, paired with honest work."""
    rule = settings.chosen()
    announce("loading the simulator")
    from guerdon.lab.agents import Fixed, Portion, Reporting
    from guerdon.lab.certificate import certify
    from guerdon.lab.problems.quadratic import Numbers, noisy_quadratic

    problem = noisy_quadratic(Numbers(1.0, 1.0, float(DIMENSION), 0.0, 1.0), DIMENSION, settings.max_batch)
    tried = {f"use {size}": Reporting(Portion(size / settings.request)) for size in sizes_to_try(settings)}
    certificate = certify(
        problem, rule, settings.request, 0.1, tried, num_agents=settings.agents, rounds=ROUNDS,
        repetitions=REPETITIONS, others=Fixed(settings.others), announce=announce,
    )  # fmt: skip
    return _report(settings, certificate)


def _report(settings: GameSettings, certificate: "Certificate") -> dict[str, Any]:
    # A utility is that of honest work plus the gain, so its bar is no longer than both bars together.
    quantile = student_quantile(
        1 - (1 - certificate.confidence) / (2 * len(certificate.findings)), certificate.repetitions - 1
    )
    utility, error = certificate.honest_utility, certificate.honest_error
    points = [
        _point(size, utility + one.gain, quantile * (one.standard_error + error), one.verdict)
        for size, one in zip(sizes_to_try(settings), certificate.findings, strict=True)
    ]
    honest = _point(settings.request, utility, quantile * error, "as asked")
    if not all(math.isfinite(point["utility"]) for point in (*points, honest)):
        raise ValueError("the simulated pay is not a finite number; try a smaller cost")
    return {
        "honest": honest, "points": points, "confidence": certificate.confidence, "rounds": certificate.rounds,
        "repetitions": certificate.repetitions, "dimension": DIMENSION,
    }  # fmt: skip


def _point(size: int, utility: float, half: float, verdict: str) -> dict[str, Any]:
    return {"batch_size": size, "utility": utility, "low": utility - half, "high": utility + half, "verdict": verdict}
