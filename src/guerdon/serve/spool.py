"""The open round on disk: what was asked, and every report that was acknowledged, until the ledger has the round.

A report is a folder that is renamed into place once all of it is on the disk: it is there whole, or not at all. When
the process is killed, the round is opened again with the same model and the same reports.
"""

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file  # pyright: ignore[reportUnknownVariableType]

from guerdon.ledger.books.errors import RefusedError
from guerdon.looks.naming import NamedRound

KINDS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
MODEL, REPORT, ANSWER, OPEN, NORMALS = "model.safetensors", "report.safetensors", "answer.json", "open.json", "normals"


class SpooledAnswer(NamedTuple):
    """What an agent answered: a report (its hash and signature), or why it declines."""

    agent: str
    gradient: bytes = b""
    signature: bytes = b""
    declined: str = ""  # a reason; empty where it sent a report

    def to_json(self) -> str:
        """Return it as it is kept."""
        return json.dumps({name: v.hex() if isinstance(v, bytes) else v for name, v in self._asdict().items()})

    @classmethod
    def from_json(cls, text: str) -> "SpooledAnswer":
        """Return it as it was kept."""
        read = json.loads(text)
        parts = (bytes.fromhex(read[name]) for name in ("gradient", "signature"))
        return cls(read["agent"], *parts, declined=read["declined"])


class Spool:
    """A folder that holds the open round of one run; only one process may use it."""

    def __init__(self, folder: Path, run: str, ledger: str) -> None:
        self.folder, self._incoming = folder, folder / "incoming"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise RefusedError(f"`--spool`: another process serves from {folder}; stop it first") from error
        self._check_owner({"run": run, "ledger": ledger})
        shutil.rmtree(self._incoming, ignore_errors=True)  # what was cut off was not acknowledged
        self._incoming.mkdir(mode=0o700)

    def close(self) -> None:
        """Let another process use the folder."""
        self._lock.close()

    def opened(self, number: int) -> tuple[list[str], list[np.ndarray] | None, NamedRound | None] | None:
        """Return who was asked in a round that is open already, its secret numbers, and what it named; else None."""
        path = self._round(number)
        if not (path / OPEN).exists():
            return None
        kept, normals = json.loads((path / OPEN).read_text()), None
        if kept["dither"]:
            found = load_file(path / NORMALS)
            normals = [found[str(i)] for i in range(len(found))]
        named = None if kept["named"] is None else NamedRound(*map(bytes.fromhex, kept["named"]))
        return kept["members"], normals, named

    def open(self, number: int, members: list[str], normals: list[np.ndarray] | None, named: NamedRound | None) -> None:
        """Write down a round before anybody is asked; rounds before it are in the ledger, and dropped."""
        for old in self.folder.glob("round-*"):
            if old != self._round(number):
                shutil.rmtree(old)
        draft = self._draft()
        if normals is not None:
            save_file({str(i): np.ascontiguousarray(part) for i, part in enumerate(normals)}, draft / NORMALS)
        told = None if named is None else [part.hex() for part in named]
        kept = {"members": members, "dither": normals is not None, "named": told}
        (draft / OPEN).write_text(json.dumps(kept))
        self._publish(draft, self._round(number))

    def write_model(self, number: int, model: Mapping[str, np.ndarray]) -> Path:
        """Write what is broadcast in a round, and return the file."""
        draft, path = self._incoming / secrets.token_hex(8), self._round(number) / MODEL
        save_file({name: np.ascontiguousarray(array) for name, array in model.items()}, draft)
        draft.replace(path)
        return path

    def write_final(self, model: Mapping[str, np.ndarray]) -> Path:
        """Write the model that a run ended with, once, and return the file."""
        draft, path = self._incoming / secrets.token_hex(8), self.folder / MODEL
        if not path.exists():
            save_file({name: np.ascontiguousarray(array) for name, array in model.items()}, draft)
            draft.replace(path)
        return path

    def draft(self) -> Path:
        """Return the file of a report that is about to arrive."""
        return self._draft() / REPORT

    def discard(self, draft: Path) -> None:
        """Drop a report that is not wanted."""
        shutil.rmtree(draft.parent, ignore_errors=True)

    def keep(self, number: int, draft: Path, answer: SpooledAnswer) -> SpooledAnswer:
        """Keep an answer, on the disk when this returns; one that was there before stays, and is returned."""
        (draft.parent / ANSWER).write_text(answer.to_json(), encoding="utf-8")
        if not self._publish(draft.parent, self._seat(number, answer.agent)):
            return self._read(self._seat(number, answer.agent))
        return answer

    def answer_of(self, number: int, agent: str) -> SpooledAnswer | None:
        """Return what an agent answered in a round, or None."""
        seat = self._seat(number, agent)
        return self._read(seat) if seat.exists() else None

    def answers(self, number: int) -> list[SpooledAnswer]:
        """Return all answers in a round, by agent."""
        found = [self._read(path.parent) for path in self._round(number).glob(f"*/{ANSWER}")]
        return sorted(found, key=lambda answer: answer.agent)

    def report(self, number: int, agent: str) -> Path:
        """Return the file of a report that was kept."""
        return self._seat(number, agent) / REPORT

    def _round(self, number: int) -> Path:
        return self.folder / f"round-{number:08}"

    def _seat(self, number: int, agent: str) -> Path:
        return self._round(number) / sha256(agent.encode()).hexdigest()[:40]

    def _read(self, seat: Path) -> SpooledAnswer:
        return SpooledAnswer.from_json((seat / ANSWER).read_text(encoding="utf-8"))

    def _draft(self) -> Path:
        folder = self._incoming / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        return folder

    def _publish(self, draft: Path, target: Path) -> bool:
        """Move a folder into place, all of it on the disk; False if another is there already."""
        for path in (*draft.iterdir(), draft):
            _sync(path)
        try:
            draft.rename(target)
        except OSError:  # not empty: somebody was quicker
            if not target.exists():
                raise
            shutil.rmtree(draft)
            return False
        _sync(target.parent)
        return True

    def _check_owner(self, owner: Mapping[str, Any]) -> None:
        """Raise if the folder belongs to another run."""
        path = self.folder / "run.json"
        if not path.exists():
            draft = self.folder / "run.json.new"
            draft.write_text(json.dumps(owner), encoding="utf-8")
            draft.replace(path)
        elif json.loads(path.read_text(encoding="utf-8")) != owner:
            self._lock.close()
            raise RefusedError(f"`--spool`: {self.folder} belongs to another run or ledger; name another folder")


def view_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays in a file as they lie on the disk, without reading them, or raise if it is damaged."""
    try:
        with safe_open(path, framework="numpy"):  # checks the header: every array inside the file, none over another
            pass
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"it is no safetensors file: {str(error)[:200]}") from error
    data = np.memmap(path, np.uint8, mode="r")
    end = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header: dict[str, Any] = json.loads(data[8:end].tobytes())
    header.pop("__metadata__", None)
    return {name: _view(name, part, data, end) for name, part in header.items()}


def _view(name: str, part: Mapping[str, Any], data: np.ndarray, start: int) -> np.ndarray:
    if part["dtype"] not in KINDS:
        raise ValueError(f"its array {name!r:.60} is of type {part['dtype']}, which NumPy does not have")
    first, last = (start + offset for offset in part["data_offsets"])
    kind = np.dtype(KINDS[part["dtype"]])
    return np.frombuffer(data, kind, (last - first) // kind.itemsize, first).reshape(part["shape"])


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
