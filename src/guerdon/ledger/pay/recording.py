"""Recording a round: what was handed in, checked; found as it was recorded, or paid by the run's rule and written."""

import functools
import hashlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, cast

import numpy as np
from sqlalchemy import Connection, select

from guerdon.arrays import as_mask, check_positive_integer, to_numpy
from guerdon.canonical import canonical
from guerdon.evidence import Evidence
from guerdon.ledger.books import chain, checkpoints, journal, tables
from guerdon.ledger.books.checks import clean, follows
from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.books.money import MICRO, to_micro
from guerdon.ledger.books.tables import AnyRow
from guerdon.ledger.pay import holding
from guerdon.ledger.pay.comparison import check_same_payments
from guerdon.ledger.pay.cost_factors import check_same_factors
from guerdon.ledger.pay.enrolment import join
from guerdon.ledger.pay.looking import named_round, seconds
from guerdon.ledger.pay.losses import lines
from guerdon.ledger.pay.recorded_rules import costs_of, restored
from guerdon.ledger.pay.recorded_terms import check_deposits, terms_of
from guerdon.ledger.pay.vesting import Played
from guerdon.ledger.proof.replay import PaymentBlock, read_payments, replay_state
from guerdon.ledger.proof.submissions import is_signed_by, submission
from guerdon.ledger.read import queries
from guerdon.looks.naming import NUMBER, NamedRound, work_hash
from guerdon.looks.periods import Watched
from guerdon.rule import Payments, Round, Rule, Status, padded, paid_work, remembers, times
from guerdon.terms import AtOnce, Looks, Terms

LATEST = 2**62  # no round has a greater number: databases hold 64 bits
LONGEST_NOTE = 500
LABELS = {status.value: status.label for status in Status}
NUMBERS = (
    "squared_deviation",
    "pair_distance",
    "squared_length",
    "alignment",
    "squared_distance",
    "expected",
    "variance",
)


class Recorded(NamedTuple):
    """What became of a call: the record's number, and whether it was written now or found as it was.

    `payments` are those of a round as they are recorded: in NumPy, rewards rounded to micro-units.
    """

    record: int
    new: bool
    payments: Payments | None = None


class Handed(NamedTuple):
    """What a caller says of a round beside the round itself; None: it does not say."""

    agents: Sequence[str] | None = None
    factors: Mapping[str, float] | None = None  # of their costs
    payments: Payments | None = None  # that the driver of the round computed, and reports


@dataclass(frozen=True)
class RoundInput:
    """A round as it was handed in, in plain NumPy; its rule and cost as the ledger writes them."""

    number: int
    rule: str
    cost: str
    played: Round  # as its rule is told of it
    gradients: Sequence[bytes | None]
    signatures: Sequence[bytes | None]
    notes: Sequence[str]
    metrics: str
    checkpoint: bytes | None  # its hash
    work: NamedRound | None = None  # where looks hold the pay

    @property
    def payer(self) -> Rule:
        """The rule, as it is read again for every verification."""
        return restored(self.rule, self.cost)

    def pay(self, state: Any, factors: Any) -> tuple[Payments, Any]:
        """Return what the rule pays for the evidence, times each agent's cost factor; and the rule's next state."""
        try:
            paid, following = self.payer.pay(state, self.played)
        except (ValueError, TypeError) as error:
            raise RefusedError(f"round {self.number} cannot be paid: {error}") from error
        declined, invalid = (paid.status == status.value for status in (Status.DECLINED, Status.INVALID))
        if (declined == self.played.sent).any() or ((declined | invalid) == self.played.evidence.counted).any():
            raise RefusedError(
                f"the rule {self.rule} must give DECLINED to agents that sent nothing, INVALID to others that are not "
                f"counted, and neither to the rest, as `statuses` does; it gave {paid.status.tolist()}"
            )
        return times(paid, factors), following

    @functools.cached_property
    def payload(self) -> bytes:
        """A hash of all of it."""
        played = self.played
        told = [self.number, played.request, played.is_last, self.rule, self.cost, self.metrics, self.checkpoint]
        texts: list[Any] = [*told, *self.notes, *(self.work or ())]
        numbers = np.array([*played.evidence, played.sent, played.trusted], dtype="<f8")
        return hashlib.sha256(repr([texts, self.gradients, self.signatures]).encode() + numbers.tobytes()).digest()

    def parts(self) -> dict[str, Any]:
        """Return all of it by name, in plain values that can be compared."""
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "played"}
        told = {name: value for name, value in self.played._asdict().items() if name != "evidence"}
        found = self.played.evidence._asdict() | told | own
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}

    def row(self, run: int) -> dict[str, Any]:
        """Return the row of the round itself."""
        own = {name: getattr(self, name) for name in ("number", "rule", "cost", "metrics", "checkpoint", "payload")}
        return {"run": run, "request": self.played.request, "is_last": int(self.played.is_last), **own}

    def payment_columns(self, record: int, agents: Sequence[int], paid: Payments, cut: Any) -> dict[str, Sequence[Any]]:
        """Return the columns of all payments, with their hashes."""
        numbers = np.zeros(len(agents), dtype=chain.PAYMENT)
        numbers["record"], numbers["position"], numbers["agent"] = record, np.arange(len(agents)), agents
        numbers["status"] = paid.status
        numbers["earned"], numbers["released"] = to_micro(paid.earned), to_micro(paid.released)
        numbers["trusted"] = self.played.trusted
        numbers["cut"] = cut
        for source in (self.played.evidence, paid):
            for name in set(NUMBERS) & set(source._fields):
                numbers[name] = getattr(source, name) + 0.0  # no negative zero: SQLite would not keep its sign
        sealed = chain.payment_hashes(numbers, self.gradients, self.signatures, self.notes)
        columns: dict[str, Sequence[Any]] = {name: numbers[name].tolist() for name in chain.PAYMENT.names or ()}
        columns["status"] = [LABELS[value] for value in columns["status"]]
        for name in ("squared_distance", "expected", "variance"):
            columns[name] = [None if value != value else value for value in columns[name]]  # NaN
        return columns | {"gradient": self.gradients, "signature": self.signatures, "note": self.notes, "hash": sealed}


def as_input(number: Any, rule: tuple[str, str], round: Round, extras: Mapping[str, Any]) -> RoundInput:
    """Return a round in plain NumPy, or raise if its parts are not of one size or make no sense."""
    if not isinstance(round, Round):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(round).__name__
        raise TypeError(f"`round` must be a Round, as `Settlement.round` and `round_of` give, got {kind}")
    check_positive_integer("request", round.request)
    sent = to_numpy(round.sent)
    sent = as_mask(np, sent, (sent.size,), "sent")
    seen = round.evidence.as_recorded()
    _check_evidence(seen, sent)
    trusted = _as_trusted(to_numpy(round.trusted), seen)
    played = Round(seen, sent, int(round.request), trusted, bool(round.is_last))
    gradients, signatures = (_per_agent(name, extras[name], sent.size, bytes) for name in ("gradients", "signatures"))
    if any(value is not None and len(value) != 32 for value in gradients):
        raise RefusedError("`gradients` must be hashes of 32 bytes, as `gradient_hash` gives")
    notes = [clean(note or "")[:LONGEST_NOTE] for note in _per_agent("notes", extras["notes"], sent.size, str)]
    metrics, work = _as_json(extras["metrics"] or {}), extras["work"]
    if work is not None and any(len(part) != NUMBER for part in work):
        raise RefusedError(f"`work` must be a NamedRound of four values of {NUMBER} bytes")
    told = gradients, signatures, notes, metrics, extras["checkpoint"], work
    return RoundInput(as_number(number), *rule, played, *told)


def as_number(number: Any) -> int:
    """Return a round's number as an integer, or raise."""
    whole = None if isinstance(number, bool) or not hasattr(number, "__index__") else operator.index(number)
    if whole is None or not 0 <= whole < LATEST:
        raise TypeError(f"`number` must be an integer of at least 0, got {number!r}")
    return whole


def _check_evidence(evidence: Evidence, sent: Any) -> None:
    for name, part in evidence._asdict().items():
        if part.shape != sent.shape:
            raise RefusedError(f"`{name}` must have one entry for each of the {sent.size} agents, got {part.shape}")
    if not all(np.isfinite(part).all() for part in evidence[:-1]):
        raise RefusedError("`evidence` must hold finite numbers only, got NaN or infinity")
    if any((part < 0).any() for part in (evidence.squared_deviation, evidence.pair_distance, evidence.squared_length)):
        raise RefusedError("`evidence` must come from `gather`: no deviation, pair distance or length is negative")
    if (evidence.counted & ~sent).any():
        raise RefusedError(
            f"`sent` must be the mask that `evidence` was gathered with, got False for agent "
            f"{int(np.argmax(evidence.counted & ~sent))}, which `evidence` counts"
        )


def _as_trusted(trusted: Any, evidence: Evidence) -> Any:
    """Return a mask of the agents that the others were compared with, or raise unless all of them count."""
    mask = as_mask(np, trusted, evidence.counted.shape, "trusted")
    if (mask & ~evidence.counted).any():
        raise RefusedError(
            f"`trusted` must be agents that `evidence` counts, got True for agent "
            f"{int(np.argmax(mask & ~evidence.counted))}"
        )
    return mask


def _as_json(metrics: Mapping[str, Any]) -> str:
    # A loss that is no number must not stop the pay.
    finite = {clean(str(name)): float(value) if math.isfinite(value) else None for name, value in metrics.items()}
    return canonical(finite)


def _per_agent(name: str, values: Sequence[Any] | None, count: int, kind: Callable[[Any], Any]) -> list[Any]:
    """Return one value for each agent, or raise; None stays None."""
    taken = [None if value is None else kind(value) for value in ([None] * count if values is None else values)]
    if len(taken) != count:
        raise RefusedError(f"`{name}` must have one entry for each of the {count} agents, got {len(taken)}")
    return taken


class RoundRecorder:
    """Records rounds; keeps rosters, and the states of rules that remember, so as not to read them every time."""

    def __init__(self) -> None:
        self._rosters: dict[int, queries.Roster] = {}
        self._states: dict[int, tuple[tuple[int, bytes], Any]] = {}  # run → the round that it is after, and the state

    def record(
        self, connection: Connection, run: AnyRow, given: RoundInput, told: Handed, data: bytes | None
    ) -> Recorded:
        """Record a round of a run with its checkpoint, or find it as it was recorded, or refuse it."""
        people, last = self._roster(connection, run.id), queries.last_round(connection, run.id)
        agents, factors, payments = told
        check_same_factors(connection, run, people.names, factors)
        if agents is not None and list(agents) != people.names:
            agents = queries.as_enrolled(connection, agents)
        if last is not None and given.number <= last.number:
            return _found(connection, run, given, people.names, agents, payments)
        before = None if last is None else last.number
        if not follows(given.number, before):
            named = f"round {given.number} of run {run.name!r}"
            why = "a run begins with round 0 or 1" if before is None else f"it cannot follow round {before}"
            raise RefusedError(f"{named} cannot be recorded: {why}, and there are no gaps")
        roster = _checked_agents(run, given, people.names, agents)
        terms = terms_of(connection, run.id)
        if len(roster) > len(people.names):
            already, holds = len(people.names), not isinstance(terms.hold, AtOnce)
            people = join(connection, run.id, roster, already, factors, holds=holds)
            check_deposits(connection, run, terms, people, already)
        _check_work(run.name, given, terms)
        paid, state = given.pay(self._state(connection, run.id, given, last), people.factors * terms.price)
        check_same_payments(f"round {given.number} of run {run.name!r}", people.names, payments, paid)
        record = _write(connection, run, terms, given, people, paid)
        journal.save_checkpoint(connection, run.id, checkpoints.parts(data or b""))
        if remembers(given.payer):
            self._states[run.id] = ((record, given.payload), state)
        return Recorded(record, new=True, payments=_rounded(paid))

    def _roster(self, connection: Connection, run: int) -> queries.Roster:
        """Return the agents of a run; read again only when an agent has joined."""
        known = self._rosters.get(run)
        if known is None or len(known.agents) != queries.count_members(connection, run):
            known = self._rosters[run] = queries.roster(connection, run)
        return known

    def _state(self, connection: Connection, run: int, given: RoundInput, last: AnyRow | None) -> Any:
        """Return the rule's state before the round: kept from the last one, or replayed from what is recorded.

        A record that was not committed may be in the database as another, with another payload.
        """
        empty = given.payer.init(len(given.played.sent))
        if not remembers(given.payer) or last is None:
            return empty
        after, state = self._states.get(run, (None, None))
        return padded(empty, state if after == (last.record, last.payload) else replay_state(connection, run))


def _check_work(run: str, given: RoundInput, terms: Terms) -> None:
    """Raise unless a round says which work it named where looks hold the pay, and only there."""
    if isinstance(terms.hold, Looks) != (given.work is not None):
        must = "must be given, as" if given.work is None else "must be None, unless"
        raise RefusedError(f"`work` {must} run {run!r} holds pay until looks: `guerdon.run.open_run` sees to it")


def _checked_agents(run: AnyRow, given: RoundInput, names: list[str], agents: Sequence[str] | None) -> list[str]:
    """Return the agents of a round, or raise unless they are those of the run, then others, as many as were given."""
    roster = names if agents is None else list(agents)
    if roster[: len(names)] != names:
        raise RefusedError(f"`agents` must begin with the {len(names)} agents of run {run.name!r}, in their order")
    if len(roster) != len(given.played.sent):
        raise RefusedError(
            f"`round` must have one entry for each of the {len(roster)} agents of run {run.name!r}, got "
            f"{len(given.played.sent)}; agents that join are named in `agents`"
        )
    return roster


def _write(
    connection: Connection, run: AnyRow, terms: Terms, given: RoundInput, people: queries.Roster, paid: Payments
) -> int:
    """Write a round with its payments and what they move; return the record."""
    if any(signature is not None for signature in given.signatures):
        named = str(connection.execute(select(tables.ledger.c.name)).scalar_one())
        code = terms.hold.code if isinstance(terms.hold, Looks) else ""
        _check_signatures((named, run.name, code), given, people.names, queries.keys(connection, run.id))
    standing = queries.standing(connection, run.id, terms.losses, len(people.agents))
    costs = costs_of(given.cost, given.played.request, people.factors)
    state = holding.joined(holding.load(connection, run.id, terms), len(people.agents))
    at = journal.now(connection) if isinstance(state, Watched) else None
    moment = 0 if at is None else seconds(at)
    played = Played(paid_work(paid.status), costs, given.number, given.played.is_last, moment)
    flows, state = holding.settle_round(terms, to_micro(paid.released), standing, state, played)
    columns = given.payment_columns(journal.next_seq(connection), people.agents, paid, flows.cut)
    entries = lines(flows, people.accounts)
    rows = {"rounds": [given.row(run.id)], "named": [] if given.work is None else [given.work._asdict()]}
    record = journal.append(connection, "round", rows, entries, columns, at=at)
    holding.save(connection, run.id, state)
    return record


def _found(
    connection: Connection,
    run: AnyRow,
    given: RoundInput,
    names: list[str],
    agents: Sequence[str] | None,
    payments: Payments | None,
) -> Recorded:
    """Return a round that is recorded already, or refuse one that is not the same."""
    stored, named = queries.last_round(connection, run.id, given.number), f"round {given.number} of run {run.name!r}"
    if stored is None:
        raise RefusedError(f"{named} comes before the first that is recorded")
    block = read_payments(connection, stored.record, stored.record)
    names = names[: len(block.hashes)]
    roster = _checked_agents(run, given, names, agents)
    was = _as_input(stored, block, named_round(connection, run.id, given.number))
    kept, told = ({"agents": who} | one.parts() for who, one in ((names, was), (roster, given)))
    for name, old in kept.items():
        if told[name] != old:
            how = f"{name}{_difference(old, told[name], names)}"
            raise RefusedError(f"{named} is recorded already, with another {how}; nothing was changed")
    rounded = None if payments is None else _rounded(payments)
    check_same_payments(named, names, rounded, block.payments())
    return Recorded(stored.record, new=False, payments=block.payments())


def _rounded(payments: Payments) -> Payments:
    """Return payments as they are recorded: in whole micro-units."""
    earned, released = (to_micro(amounts) / MICRO for amounts in (payments.earned, payments.released))
    return payments._replace(earned=earned, released=released)


def _as_input(stored: AnyRow, block: PaymentBlock, work: NamedRound | None) -> RoundInput:
    """Return a recorded round as it was handed in."""
    return RoundInput(
        stored.number, stored.rule, stored.cost, block.round(stored.request, is_last=bool(stored.is_last)),
        list(block.gradients), list(block.signatures), list(block.notes), stored.metrics, stored.checkpoint, work,
    )  # fmt: skip


def _difference(old: Any, new: Any, names: Sequence[str]) -> str:
    """Return in words how two values of one thing differ; where there is one for each agent, for the first."""
    if not isinstance(old, list):
        return f" ({queries.short(old)}, now {queries.short(new)})"
    for name, kept, told in zip(names, cast("list[Any]", old), new, strict=False):
        if kept != told:
            return f" of agent {name!r}{_difference(kept, told, names)}"
    return ""


def _check_signatures(
    run: tuple[str, str, str], given: RoundInput, names: Sequence[str], keys: Mapping[str, bytes]
) -> None:
    """Raise unless every signature of a round is by the agent it belongs to, of the gradient sent in that round."""
    work = b"" if given.work is None else work_hash(given.work, run[2])
    for name, gradient, signature in zip(names, given.gradients, given.signatures, strict=True):
        if signature is None:
            continue
        if gradient is None or name not in keys:
            raise RefusedError(f"agent {name!r} has a signature: its gradient's hash and its public key are needed")
        message = submission(*run[:2], given.number, given.played.request, gradient, work)
        if not is_signed_by(keys[name], message, signature):
            raise RefusedError(f"the signature of agent {name!r} is not its own, or not of this round's gradient")
