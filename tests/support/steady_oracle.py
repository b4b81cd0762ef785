"""Steady pay in plain loops over agents, given the evidence of each round: slow, and easy to check by eye.

It shares no code and no number with the rule. Each number stands here once more, with its name. What the evidence is
made from, report by report, is in `tests.support.steady_reports_oracle`.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

BOLDNESS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # bets.BETS: six bets side by side on each test
TESTS = ("tells less", "shorter", "longer")  # bets.TESTS

Told = dict[int, float]  # a number by agent


class Measured(NamedTuple):
    """The evidence of a round, of the agents that are counted."""

    squared_deviation: Told  # ‖X_k − m̄‖²
    squared_length: Told  # ‖v_k‖², v_k = X_k − p
    alignment: Told  # ⟨v_k, Σ v_i⟩ over the trusted i


@dataclass
class Member:
    """What is remembered of an agent."""

    # For ever: how predictable gradients are without its reports, the bets against it, and its standing.
    signal: float = 0.0
    weight: float = 0.0
    wealth: list[list[float]] = field(default_factory=lambda: [[0.0] * len(TESTS) for _ in BOLDNESS])  # logarithms
    tenure: int = 0
    founder: bool = False
    agreed: float = 0.0
    agreed_squares: float = 0.0
    usual: float = 0.0
    seen: float = 0.0
    # In its period.
    rounds: int = 0
    due: float = 0.0
    earned: float = 0.0
    spread: float = 0.0
    told: float = 0.0
    told_squares: float = 0.0
    credited: float = 0.0
    lately: float = 0.0
    released: float = 0.0

    def begin_period(self) -> None:
        self.rounds = 0
        self.due = self.earned = self.spread = 0.0
        self.told = self.told_squares = self.credited = self.lately = self.released = 0.0

    def against(self) -> float:
        """The logarithm of the mean wealth of all bets on all tests."""
        every = [math.exp(one) for bet in self.wealth for one in bet]
        return math.log(sum(every) / len(every))


class Score(NamedTuple):
    """How an agent's report agrees with the other trusted ones, and these with each other."""

    others: int
    agreement: float  # ⟨v_k, w_k⟩
    signal: float  # of the others: mean ⟨v_i, v_j⟩
    length: float  # of the others: mean ‖v_i‖²
    own: float  # ‖v_k‖²

    @property
    def cosine(self) -> float:
        square_of_mean = ((max(self.others, 1) - 1) * self.signal + self.length) / max(self.others, 1)
        square = self.own * square_of_mean
        return self.agreement / math.sqrt(square) if square > 0 else 0.0


@dataclass
class SteadyOracle:
    """Pays `earned · min(ρ, 1)^2.5` over a period, and nothing before the probation is over."""

    cost: Any
    num_agents: int
    period: int = 200  # SteadyPay.period
    doubt: float = 10.0  # SteadyPay.doubt: odds, beyond which an agent is no measure of others
    limit: float = 3.0  # SteadyPay.limit
    probation: int = 20  # trust.PROBATION
    members: list[Member] = field(default_factory=list[Member])

    def __post_init__(self) -> None:
        self.members = [Member() for _ in range(self.num_agents)]

    # Who is a measure of others.

    def enough(self, counted: list[int]) -> float:
        """Rounds, below which an agent is a newcomer: nearly half of the longest, and no more than the probation."""
        longest = max((self.members[k].tenure for k in counted), default=0)
        return min(max(longest / 2 - 5, 0.0), self.probation)  # trust.GRACE = 5 rounds

    def trusted(self, counted: list[int]) -> list[int]:
        enough = self.enough(counted)
        known = [k for k in counted if self.members[k].tenure >= enough]
        known = known if len(known) >= 3 else counted  # bets.LEAST = 3
        cleared = [k for k in known if enough <= 0 or self.cleared(self.members[k])]
        known = most_of(cleared, known)
        return most_of([k for k in known if self.members[k].against() < math.log(self.doubt)], known)

    @staticmethod
    def cleared(member: Member) -> bool:
        """Whether it was there at first, or its reports tell by three standard errors (trust.CLEAR)."""
        return member.founder or member.agreed > 3.0 * math.sqrt(member.agreed_squares)

    # A round.

    def pay(self, found: Measured, nu: int, *, closes: bool = False) -> list[float]:
        """Return what each agent is released."""
        counted = sorted(found.squared_length)
        trusted = self.trusted(counted)
        scores = {k: score(k, found, trusted) for k in range(self.num_agents)}
        price = self.price(found, counted, trusted, nu)
        self.remember_test(found, counted, trusted, scores, nu)
        self.remember(price, trusted, scores, nu)
        released = [self.release(k, nu, closes=closes) if k in price else 0.0 for k in range(self.num_agents)]
        settled = [k for k in price if self.members[k].rounds >= self.period or (closes and self.final(k) > 0)]
        for k in settled:
            self.members[k].begin_period()
        return released

    def price(self, found: Measured, counted: list[int], trusted: list[int], nu: int) -> Told:
        """h(ν) + h'(ν)·ν·n/(n − 2)·(1 − n·dev_k/Σ dev) over the trusted, of whoever can be compared."""
        if len(counted) < 3 or sum(found.squared_deviation.values()) <= 0:
            return {}
        squares = 0.0
        for k in trusted:
            usual = lower_median([found.squared_deviation[i] for i in counted if i != k])
            # steady.FURTHEST = 3: no report counts as further out than three times the usual
            squares += min(found.squared_deviation[k], 3.0 * usual) if usual > 0 else found.squared_deviation[k]
        n = len(trusted)
        prices: Told = {}
        for k in counted:
            share = n * found.squared_deviation[k] / (squares if squares > 0 else 1.0)
            prices[k] = self.cost(nu) + self.cost.slope(nu) * nu * n / max(n - 2, 1) * (1 - share)
        return prices

    def remember_test(
        self, found: Measured, counted: list[int], trusted: list[int], scores: dict[int, Score], nu: int
    ) -> None:
        """What information pay remembers: signal, bets, standing."""
        longest = max((self.members[k].tenure for k in counted), default=0)
        shrinkage = {k: self.shrinkage(k, scores[k], nu) for k in counted}
        common = sum(shrinkage.values()) / max(len(counted), 1)  # one for all: nobody's score is of another kind
        told = {k: 2 * common * scores[k].agreement - common**2 * found.squared_length[k] for k in counted}
        wealth = self.bets(told, found.squared_length, counted, self.peers(trusted))
        for k, member in enumerate(self.members):
            own = scores[k]
            noise = resolved(own.length - own.signal, own.length)
            informative = own.others > 1 and noise > 0
            if informative:
                member.signal = 0.7 * member.signal + own.signal / (nu * noise)  # InformationPay.decay = 0.7
                member.weight = 0.7 * member.weight + 1
            if k in counted:
                member.founder = member.founder or longest / 2 - 5 <= 0  # trust.GRACE
                member.tenure += 1
            if k in counted and informative:
                member.agreed = 0.9 * member.agreed + own.cosine  # trust.RECENT = 0.9
                member.agreed_squares = 0.9**2 * member.agreed_squares + own.cosine**2
            member.wealth = wealth.get(k, member.wealth)

    def shrinkage(self, k: int, own: Score, nu: int) -> float:
        """a = g²/(g² + σ²/ν) of earlier rounds without k; in the first, of this one with k."""
        member = self.members[k]
        if member.weight > 0:
            ratio = member.signal / member.weight
        else:
            signal = ((own.others - 1) * own.signal + 2 * own.agreement) / (own.others + 1)
            length = (own.others * own.length + own.own) / (own.others + 1)
            noise = nu * resolved(length - signal, length)
            ratio = signal / (noise if noise > 0 else 1.0)
        signal = nu * max(ratio, 0.0)
        return min(max(signal / (signal + 1), 0.005), 1.0)  # InformationPay.least = 0.005

    def peers(self, trusted: list[int]) -> list[int]:
        """The trusted that the bets leave at less than 10 to one (bets.PEERS), or the half least doubted."""
        against = {k: self.members[k].against() for k in trusted}
        usual = sorted(against.values())[len(trusted) // 2] if trusted else 0.0
        return [k for k in trusted if against[k] < math.log(min(self.doubt, 10.0)) or against[k] <= usual]

    def bets(self, told: Told, length: Told, counted: list[int], peers: list[int]) -> dict[int, list[list[float]]]:
        """The wealth of the bets that each tells less than its peers, is shorter, is longer."""
        low, short = (ranks(values, counted, peers) for values in (told, length))
        after: dict[int, list[list[float]]] = {}
        for k in counted:
            others = len([i for i in peers if i != k])
            after[k] = [list(bet) for bet in self.members[k].wealth]
            for test, (rank, sign) in enumerate(((low, 1), (short, 1), (short, -1))):
                anything = rank[k] != 0 or any(rank[i] != 0 for i in peers)
                for boldness, bet in zip(BOLDNESS, after[k], strict=True):
                    bet[test] += log_odds(boldness, sign * rank[k], others) if others and anything else 0.0
        return after

    def remember(self, price: Told, trusted: list[int], scores: dict[int, Score], nu: int) -> None:
        """What was earned, and what was told of the surprise, in units of the signal of the last rounds."""
        known: dict[int, tuple[float, float]] = {}  # what an agent told, and what the others told of each other
        for k in price:
            noise = nu * (scores[k].length - scores[k].signal)
            if scores[k].others > 1 and noise > 0:
                known[k] = scores[k].agreement / noise, scores[k].signal / noise
        scale, now = self.signal([known[k] for k in trusted if k in known], [k for k in trusted if k in known])
        for k in known:
            member = self.members[k]
            member.usual, member.seen = (
                0.7 * member.usual + now,
                0.7 * member.seen + 1,
            )  # information_share.MEMORY = 0.7
        fair = self.cost(nu)
        for k, earned in price.items():
            member, told = self.members[k], (known[k][0] / scale if k in known else 0.0)
            member.rounds, member.due, member.earned = member.rounds + 1, member.due + fair, member.earned + earned
            member.spread += (earned - fair) ** 2
            member.told, member.told_squares = member.told + told, member.told_squares + told**2
            member.lately += told
        over = {k: self.credible(k) for k in price if self.members[k].rounds % 20 == 0}  # STRETCH = 20
        for k, credible in over.items():
            self.members[k].credited, self.members[k].lately = self.members[k].credited + credible, 0.0

    def signal(self, known: list[tuple[float, float]], trusted: list[int]) -> tuple[float, float]:
        """The signal of the last rounds as the trusted had it, and of this one."""
        count = max(len(known), 1)
        now, mean = sum(of_others for _, of_others in known) / count, sum(told for told, _ in known) / count
        error = math.sqrt(sum((told - mean) ** 2 for told, _ in known)) / count**1.5
        before = sum(self.members[k].seen for k in trusted)
        usual = sum(self.members[k].usual for k in trusted) / before if before > 0 else now
        scale = max(usual, 3.0 * error)  # information_share.LEAST_SIGNAL = 3 standard errors of this round's
        return (scale if scale > 0 else 1.0), now

    # What is released.

    def credible(self, k: int) -> float:
        """What it told in its stretch of rounds, no more than the others tell and chance adds."""
        member, others = self.members[k], [one for one in self.present() if one is not self.members[k]]
        if not others:
            return member.lately
        usual = lower_median([one.told / one.rounds for one in others])
        spread = lower_median(
            [math.sqrt(max(one.told_squares / one.rounds - (one.told / one.rounds) ** 2, 0.0)) for one in others]
        )
        number = (member.rounds + 20 - 1) % 20 + 1  # information_share.STRETCH
        # information_share.LEAST_TOLD = 0.8 of a round, REACH = 1.5 standard deviations
        return min(member.lately, number * max(usual, 0.8) + 1.5 * spread * math.sqrt(number))

    def present(self) -> list[Member]:
        return [member for member in self.members if member.rounds > 0]

    def share(self, k: int) -> tuple[float, float, float]:
        """ρ̂, its standard error, and ρ̂ where no stretch of rounds is limited."""
        everybody = range(self.num_agents)
        own = {i: (self.members[i].credited + self.credible(i)) / max(self.members[i].rounds, 1) for i in everybody}
        here = [i for i in everybody if self.members[i].rounds > 0]
        met: Told = {}  # how much those know that each is compared with
        for i in everybody:
            known = sum(own[j] for j in here if j != i and own[j] > 0)
            met[i] = known / max(len(here) - 1, 1) if known > 0 else 1.0
        others = [own[i] / met[i] for i in here if i != k]
        if not others:
            return 0.0, math.inf, 0.0
        usual = max(lower_median(others) * met[k], 0.8)  # information_share.LEAST_TOLD
        member = self.members[k]
        rounds = max(member.rounds, 1)
        square = max(member.told_squares / rounds - (member.told / rounds) ** 2, 0.0)
        error = math.sqrt(square / rounds) / usual if member.rounds else math.inf
        return own[k] / usual, error, member.told / rounds / usual

    def knowledge(self, k: int) -> float:
        """How much its reports told, relative to the others'; 1 before twenty rounds (information_share.STRETCH)."""
        if self.members[k].rounds < 20:
            return 1.0
        return min(max(self.share(k)[0], 0.3), 1 / 0.3)  # information_share.LEAST_KNOWN = 0.3

    def final(self, k: int) -> float:
        return self.amount(k, 1.0)

    def amount(self, k: int, over: float) -> float:
        """What is released in all by the time that so much of the period is over."""
        member = self.members[k]
        share, error, in_full = self.share(k)
        error = error if error < math.inf else 1.0
        # steady.FEWEST = 10 rounds, steady.SURE = 3 standard errors
        if member.rounds < 10 or not share > 3.0 * error:
            return 0.0
        due = member.due if member.due > 0 else 1.0
        more = member.earned - member.due
        square = max(member.spread - more**2 / max(member.rounds, 1), 0.0)
        # steady.CUT = 0.4 standard deviations are cut off on average, and steady.STEEP = 2.5 is the exponent
        lost = 0.4 * by_chance(more / due, math.sqrt(square) / due) + 0.4 * 2.5 * by_chance(in_full - 1, error)
        earned = min(max(member.earned, 0.0), member.due)
        part = min(max(share - 3.0 * (1 - over) * error, 0.0), 1.0) ** 2.5
        return earned * part * (1 + over * lost)

    def release(self, k: int, nu: int, *, closes: bool) -> float:
        """What is released in this round: at most twice the cost (steady.MOST) before the end of the period."""
        member = self.members[k]
        if closes or member.rounds >= self.period:
            reward = max(self.final(k) - member.released, 0.0)
        elif member.tenure > self.probation:
            over = min(member.rounds / (0.85 * self.period), 1.0)  # steady.SETTLED = 0.85 of the period
            reward = min(max(self.amount(k, over) - member.released, 0.0), 2.0 * self.cost(nu))
        else:
            reward = 0.0
        member.released += reward
        return reward

    def held(self, k: int) -> float:
        return max(self.final(k) - self.members[k].released, 0.0)

    def warning(self) -> str:
        """What an operator is told: nothing, or that gradients are predictable, or that a round tells too little."""
        errors = [self.share(k)[1] for k in range(self.num_agents) if self.members[k].rounds >= 2 * 10]  # FEWEST
        if errors and not any(error < 0.5 for error in errors):  # steady.VAGUE = 0.5
            return "predictable"
        late = sorted(one.told / one.rounds for one in self.members if one.rounds >= 50)  # steady.LATE = 50
        middle = (late[(len(late) - 1) // 2] + late[len(late) // 2]) / 2 if late else math.inf
        return "faint" if middle < 0.8 else ""  # information_share.LEAST_TOLD

    def join(self) -> None:
        """One more agent, of whom nothing is known."""
        self.members.append(Member())
        self.num_agents += 1


def score(k: int, found: Measured, trusted: list[int]) -> Score:
    """How the report of k, and the others without it, agree with the trusted ones."""
    own = found.squared_length.get(k, 0.0)

    def cross(i: int) -> float:  # with the trusted ones but itself
        return found.alignment.get(i, 0.0) - (found.squared_length[i] if i in trusted else 0.0)

    others = [i for i in trusted if i != k]
    # Each pair without k is in the sums of two others; a pair with k is in one, and in that of k.
    among = sum(cross(i) for i in trusted) - (2 * cross(k) if k in trusted else 0.0)
    length = sum(found.squared_length[i] for i in others)
    pairs = max(len(others) * (len(others) - 1), 1)
    return Score(len(others), cross(k) / max(len(others), 1), among / pairs, length / max(len(others), 1), own)


def most_of(kept: list[int], counted: list[int]) -> list[int]:
    """Those that are kept, if they are three (bets.LEAST) and more than half; else all."""
    return kept if len(kept) >= 3 and 2 * len(kept) > len(counted) else counted


def ranks(values: Told, counted: list[int], peers: list[int]) -> Told:
    """How often a value is below those of the peers, less how often above, as a share; near ones tie (bets.TIE)."""
    found: Told = dict.fromkeys(peers, 0.0)
    for k in counted:
        total, others = 0, [i for i in peers if i != k]
        for i in others:
            gap = values[i] - values[k]
            if abs(gap) > 1e-6 * (abs(values[i]) + abs(values[k])):
                total += 1 if gap > 0 else -1
        found[k] = total / max(len(others), 1)
    return found


def log_odds(boldness: float, rank: float, others: int) -> float:
    """The logarithm of e^θz, divided by its mean over all ranks that one may have among so many others."""
    possible = [1 - 2 * above / others for above in range(others + 1)]
    return boldness * rank - math.log(sum(math.exp(boldness * one) for one in possible) / len(possible))


def lower_median(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def resolved(noise: float, length: float) -> float:
    """Noise that is a difference of lengths; 0 where it is rounding (mechanism.RESOLUTION = a millionth of them)."""
    return noise if noise > 1e-6 * length else 0.0


def by_chance(beyond: float, error: float) -> float:
    """The error that is made up for, at most 0.15 (steady.NOISIEST); none where chance does not explain the rest."""
    return 0.0 if beyond > 2 * error else min(error, 0.15)
