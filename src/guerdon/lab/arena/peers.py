"""Peer prediction: agents are paid by how their reports agree with the others', beyond what comes for free."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from guerdon.arrays import Array, check_number, check_positive_integer, namespace
from guerdon.costs import Cost
from guerdon.lab.arena.shares import ToldRule, begin, facts_of, plain_payments
from guerdon.lab.truth import Facts
from guerdon.rule import Need, Payments, Round, Rule, Status
from guerdon.states import NoState

LEAST, MOST = 0.05, 0.95  # correlations that the slope of pay is computed for


class AgreementState(NamedTuple):
    """Decayed sums of how the signs of two agents agree, and of rounds; the same for everybody."""

    agreement: Array
    rounds: Array


class PairAgreement(ToldRule, Protocol):
    """Pays for how an agent agrees with each of the others, beyond how these agree among themselves.

        R_k = h(ν) + λ·( mean over j of T_kj − mean over pairs without k )

    The brackets add to 0 over all agents. λ is taken from how agents agreed in earlier rounds.
    """

    decay: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("decay", self.decay, minimum=0)

    def init(self, num_agents: int) -> AgreementState:
        check_positive_integer("num_agents", num_agents)
        return AgreementState(np.zeros(num_agents), np.zeros(num_agents))

    def agreement(self, surprises: Array, counted: Array) -> Array:
        """Return T_kj for every pair of counted agents; 0 on the diagonal."""
        ...

    def price(self, usual: Array, request: Array) -> Array:
        """Return λ, where two honest agents agree by `usual`."""
        ...

    def pay(self, state: AgreementState, round: Round) -> tuple[Payments, AgreementState]:
        state, status, nu = begin(state, round, least=3)
        facts, counted = facts_of(self), round.evidence.counted
        xp = namespace(facts.reports)
        pairs = self.agreement(facts.reports - facts.prediction, counted)
        count = xp.sum(xp.astype(counted, pairs.dtype))
        own = xp.sum(pairs, axis=1)
        every = xp.sum(own)
        score = own / xp.clip(count - 1, 1.0, None)
        others = (every - 2 * own) / xp.clip((count - 1) * (count - 2), 1.0, None)
        known = state.rounds > 0
        usual = xp.where(known, state.agreement / xp.where(known, state.rounds, 1.0), others)
        reward = self.cost(nu) + self.price(usual, nu) * (score - others)
        heard = xp.astype(count > 2, pairs.dtype)
        mean = every / xp.clip(count * (count - 1), 1.0, None)
        sums = (self.decay * state.agreement + heard * mean, self.decay * state.rounds + heard)
        return plain_payments(reward, status), AgreementState(*(xp.astype(x, pairs.dtype) for x in sums))


@dataclass(frozen=True)
class SignAgreement(PairAgreement):
    """Pay for agreement in the signs of X − p, with coordinates as tasks, beyond agreement by chance.

        T_kj = mean over i of s_ki·s_ji  −  mean over i ≠ i' of s_ki·s_ji',   s = sign(X − p)
        R_k = h(ν) + λ·( mean over j of T_kj − mean over pairs without k )

    The second mean takes away what two agents agree on by always sending the same sign. For normal gradients
    E[T] = (2/π)·arcsin ρ, ρ = ν/(ν + B) between honest agents, and λ is chosen from earlier rounds' T so that the slope
    of pay at ν is h'(ν).

    Source: Dasgupta and Ghosh, Crowdsourced Judgement Elicitation with Endogenous Proficiency, 2013; Shnayder et al.,
    ToldRule Truthfulness in Multi-Task Peer Prediction, 2016 (correlated agreement). That coordinates are tasks, and λ,
    are ours.
    """

    cost: Cost
    decay: float = 0.9
    facts: Facts | None = None

    name = "signs"
    needs = frozenset({Need.COSTS, Need.REPORTS, Need.PREDICTION})

    def agreement(self, surprises: Array, counted: Array) -> Array:
        return sign_agreement(surprises, counted)

    def price(self, usual: Array, request: Array) -> Array:
        return self.cost.slope(request) / agreement_slope(usual, request)


@dataclass(frozen=True)
class DirectionAgreement(PairAgreement):
    """Pay for the cosine between X − p and the others', beyond the cosine of the others with each other.

        C_kj = cos(X_k − p, X_j − p)
        R_k = h(ν) + 2ν·h'(ν)/ĝ·( mean over j of C_kj − mean over pairs without k ),   ĝ: earlier rounds' mean of C

    Length is worth nothing. With S samples E[C] = √(ρ_S·ρ), ρ_S = S/(S + B), so that the slope of pay at ν is
    h'(ν)·(1 − ρ): less than the last sample costs. Less work pays, the more so the smaller the noise scale B is.

    Source: ours, a try at information pay with less noise. It is here as a rule of others, since we do not offer it.
    """

    cost: Cost
    decay: float = 0.9
    facts: Facts | None = None

    name = "directions"
    needs = frozenset({Need.COSTS, Need.REPORTS, Need.PREDICTION})

    def agreement(self, surprises: Array, counted: Array) -> Array:
        xp = namespace(surprises)
        used = xp.where(counted[:, None], surprises, 0.0)
        lengths = xp.sqrt(xp.sum(used**2, axis=1, keepdims=True))
        unit = used / xp.where(lengths > 0, lengths, 1.0)
        return xp.where(xp.eye(unit.shape[0]) > 0, 0.0, unit @ unit.T)

    def price(self, usual: Array, request: Array) -> Array:
        return 2 * request * self.cost.slope(request) / namespace(usual).clip(usual, LEAST, None)


def sign_agreement(surprises: Array, counted: Array) -> Array:
    """Return T_kj for every pair of counted agents; 0 on the diagonal. Coordinates that nobody moves are no tasks."""
    xp = namespace(surprises)
    signs = xp.where(counted[:, None], xp.sign(surprises), 0.0)
    tasks = xp.clip(xp.sum(xp.astype(xp.any(signs != 0, axis=0), signs.dtype)), 2.0, None)
    same, total = signs @ signs.T, xp.sum(signs, axis=1)
    chance = (total[:, None] * total[None, :] - same) / (tasks * (tasks - 1))
    return xp.where(xp.eye(signs.shape[0]) > 0, 0.0, same / tasks - chance)


def agreement_slope(usual: Array, request: Any) -> Array:
    """Return by how much another sample raises E[T] at ν, where two honest agents agree by `usual`.

    With ρ = sin(πT/2) = ν/(ν + B): dρ/dS = ρ(1 − ρ)/(2ν) for one of the two, and dT/dρ = (2/π)/√(1 − ρ²).
    """
    xp = namespace(usual)
    correlation = xp.clip(xp.sin(math.pi / 2 * xp.clip(usual, 0.0, 1.0)), LEAST, MOST)
    return 2 / math.pi * correlation * (1 - correlation) / (2 * request) / xp.sqrt(1 - correlation**2)


@dataclass(frozen=True)
class SquaredDeviation(Rule):
    """Fine each agent for its squared distance to the others' mean, and give the fines to the others in equal parts.

        R_k = h(ν) + C·( mean over j ≠ k of D_j − D_k ),   D_k = ‖X_k − mean of the others‖²,   C = h'(ν)·ν²/σ²

    Source: Dorner et al., Incentivizing Honesty among Competitors in Collaborative Learning and Optimization, 2023,
    where C is any constant that is large enough to deter noise. Between the lines: C is set so that the slope of pay is
    that of the cost, which makes it the paper's rule, balanced by the fines.
    """

    cost: Cost
    variance: Any  # KnownVariance, or in a simulation TrueVariance

    name = "deviation"
    needs = frozenset({Need.COSTS, Need.VARIANCE})

    def pay(self, state: NoState, round: Round) -> tuple[Payments, NoState]:
        state, status, nu = begin(state, round, least=2)
        evidence, xp = round.evidence, namespace(nu)
        count = xp.sum(xp.astype(evidence.counted, nu.dtype), axis=-1, keepdims=True)
        rest = xp.clip(count - 1, 1.0, None)
        distance = (count / rest) ** 2 * evidence.squared_deviation
        others = (xp.sum(xp.where(evidence.counted, distance, 0.0), axis=-1, keepdims=True) - distance) / rest
        factor = self.cost.slope(nu) * nu**2 / self.variance.variance
        payments = plain_payments(self.cost(nu) + factor * (others - distance), status)
        paid = status == Status.PAID.value
        shown = [xp.where(paid, x, xp.nan) for x in (distance, others, self.variance.variance + 0 * distance)]
        return payments._replace(squared_distance=shown[0], expected=shown[1], variance=shown[2]), state
