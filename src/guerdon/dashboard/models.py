"""What the JSON API answers. Exact amounts are decimal text; numbers to be drawn are numbers, both in the unit."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

Amount = Annotated[str, Field(description="An exact amount in the ledger's unit.", pattern=r"^-?\d+\.\d{6}$")]


class Problem(BaseModel):
    """What went wrong."""

    title: str
    status: int
    detail: str


class Verification(BaseModel):
    """Whether everything up to `record` was recomputed and found right."""

    state: Literal["waiting", "checking", "verified", "failed"]
    progress: float
    record: int | None
    payments: int
    at: datetime | None
    problem: str | None
    summary: str


class Status(BaseModel):
    """Whether there is a ledger, where it stands and whether it holds."""

    available: bool
    reason: str | None
    ledger: str | None
    unit: str | None
    record: int | None
    head: str | None
    at: datetime | None
    verification: Verification


class Run(BaseModel):
    """A run and what it has done so far."""

    id: int
    name: str
    state: Literal["waiting", "active", "quiet"]
    rule: str
    cost: str
    agents: int
    rounds: int
    paid: Amount
    started_at: datetime
    last_activity: datetime


class Runs(BaseModel):
    """A page of the list of runs, the newest activity first."""

    unit: str
    total: int
    runs: list[Run]


class Rounds(BaseModel):
    """A run's rounds; each point is the mean of `rounds_per_point` rounds, the cumulative ones are exact."""

    unit: str
    rounds_per_point: int
    round: list[int]
    request: list[float]
    paid: list[float]
    work: list[float]
    cumulative_paid: list[float]
    cumulative_work: list[float]
    took_part: list[float]
    metrics: dict[str, list[float | None]]


class AgentPay(BaseModel):
    """An agent's mean pay a round against the cost of the work asked for, with its 95 % interval."""

    agent: int
    name: str
    rounds: int
    paid: float
    work: float
    difference: float
    low: float | None
    high: float | None
    verdict: Literal["fits", "less", "more", "too early"]
    statuses: dict[str, int]
    median_distance: float | None
    low_distance: float | None
    high_distance: float | None


class AgentsOfRun(BaseModel):
    """Pay against cost of every agent of a run, in the order of its roster."""

    unit: str
    agents: list[AgentPay]


class Band(BaseModel):
    """Where honest work lies 95 % of the time, and the share of this run's distances that does."""

    low: float
    high: float
    freedom: float
    participants: float
    inside: float


class Histogram(BaseModel):
    """How often a distance falls where; `below` and `above` are outside the range."""

    edges: list[float]
    counts: list[int]
    below: int
    above: int


class Distances(BaseModel):
    """Distances relative to what was expected of honest work; both null where the rule looks at none."""

    band: Band | None
    histogram: Histogram | None


class Member(BaseModel):
    """An agent of a run."""

    id: int
    name: str


class Note(BaseModel):
    """A remark on an agent in a round."""

    agent: int
    round: int
    note: str


class Participation(BaseModel):
    """The status of agents (rows) in rounds (columns): an index into `labels`, or -1 before the agent joined."""

    labels: list[str]
    first: int
    last: int
    newest: int
    rounds: list[int]
    agents: list[Member]
    statuses: list[list[int]]
    hidden: int
    notes: list[Note]


class Agent(BaseModel):
    """An agent and what he has."""

    id: int
    name: str
    earned: Amount
    balance: Amount
    deposit: Amount
    escrow: Amount
    carried: Amount


class Agents(BaseModel):
    """A page of the list of agents, by name."""

    unit: str
    total: int
    agents: list[Agent]


class Course(BaseModel):
    """An agent's pay and the cost of the work asked of him in a run, added up, with the band of honest work."""

    unit: str
    rounds_per_point: int
    round: list[int]
    paid: list[float]
    work: list[float]
    low: list[float | None]
    high: list[float | None]


class Line(BaseModel):
    """One line of a statement, with the formula filled in where a rule was applied."""

    record: int
    at: datetime
    what: str
    request: int | None
    status: str | None
    reward: Amount | None
    change: Amount
    balance: Amount
    why: str
    formula: str | None


class Statement(BaseModel):
    """A page of an agent's statement, the newest line first."""

    unit: str
    agent: str
    total: int
    lines: list[Line]


class Payout(BaseModel):
    """A payout batch."""

    number: int
    created_at: datetime
    agents: int
    total: Amount
    outcome: Literal["open", "paid", "cancelled"]
    settled_at: datetime | None
    memo: str


class Payouts(BaseModel):
    """A page of the list of payout batches, the newest first."""

    unit: str
    total: int
    payouts: list[Payout]


class Share(BaseModel):
    """What one agent has in a payout batch."""

    agent: str
    amount: Amount


class PayoutDetail(Payout):
    """A payout batch with everybody's share."""

    unit: str
    items: list[Share]


class Choice(BaseModel):
    """What one batch size earns."""

    batch_size: int
    expected_reward: float
    cost: float
    utility: float


class Game(BaseModel):
    """The game from one agent's side, computed by `guerdon.game`."""

    agents: int
    request: int
    cost: str
    max_batch: int
    rule: Literal["known", "estimated", "balanced"]
    others: int
    best_response: int
    symmetric_equilibria: list[int]
    others_in_equilibrium: bool
    path: list[int]
    table: list[Choice]
