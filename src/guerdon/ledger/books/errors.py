"""What can go wrong with a ledger, told in words; and the database's own complaints translated into them."""

import re
from collections.abc import Generator
from contextlib import contextmanager


class RefusedError(ValueError):
    """What was asked contradicts what is recorded, or the rules: nothing was changed."""


class RuleMissingError(RefusedError):
    """A recorded rule is not installed here, or in another version only: what it paid cannot be computed."""


class UnavailableError(OSError):
    """The database is missing, locked, read-only, full or damaged: nothing that was committed is lost.

    Where the connection broke, the last call may or may not have been committed. A round can simply be recorded again;
    before repeating a move or a payout, look whether it is there.
    """


# What a database says (patterns), and what a person should read. The first that matches is used.
_TOO_LARGE = r"cannot store real value|integer overflow|bigint out of range"
_WORDS = {
    "there is no such database on the server; check its name, or make it with `createdb NAME`":
        (r'database "[^"]*" does not exist',),
    "the server does not let this user in; check user and password":
        (r'role "[^"]*" does not exist', "password authentication failed", "no pg_hba.conf entry"),
    "another process is writing to it; try again later": ("database is locked", "lock timeout"),
    "it is open for reading only; nothing was written": ("readonly", "read-only"),
    "the disk is full; the last entry was not written, all earlier ones are safe": ("disk is full", "no space left"),
    "the file is damaged or not a ledger; restore it from a backup": ("malformed", "not a database", "disk i/o error"),
    "the file cannot be opened; check the path and its permissions": ("unable to open",),
    "what is recorded can never be changed": ("append-only",),
    "it is not a complete ledger": ("does not exist", "no such table", "no such column"),
    "the database server cannot be reached; look what was recorded before you repeat a move or a payout":
        ("connect", "resolve host", "server closed"),
}  # fmt: skip


@contextmanager
def translate_errors(where: str) -> Generator[None]:
    """Turn the database's complaints about the ledger at `where` into `UnavailableError`."""
    from sqlalchemy.exc import SQLAlchemyError  # not above: a node that signs needs no database

    try:
        yield
    except UnicodeDecodeError as error:
        raise UnavailableError(f"ledger {where}: the file is damaged; restore it from a backup ({error})") from error
    except SQLAlchemyError as error:
        complaint = str(getattr(error, "orig", error))
        if re.search(_TOO_LARGE, complaint.lower()):
            must = "the balance of an account, and what is added up, must be at most 9.2 trillion units"
            raise RefusedError(f"ledger {where}: {must}; nothing was written ({_first_line(complaint)})") from error
        raise UnavailableError(f"ledger {where}: {_plainly(complaint)}") from error


def _plainly(complaint: str) -> str:
    for words, patterns in _WORDS.items():
        if any(re.search(pattern, complaint.lower()) for pattern in patterns):
            return f"{words} ({_first_line(complaint)})"
    return _first_line(complaint)


def _first_line(complaint: str) -> str:
    return complaint.strip().splitlines()[0] if complaint.strip() else "no reason given"
