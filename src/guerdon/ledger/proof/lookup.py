"""What a ledger is checked against: its small tables, looked up, and the state after the records so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from guerdon.ledger.books import chain, tables
from guerdon.ledger.pay.holding import Holding
from guerdon.looks.naming import NamedRound
from guerdon.terms import Terms

MOST_TOLD = 3  # runs of which a result says why their pay was not recomputed

Rows: TypeAlias = Mapping[str, list[dict[str, Any]]]  # table → rows of one record


class MismatchError(Exception):
    """A row that is not what it should be."""


def require(holds: bool, problem: str) -> None:
    """Raise where something does not hold."""
    if not holds:
        raise MismatchError(problem)


@dataclass(frozen=True)
class Lookup:
    """What can be looked up: the small tables, and the owner of each account."""

    name: str
    details: Mapping[int, Rows]  # by record
    agents: Mapping[int, Any]
    keys: Mapping[int, bytes]
    runs: Mapping[int, Any]
    accounts: Mapping[int, Any]
    owned: Mapping[str, Any]  # kind → array: agent → account, without those in runs
    held: Mapping[int, Mapping[int, int]]  # run → agent → the account in which the run holds its pay
    common: Mapping[str, int]
    factors: Mapping[int, Mapping[int, float]]  # run → agent → what its cost is multiplied by; else 1
    prices: Mapping[int, float]  # run → how many times its cost a round is paid, by its terms; else 1

    def factors_of(self, run: int, agents: Any) -> Any:
        """Return the cost factors of agents of a run, by their numbers."""
        own = self.factors.get(run, {})
        return np.array([own.get(agent, 1.0) for agent in agents.tolist()]) if own else np.ones(len(agents))

    def pay_factors(self, run: int, agents: Any) -> Any:
        """Return how many times the rule's pay agents of a run are paid, by their numbers."""
        return self.factors_of(run, agents) * self.prices.get(run, 1.0)

    def account(self, number: int) -> str:
        """Return the name of an account, for people."""
        account = self.accounts.get(int(number))
        if account is None:
            return f"account {number}"
        if account.owner is None:
            return account.kind
        where = "" if account.run is None else f" in run {self.runs[account.run].name!r}"
        return f"{account.kind} of {self.agents[account.owner].name!r}{where}"

    def own(self, run: int, agents: Any) -> dict[str, Any]:
        """Return the accounts of members of a run by kind, as arrays; those of the kind "held" are the run's."""
        found = {kind: self.owned[kind][agents] for kind in tables.PERSONAL if kind != "held"}
        of_run = self.held.get(run)
        return found | ({} if of_run is None else {"held": np.array([of_run.get(int(one), 0) for one in agents])})


@dataclass
class Frozen:
    """The lines of a payout: the account each came from, its amount, and what became of it (an index)."""

    accounts: Any
    amounts: Any
    states: Any


STATES = ("open", *tables.LINE_OUTCOMES)


class KeptRound(NamedTuple):
    """A round that may be looked at: what its ask carried, the hash of all its reports, and of each by agent."""

    named: NamedRound
    reports: bytes
    gradients: Mapping[int, bytes | None]


@dataclass
class VerifierState:
    """The state of the check after the records so far."""

    seq: int = 0
    sealed: bytes = chain.START
    time: datetime = tables.EPOCH
    payments: int = 0
    entries: int = 0
    balances: Any = None
    members: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    last: dict[int, Any] = field(default_factory=dict[int, Any])  # run → row of its last round
    states: dict[int, Any] = field(default_factory=dict[int, Any])
    payees: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    payouts: dict[int, "Frozen"] = field(default_factory=dict[int, "Frozen"])  # by record
    terms: dict[int, Terms] = field(default_factory=dict[int, Terms])  # by run
    holding: dict[int, Holding | None] = field(default_factory=dict[int, Holding | None])  # by run
    founders: dict[int, int] = field(default_factory=dict[int, int])  # run → how many agents it began with
    kept: dict[int, dict[int, KeptRound]] = field(default_factory=dict[int, dict[int, KeptRound]])  # run → round
    # run's name → agent → its roots, each with the first round that they count in
    roots: dict[str, dict[int, list[tuple[int, bytes]]]] = field(
        default_factory=dict[str, dict[int, list[tuple[int, bytes]]]]
    )
    skipped: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])  # run → first round, why

    @property
    def unverifiable(self) -> str | None:
        """Of which rounds the pay was not recomputed, and why; None: of all it was."""
        told = [f"from {named} on: {why}" for named, why in self.skipped.values()]
        return f"pay was not recomputed {'; '.join(told[:MOST_TOLD])}" if told else None
