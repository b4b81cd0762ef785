"""What an agent sent in a round: arrays named like the model's, checked before anything is computed with them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from guerdon.ledger.books.errors import RefusedError
from guerdon.ledger.proof.submissions import gradient_hash, is_signed_by
from guerdon.reports import LARGEST
from guerdon.run.messages import Request

TOO_LARGE = f"it holds a number that is not finite, or beyond {LARGEST:.0e}"

Arrays = Mapping[str, np.ndarray]
# Of a model that was sent: the gradients of minibatches of the server's own data, in arrays named like the model's.
Witness = Callable[[Arrays], Sequence[Arrays]]


class Kind(NamedTuple):
    """The shape and type of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: np.ndarray) -> Self:
        """Return the kind of an array."""
        return cls(tuple(array.shape), array.dtype)

    def __str__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


class Template(NamedTuple):
    """The arrays that every report must hold: those of the model.

    Some strategies change types (FedAdam makes double precision of single), and some agents follow, some do not: so
    the type of the model that was just sent will do as well as that of the model it all began with.
    """

    kinds: dict[str, Kind]
    sent: dict[str, Kind]

    @classmethod
    def of(cls, arrays: Arrays, what: str = "initial_arrays") -> Self:
        """Return the template of a model, or raise if it has nothing to compare."""
        kinds = {name: Kind.of(array) for name, array in arrays.items()}
        template = cls(kinds, kinds)
        if not template.compared:
            raise ValueError(
                f"`{what}` must hold at least one array of floating-point numbers: pay is for how close they lie"
            )
        if not is_finite(arrays):
            raise ValueError(f"`{what}` must hold finite numbers only, got NaN or infinity")
        return template

    def after(self, model: Arrays) -> Self:
        """Return the template for reports to a later model."""
        return self._replace(sent={name: Kind.of(array) for name, array in model.items()})

    def ordered(self, saved: Arrays, run: str) -> dict[str, np.ndarray]:
        """Return the model of a checkpoint in the app's own order, or raise if it is not the app's model."""
        shapes = {name: kind.shape for name, kind in self.kinds.items()}
        if {name: array.shape for name, array in saved.items()} != shapes:
            shown = [f"{name} {list(array.shape)}" for name, array in saved.items()]
            told = ", ".join(shown[:5]) + (" …" if len(shown) > 5 else "")
            raise RefusedError(
                f"the model saved with run {run!r} has other arrays than the app's: {told}. Continue it with the app "
                "that it was begun with, or begin a run of another name"
            )
        return {name: saved[name] for name in self.kinds}

    @property
    def compared(self) -> list[str]:
        """The arrays that count: of floating-point numbers, and not empty."""
        return [name for name, kind in self.kinds.items() if kind.dtype.kind == "f" and 0 not in kind.shape]

    def check_names(self, names: Iterable[str]) -> None:
        """Raise unless these are the names of the model's arrays."""
        asked, got = set(self.kinds), set(names)
        missing, extra = sorted(asked - got), sorted(got - asked)
        if missing or extra:
            lacks, has = [f"lacks {_some(missing)}"] * bool(missing), [f"has {_some(extra)} that nobody asked for"]
            raise ValueError(f"it {' and '.join(lacks + has * bool(extra))}")

    def check_kind(self, name: str, kind: Kind) -> None:
        """Raise unless an array is as it was asked for."""
        asked = self.kinds[name]
        if kind not in (asked, self.sent.get(name, asked)):
            raise ValueError(f"its array {name!r:.60} is {kind!s:.80} where {asked} was asked for")

    def check_rest(self, arrays: Arrays) -> None:
        """Raise unless the arrays that are not compared can be used; of the others `gather` tells."""
        for name in self.kinds.keys() - set(self.compared):
            if arrays[name].dtype.kind in "fc" and not is_usable(arrays[name]):
                raise ValueError(TOO_LARGE)

    def view(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """Return the arrays of a report in the template's order, or raise if they are not as asked."""
        self.check_names(arrays)
        for name, array in arrays.items():
            self.check_kind(name, Kind.of(array))
        self.check_rest(arrays)
        return {name: arrays[name] for name in self.kinds}


@dataclass
class Report:
    """What an agent made of a request: arrays that can be used, or a note that says why there are none."""

    account: str
    note: str = ""
    sent: bool = False  # something, usable or not
    failed: bool = False  # the agent wanted to take part, and could not
    reply: Any = None  # what the arrays came in; None: there are none to compute with
    arrays: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    gradient: bytes | None = None  # the hash of what was sent
    signature: bytes | None = None  # of it, if it is the agent's own

    @property
    def usable(self) -> bool:
        """Whether the arrays can be computed with."""
        return self.reply is not None

    def refuse(self, why: str) -> None:
        """Take it for sent, but not usable."""
        self.note, self.sent, self.failed = plain(why), True, True
        self.release()

    def release(self) -> None:
        """Drop what was sent."""
        self.reply, self.arrays = None, {}


def hash_of(arrays: Arrays) -> bytes:
    """Return the hash of arrays that the ledger keeps and signatures are of: in the order of their names."""
    return gradient_hash(arrays[name] for name in sorted(arrays))


def check_signature(
    key: bytes | None, signature: bytes, request: Request, hashed: bytes, *, required: bool, remedy: str = ""
) -> bytes | None:
    """Return an agent's signature of what it sent, None if there is none to check, or raise."""
    if not signature or key is None:
        if required:
            raise ValueError("it is not signed" if not signature else "it is signed, but no key is enrolled for it")
        return None
    if not is_signed_by(key, request.signed(hashed), signature):
        told = f"; {remedy}" if remedy else ""
        raise ValueError(f"its signature is not that of the enrolled key for what it sent in this round{told}")
    return signature


def is_usable(array: np.ndarray) -> bool:
    """Tell whether all numbers are finite and small enough to compute with."""
    return bool((np.abs(array) <= LARGEST).all())  # NaN is not


def is_finite(arrays: Arrays) -> bool:
    """Tell whether a model can be computed with."""
    return all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind in "fc")


def plain(text: str) -> str:
    """Return what an agent has a say in as one line that does nothing to a terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"{name!r:.60}" for name in names[:3])
    return f"array {shown}" if len(names) == 1 else f"arrays {shown}{' …' if len(names) > 3 else ''}"
