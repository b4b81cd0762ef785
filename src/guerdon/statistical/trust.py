"""Which agents may score the others: those that are not newcomers, and whose reports tell as much as the others'.

A false report also changes what others are paid, because they are compared with it. So every agent's score is tested
against the others' round by round (`guerdon.statistical.bets`). An agent under suspicion is still scored, but is no
longer used to score others. Nor is a newcomer, until it has had `probation` rounds of its own, or nearly half as many
as the agent with the most. Who joined after the first rounds of a run must also be *cleared*: of late its reports agree
with those that score others, by three standard errors. Otherwise a name that is thrown away before it is doubted could
raise a partner's pay, or lower everybody's. All tests look at earlier rounds only, so honest pay stays exact.

Trust belongs to the server, not to a rule: who was trusted in a round is recorded with its evidence.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import Array, at_least_one, check_number, check_positive_integer, namespace
from guerdon.evidence import Evidence
from guerdon.rule import as_request
from guerdon.statistical.bets import (
    BETS,
    LEAST,
    PEERS,
    TESTS,
    against_agents,
    agent_scores,
    bet,
    least_doubted,
    most_of,
    trusted_agents,
)
from guerdon.statistical.signal import Signal, SignalState, information_scores, noise_of_others

GRACE = 5  # rounds that an agent may have fewer than half of another's, and not be a newcomer
RECENT = 0.9  # weight of a round in whether a newcomer is cleared, relative to the next
CLEAR = 3.0  # standard errors that a newcomer's reports must agree by
PROBATION = 20  # rounds of its own, before which an agent is not used to score others


class TrustState(NamedTuple):
    """What earlier rounds said of each agent, and the bets against it."""

    signal: Array  # see `SignalState`
    weight: Array
    wealth: Array  # (bets, tests, agents): logarithm of what each bet against an agent has become
    tenure: Array  # rounds that its report was counted in
    founder: Array  # 1 where it was there before anybody could be a newcomer
    agreed: Array  # decayed sum of the cosine of its report with the others' mean
    agreed_squares: Array


@dataclass(frozen=True)
class Trust:
    """Trusts agents until the evidence against them exceeds `doubt` to one (infinity: always), newcomers not at once.

    `probation`: rounds of its own, before which a newcomer is not trusted; 0 trusts newcomers.
    """

    doubt: float = 10.0
    probation: int = PROBATION
    signal: Signal = field(default_factory=Signal)

    def __post_init__(self) -> None:
        if self.doubt != float("inf"):
            check_number("doubt", self.doubt, minimum=1)
        if self.probation:
            check_positive_integer("probation", self.probation)

    def init(self, num_agents: int) -> TrustState:
        """Return the state before the first round: nothing is known, everybody is trusted."""
        empty = TrustState(*(np.zeros(num_agents) for _ in TrustState._fields))
        return empty._replace(wealth=np.zeros((len(BETS), len(TESTS), num_agents)))

    def reference(self, state: TrustState, counted: Array) -> Array:
        """Return the agents that this round's reports are compared with: the `reference` of `gather`.

        Newcomers are left out if three others are there, and agents that are not cleared if most others are. If fewer
        than three agents would be trusted, or no more than half, all are: a few that agree must not drive out the rest.

        - `state`: what earlier rounds said.
        - `counted`: booleans (agents,), those that `guerdon.gram.multiply` counted, copies left out.
        """
        xp = namespace(counted)
        enough = xp.clip(_half_of_longest(state, counted), 0.0, float(self.probation))
        eligible = counted & (xp.asarray(state.tenure) >= enough)
        many = xp.sum(xp.astype(eligible, xp.int32)) >= LEAST
        eligible = xp.where(many, eligible, counted)
        eligible = most_of(_cleared(state, counted) | (enough <= 0), eligible)
        return trusted_agents(state.wealth, eligible, self.doubt)

    def suspicion(self, state: TrustState) -> Array:
        """Return the logarithm of the evidence against each agent."""
        return against_agents(state.wealth)

    def learn(self, state: TrustState, evidence: Evidence, trusted: Array, request: Any) -> TrustState:
        """Return the state after a round whose evidence was gathered with these `trusted` agents."""
        xp, nu = namespace(evidence.squared_length), as_request(evidence, request)
        state = TrustState(*(xp.asarray(part, dtype=evidence.squared_length.dtype) for part in state))
        scores, before = information_scores(evidence, trusted), SignalState(state.signal, state.weight)
        _, shrinkage = self.signal.variance_and_shrinkage(before, scores, nu)
        # One shrinkage for all, so that nobody's score differs from another's but by what was sent.
        people = xp.astype(evidence.counted, scores.squared_length.dtype)
        common = xp.sum(people * shrinkage) / at_least_one(xp.sum(people))
        score = 2 * common * scores.agreement - common**2 * scores.squared_length
        # Even a server that trusts every agent ranks none among those that the bets doubt.
        peers = least_doubted(state.wealth, trusted, min(self.doubt, PEERS))
        wealth = bet(state.wealth, agent_scores(score, scores.squared_length, evidence.counted, peers))
        early = evidence.counted & (_half_of_longest(state, evidence.counted) <= 0)
        informative = xp.astype(evidence.counted & noise_of_others(scores)[1], scores.squared_length.dtype)
        agreed, kept = informative * scores.cosine, 1 - (1 - RECENT) * informative
        return TrustState(
            *self.signal.learn(before, scores, nu), wealth, state.tenure + people,
            xp.where(early, 1.0, state.founder),
            kept * state.agreed + agreed, kept**2 * state.agreed_squares + agreed**2,
        )  # fmt: skip


def _half_of_longest(state: TrustState, counted: Array) -> Array:
    """Return nearly half the rounds of the agent with the most: who has had fewer is a newcomer."""
    xp = namespace(counted)
    return xp.max(xp.where(counted, xp.asarray(state.tenure), 0.0)) / 2 - GRACE


def _cleared(state: TrustState, counted: Array) -> Array:
    """Return the agents that may score others at all: founders, and newcomers whose reports agree beyond doubt."""
    xp = namespace(counted)
    founder, agreed, squares = (xp.asarray(x) for x in (state.founder, state.agreed, state.agreed_squares))
    return (founder > 0) | (agreed > CLEAR * xp.sqrt(squares))


def trust_of(rule: Any) -> Trust | None:
    """Return the trust that a rule is paid with; None for a rule whose lens trusts everybody that counts."""
    return getattr(rule, "trust", None)
