"""The terms of verified work, and what follows from the outcomes of looks: what is released, what is forfeited."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Literal, NamedTuple

from guerdon.arrays import check_choice, check_number, check_positive_integer
from guerdon.looks.draw import Candidates

DAY = 86_400  # seconds
FORFEITS = "share", "all"


class Outcome(StrEnum):
    """What came of the look at one round of one member. The last two say nothing against the member."""

    PASSED = "passed"
    FAILED = "failed"
    UNANSWERED = "unanswered"  # the member did not open its rows before the deadline
    UNREPEATABLE = "could not be repeated"  # nor could the work on the auditor's own rows
    SILENT = "auditor silent"  # no verdict before the deadline

    @property
    def forfeits(self) -> bool:
        """Whether the member loses what hangs on this look."""
        return self in (Outcome.FAILED, Outcome.UNANSWERED)


class Decision(NamedTuple):
    """The outcome in a signed verdict, and when the ledger recorded it (whole seconds since 1970)."""

    outcome: Outcome
    moment: int


class Asked(NamedTuple):
    """One look as the ledger has it. Moments are whole seconds since 1970; None: it did not happen."""

    opened: int  # the member was asked for its rows
    answered: int | None = None
    verdict: Decision | None = None
    appealed: int | None = None
    second: Decision | None = None  # on the appeal


class Settlement(NamedTuple):
    """What becomes of the held pay of a period, in micro-units, and which looks failed."""

    released: int
    forfeited: int
    failed: tuple[bool, ...]


@dataclass(frozen=True)
class Looks:
    """Terms of a run in which pay is held until a look.

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
    default is "share", for whoever has not measured how often honest work fails; `plan.choose` decides from that.

    `auditor`, `second_auditor`: Ed25519 public keys (32 bytes, in hexadecimal) whose verdicts count; the second one
    decides appeals. Empty where they are not settled yet.

    `forfeited_to`: the account that forfeited money goes to. It should be neither the operator's nor the auditor's,
    for they would gain by failures; nor be shared among members, for they would gain by each other's.

    `answer`, `verdict`, `appeal`: seconds until a member must have opened its rows, until the auditor must have signed
    a verdict after that, and until a failed look can no longer be appealed. A week for the member because the person
    who can open rows may be away; two for the others because they must compute or consult first.

    >>> Looks(period=20, looks=1, forfeit="all").pay(17_000_000)
    17850000
    """

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
            raise ValueError("`forfeited_to` must be the name of an account, got '': say where forfeited money goes")

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


def decided(asked: Asked, terms: Looks, now: int) -> Outcome | None:
    """Return the final outcome of a look, or None while something may still change it: until then nothing moves.

    - An answer after its deadline is none. Without an answer in time the look counts as unanswered, whoever says what;
      but a member that was looked at and passed all the same has passed.
    - A verdict after its deadline is none: the auditor was silent. That holds for appeals too.
    - "Failed" and "unanswered" can be appealed until `appeal` seconds after the verdict, or after the deadline for the
      answer. An appeal comes with the member's rows, sealed to the second auditor, or it is none. The verdict on it
      replaces the first. All other outcomes are final at once.

    >>> terms = Looks(answer=10, verdict=10, appeal=10)
    >>> [decided(Asked(opened=0), terms, now) for now in (10, 20, 21)]
    [None, None, <Outcome.UNANSWERED: 'unanswered'>]
    >>> asked = Asked(opened=0, answered=5, verdict=Decision(Outcome.FAILED, 9), appealed=12)
    >>> [decided(asked, terms, now) for now in (22, 23)]  # the second auditor is silent
    [None, <Outcome.SILENT: 'auditor silent'>]
    """
    first = _first(asked, terms, now)
    if first is None or not first.outcome.forfeits:
        return None if first is None else first.outcome
    end = first.moment + terms.appeal
    if asked.appealed is None or asked.appealed > end:
        return first.outcome if now > end else None
    second = _in_time(asked.second, asked.appealed + terms.verdict, now)
    return None if second is None else second.outcome


def _first(asked: Asked, terms: Looks, now: int) -> Decision | None:
    deadline = asked.opened + terms.answer
    if asked.answered is not None and asked.answered <= deadline:
        return _in_time(asked.verdict, asked.answered + terms.verdict, now)
    if asked.verdict is not None and asked.verdict.outcome is Outcome.PASSED:
        return asked.verdict
    return Decision(Outcome.UNANSWERED, deadline) if now > deadline else None


def _in_time(verdict: Decision | None, deadline: int, now: int) -> Decision | None:
    """Return a verdict that came in time, the auditor's silence after the deadline, or None before it.

    "Unanswered" is none: the ledger has an answer.
    """
    if verdict is not None and verdict.moment <= deadline and verdict.outcome is not Outcome.UNANSWERED:
        return verdict
    return Decision(Outcome.SILENT, deadline) if now > deadline else None


def settled(terms: Looks, state: Candidates, outcomes: Mapping[int, Outcome]) -> Settlement:
    """Return what is released and what is forfeited when all looks of a member's period are decided.

    `outcomes`: by round number, one for each of `state.due`. A look fails where any of its rounds failed (it has more
    than one only where coins were refused). With forfeit="share" k failed looks of M forfeit k/M of what is held,
    rounded down: the odd micro-unit stays with the member, unless all looks failed.

    >>> state = Candidates(weight=101, rounds=((3,), (7,)))
    >>> settled(Looks(), state, {3: Outcome.PASSED, 7: Outcome.FAILED})
    Settlement(released=51, forfeited=50, failed=(False, True))
    >>> settled(Looks(forfeit="all"), state, {3: Outcome.PASSED, 7: Outcome.FAILED}).released
    0
    """
    missing = [number for number in state.due if number not in outcomes]
    if missing:
        raise ValueError(f"`outcomes` must have one for every round that is looked at, got none for {missing}: wait")
    failed = tuple(any(outcomes[number].forfeits for number in look) for look in state.rounds)
    count = sum(failed)
    forfeited = state.weight * count // len(failed) if terms.forfeit == "share" else state.weight * (count > 0)
    return Settlement(state.weight - forfeited, forfeited, failed)


def _check_key(name: str, key: str) -> None:
    try:
        wrong = key != "" and (len(bytes.fromhex(key)) != 32 or key != key.lower())
    except ValueError:
        wrong = True
    if wrong:
        raise ValueError(
            f"`{name}` must be an Ed25519 public key, 64 hexadecimal digits in lower case, got {key!r:.80}"
        )
