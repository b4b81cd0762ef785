"""What a server does with reports before steady pay sees them, in plain loops over agents and pairs.

Copies, shortening, trust, what pairs are credited for, the bets against pairs. It shares no code and no number with the
server. The rule itself is in `tests.support.steady_oracle`.
"""

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tests.support.steady_oracle import BOLDNESS, Measured, SteadyOracle, Told, log_odds, lower_median

Vectors = dict[int, Any]  # by agent
Pair = tuple[int, int]


class Compared(NamedTuple):
    """How the reports of a round compare."""

    measured: Measured
    pair_distance: Told
    trusted: list[int]
    used: list[int]  # that the model is made from
    copies: list[int]
    factors: Told  # by which reports were shortened


@dataclass
class ReportsOracle:
    """A server that pays steadily. `alike`: all draw fresh samples of the same kind."""

    rule: SteadyOracle
    alike: bool = True
    pairs: dict[Pair, list[float]] = field(default_factory=dict[Pair, list[float]])  # logarithms of wealth
    credit: dict[Pair, tuple[float, int]] = field(default_factory=dict[Pair, tuple[float, int]])  # sum, rounds

    def pay(self, sent: Vectors, p: Any, nu: int, *, closes: bool = False) -> tuple[list[float], Compared]:
        """Return what each agent is released, and how the reports compared."""
        # blocks.LARGEST = 1e15: a number further from the prediction counts as infinite
        v = {k: x - p for k, x in sent.items() if bool(np.all(np.abs(x - p) <= 1e15))}
        found = self.compare(v, {k: sent[k] for k in v})
        rewards = self.rule.pay(found.measured, nu, closes=closes)
        self.watch(v, found.trusted)
        return rewards, found

    def compare(self, v: Vectors, raw: Vectors) -> Compared:
        copies = self.copies(v, raw)
        kept = [k for k in v if k not in copies]
        trusted = self.rule.trusted(kept)
        own = shortened({k: v[k] for k in kept}, self.rule.limit)
        mean = sum(own.values()) / max(len(kept), 1)
        deviation = {k: square(own[k] - mean) for k in kept}
        apart = {k: sum(square(own[k] - own[i]) for i in kept) / max(len(kept) - 1, 1) for k in kept}
        lengths = {k: square(own[k]) for k in kept}
        measured = Measured(deviation, lengths, self.alignment(own, trusted))
        factors = {k: math.sqrt(lengths[k] / square(v[k])) if square(v[k]) > 0 else 1.0 for k in kept}
        return Compared(measured, apart, trusted, trusted if self.alike else kept, copies, factors)

    # Copies.

    def copies(self, v: Vectors, raw: Vectors) -> list[int]:
        found = {k for pair in itertools.permutations(v, 2) if same(v, raw, *pair) for k in pair}
        found = found if len(found) < len(v) else set[int]()
        if not self.alike:
            return sorted(found)
        agents = self.rule.num_agents
        # At a rate of 0.001 of honest federations; of a half that is doubted, nobody can say which part shares.
        accused = [pair for pair, wealth in self.pairs.items() if evidence(wealth) > pair_limit(0.001, agents)]
        doubted = {k for k in range(agents) if self.worst(k) >= pair_limit(0.05, agents)}  # pairs.DOUBT = 0.05
        if 2 * len(doubted) < agents:
            found |= {k for pair in accused if pair[0] in v and pair[1] in v for k in pair}
        return sorted(found) if len(found) < len(v) else []

    def worst(self, k: int) -> float:
        """The evidence against its most suspicious pair; with nobody else, that of no bet at all."""
        return max([0.0, *(evidence(wealth) for pair, wealth in self.pairs.items() if k in pair)])

    # What is credited of how two reports agree.

    def alignment(self, own: Vectors, trusted: list[int]) -> Told:
        """⟨v_k, Σ v_i⟩ over the trusted, without what doubtful pairs agree; and remember what pairs agreed."""
        product = {(i, j): float(own[i] @ own[j]) for i in own for j in own}
        sizes = sorted(abs(product[pair]) for pair in itertools.permutations(trusted, 2))
        usual = sizes[len(sizes) // 2] if len(sizes) > 1 else 0.0
        doubtful = self.doubtful()
        if usual > 0:
            for i, j in itertools.permutations(own, 2):
                # credit.BOUND = 4: no product counts for more than four times the usual
                product[i, j] = min(max(product[i, j], -4.0 * usual), 4.0 * usual)
                total, rounds = self.credit.get((i, j), (0.0, 0))
                self.credit[i, j] = total + product[i, j] / usual, rounds + 1
        found: Told = {}
        for k in own:
            relied = [i for i in trusted if i != k and (k, i) not in doubtful]
            known = sum(self.rule.knowledge(i) for i in relied)
            told = sum(product[k, i] for i in relied) / (known if known > 0 else 1.0)
            found[k] = 0.0
            for i in trusted:
                made_up = i != k and (k, i) in doubtful and known > 0
                found[k] += told * self.rule.knowledge(i) if made_up else product[k, i]
        return found

    def doubtful(self) -> set[Pair]:
        """Pairs that agreed in earlier rounds beyond what both have with the rest, by a standard deviation."""
        mean = {pair: total / rounds for pair, (total, rounds) in self.credit.items()}
        with_rest = {
            k: lower_median([value for pair, value in mean.items() if pair[0] == k]) for k in {pair[0] for pair in mean}
        }
        usual = lower_median(list(with_rest.values())) if with_rest else 0.0
        found = set[Pair]()
        for (i, j), value in mean.items():
            expected = max(with_rest[i], 0.0) * max(with_rest[j], 0.0) / usual if usual > 0 else 0.0
            # credit.DOUBTFUL = 1 standard deviation, credit.SPREAD = 1.48 medians of its size
            if (value - expected) * math.sqrt(self.credit[i, j][1]) > 1.0 * 1.48:
                found.add((i, j))
        return found

    # Bets against pairs.

    def watch(self, v: Vectors, trusted: list[int]) -> None:
        """Bet that each pair's reports agree more than those of the pairs of trusted agents in no doubtful pair."""
        clear = [k for k in trusted if k in v and self.worst(k) < pair_limit(0.05, self.rule.num_agents)]  # DOUBT
        reference = clear if len(clear) >= 4 else list(v)  # pairs.FEWEST = 4
        if len(reference) < 4:
            return
        own = around_middle(v)
        values = {pair: alike(own, *pair, reference) for pair in itertools.combinations(sorted(v), 2)}
        compared = [pair for pair in values if pair[0] in reference and pair[1] in reference]
        ranks: dict[Pair, tuple[float, int]] = {}
        for pair, value in values.items():
            others = [values[other] for other in compared if other != pair]
            # bets.TIE = 1e-6: copies are as like a third report as the originals
            above, below = sum(value > x + 1e-6 for x in others), sum(value < x - 1e-6 for x in others)
            ranks[pair] = (above - below) / len(others), len(others)
        anything = any(ranks[pair][0] != 0 for pair in compared)
        for pair, (rank, others) in ranks.items():
            if rank != 0 or anything:
                wealth = self.pairs.get(pair, [0.0] * len(BOLDNESS))
                self.pairs[pair] = [x + log_odds(b, rank, others) for x, b in zip(wealth, BOLDNESS, strict=True)]


def same(v: Vectors, raw: Vectors, i: int, j: int) -> bool:
    """Whether two reports differ by a thousandth of their length at most (pairs.IDENTICAL), or by rounding."""
    around, own = square(v[i]) + square(v[j]), square(raw[i]) + square(raw[j])
    rounding = float(np.finfo(np.float64).eps) ** 0.75 * around
    return square(v[i] - v[j]) <= max(0.001**2 * min(own, around), rounding)


def shortened(v: Vectors, limit: float) -> Vectors:
    """Every vector cut to `limit` times the median length of the others."""
    result = dict(v)
    for k in v:
        others = [square(v[i]) for i in v if i != k]
        if others and square(v[k]) > limit**2 * lower_median(others):
            result[k] = v[k] * (limit * math.sqrt(lower_median(others) / square(v[k])))
    return result


def around_middle(v: Vectors) -> Vectors:
    """The reports around the one in the middle, none longer than the median of the others (pairs.LONGEST = 1)."""
    middle = min(v, key=lambda k: sorted(square(v[k] - v[i]) for i in v if i != k)[(len(v) - 1) // 2])
    return shortened({k: v[k] - v[middle] for k in v}, 1.0)


def alike(own: Vectors, i: int, j: int, reference: list[int]) -> float:
    """The mean of ⟨X_i − X_a, X_j − X_b⟩ over others a ≠ b of the reference, relative to both lengths."""
    scale = deviation_from(own, i, reference) * deviation_from(own, j, reference)
    found = [
        float((own[i] - own[a]) @ (own[j] - own[b]))
        for a, b in itertools.permutations([k for k in reference if k not in (i, j)], 2)
    ]
    return sum(found) / len(found) / scale if scale > 0 else 0.0


def deviation_from(own: Vectors, i: int, reference: list[int]) -> float:
    """The length of a report's deviation: the root of the mean of ⟨X_i − X_a, X_i − X_b⟩, a ≠ b."""
    found = [
        float((own[i] - own[a]) @ (own[i] - own[b]))
        for a, b in itertools.permutations([k for k in reference if k != i], 2)
    ]
    return math.sqrt(max(sum(found) / len(found), 0.0))


def evidence(wealth: list[float]) -> float:
    """The logarithm of the mean wealth of the bets."""
    return math.log(sum(math.exp(one) for one in wealth) / len(wealth))


def pair_limit(alpha: float, agents: int) -> float:
    """The evidence that all pairs of honest agents together exceed at a rate `alpha` at most."""
    return math.log(1 / alpha) + math.log(max(agents * (agents - 1) // 2, 1))


def square(vector: Any) -> float:
    return float(vector @ vector)
