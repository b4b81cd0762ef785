"""What travels with the model: the request to an agent, and what it was last paid."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from guerdon.ledger.proof.submissions import submission
from guerdon.looks.naming import NamedRound, work_hash

# Prefixes of a request's names, of those of the work that it names, and of a pay's names, among the settings.
ASKED, NAMED, TOLD = "guerdon-", "guerdon-work-", "guerdon-pay-"
REQUEST, CHOSEN = "guerdon-request", "guerdon-samples"  # the request; what the agent decided to use
GRADIENTS, MODELS = "gradients", "models"  # what agents send


class Work(NamedTuple):
    """The work that a round names for one member: which of its rows, and the seed of all other randomness.

    `rows`: indices among the member's committed rows, in the order in which they are to be used. `seed`: from 0 to
    2**63 - 1. `number`, `model`: the round's fresh number, and the hash of what was broadcast, in hexadecimal. `code`:
    the hash of the application's function.
    """

    rows: tuple[int, ...]
    seed: int
    number: str
    model: str
    code: str

    @classmethod
    def shared(cls, named: NamedRound, code: str) -> Self:
        """Return what all members are told of a round's work: without the rows and the seed of any."""
        return cls((), 0, named.number.hex(), named.model.hex(), code)

    @property
    def hash(self) -> bytes:
        """The hash of the work that the member's signature covers."""
        named = NamedRound(bytes.fromhex(self.number), b"", b"", bytes.fromhex(self.model))
        return work_hash(named, self.code)

    def settings(self) -> dict[str, Any]:
        """Return what to send among a message's settings."""
        return {NAMED + name: list(value) if name == "rows" else value for name, value in self._asdict().items()}

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Self | None:
        """Return the work among a message's settings; None: any rows will do."""
        if NAMED + "seed" not in settings:
            return None
        rows, seed = settings[NAMED + "rows"], whole("seed", settings[NAMED + "seed"])
        return cls(
            tuple(whole("rows", row) for row in rows), seed, *(str(settings[NAMED + name]) for name in cls._fields[2:])
        )


class Request(NamedTuple):
    """What an agent is asked for: gradients of `request` samples, for this round of this run.

    A rule may ask agents for different numbers. Then `usual` is the round's own, which the ledger keeps and signatures
    are of; 0 where it is `request`.
    """

    run: str
    round: int
    request: int
    sends: str  # GRADIENTS, or MODELS trained from the one that was sent
    usual: int = 0
    ledger: str = ""  # the random name of the ledger that the run is recorded in
    work: Work | None = None  # where looks hold the pay

    @property
    def recorded(self) -> int:
        """The request of the round, as the ledger has it."""
        return self.usual or self.request

    def asking(self, samples: int) -> Self:
        """Return it with another number of samples, for one agent."""
        return self._replace(request=samples, usual=self.recorded)

    def signed(self, gradient: bytes) -> bytes:
        """Return the bytes that an agent signs to answer with a gradient of this hash."""
        work = b"" if self.work is None else self.work.hash
        return submission(self.ledger, self.run, self.round, self.recorded, gradient, work)

    def settings(self) -> dict[str, Any]:
        """Return what to send among a message's settings."""
        told = {ASKED + name: value for name, value in self._asdict().items() if name != "work"}
        return told | {CHOSEN: self.request} | ({} if self.work is None else self.work.settings())

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self | None:
        """Return the request in a message's records, or None where there is none."""
        found = find_settings(content, REQUEST)
        if found is None:
            return None
        number, request, usual = (whole(name, found[ASKED + name]) for name in ("round", "request", "usual"))
        run, sends, ledger = (str(found[ASKED + name]) for name in ("run", "sends", "ledger"))
        return cls(run, number, request, sends, usual, ledger, Work.read(found))


class Pay(NamedTuple):
    """What an agent was paid for the last round of a run, and why; `reward` and `balance` in millionths of the unit."""

    round: int
    request: int
    status: str
    reward: int
    balance: int
    unit: str
    why: str

    def settings(self) -> dict[str, Any]:
        """Return what to send among a message's settings."""
        return {TOLD + name: value for name, value in self._asdict().items()}

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self | None:
        """Return the pay in a message's records, or None where there is none."""
        found = find_settings(content, TOLD + "reward")
        if found is None:
            return None
        told = {name: found[TOLD + name] for name in cls._fields}
        number, request, reward, balance = (
            whole(name, told[name]) for name in ("round", "request", "reward", "balance")
        )
        return cls(number, request, str(told["status"]), reward, balance, str(told["unit"]), str(told["why"]))


def find_settings(content: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return the settings among a message's records that have this name, or None."""
    records: list[Mapping[str, Any]] = [record for record in content.values() if isinstance(record, Mapping)]
    return next((record for record in records if name in record), None)


def whole(name: str, value: object) -> int:
    """Return a whole number that anybody may have sent, or raise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"its {name} must be a whole number, got {value!r:.40}")
    return value
