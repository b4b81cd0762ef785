"""What travels with the model: the request to an agent, and what it was last paid."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from guerdon.ledger.proof.submissions import submission

ASKED, TOLD = "guerdon-", "guerdon-pay-"  # prefixes of a request's names and of a pay's names among the settings
REQUEST, CHOSEN = "guerdon-request", "guerdon-samples"  # the request; what the agent decided to use
GRADIENTS, MODELS = "gradients", "models"  # what agents send


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

    @property
    def recorded(self) -> int:
        """The request of the round, as the ledger has it."""
        return self.usual or self.request

    def asking(self, samples: int) -> Self:
        """Return it with another number of samples, for one agent."""
        return self._replace(request=samples, usual=self.recorded)

    def signed(self, gradient: bytes) -> bytes:
        """Return the bytes that an agent signs to answer with a gradient of this hash."""
        return submission(self.ledger, self.run, self.round, self.recorded, gradient)

    def settings(self) -> dict[str, Any]:
        """Return what to send among a message's settings."""
        return {ASKED + name: value for name, value in self._asdict().items()} | {CHOSEN: self.request}

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self | None:
        """Return the request in a message's records, or None where there is none."""
        found = find_settings(content, REQUEST)
        if found is None:
            return None
        number, request, usual = (whole(name, found[ASKED + name]) for name in ("round", "request", "usual"))
        return cls(
            str(found[ASKED + "run"]), number, request, str(found[ASKED + "sends"]), usual, str(found[ASKED + "ledger"])
        )


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
    """Return a whole number that a stranger may have sent, or raise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"its {name} must be a whole number, got {value!r:.40}")
    return value
