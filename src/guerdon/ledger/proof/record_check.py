"""Checking one record after another: what each must contain, given all records before it."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

import numpy as np

from guerdon.ledger.books import chain, tables
from guerdon.ledger.books.checks import follows
from guerdon.ledger.books.errors import RuleMissingError
from guerdon.ledger.books.journal import NO_ENTRIES, detail
from guerdon.ledger.books.money import format_amount
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay import holding, recorded_terms, vesting
from guerdon.ledger.pay.losses import Standing, freeze, lines, released_lines, thaw
from guerdon.ledger.pay.recorded_rules import costs_of, restored
from guerdon.ledger.pay.vesting import Played, Vested
from guerdon.ledger.proof import looks_check
from guerdon.ledger.proof.lookup import STATES, Frozen, Lookup, MismatchError, Rows, VerifierState, require
from guerdon.ledger.proof.replay import PaymentBlock, first_difference, replay_round
from guerdon.ledger.proof.signing import is_head_signed
from guerdon.ledger.proof.submissions import is_signed_by, submission
from guerdon.rule import paid_work, remembers
from guerdon.terms import AtOnce

ONLY_IN = {  # which kinds of record a table's rows belong to
    "ledger": ("open",),
    "versions": ("open",),
    "agents": ("enrol",),
    "keys": ("enrol",),
    "payees": ("enrol",),
    "accounts": ("open", "enrol", "run", "join"),
    "runs": ("run",),
    "terms": ("run", "terms"),
    "members": ("run", "join"),
    "cost_factors": ("run", "join"),
    "rounds": ("round",),
    "closings": ("release",),
    "payouts": ("payout",),
    "batches": ("payout",),
    "payout_lines": ("payout",),
    "outcomes": ("settle",),
    "idempotency": (*tables.MOVES, "payout"),
    "signatures": ("sign",),
    "commitments": ("commit",),
    "named": ("round",),
    "draws": ("draw",),
    "leavings": ("leave",),
    "answers": ("answer",),
    "verdicts": ("verdict",),
    "settled": ("look",),
}
# What a record of some kinds must have a row of, beside what is looked for where its money is checked.
NEEDS = {
    "run": "terms", "terms": "terms", "round": "rounds", "payout": "batches", "settle": "outcomes",
    "commit": "commitments", "draw": "draws", "leave": "leavings", "answer": "answers", "verdict": "verdicts",
    "look": "settled",
}  # fmt: skip


def check_record(
    lookup: Lookup, state: VerifierState, row: AnyRow, block: PaymentBlock, here: slice, entries: Any
) -> None:
    """Check one record against all before it, and add it to the state."""
    rows = lookup.details.get(row.seq, {})
    gapless = bool((entries[:, 1] == np.arange(len(entries))).all())
    require(gapless, f"entries: the lines of record {row.seq} are not numbered from 0 without gaps")
    _check_detail(row, rows)
    if row.kind == "round":
        expected = _expected_of_round(lookup, state, row, rows, block, here)
    elif here.stop > here.start:
        raise MismatchError(f"payments: record {row.seq} has payments, but is a {row.kind!r}")
    else:
        expected = _expected_entries(lookup, state, row, rows, entries[:, 2:])
    _check_entries(lookup, row.seq, entries[:, 2:], expected)
    _check_link(lookup, state, row, chain.digest(detail(rows), block.hashes[here], entries[:, 2:]))
    np.subtract.at(state.balances, entries[:, 2], entries[:, 4])
    np.add.at(state.balances, entries[:, 3], entries[:, 4])
    _check_limits(lookup, state, row, entries)
    state.seq, state.sealed, state.time = row.seq, row.hash, row.created_at
    state.payments += int(here.stop - here.start)
    state.entries += len(entries)


def _check_limits(lookup: Lookup, state: VerifierState, row: AnyRow, entries: Any) -> None:
    """Check that a record overdraws none of its accounts (a round cannot)."""
    if row.kind == "round":
        return
    for number in set(entries[:, 2:4].ravel().tolist()):
        kind, balance = lookup.accounts[number].kind, state.balances[number]
        if kind not in ("treasury", "bank") and (balance > 0 if kind == "carried" else balance < 0):
            raise MismatchError(f"entries: record {row.seq} overdraws {lookup.account(number)}")


def _check_link(lookup: Lookup, state: VerifierState, row: AnyRow, contents: bytes) -> None:
    """Check a record's place in the chain."""
    named = f"record {row.seq} ({_round_or(row.kind, lookup, row.seq)})"
    require(contents == row.digest, f"records: the contents of {named} are not what was recorded")
    follows = row.previous == state.sealed and row.created_at >= state.time
    require(follows, f"records: {named} does not follow the one before it")
    sealed = chain.link(row.seq, row.kind, row.created_at, row.memo, contents, row.previous)
    require(sealed == row.hash, f"records: {named} does not have the hash of its contents")


def _expected_of_round(
    lookup: Lookup, state: VerifierState, row: AnyRow, rows: Rows, block: PaymentBlock, here: slice
) -> Any:
    """Check a round's agents, number, signatures and cuts, and return the entries it must have."""
    played = rows["rounds"][0]
    run, numbers = lookup.runs[played["run"]], block.numbers[here]
    named, last = f"round {played['number']} of run {run.name!r}", state.last.get(run.id, {}).get("number")
    words = "cannot be the first" if last is None else f"does not follow round {last}"
    require(follows(played["number"], last), f"rounds: {named} {words}")
    state.last[run.id] = played
    people = state.members.get(run.id, [])
    one_each = numbers["agent"].tolist() == people and numbers["position"].tolist() == list(range(len(people)))
    require(one_each, f"payments: {named} must have one payment per agent, in order")
    _check_remembered(lookup, state, named, played, block, here)
    looks_check.keep_round(lookup, state, run, rows, block, here)
    _check_signatures(lookup, run, played, block, here, looks_check.work_of(state, run.id, played["number"]))
    moment = tables.microseconds(row.created_at) // 1_000_000
    return _settled(lookup, state, run, played | {"moment": moment}, block, here)


def _check_remembered(
    lookup: Lookup, state: VerifierState, named: str, played: Mapping[str, Any], block: PaymentBlock, here: slice
) -> None:
    """Recompute the rewards of a round that follow from earlier ones; or remember why they cannot be."""
    run, numbers, request = played["run"], block.numbers[here], played["request"]
    try:
        rule = restored(played["rule"], played["cost"])
    except RuleMissingError as missing:
        state.skipped.setdefault(run, (named, str(missing)))
        return
    if remembers(rule) and run not in state.skipped:
        told = block.round(request, here, is_last=bool(played["is_last"]))
        own, state.states[run] = replay_round(rule, state.states.get(run), told)
        factors = lookup.pay_factors(run, numbers["agent"])
        check_payments(lookup, block, here, first_difference(rule, own, numbers, request, factors))


def _settled(
    lookup: Lookup, state: VerifierState, run: Any, played: Mapping[str, Any], block: PaymentBlock, here: slice
) -> Any:
    """Return the entries that follow from a round's rewards, the run's terms, and what each agent had."""
    numbers, terms = block.numbers[here], state.terms[run.id]
    own = lookup.own(run.id, numbers["agent"])
    standing = Standing(*(state.balances[own[kind]] for kind in ("agent", "deposit", "carried")))
    costs = costs_of(played["cost"], played["request"], lookup.factors_of(run.id, numbers["agent"]))
    paid = Played(paid_work(numbers["status"]), costs, played["number"], bool(played["is_last"]), played["moment"])
    before = holding.joined(state.holding[run.id], len(numbers))
    flows, state.holding[run.id] = holding.settle_round(terms, numbers["released"], standing, before, paid)
    if (flows.cut != numbers["cut"]).any():
        named = _payment_named(lookup, block, here.start + int(np.argmax(flows.cut != numbers["cut"])))
        raise MismatchError(f"payments: the cut of {named} does not follow from the run's terms")
    return lines(flows, own)


def _expected_entries(lookup: Lookup, state: VerifierState, row: AnyRow, rows: Rows, entries: Any) -> Any:
    """Return the entries that a record other than a round must have."""
    for payee in rows.get("payees", ()):
        state.payees[payee["agent"]] = (payee["holder"], payee["account"])
    for told in rows.get("terms", ()):
        _check_terms(state, row, told)
    for member in rows.get("members", ()):
        state.members.setdefault(member["run"], []).append(member["agent"])
    _check_accounts(state, row, rows)
    _check_deposits(lookup, state, row, rows)
    if rows.get("closings"):
        return _of_closing(lookup, state, row, rows["closings"])
    if row.kind in tables.MOVES:
        return _of_move(lookup, state, row, entries)
    if row.kind in tables.LOOKS:
        return looks_check.expected(lookup, state, row, rows)
    if row.kind == "payout":
        return _of_payout(lookup, state, row, rows)
    if row.kind == "settle":
        return _of_settlement(lookup, state, row, rows)
    if row.kind == "sign":
        key, signature = (rows["signatures"][0][name] for name in ("public_key", "signature"))
        signed = is_head_signed(key, lookup.name, state.seq, state.sealed, signature)
        require(signed, f"signatures: the signature in record {row.seq} is not of the record before it")
    return NO_ENTRIES


def _check_detail(row: AnyRow, rows: Rows) -> None:
    """Check that a record has rows in the tables that its kind has, and in no others."""
    if (row.kind == "open") != bool(rows.get("versions")):
        raise MismatchError(
            f"versions: record {row.seq} ({row.kind}) must have one if it opens or upgrades, and only then"
        )
    for table in rows:
        require(row.kind in ONLY_IN[table], f"{table}: record {row.seq} ({row.kind}) can have no row there")
    needed = NEEDS.get(row.kind)
    require(needed is None or needed in rows, f"{needed}: record {row.seq} ({row.kind}) must have one row there")
    joining = {(member["run"], member["agent"]) for member in rows.get("members", ())}
    fits = all((one["run"], one["agent"]) in joining for one in rows.get("cost_factors", ()))
    require(fits, f"cost_factors: record {row.seq} has one of an agent that does not join the run by it")


def _check_terms(state: VerifierState, row: AnyRow, told: Mapping[str, Any]) -> None:
    """Check the terms of a run, or their change: what members are owed hangs on some, and these stay."""
    run, new = told["run"], recorded_terms.read(told["text"])
    first = row.kind == "run"
    require(first != (run in state.terms), f"terms: record {row.seq} ({row.kind}) must be the first of its run, or not")
    kept = state.terms.get(run, new)
    same = all(getattr(new, name) == getattr(kept, name) for name in recorded_terms.FIXED)
    require(same, f"terms: record {row.seq} changes what a run must keep: {', '.join(recorded_terms.FIXED)}")
    state.terms[run] = new
    if first:
        state.holding[run] = holding.begin(new.hold, 0)


def _check_accounts(state: VerifierState, row: AnyRow, rows: Rows) -> None:
    """Check that an agent that is enrolled gets one account of each kind, a member one in a run that holds pay."""
    found = [(one["run"], one["owner"], one["kind"]) for one in rows.get("accounts", ()) if one["owner"] is not None]
    own = [(None, one["id"], kind) for one in rows.get("agents", ()) for kind in tables.PERSONAL]
    in_runs = [
        (one["run"], one["agent"], "held")
        for one in rows.get("members", ())
        if not isinstance(state.terms[one["run"]].hold, AtOnce)
    ]
    must = "must open one of each kind for an agent that it enrols, and one for each member of a run that holds pay"
    require(found == own + in_runs, f"accounts: record {row.seq} {must}")


def _check_deposits(lookup: Lookup, state: VerifierState, row: AnyRow, rows: Rows) -> None:
    """Check that agents who join a run have deposited what it asks for."""
    for member in rows.get("members", ()):
        if row.kind == "run":
            state.founders[member["run"]] = state.founders.get(member["run"], 0) + 1
        asked = recorded_terms.micro_deposit(state.terms[member["run"]])
        has = lookup.owned["deposit"][member["agent"]]
        short = row.kind == "join" and state.balances[has] < asked
        require(not short, f"members: record {row.seq} lets an agent join without the deposit of its run")


def _of_closing(lookup: Lookup, state: VerifierState, row: AnyRow, told: list[dict[str, Any]]) -> Any:
    """Return what is released when a run is closed for the agents that a record names."""
    run = told[0]["run"]
    people = state.members.get(run, [])
    before = holding.joined(state.holding.get(run), len(people))
    if not isinstance(before, Vested) or not all(one["run"] == run and one["agent"] in people for one in told):
        raise MismatchError(f"closings: record {row.seq} closes a run for agents that it holds nothing of")
    chosen = np.isin(people, [one["agent"] for one in told])
    own = lookup.own(run, people)
    amounts = vesting.closing(before, state.balances[own["carried"]], chosen)
    state.holding[run] = vesting.take(vesting.ended(before, np.flatnonzero(chosen).tolist()), amounts)
    return released_lines(amounts, own)


def _bound_deposit(state: VerifierState, agent: int) -> int:
    """Return what must stay of an agent's deposit, for the runs that it joined and that are not closed for it."""
    most = 0
    for run, terms in state.terms.items():
        people = state.members.get(run, [])
        place = people.index(agent) if agent in people else -1
        held = holding.joined(state.holding[run], len(people))
        if isinstance(held, Vested) and place >= state.founders[run] and held.open[place] > 0:
            most = max(most, recorded_terms.micro_deposit(terms))
    return most


def _of_move(lookup: Lookup, state: VerifierState, row: AnyRow, entries: Any) -> Any:
    require(len(entries) == 1, f"entries: record {row.seq} ({row.kind}) must have one entry, has {len(entries)}")
    source, target, amount = entries[0].tolist()
    owner = lookup.accounts[source].owner or lookup.accounts[target].owner
    taken, given = (
        lookup.common[kind] if kind in tables.COMMON else int(lookup.owned[kind][owner])
        for kind in tables.MOVES[row.kind]
    )
    owes = row.kind == "withdraw" and state.balances[lookup.owned["carried"][owner]] < 0
    require(not owes, f"entries: record {row.seq} (withdraw) takes a deposit while a loss is carried")
    bound = _bound_deposit(state, owner) if row.kind == "withdraw" else 0
    binds = bound > 0 and state.balances[lookup.owned["deposit"][owner]] - amount < bound
    require(not binds, f"entries: record {row.seq} (withdraw) takes a deposit that a run still asks for")
    return np.array([[taken, given, amount]], dtype=np.int64)


def _of_payout(lookup: Lookup, state: VerifierState, row: AnyRow, rows: Rows) -> Any:
    """Return what a batch must hold: losses netted, then whole coins of every balance that reaches its minimum."""
    terms, owners = rows["batches"][0], np.arange(1, len(lookup.agents) + 1)
    owners = owners[state.balances[lookup.owned["agent"][owners]] > 0]
    accounts, losses = (lookup.owned[kind][owners] for kind in ("agent", "carried"))
    owed = (accounts, state.balances[accounts], losses, state.balances[losses])
    frozen = freeze(*owed, terms["minimum"], terms["places"])
    shares = frozen[frozen[:, 1] == tables.PAYABLE]
    state.payouts[row.seq] = Frozen(shares[:, 0], shares[:, 2], np.zeros(len(shares), dtype=np.int8))
    payees = [lookup.accounts[account].owner for account in shares[:, 0].tolist()]
    told = [(line["agent"], line["holder"], line["account"]) for line in rows.get("payout_lines", ())]
    named = f"payout_lines: record {row.seq} must have one line for each agent, with its bank account of that time"
    require(told == [(agent, *state.payees.get(agent, ("", ""))) for agent in payees], named)
    return frozen


def _of_settlement(lookup: Lookup, state: VerifierState, row: AnyRow, rows: Rows) -> Any:
    """Return what a settlement must move: of lines that can still become what it says."""
    told = rows["outcomes"]
    payout, outcome = told[0]["payout"], told[0]["outcome"]
    named = f"record {row.seq} settles record {payout}"
    require(payout in state.payouts, f"outcomes: {named}, which is no payout before it")
    frozen = state.payouts[payout]
    own = [int(lookup.owned["agent"][one["agent"]]) for one in told]
    chosen = np.isin(frozen.accounts, own)
    same = all((one["payout"], one["outcome"]) == (payout, outcome) for one in told)
    require(same and chosen.sum() == len(own), f"outcomes: {named} in lines that it does not have, or twice")
    before = [STATES.index(name) for name in tables.LINE_OUTCOMES[outcome]]
    fits = bool(np.isin(frozen.states[chosen], before).all())
    require(fits, f"outcomes: {named}, of which a line cannot become {outcome} any more")
    paid = frozen.states[chosen] == STATES.index("paid")
    frozen.states[chosen] = STATES.index(outcome)
    return thaw(frozen.accounts[chosen], frozen.amounts[chosen], paid, outcome)


def _check_entries(lookup: Lookup, seq: int, found: Any, expected: Any) -> None:
    if found.shape == expected.shape and (found == expected).all():
        return
    pairs: Any = zip_longest(found.tolist(), expected.tolist())
    for line, (have, need) in enumerate(pairs):
        shown = f"is {_entry(lookup, have)}, must be {_entry(lookup, need)}"
        require(have == need, f"entries: record {seq}, line {line}, {shown}")


def _check_signatures(
    lookup: Lookup, run: Any, played: Mapping[str, Any], block: PaymentBlock, here: slice, work: bytes
) -> None:
    for index in range(here.start, here.stop):
        signature, gradient = block.signatures[index], block.gradients[index]
        if signature is None:
            continue
        key = lookup.keys.get(int(block.numbers["agent"][index]))
        message = submission(lookup.name, run.name, played["number"], played["request"], gradient or b"", work)
        if key is None or not is_signed_by(key, message, signature):
            raise MismatchError(f"payments: the signature of {_payment_named(lookup, block, index)} is not the agent's")


def _round_or(otherwise: str, lookup: Lookup, record: int) -> str:
    """Return which round a record is, in words; where it is none, something else."""
    for played in lookup.details.get(record, {}).get("rounds", ()):
        if played["run"] in lookup.runs:
            return f"round {played['number']} of run {lookup.runs[played['run']].name!r}"
    return otherwise


def check_payments(
    lookup: Lookup, block: PaymentBlock, where: Any, bad: int | None, what: str = "is not what its evidence gives"
) -> None:
    """Raise if one of the payments at these indices (flat) is bad."""
    if bad is not None:
        index = int(np.arange(len(block.numbers))[where].flat[bad])
        raise MismatchError(f"payments: {_payment_named(lookup, block, index)} {what}")


def _payment_named(lookup: Lookup, block: PaymentBlock, index: int) -> str:
    numbers = block.numbers[index]
    agent = lookup.agents.get(int(numbers["agent"]))
    who = f"agent {agent.name!r}" if agent is not None else f"agent {numbers['agent']}"
    record = int(numbers["record"])
    return f"the payment of {who} in {_round_or(f'record {record}', lookup, record)}"


def _entry(lookup: Lookup, entry: list[int] | None) -> str:
    if entry is None:
        return "nothing"
    return f"{format_amount(entry[2])} from {lookup.account(entry[0])} to {lookup.account(entry[1])}"
