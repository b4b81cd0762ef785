"""Checking one record after another: what each must contain, given all records before it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np

from guerdon.ledger import chain, tables
from guerdon.ledger.checks import follows
from guerdon.ledger.errors import RuleMissingError
from guerdon.ledger.journal import NO_ENTRIES, detail
from guerdon.ledger.liability import Standing, freeze, lines, thaw, vested_lines
from guerdon.ledger.money import format_amount
from guerdon.ledger.recorded_rules import restored
from guerdon.ledger.replay import PaymentBlock, first_difference, replay_round
from guerdon.ledger.signing import is_head_signed
from guerdon.ledger.submissions import is_signed_by, submission
from guerdon.ledger.tables import AnyRow
from guerdon.ledger.unvested import Terms, costs_of
from guerdon.ledger.vesting import Vesting, begin, closing, ended, joined, settle_round, take
from guerdon.rule import paid_work, remembers

ONLY_IN = {  # which kinds of record a table's rows belong to
    "payees": ("enrol",),
    "terms": ("run",),
    "cost_factors": ("run", "join"),
    "escrow": ("release", "forfeit"),
    "closings": ("release",),
    "batches": ("payout",),
    "payout_lines": ("payout",),
    "outcomes": ("settle",),
    "idempotency": (*tables.MOVES, "payout"),
}

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
    owned: Mapping[str, Any]  # kind → array: agent → account
    common: Mapping[str, int]
    factors: Mapping[int, Mapping[int, float]]  # run → agent → what its cost is multiplied by; else 1

    def factors_of(self, run: int, agents: Any) -> Any:
        """Return the cost factors of agents of a run, by their numbers."""
        own = self.factors.get(run, {})
        return np.array([own.get(agent, 1.0) for agent in agents.tolist()]) if own else np.ones(len(agents))

    def account(self, number: int) -> str:
        """Return the name of an account, for people."""
        account = self.accounts.get(int(number))
        if account is None:
            return f"account {number}"
        return account.kind if account.owner is None else f"{account.kind} of {self.agents[account.owner].name!r}"


@dataclass
class Frozen:
    """The lines of a payout: the account each came from, its amount, and what became of it (an index)."""

    accounts: Any
    amounts: Any
    states: Any


STATES = ("open", *tables.LINE_OUTCOMES)


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
    vesting: dict[int, Vesting] = field(default_factory=dict[int, Vesting])
    founders: dict[int, int] = field(default_factory=dict[int, int])  # run → how many agents it began with
    skipped: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])  # run → first round, why

    @property
    def unverifiable(self) -> str | None:
        """Of which rounds the pay was not recomputed, and why; None: of all it was."""
        told = [f"from {named} on: {why}" for named, why in self.skipped.values()]
        return f"pay was not recomputed {'; '.join(told[:MOST_TOLD])}" if told else None


def check_record(
    lookup: Lookup, state: VerifierState, row: AnyRow, block: PaymentBlock, here: slice, entries: Any
) -> None:
    """Check one record against all before it, and add it to the state."""
    rows = lookup.details.get(row.seq, {})
    gapless = bool((entries[:, 1] == np.arange(len(entries))).all())
    require(gapless, f"entries: the lines of record {row.seq} are not numbered from 0 without gaps")
    if row.kind == "round":
        expected = _expected_of_round(lookup, state, rows["rounds"][0], block, here)
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
    lookup: Lookup, state: VerifierState, played: Mapping[str, Any], block: PaymentBlock, here: slice
) -> Any:
    """Check a round's agents, number, signatures and cuts, and return the entries it must have."""
    run, numbers = lookup.runs[played["run"]], block.numbers[here]
    named, last = f"round {played['number']} of run {run.name!r}", state.last.get(run.id, {}).get("number")
    words = "cannot be the first" if last is None else f"does not follow round {last}"
    require(follows(played["number"], last), f"rounds: {named} {words}")
    state.last[run.id] = played
    people = state.members.get(run.id, [])
    one_each = numbers["agent"].tolist() == people and numbers["position"].tolist() == list(range(len(people)))
    require(one_each, f"payments: {named} must have one payment per agent, in order")
    _check_remembered(lookup, state, named, played, block, here)
    _check_signatures(lookup, run, played, block, here)
    return _settled(lookup, state, run, played, block, here)


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
        factors = lookup.factors_of(run, numbers["agent"])
        check_payments(lookup, block, here, first_difference(rule, own, numbers, request, factors))


def _settled(
    lookup: Lookup, state: VerifierState, run: Any, played: Mapping[str, Any], block: PaymentBlock, here: slice
) -> Any:
    """Return the entries that follow from a round's rewards, the run's liability and terms, and what each agent had."""
    numbers = block.numbers[here]
    own = {kind: lookup.owned[kind][numbers["agent"]] for kind in tables.PERSONAL}
    standing = Standing(*(state.balances[own[kind]] for kind in ("agent", "deposit", "carried")))
    costs = costs_of(played["cost"], played["request"], lookup.factors_of(run.id, numbers["agent"]))
    paid = (paid_work(numbers["status"]), costs, played["number"])
    vesting = _unvested(state, run.id, len(numbers))
    flows, vesting = settle_round(run.liability, numbers["released"], numbers["held"], standing, vesting, paid)
    if vesting is not None:
        state.vesting[run.id] = vesting
    if (flows.cut != numbers["cut"]).any():
        named = _payment_named(lookup, block, here.start + int(np.argmax(flows.cut != numbers["cut"])))
        raise MismatchError(f"payments: the cut of {named} does not follow from the run's liability")
    return lines(flows, own)


def _unvested(state: VerifierState, run: int, num_agents: int) -> Vesting | None:
    """Return what is unvested in a run before its next round; None where nothing vests."""
    rounds = state.terms.get(run, Terms()).vesting
    return joined(state.vesting.get(run, begin(0, rounds)), num_agents) if rounds else None


def _expected_entries(lookup: Lookup, state: VerifierState, row: AnyRow, rows: Rows, entries: Any) -> Any:
    """Return the entries that a record other than a round must have."""
    _check_detail(row, rows)
    for payee in rows.get("payees", ()):
        state.payees[payee["agent"]] = (payee["holder"], payee["account"])
    for told in rows.get("terms", ()):
        state.terms[told["run"]] = Terms(told["vesting"], told["deposit"])
    for member in rows.get("members", ()):
        state.members.setdefault(member["run"], []).append(member["agent"])
    _check_deposits(lookup, state, row, rows)
    if rows.get("closings"):
        return _of_closing(lookup, state, row, rows["closings"])
    if row.kind in tables.MOVES:
        return _of_move(lookup, state, row, entries)
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
    for table, kinds in ONLY_IN.items():
        require(table not in rows or row.kind in kinds, f"{table}: record {row.seq} ({row.kind}) can have no row there")
    joining = {(member["run"], member["agent"]) for member in rows.get("members", ())}
    fits = all((one["run"], one["agent"]) in joining for one in rows.get("cost_factors", ()))
    require(fits, f"cost_factors: record {row.seq} has one of an agent that does not join the run by it")
    missing = row.kind == "payout" and "batches" not in rows
    require(not missing, f"batches: record {row.seq} (payout) must have one row there")


def _check_deposits(lookup: Lookup, state: VerifierState, row: AnyRow, rows: Rows) -> None:
    """Check that agents who join a run have deposited what it asks for."""
    for member in rows.get("members", ()):
        if row.kind == "run":
            state.founders[member["run"]] = state.founders.get(member["run"], 0) + 1
        asked, has = state.terms.get(member["run"], Terms()).deposit, lookup.owned["deposit"][member["agent"]]
        short = row.kind == "join" and state.balances[has] < asked
        require(not short, f"members: record {row.seq} lets an agent join without the deposit of its run")


def _of_closing(lookup: Lookup, state: VerifierState, row: AnyRow, told: list[dict[str, Any]]) -> Any:
    """Return what vests when a run is closed for the agents that a record names."""
    run = told[0]["run"]
    people = state.members.get(run, [])
    vesting = _unvested(state, run, len(people))
    known = vesting is not None and all(one["run"] == run and one["agent"] in people for one in told)
    require(known, f"closings: record {row.seq} closes a run for agents that have nothing to vest there")
    chosen = np.isin(people, [one["agent"] for one in told])
    own = {kind: lookup.owned[kind][people] for kind in tables.PERSONAL}
    amounts = closing(vesting, state.balances[own["carried"]], chosen)  # pyright: ignore[reportArgumentType]
    state.vesting[run] = take(ended(vesting, np.flatnonzero(chosen)), amounts)  # pyright: ignore[reportArgumentType]
    return vested_lines(amounts, own)


def _bound_deposit(state: VerifierState, agent: int) -> int:
    """Return what must stay of an agent's deposit, for the runs that it joined and that are not closed for it."""
    most = 0
    for run, terms in state.terms.items():
        place = state.members[run].index(agent) if agent in state.members.get(run, ()) else -1
        vesting = _unvested(state, run, len(state.members.get(run, ())))
        if vesting is not None and place >= state.founders[run] and vesting.open[place] > 0:
            most = max(most, terms.deposit)
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


def _check_signatures(lookup: Lookup, run: Any, played: Mapping[str, Any], block: PaymentBlock, here: slice) -> None:
    for index in range(here.start, here.stop):
        signature, gradient = block.signatures[index], block.gradients[index]
        if signature is None:
            continue
        key = lookup.keys.get(int(block.numbers["agent"][index]))
        message = submission(run.name, played["number"], played["request"], gradient or b"")
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
