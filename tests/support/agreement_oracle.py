"""Agreement by pairs in plain loops, from the definitions: pair by pair, round by round, forecast by forecast."""

import math
from typing import Any

import numpy as np

WINDOWS = (1, 2, 4, 8, 16, 32)
FADE, STEEPEST, ENOUGH, MOST_OPEN, TINY = 31 / 32, 4.0, 1 / 5, 6, 1e-9


class PairRule:
    """Pays h(ν) and an extra: at once where the scale V is known, else with the other open rounds."""

    def __init__(self, cost: Any, agents: int, rarest: float = 0.01) -> None:
        self.cost, self.agents, self.reach = cost, agents, 1 / rarest
        self.levels: list[float] = []  # s of every round that said anything, oldest first
        self.losses = [0.0] * 2 * len(WINDOWS)
        self.noise, self.power = 0.0, 0.0
        self.known = False
        self.open: list[tuple[float, float, float, Any]] = []  # level, its relative variance, least V, extras times V

    def pay(self, gradients: Any, sent: Any, nu: int, *, last: bool = False) -> Any:
        """Return the rewards of a round."""
        here = [k for k in range(self.agents) if sent[k]]
        scale = self.scale() if self.known else math.nan
        distance = mean_distances(gradients, here, 2 * self.reach * scale / nu, self.reach)
        rewards = np.zeros(self.agents)
        if len(here) < 2:
            return rewards
        rewards[here] = self.cost(nu)
        if len(here) < 3:
            return rewards
        extras = np.zeros(self.agents)
        for k in here:
            others = [distance[i] for i in here if i != k]
            # Each pair without k is in the sums of two others, and those with k in one of them each.
            expected = (sum(others) - distance[k]) / (len(here) - 2)
            extras[k] = self.cost.slope(nu) * nu**2 * (expected - distance[k])
        level = nu / 2 * sum(distance[k] for k in here) / len(here)
        if self.known:
            rewards += extras / scale
        if level > 0:
            rewards += self._learn(nu, level, relative_variance([distance[k] for k in here]), len(here), extras, scale,
                                   nu / (2 * self.reach) * max(distance.values()), last=last)  # fmt: skip
        return rewards

    def scale(self) -> float:
        """Return V: the forecasts, weighted by what they were worth."""
        noise = relative(self.noise, self.power)
        forecasts = self._forecasts()
        exponents = [-loss / noise - own / 2 for loss, (_, own) in zip(self.losses, forecasts, strict=True)]
        weights = [math.exp(one - max(exponents)) for one in exponents]
        share = [weight / sum(weights) for weight in weights]
        mean = sum(p * value for p, (value, _) in zip(share, forecasts, strict=True))
        return mean * (1 + noise * sum(p * own for p, (_, own) in zip(share, forecasts, strict=True)))

    def _forecasts(self) -> list[tuple[float, float]]:
        """Return every forecast, and its variance in units of that of one round."""
        rounds, found, trends = self.levels, list[tuple[float, float]](), list[tuple[float, float]]()
        for window in WINDOWS:
            size = min(window, len(rounds))
            found.append((sum(rounds[-size:]) / size, 1 / size))
            size = max(1, min(window, len(rounds) // 2))
            late = sum(rounds[-size:]) / size
            if len(rounds) < 2:
                trends.append((late, 1.0))
                continue
            early, ahead = sum(rounds[-2 * size : -size]) / size, (size + 1) / (2 * size)
            factor = min(max(late / early, 1 / STEEPEST), STEEPEST)
            trends.append((late * factor**ahead, ((1 + ahead) ** 2 + ahead**2) / size))
        largest = max(value for value, _ in found + trends)
        return [(max(value, TINY * largest), own) for value, own in found + trends]

    def _learn(
        self, nu: int, level: float, noise: float, agents: int, extras: Any, scale: float, least: float, *, last: bool
    ) -> Any:
        """Remember a round, and return what is settled of open rounds. No round counts for too much."""
        before, quietest = self.known, math.inf
        settled = np.zeros(self.agents)
        largest = max(STEEPEST, 4 / (agents * nu / self.reach))
        if self.known:
            level = min(level, largest * scale)
        else:
            quietest = largest * min([level, *(one for one, *_ in self.open)])
            level = min(level, quietest)
            self.open = [(min(one, quietest), noisy, floor, extra) for one, noisy, floor, extra in self.open]
        if self.levels:
            values = [value for value, _ in self._forecasts()]
            pairs = zip(self.losses, values, strict=True)
            self.losses = [FADE * loss + level / value + math.log(value) for loss, value in pairs]
        if self.known:
            self.noise = FADE * self.noise + noise * (level / scale) ** 2
            self.power = FADE * self.power + (level / scale) ** 2
        else:
            self.open.append((level, noise, least, extras))
            settled = self._settle(agents, last=last)
            most = 2 * self.reach * self.cost.slope(nu) * nu  # what one round may cost, also where several are settled
            settled *= most / max(most, -min(settled))
        self.levels.append(level)
        if not self.open:
            self.levels = [min(one, quietest) for one in self.levels] if not before else self.levels
        return settled

    def _settle(self, agents: int, *, last: bool) -> Any:
        count, settled = len(self.open), np.zeros(self.agents)
        unit = sum(level for level, *_ in self.open) / count
        noise = sum(own * (level / unit) ** 2 for level, own, *_ in self.open) + 2 / (agents - 1)
        power = sum((level / unit) ** 2 for level, *_ in self.open) + 1 + 2 / (agents - 1)
        variance = relative(noise, power)
        if count < 2 or not (variance / (count - 1) <= ENOUGH or count == MOST_OPEN or last):
            return settled
        for index, (_, _, least, extras) in enumerate(self.open):
            others = [level for i, (level, *_) in enumerate(self.open) if i != index]
            settled += extras / max(sum(others) / (count - 1) * (1 + variance / (count - 1)), least)
        self.noise, self.power, self.known, self.open = noise, power, True, []
        return settled


def mean_distances(gradients: Any, here: list[int], cut: float, reach: float) -> dict[int, float]:
    """Return each one's mean squared distance to the others, pairs cut where they are too far apart."""
    apart = {(i, j): float(np.sum((gradients[i] - gradients[j]) ** 2)) for i in here for j in here if i != j}
    if math.isnan(cut) and len(here) > 1:
        middles = [lower_median([apart[k, i] for i in here if i != k]) for k in here]
        cut = reach * (lower_median(middles) or min((one for one in apart.values() if one > 0), default=0.0))
    near = {pair: min(value, cut) for pair, value in apart.items()}
    return {k: sum(near[k, i] for i in here if i != k) / max(len(here) - 1, 1) for k in here}


def lower_median(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def relative_variance(distances: list[float]) -> float:
    """Return e² of one round."""
    n, mean = len(distances), sum(distances) / len(distances)
    apart = sum((one / mean - 1) ** 2 for one in distances) / (n - 1)
    return 4 * apart * (n - 1) / (n * (n - 2))


def relative(noise: float, power: float) -> float:
    return min(max(noise / max(power - noise, TINY * power), TINY), 1 / TINY)
