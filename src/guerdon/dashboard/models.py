"""What the JSON API answers where the ledger's own rows are shown. Amounts are exact: decimal text in the unit."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, PlainSerializer

from guerdon.ledger.books.money import plain_amount
from guerdon.ledger.read.looked import RunLooks

AmountText = Annotated[str, Field(description="An exact amount in the ledger's unit.", pattern=r"^-?\d+\.\d{6}$")]
Amount = Annotated[int, PlainSerializer(plain_amount, return_type=AmountText)]  # micro-units, text in JSON


class ErrorAnswer(BaseModel):
    """What went wrong."""

    title: str
    status: int
    detail: str


class StatementLine(BaseModel):
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


class StatementPage(BaseModel):
    """A page of an agent's statement, the newest line first."""

    unit: str
    agent: str
    total: int
    lines: list[StatementLine]


class OpenLook(BaseModel):
    """A look that is not decided, or whose period is not settled yet."""

    number: int = Field(description="Its number in the run.")
    agent: int
    member: str
    round: int = Field(description="The round that is looked at.")
    by: Literal["", "member", "appeal", "auditor", "second auditor"] = Field(description="Whose step is next.")
    until: datetime | None = Field(description="When that must have happened; null where the look is decided.")
    words: str


class SettledPeriod(BaseModel):
    """A member's period that is over, and what became of its pay."""

    record: int
    at: datetime
    agent: int
    member: str
    first: int
    last: int
    passed: int
    looks: int
    released: Amount
    forfeited: Amount
    words: str


class LooksOfRun(BaseModel):
    """The looks of a run: of all members, or of one. At most 100 open looks, and the 100 newest settled periods."""

    run: int
    name: str
    held: Amount
    released: Amount
    forfeited: Amount
    waiting: list[str] = Field(description="What is held and until when, in words.")
    open: list[OpenLook]
    open_total: int
    settled: list[SettledPeriod]
    settled_total: int

    @classmethod
    def of(cls, found: RunLooks) -> Self:
        """Return what was read of a run."""
        looks = [one._asdict() | {"by": one.awaited.by, "until": one.until, "words": one.words} for one in found.open]
        periods = [one._asdict() for one in found.settled]
        return cls.model_validate(found._asdict() | {"open": looks, "settled": periods})


class LooksPage(BaseModel):
    """The looks of one run, or of an agent in all its runs, the newest first; none where looks hold no pay."""

    unit: str
    runs: list[LooksOfRun]


class PayoutOverview(BaseModel):
    """A payout batch."""

    number: int
    created_at: datetime
    agents: int
    total: Amount
    outcome: Literal["open", "paid", "cancelled", "bounced", "mixed"]
    state: str = Field(description='What became of its lines: paid, or "2 paid, 1 bounced".')
    settled_at: datetime | None
    reference: str
    memo: str


class PayoutList(BaseModel):
    """A page of the list of payout batches, the newest first."""

    unit: str
    total: int
    payouts: list[PayoutOverview]


class PayoutShare(BaseModel):
    """One agent's part of a payout batch."""

    agent: str
    number: int = Field(description="The agent's number.")
    amount: Amount
    account: str = Field(description="The last four characters of its bank account.")
    outcome: Literal["open", "paid", "cancelled", "bounced"]
    settled_at: datetime | None
    reference: str


class PayoutDetail(PayoutOverview):
    """A payout batch with the share of each agent."""

    unit: str
    items: list[PayoutShare]
