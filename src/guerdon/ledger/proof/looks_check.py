"""Checking the records of verified work: roots, coins, leavings, answers, verdicts, and what they settle."""

from typing import Any

from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay import holding
from guerdon.ledger.pay.looking import (
    NO_LINES,
    checked_verdict,
    coins_of,
    root_counts,
    seconds,
    settled_lines,
    settled_rows,
)
from guerdon.ledger.proof.lookup import KeptRound, Lookup, MismatchError, Rows, VerifierState, require
from guerdon.ledger.proof.replay import PaymentBlock
from guerdon.looks import draw, periods
from guerdon.looks.draw import Draw, Reported
from guerdon.looks.naming import NamedRound, work_hash
from guerdon.looks.periods import Watched
from guerdon.terms import Looks


def keep_round(lookup: Lookup, state: VerifierState, run: Any, rows: Rows, block: PaymentBlock, here: slice) -> None:
    """Remember what a round's coins will be computed from."""
    told, numbers = rows.get("named", []), block.numbers[here]
    looked = isinstance(state.terms[run.id].hold, Looks)
    require(bool(told) == looked, f"named: a round of run {run.name!r} must have one if looks hold its pay")
    if not looked:
        return
    names = [lookup.agents[agent].name for agent in numbers["agent"].tolist()]
    columns = names, numbers["released"].tolist(), block.gradients[here], block.signatures[here]
    reports = draw.reports_hash(Reported(*line) for line in zip(*columns, strict=True))
    named = NamedRound(*(bytes(told[0][name]) for name in NamedRound._fields))
    gradients = dict(zip(numbers["agent"].tolist(), block.gradients[here], strict=True))
    state.kept.setdefault(run.id, {})[rows["rounds"][0]["number"]] = KeptRound(named, reports, gradients)


def work_of(state: VerifierState, run: int, number: int) -> bytes:
    """Return the hash of a round's work that signatures cover; nothing where looks do not hold its pay."""
    hold = state.terms[run].hold
    return work_hash(state.kept[run][number].named, hold.code) if isinstance(hold, Looks) else b""


def expected(lookup: Lookup, state: VerifierState, row: AnyRow, rows: Rows) -> Any:
    """Check a record of verified work, and return the entries that it must have."""
    if row.kind == "commit":
        _check_commitment(lookup, state, row, rows["commitments"])
        return NO_LINES
    table = {"draw": "draws", "leave": "leavings", "answer": "answers", "verdict": "verdicts", "look": "settled"}
    told = rows[table[row.kind]]
    run = told[0]["run"]
    before, hold = state.holding.get(run), state.terms[run].hold
    before = holding.joined(before, len(state.members.get(run, [])))
    if not isinstance(before, Watched) or not isinstance(hold, Looks) or any(one["run"] != run for one in told):
        raise MismatchError(f"{table[row.kind]}: record {row.seq} is of a run that holds no pay until looks")
    try:
        after, entries = _CHECKS[row.kind](lookup, state, row, told, before, hold)
    except (RefusedError, ValueError) as error:
        raise MismatchError(f"{table[row.kind]}: record {row.seq} does not follow: {error}") from None
    state.holding[run] = after
    needed = periods.kept_rounds(after)
    state.kept[run] = {number: kept for number, kept in state.kept[run].items() if number in needed}
    return entries


def _check_commitment(lookup: Lookup, state: VerifierState, row: AnyRow, told: list[dict[str, Any]]) -> None:
    require(len(told) == 1, f"commitments: record {row.seq} must have one root")
    one = told[0]
    agent, run = one["agent"], next((run for run in lookup.runs.values() if run.name == one["run_name"]), None)
    last = None if run is None else state.last.get(run.id)
    known = agent in state.roots.get(one["run_name"], {})
    start = root_counts(None, None, 0, known=known)
    if run is not None and last is not None:
        held, hold = state.holding[run.id], state.terms[run.id].hold
        first = held.first if isinstance(held, Watched) and agent in state.members[run.id] else None
        if isinstance(hold, Looks):
            start = root_counts(hold, first, int(last["number"]), known=known)
    require(one["from_round"] == start, f"commitments: the root in record {row.seq} must count from round {start} on")
    roots = state.roots.setdefault(one["run_name"], {}).setdefault(agent, [])
    roots.append((start, bytes(one["root"])))


def _draw(lookup: Lookup, state: VerifierState, row: AnyRow, told: Any, before: Watched, hold: Looks) -> Any:
    one = told[0]
    run, number = lookup.runs[one["run"]], one["round"]
    require(len(told) == 1 and periods.next_draw(before) == number, f"draws: record {row.seq} is not of the next round")
    named, reports, _ = state.kept[run.id][number]
    nonces = (None if one[name] is None else bytes(one[name]) for name in ("server_nonce", "auditor_nonce"))
    coins = coins_of(Draw(lookup.name, run.name, number, named.server, named.auditor, reports, *nonces), hold.looks)
    return periods.drawn(before, number, coins, seconds(row.created_at)), NO_LINES


def _leave(lookup: Lookup, state: VerifierState, row: AnyRow, told: Any, before: Watched, hold: Looks) -> Any:
    del lookup, hold
    people = state.members[told[0]["run"]]
    places = [people.index(one["agent"]) for one in told]
    return periods.leave(before, places, seconds(row.created_at)), NO_LINES


def _answer(lookup: Lookup, state: VerifierState, row: AnyRow, told: Any, before: Watched, hold: Looks) -> Any:
    del lookup, state
    (one,) = told
    moment = seconds(row.created_at)
    return periods.answered(before, one["look"], hold, moment, appeal=bool(one["appeal"])), NO_LINES


def _verdict(lookup: Lookup, state: VerifierState, row: AnyRow, told: Any, before: Watched, hold: Looks) -> Any:
    (one,) = told
    run, appeal = lookup.runs[one["run"]], bool(one["appeal"])
    verdict = checked_verdict(one["text"], lookup.name, run.name, hold, appeal=appeal)
    place, look = periods.find(before, one["look"])
    agent = state.members[run.id][place]
    root = [root for start, root in state.roots[run.name][agent] if start <= look.round][-1]
    report = bytes(state.kept[run.id][look.round].gradients[agent] or b"").hex()
    same = (verdict.look, verdict.member, verdict.round, verdict.root, verdict.report) == (
        one["look"], lookup.agents[agent].name, look.round, root.hex(), report
    )  # fmt: skip
    require(same, f"verdicts: record {row.seq} holds the verdict on another look")
    return periods.judged(before, look.number, verdict.outcome, seconds(row.created_at), appeal=appeal), NO_LINES


def _settle(lookup: Lookup, state: VerifierState, row: AnyRow, told: Any, before: Watched, hold: Looks) -> Any:
    run = told[0]["run"]
    people = state.members[run]
    done, after = periods.settle(before, hold, seconds(row.created_at))
    kept = [{name: value for name, value in one.items() if name != "record"} for one in told]
    same = kept == settled_rows(done, run, people)
    require(same, f"settled: record {row.seq} does not settle the periods that are decided, or as they are")
    return after, settled_lines(done, lookup.own(run, people), len(people))


_CHECKS = {"draw": _draw, "leave": _leave, "answer": _answer, "verdict": _verdict, "look": _settle}
