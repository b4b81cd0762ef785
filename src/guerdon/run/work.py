"""A run under looks, on the operator's side: what a round names, who has committed, and what must be kept for looks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from guerdon.ledger import Ledger, RefusedError
from guerdon.looks.draw import commitment, nonce
from guerdon.looks.isolation import code_hash
from guerdon.looks.naming import NamedRound, Used, member_seeds, named_rows, new_number, used_before
from guerdon.looks.opening import RootChange, committed_in
from guerdon.looks.recompute import arrays_hash
from guerdon.run.archive import Archive
from guerdon.run.messages import Work
from guerdon.run.reports import Arrays
from guerdon.terms import Looks, Terms

UNCOMMITTED = (
    "it has not committed to its rows for run {run!r}: `guerdon commit` on its side, then `guerdon looks commit` here"
)


def with_code(terms: Terms) -> Terms:
    """Return terms whose looks name the code of their function: where they leave it out, that of the function here."""
    hold = terms.hold
    if not isinstance(hold, Looks) or not hold.work or hold.code:
        return terms
    return replace(terms, hold=replace(hold, code=code_hash(hold.work)[0]))


class NamedWork:
    """What rounds name. `archive`: where reports are kept, and what the auditor committed to before the run.

    Which rows members have used follows from the ledger, which is read when the run is taken up; then every recorded
    round is added.
    """

    def __init__(self, ledger: Ledger, run: str, hold: Looks) -> None:
        if not hold.work or not hold.code:
            raise RefusedError(
                "`work` and `code` of the terms' looks must name the function that members work by, and the hash of "
                "its code: without them nothing can be computed again, and all that is held would be forfeited"
            )
        self.archive = Archive(ledger.files, run)
        coins = self.archive.coins()
        if (coins.ledger, coins.run, coins.auditor) != (ledger.name, run, hold.auditor):
            raise RefusedError(
                f"coins must be of the auditor of the terms, for run {run!r} of this ledger, {ledger.name}; got some "
                f"for run {coins.run!r} of {coins.ledger}: `guerdon looks coins` makes them"
            )
        self.ledger, self.run, self.hold, self.coins = ledger, run, hold, coins
        self._changes = dict[str, list[RootChange]]()
        self._used: dict[str, list[tuple[int, Used]]] = {}
        self._told: dict[tuple[str, NamedRound, int], Work] = {}  # of the open round
        self._open = -1  # the round whose number was drawn last

    def open(self) -> None:
        """Read what was committed to and used so far."""
        self._changes, self._used = self.ledger.looks.changes(self.run), {}
        if self.ledger.looks.watching(self.run) is not None:
            for one in self.ledger.looks.work(self.run):
                self._use(one.round, one.named.number, one.used)

    def fresh(self, number: int, model: Arrays) -> NamedRound:
        """Return what the ask of a round carries, with a fresh number, for what is broadcast in it."""
        self._open = number
        own = nonce(self.archive.secret(), "server", self.ledger.name, self.run, number)
        server = commitment(own, "server", self.ledger.name, self.run, number)
        return NamedRound(new_number(), server, self.coins.of_round(number), arrays_hash(model))

    def of(self, member: str, named: NamedRound, number: int, request: int) -> Work:
        """Return the work that a round names for a member."""
        asked = member, named, request
        if asked not in self._told:
            self._told[asked] = self._named(*asked, number)
        return self._told[asked]

    def _named(self, member: str, named: NamedRound, request: int, number: int) -> Work:
        seeds = member_seeds(named.number, ledger=self.ledger.name, run=self.run, round=number, member=member)
        committed, used = used_before(self._changes[member], self._used.get(member, []), number)
        rows = tuple(map(int, named_rows(seeds.rows, committed.size, used, request)))
        return Work(rows, seeds.work, named.number.hex(), named.model.hex(), self.hold.code)

    def lacks(self, number: int) -> Callable[[str], str]:
        """Return what tells of an account why it is not asked in a round: it has not committed to its rows.

        What counts in a round is what was committed to before its number was drawn.
        """
        if self._open != number:
            self._changes = self.ledger.looks.changes(self.run)
        return lambda account: "" if self._has_rows(account, number) else UNCOMMITTED.format(run=self.run)

    def _has_rows(self, account: str, number: int) -> bool:
        changes = [change for change in self._changes.get(account, ()) if change.from_round <= number]
        return bool(changes) and committed_in(changes, number).size > 0

    def members(self) -> list[str]:
        """Return the accounts that have committed to their rows, in the order of their names."""
        return sorted(name for name in self._changes if self._has_rows(name, self._open))

    def keep(self, number: int, model: Arrays, reports: Mapping[str, Arrays]) -> None:
        """Keep what a round broadcast, and what members sent, before the round is recorded.

        What another process has recorded meanwhile stays as it is.
        """
        last = self.ledger.looks.last(self.run)
        if last is None or number > last:
            self.archive.keep(number, model, reports)

    def recorded(self, number: int, named: NamedRound, counted: Sequence[str], request: int) -> None:
        """Go on after a recorded round, in which these members' reports counted; drop what needs not be kept."""
        self._use(number, named.number, dict.fromkeys(counted, request))
        self._told = {}
        self.archive.prune(self.ledger.looks.kept(self.run))

    def _use(self, number: int, fresh: bytes, used: Mapping[str, int]) -> None:
        for member, rows in used.items():
            seeds = member_seeds(fresh, ledger=self.ledger.name, run=self.run, round=number, member=member)
            self._used.setdefault(member, []).append((number, Used(seeds.rows, rows)))
