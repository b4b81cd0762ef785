"""The audit: which agents and which pairs of agents differ from the others, and which agents are cleared."""

from guerdon.audit.groups import SuspiciousGroup, suspicious_group
from guerdon.audit.pairs import (
    SuspiciousPair,
    can_tell_apart,
    copying,
    first_pairs,
    identical,
    pair_limit,
    pair_scores,
    suspicious_pairs,
    watch_pairs,
    without_credit,
)
from guerdon.audit.verdicts import (
    AuditFinding,
    PlayedRound,
    Verdict,
    VerdictTrail,
    differ_among_themselves,
    follow,
    held_back,
    judge,
    proven_ranks,
)
from guerdon.bets import BETS, TESTS, against_agents, evidence_against, limit, widened

__all__ = [
    "BETS",
    "TESTS",
    "AuditFinding",
    "PlayedRound",
    "SuspiciousGroup",
    "SuspiciousPair",
    "Verdict",
    "VerdictTrail",
    "against_agents",
    "can_tell_apart",
    "copying",
    "differ_among_themselves",
    "evidence_against",
    "first_pairs",
    "follow",
    "held_back",
    "identical",
    "judge",
    "limit",
    "pair_limit",
    "pair_scores",
    "proven_ranks",
    "suspicious_group",
    "suspicious_pairs",
    "watch_pairs",
    "widened",
    "without_credit",
]
