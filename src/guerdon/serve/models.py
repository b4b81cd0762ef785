"""What the service answers. Amounts are exact: decimal text in the unit."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from guerdon.dashboard.models import Amount, AmountText
from guerdon.ledger.books.money import plain_amount
from guerdon.ledger.read.statements import Line, Payslip

SIGNATURE = Field(description="Hexadecimal signature of the report, by the enrolled key", pattern="^([0-9a-f]{2})*$")


class PayAnswer(BaseModel):
    """What an agent was paid for a round, and why."""

    round: int
    request: int
    status: str
    reward: AmountText
    balance: AmountText
    unit: str
    why: str

    @classmethod
    def of(cls, slip: Payslip, unit: str) -> "PayAnswer":
        """Return what to tell an agent of its pay."""
        amounts = {"reward": plain_amount(slip.reward), "balance": plain_amount(slip.balance)}
        return cls(round=slip.round, request=slip.request, status=slip.status, unit=unit, why=slip.why, **amounts)


class WorkAnswer(BaseModel):
    """The work that a round names for an agent, where looks hold its pay."""

    rows: list[int] = Field(description="Of the committed rows, in the order in which they are to be used")
    seed: int = Field(description="Of all other randomness of the work")
    number: str = Field(description="The round's fresh number; rows and seeds follow from it")
    model: str = Field(description="The hash of the model of this round")
    code: str = Field(description="The hash of the application's function")


class AskAnswer(BaseModel):
    """What an agent is asked for: `request` samples at the model of this round. Signatures are of `recorded`."""

    run: str
    agent: str
    round: int
    ended: bool = Field(description="Nothing more is asked for")
    answered: bool = Field(description="The agent has answered in this round")
    request: int
    recorded: int
    sends: Literal["gradients", "models"]
    seconds: float = Field(description="Time left before the round may be settled without this agent")
    pay: PayAnswer | None
    work: WorkAnswer | None = None


class ReceivedAnswer(BaseModel):
    """What was received of an agent in a round; asked again, it is the same."""

    run: str
    agent: str
    round: int
    gradient: str = Field(description="SHA-256 of the report's arrays; empty where the agent declined")
    declined: str


class DeclineBody(BaseModel):
    """Why an agent sends nothing."""

    reason: Annotated[str, Field(max_length=200)] = "no reason given"


class StatementRow(BaseModel):
    """What happened to an agent's money, and what it had afterwards."""

    record: int
    at: str
    what: str
    status: str | None
    reward: Amount | None
    change: Amount
    balance: Amount
    why: str

    @classmethod
    def of(cls, line: Line) -> "StatementRow":
        """Return a line of a statement."""
        same = {
            name: getattr(line, name) for name in ("record", "what", "status", "reward", "change", "balance", "why")
        }
        return cls(at=line.at.isoformat(), **same)


class StatementAnswer(BaseModel):
    """The last lines of an agent's statement, the newest last; `total` is how many there are."""

    agent: str
    unit: str
    total: int
    lines: list[StatementRow]


class HealthAnswer(BaseModel):
    """Whether the service works, for which run of which ledger: signatures name both."""

    run: str
    ledger: str
    round: int
    ended: bool
    problem: str
