"""What an agent may do in the arena: work, work less, send something else, claim something else, or stay away."""

from dataclasses import replace
from typing import NamedTuple

from guerdon.lab.agents import Portion, Reporting

GARBAGE = 9.0  # times the variance of honest noise: three times too long
STRETCH = 1.5
CLAIM = 3.0  # times the request


class Strategy(NamedTuple):
    """What the first agents do; the others work honestly. All but the first of a crew draw the first one's samples."""

    words: str
    agent: Reporting
    crew: int = 1

    def agents(self, number: int) -> list[Reporting]:
        """Return so many agents, the first of which play this."""
        followers = [replace(self.agent, leader=0)] * (self.crew - 1)
        return [self.agent, *followers, *[honest()] * (number - self.crew)]


def honest(share: float = 1.0) -> Reporting:
    """Return an agent that uses `share` of the samples asked for, sends what it computed, and says how many."""
    return Reporting(Portion(share))


def forged(**sent: float) -> Reporting:
    """Return an agent that uses no samples, sends something all the same, and claims to have worked."""
    return replace(Reporting(Portion(0.0), gradient=0.0, fabricates=True, claim=1.0), **sent)


STRATEGIES: dict[str, Strategy] = {
    "honest": Strategy("does what was asked", honest()),
    "half": Strategy("uses half the samples, and says so", honest(0.5)),
    "quarter": Strategy("uses a quarter of the samples, and says so", honest(0.25)),
    "zero": Strategy("sends zeros, and claims to have worked", forged()),
    "echo": Strategy("sends the last mean gradient", forged(echo=1.0)),
    "prediction": Strategy("sends the public prediction", forged(prediction=1.0)),
    "stretched prediction": Strategy(f"sends {STRETCH:g} times the public prediction", forged(prediction=STRETCH)),
    "copy": Strategy("works once, and sends it under two names", honest(), crew=2),
    "triple": Strategy("works, and sends three times its gradient", replace(honest(), gradient=3.0)),
    "garbage": Strategy("sends noise, three times as long as honest noise", forged(honest_noise=GARBAGE)),
    "declines": Strategy("stays away", honest(0.0)),
    "false claim": Strategy("works, and claims three times the samples", replace(honest(), claim=CLAIM)),
}
