"""What travels in a look: the task, that the operator hands to member and auditor, and the member's sealed answer.

Both are files of data: arrays of numbers, JSON and sealed bytes; nothing in them can run.
"""

import hashlib
import io
import json
import zipfile
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from guerdon.arrays import check_choice, check_positive_integer, gradient_hash
from guerdon.canonical import canonical
from guerdon.looks.auditors import Auditor
from guerdon.looks.isolation import Limits
from guerdon.looks.opening import Committed, Opening
from guerdon.looks.recompute import Arrays, arrays_hash
from guerdon.looks.sealing import HEAD, LookOf, seal, sealed_hash

FORMAT, VERSION = "guerdon-look-task", 1
SENDS = "gradients", "models"
ANSWER = b"guerdon answer 1\n"
LONGEST = 65_536  # bytes of an answer's line of JSON: names have 200 letters at most
# Bytes that the arrays of a task may take unpacked, so that a small file cannot fill the memory: what a process that
# computes work again may use.
LARGEST = Limits().memory


class Subject(NamedTuple):
    """What a look is about, as far as the ledger says it: anybody who has the ledger can make it again.

    `look`: its number in the run. `round`: which is looked at. `committed`: the member's record that counts in the
    round. `rows`: indices of the rows that the round named and the member used, in their order. `seed`: of all other
    randomness of the work. `work`, `code`: the function and the SHA-256 of its source, from the terms. `model`,
    `report`: hashes of what was broadcast and of what the member sent, in hexadecimal.
    """

    look: int
    round: int
    committed: Committed
    rows: tuple[int, ...]
    seed: int
    work: str
    code: str
    model: str
    report: str

    @property
    def of(self) -> LookOf:
        """What an answer is sealed for."""
        return LookOf(self.committed.ledger, self.committed.run, self.round, self.committed.member)

    def hash(self, sends: str) -> str:
        """Return the SHA-256 of the subject and of what members send, in hexadecimal: a verdict names it."""
        told = ["guerdon look task 1", json.loads(self.committed.to_json()), self.look, self.round, list(self.rows)]
        told += [self.seed, self.work, self.code, self.model, self.report, sends]
        return hashlib.sha256(canonical(told).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Task:
    """All that member and auditor need for one look.

    `subject`: what it is about. `auditor`: who judges it. `sends`: whether members report "gradients" or "models".
    `model`, `report`: arrays by name; their hashes are those of the subject. `appeal`: whether it is the second look.
    `replaces`: hash of the verdict that the appeal is against, "" where there is none. `limits`: of the whole look.
    """

    subject: Subject
    auditor: Auditor
    model: Arrays
    report: Arrays
    sends: str = "gradients"
    appeal: bool = False
    replaces: str = ""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def hash(self) -> str:
        """The hash of subject and `sends`, which the verdict names."""
        return self.subject.hash(self.sends)

    def to_bytes(self) -> bytes:
        """Return the task as the bytes of an .npz file: its header as JSON, then the arrays."""
        subject = self.subject._asdict() | {"committed": json.loads(self.subject.committed.to_json())}
        header = {
            "format": FORMAT, "version": VERSION, "subject": subject, "auditor": self.auditor._asdict(),
            "sends": self.sends, "appeal": self.appeal, "replaces": self.replaces, "limits": asdict(self.limits),
            "names": {"model": list(self.model), "report": list(self.report)},
        }  # fmt: skip
        parts: dict[str, Any] = {"header": np.frombuffer(canonical(header).encode(), dtype=np.uint8)}
        for what, arrays in (("model", self.model), ("report", self.report)):
            parts |= {f"{what}_{place}": array for place, array in enumerate(arrays.values())}
        out = io.BytesIO()
        np.savez(out, allow_pickle=False, **parts)
        return out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Task":
        """Return a task from its bytes, or raise a ValueError unless all in it fits together."""
        try:
            told, model, report = _unpacked(data)
            if (told.pop("format"), told.pop("version")) != (FORMAT, VERSION):
                raise ValueError(f"it is not of format {FORMAT!r}, version {VERSION}")
            del told["names"]
            subject: dict[str, Any] = told.pop("subject")
            committed = Committed.from_json(json.dumps(subject.pop("committed")))
            rows = tuple(subject.pop("rows"))
            auditor, limits = Auditor(**told.pop("auditor")), Limits(**told.pop("limits"))
            found = Subject(committed=committed, rows=rows, **subject)
            return cls(found, auditor, model, report, limits=limits, **told)
        except (ValueError, TypeError, KeyError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"a task must be a file that `guerdon looks tasks` wrote: {error}") from error


class Answer(NamedTuple):
    """A member's answer to a look: of which look it is, and what it sealed for the auditor."""

    look: int
    of: LookOf
    appeal: bool
    sealed: bytes

    @property
    def hash(self) -> bytes:
        """What the ledger records, 32 bytes."""
        return sealed_hash(self.sealed)

    def to_bytes(self) -> bytes:
        """Return the answer as the bytes of its file."""
        told = {"look": self.look, "of": self.of._asdict(), "appeal": self.appeal}
        return ANSWER + canonical(told).encode() + b"\n" + self.sealed

    @classmethod
    def from_bytes(cls, data: bytes) -> "Answer":
        """Return an answer from its bytes, or raise a ValueError; only the auditor can tell what is sealed in it."""
        line, _, sealed = data.removeprefix(ANSWER).partition(b"\n")
        try:
            if not data.startswith(ANSWER) or len(line) > LONGEST or not sealed.startswith(HEAD):
                raise ValueError("it does not begin as one, or is cut off")
            told = json.loads(line)
            found = cls(told["look"], LookOf(**told["of"]), told["appeal"], sealed)
            if [type(value) for value in (found.look, found.appeal, *found.of)] != [int, bool, str, str, int, str]:
                raise ValueError("its first line has other types")
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"an answer must be a file that `guerdon looks answer` wrote: {error}") from error
        return found


def answer_to(task: Task, opening: Opening) -> Answer:
    """Return a member's opened rows, sealed to the auditor of a task.

    Two answers to one task differ: each is sealed by a fresh key. The first that is recorded counts.
    """
    sealed = seal(opening.to_bytes(), bytes.fromhex(task.auditor.sealing), task.subject.of)
    return Answer(task.subject.look, task.subject.of, task.appeal, sealed)


def _unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return header, model and report of a task's file."""
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        if sum(part.file_size for part in packed.infolist()) > LARGEST:
            raise ValueError(f"it takes more than {LARGEST} bytes unpacked")
    with np.load(io.BytesIO(data), allow_pickle=False) as parts:
        told: dict[str, Any] = json.loads(parts["header"].tobytes())
        names: dict[str, list[str]] = told["names"]
        model, report = (
            {name: parts[f"{what}_{place}"] for place, name in enumerate(names[what])} for what in ("model", "report")
        )
    return told, model, report


def _check(task: Task) -> None:
    """Raise unless the parts of a task fit each other."""
    subject = task.subject
    task.auditor.checked()
    check_positive_integer("look", subject.look)
    check_choice("sends", task.sends, SENDS)
    size = subject.committed.size
    if not subject.rows or not all(type(row) is int and 0 <= row < size for row in subject.rows):
        raise ValueError(f"`rows` must be indices of the {size} rows committed, at least one, got {subject.rows!r:.80}")
    if type(subject.seed) is not int or not 0 <= subject.seed < 2**63:
        raise ValueError(f"`seed` must be a whole number from 0 to 2**63 - 1, got {subject.seed!r:.80}")
    if type(task.appeal) is not bool or (task.replaces and not task.appeal):
        raise ValueError(f"`appeal` must be true or false, and true where a verdict is replaced, got {task.appeal!r}")
    if set(task.report) != set(task.model):  # its hash covers the order of the names, not the names
        raise ValueError(f"`report` must have the arrays of the model, got {sorted(task.report)!r:.80}: another task")
    model, report = arrays_hash(task.model).hex(), report_hash(task.report).hex()
    for what, found, named in (("model", model, subject.model), ("report", report, subject.report)):
        if found != named:
            raise ValueError(
                f"`{what}` must have the hash that the ledger has, {named!r:.18}…, got {found[:16]}…: other arrays"
            )


def report_hash(report: Arrays) -> bytes:
    """Return the hash of a report that the ledger keeps and members sign: in the order of its arrays' names."""
    return gradient_hash(report[name] for name in sorted(report))
