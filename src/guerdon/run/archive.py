"""Files beside a ledger: what was broadcast, and what members sent, in rounds that may still be looked at.

A look needs both to compute the work again. The ledger holds their hashes; the files are checked against these when
they are read. A round is kept before it is recorded, and dropped when no look can be at it any more: with equal pay
`looks` rounds of a period at the most, and those whose coins are not drawn.
"""

import os
import re
import secrets
import zipfile
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from guerdon.ledger.books.errors import RefusedError, UnavailableError
from guerdon.looks.coins import CoinCommitments, read_commitments
from guerdon.run.reports import Arrays

MODEL, SUFFIX = "model", ".npz"
LONGEST = 150  # letters of a name in a file's name; most file systems take 255
SECRET = 32  # bytes of the server's secret, from which its nonces follow


class Archive:
    """The files of one run. `folder`: that of the ledger (`Ledger.files`), which only the operator can write.

    >>> import tempfile
    >>> archive = Archive(tempfile.mkdtemp(), "heart")
    >>> archive.keep(3, {"w": np.zeros(2)}, {"Basel": {"w": np.ones(2)}})
    >>> archive.report(3, "Basel")["w"], archive.rounds()
    (array([1., 1.]), {3})
    >>> archive.prune(kept=[])
    >>> archive.rounds()
    set()
    """

    def __init__(self, folder: os.PathLike[str] | str, run: str) -> None:
        self.folder = Path(folder)
        self._own, self._coins = self.folder / f"run {_name(run)}", self.folder / f"coins of {_name(run)}.json"

    def keep(self, number: int, model: Arrays, reports: Mapping[str, Arrays]) -> None:
        """Keep what was broadcast in a round, and the reports by member: all or nothing. Kept again, it is replaced."""
        folder = self._of(number)
        part = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
        part.mkdir(parents=True, mode=0o700)
        for name, arrays in [(MODEL, model), *((_file_of(member), own) for member, own in reports.items())]:
            _write(part / (name + SUFFIX), arrays)
        _sync(part)
        if folder.exists():
            _remove(folder)
        part.rename(folder)
        _sync(self._own)

    def model(self, number: int) -> dict[str, np.ndarray]:
        """Return what was broadcast in a round."""
        return _read(self._of(number) / (MODEL + SUFFIX))

    def report(self, number: int, member: str) -> dict[str, np.ndarray]:
        """Return what a member sent in a round."""
        return _read(self._of(number) / (_file_of(member) + SUFFIX))

    def rounds(self) -> set[int]:
        """Return the numbers of the rounds that are kept."""
        found = self._own.iterdir() if self._own.exists() else ()
        return {int(one.name) for one in found if re.fullmatch("[0-9]+", one.name)}

    def prune(self, kept: Collection[int]) -> None:
        """Drop the rounds that need not be kept, and what a crash left behind."""
        for one in list(self._own.iterdir()) if self._own.exists() else []:
            if not one.name.isdigit() or int(one.name) not in kept:
                _remove(one)

    def put_coins(self, coins: CoinCommitments, text: str) -> None:
        """Keep what the auditor committed to for the run's coins, as it was signed.

        A file with more rounds may follow, which begins with the same ones; another is refused.
        """
        file = self._coins
        if file.exists() and not _extends(coins, self.coins()):
            raise RefusedError(
                f"{file} has other coins of run {coins.run!r} already: rounds may have been asked by them"
            )
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
        part.write_text(text)
        part.replace(file)
        _sync(self.folder)

    def coins(self) -> CoinCommitments:
        """Return what the auditor committed to for the run's coins."""
        try:
            return read_commitments(self._coins.read_text())
        except FileNotFoundError:
            raise RefusedError(
                "looks need the auditor's coins: `guerdon looks coins` on its side makes a file of them, and `guerdon "
                f"looks accept` here puts it to {self._coins}"
            ) from None

    def drop(self, numbers: Iterable[int]) -> None:
        """Drop these rounds and nothing else: also where a running server is just keeping another one."""
        for number in sorted(self.rounds() & set(numbers)):
            _remove(self._of(number))

    def secret(self) -> bytes:
        """Return the server's secret, from which its nonces of the coins follow; it is made when first asked for."""
        file = self.folder / "coin.secret"
        try:
            found = file.read_bytes()
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                out.write(secrets.token_bytes(SECRET))
                out.flush()
                os.fsync(out.fileno())
            _sync(self.folder)
            found = file.read_bytes()
        if len(found) != SECRET:
            raise UnavailableError(f"{file} must hold {SECRET} bytes, got {len(found)}: restore it from a backup")
        return found

    def _of(self, number: int) -> Path:
        return self._own / f"{number:08d}"


def _file_of(member: str) -> str:
    """Return a member's file name, without its ending: never "model", and nothing that leads elsewhere."""
    return "of " + _name(member)


def _name(text: str) -> str:
    """Return a name as part of a file's: short enough for every file system, and another for every other name."""
    quoted = quote(text, safe=" ")
    return quoted if len(quoted) <= LONGEST else f"{quoted[:40]}~{sha256(text.encode()).hexdigest()}"


def _extends(coins: CoinCommitments, old: CoinCommitments) -> bool:
    """Tell whether coins are the old ones, with those of later rounds behind them or without."""
    return coins._replace(hashes=coins.hashes[: len(old.hashes)]) == old


def _write(file: Path, arrays: Arrays) -> None:
    numbered: dict[str, Any] = {f"a{place}": array for place, array in enumerate(arrays.values())}
    with file.open("wb") as out:
        np.savez(out, names=np.array(list(arrays)), **numbered)
        out.flush()
        os.fsync(out.fileno())


def _read(file: Path) -> dict[str, np.ndarray]:
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as found:
            return {str(name): found[f"a{place}"] for place, name in enumerate(found["names"])}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UnavailableError(f"{file} must hold the arrays of a round that may be looked at: {error}") from error


def _remove(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def _sync(folder: Path) -> None:
    """Make sure that what was written in a folder is there after a crash."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
