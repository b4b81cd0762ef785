"""How many samples each agent is asked for in a round of a pilot."""

import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from guerdon.arrays import check_number, check_positive_integer

LEAST_FULL = 3  # agents that do all of the work in a round: fewer cannot be compared by every rule
MOST_HALF = 10  # agents asked for half in a round: each costs one more comparison of all reports


@dataclass(frozen=True)
class PilotDesign:
    """Asks for `request` samples, and a random `share` of the agents for half as many, rounded up.

    Each round draws anew, independently of the rounds before: every agent is in both groups again and again, no request
    tells an agent anything of its next one, and honest agents stay exchangeable, as the bets of an audit need it. At
    least one agent is asked for half, and at least three for all: with fewer than four nobody is asked for half.
    The seed is drawn secretly unless one is given.

    >>> PilotDesign(16, seed=1).requests(round=0, num_agents=10)
    array([16, 16, 16, 16,  8, 16, 16,  8,  8, 16])
    """

    request: int
    share: float = 0.3
    seed: int = field(default_factory=lambda: secrets.randbits(128), repr=False)

    def __post_init__(self) -> None:
        check_positive_integer("request", self.request)
        check_number("share", self.share, minimum=0, inclusive=False)
        if self.request < 2 or self.share >= 1:
            raise ValueError(
                f"`request` must be at least 2 and `share` below 1, got {self.request} and {self.share}: half the "
                "work must be less than all, and somebody must do all"
            )

    @property
    def half(self) -> int:
        """Half of the request, rounded up."""
        return half_of(self.request)

    def requests(self, round: int, num_agents: int) -> Any:
        """Return how many samples each of the agents of a round (0 for the first) is asked for."""
        number = min(max(1, round_half_up(self.share * num_agents)), num_agents - LEAST_FULL, MOST_HALF)
        asked = np.full(num_agents, self.request)
        chosen = np.random.default_rng([self.seed, round]).permutation(num_agents)[: max(number, 0)]
        asked[chosen] = self.half
        return asked


def half_of(request: int) -> int:
    """Return half of a request, rounded up."""
    return -(-request // 2)


def round_half_up(number: float) -> int:
    """Return the nearest whole number."""
    return int(number + 0.5)
