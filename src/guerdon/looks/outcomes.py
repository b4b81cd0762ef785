"""What follows from the outcomes of looks: when each is final, what is released, and what is forfeited."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from guerdon.looks.draw import Candidates
from guerdon.terms import Looks


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


class Awaited(NamedTuple):
    """What a look waits for: whose step is next, and until when (whole seconds since 1970); else what it came to.

    `by`: "member", "appeal" (the member may appeal), "auditor" or "second auditor"; empty where it is decided.
    """

    by: str
    until: int | None
    so_far: Outcome | None = None

    @property
    def words(self) -> str:
        """What must happen until when, and what follows if it does not, as a sentence without its full stop."""
        if self.until is None:
            return f"{self.so_far}; its period is settled when all its looks are decided"
        by = f"by {datetime.fromtimestamp(self.until, UTC):%Y-%m-%d %H:%M} UTC"
        return {
            "member": f"the member must open its rows {by}, else the look counts as unanswered",
            "auditor": f"the auditor must sign a verdict {by}, else the look says nothing against the member",
            "appeal": f"{self.so_far}; the member may appeal {by}, else that is final",
            "second auditor": f"{self.so_far} and appealed; the second auditor must sign a verdict {by}, else the look "
            "says nothing against the member",
        }[self.by]


class Settlement(NamedTuple):
    """What becomes of the held pay of a period, in micro-units, and which looks failed."""

    released: int
    forfeited: int
    failed: tuple[bool, ...]


def decided(asked: Asked, terms: Looks, now: int) -> Outcome | None:
    """Return the final outcome of a look, or None while something may still change it: until then nothing moves.

    - An answer after its deadline is none. Without an answer in time the look counts as unanswered, whatever a verdict
      says; but a member that was looked at and passed all the same has passed.
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
    first = first_decision(asked, terms, now)
    if first is None or not first.outcome.forfeits:
        return None if first is None else first.outcome
    end = first.moment + terms.appeal
    if asked.appealed is None or asked.appealed > end:
        return first.outcome if now > end else None
    second = _in_time(asked.second, asked.appealed + terms.verdict, now)
    return None if second is None else second.outcome


def awaited(asked: Asked, terms: Looks, now: int) -> Awaited:
    """Return what a look waits for at a moment in seconds since 1970.

    >>> awaited(Asked(opened=0), Looks(answer=60), now=30).words
    'the member must open its rows by 1970-01-01 00:01 UTC, else the look counts as unanswered'
    """
    final, first = decided(asked, terms, now), first_decision(asked, terms, now)
    if final is not None:
        return Awaited("", None, final)
    if first is None and asked.answered is None:
        return Awaited("member", asked.opened + terms.answer)
    if first is None:
        return Awaited("auditor", (asked.answered or 0) + terms.verdict)
    if asked.appealed is None:
        return Awaited("appeal", first.moment + terms.appeal, first.outcome)
    return Awaited("second auditor", asked.appealed + terms.verdict, first.outcome)


def _in_time(verdict: Decision | None, deadline: int, now: int) -> Decision | None:
    """Return a verdict that came in time, the auditor's silence after the deadline, or None before it.

    "Unanswered" is none: the ledger has an answer.
    """
    if verdict is not None and verdict.moment <= deadline and verdict.outcome is not Outcome.UNANSWERED:
        return verdict
    return Decision(Outcome.SILENT, deadline) if now > deadline else None


def first_decision(asked: Asked, terms: Looks, now: int) -> Decision | None:
    """Return what came of a look before any appeal, and when; None while it is open."""
    deadline = asked.opened + terms.answer
    if asked.answered is not None and asked.answered <= deadline:
        return _in_time(asked.verdict, asked.answered + terms.verdict, now)
    if asked.verdict is not None and asked.verdict.outcome is Outcome.PASSED:
        return asked.verdict
    return Decision(Outcome.UNANSWERED, deadline) if now > deadline else None


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
