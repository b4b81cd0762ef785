"""What the audit says of the agents of a run, for its page."""

from dataclasses import dataclass

import numpy as np

from guerdon.dashboard.queries import RunData
from guerdon.ledger.read.auditing import RunAudit
from guerdon.statistical.audit import Verdict

MOST = 1e6  # evidence beyond is not told apart


@dataclass(frozen=True)
class AgentAudit:
    """What the audit found of an agent: the evidence is a power of ten, the odds against it at their highest."""

    agent: int
    name: str
    verdict: Verdict
    evidence: float
    differs_in: int | None  # the round in which the evidence sufficed
    because: str  # what says most against it
    cleared_to: int | None


@dataclass(frozen=True)
class RunVerdicts:
    """The audit of a run up to a round, at a rate `alpha` of false verdicts; `newest` says whether that is the last."""

    alpha: float
    last: int
    newest: bool
    can_clear: bool
    agents: list[AgentAudit]


def verdicts(audit: RunAudit, data: RunData) -> RunVerdicts:
    """Return an audit with the agents' numbers."""
    last = int(audit.rounds[-1]) if len(audit.rounds) else 0
    agents = [
        AgentAudit(
            member.id, member.name, finding.verdict, float(np.clip(finding.highest / np.log(10), -MOST, MOST)),
            audit.round_of(finding.differs_in), finding.because, audit.round_of(finding.cleared_to),
        )
        for member, finding in zip(data.agents, audit.findings, strict=False)
    ]  # fmt: skip
    newest = not len(data.number) or last >= int(data.number[-1])
    return RunVerdicts(audit.alpha, last, newest, audit.can_clear, agents)
