"""The playground: the game in closed form, and a small certificate simulated beside it, one at a time."""

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from guerdon.costs import ExpressionCost
from guerdon.dashboard.live import TICK, event
from guerdon.game import MinibatchGame, Rule
from guerdon.quantiles import student_quantile
from guerdon.terminal import equilibrium_report

if TYPE_CHECKING:
    from guerdon.certificate import Certificate

MOST_AGENTS = 200
LARGEST_BATCH = 256
DIMENSION = 100
ROUNDS = 20
REPETITIONS = 500
NEEDED = ("jax", "polars")


@dataclass(frozen=True)
class Settings:
    """What the sliders say."""

    agents: int
    request: int
    cost: str
    rule: Rule
    others: int
    max_batch: int

    def game(self) -> MinibatchGame:
        """Return the game, or raise a ValueError that says which setting is wrong."""
        if self.others > self.max_batch:
            raise ValueError(f"`others` must be at most `max_batch` ({self.max_batch}), got {self.others}")
        return MinibatchGame(self.agents, self.request, ExpressionCost(self.cost), self.max_batch, rule=self.rule)


def play(settings: Settings) -> dict[str, Any]:
    """Return curve, best response and equilibria, as `guerdon equilibrium --json` gives them."""
    game = settings.game()
    report = equilibrium_report(game, settings.others, settings.cost)
    numbers = [value for row in report["table"] for value in row.values()]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"`cost` must be a number that can be drawn for every s up to {settings.max_batch}")
    profile = [settings.others] * settings.agents
    return report | {"others_in_equilibrium": settings.others in report["symmetric_equilibria"], "path": _path(game, profile)}  # noqa: E501  # fmt: skip


def _path(game: MinibatchGame, profile: list[int]) -> list[int]:
    """Return where everybody ends up who answers everybody else's last batch size, starting from the others'."""
    return [sizes[0] for sizes in game.best_response_path(profile, max_steps=30)]


def can_simulate() -> bool:
    """Tell whether the simulator's own dependencies are installed."""
    return all(find_spec(package) is not None for package in NEEDED)


def sizes_to_try(settings: Settings) -> list[int]:
    """Return the batch sizes that are simulated: the request apart, about eight around it and the others'."""
    request, others = settings.request, settings.others
    wanted = {1, request // 2, (3 * request) // 4, request - 1, request + 1, (3 * request) // 2, 2 * request, others}
    return sorted(size for size in wanted - {request} if 1 <= size <= settings.max_batch)


class Cancelled(Exception):  # noqa: N818 - nothing went wrong
    """Whoever asked has gone."""


class Job:
    """A certificate being computed in a thread; `state` is what it has come to."""

    def __init__(self, settings: Settings) -> None:
        self.state: tuple[str, dict[str, Any]] = ("progress", {"done": 0.0, "what": "starting"})
        self._settings = settings
        self._cancelled = threading.Event()
        self._tried = 0

    def cancel(self) -> None:
        """Stop before the next batch size."""
        self._cancelled.set()

    def run(self) -> None:
        """Compute; every outcome ends up in `state`."""
        total = len(sizes_to_try(self._settings)) + 2

        def announce(name: str) -> None:
            if self._cancelled.is_set():
                raise Cancelled
            self.state = ("progress", {"done": self._tried / total, "what": name})
            self._tried += 1

        try:
            self.state = ("result", simulate(self._settings, announce))
        except Cancelled:
            self.state = ("failed", {"detail": "cancelled"})
        except (ValueError, ArithmeticError, MemoryError, RuntimeError) as error:
            self.state = ("failed", {"detail": str(error)})


class Desk:
    """Where simulations are asked for: one runs at a time, and it ends when whoever asked goes away."""

    def __init__(self, closing: Callable[[], bool]) -> None:
        self._busy = threading.Lock()
        self._closing = closing

    async def follow(self, settings: Settings) -> AsyncGenerator[str]:
        """Yield events of a simulation: queued, progress, and at last result or failed."""
        while not self._busy.acquire(blocking=False):
            if self._closing():
                return
            yield event("queued", {"detail": "another simulation is running; waiting for it"})
            await asyncio.sleep(5 * TICK)
        job = Job(settings)
        threading.Thread(target=self._work, args=(job,), name="guerdon-simulation", daemon=True).start()
        try:
            told = None
            while told is None or told[0] == "progress":
                if job.state != told:
                    told = job.state
                    yield event(*told)
                elif self._closing():
                    return
                await asyncio.sleep(TICK)
        finally:
            job.cancel()

    def _work(self, job: Job) -> None:
        try:
            job.run()
        finally:
            self._busy.release()


def simulate(settings: Settings, announce: Callable[[str], None]) -> dict[str, Any]:
    """Return what each batch size earned in simulation: normal gradients in 100 dimensions, paired with honest work."""
    settings.game()
    announce("loading the simulator")
    from guerdon.agents import Fixed, Portion, Reporting
    from guerdon.certificate import certify
    from guerdon.config import RULES
    from guerdon.problems.quadratic import Numbers, noisy_quadratic

    problem = noisy_quadratic(Numbers(1.0, 1.0, float(DIMENSION), 0.0, 1.0), DIMENSION, settings.max_batch)
    mechanism = RULES[settings.rule](ExpressionCost(settings.cost), "present")
    tried = {f"use {size}": Reporting(Portion(size / settings.request)) for size in sizes_to_try(settings)}
    found = certify(
        problem, mechanism, settings.request, 0.1, tried, num_agents=settings.agents, rounds=ROUNDS,
        repetitions=REPETITIONS, others=Fixed(settings.others), announce=announce,
    )  # fmt: skip
    return _report(settings, found)


def _report(settings: Settings, found: "Certificate") -> dict[str, Any]:
    # A utility is that of honest work plus the gain, so its bar is no longer than both bars together.
    quantile = student_quantile(1 - (1 - found.confidence) / (2 * len(found.findings)), found.repetitions - 1)
    tried = [(size, finding.gain, finding.standard_error, finding.verdict) for size, finding in zip(sizes_to_try(settings), found.findings, strict=True)]  # noqa: E501  # fmt: skip
    points = [
        _point(size, found.honest_utility + gain, quantile * (error + found.honest_error), verdict)
        for size, gain, error, verdict in tried
    ]
    honest = _point(settings.request, found.honest_utility, quantile * found.honest_error, "as asked")
    if not all(math.isfinite(point["utility"]) for point in (*points, honest)):
        raise ValueError("the simulated pay is not a finite number; try a smaller cost")
    return {
        "honest": honest, "points": points, "confidence": found.confidence, "rounds": found.rounds,
        "repetitions": found.repetitions, "dimension": DIMENSION,
    }  # fmt: skip


def _point(size: int, utility: float, half: float, verdict: str) -> dict[str, Any]:
    return {"batch_size": size, "utility": utility, "low": utility - half, "high": utility + half, "verdict": verdict}
