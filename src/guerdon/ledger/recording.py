"""Recording a round: found as it was recorded, or paid by the run's rule and written, with the state that it needs."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from sqlalchemy import Connection

from guerdon.ledger import checkpoints, journal, queries, tables
from guerdon.ledger.checks import check_signatures
from guerdon.ledger.enrolment import join
from guerdon.ledger.errors import RefusedError
from guerdon.ledger.liability import Accounts, lines, settle
from guerdon.ledger.money import MICRO, to_micro
from guerdon.ledger.replay import PaymentBlock, read_payments, replay_state
from guerdon.ledger.rounds import RoundInput
from guerdon.ledger.tables import AnyRow
from guerdon.rules import Payments
from guerdon.rules.mechanism import padded


class Recorded(NamedTuple):
    """What became of a call: the record's number, and whether it was written now or found as it was.

    `payments` are those of a round as they are recorded: in NumPy, rewards rounded to micro-units.
    """

    record: int
    new: bool
    payments: Payments | None = None


class RoundRecorder:
    """Records rounds; keeps rosters, and the states of rules that remember, so as not to read them every time."""

    def __init__(self) -> None:
        self._rosters: dict[int, queries.Roster] = {}
        self._states: dict[int, tuple[tuple[int, bytes], Any]] = {}  # run → the round that it is after, and the state

    def record(
        self, connection: Connection, run: AnyRow, given: RoundInput, agents: Sequence[str] | None, data: bytes | None
    ) -> Recorded:
        """Record a round of a run with its checkpoint, or find it as it was recorded, or refuse it."""
        people, last = self._roster(connection, run.id), queries.last_round(connection, run.id)
        if last is not None and given.number <= last.number:
            return _found(connection, run, given, people.names, agents)
        if last is not None and given.number != last.number + 1:
            raise RefusedError(
                f"round {given.number} of run {run.name!r} cannot follow round {last.number}: there are no gaps"
            )
        roster = _checked_agents(run, given, people.names, agents)
        if len(roster) > len(people.names):
            people = join(connection, run.id, roster, len(people.names))
        paid, state = given.pay(self._state(connection, run.id, given, last))
        record = _write(connection, run, given, people, paid)
        journal.save_checkpoint(connection, run.id, checkpoints.parts(data or b""))
        if given.mechanism.remembers:
            self._states[run.id] = ((record, given.payload), state)
        return Recorded(record, new=True, payments=paid._replace(reward=to_micro(paid.reward) / MICRO))

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
        empty = given.mechanism.init(len(given.participating))
        if not given.mechanism.remembers or last is None:
            return empty
        after, state = self._states.get(run, (None, None))
        return padded(empty, state if after == (last.record, last.payload) else replay_state(connection, run))


def _checked_agents(
    run: AnyRow, given: RoundInput, names: Sequence[str], agents: Sequence[str] | None
) -> Sequence[str]:
    """Return the agents of a round, or raise unless they are those of the run, then others, as many as were given."""
    roster = names if agents is None else list(agents)
    if roster[: len(names)] != names:
        raise RefusedError(f"`agents` must begin with the {len(names)} agents of run {run.name!r}, in their order")
    if len(roster) != len(given.participating):
        raise RefusedError(
            f"`participating` must have one entry for each of the {len(roster)} agents of run {run.name!r}, got "
            f"{len(given.participating)}; agents that join are named in `agents`"
        )
    return roster


def _write(connection: Connection, run: AnyRow, given: RoundInput, people: queries.Roster, paid: Payments) -> int:
    """Write a round with its payments and what they move; return the record."""
    if any(signature is not None for signature in given.signatures):
        keys = queries.keys(connection, run.id)
        check_signatures(run.name, given, people.names, [keys.get(name) for name in people.names])
    standing = queries.standing(connection, run, len(people.agents))
    flows = settle(run.liability, to_micro(paid.reward), given.held, standing)
    columns = given.payment_columns(journal.next_seq(connection), people.agents, paid, flows.cut)
    entries = lines(flows, Accounts(tables.TREASURY, **people.accounts))
    return journal.append(connection, "round", {"rounds": [given.row(run.id)]}, entries, columns)


def _found(
    connection: Connection, run: AnyRow, given: RoundInput, names: Sequence[str], agents: Sequence[str] | None
) -> Recorded:
    """Return a round that is recorded already, or refuse one that is not the same."""
    stored = queries.last_round(connection, run.id, up_to=given.number)
    if stored is None:
        raise RefusedError(f"round {given.number} of run {run.name!r} comes before the first that is recorded")
    block = read_payments(connection, stored.record, stored.record)
    names = names[: len(block.hashes)]
    roster = _checked_agents(run, given, names, agents)
    kept, told = ({"agents": who} | one.parts() for who, one in ((names, _as_input(stored, block)), (roster, given)))
    for name, old in kept.items():
        if told[name] != old:
            raise RefusedError(
                f"round {given.number} of run {run.name!r} is recorded already, with another {name}"
                f"{_difference(old, told[name], names)}; nothing was changed"
            )
    return Recorded(stored.record, new=False, payments=block.payments())


def _as_input(stored: AnyRow, block: PaymentBlock) -> RoundInput:
    """Return a recorded round as it was handed in: version 0.1.0 had another hash of it, but the same columns."""
    return RoundInput(
        stored.number, stored.request, stored.rule, stored.cost, block.evidence(), block.participating(),
        list(block.gradients), list(block.signatures), list(block.notes), block.numbers["held"], stored.metrics,
        stored.checkpoint,
    )  # fmt: skip


def _difference(old: Any, new: Any, names: Sequence[str]) -> str:
    """Return in words how two values of one thing differ; where there is one for each agent, for the first."""
    if not isinstance(old, list):
        return f" ({queries.short(old)}, now {queries.short(new)})"
    for name, kept, told in zip(names, cast("list[Any]", old), new, strict=False):
        if kept != told:
            return f" of agent {name!r}{_difference(kept, told, names)}"
    return ""
