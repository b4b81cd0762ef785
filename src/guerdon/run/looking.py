"""Looks at a run, from its ledger and its archive: the task of each, and what a member can check of them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from guerdon.ledger import Ledger
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.pay.looking import OpenLook
from guerdon.ledger.read.look_records import LookRecords, look_records
from guerdon.looks import draw, periods
from guerdon.looks.auditors import Auditor
from guerdon.looks.draw import BITS
from guerdon.looks.exchange import SENDS, Answer, Subject, Task
from guerdon.looks.naming import Used, member_seeds, named_rows, used_before
from guerdon.looks.opening import committed_in
from guerdon.looks.outcomes import Asked, decided, first_decision
from guerdon.looks.verdict import Verdict, read, verdict_hash
from guerdon.run.archive import Archive
from guerdon.terms import Looks


class Awaited(NamedTuple):
    """What an open look waits for: of whom what, in words, and until when, in seconds since 1970 (None: no time)."""

    words: str
    until: int | None


class Reason(NamedTuple):
    """Why a round of a member is looked at.

    `look`: which of the candidates, from 0. `chance`: its share of what was held when it was drawn, f_t / F_t. `coin`:
    the coin as a number from 0 to 1; None where a nonce was not opened, and the round therefore joined.
    """

    look: int
    chance: float
    coin: float | None


class Checked(NamedTuple):
    """A period of one member as everybody can compute it again: its looked-at rounds, each with its reasons."""

    member: str
    first: int
    last: int
    reasons: dict[int, list[Reason]]
    rows: dict[int, tuple[int, ...]]


def records(ledger: Ledger, run: str) -> LookRecords:
    """Return what a ledger has of the looks at a run."""
    with ledger.reading() as connection:
        return look_records(connection, ledger.name, run)


def named_work(told: LookRecords, number: int, member: str) -> tuple[tuple[int, ...], int]:
    """Return the rows that a recorded round named and the member used, in their order, and the seed of its work."""
    seeds = {
        one.round: member_seeds(one.named.number, ledger=told.ledger, run=told.run, round=one.round, member=member)
        for one in told.work
        if member in one.used and one.round <= number
    }
    if number not in seeds:
        raise RefusedError(f"round {number} of run {told.run!r} must name rows that {member!r} used: it did not")
    counts = {one.round: one.used.get(member, 0) for one in told.work}
    recorded = [(round, Used(own.rows, counts[round])) for round, own in seeds.items()]
    committed, used = used_before(told.changes[member], recorded, number)
    rows = named_rows(seeds[number].rows, committed.size, used, counts[number])
    return tuple(int(row) for row in rows), seeds[number].work


def subject_of(told: LookRecords, look: int, number: int, member: str) -> Subject:
    """Return what a look is about: all of it follows from the ledger."""
    hold = told.own.hold
    if not hold.work or not hold.code:
        raise RefusedError(
            f"`work` and `code` of the terms of run {told.run!r} must name the function that members work by: without "
            "them nothing can be computed again"
        )
    rows, seed = named_work(told, number, member)
    (model,) = [one.named.model for one in told.work if one.round == number]
    report = told.sent[number, member].report or b""
    committed = committed_in(told.changes[member], number)
    return Subject(look, number, committed, rows, seed, hold.work, hold.code, model.hex(), report.hex())


def due(told: LookRecords, looks: Iterable[OpenLook]) -> list[tuple[OpenLook, bool]]:
    """Return the looks that a task may still be of, each with whether it is the task of an appeal."""
    hold, found = told.own.hold, list[tuple[OpenLook, bool]]()
    for look in looks:
        appeal = can_appeal(look.asked, hold, told.now)
        judged = look.asked.second if appeal else look.asked.verdict
        if judged is None and decided(look.asked, hold, told.now) is None and (hold.second_auditor or not appeal):
            found.append((look, appeal))
    return found


def task_of(
    told: LookRecords, look: OpenLook, archive: Archive, auditors: Sequence[Auditor], *, sends: str, appeal: bool
) -> Task:
    """Return the task of a look, or raise where something for it is missing.

    `archive`: of the run; its files are checked against the hashes in the ledger. `auditors`: public keys, signed: who
    decides the look must be among them. `sends`: whether members report "gradients" or "models".
    """
    hold, first = told.own.hold, told.verdicts.get((look.number, False)) if appeal else None
    auditor = _auditor(auditors, hold.second_auditor if appeal else hold.auditor, look, appeal=appeal)
    subject = subject_of(told, look.number, look.round, look.member)
    model, report = archive.model(look.round), archive.report(look.round, look.member)
    return Task(subject, auditor, model, report, sends, appeal, "" if first is None else verdict_hash(first))


def can_appeal(asked: Asked, terms: Looks, now: int) -> bool:
    """Return whether a look was appealed, or can be: it failed, or was not answered in time."""
    first = first_decision(asked, terms, now)
    return asked.appealed is not None or (first is not None and first.outcome.forfeits)


def awaited(asked: Asked, terms: Looks, now: int) -> Awaited:
    """Return what an open look waits for at a moment in seconds since 1970.

    >>> awaited(Asked(opened=0), Looks(answer=10), now=5)
    Awaited(words='the rows of the member', until=10)
    """
    final = decided(asked, terms, now)
    if final is not None:
        return Awaited(f"nothing: {final}, settle it", None)
    if asked.appealed is not None:
        return Awaited("the verdict of the second auditor on the appeal", asked.appealed + terms.verdict)
    first = first_decision(asked, terms, now)
    if first is not None:
        return Awaited(f"an appeal of the member: {first.outcome}", first.moment + terms.appeal)
    if asked.answered is None:
        return Awaited("the rows of the member", asked.opened + terms.answer)
    return Awaited("the verdict of the auditor", asked.answered + terms.verdict)


def check_answer(told: LookRecords, looks: Iterable[OpenLook], answer: Answer) -> None:
    """Raise unless an answer is to a look that is open, of this member and round."""
    for look in looks:
        if look.number == answer.look and (told.ledger, look.run, look.round, look.member) == tuple(answer.of):
            if answer.appeal and not can_appeal(look.asked, told.own.hold, told.now):
                raise RefusedError(f"look {look.number} cannot be appealed: it neither failed nor went unanswered")
            return
    raise RefusedError(
        f"an answer must be to an open look of run {told.run!r}, got one to look {answer.look} of {answer.of.member!r} "
        f"in round {answer.of.round} of run {answer.of.run!r}: `guerdon looks list` has the open ones"
    )


def check_verdict(told: LookRecords, text: str, *, appeal: bool) -> Verdict:
    """Return a verdict, or raise unless its auditor signed it, and judged what the ledger says.

    It must name the hash of the task that follows from the ledger, and the answer that is recorded, or none: then the
    auditor had the rows at the member's site.
    """
    hold = told.own.hold
    try:
        verdict = read(text, hold.second_auditor if appeal else hold.auditor)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    subject = subject_of(told, verdict.look, verdict.round, verdict.member)
    if verdict.task not in {subject.hash(sends) for sends in SENDS}:
        raise RefusedError(
            f"the verdict on look {verdict.look} is on other rows, another seed, model or function than the ledger "
            "names: make the task anew by `guerdon looks tasks`, and have it judged again"
        )
    answered = told.answers.get((verdict.look, appeal), b"").hex()
    if verdict.answer not in ("", answered):
        raise RefusedError(f"the verdict on look {verdict.look} is on another answer than the one that is recorded")
    return verdict


def check_draws(told: LookRecords) -> tuple[list[Checked], list[str]]:
    """Return each period with its looks as it follows from the coins, and what in the ledger does not follow, in words.

    Coins, candidates and named rows are computed again here, from nonces, weights and hashes of reports.
    """
    found, wrong = list[Checked](), list[str]()
    for member, first, last, looked in _periods(told):
        reasons = _candidates(told, member, first, last)
        if set(reasons) != looked:
            wrong.append(
                f"{member}, rounds {first} to {last}: the coins say that {_listed(reasons)} are looked at, the ledger "
                f"has {_listed(looked)}"
            )
        found.append(Checked(member, first, last, reasons, {one: named_work(told, one, member)[0] for one in reasons}))
    for (look, appeal), text in sorted(told.verdicts.items()):
        try:
            check_verdict(told, text, appeal=appeal)
        except ValueError as error:
            wrong.append(f"look {look}{', appeal' * appeal}: {error}")
    return found, wrong


def unneeded(told: LookRecords, kept: Iterable[int]) -> list[int]:
    """Return which of the rounds that an archive keeps no look can be at any more: never one that is not recorded."""
    needed = periods.kept_rounds(told.own.state)
    return sorted(number for number in kept if number <= told.last and number not in needed)


def _auditor(auditors: Sequence[Auditor], wanted: str, look: OpenLook, *, appeal: bool) -> Auditor:
    for one in auditors:
        if one.signing == wanted:
            return one
    who = "the second auditor" if appeal else "the auditor"
    raise RefusedError(
        f"look {look.number} of {look.member!r} needs the keys of {who}, {wanted[:16]}…: give the file that its "
        "`guerdon looks key` wrote as --auditor"
    )


def _periods(told: LookRecords) -> list[tuple[str, int, int, set[int]]]:
    """Return member, first and last round and the looked-at rounds of all periods whose looks were opened."""
    done = [(one.member, one.first, one.last, set(one.looks)) for one in told.settled]
    for place, members in enumerate(told.own.state.members):
        done += [
            (told.own.member(place), one.first, one.last, {look.round for look in one.looks})
            for one in members
            if one.looks
        ]
    return done


def _candidates(told: LookRecords, member: str, first: int, last: int) -> dict[int, list[Reason]]:
    """Return the rounds that the coins of a period choose, by weighted reservoir sampling, with the reasons."""
    state, why = draw.begin(told.own.hold.looks), dict[tuple[int, int], Reason]()
    for number in range(first, last + 1):
        sent = told.sent.get((number, member))
        if sent is None or not sent.weight or number not in told.coins:
            continue
        coins = told.coins[number]
        state = draw.kept(state, sent.weight, number, coins)
        for look, coin in enumerate(coins):
            share = sent.weight / state.weight
            why[look, number] = Reason(look, share, None if coin is None else float(np.ldexp(float(coin), -BITS)))
    return {
        number: [why[look, number] for look, rounds in enumerate(state.rounds) if number in rounds]
        for number in state.due
    }


def _listed(rounds: Iterable[int]) -> str:
    return "rounds " + ", ".join(map(str, sorted(rounds))) if rounds else "no rounds"
