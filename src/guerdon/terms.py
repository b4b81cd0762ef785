"""The terms of a run: when pay is released, who covers losses, and what members must do. Settings only, no database.

They are recorded with the run. A change of them in a running run is a record of its own. Every way to run a federation
(Flower, FLARE, `guerdon serve`, a loop, a pilot) takes the same `Terms`, as they are.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, TypeAlias

from guerdon.arrays import check_choice, check_number, check_positive_integer
from guerdon.rule import Rule
from guerdon.words import about, can_take_back

Losses: TypeAlias = Literal["carry", "deposit", "floor"]
LOSSES = "carry", "deposit", "floor"
FORFEITS = "share", "all"
DAY = 86_400  # seconds
LONGEST = 1000  # rounds that pay is held for: each is a column of what the ledger keeps for a run


@dataclass(frozen=True)
class AtOnce:
    """What a rule releases is payable at once."""

    kind: ClassVar[str] = "at once"

    @property
    def words(self) -> str:
        """Until when pay is held, in words."""
        return "payable at once"


@dataclass(frozen=True)
class Vesting:
    """What a rule releases is held for so many rounds in which the member takes part; until then a loss can claim it.

    `rounds`: 20 holds more than the noise of pay can take in 20 rounds of every rule that we measured. Half of it lets
    a new name leave with what chance gave it; twice as many hold twice as much money.
    """

    kind: ClassVar[str] = "vesting"
    rounds: int = 20

    def __post_init__(self) -> None:
        check_positive_integer("rounds", self.rounds)
        if self.rounds > LONGEST:
            raise ValueError(f"`rounds` must be at most {LONGEST:,}, got {self.rounds:,}")

    @property
    def words(self) -> str:
        """Until when pay is held, in words."""
        return f"held for {self.rounds} rounds of a member's own; until then a loss can claim it"


@dataclass(frozen=True)
class Looks:
    """What a rule releases is held until some of its rounds were looked at (`guerdon.looks`).

    `period`: rounds until held pay is settled. 50 holds at most 50 rounds of pay and shows `looks` / 50 of the rounds;
    25 shows twice as many rows for the same deterrence, 100 holds twice as much money and makes each loss twice as big.

    `looks`: candidates per member and period, M. With one, `forfeit` makes no difference. Three show half as many rows
    again, and cost an honest member half as much again where all is forfeited.

    `margin`: share of the cost that is paid on top of it, for every round. Work is better than declining by this
    share, and so is work better than cheating. It must exceed what honest work loses by false failures
    (`guerdon.looks.plan`), and what the stated cost may be too low by.

    `forfeit`: what a failed look costs. "share": its part F/M of what is held. Cheating in a round is then worth
    exactly what declining it is worth, and one false failure costs an honest member least. "all": everything that is
    held. Every cheat but "never works" then loses more, and honest work loses M times as much by false failures. The
    default is "share", where nobody has measured how often honest work fails; `plan.choose` decides from that.

    `auditor`, `second_auditor`: Ed25519 public keys (32 bytes, in hexadecimal) whose verdicts count; the second one
    decides appeals. Empty where they are not settled yet.

    `forfeited_to`: for what forfeited money is meant, in words. The ledger keeps it in an account of its own, the
    reserve. It should go to neither operator nor auditor, who would gain by failures; nor to members, who would gain
    by each other's.

    `answer`, `verdict`, `appeal`: seconds until a member must have opened its rows, until the auditor must have signed
    a verdict after that, and until a failed look can no longer be appealed. A week for the member because the person
    who can open rows may be away; two for the others because they must compute or consult first.

    `work`, `code`: the application's function, "module:function", which members and auditor use, and the SHA-256 of its
    source (`guerdon.looks.isolation.code_hash`). Empty where they are not settled yet. Where only `work` is said, a run
    takes the code of the function as it is installed with the server.

    >>> Looks(period=20, looks=1, forfeit="all").pay(17_000_000)
    17850000
    """

    kind: ClassVar[str] = "looks"
    period: int = 50
    looks: int = 2
    margin: float = 0.05
    forfeit: Literal["share", "all"] = "share"
    auditor: str = ""
    second_auditor: str = ""
    forfeited_to: str = "reserve"
    answer: int = 7 * DAY
    verdict: int = 14 * DAY
    appeal: int = 14 * DAY
    work: str = ""
    code: str = ""

    def __post_init__(self) -> None:
        for name in ("period", "looks", "answer", "verdict", "appeal"):
            check_positive_integer(name, getattr(self, name))
        check_number("margin", self.margin, minimum=0)
        check_choice("forfeit", self.forfeit, FORFEITS)
        for name in ("auditor", "second_auditor"):
            _check_key(name, getattr(self, name))
        if self.auditor and self.auditor == self.second_auditor:
            raise ValueError("`second_auditor` must be another than `auditor`: an appeal needs somebody else")
        if not self.forfeited_to:
            raise ValueError("`forfeited_to` must say what forfeited money is for, got ''")
        module, _, function = self.work.partition(":")
        if self.work and not all(part.isidentifier() for part in [*module.split("."), function]):
            raise ValueError(f"`work` must be 'module:function', such as 'my_app.task:work', got {self.work!r:.80}")
        if self.code and (len(self.code) != 64 or set(self.code) - set("0123456789abcdef")):
            raise ValueError(f"`code` must be a SHA-256, 64 hexadecimal digits in lower case, got {self.code!r:.80}")

    @property
    def words(self) -> str:
        """Until when pay is held, in words."""
        return f"held until {self.looks} of {self.period} rounds were looked at"

    @property
    def price(self) -> float:
        """How many times its cost a round is paid."""
        return 1 + self.margin

    def pay(self, cost: int) -> int:
        """Return flat pay for a round, in micro-units, from what its work costs: rounded half to even."""
        return round(cost * (1 + Fraction(str(float(self.margin)))))

    def weight(self, pay: int, cost: int) -> int:
        """Return the weight of a round for a rule whose pay may fall below the cost: the larger of the two.

        With a smaller weight a cheat in a round of low pay would be looked at too seldom.
        """
        return max(pay, cost)

    def ends_period(self, round: int, first: int = 1) -> bool:
        """Return whether a period ends with this round, in a run whose first round has the number `first`.

        Periods are the same for all members, so that members of equal pay have equal candidates. Who joins within one
        has a shorter first period.
        """
        return (round - first + 1) % self.period == 0

    def end_of_period(self, round: int, first: int = 1) -> int:
        """Return the last round of the period of a round, in a run whose first round has the number `first`.

        >>> Looks(period=50).end_of_period(7), Looks(period=50).end_of_period(51)
        (50, 100)
        """
        return first + ((round - first) // self.period + 1) * self.period - 1


Hold: TypeAlias = AtOnce | Vesting | Looks
HOLDS = {kind.kind: kind for kind in (AtOnce, Vesting, Looks)}


@dataclass(frozen=True)
class Terms:
    """The terms of a run.

    `hold`: until when pay is held: `AtOnce()`, `Vesting(rounds)`, or `Looks(...)` for verified work. None: as is safe,
    `Vesting()` where the rule can take back more than a round's cost, else at once.

    `losses`: what becomes of a negative reward. "carry" nets it against later ones: for members that are known.
    "deposit" charges it to what the member has deposited: for seats that anybody may take. By a rule whose losses are
    others' gains such a member is asked only while its deposit, with what the run holds of it, covers the most that it
    can lose in the next round: what nobody covers would be cut, and then less work pays. "floor" cuts it at zero, so
    that the payer covers it: a rule by which others gain what one loses refuses it.

    `deposit`: units that a member must have deposited before it joins.

    `budget`: units for all rounds of the run together; the run ends before a round that it does not cover. None: no
    end.

    `cost_factors`: one multiplier per member. A member with factor 1.5 has 1.5 times the rule's cost and is paid 1.5
    times as much. Others have 1.

    `quorum`: reports that settle a round before its deadline. None: all that were asked.

    `deadline`: seconds after which a round is settled without those that have not reported. None: as the framework has
    it.

    `signatures`: whether a report that its member did not sign is refused.

    `one_step`: whether the operator has made sure that members take one step on all samples that they were asked for.
    A rule that would pay for less work where they take several steps asks for it.

    >>> Terms(hold=Vesting(50), cost_factors={"Basel": 1.5}).losses
    'carry'
    """

    hold: Hold | None = None
    losses: Losses = "carry"
    deposit: float = 0.0
    budget: float | None = None
    cost_factors: Mapping[str, float] = field(default_factory=dict[str, float])
    quorum: int | None = None
    deadline: float | None = None
    signatures: bool = False
    one_step: bool = False

    def __post_init__(self) -> None:
        if self.hold is not None and not isinstance(self.hold, Hold):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"`hold` must be AtOnce(), Vesting(rounds) or Looks(...), got {self.hold!r}")
        check_choice("losses", self.losses, LOSSES)
        check_number("deposit", self.deposit, minimum=0)
        if self.deposit and (self.losses != "deposit" or isinstance(self.hold, AtOnce | Looks)):
            raise ValueError(
                f"`deposit` must be 0 with losses={self.losses!r} and hold={self.hold!r}, got {self.deposit:g}: only "
                "losses='deposit' charges it, and what it secures must not be paid at once"
            )
        for name in ("budget", "deadline"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), minimum=0)
        if self.quorum is not None:
            check_positive_integer("quorum", self.quorum)
        if not isinstance(self.cost_factors, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            told = repr(self.cost_factors)
            raise TypeError(f'`cost_factors` must be a factor for each agent, {{"north": 1.5}}, got {told}')
        for name, factor in self.cost_factors.items():
            check_number(f"cost_factors[{name!r}]", factor, minimum=0, inclusive=False)

    @property
    def price(self) -> float:
        """How many times its cost a round is paid: more than once where looks have a margin."""
        return self.hold.price if isinstance(self.hold, Looks) else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return the terms in the types of JSON, with the names that `terms_from` takes."""
        told = {part.name: getattr(self, part.name) for part in fields(self)}
        hold = None if self.hold is None else {"kind": self.hold.kind, **asdict(self.hold)}
        return told | {"hold": hold, "cost_factors": dict(self.cost_factors)}

    def under(self, rule: Rule) -> "Terms":
        """Return the terms of a run that pays by a rule, with `hold` said, or raise where they do not fit the rule.

        Where one member's loss is another's gain no loss may be cut: then doing less would pay again.

        >>> from guerdon import AffineCost, FlatPay
        >>> Terms().under(FlatPay(AffineCost(1, 1))).hold
        AtOnce()
        """
        usual = Vesting() if can_take_back(rule) else AtOnce()
        terms = replace(self, hold=usual if self.hold is None else self.hold)
        if isinstance(terms.hold, Looks):
            _check_looks(terms.hold, self.losses, rule)
        at_once = isinstance(terms.hold, AtOnce)
        if about(rule).transfers(rule) and (self.losses == "floor" or (self.losses == "deposit" and at_once)):
            raise ValueError(
                f"`losses` must be 'carry' under {about(rule).words(rule)}, or 'deposit' with `hold=Vesting(rounds)`, "
                f"got {self.losses!r}: what one member loses others gain, and a loss that is cut makes less work pay"
            )
        return terms


def terms_from(told: Mapping[str, Any]) -> Terms:
    """Return the terms that plain values say, by the names of `Terms`; raise where one is wrong or unknown.

    >>> terms_from({"hold": {"kind": "vesting", "rounds": 5}, "losses": "carry"})
    Terms(hold=Vesting(rounds=5), losses='carry', ...)
    """
    names = [part.name for part in fields(Terms)]
    unknown = sorted(set(told) - set(names))
    if unknown:
        raise ValueError(f"terms must be named {', '.join(names)}; got {unknown[0]!r}")
    kept, hold = dict(told), told.get("hold")
    kept["hold"] = None if hold is None else _hold_from(hold)
    return Terms(**kept)


def _hold_from(told: Any) -> Hold:
    if not isinstance(told, Mapping) or told.get("kind") not in HOLDS:  # pyright: ignore[reportUnknownMemberType]
        kinds = ", ".join(map(repr, HOLDS))
        raise ValueError(f"`hold` must be a table with a `kind`, one of {kinds}, got {told!r}")
    kept: dict[str, Any] = dict(told)  # pyright: ignore[reportUnknownArgumentType]
    return HOLDS[kept.pop("kind")](**kept)


def _check_looks(hold: Looks, losses: Losses, rule: Rule) -> None:
    """Raise where the pay of a rule cannot be held until looks: what a failed look takes must be there, and stay."""
    if about(rule).worst_loss(rule, 1) > 0:
        raise ValueError(
            f"`hold` must not be Looks with {about(rule).words(rule)}, by which a member can lose what looks hold: pay "
            "flat, `FlatPay(cost)`; looks make sure of the work"
        )
    if losses != "carry":
        raise ValueError(f"`losses` must be 'carry' with `hold=Looks(...)`, under which there are none, got {losses!r}")
    if not hold.auditor:
        raise ValueError("`auditor` must be the public key of the auditor: `guerdon looks key` makes one")


def _check_key(name: str, key: str) -> None:
    try:
        wrong = key != "" and (len(bytes.fromhex(key)) != 32 or key != key.lower())
    except ValueError:
        wrong = True
    if wrong:
        raise ValueError(
            f"`{name}` must be an Ed25519 public key, 64 hexadecimal digits in lower case, got {key!r:.80}"
        )
