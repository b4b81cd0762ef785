"""Verified work: spot checks of committed rows, for what no rule can see in reports.

A report made from old samples that has the law of honest work is paid like honest work, by every rule that sees reports
alone. What goes beyond is to look at the work itself, now and then:

1. Before the run each agent commits to its rows: it sends the `commit` of every one, a hash with a salt.
2. In every round the server names the rows that each agent is to use (`named_rows`): anybody can compute which, but
   not before the round's seed is drawn.
3. After the reports are in, `SpotCheck.drawn` says which agents are checked. Such an agent shows the rows it was named,
   with their salts, to somebody who may see them; `SpotCheck.passes` compares them with the commitment, computes the
   gradient again, and compares that with the report.
4. `forfeit_held` takes from an agent that failed what the rule holds of it. An agent that passed loses nothing.

An agent that computes nothing and is checked in a share s of rounds loses s·K a round, if K is held of it. That deters
if s·K is more than what it saves, h(ν).
"""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from guerdon.arrays import check_number, check_positive_integer
from guerdon.server import Server, ServerState

Gradient = Callable[[Any, Any], Any]  # of a model and rows: their mean gradient


def commit(row: Any, salt: bytes) -> str:
    """Return the commitment to a row: it gives nothing away, and no other row has it.

    >>> commit([1.0, 2.0], b"0123456789abcdef")[:8]
    '224f35f1'
    """
    if len(salt) < 16:
        raise ValueError(f"`salt` must have at least 16 bytes, or a row could be guessed from it, got {len(salt)}")
    numbers = np.ascontiguousarray(row, dtype="<f8")
    return hashlib.sha256(salt + repr(numbers.shape).encode() + numbers.tobytes()).hexdigest()


def named_rows(seed: int, agent: int, round_number: int, rows: int, request: int) -> Any:
    """Return which of its rows an agent is to use in a round: `request` different ones, by chance.

    >>> named_rows(7, agent=0, round_number=3, rows=100, request=4)
    array([40, 76, 98, 45])
    """
    for name, value in (("rows", rows), ("request", request)):
        check_positive_integer(name, value)
    if request > rows:
        raise ValueError(f"`request` must be at most the {rows} rows that were committed, got {request}")
    return np.random.default_rng([seed, agent, round_number]).choice(rows, size=request, replace=False)


@dataclass(frozen=True)
class SpotCheck:
    """Checks a `share` of all reports, at random, by computing their `gradient` again.

    A report may differ from it by `tolerance` times its length: for rounding, and no more.
    """

    gradient: Gradient
    share: float = 0.05
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        check_number("share", self.share, minimum=0, inclusive=False)
        check_number("tolerance", self.tolerance, minimum=0)
        if self.share > 1:
            raise ValueError(f"`share` must be at most 1, got {self.share!r}")

    def drawn(self, sent: Any) -> Any:
        """Tell which agents of those that sent something are checked: by the operating system's randomness."""
        draws = [secrets.randbelow(1 << 53) / (1 << 53) for _ in range(len(sent))]
        return np.asarray(sent, dtype=bool) & (np.array(draws) < self.share)

    def passes(self, model: Any, report: Any, rows: Any, salts: Sequence[bytes], commitments: Sequence[str]) -> bool:
        """Tell whether these are the rows that were committed to (named ones, in order), and the report their gradient.

        What cannot be read fails: an agent that must show its work has to show all of it.
        """
        if not len(rows) == len(salts) == len(commitments):
            return False
        if any(commit(row, salt) != told for row, salt, told in zip(rows, salts, commitments, strict=True)):
            return False
        again, report = np.asarray(self.gradient(model, rows), dtype=float), np.asarray(report, dtype=float)
        if again.shape != report.shape or not np.isfinite(report).all():
            return False
        return bool(np.linalg.norm(report - again) <= self.tolerance * np.linalg.norm(again))


def forfeit_held(server: Server, state: ServerState, failed: Any) -> ServerState:
    """Return the state before the next round: what the rule holds of agents that `failed` a check is lost to them.

    They begin again as newcomers do. Agents that passed lose nothing by it: what is held of them is released as ever.
    """
    mask = np.asarray(failed)
    enrolled = int(state.enrolled)
    if mask.dtype != bool or mask.shape != (enrolled,):
        raise ValueError(f"`failed` must be true or false for each of the {enrolled} agents, got {failed!r}")
    return state._replace(rule=server.mechanism.forfeited(state.rule, mask))
