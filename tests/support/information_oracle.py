"""Information pay in plain loops over agents and pairs: slow, and easy to check by eye.

It shares no code with the engine, the mechanism, the predictions and the dither, so that each can be tested against it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from guerdon.reports import LARGEST
from guerdon.rule import RESOLUTION
from guerdon.statistical.bets import BETS, TESTS

Vectors = dict[int, Any]  # by agent


def mean_length(v: Vectors, agents: list[int]) -> float:
    """The mean of ‖v_i‖²."""
    return sum(float(v[i] @ v[i]) for i in agents) / len(agents)


def mean_product(v: Vectors, agents: list[int]) -> float:
    """The mean of ⟨v_i, v_j⟩ over pairs of different agents: ĝ²."""
    pairs = [(i, j) for i in agents for j in agents if i != j]
    return sum(float(v[i] @ v[j]) for i, j in pairs) / len(pairs)


def noise(v: Vectors, agents: list[int]) -> float:
    """σ²/ν as these agents have it; 0 where it cannot be told from rounding."""
    length = mean_length(v, agents)
    spread = length - mean_product(v, agents)
    return spread if spread > RESOLUTION * length else 0.0


def lower_median(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def shortened(v: Vectors, limit: float) -> Vectors:
    """Every vector cut to `limit` times the median length of the others'."""
    result = dict(v)
    for k in v:
        others = [math.sqrt(v[i] @ v[i]) for i in v if i != k]
        own = math.sqrt(v[k] @ v[k])
        if others and own > limit * lower_median(others):
            result[k] = v[k] * (limit * lower_median(others) / own)
    return result


class Remembered(NamedTuple):
    """A round as it was compared."""

    v: Vectors
    trusted: list[int]
    request: int


@dataclass
class InformationOracle:
    """R_k = h(ν) + h'(ν)·ν²/(a²σ²)·(I_k − Ī₋ₖ)."""

    cost: Any
    num_agents: int
    decay: float = 0.7
    least: float = 0.005
    doubt: float = 10.0
    limit: float = 3.0
    probation: int = 20
    past: list[Remembered] = field(default_factory=list[Remembered])
    wealth: Any = None  # of each bet against each agent

    def __post_init__(self) -> None:
        if self.wealth is None:
            self.wealth = [[[1.0] * self.num_agents for _ in TESTS] for _ in BETS]

    def against(self, k: int) -> float:
        """The mean wealth of the bets against k, on all tests."""
        return sum(test[k] for bet in self.wealth for test in bet) / (len(BETS) * len(TESTS))

    def pay(self, sent: Vectors, p: Any, nu: int) -> tuple[list[float], Any]:
        """Return the rewards, and the mean gradient of those who are trusted."""
        usable = {k: x - p for k, x in sent.items() if bool(np.all(np.abs(x - p) <= LARGEST))}
        v = shortened(usable, self.limit)
        trusted = self.believed(self.known(list(v)), self.doubt)
        rewards = [self._reward(k, v, trusted, nu) for k in range(self.num_agents)]
        aggregate = p + sum(v[k] for k in trusted) / len(trusted) if trusted else 0 * p
        self._bet(v, trusted, nu)
        self.past.append(Remembered(v, trusted, nu))
        return rewards, aggregate

    def known(self, agents: list[int]) -> list[int]:
        """Those that are no newcomers, if they are three; else all."""
        rounds = {k: sum(k in old.v for old in self.past) for k in agents}
        enough = min(max(max(rounds.values(), default=0) / 2 - 5, 0), self.probation)
        kept = [k for k in agents if rounds[k] >= enough]
        kept = kept if len(kept) >= 3 else agents
        clear = [k for k in kept if enough == 0 or self.founded(k) or self.cleared(k)]
        return clear if len(clear) >= 3 and 2 * len(clear) > len(kept) else kept

    def founded(self, k: int) -> bool:
        """Whether it was there in a round when nobody had had more than ten."""
        rounds = [0] * self.num_agents
        for old in self.past:
            if k in old.v and max(rounds[i] for i in old.v) <= 10:
                return True
            rounds = [count + (i in old.v) for i, count in enumerate(rounds)]
        return False

    def cleared(self, k: int) -> bool:
        """Whether its cosine with the mean of those that were compared with is above 0 by three standard errors."""
        total = squares = 0.0
        for old in self.past:
            others = [i for i in old.trusted if i != k]
            if k in old.v and len(others) >= 2 and noise(old.v, others) > 0:
                w: Any = sum(old.v[i] for i in others)
                lengths = math.sqrt((old.v[k] @ old.v[k]) * (w @ w))
                cosine = float(old.v[k] @ w) / lengths if lengths > 0 else 0.0
                total, squares = 0.9 * total + cosine, 0.9**2 * squares + cosine**2
        return total > 3 * math.sqrt(squares)

    def least_doubted(self, agents: list[int], odds: float) -> list[int]:
        """Those the bets leave at less than `odds` to one, and half of all, and one more, that are least doubted."""
        against = sorted(self.against(k) for k in agents)
        return [k for k in agents if self.against(k) < odds or self.against(k) <= against[len(against) // 2]]

    def believed(self, agents: list[int], odds: float) -> list[int]:
        """Those the bets leave at less than `odds` to one, if they are more than half and at least three; else all."""
        kept = [k for k in agents if self.against(k) < odds]
        return kept if len(kept) >= 3 and 2 * len(kept) > len(agents) else agents

    def _reward(self, k: int, v: Vectors, trusted: list[int], nu: int) -> float:
        others = [i for i in trusted if i != k]
        if k not in v or len(v) < 3 or len(others) < 2:
            return 0.0
        variance = nu * noise(v, [*others, k])
        if variance == 0:
            return 0.0
        a = self.shrinkage(k, v, trusted, nu)
        own = score(v, k, others, a)
        among = 2 * a * mean_product(v, others) - a**2 * mean_length(v, others)
        return self.cost(nu) + self.cost.slope(nu) * nu**2 / (a**2 * variance) * (own - among)

    def shrinkage(self, k: int, v: Vectors, trusted: list[int], nu: int) -> float:
        """a = g²/(g² + σ²/ν), from earlier rounds without k; in the first from this one, with k."""
        total, weight = 0.0, 0.0
        for old in self.past:
            others = [i for i in old.trusted if i != k]
            if len(others) >= 2 and noise(old.v, others) > 0:
                ratio = mean_product(old.v, others) / (old.request * noise(old.v, others))
                total, weight = self.decay * total + ratio, self.decay * weight + 1
        if weight > 0:
            ratio = total / weight
        else:
            everybody = [*[i for i in trusted if i != k], k]
            known = len(everybody) >= 2 and noise(v, everybody) > 0
            ratio = mean_product(v, everybody) / (nu * noise(v, everybody)) if known else 0.0
        signal = max(ratio, 0.0)  # g²/σ²
        return min(max(signal / (signal + 1 / nu), self.least), 1.0)

    def _bet(self, v: Vectors, trusted: list[int], nu: int) -> None:
        """Bet that everybody's score is below those of his peers, and that his report is shorter, or longer."""
        if not v:
            return
        common = sum(self.shrinkage(k, v, trusted, nu) for k in v) / len(v)
        scores = {k: score(v, k, [i for i in trusted if i != k], common) for k in v}
        lengths = {k: float(v[k] @ v[k]) for k in v}
        peers = self.least_doubted(trusted, min(self.doubt, 10.0))
        for k in v:
            others = [i for i in peers if i != k]
            if others:
                low, short = below(scores, k, others), below(lengths, k, others)
                said = differ(scores, [k, *others]), differ(lengths, [k, *others]), differ(lengths, [k, *others])
                for boldness, bets in zip(BETS, self.wealth, strict=True):
                    for test, told, anything in zip(bets, (low, short, -short), said, strict=True):
                        test[k] *= odds(boldness, told, len(others)) if anything else 1.0


def odds(boldness: float, told: float, others: int) -> float:
    """e^θz, divided by its mean over all ranks that one may have among so many others."""
    ranks = [1 - 2 * above / others for above in range(others + 1)]
    return math.exp(boldness * told) / (sum(math.exp(boldness * rank) for rank in ranks) / len(ranks))


def differ(values: dict[int, float], agents: list[int]) -> bool:
    """Whether not all have the same value: else nobody has a rank."""
    return any(below(values, k, [i for i in agents if i != k]) != 0 for k in agents)


def below(values: dict[int, float], k: int, others: list[int]) -> float:
    """How often k's value is below the others', less how often above, as a share."""
    total = 0
    for i in others:
        same = abs(values[k] - values[i]) <= 1e-6 * (abs(values[k]) + abs(values[i]))
        total += 0 if same else 1 if values[k] < values[i] else -1
    return total / len(others)


def score(v: Vectors, k: int, others: list[int], a: float) -> float:
    """I_k = 2a⟨v_k, w_k⟩ − a²‖v_k‖²."""
    if not others:
        return -(a**2) * float(v[k] @ v[k])
    w = sum(v[i] for i in others) / len(others)
    return 2 * a * float(v[k] @ w) - a**2 * float(v[k] @ v[k])


# Predictions, each from the list of all steps so far.


class Step(NamedTuple):
    """Where a step started, along what, and what a dither showed."""

    model: Any
    aggregate: Any
    offset: Any = None
    response: Any = None


Predict = Callable[[list[Step], Any], Any]


def predict_zero(steps: list[Step], model: Any) -> Any:
    del steps
    return np.zeros_like(model)


def predict_last(steps: list[Step], model: Any) -> Any:
    return steps[-1].aggregate if steps else np.zeros_like(model)


def decayed_mean(values: list[Any], decay: float) -> Any:
    weights = [decay ** (len(values) - 1 - i) for i in range(len(values))]
    return sum(w * x for w, x in zip(weights, values, strict=True)) / sum(weights)


def predict_running(steps: list[Step], model: Any, decay: float = 0.8, steady: float = 0.9) -> Any:
    """β times the mean, β by regression of each aggregate on the mean of those before it, both over its length."""
    if len(steps) < 2:
        return np.zeros_like(model)
    aggregates = [step.aggregate for step in steps]
    above = below = 0.0
    for t in range(1, len(aggregates)):
        before, weight = decayed_mean(aggregates[:t], decay), steady ** (len(aggregates) - 1 - t)
        weight /= aggregates[t] @ aggregates[t]
        above, below = above + weight * (before @ aggregates[t]), below + weight * (before @ before)
    beta = min(max(above / below, 0.0), 1.5) if below > 0 else 0.0
    return beta * decayed_mean(aggregates, decay)


def predict_extrapolated(steps: list[Step], model: Any, decay: float = 0.8) -> Any:
    """The same, moved along one curvature for all directions."""
    if not steps:
        return np.zeros_like(model)
    seen = [(step.offset @ step.response, step.offset @ step.offset) for step in steps if step.offset is not None]
    curvature = 0.0
    if seen:
        weights = [decay ** (len(seen) - 1 - i) for i in range(len(seen))]
        above, below = (sum(w * pair[i] for w, pair in zip(weights, seen, strict=True)) for i in (0, 1))
        curvature = max(above / below, 0.0)
    return predict_running(steps, model, decay) + curvature * (model - decayed_mean([s.model for s in steps], decay))


PREDICTIONS: dict[str, Predict] = {
    "zero": predict_zero,
    "last": predict_last,
    "running": predict_running,
    "extrapolated": predict_extrapolated,
}


class Run(NamedTuple):
    """One training: the models θ_0…θ_T, and the rewards (rounds, agents), evidence and ‖u‖ of each round."""

    models: Any
    rewards: Any
    against: Any
    lengths: list[float]


Draw = Callable[[Any, int, int, int], Any]  # (model, batch size, round, agent) → what he sends


def train(
    draw: Draw,
    start: Any,
    sizes: Sequence[Sequence[int]],
    requests: Sequence[int],
    steps: Sequence[float],
    rule: InformationOracle,
    predict: Predict,
    dither: "DitherOracle | None" = None,
) -> Run:
    """Train once with agents who use `sizes[t][k]` samples (0: decline), paying by information."""
    models, rewards, against, lengths, past = [np.asarray(start)], [], [], [], list[Step]()
    for t, (request, step) in enumerate(zip(requests, steps, strict=True)):
        model = models[-1]
        lengths.append(dither.length if dither else 0.0)
        shown = dither.place(model, t) if dither else model
        p = predict(past, shown)
        sent = {k: np.asarray(draw(shown, size, t, k)) for k, size in enumerate(sizes[t]) if size > 0}
        paid, aggregate = rule.pay(sent, p, request)
        rewards.append(paid)
        against.append([rule.against(k) for k in range(rule.num_agents)])
        last = rule.past[-1]
        if dither is None:
            seen = Step(model, aggregate)
        else:
            variance = request * noise(last.v, last.trusted)
            seen = dither.observe(model, aggregate, p, variance, request * len(last.trusted))
        if seen is not None:
            past.append(seen)
            model = model - step * seen.aggregate
            if dither:
                dither.adapt(request)
        models.append(model)
    return Run(np.array(models), np.array(rewards), np.array(against), lengths)


@dataclass
class DitherOracle:
    """Broadcasts θ + u, then θ − u, and makes ‖u‖ as long as the bound of a cost needs it."""

    directions: Callable[[int], Any]  # normals of a round
    length: float
    cost: Any = None
    largest: float = 2.0
    finest: float = 0.0
    offset: Any = None
    first: Any = None
    surprise: Any = None
    answers: list[float] = field(default_factory=list[float])

    def place(self, model: Any, t: int) -> Any:
        if t % 2 == 1:
            return model - self.offset
        normals = self.directions(t)
        self.offset = normals * self.length / math.sqrt(normals @ normals)
        return model + self.offset

    def observe(self, model: Any, aggregate: Any, p: Any, variance: float, samples: int) -> Step | None:
        """Return the step at the end of a pair."""
        if self.first is None:
            self.first, self.surprise = aggregate, aggregate - p
            return None
        response, both = (self.first - aggregate) / 2, (self.first + aggregate) / 2
        unforeseen = (self.surprise - (aggregate - p)) / 2
        self.answers.append((unforeseen @ unforeseen / variance - 1 / (2 * samples)) / self.length**2)
        self.first = None
        return Step(model, both, self.offset, response)

    def adapt(self, nu: int) -> None:
        """Go halfway (in logarithms) to the length at which B is ν, or 0.7 of the bound, at most by a factor √2."""
        if self.cost is None:
            return
        fixed = self.cost(nu) - nu * self.cost.slope(nu)
        target = max(min(0.7 * nu**2 * self.cost.slope(nu) / fixed, nu), self.finest)
        answer = decayed_mean(self.answers, 0.8)
        wanted = math.sqrt(1 / (answer * self.length**2) / target) if answer > 0 else math.inf
        self.length *= math.sqrt(min(max(wanted, 0.5), 2.0))
        self.length = min(max(self.length, 0.01 * self.largest), self.largest)
