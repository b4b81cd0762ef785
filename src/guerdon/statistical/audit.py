"""The audit of a run: which agents differ from the others, which are cleared, and by what evidence.

Two bets at fair odds (`guerdon.statistical.bets`) are kept for each agent, round by round, from nothing but the
recorded evidence:

- *against it*: that its reports tell less than the others', or are shorter or longer. These are the bets by which
  agents are trusted (`guerdon.statistical.trust`). For a run whose rule trusts everybody they are made in the same way,
  around the point that its evidence was gathered around. When their wealth reaches 1/α the agent *differs*. That may be
  its data, or the work of others that want it to look bad. Only where the operator says that all agents are alike, it
  may be *accused*: by bets that leave out those of the others that speak most against it, four of nine members. So an
  honest agent is accused with a probability of at most α, even where so many of the others lie. And what the operator
  says is tested: if the agents that are not accused differ among themselves too, their data are not alike, and nobody
  is accused.
- *for it*: that its reports tell something that was not public. If the agent knows only what is public, ⟨v_k, w_k⟩
  (with v_k what its report adds to the public prediction, w_k the same of the others' mean) is as likely negative as
  positive, so the bet is on its sign. Each time the wealth reaches 1/α the agent is cleared for the rounds so far, and
  the bet starts anew: an agent that stops working is not cleared any more. Only evidence that was gathered around a
  prediction, as for information pay, can clear an agent: otherwise anything public agrees with the others.

Both may be looked at after every round.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np

from guerdon.arrays import namespace
from guerdon.evidence import Evidence
from guerdon.rule import RESOLUTION, Rule, padded, round_of
from guerdon.statistical.bets import (
    BETS,
    TESTS,
    Ranks,
    against_agents,
    agent_scores,
    bet,
    evidence_against,
    limit,
    proven_scores,
    widened,
)
from guerdon.statistical.information import InformationPay
from guerdon.statistical.signal import SignalState, information_scores
from guerdon.statistical.trust import Trust, TrustState, trust_of

__all__ = [
    "AuditFinding",
    "PlayedRound",
    "Verdict",
    "VerdictTrail",
    "differ_among_themselves",
    "follow",
    "judge",
]

LEAST_PART = 0.005  # of a report, that its score is taken of
UNLIKE = 0.05  # rate at which agents that are alike are taken to differ among themselves, so that nobody is accused

Verdict = Literal["accused", "cleared", "differs", "not enough evidence"]


class PlayedRound(NamedTuple):
    """A round as it was paid; agents that joined later are not in it, newcomers come last."""

    rule: Rule
    evidence: Evidence
    participating: Any
    request: int
    trusted: Any = None  # the agents that others were compared with, as recorded; None: as the rule's trust says


class VerdictTrail(NamedTuple):
    """A run round by round: arrays (rounds, agents), with nothing known of an agent before it joined."""

    against: Any  # logarithm of the wealth of the bets against the agent, after the round
    proven: Any  # the same of bets that leave out the others that speak most against it
    strongest: Any  # which of `guerdon.statistical.bets.TESTS` says most against it, as an index
    informed: Any  # the same of the bets for it, since it was last cleared
    cleared: Any  # whether it was cleared in this round, for all rounds up to it
    advantage: Any  # how much more it told than the others, in units of what honest work tells; NaN: not compared
    score: Any  # what it told in the round, as the bets rank it; NaN: not compared
    length: Any  # how long its report was; NaN: not compared

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return len(self.against)


class AuditFinding(NamedTuple):
    """What the audit found of one agent; rounds are indices, evidence is a logarithm."""

    verdict: Verdict
    against: float  # after the last round
    highest: float  # ever
    because: str  # what says most against it: one of `guerdon.statistical.bets.TESTS`
    differs_in: int | None  # the first round in which the evidence sufficed
    informed: float  # since it was last cleared
    cleared_to: int | None
    advantage: float  # mean over the rounds in which it was compared; NaN: in none
    compared: int  # how many these are


def follow(rounds: Iterable[PlayedRound], alpha: float) -> VerdictTrail:
    """Return what a run's rounds say of its agents, round by round, in NumPy; `alpha` is the rate of false verdicts."""
    threshold = limit(alpha)
    state, wealth, proven = None, np.zeros((len(BETS), 0)), np.zeros((len(BETS), len(TESTS), 0))
    rows: list[tuple[Any, ...]] = []
    for played in rounds:
        evidence, crowd = played.evidence, len(played.participating)
        trust = _trust(played.rule)
        state, wealth = padded(trust.init(crowd), state), widened(wealth, crowd)
        proven = np.pad(proven, [(0, 0), (0, 0), (0, crowd - proven.shape[-1])])
        trusted = _trusted(played, trust, state)
        score, length = _ranked(evidence, trusted)
        proven = bet(proven, proven_scores(score, length, evidence.counted, state.tenure))
        signs = _agreement(played, trusted)
        wealth = bet(wealth, Ranks(signs, np.abs(signs)))  # of two values each, as if ranked beside one other
        informed = evidence_against(wealth)
        cleared = informed >= threshold
        wealth = np.where(cleared, 0.0, wealth)
        advantage = _advantage(played, trust, state, trusted)
        state = trust.learn(state, evidence, trusted, played.request)
        strongest = np.argmax(evidence_against(state.wealth), axis=0)
        ranked = [np.where(evidence.counted, x, np.nan) for x in (score, length)]
        rows.append((trust.suspicion(state), against_agents(proven), strongest, informed, cleared, advantage, *ranked))
    return _stacked(rows)


def judge(trail: VerdictTrail, alpha: float, *, alike: bool = False) -> list[AuditFinding]:
    """Return what a run's trail amounts to, agent by agent; `alpha` is the one it was followed with.

    Only where all agents draw fresh samples of the same kind (`alike`) is a difference an accusation, and only where
    the evidence does not speak against that (`differ_among_themselves`).
    """
    if not trail.rounds:
        return []
    alike = alike and not differ_among_themselves(trail, alpha)
    return [
        _finding(VerdictTrail(*(part[:, agent] for part in trail)), limit(alpha), alike=alike)
        for agent in range(trail.against.shape[1])
    ]


def differ_among_themselves(trail: VerdictTrail, alpha: float) -> bool:
    """Return whether agents differ among themselves even without those that could be accused: then their data do.

    The bets against each of the rest, ranked among the rest alone, are averaged (their mean is fair too). Agents that
    are alike are found to differ with a probability of at most 0.05.
    """
    rest = (trail.proven < limit(alpha)).all(axis=0)
    if rest.all() or not rest.any():
        return False
    wealth = np.zeros((len(BETS), len(TESTS), len(rest)))
    for score, length in zip(trail.score, trail.length, strict=True):
        counted = rest & np.isfinite(score)
        scores, long = (np.where(counted, x, 0.0) for x in (score, length))
        wealth = bet(wealth, agent_scores(scores, long, counted, counted))
        if float(evidence_against(wealth[..., rest].reshape(-1))) >= limit(UNLIKE):
            return True
    return False


def _trust(rule: Rule) -> Trust:
    """Return what keeps the bets: the rule's own, or one that trusts every agent, as the run did."""
    return trust_of(rule) or Trust(doubt=float("inf"), probation=0)


def _trusted(played: PlayedRound, trust: Trust, state: TrustState) -> Any:
    """Return the agents that others were compared with in a round: as recorded, else as earlier rounds say."""
    if played.trusted is not None:
        return np.asarray(played.trusted, dtype=bool)
    return trust.reference(state, played.evidence.counted)


def _advantage(played: PlayedRound, trust: Trust, state: TrustState, trusted: Any) -> Any:
    """Return, per agent, how much more it told than the others, in units of what honest work tells."""
    signal = trust.signal
    rule = InformationPay(played.rule.cost, signal.decay, signal.least, pooled=signal.pooled)
    one = round_of(played.evidence, played.participating, played.request, trusted)
    payments, _ = rule.pay(SignalState(state.signal, state.weight), one)
    return played.request * (payments.expected - payments.squared_distance) / payments.variance


def proven_ranks(evidence: Evidence, trusted: Any, tenure: Any) -> Ranks:
    """Return where each agent's score and length stand, those of the others left out that speak most against it."""
    return proven_scores(*_ranked(evidence, trusted), evidence.counted, tenure)


def _ranked(evidence: Evidence, trusted: Any) -> tuple[Any, Any]:
    """Return what agents are ranked by: the score and the length of each one's report."""
    xp, scores = namespace(evidence.squared_length), information_scores(evidence, trusted)
    agreement, length = (xp.sum(xp.where(evidence.counted, x, 0.0)) for x in (scores.agreement, scores.squared_length))
    part = xp.clip(xp.where(length > 0, agreement / xp.where(length > 0, length, 1.0), 0.0), LEAST_PART, 1.0)
    return 2 * part * scores.agreement - part**2 * scores.squared_length, scores.squared_length


def _agreement(played: PlayedRound, trusted: Any) -> Any:
    """Return the sign of ⟨v_k, w_k⟩ per agent: 0 where it is not resolved, or says nothing."""
    evidence = played.evidence
    if trust_of(played.rule) is None:
        return np.zeros(len(evidence.squared_length))
    cross = evidence.alignment - np.where(trusted, evidence.squared_length, 0.0)
    # A report that lies on the prediction differs from it by rounding, which may well have a constant sign.
    typical = np.sum(evidence.squared_length) / max(np.count_nonzero(evidence.counted), 1)
    return np.where(evidence.counted & (evidence.squared_length > RESOLUTION * typical), np.sign(cross), 0.0)


def _stacked(rows: list[tuple[Any, ...]]) -> VerdictTrail:
    """Return rows of growing length as arrays."""
    crowd = max((len(row[0]) for row in rows), default=0)
    empty = (0.0, 0.0, 0, 0.0, False, np.nan, np.nan, np.nan)
    return VerdictTrail(
        *(
            np.array(
                [np.pad(row[index], (0, crowd - len(row[index])), constant_values=nothing) for row in rows]
            ).reshape(len(rows), crowd)
            for index, nothing in enumerate(empty)
        )
    )


def _finding(trail: VerdictTrail, threshold: float, *, alike: bool) -> AuditFinding:
    """Return what the columns of one agent amount to."""
    beyond, freed = np.flatnonzero(trail.against >= threshold), np.flatnonzero(trail.cleared)
    differs_in = int(beyond[0]) if len(beyond) else None
    cleared_to = int(freed[-1]) if len(freed) else None
    verdict: Verdict = "not enough evidence" if differs_in is None else "differs"
    verdict = verdict if cleared_to is None else "cleared"
    proven = np.flatnonzero(trail.proven >= threshold)
    if alike and len(proven):
        verdict, differs_in = "accused", int(proven[0])
    advantages: list[float] = [value for value in trail.advantage.tolist() if value == value]  # not NaN
    mean = sum(advantages) / len(advantages) if advantages else float("nan")
    standing = 0.0 if trail.cleared[-1] else float(trail.informed[-1])
    latest, highest = float(trail.against[-1]), float(np.max(trail.against))
    because = TESTS[int(trail.strongest[-1 if differs_in is None else differs_in])]
    return AuditFinding(verdict, latest, highest, because, differs_in, standing, cleared_to, mean, len(advantages))
